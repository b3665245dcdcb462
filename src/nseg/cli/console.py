"""Output to the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console


def console(width: int = 110) -> Console:
    """Standard output, with a fixed width where it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else width)


@contextmanager
def interruptible(resumable: bool) -> Iterator[None]:
    """Turn Ctrl-C into a message and exit code 130.

    Args:
        resumable: whether finished work is stored, which the message then says.
    """
    try:
        yield
    except KeyboardInterrupt:
        hint = " Finished work is stored. Run the same command again to continue." if resumable else ""
        typer.echo(f"Stopped.{hint}", err=True)
        raise typer.Exit(130) from None
