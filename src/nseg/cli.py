"""The command line: parse, one call, print."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg import NSEG, Explainer, NsegError, __version__, explain_many
from nseg.demo import trained_on_karate_club
from nseg.presets import PAPER

app = typer.Typer(
    help="Necessary and sufficient explanations for graph neural networks.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

READING = (
    "How to read it: keep only the ties of an explanation and the model gives the member's community with probability "
    "'p factual'; take just them away and it gives it with 'p complement'. PNS, at least the difference of the two, is high "
    "when the ties are both necessary (PN) and sufficient (PS) for the prediction."
)


def version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        typer.echo(f"nseg {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Necessary and sufficient explanations for graph neural networks."""


def ties(found: Explanation, mask: Tensor) -> int:
    """How many pairs of nodes the marked edges join, whichever way they run."""
    return int(found.edge_index[:, mask].sort(0).values.unique(dim=1).size(1))


@app.command()
def demo(
    members: Annotated[int, typer.Option(min=1, max=34, help="How many members of the club to explain.")] = 12,
    seed: Annotated[int, typer.Option(help="Seed of training and explanation.")] = 0,
) -> None:
    """Train a GCN on Zachary's karate club and explain its predictions."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    model, data = trained_on_karate_club(seed)
    right = float((model(data.x, data.edge_index).argmax(-1) == data.y).float().mean())
    explainer = Explainer(
        model,
        NSEG(undirected=True, seed=seed),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    began = time.perf_counter()
    found = explain_many(explainer, data, range(members))
    seconds = time.perf_counter() - began
    table = Table(
        "member", "class", "p factual", "p complement", "PNS", "PN", "PS", "edges kept", title="Why this community?"
    )
    for one in found:
        kept, reach = ties(one, one.hard_edge_mask), ties(one, one.reached)
        numbers = (one.p_factual, one.p_complement, one.pns, one.pn, one.ps)
        label = int(one.target[one.index])
        table.add_row(str(one.output_id), str(label), *(f"{n:.3f}" for n in numbers), f"{kept} of {reach}")
    console.print(
        f"A two-layer GCN, right on {right:.0%} of the club's 34 members; {len(found)} explained in {seconds:.1f} s."
    )
    console.print(table)
    console.print(READING)


@app.command(name="list")
def list_() -> None:
    """Show the named settings of the paper."""
    table = Table("dataset", "masks", "settings that differ from the default")
    plain = vars(NSEG().settings)
    for (dataset, masks), settings in PAPER.items():
        changed = ", ".join(f"{k}={v:g}" for k, v in settings.items() if isinstance(v, int | float) and v != plain[k])
        table.add_row(dataset, masks, changed)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def run() -> None:
    """Entry point: an error that we raise on purpose is a sentence, not a traceback."""
    try:
        app()
    except NsegError as error:
        typer.echo(f"nseg: {error}", err=True)
        raise SystemExit(2) from None
