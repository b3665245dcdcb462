"""Output to the terminal."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

WIDTH = 80
"""Columns where the output is not a terminal."""


def console(width: int = WIDTH) -> Console:
    """Standard output; without colour and with a fixed width where it is not a terminal."""
    if sys.stdout.isatty():
        return Console()
    return Console(width=width, no_color=True, force_terminal=False)


def say(text: str) -> None:
    """Print plain text, wrapped between words; brackets and numbers in it are only that."""
    for line in text.splitlines():
        typer.echo(textwrap.fill(line, console().width, break_long_words=False, break_on_hyphens=False))


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
