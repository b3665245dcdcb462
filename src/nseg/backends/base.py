"""The interface that all backends implement."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from numbers import Integral
from typing import Any, TypeVar

from nseg.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Backend(ABC):
    """Calls a function on many items, in this process or in workers.

    A backend knows nothing about the function. It can be used for several maps, one after the other, and keeps its workers
    until it is closed.
    """

    @abstractmethod
    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        """Call the function on each item and yield the results as they finish.

        The function is sent to each worker once, so the function object may cache values between calls. If it has an
        attribute ``gpus``, each call gets that many GPUs. If it has a true attribute ``anywhere``, this process may be one
        of the workers. At most one item per worker is in progress, and an item is only read from ``items`` when a worker is
        free: studies use this to lock a trial just before it starts. An exception that the function raises is raised here.
        Closing the generator stops the workers that are busy.

        Yields:
            the position of an item and its result, in the order in which calls finish.
        """

    def prepare(self, items: int) -> None:  # noqa: B027 - not abstract: most backends have nothing to prepare
        """Fork workers for so many calls that may be made anywhere, if they are forks: before the caller starts threads."""

    def note(self) -> str | None:
        """A sentence if the last map was made in this process alone, although the backend has workers."""
        return None

    def close(self) -> None:  # noqa: B027 - not abstract: the local backend has no workers to stop
        """Stop the workers."""

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def check_workers(workers: Any) -> int | None:
    """The number of workers as an integer; None lets the backend choose."""
    if workers is None:
        return None
    if isinstance(workers, bool) or not isinstance(workers, Integral) or workers < 1:
        raise InputError(f"workers must be a positive integer (got {workers!r}). Leave it out to use one worker per core.")
    return int(workers)


def usable_cores() -> int:
    """Number of cores that this process may use, or of the machine where the system does not say, as on macOS."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
