"""Necessity under a fixed budget of deletions: does the class change if only so many elements go?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.errors import InputError
from nseg.explanation import with_ids
from nseg.metrics.fidelity import Evaluator
from nseg.metrics.masks import JoinedMasks
from nseg.search.parts import EDGES, Masks
from nseg.wording import is_undirected


def necessity_at_budget(
    explainer: Explainer,
    data: Data | Sequence[Data],
    explanations: Sequence[Explanation],
    budget: int,
    intervention: str = "remove",
) -> Tensor:
    """1 where the class changes if the ``budget`` first elements of an explanation are taken away, [B]; higher is better.

    First come the elements of the hard explanation, then the others, each by soft mask; both directions of an edge are one
    element where the explanation treats them so. A method is then not rewarded for deleting more than another.

    Reference: Kosan et al., *GNNX-Bench: Unravelling the Utility of Perturbation-based GNN Explainers through In-depth
    Benchmarking*, ICLR 2024 (necessity by explanation size).

    Args:
        explainer, data, explanations: as for :class:`nseg.metrics.Evaluator`; explanations of edges.
        budget: number of elements that may go.
        intervention: ``"remove"`` or ``"mask"``.
    """
    if budget < 0:
        raise InputError(f"budget must be at least 0 (got {budget}). It is a number of edges.")
    return necessity_of(Evaluator(explainer, data, explanations), budget, intervention)


def necessity_of(evaluator: Evaluator, budget: int, intervention: str = "remove") -> Tensor:
    """As :func:`necessity_at_budget`, of explanations that an evaluator already holds, [B]."""
    first = (highest(one, elements(one), budget) for one in map(with_ids, evaluator.explanations))
    masks = JoinedMasks.of([Masks({EDGES: mask.to(evaluator.output.dtype)}) for mask in first])
    return evaluator.each_of(masks, intervention).changed_without


def elements(one: Explanation) -> Tensor:
    """The number of each edge's element, [E]: both directions of an edge are one if the explanation treats them so."""
    ends = one.edge_index.sort(0).values if is_undirected(one) else one.edge_index
    found: Tensor = torch.unique(ends[0] * int(one.num_nodes) + ends[1], return_inverse=True)[1]
    return found


def highest(one: Explanation, element: Tensor, number: int, hard_first: bool = True) -> Tensor:
    """Edges of the ``number`` highest elements within reach, by mean soft mask, [E]; of equal ones the first.

    Args:
        one: the explanation.
        element: the number of each edge's element, [E].
        number: how many.
        hard_first: whether those of the hard explanation precede all others.
    """
    count = int(element.max()) + 1 if element.numel() else 0
    score = one.edge_mask.new_zeros(count).scatter_reduce(0, element, one.edge_mask, "mean", include_self=False)
    if hard_first and one.get("hard_edge_mask") is not None:
        score = score + score.new_zeros(count).index_fill(0, element[one.hard_edge_mask], 2 * float(score.abs().sum()) + 1)
    reached = torch.ones_like(element, dtype=torch.bool) if one.get("reached") is None else one.reached
    inside = torch.zeros_like(score, dtype=torch.bool).index_fill(0, element[reached], True)
    order = torch.where(inside, score, -torch.inf).argsort(descending=True, stable=True)
    chosen = torch.zeros_like(inside).index_fill(0, order[: min(number, int(inside.sum()))], True)
    return chosen[element]
