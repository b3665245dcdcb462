"""A time limit for a search: loops ask :func:`time_is_up` and stop with the best that they have found.

The limit is set by a ``with`` block around the search and seen by every loop inside it, as ``torch.no_grad`` is. Without
such a block no loop ever looks at a clock, and equal seeds give equal masks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

CLIMB_SHARE = 0.5
"""Share of the time after which the soft masks are climbed no further, so that time is left for the hard ones."""


def now() -> float:
    """Seconds on a clock that worker processes and machines share."""
    return time.time()


@dataclass
class Deadline:
    """When a search must end, and how far it got.

    Args:
        begin, end: on the clock of :func:`now`.
        stopped: the first stage that was cut short; empty if none was.
    """

    begin: float
    end: float
    stopped: str = ""


_current: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def time_limit(seconds: float) -> Iterator[Deadline]:
    """A ``with`` block whose searches end as soon as they can when the time is over."""
    begin = now()
    deadline = Deadline(begin, begin + seconds)
    token = _current.set(deadline)
    try:
        yield deadline
    finally:
        _current.reset(token)


def time_is_up(stage: str, share: float = 1.0) -> bool:
    """Whether a stage of the search must stop now; false if there is no time limit.

    Args:
        stage: what would come next; remembered if it is the first that is cut short.
        share: share of the time that must be over.
    """
    deadline = _current.get()
    if deadline is None or now() < deadline.begin + share * (deadline.end - deadline.begin):
        return False
    deadline.stopped = deadline.stopped or stage
    return True
