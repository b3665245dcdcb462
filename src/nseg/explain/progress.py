"""Progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance = Callable[[float], object]
"""Advances a progress bar by an amount."""

Bar = Callable[[int], Advance]
"""Starts a progress bar with a total."""


@contextmanager
def progress_bar(progress: bool | None, doing: str = "explaining") -> Iterator[Bar]:
    """A progress bar in instances; if ``progress`` is None, only on a terminal."""
    terminal = sys.stderr.isatty()
    shown = terminal if progress is None else progress
    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=terminal) as bar:

        def start(total: int) -> Advance:
            task = bar.add_task(doing, total=total)
            return lambda amount: bar.advance(task, amount)

        yield start


class ShardProgress:
    """Progress of a run: in small steps within a shard of this process, and by whole shards."""

    def __init__(self, advance: Advance) -> None:
        self.advance, self.within_shard = advance, 0.0

    def tick(self, amount: float) -> None:
        """A part of a shard is done."""
        self.within_shard += amount
        self.advance(amount)

    def finish(self, result: Any, targets: int) -> Any:
        """A shard with so many targets is done; returns its result."""
        self.advance(targets - self.within_shard)
        self.within_shard = 0.0
        return result


def no_progress(amount: float) -> None:
    """Progress that nobody watches."""
