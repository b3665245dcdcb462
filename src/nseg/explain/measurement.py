"""The numbers of an explanation's masks, measured on the model: also for masks that were changed after the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.explanation import HARD, MASKS, Numbers
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.search import formulas
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.worlds import evaluate

AGREE = 1e-4
"""Difference of probabilities that rounding can explain."""


def numbers_of(hard_p: Tensor, soft_p: Tensor) -> Numbers:
    """What an explanation says about its masks, from p_factual and p_complement of the hard and the soft ones, [2] each."""
    p_factual, p_complement = hard_p
    soft_factual, soft_complement = soft_p
    return {
        "p_factual": float(p_factual),
        "p_complement": float(p_complement),
        "pns": float(formulas.pns_bound(p_factual, p_complement)),
        "pn": float(formulas.pn_bound(p_factual, p_complement)),
        "ps": float(formulas.ps_bound(p_factual, p_complement)),
        "soft_p_factual": float(soft_factual),
        "soft_p_complement": float(soft_complement),
    }


class Remeasurement:
    """Measures an explanation whose masks were changed after the search.

    Args:
        ids: numbers of its edges and nodes in the graph of the references, sorted.
        references: causal models of its instance alone, without shortcuts; the last one decides.
        split: probability of each sub-event of the complement.
        node_mask_type: what the node mask covers, if there is one.
        distrust: called if the references disagree.
    """

    def __init__(
        self,
        ids: tuple[Tensor, Tensor],
        references: Iterable[CausalModel],
        split: tuple[float, ...],
        node_mask_type: MaskType | None,
        distrust: Callable[[], None] = lambda: None,
    ) -> None:
        self.edge_id, self.node_id = ids
        self.references, self.split, self.node_mask_type, self.distrust = references, split, node_mask_type, distrust

    def __call__(self, changed: Explanation) -> Numbers:
        """Numbers of the masks that the explanation has now."""
        found = []
        for causal in self.references:
            with torch.inference_mode(False), borrow(causal.model):
                found.append(numbers_of(self._measure(changed, causal, HARD), self._measure(changed, causal, "")))
        if any(abs(one[name] - found[-1][name]) > AGREE for one in found for name in ("p_factual", "p_complement")):
            self.distrust()
        return found[-1]

    def _measure(self, one: Explanation, causal: CausalModel, prefix: str) -> Tensor:
        """p_factual and p_complement of the hard or the soft masks, [2]."""
        here, found = causal.instances, Masks()
        edge, node = one.get(prefix + MASKS[0]), one.get(prefix + MASKS[1])
        if edge is not None:
            found[EDGES] = _place(edge, self.edge_id, here.edge_id)
        if node is not None:
            common = self.node_mask_type is MaskType.common_attributes
            found[NODES] = node if common else _place(node, self.node_id, here.node_id)
        parts = MaskParts.of(here, edge is not None, None if node is None else self.node_mask_type)
        answer = evaluate(causal, parts, found.map(lambda mask: mask.to(causal.dtype).unsqueeze(0)), self.split)
        return torch.cat([answer.p_factual, answer.p_complement]).flatten()


def _place(mask: Tensor, ids: Tensor, asked: Tensor) -> Tensor:
    """Values of a mask of the edges or nodes ``ids``, for those ``asked`` for; 0 for others.

    >>> _place(torch.tensor([0.1, 0.2]), torch.tensor([3, 5]), torch.tensor([2, 3, 5, 7]))
    tensor([0.0000, 0.1000, 0.2000, 0.0000])
    """
    values = mask.new_zeros(len(asked), *mask.shape[1:])
    if not len(ids):
        return values
    position = torch.searchsorted(ids, asked).clamp(max=len(ids) - 1)
    known = ids[position] == asked
    values[known] = mask[position[known]]
    return values
