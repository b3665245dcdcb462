"""Accuracy against ground truth, means over instances and seeds, and trivial explanations to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.explanation import copy_explanation, on_cpu, with_ids
from nseg.metrics import scores
from nseg.search.noise import uniform
from nseg.search.parts import TRIVIAL_VALUES


@dataclass(frozen=True)
class Accuracy:
    """How well explanations find the ground truth: one value per instance, NaN where it has none, [B] each.

    Recall@K is over undirected edges, each with the larger weight of its two directions; ROC-AUC over directed edges; both
    over the edges between nodes within reach (the L-hop subgraph), but recall is of all ground truth. Precision, F1 and
    Jaccard are of the hard masks, over the same edges.
    """

    recall_at_k: Tensor
    roc_auc: Tensor
    precision: Tensor
    f1: Tensor
    jaccard: Tensor


def accuracy(data: Benchmark, explanations: Explanation | Sequence[Explanation], kind: str = "edge") -> Accuracy:
    """Compare explanations of a dataset's instances with their own ground truth, as the paper does.

    Args:
        data: the dataset.
        explanations: of some of its instances, from ``explain_many``.
        kind: ``"edge"`` or ``"node"``.
    """
    if kind not in ("edge", "node"):
        raise InputError(f"kind must be 'edge' or 'node' (got {kind!r}).")
    if not isinstance(data, Benchmark):
        raise InputError(
            f"data must be a dataset of nseg.datasets, which has ground truth (got {type(data).__name__}). For your own, "
            "compare masks by metrics.recall_at_k and metrics.roc_auc."
        )
    found = [with_ids(one) for one in _several(explanations)]
    rows = [_one(data, on_cpu(one), kind) for one in found]
    return Accuracy(*(torch.tensor(column, dtype=torch.double) for column in zip(*rows, strict=True)))


def _one(data: Benchmark, one: Explanation, kind: str) -> tuple[float, float, float, float, float]:
    truth, nothing = data.truth(int(one.output_id)), float("nan")  # on the CPU, like the dataset's graphs
    mask = one.get(f"{kind}_mask")
    if truth is None or mask is None or not bool(truth.edge.any()):
        return nothing, nothing, nothing, nothing, nothing
    graph, hard = data.graph(int(one.output_id)), one.get(f"hard_{kind}_mask")
    near = _near(data, one, graph)
    if kind == "node":
        score = torch.zeros(graph.num_nodes).index_copy(0, one.node_id, mask.mean(-1).float())
        kept = _kept(hard.any(-1) if hard is not None else mask.mean(-1) > 0.5, one.node_id, graph.num_nodes)
        here, score, kept = truth.node[near], score[near], kept[near]
        recall = scores.recall_at_k(score, here, data.k_nodes or 0, int(truth.node.sum()))
    else:
        edge = near[graph.edge_index].all(0)
        score = torch.zeros(graph.num_edges).index_copy(0, one.edge_id, mask.float())
        kept = _kept(hard if hard is not None else mask > 0.5, one.edge_id, graph.num_edges)
        here, score, kept = truth.edge[edge], score[edge], kept[edge]
        best, pair_truth = _undirected(graph.edge_index[:, edge], score, here)
        recall = scores.recall_at_k(best, pair_truth, data.k_edges or 0, int(truth.edge.sum()) // 2)
    area = scores.roc_auc(score, here)
    return recall, area, scores.precision(kept, here), scores.f1(kept, here), scores.jaccard(kept, here)


def _near(data: Benchmark, one: Explanation, graph: Data) -> Tensor:
    """Nodes from which a message can reach the explained output, [N]."""
    reached = one.get("reached")
    if reached is None or data.level == "graph":
        return torch.ones(graph.num_nodes, dtype=torch.bool)
    near = torch.zeros(graph.num_nodes, dtype=torch.bool)
    near[graph.edge_index[:, one.edge_id[reached]].flatten()] = True
    near[int(one.output_id)] = True
    return near


def _several(explanations: Explanation | Sequence[Explanation]) -> list[Explanation]:
    found = [explanations] if isinstance(explanations, Explanation) else list(explanations)
    if not found:
        raise InputError("At least one explanation is needed (got none).")
    return found


def _kept(mask: Tensor, ids: Tensor, size: int) -> Tensor:
    return torch.zeros(size, dtype=torch.bool).index_copy(0, ids, mask)


def _undirected(edge_index: Tensor, score: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Score (larger of both directions) and truth of each pair of nodes that an edge joins."""
    low, high = edge_index.sort(0).values
    pairs, member = torch.unique(low * (int(high.max()) + 1 if high.numel() else 1) + high, return_inverse=True)
    number = pairs.numel()
    best = torch.full((number,), -torch.inf, dtype=score.dtype).scatter_reduce(0, member, score, "amax")
    return best, torch.zeros(number, dtype=torch.bool).scatter(0, member, truth)


def summarise(values: Tensor | Sequence[float], confidence: float = 0.95) -> dict[str, float]:
    """Mean, standard deviation, bootstrap interval and number of the values that are known.

    >>> summarise(torch.tensor([1.0, 3.0, float("nan")]))["mean"]
    2.0
    """
    values = torch.as_tensor(values, dtype=torch.double)
    known = values[~values.isnan()]
    low, high = scores.bootstrap(values, confidence)
    return {
        "mean": float(known.mean()) if known.numel() else float("nan"),
        "std": float(known.std(unbiased=False)) if known.numel() else float("nan"),
        "low": low,
        "high": high,
        "number": int(known.numel()),
    }


def trivial(explanations: Explanation | Sequence[Explanation], kind: str, seed: int = 0) -> list[Explanation]:
    """The same instances with a trivial explanation instead: what any method must beat.

    Args:
        explanations: of any method.
        kind: ``"all"``, ``"none"``, ``"half"`` (every weight 1/2) or ``"random"``.
        seed: for ``"random"``.
    """
    if kind not in (*TRIVIAL_VALUES, "random"):
        raise InputError(f"kind must be 'all', 'none', 'half' or 'random' (got {kind!r}).")
    made = []
    for one in map(with_ids, _several(explanations)):
        other = copy_explanation(one)
        for name in ("edge_mask", "node_mask"):
            mask = one.get(name)
            if mask is None:
                continue
            if kind == "random":
                keys = torch.arange(mask.numel(), device=mask.device) + (int(one.output_id) << 24)
                new = uniform(keys, 1, (seed, len(name)), mask.dtype).view_as(mask)
            else:
                new = torch.full_like(mask, TRIVIAL_VALUES[kind])
            other[name], other["hard_" + name] = new, new > 0.5
        made.append(other)
    return made
