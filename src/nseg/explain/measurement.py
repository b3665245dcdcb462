"""The numbers of an explanation's masks, measured on the model: also for masks that were changed after the search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.explanation import HARD, MASKS, Numbers
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.slow_runs import raise_own_fault
from nseg.search import formulas
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.worlds import Evaluation, evaluate
from nseg.wording import VERDICTS, verdict

AGREE = 1e-4
"""Difference of probabilities that rounding can explain."""


@dataclass(frozen=True)
class Measured:
    """What the model says about B hard explanations.

    Args:
        intervention: what they are judged by.
        by: the answers with messages weighed (``"mask"``) and with edges deleted (``"remove"``), [B] each.
        empty: the answer if nothing is kept, judged likewise.
        nothing: whether an explanation keeps nothing, [B]; such a one shows nothing, so its bounds are 0.
    """

    intervention: str
    by: Mapping[str, Evaluation]
    empty: Evaluation
    nothing: Tensor

    @cached_property
    def own(self) -> Evaluation:
        """The answer that explanations are judged by."""
        both = self.intervention == "both"
        return self.by["mask"].smaller(self.by["remove"]) if both else self.by[self.intervention]

    @cached_property
    def p(self) -> Tensor:
        """p_factual and p_complement, [2, B]."""
        return torch.stack([self.own.p_factual, self.own.p_complement])


def measure_hard(
    causal: CausalModel, parts: MaskParts, hard: Masks, split: tuple[float, ...], intervention: str
) -> Measured:
    """Ask the model about hard masks and about empty ones, with messages weighed and with edges deleted.

    Where explanations are judged by masks, a model that does not run on a smaller graph is not asked about deletion.
    """
    stacked = hard.map(lambda mask: torch.stack([mask, torch.zeros_like(mask)]).to(causal.dtype))
    found = {"mask": evaluate(causal, parts, stacked, split)}
    try:
        found["remove"] = evaluate(causal, parts, stacked, split, "remove") if parts.deletable else found["mask"]
    except Exception as error:  # a model may raise anything on a graph without edges
        raise_own_fault(error)
        if intervention != "mask":
            raise
    kept, empty = ({k: Evaluation(*(value[n] for value in one[:4])) for k, one in found.items()} for n in (0, 1))
    nothing = parts.size(hard.map(lambda mask: mask.double())) == 0
    return Measured(intervention, kept, Measured(intervention, empty, empty["mask"], nothing).own, nothing)


def numbers_of(measured: Measured, soft_p: Tensor) -> list[Numbers]:
    """What each of B explanations says about its masks.

    Args:
        measured: what the model says about their hard masks.
        soft_p: p_factual and p_complement of their soft masks, [2, B].
    """

    def bound(formula: Callable[[Tensor, Tensor], Tensor], one: Evaluation) -> list[float]:
        found: list[float] = (formula(one.p_factual, one.p_complement).double() * ~measured.nothing).tolist()
        return found

    own, number = measured.own, len(measured.nothing)
    keeps, changes = _keeps(own).tolist(), _changes(own).tolist()
    keeps_empty = _keeps(measured.empty).tolist()
    found: dict[str, list[Any]] = {
        "p_factual": own.p_factual.tolist(),
        "p_complement": own.p_complement.tolist(),
        "pns": bound(formulas.pns_bound, own),
        "pn": bound(formulas.pn_bound, own),
        "ps": bound(formulas.ps_bound, own),
        "soft_p_factual": soft_p[0].tolist(),
        "soft_p_complement": soft_p[1].tolist(),
        "intervention": [measured.intervention] * number,
        "p_empty": measured.empty.p_factual.tolist(),
        "keeps_empty": keeps_empty,
        "keeps": keeps,
        "changes": changes,
    }
    for name, one in measured.by.items():
        past = {"mask": "masked", "remove": "removed"}[name]
        found[f"pns_{past}"] = bound(formulas.pns_bound, one)
        found[f"holds_{past}"] = (_keeps(one) & _changes(one)).tolist()
    found["verdict"] = [VERDICTS[verdict(*three)] for three in zip(keeps, changes, keeps_empty, strict=True)]
    return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]


def _keeps(found: Evaluation) -> Tensor:
    """Whether each explanation keeps the class, [B]."""
    return found.keeps == 1


def _changes(found: Evaluation) -> Tensor:
    """Whether the class changes without each explanation, [B]."""
    return found.remains == 0


class Remeasurement:
    """Measures an explanation whose masks were changed after the search.

    Args:
        ids: numbers of its edges and nodes in the graph of the references, sorted.
        references: causal models of its instance alone, without shortcuts; the last one decides.
        split: probability of each sub-event of the complement.
        node_mask_type: what the node mask covers, if there is one.
        intervention: what explanations are judged by.
        distrust: called if the references disagree.
    """

    def __init__(
        self,
        ids: tuple[Tensor, Tensor],
        references: Iterable[CausalModel],
        split: tuple[float, ...],
        node_mask_type: MaskType | None,
        intervention: str,
        distrust: Callable[[], None] = lambda: None,
    ) -> None:
        self.edge_id, self.node_id = ids
        self.references, self.split, self.node_mask_type, self.distrust = references, split, node_mask_type, distrust
        self.intervention = intervention

    def __call__(self, changed: Explanation) -> Numbers:
        """Numbers of the masks that the explanation has now."""
        found = []
        for causal in self.references:
            with torch.inference_mode(False), borrow(causal.model):
                found.append(self._measure(changed, causal))
        if any(abs(one[name] - found[-1][name]) > AGREE for one in found for name in ("p_factual", "p_complement")):
            self.distrust()
        return found[-1]

    def _measure(self, one: Explanation, causal: CausalModel) -> Numbers:
        """Numbers of the hard and the soft masks in one reference."""
        (_, soft), (parts, hard) = (self._masks(one, causal, prefix) for prefix in ("", HARD))
        answer = evaluate(causal, parts, soft.map(lambda mask: mask.unsqueeze(0)), self.split)
        soft_p = torch.cat([answer.p_factual, answer.p_complement])
        return numbers_of(measure_hard(causal, parts, hard, self.split, self.intervention), soft_p)[0]

    def _masks(self, one: Explanation, causal: CausalModel, prefix: str) -> tuple[MaskParts, Masks]:
        """The hard or the soft masks on the instance of a reference."""
        here, found = causal.instances, Masks()
        edge, node = one.get(prefix + MASKS[0]), one.get(prefix + MASKS[1])
        if edge is not None:
            found[EDGES] = _place(edge, self.edge_id, here.edge_id)
        if node is not None:
            common = self.node_mask_type is MaskType.common_attributes
            found[NODES] = node if common else _place(node, self.node_id, here.node_id)
        parts = MaskParts.of(here, edge is not None, None if node is None else self.node_mask_type)
        return parts, found.map(lambda mask: mask.to(causal.dtype))


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
