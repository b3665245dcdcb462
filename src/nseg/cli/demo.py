"""``nseg demo``: explanations whose right answer is known."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from nseg.cli.console import console
from nseg.cli.options import set_threads

if TYPE_CHECKING:
    from torch_geometric.explain import Explanation

    from nseg.datasets import Benchmark

READING = (
    "How to read the table: with only the edges of an explanation, the model gives the class the probability 'p factual'; "
    "without them, 'p complement'. PNS is at least the difference of the two (rounded down). It is high when these edges "
    "are both necessary and sufficient for the prediction."
)


def demo(
    context: typer.Context,
    instances: Annotated[int, typer.Option(min=1, max=400, help="Number of predictions to explain.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the explanations.")] = 0,
    report: Annotated[Path, typer.Option(help="HTML file to write, which shows the explanations.")] = Path("nseg-demo.html"),
) -> None:
    """Explain predictions of the pre-trained GCN on BA-Shapes, where the right answer is known: a house."""
    set_threads(context)
    from nseg import datasets, metrics, models, reports
    from nseg.cli.subject import make_explainer
    from nseg.explain.many import explain_many
    from nseg.explain.nseg import NSEG

    reports.writable(report)
    data, model = datasets.load("ba-shapes"), models.pretrained("ba-shapes", "gcn")
    explainer = make_explainer(model, data.model_config, "e", NSEG(seed=seed))
    nodes = data.instances[:: stride(len(data.instances), instances)][:instances]
    began = time.perf_counter()
    found = explain_many(explainer, data.graphs[0], nodes)
    seconds = time.perf_counter() - began
    accuracy = models.manifest()["ba-shapes/gcn"]["accuracy"]["test"]
    out = console()
    out.print(
        f"A three-layer GCN with a test accuracy of {accuracy:.0%}; {len(found)} predictions explained in {seconds:.1f} s."
    )
    out.print(predictions_table(data, found))
    out.print(READING)
    recall = float(metrics.accuracy(data, found).recall_at_k.mean())
    out.print(
        f"The model was trained to recognise houses. The six best edges of a prediction contain {recall:.0%} of "
        "its own house: the model does not need the whole house, and an explanation shows what the model needs."
    )
    reports.report({"NSEG": found}, report, data=data, explainer=explainer, title="Why is a node part of a house?")
    out.print(f"To see the explanations, open this page in a browser: {report}", soft_wrap=True)


HOUSE = 5  # nodes of a house, one after the other: every fifth node is at the same place


def stride(total: int, number: int) -> int:
    """Distance at which ``number`` nodes are taken out of all: not a multiple of a house, so that places differ.

    >>> stride(400, 10), stride(400, 7), stride(400, 400)
    (39, 57, 1)
    """
    even = total // number
    return even - 1 if even % HOUSE == 0 else even


def predictions_table(data: Benchmark, explanations: list[Explanation]) -> Table:
    """Return a table with one line per explanation."""
    from nseg.wording import bound_text, kept_parts, probability_text

    table = Table("instance", "class", "p factual", "p complement", "PNS", "edges kept", title="Why this class?")
    for one in explanations:
        label = data.class_names[int(one.target if one.get("index") is None else one.target[one.index])]
        p = map(probability_text, (one.p_factual, one.p_complement))
        (edges,) = kept_parts(one)
        table.add_row(str(one.output_id), label, *p, bound_text(one.pns), f"{edges.kept} of {edges.total}")
    return table
