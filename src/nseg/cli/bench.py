"""``nseg bench``: run a study."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nseg.cli.console import console, interruptible
from nseg.cli.options import Address, BackendName, Workers, choose_backend, parse_numbers, set_threads
from nseg.study import plan

if TYPE_CHECKING:
    from nseg.study import StudyFolder


def bench(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="STUDY", help="Name of a study ('nseg list' shows them), or a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/STUDY. An existing run continues where it stopped.")
    ] = None,
    backend: BackendName = None,
    workers: Workers = None,
    address: Address = None,
    every: Annotated[int | None, typer.Option(min=1, help="Explain only every n-th of the paper's instances.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds to use instead of the study's, such as 0:5 or 0,3.")] = None,
    networks: Annotated[
        str | None, typer.Option(help="Networks to explain instead of the study's: ours or authors.")
    ] = None,
    retry: Annotated[bool, typer.Option(help="Run failed trials again.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print only errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON record per line.")] = False,
) -> None:
    """Run a study. Exit code 1 means that trials failed."""
    numbers = None if seeds is None else tuple(parse_numbers(seeds, "seeds"))
    changes: dict[str, Any] = {"every": every, "networks": networks, "seeds": numbers}
    study = replace(plan.find(name), **{k: v for k, v in changes.items() if v is not None})
    backend = choose_backend(backend, workers, address)
    set_threads(context)
    from nseg import backends
    from nseg.study.folder import run_trials, start

    pool = backends.make(backend, workers, address)
    folder, show = out or Path("runs") / study.name, not quiet and not as_json
    run, trials = start(study, folder, " ".join(["nseg", *sys.argv[1:]]))
    started = time.monotonic()
    measures = study.measures_of(trials)
    left = [key for key in trials if not run.done(key, measures[key], retry)]
    if show:
        console().print(f"{study.title}: {len(trials)} trials, {len(trials) - len(left)} already done, run folder {folder}.")
    with pool, interruptible(resumable=True), progress_bar(run, left, show) as (advance, write_line):
        for record in run_trials(run, study, trials, pool, retry):
            advance()
            if as_json:
                typer.echo(json.dumps({k: v for k, v in record.items() if k != "curves"}))
            elif show:
                write_line(in_one_line(record, study.columns))
    failed = [record for record in run.records(trials) if record["status"] == "failed"]
    if show:
        console().print(f"{len(trials) - len(failed)} of {len(trials)} trials done{took(run.records(trials), started)}.")
        console().print(f"To see them: nseg report {folder}")
    if failed:
        typer.echo(f"nseg: {len(failed)} trials failed; the first:\n{failed[0]['traceback']}", err=True)
        raise typer.Exit(1)


def took(records: Sequence[dict[str, Any]], started: float) -> str:
    """What a run took by the clock, and what all its trials took of the processor."""
    busy = sum(one.get("cpu_seconds", 0) + one.get("measure_seconds", 0) for one in records)
    return (
        f" after {(time.monotonic() - started) / 60:.1f} min ({busy / 60:.1f} min of processor time, earlier runs included)"
    )


@contextmanager
def progress_bar(
    run: StudyFolder, left: list[str], show: bool
) -> Iterator[tuple[Callable[[], None], Callable[[str], None]]]:
    """Show a progress bar with the trials under way; gives functions to advance it and to print a line above it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class RunningTrials(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text("; ".join(run.running(left)))

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn(), RunningTrials())
    errors = Console(stderr=True, width=None if sys.stderr.isatty() else 110)
    with Progress(*columns, console=errors, disable=not show, transient=True, refresh_per_second=1) as bar:
        task = bar.add_task("trials", total=len(left))
        yield lambda: bar.advance(task), lambda text: errors.print(text, highlight=False, markup=False)


def in_one_line(record: dict[str, Any], columns: Sequence[str]) -> str:
    """Return the status and scores of a trial as text."""
    from nseg.study import summary

    trial, means = plan.Trial(**record["trial"]), record.get("means") or {}
    if record["status"] != "done":
        reason = record.get("reason") or record["traceback"].strip().splitlines()[-1]
        return f"{trial}: {record['status']}: {reason}"
    shown = (f"{summary.column_title(c)} {means[c]:.4g}" for c in columns if means.get(c) is not None)
    return f"{trial}: {', '.join(shown)}"
