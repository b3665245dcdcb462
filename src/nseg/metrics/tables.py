"""Accuracy against ground truth, means over instances and seeds, and trivial explanations to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.complement import uniform
from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.metrics import scores


@dataclass(frozen=True)
class Accuracy:
    """How well explanations find the ground truth: one value per instance, NaN where it has none, [B] each.

    Recall@K is over undirected edges, each with the larger weight of its two directions; ROC-AUC over directed edges; both
    over the edges within reach, but recall is of all ground truth. Precision, F1 and Jaccard are of the hard masks.
    """

    recall_at_k: Tensor
    roc_auc: Tensor
    precision: Tensor
    f1: Tensor
    jaccard: Tensor


def accuracy(data: Benchmark, explanations: Sequence[Explanation], kind: str = "edge") -> Accuracy:
    """Compare explanations of a dataset's instances with their own ground truth, as the paper does.

    Args:
        data: the dataset.
        explanations: of some of its instances, from ``explain_many``.
        kind: ``"edge"`` or ``"node"``.
    """
    if kind not in ("edge", "node"):
        raise InputError(f"kind must be 'edge' or 'node' (got {kind!r}).")
    rows = [_one(data, one, kind) for one in explanations]
    return Accuracy(*(torch.tensor(column, dtype=torch.double) for column in zip(*rows, strict=True)))


def _one(data: Benchmark, one: Explanation, kind: str) -> tuple[float, float, float, float, float]:
    truth, nothing = data.truth(int(one.output_id)), float("nan")
    mask = one.get(f"{kind}_mask")
    if truth is None or mask is None:
        return nothing, nothing, nothing, nothing, nothing
    hard = one.get(f"hard_{kind}_mask")
    if kind == "node":
        k, whole, score = data.k_nodes, truth.node, mask.mean(-1)
        within = torch.ones(len(one.node_id), dtype=torch.bool)
        here = whole[one.node_id]
        recall = scores.recall_at_k(score, here, k or 0, int(whole.sum()))
        kept = hard.any(-1) if hard is not None else score > 0.5
    else:
        k, whole, score = data.k_edges, truth.edge, mask
        within = one.get("reached") if one.get("reached") is not None else torch.ones(mask.numel(), dtype=torch.bool)
        here = whole[one.edge_id]
        best, pair_truth = _undirected(
            data.graph(int(one.output_id)).edge_index[:, one.edge_id[within]], score[within], here[within]
        )
        recall = scores.recall_at_k(best, pair_truth, k or 0, int(whole.sum()) // 2)
        kept = hard if hard is not None else score > 0.5
    if not bool(whole.any()):
        return nothing, nothing, nothing, nothing, nothing
    area = scores.roc_auc(score[within], here[within])
    return recall, area, scores.precision(kept, here), scores.f1(kept, here), scores.jaccard(kept, here)


def _undirected(edge_index: Tensor, score: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Score (larger of both directions) and truth of each pair of nodes that an edge joins."""
    low, high = edge_index.sort(0).values
    pairs, member = torch.unique(low * (int(high.max()) + 1 if high.numel() else 1) + high, return_inverse=True)
    number = pairs.numel()
    best = torch.full((number,), -torch.inf, dtype=score.dtype).scatter_reduce(0, member, score, "amax")
    return best, torch.zeros(number, dtype=torch.bool).scatter(0, member, truth)


def summarise(values: Tensor, confidence: float = 0.95) -> dict[str, float]:
    """Mean, standard deviation, bootstrap interval and number of the values that are known.

    >>> summarise(torch.tensor([1.0, 3.0, float("nan")]))["mean"]
    2.0
    """
    known = values[~values.isnan()].double()
    low, high = scores.bootstrap(values, confidence)
    return {
        "mean": float(known.mean()) if known.numel() else float("nan"),
        "std": float(known.std(unbiased=False)) if known.numel() else float("nan"),
        "low": low,
        "high": high,
        "number": int(known.numel()),
    }


def trivial(explanations: Sequence[Explanation], kind: str, seed: int = 0) -> list[Explanation]:
    """The same instances with a trivial explanation instead: what any method must beat.

    Args:
        explanations: of any method.
        kind: ``"all"``, ``"none"``, ``"half"`` (every weight 1/2) or ``"random"``.
        seed: for ``"random"``.
    """
    values = {"all": 1.0, "none": 0.0, "half": 0.5}
    if kind not in (*values, "random"):
        raise InputError(f"kind must be 'all', 'none', 'half' or 'random' (got {kind!r}).")
    made = []
    for one in explanations:
        other = one.clone()
        for name in ("edge_mask", "node_mask"):
            mask = one.get(name)
            if mask is None:
                continue
            if kind == "random":
                keys = torch.arange(mask.numel()) + (int(one.output_id) << 24)
                new = uniform(keys, 1, (seed, len(name)), mask.dtype).view_as(mask)
            else:
                new = torch.full_like(mask, values[kind])
            if name == "edge_mask" and one.get("reached") is not None:
                new = new * one.reached
            other[name], other["hard_" + name] = new, new > 0.5
        made.append(other)
    return made
