"""Greedy deletion: take away the element whose loss hurts most, then the next, until the class changes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.baselines.occlusion import probabilities_without_each
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.parts import EDGES, MaskParts
from nseg.search.settings import BaseSettings, integer_field
from nseg.search.subsets import ranks, size_bucket


@dataclass(frozen=True, kw_only=True)
class GreedyDeletionSettings(BaseSettings):
    """Settings of greedy deletion, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        deletions: the largest number of elements that are taken away.
    """

    deletions: int = integer_field(10, 1)


class GreedyDeletion(BatchedAlgorithm):
    r"""Elements taken away one after the other, each time the one without which p is lowest, until the class changes.

    .. math::
        i_{t+1} = \operatorname{argmin}_i\; p(\mathbf 1 - D_t - e_i), \quad D_{t+1} = D_t + e_{i_{t+1}}

    Then each taken element is put back if the class stays changed, so that none is superfluous. What stays away is the
    hard explanation; it is a counterfactual if ``deletions`` elements were enough. Soft scores fall from 1 in the order of
    deletion; elements that stay rank below them by the drop of p that each causes alone.

    Reference: the greedy search over edge changes with a second pass that takes changes back, of Abrate and Bonchi,
    *Counterfactual Graphs for Explainable Classification of Brain Networks*, KDD 2021, with deletions only. It judges an
    edge given those before, as Wang et al., *Reinforced Causal Explainer for Graph Neural Networks*, TPAMI 2023, do with a
    policy learnt by reinforcement, which is not here. Cost: up to ``deletions`` forward passes per element.

    >>> GreedyDeletion(deletions=3)
    GreedyDeletion(deletions=3)
    """

    Settings = GreedyDeletionSettings

    @torch.no_grad()
    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        score = torch.zeros(parts.owner.numel(), dtype=causal.dtype, device=parts.owner.device)
        away = torch.zeros_like(score, dtype=torch.bool)
        deletes = self.settings.intervention != "mask" and EDGES in parts
        for _, members, some, its in parts.grouped(causal, size_bucket(parts.count)):
            model = some.removing(parts.tied) if deletes else some
            score[members], away[members] = delete_greedily(model, its, self.settings.deletions)
        tick()
        own_cut = self.settings.extract == "prefix" and not (self.settings.rounds or self.settings.exact)
        return SearchResult(parts.unflatten(score), hard=parts.unflatten(away) if own_cut else None)


def delete_greedily(causal: CausalModel, parts: MaskParts, most: int) -> tuple[Tensor, Tensor]:
    """Scores of the elements, and whether each was taken away and not put back, [n] each."""
    turn = torch.full((parts.owner.numel(),), most, device=parts.owner.device)  # when each element was taken away
    alone = torch.zeros_like(turn, dtype=causal.dtype)
    running = torch.ones(len(causal.instances), dtype=torch.bool, device=turn.device)
    for step in range(most):
        for group, members, some, its in parts.grouped(causal, running.long()):
            if bool(running[group[0]]):
                kept = turn[members] == most
                p, without = probabilities_without_each(some, its, kept)
                if step == 0:
                    alone[members] = (p - without).clamp_min(0)
                best = ranks(torch.where(kept, -without, -torch.inf), its.owner) == 0
                turn[members[best & kept]] = step
                running[group] = _class_stays(some, its, turn[members] == most)
    away = turn < most
    for step in range(most - 1):  # the last one taken away is what changed the class
        back = away & (turn != step)
        unneeded = ~_class_stays(causal, parts, ~back) & ~running
        away = torch.where(unneeded[parts.owner], back, away)
    return torch.where(turn < most, 1 - turn / (2 * most), alone / 2).to(causal.dtype), away


def _class_stays(causal: CausalModel, parts: MaskParts, kept: Tensor) -> Tensor:
    """Whether any explained row keeps its class with the kept elements alone, [B]."""
    weights = parts.to_weights(parts.unflatten(kept.to(causal.dtype).unsqueeze(0)))
    return causal.do_and_agree(weights)[1][0] > 0
