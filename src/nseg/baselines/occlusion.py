"""Leave one out."""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.explainer import BatchedAlgorithm
from nseg.extract import Row, _like_sizes, ranks
from nseg.scm import Scm
from nseg.search import Solution, Tick
from nseg.settings import Common
from nseg.space import Space

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

    Settings = Common

    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        row = Row(space)
        owner, fall = row.owner, torch.zeros(row.owner.numel(), dtype=scm.dtype, device=scm.instances.x.device)
        for group in _like_sizes(owner.bincount(minlength=len(scm.instances))):
            mine = torch.isin(owner, group)  # in the order in which the group's own space numbers its elements
            alone = scm if len(group) == len(scm.instances) else scm.select(group)
            fall[mine] = falls(alone, space.of(alone.instances))
        tick()
        return Solution(row.part(fall))


@torch.no_grad()
def falls(scm: Scm, space: Space) -> Tensor:
    """How far p falls without each element, 0 if it does not, [n]; world k lacks the k-th element of every instance."""
    row = Row(space)
    owner, p = row.owner, scm.do()[0]
    place = ranks(torch.zeros_like(owner), owner)
    fall = p.new_zeros(place.numel())
    for first in range(0, int(owner.bincount().max()) if owner.numel() else 0, AT_ONCE):
        here = ((first <= place) & (place < first + AT_ONCE)).nonzero().flatten()
        world = torch.arange(first, int(place[here].max()) + 1, device=owner.device).unsqueeze(1)
        without = scm.do(*space.weights(row.part((place != world).to(scm.dtype))))  # [K, B]
        fall[here] = p[owner[here]] - without[place[here] - first, owner[here]]
    return torch.where(fall < 8 * torch.finfo(fall.dtype).eps, 0, fall)  # what is but rounding must not be ranked
