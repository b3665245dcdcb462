"""What ``nseg explain`` prints about explanations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from torch_geometric.explain import Explainer, Explanation

from nseg import metrics
from nseg.cli.console import console
from nseg.datasets import Benchmark
from nseg.runs.stored import attach
from nseg.wording import bound_text, deletion_text, is_undirected, kept_parts, probability_text

CAPTION = (
    "Fid+: share of predictions whose class changes without the explanation (higher is better). Fid-: share whose class "
    "changes with only the explanation (lower). charact: both in one number (higher); read it beside the sparsity, the "
    "share of the edges within reach, each direction for itself, that is left out (of the nodes or features, if only those "
    "are masked). PNS, PN, PS: mean lower bounds, rounded down. "
    "Where the model is certain of the class whatever is kept, PS is a ratio of two numbers near 0 and says little."
)
TRUTH_CAPTION = " Recall@K and ROC-AUC: against ground truth, for soft masks."
FIDELITY = ("fid_plus", "fid_minus", "charact", "sparsity", "pns", "pn", "ps")
BOUNDS = ("pns", "pn", "ps")
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
    failed = [one for one in found if one.get("reason") is not None]
    if failed:
        console().print(f"{len(failed)} could not be explained; output {failed[0].output_id}: {failed[0].reason}")
    good = (one for one in found if one.get("reason") is None)
    return [one if "x" in one else attach(one, graphs, explainer=explainer) for one in good]


def in_words(explanation: Explanation) -> str:
    """Return what an explanation keeps, as text."""
    one = explanation
    p, q = probability_text(one.p_factual), probability_text(one.p_complement)
    sentences = [f"Output {one.output_id}: p {p} with only the explanation, {q} without it."]
    sentences += [text for text in (one.get("verdict"), deletion_text(one)) if text]
    lists = {"edges": _edges, "directed edges": _edges, "nodes": _nodes, "node features": _node_features}
    for part in kept_parts(one):
        sentences.append(f"{part.share()} are kept: {_first(lists.get(part.unit, _features)(one))}.")
    return " ".join(sentences)


def _edges(one: Explanation) -> list[str]:
    """Kept edges within reach, each once; both directions of an undirected edge are one."""
    ends = one.node_id[one.edge_index[:, one.hard_edge_mask.bool() & one.reached]].T.tolist()
    if is_undirected(one):
        return list(dict.fromkeys(f"{min(pair)} - {max(pair)}" for pair in ends))
    return [f"{a} to {b}" for a, b in ends]


def _nodes(one: Explanation) -> list[str]:
    return [str(n) for n in one.node_id[one.hard_node_mask.any(1)].tolist()]


def _node_features(one: Explanation) -> list[str]:
    ids = one.node_id.tolist()
    return [f"feature {feature} of node {ids[row]}" for row, feature in one.hard_node_mask.nonzero().tolist()]


def _features(one: Explanation) -> list[str]:
    return [f"feature {feature}" for feature in one.hard_node_mask[0].nonzero().flatten().tolist()]


def _first(items: Sequence[object]) -> str:
    shown = ", ".join(map(str, items[:MOST_LISTED])) or "none"
    return shown + (", ..." if len(items) > MOST_LISTED else "")


def measure(
    explainer: Explainer, graphs: Any, benchmark: Benchmark | None, found: list[Explanation]
) -> dict[str, dict[str, float]]:
    """Return metrics of soft and hard masks, with trivial explanations for comparison.

    Accuracy is measured where ground truth is known.
    """
    intervention = judged_by(found)
    compared = {"explanation": found, **{kind: metrics.trivial(found, kind) for kind in ("all", "none", "random")}}
    measured = {}
    for name, explanations in compared.items():
        evaluator = metrics.Evaluator(explainer, graphs, explanations)
        for masks in ("soft", "hard"):
            result = evaluator.fidelity(masks, intervention if masks == "hard" else "mask")
            scores = {metric: getattr(result, metric) for metric in FIDELITY}
            if benchmark is not None and masks == "soft":
                kind = "node" if explanations[0].get("edge_mask") is None else "edge"
                accuracy = metrics.accuracy(benchmark, explanations, kind)
                scores |= {metric: metrics.summarise(getattr(accuracy, metric))["mean"] for metric in ACCURACY}
            measured[f"{name}, {masks}"] = scores
    return measured


def judged_by(found: Sequence[Explanation]) -> str:
    """Return what taking edges away means for hard masks."""
    return "mask" if found[0].get("edge_mask") is None else str(found[0].get("intervention") or "mask")


TITLES = {
    "mask": "Messages and features are weighted; nothing is removed",
    "remove": "Hard masks: other edges are deleted. Soft masks: messages are weighted",
    "both": "Hard masks: the worse of messages weighted by 0 and edges deleted. Soft masks: messages are weighted",
}


def scores_table(measured: dict[str, dict[str, float]], intervention: str = "mask") -> Table:
    """Return a table of metrics, one line per kind of mask; metrics that are never known are left out."""
    known = [m for m in HEADS if any(not math.isnan(scores.get(m, math.nan)) for scores in measured.values())]
    table = Table(
        "masks",
        *(HEADS[metric] for metric in known),
        title=TITLES[intervention],
        caption=CAPTION + (TRUTH_CAPTION if "recall_at_k" in known else ""),
    )
    for name, scores in measured.items():
        values = {metric: scores.get(metric, math.nan) for metric in known}
        texts = ((bound_text if metric in BOUNDS else probability_text)(value) for metric, value in values.items())
        table.add_row(name, *("" if math.isnan(v) else text for v, text in zip(values.values(), texts, strict=True)))
    return table
