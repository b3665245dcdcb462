"""Occlusion: leave one element out and measure the drop of the probability."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.parts import EDGES, MaskParts
from nseg.search.settings import BaseSettings
from nseg.search.subsets import size_bucket

WORLDS_AT_ONCE = 64  # worlds whose weights are built together; the causal model runs as many of them as fit into memory


class Occlusion(BatchedAlgorithm):
    r"""Drop of the probability of the class when one element alone is removed.

    .. math::
        s_i = \max\{0,\; p(\mathbf 1) - p(\mathbf 1 - e_i)\}

    A score is a difference of probabilities, hence in [0, 1] without scaling: the necessity of a single element, all
    others kept. Two causes that can replace each other both score 0.

    Reference: Zeiler and Fergus, *Visualizing and Understanding Convolutional Networks*, ECCV 2014. Cost: one forward
    pass per element of the largest instance, for all instances at once. Deviation: unless ``intervention`` says otherwise,
    an element is masked (its messages or features have weight 0), not deleted.

    >>> Occlusion()
    Occlusion()
    """

    Settings = BaseSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        drop = score_by_size(causal, parts, self.settings.intervention, probability_drops)
        tick()
        return SearchResult(parts.unflatten(drop))


Scoring = Callable[[CausalModel, MaskParts], Tensor]
"""From a causal model and the parts of its masks to a score of each element, [n]."""


def score_by_size(causal: CausalModel, parts: MaskParts, intervention: str, score: Scoring) -> Tensor:
    """Scores of all elements, [n]; instances of similar size together, as the largest sets the number of worlds."""
    found = torch.zeros(parts.owner.numel(), dtype=causal.dtype, device=parts.owner.device)
    deletes = intervention != "mask" and EDGES in parts
    for _, members, some, some_parts in parts.grouped(causal, size_bucket(parts.count)):
        found[members] = score(some.removing(parts.tied) if deletes else some, some_parts)
    return found


@torch.no_grad()
def probability_drops(causal: CausalModel, parts: MaskParts) -> Tensor:
    """Drop of p without each element, at least 0, [n]."""
    p, p_without = probabilities_without_each(causal, parts)
    drop = p - p_without
    return torch.where(drop < 8 * torch.finfo(drop.dtype).eps, 0, drop)  # rounding errors must not be ranked


@torch.no_grad()
def probabilities_without_each(causal: CausalModel, parts: MaskParts, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """p of each element's instance, and p without the element, [n] each; world k lacks the k-th element everywhere.

    Args:
        causal, parts: the instances and the parts of their masks.
        kept: elements of the graphs from which one more is left out, [n]; all if None.
    """
    position, owner = parts.position, parts.owner
    kept = torch.ones_like(position, dtype=torch.bool) if kept is None else kept
    p = causal.do(parts.to_weights(parts.unflatten(kept.to(causal.dtype).unsqueeze(0))))[0]
    without = p.new_zeros(position.numel())
    for first in range(0, int(parts.count.max()), WORLDS_AT_ONCE):
        block = ((first <= position) & (position < first + WORLDS_AT_ONCE)).nonzero().flatten()
        world = torch.arange(first, int(position[block].max()) + 1, device=owner.device).unsqueeze(1)
        p_without = causal.do(parts.to_weights(parts.unflatten(((position != world) & kept).to(causal.dtype))))  # [K, B]
        without[block] = p_without[position[block] - first, owner[block]]
    return p[owner], without
