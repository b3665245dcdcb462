"""Sentences of the results page that name numbers or say who is better: each is made from the files of the results.

``<!-- finding NAME -->`` on a page begins one; :data:`FINDINGS` has a function for each name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from result_files import AUTHORS, BENCHMARKS, Row, read_results

Scores = dict[tuple[str, str], float]
"""Mean by dataset and label."""

CLEAR = 5.0  # points that are called a difference


def scores(study: str, column: str, complete: bool = False) -> Scores:
    """The means of one column of a study; if complete, of methods only that explain all instances."""
    rows = [row for row in read_results(study) if row["column"] == column]
    most = {row["dataset"]: 0 for row in rows}
    for row in rows:
        most[row["dataset"]] = max(most[row["dataset"]], int(row["instances"]))
    chosen = [row for row in rows if not complete or int(row["instances"]) == most[row["dataset"]]]
    return {(row["dataset"], row["label"]): float(row["mean"]) for row in chosen}


def of_label(found: Scores, label: str) -> dict[str, float]:
    """The values of one method, by dataset."""
    return {dataset: value for (dataset, one), value in found.items() if one == label}


def span(values: Iterable[float], digits: int = 0) -> str:
    """Lowest and highest of some values.

    >>> span([3.2, 1.0]), span([100.0, 100.0]), span([99.96, 100.0], 1)
    ('1 to 3', '100', '100.0')
    """
    known = list(values)
    ends = dict.fromkeys(f"{end:.{digits}f}" for end in (min(known), max(known)))
    return " to ".join(ends)


def listed(names: Iterable[str]) -> str:
    """Names in a row; "none" if there are none."""
    return ", ".join(names) or "none"


def whole_graph() -> str:
    """How high keeping everything can score."""
    dataset, value = max(of_label(scores("fidelity-gcn", "soft.charact"), "all").items(), key=lambda one: one[1])
    return f"Never read charact without sparsity: `all`, which keeps everything, scores {value:.0f} on {dataset}."


def soft_masks_of_trees() -> str:
    """Whose soft masks keep the class on the trees (GIN), and what the paper has."""
    found, trees = scores("fidelity-gin", "soft.fid_minus", complete=True), ("tree-cycles", "tree-grid")
    labels = list(dict.fromkeys(label for dataset, label in found if dataset in trees))
    kept = [label for label in labels if all(found.get((tree, label), 100) < 50 for tree in trees)]
    paper = {float(r["paper"]) for r in read_results("fidelity-gin") if _is(r, "tree-grid", "soft.charact") and r["paper"]}
    return (
        "A sum over neighbours is easy to break and hard to preserve. On both trees, only these soft masks keep the class "
        f"of more than half of the nodes: {listed(kept)}; those of {len(labels) - len(kept)} other rows do not. The paper's "
        f"charact on Tree-Grid is {span(paper, 1)} for every method. Hard explanations do not have this problem, for any "
        "method that takes the best prefix of its ranking. There the methods differ in size: compare the sparsity of those "
        "with the same charact."
    )


def ceiling() -> str:
    """How many nodes of BA-Shapes need no edge (GIN)."""
    changed = scores("fidelity-gin", "soft.fid_minus")["ba-shapes", "none"]
    best = max(v for (d, _), v in scores("fidelity-gin", "soft.fid_plus", complete=True).items() if d == "ba-shapes")
    return (
        f"**BA-Shapes has a ceiling.** For {100 - changed:.0f} % of the nodes, this network predicts the class without any "
        f"edge, so that no explanation is necessary; the highest Fid+ of soft masks is {best:.0f}."
    )


def better_rankings(study: str) -> str:
    """Methods that find more of the ground truth than NSEG, by dataset."""
    found, told = scores(study, "recall_at_k", complete=True), []
    for dataset, ours in of_label(found, "NSEG").items():
        others = {label: v for (d, label), v in found.items() if d == dataset and not label.startswith("NSEG") and v > ours}
        best = sorted(others, key=lambda label: -others[label])
        named = listed(f"{label} {others[label]:.0f}" for label in best[:3]) + (", ..." if len(best) > 3 else "")
        told.append(f"{dataset} ({ours:.0f}): {len(best)} ({named})" if best else f"{dataset} ({ours:.0f}): none")
    return f"Methods with a higher Recall@K than NSEG (its own in brackets), the best of them named: {'; '.join(told)}."


def thresholds() -> str:
    """How well one threshold can do everywhere."""
    rows = read_results("thresholds-figure")
    told = [
        f"{_at_best_threshold(rows, column)}{how}"
        for column, how in (("charact", ""), ("removed_charact", " if edges are deleted"))
        if column in rows[0]
    ]
    return (
        f"With the one threshold that suits it best, the lowest charact over the datasets is {', and '.join(told)}. That is "
        "why hard explanations are not thresholded masks by default, but the best prefix of the ranking, improved by moves."
    )


def _at_best_threshold(rows: Sequence[Row], column: str) -> str:
    """The lowest score over the datasets at each method's best threshold."""
    worst: dict[tuple[str, str], float] = {}
    for row in rows:
        key = row["method"], row["threshold"]
        worst[key] = min(worst.get(key, 100.0), float(row[column]))
    best = {method: max(v for (one, _), v in worst.items() if one == method) for method, _ in worst}
    top, others = max(best, key=lambda method: best[method]), [v for method, v in best.items() if method != "NSEG"]
    return f"{best['NSEG']:.0f} for NSEG and {span(others)} for the others (highest: {top})"


def penalties() -> str:
    """What the penalties on size and entropy change."""
    told = []
    for name, setting in (("alpha", "size"), ("beta", "entropy")):
        hard, soft = scores(f"sensitivity-{name}", "hard.charact"), scores(f"sensitivity-{name}", "soft.charact")
        area = scores(f"sensitivity-{name}", "roc_auc")
        values = sorted({float(label.rpartition("=")[2].rstrip(")")) for _, label in hard})
        ours = [value for (_, label), value in hard.items() if label.startswith("NSEG (")]
        paper = [v for (_, label), v in soft.items() if label.startswith("NSEG, paper") and _setting(label) == values[-1]]
        change = [
            max(v for (d, label), v in area.items() if d == dataset and label.startswith("NSEG ("))
            - min(v for (d, label), v in area.items() if d == dataset and label.startswith("NSEG ("))
            for dataset in AUTHORS
        ]
        told.append(
            f"Penalty on {setting} from {values[0]:g} to {values[-1]:g}: charact of the default's hard explanations is "
            f"{span(ours)}, its ROC-AUC varies by {span(change)} points; soft charact of the paper's settings at "
            f"{values[-1]:g} is {span(paper)}."
        )
    return " ".join(told)


def split() -> str:
    """What the split of the complement changes."""
    hard, soft = (list(scores("sensitivity-split", f"{kind}.charact").values()) for kind in ("hard", "soft"))
    size, area = (scores("sensitivity-split", column) for column in ("hard.sparsity", "roc_auc"))
    shares = sorted({_setting(label) for _, label in size})
    ends = [
        " and ".join(f"{fmean(v for (_, label), v in one.items() if _setting(label) == end):.0f}" for one in (size, area))
        for end in (shares[0], shares[-1])
    ]
    return (
        f"Charact of hard explanations is {span(hard)}, of soft masks {span(soft)}. Over the datasets, mean sparsity of "
        f"hard explanations and ROC-AUC are {ends[0]} with P10 = {shares[0]:g}, and {ends[1]} with P10 = {shares[-1]:g}."
    )


def variants() -> str:
    """Where necessity or sufficiency alone is worse than both."""
    found = scores("variants", "soft.charact")
    both, told = of_label(found, "NSEG(PNS)"), []
    for name, what in (("PN", "Necessity"), ("PS", "Sufficiency")):
        alone = of_label(found, f"NSEG({name})")
        worse = [dataset for dataset in both if alone[dataset] < both[dataset] - CLEAR]
        told.append(f"{what} alone loses more than {CLEAR:.0f} points of soft charact on {listed(worse)}.")
    return " ".join(told)


def paper() -> str:
    """What agrees with the paper on the authors' networks."""
    rows = [
        r for r in read_results("fidelity-gcn") if r["column"] == "soft.charact" and r["dataset"] in AUTHORS and r["paper"]
    ]
    apart = {(r["dataset"], r["label"]): float(r["difference"]) for r in rows}
    same = ("NSEG, paper's settings", "random")
    ours, random = (max(map(abs, of_label(apart, label).values())) for label in same)
    others = [value for (_, label), value in apart.items() if label not in same]
    higher, lower = sum(v > CLEAR for v in others), sum(v < -CLEAR for v in others)
    return (
        "Soft charact with the paper's settings differs from the paper's by at most "
        f"{ours:.1f} points on the authors' networks, that of random masks by {random:.1f}. "
        f"Of the {len(others)} other numbers of the table, {higher} are more than {CLEAR:.0f} points higher here than in "
        f"the paper, and {lower} lower."
    )


def cut_subgraph() -> str:
    """How many nodes change their class on the cut subgraph, and the paper's Fid- of CF2."""
    bare = {row["dataset"]: row for row in read_results("methods_why", BENCHMARKS) if row["key"] == "bare"}
    told = [f"{bare[name]['value']} % of the {name} nodes" for name in ("Tree-Cycles", "Tree-Grid")]
    theirs = [bare[name]["paper"] for name in ("Tree-Cycles", "Tree-Grid")]
    return (
        f"Without any explanation, {' and '.join(told)} change their class on the subgraph. The paper's Fid- of CF2 is "
        f"{theirs[0]} and {theirs[1]}."
    )


def gradients() -> str:
    """How far the plain gradient is from the paper's guided backpropagation."""
    rows = [row for row in read_results("methods_why", BENCHMARKS) if row["what"] == "saliency"]
    apart = {
        name: max(abs(float(row["value"]) - float(row["paper"])) for row in rows if row["metric"].startswith(start))
        for name, start in (("Fid+", "fid_plus"), ("Fid-", "fid_minus"), ("ROC-AUC", "roc_auc"))
    }
    told = ", ".join(f"{name} {value:.2f}" for name, value in apart.items())
    return f"Largest difference between `saliency` and the paper's guided backpropagation over the three networks: {told}."


def empty_masks() -> str:
    """Where PGExplainer's masks end empty."""
    rows, told = read_results("pgexplainer", BENCHMARKS), []
    for training in ("the authors'", "ours"):
        empty = [
            f"{r['dataset']} ({float(r['empty']):.0f} %)"
            for r in rows
            if r["training"] == training and float(r["empty"]) > 5
        ]
        told.append(f"With {training if training != 'ours' else 'our'} training, masks end empty on {listed(empty)}.")
    full = [r["dataset"] for r in rows if r["training"] == "ours" and float(r["hard_sparsity"]) < 1]
    return " ".join([*told, f"With ours they keep everything on {listed(full)}."])


def paper_settings() -> str:
    """Hard explanations of the default and of the paper's settings."""
    found = scores("fidelity-gcn", "hard.charact")
    ours, theirs = (of_label(found, label).values() for label in ("NSEG", "NSEG, paper's settings"))
    return (
        f"Charact of hard explanations is {span(ours)} with the default, and {span(theirs)} with the paper's settings, "
        "whose masks are cut at 0.5; the default searches for explanations that hold."
    )


def _is(row: Row, dataset: str, column: str) -> bool:
    return (row["dataset"], row["column"]) == (dataset, column)


def _setting(label: str) -> float:
    """The varied setting in a label; of a split its last part, P10.

    >>> _setting("NSEG (alpha_e=0.1)"), _setting("NSEG (split=0.4/0.2/0.4)")
    (0.1, 0.4)
    """
    return float(label.rpartition("=")[2].rstrip(")").rpartition("/")[2])


FINDINGS: dict[str, Callable[[], str]] = {
    "whole-graph": whole_graph,
    "trees": soft_masks_of_trees,
    "ceiling": ceiling,
    "rankings-gcn": lambda: better_rankings("accuracy-gcn"),
    "rankings-gin": lambda: better_rankings("accuracy-gin"),
    "thresholds": thresholds,
    "penalties": penalties,
    "split": split,
    "variants": variants,
    "paper": paper,
    "cut-subgraph": cut_subgraph,
    "gradients": gradients,
    "empty-masks": empty_masks,
    "paper-settings": paper_settings,
}
