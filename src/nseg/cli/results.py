"""What ``nseg explain`` prints about explanations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.table import Column, Table
from torch_geometric.explain import Explainer, Explanation

from nseg import metrics
from nseg.datasets import Benchmark
from nseg.plot.atoms import missing_rdkit
from nseg.runs.stored import attach
from nseg.wording import bound_text, explained_class, kept_parts, names_of, plural, probability_text, sentence

CAPTION = (
    "Fid+: share of predictions whose class changes without the explanation (higher is better). Fid-: share whose class "
    "changes with only the explanation (lower). charact: both in one number (higher); read it beside the sparsity, the "
    "share of the edges within reach, each direction for itself, that is left out (of the nodes or features, if only those "
    "are masked). PNS, PN, PS: mean lower bounds, rounded down. "
    "Where the model is certain of the class whatever is kept, PS is a ratio of two numbers near 0 and says little."
)
TRUTH_CAPTION = " recall (at K) and AUC (ROC): against ground truth, for soft masks."
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
    "recall_at_k": "recall",
    "roc_auc": "AUC",
}


def with_graphs(explainer: Explainer, graphs: Any, found: Sequence[Explanation]) -> list[Explanation]:
    """Return the explanations with their graphs, without failed ones."""
    good = (one for one in found if one.get("reason") is None)
    return [one if "x" in one else attach(one, graphs, explainer=explainer) for one in good]


def describe(found: Sequence[Explanation], few: int) -> list[str]:
    """Return a sentence for each of a few explanations, or a summary of many, with a word about failed ones."""
    failed = [one for one in found if one.get("reason") is not None]
    texts = []
    if failed:
        texts.append(f"{len(failed)} could not be explained; output {failed[0].output_id}: {failed[0].reason}")
    good = [one for one in found if one.get("reason") is None] if len(found) <= few else []
    return [*texts, *map(sentence, good)] if len(found) <= few else [*texts, *summary(found)]


def molecule_hint(graphs: Any) -> str:
    """Return what to install to see molecules, if the first graph is one and RDKit is missing."""
    return missing_rdkit(graphs[0] if isinstance(graphs, list | tuple) and graphs else graphs)


def summary(found: Sequence[Explanation]) -> list[str]:
    """Return a line per class: how many predictions, how many are explained well, and how much is kept at the median."""
    by_class: dict[str, list[Explanation]] = {}
    for one in found:
        if one.get("reason") is None:
            by_class.setdefault(names_of(one).class_name(explained_class(one) or 0), []).append(one)
    lines = []
    for name, some in sorted(by_class.items()):
        bounds = [one.pns for one in some if one.get("pns") is not None]
        good = f"; PNS at least 0.5 for {sum(pns >= 0.5 for pns in bounds)}" if bounds else ""
        sizes = list(zip(*(kept_parts(one) for one in some), strict=False))
        kept = " and ".join(f"{median(part.kept for part in parts):g} {parts[0].unit}" for parts in sizes)
        lines.append(f"{name}: {plural(len(some), 'prediction')}{good}; median kept: {kept}.")
    return lines


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
        Column("masks", no_wrap=True),
        *(HEADS[metric] for metric in known),
        box=None,  # ten columns fit into 80 characters
        padding=(0, 1, 0, 0),
        pad_edge=False,
        title=TITLES[intervention],
        caption=CAPTION + (TRUTH_CAPTION if "recall_at_k" in known else ""),
    )
    for name, scores in measured.items():
        values = {metric: scores.get(metric, math.nan) for metric in known}
        texts = ((bound_text if metric in BOUNDS else probability_text)(value) for metric, value in values.items())
        table.add_row(name, *("" if math.isnan(v) else text for v, text in zip(values.values(), texts, strict=True)))
    return table
