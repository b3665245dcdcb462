"""Here, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from nseg.backends.base import Backend, Item, Result


class Local(Backend):
    """Calls the function in this process."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        for number, item in enumerate(items):
            yield number, function(item)
