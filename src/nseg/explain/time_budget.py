"""The seconds of a whole call, shared out among its targets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from torch_geometric.explain import Explanation

from nseg.errors import InputError, UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.search.deadline import Deadline, now, time_limit

RESERVE = 0.2
"""Share of the time that is kept for what cannot be cut short: subgraphs, verification and writing explanations."""


@dataclass
class TimeBudget:
    """How long the searches of a call may take.

    A batch gets its share of the time that is left: a tenth if a tenth of the targets that are left are in it. What it does
    not use, the batches after it share.

    Args:
        seconds: what the caller gave.
        end: when searches must be over, on the clock of :func:`nseg.search.deadline.now`.
        targets: number of targets of the call.
        shard: number of targets in a shard.
        workers: number of shards that are explained at the same time.
        left: number of targets whose search has not begun, as far as this process knows.
    """

    seconds: float
    end: float
    targets: int = 1
    shard: int = 1
    workers: int = 1
    left: int = 0

    @classmethod
    def of_call(cls, seconds: float | None, algorithm: Any, stored: bool) -> TimeBudget | None:
        """The budget of a call that begins now; None without a limit. Raises if the call cannot have this limit."""
        if seconds is None:
            return None
        _check_seconds(seconds, algorithm, stored)
        return cls(float(seconds), now() + (1 - RESERVE) * float(seconds))

    def shared_by(self, shards: Sequence[tuple[int, list[int]]], backend: Any) -> TimeBudget:
        """The same budget, shared out among the targets of some shards, which a backend explains."""
        workers = getattr(backend, "workers", None) or 1
        return replace(self, targets=sum(len(rows) for _, rows in shards), shard=len(shards[0][1]), workers=workers)

    def begin_shard(self, number: int) -> None:
        """Begin a shard; those of lower numbers have begun before."""
        self.left = self.targets - number * self.shard

    def share(self, targets: int) -> float:
        """Seconds for the next batch of targets.

        >>> budget = TimeBudget(60, now() + 60, targets=300, shard=100, left=300)
        >>> round(budget.share(100)), round(budget.share(100))
        (20, 30)
        """
        left, self.left = max(self.left, targets), self.left - targets
        at_once = min(self.workers, -(-left // self.shard))
        return max(self.end - now(), 0.0) * min(targets * at_once / left, 1.0)


def _check_seconds(seconds: Any, algorithm: Any, stored: bool) -> None:
    """Raise unless a call may have this time limit."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not 0 < float(seconds) < math.inf:
        raise InputError(f"seconds must be a positive number (got {seconds!r}). Leave it out for no time limit.")
    if not isinstance(algorithm, BatchedAlgorithm):
        raise UnsupportedError(
            f"seconds needs a method that can be stopped early (got {type(algorithm).__name__}, which is called as it is). "
            "Leave seconds out, or explain fewer targets."
        )
    if stored:
        raise InputError(
            "seconds is only for explanations in memory (got it with out), because a run folder must hold the same whenever "
            "it was written. Leave seconds out: a run with out can be stopped at any time and continues later."
        )


@contextmanager
def limit_search(budget: TimeBudget | None, targets: int) -> Iterator[Deadline | None]:
    """A ``with`` block around the search of a batch of targets."""
    if budget is None:
        yield None
        return
    with time_limit(budget.share(targets)) as deadline:
        yield deadline


def describe_unfinished(found: Sequence[Explanation], budget: TimeBudget | None) -> list[str]:
    """A sentence about how far the searches got; none if all were finished."""
    unfinished = sum(bool(one.get("stopped")) for one in found)
    if budget is None or not unfinished:
        return []
    return [
        f"The time of seconds={budget.seconds:g} was over before all searches were: {len(found) - unfinished} of "
        f"{len(found)} explanations were searched to the end; {unfinished} are the best found so far, verified like the "
        "others, and say in `stopped` which stage was cut short. Give more seconds for better ones."
    ]
