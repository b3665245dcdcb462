"""What ``nseg explain`` prints about explanations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg import metrics
from nseg.cli.console import console
from nseg.datasets import Benchmark
from nseg.graphs.checks import argument_names
from nseg.runs.stored import attach

CAPTION = (
    "Fid+: share of predictions whose class changes without the explanation (higher is better). Fid-: share whose class "
    "changes with only the explanation (lower). charact: both in one number (higher); read it beside the sparsity, the "
    "share of the edges within reach (of the nodes, if only nodes are masked) that is left out. PNS, PN, PS: lower bounds. "
    "Where the model is certain of the class whatever is kept, PS is a ratio of two numbers near 0 and says little."
)
TRUTH_CAPTION = " Recall@K and ROC-AUC: against ground truth, for soft masks."
FIDELITY = ("fid_plus", "fid_minus", "charact", "sparsity", "pns", "pn", "ps")
ACCURACY = ("recall_at_k", "roc_auc")
HEADS = {
    "fid_plus": "Fid+",
    "fid_minus": "Fid-",
    "charact": "charact",
    "sparsity": "sparsity",
    "pns": "PNS",
    "pn": "PN",
    "ps": "PS",
    "recall_at_k": "Recall@K",
    "roc_auc": "ROC-AUC",
}
MOST_LISTED = 12  # edges, or nodes, of one explanation


def with_graphs(explainer: Explainer, graphs: Any, found: Sequence[Explanation]) -> list[Explanation]:
    """Return the explanations with their graphs, after a message about failed ones."""
    names = argument_names(explainer.model, graphs if isinstance(graphs, Data) else graphs[0])
    failed = [one for one in found if one.get("reason") is not None]
    if failed:
        console().print(f"{len(failed)} could not be explained; output {failed[0].output_id}: {failed[0].reason}")
    good = (one for one in found if one.get("reason") is None)
    return [one if "x" in one else attach(one, graphs, names) for one in good]


def in_words(explanation: Explanation) -> str:
    """Return what an explanation keeps, as text."""
    one = explanation
    parts = [f"Output {one.output_id}: p {one.p_factual:.3f} with only the explanation, {one.p_complement:.3f} without it."]
    if one.get("hard_edge_mask") is not None:
        ends = one.node_id[one.edge_index[:, one.hard_edge_mask]].T.tolist()
        edges = _first([f"{a} to {b}" for a, b in ends])
        parts.append(f"{len(ends)} of {int(one.reached.sum())} edges are kept: {edges}.")
    if one.get("hard_node_mask") is not None and one.hard_node_mask.size(0) == one.node_id.numel():
        nodes = one.node_id[one.hard_node_mask.any(1)].tolist()
        parts.append(f"{len(nodes)} of {one.node_id.numel()} nodes are kept: {_first(nodes)}.")
    return " ".join(parts)


def _first(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:MOST_LISTED])) or "none"
    return shown + (", ..." if len(items) > MOST_LISTED else "")


def measure(
    explainer: Explainer, graphs: Any, benchmark: Benchmark | None, found: list[Explanation]
) -> dict[str, dict[str, float]]:
    """Return metrics of soft and hard masks, with trivial explanations for comparison.

    Accuracy is measured where ground truth is known.
    """
    compared = {"explanation": found, **{kind: metrics.trivial(found, kind) for kind in ("all", "none", "random")}}
    measured = {}
    for name, explanations in compared.items():
        evaluator = metrics.Evaluator(explainer, graphs, explanations)
        for masks in ("soft", "hard"):
            result = evaluator.fidelity(masks)
            scores = {metric: getattr(result, metric) for metric in FIDELITY}
            if benchmark is not None and masks == "soft":
                kind = "node" if explanations[0].get("edge_mask") is None else "edge"
                accuracy = metrics.accuracy(benchmark, explanations, kind)
                scores |= {metric: metrics.summarise(getattr(accuracy, metric))["mean"] for metric in ACCURACY}
            measured[f"{name}, {masks}"] = scores
    return measured


def scores_table(measured: dict[str, dict[str, float]]) -> Table:
    """Return a table of metrics, one line per kind of mask; metrics that are never known are left out."""
    known = [m for m in HEADS if any(not math.isnan(scores.get(m, math.nan)) for scores in measured.values())]
    table = Table(
        "masks",
        *(HEADS[metric] for metric in known),
        title="Messages and features are weighted; nothing is removed",
        caption=CAPTION + (TRUTH_CAPTION if "recall_at_k" in known else ""),
    )
    for name, scores in measured.items():
        values = (scores.get(metric, math.nan) for metric in known)
        table.add_row(name, *("" if math.isnan(v) else f"{v:.3f}" for v in values))
    return table
