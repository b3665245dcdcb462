"""The backend that runs in the calling process."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from nseg.backends.base import Backend, Item, Result


class Local(Backend):
    """Calls the function in this process, one item after the other."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        for number, item in enumerate(items):
            yield number, function(item)
