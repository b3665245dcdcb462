"""What a back end is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from numbers import Integral
from typing import Any, TypeVar

from nseg.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Backend(ABC):
    """Calls a function on many items, somewhere; knows nothing of what the function does.

    A back end may be used for several maps, one after the other, and keeps its workers until it is closed.
    """

    @abstractmethod
    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        """Call the function on each item.

        The function is sent to each worker once, and may keep what it works out there in itself. If it has an attribute
        ``gpus``, each call is given so many. No more items are under way than there are workers. What the function raises
        is raised here. Closing the generator stops the workers.

        Yields:
            the number of an item and its result, in the order in which they are finished.
        """

    def close(self) -> None:  # noqa: B027 - some have none
        """Let the workers go."""

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def checked_workers(workers: Any) -> int | None:
    """A number of workers, or None for the back end to choose."""
    if workers is None:
        return None
    if isinstance(workers, bool) or not isinstance(workers, Integral) or workers < 1:
        raise InputError(f"workers must be a positive whole number (got {workers!r}). None is one per core.")
    return int(workers)
