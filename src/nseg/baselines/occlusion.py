"""Leave one out."""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts
from nseg.search.settings import BaseSettings
from nseg.search.subsets import size_bucket

AT_ONCE = 64  # worlds that are written out together; the causal model runs as many of them at once as fit into memory


class Occlusion(BatchedAlgorithm):
    r"""How far the probability of the class falls when an element alone is taken away.

    .. math::
        s_i = \max\{0,\; p(\mathbf 1) - p(\mathbf 1 - e_i)\}

    A score is a probability, in [0, 1] as it is: the necessity of a single element, all others kept. Causes that can
    stand in for each other both score 0.

    Reference: Zeiler and Fergus, *Visualizing and Understanding Convolutional Networks*, ECCV 2014. Cost: one forward
    pass per element of the largest instance, for all instances at once. Deviation: an element is masked (its messages or
    features weigh 0), not deleted, as in all methods here.

    >>> Occlusion()
    Occlusion()
    """

    Settings = BaseSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        fall = torch.zeros(parts.owner.numel(), dtype=causal.dtype, device=parts.owner.device)
        for _, members, alone, its in parts.grouped(causal, size_bucket(parts.count)):
            fall[members] = falls(alone, its)
        tick()
        return SearchResult(parts.unflatten(fall))


@torch.no_grad()
def falls(causal: CausalModel, parts: MaskParts) -> Tensor:
    """How far p falls without each element, 0 if it does not, [n]; world k lacks the k-th element of every instance."""
    position, owner, p = parts.position, parts.owner, causal.do()[0]
    fall = p.new_zeros(position.numel())
    for first in range(0, int(parts.count.max()), AT_ONCE):
        here = ((first <= position) & (position < first + AT_ONCE)).nonzero().flatten()
        world = torch.arange(first, int(position[here].max()) + 1, device=owner.device).unsqueeze(1)
        without = causal.do(parts.to_weights(parts.unflatten((position != world).to(causal.dtype))))  # [K, B]
        fall[here] = p[owner[here]] - without[position[here] - first, owner[here]]
    return torch.where(fall < 8 * torch.finfo(fall.dtype).eps, 0, fall)  # what is but rounding must not be ranked
