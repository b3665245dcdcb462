"""Progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

Advance = Callable[[float], object]
"""Advances a progress bar by an amount."""

Bar = Callable[[int], Advance]
"""Starts a progress bar with a total."""

Progress = bool | Callable[[float], object] | None
"""Whether progress is shown; None for only on a terminal. Or a function that is told the share that is done."""


@contextmanager
def progress_bar(progress: Progress, doing: str = "explaining") -> Iterator[Bar]:
    """A progress bar in instances; if ``progress`` is None, only on a terminal. A function gets the share that is done."""
    if callable(progress):
        yield partial(_report_share, progress)
        return
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
    with RichProgress(*columns, console=Console(stderr=True), disable=not shown, transient=terminal) as bar:

        def start(total: int) -> Advance:
            task = bar.add_task(doing, total=total)
            return lambda amount: bar.advance(task, amount)

        yield start


def _report_share(report: Callable[[float], object], total: int) -> Advance:
    """Progress that a function is told: the share that is done."""
    done = 0.0

    def advance(amount: float) -> None:
        nonlocal done
        done += amount
        report(min(done / max(total, 1), 1.0))

    return advance


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
