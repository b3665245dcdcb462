"""The command line: one file per command, each thin. What a command does, a few lines of Python can do.

Entry point: :func:`run`. May import every other package; nothing imports it.

- ``demo``, ``explain``, ``counterfactual``, ``patterns``, ``studio``, ``export``, ``train``, ``bench``, ``report``,
  ``list``: the commands.
- ``options``: options that commands share, and checks of their values.
- ``name_files``: names from CSV and JSON files.
- ``console``: output to the terminal.
- ``subject``, ``own``, ``results``: what ``explain`` computes.

Help, mistyped names and ``nseg list`` must answer at once. Hence commands import torch, and whatever imports torch, inside
their functions, after their arguments are checked. ``subject``, ``own`` and ``results`` import torch at the top and are
imported only there.
"""

from __future__ import annotations

from typing import Annotated

import typer

from nseg.cli import bench, counterfactual, demo, explain, export, list, patterns, report, studio, train
from nseg.errors import NsegError
from nseg.version import __version__

app = typer.Typer(
    help="Necessary and sufficient explanations for graph neural networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = (
    *(demo.demo, explain.explain, counterfactual.counterfactual, patterns.patterns, studio.studio, export.export),
    *(bench.bench, report.report, train.train, list.list_),
)
for command in COMMANDS:
    app.command(command.__name__.strip("_"))(command)


def show_version(asked: bool) -> None:
    """Print the version and exit."""
    if asked:
        typer.echo(f"nseg {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Number of torch threads; small graphs are fastest with one.")] = 1,
) -> None:
    """Necessary and sufficient explanations for graph neural networks."""


def run() -> None:
    """Run the command line; errors that nseg raises on purpose are printed without a traceback."""
    try:
        app()
    except NsegError as error:
        typer.echo(f"nseg: {error}", err=True)
        raise SystemExit(2) from None


__all__ = ["app", "run"]
