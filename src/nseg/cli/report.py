"""``nseg report``: tables, figures and pages of a run."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nseg.cli.console import console
from nseg.cli.options import set_threads
from nseg.errors import InputError

if TYPE_CHECKING:
    from nseg.study import StudyFolder

FORMATS = ("table", "markdown", "csv", "latex", "none")


def report(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="Run folder of 'nseg bench'.")],
    name: Annotated[str | None, typer.Option("--study", help="Name of one study in the run. Default: all.")] = None,
    form: Annotated[
        str, typer.Option("--format", help=f"What to print: {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    ] = "table",
    out: Annotated[Path | None, typer.Option(help="Folder for tables, figures and manifest. Default: RUN/report.")] = None,
    html: Annotated[bool, typer.Option(help="Write interactive pages, one per dataset and network.")] = True,
    dataset: Annotated[str | None, typer.Option(help="Write only the page of this dataset.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Labels of the methods to compare on the pages, separated by ';'. Default: the first three."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the first page in a browser.")] = False,
) -> None:
    """Show the results of a study beside the paper's, and write tables, figures and interactive pages."""
    if form not in FORMATS:
        raise InputError(f"--format must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]} (got {form!r}).")
    if not run.is_dir():
        raise not_a_run(run)
    set_threads(context)
    from nseg import study

    opened, folder = study.StudyFolder(run), out or run / "report"
    if not opened.studies():
        raise not_a_run(run)
    check_dataset(opened, dataset)
    labels = [label.strip() for label in methods.split(";")] if methods else []
    pages: list[Path] = []
    for one in [name] if name else opened.studies():
        print_results(opened, one, form)
        files = study.write_report(opened, one, folder)
        if html:
            pages += study.write_pages(opened, one, folder, labels, dataset)
            files += [path.name for path in pages]
        typer.echo(f"Wrote {', '.join(files)} to {folder}.", err=True)
    if open_ and pages:
        webbrowser.open(pages[0].resolve().as_uri())


def not_a_run(folder: Path) -> InputError:
    """Return the error for a folder without a run."""
    return InputError(f"RUN must be a run folder of nseg bench (got {folder}, which is not). Make one: nseg bench smoke.")


def check_dataset(run: StudyFolder, dataset: str | None) -> None:
    """Raise if the run has no trial on the dataset."""
    known = {trial.dataset for one in run.studies() for trial in run.study(one)[1].values()}
    if dataset is not None and dataset not in known:
        raise InputError(f"--dataset must be one of the run's: {', '.join(sorted(known))} (got {dataset!r}).")


def print_results(run: StudyFolder, study: str, form: str) -> None:
    """Print the tables of a study in one of :data:`FORMATS`."""
    from nseg.study import summary, tables

    lines = summary.summary(run, study)
    if form == "table":
        for table in tables.tables(lines):
            console(150).print(tables.terminal(table))
        console().print(tables.NOTES)
    elif form == "csv":
        typer.echo(tables.as_csv(lines))
    elif form != "none":
        write = tables.markdown if form == "markdown" else tables.latex
        typer.echo(write(tables.tables(lines)))
