"""``nseg patterns``: what typically makes the model predict each class, from the explanations of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nseg.cli.console import console
from nseg.cli.options import set_threads
from nseg.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from nseg.cli.subject import Subject
    from nseg.pattern.collection import Patterns

FORMATS = ("table", "csv", "json")

CAPTION = (
    "explains: predictions of the class whose explanation contains the pattern, with right and wrong predictions apart. "
    "elsewhere: predictions of other classes in whose graph it occurs. taken out: held-out predictions of the class that "
    "change when every occurrence is removed; put in: held-out predictions of other classes that become the class; each "
    "with its share and a confidence interval. Empty: no held-out prediction, or no valid graph."
)


def patterns(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="Folder of 'nseg explain --out'.")],
    most: Annotated[int, typer.Option(min=1, help="Largest number of patterns per class.")] = 5,
    held_out: Annotated[float, typer.Option(help="Share of the predictions that patterns are tested on.")] = 0.3,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal patterns.")] = 0,
    test: Annotated[bool, typer.Option(help="Test the patterns on the model.")] = True,
    form: Annotated[str, typer.Option("--format", help=f"What to print: {', '.join(FORMATS)}.")] = "table",
    picture: Annotated[Path | None, typer.Option(help="Image file to draw the patterns into, such as patterns.svg.")] = None,
) -> None:
    """Find what typically makes the model predict each class, and test it on the model."""
    if form not in FORMATS:
        raise InputError(f"--format must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]} (got {form!r}).")
    origin = read_origin(run)
    set_threads(context)
    from nseg.baselines import make
    from nseg.cli.subject import make_explainer
    from nseg.pattern.finding import patterns as find_patterns
    from nseg.runs.stored import read

    subject = load_origin(origin)
    explainer = make_explainer(subject.model, subject.config, "e", make("nseg")) if test else None
    data = subject.benchmark or subject.graphs
    found = find_patterns(read(run), data, explainer=explainer, most=most, held_out=held_out, seed=seed)
    show(found, form)
    if picture is not None:
        found.plot().savefig(picture)
        typer.echo(f"Drew {picture}.", err=True)


def read_origin(run: Path) -> dict[str, Any]:
    """Return where the network and the graphs of a run come from."""
    path = run / "summary.json"
    if not path.is_file():
        raise InputError(
            f"RUN must be a folder of nseg explain --out (got {run}, which has no summary.json). Make one: "
            "nseg explain ba-shapes --out RUN. For runs of explain_many, call nseg.patterns(nseg.read(RUN), data)."
        )
    try:
        origin: dict[str, Any] = json.loads(path.read_text())
        known = "dataset" in origin or {"model", "data", "level"} <= origin.keys()
    except (ValueError, AttributeError):
        known = False
    if not known:
        raise InputError(f"{path} must say what was explained (it does not). Run nseg explain --out {run} again.")
    return origin


def load_origin(origin: dict[str, Any]) -> Subject:
    """Return the network and the graphs of a run."""
    from nseg.cli.subject import own_subject, paper_subject
    from nseg.graphs.large import LargeGraph

    if "dataset" in origin:
        return paper_subject(origin["dataset"], origin["architecture"])
    weights = None if origin["weights"] == "None" else Path(origin["weights"])
    subject = own_subject(origin["model"], weights, Path(origin["data"]), origin["level"])
    if isinstance(subject.graphs, LargeGraph):
        raise InputError("nseg patterns needs graphs in memory (got a run of a large graph).")
    return subject


def show(found: Patterns, form: str) -> None:
    """Print patterns in one of :data:`FORMATS`."""
    if form == "json":
        typer.echo(json.dumps(found.records(), indent=1))
    elif form == "csv":
        import csv
        import sys

        from nseg.pattern.results import COLUMNS

        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.records())
    else:
        console(80).print(table(found))
        for one in found.classes:
            where = "held-out predictions" if one.held_out else "predictions"
            console().print(f"{one.name}: {100 * one.unexplained:.0f} % of {where} left unexplained.", highlight=False)


def table(found: Patterns) -> Table:
    """Return a table with one line per pattern."""
    from rich.table import Table

    from nseg.pattern.results import trial_text
    from nseg.wording import bound_text

    made = Table("pattern", "explains", "elsewhere", "taken out", "put in", title="What the model looks at", caption=CAPTION)
    for one in found:
        known = f"\n{one.right} right, {one.wrong} wrong" if one.right or one.wrong else ""
        bound = "" if one.pns is None else f"\nPNS {bound_text(one.pns)}"
        made.add_row(
            f"{one.class_name}:\n{one.text}".replace("[", r"\["),
            f"{one.explained} of {one.predictions}{known}{bound}",
            f"{one.elsewhere} of {one.others}",
            trial_text(one.necessity).replace(" = ", "\n").replace(" (", "\n").rstrip(")"),
            trial_text(one.sufficiency).replace(" = ", "\n").replace(" (", "\n").rstrip(")"),
        )
    return made
