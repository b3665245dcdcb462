"""Leave one out."""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.explainer import BatchedAlgorithm
from nseg.scm import Scm
from nseg.search import Solution, Tick
from nseg.settings import Common
from nseg.space import Space
from nseg.subsets import Row, doubling

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
        fall = torch.zeros(row.owner.numel(), dtype=scm.dtype, device=row.owner.device)
        for _, members, alone, its in row.parts(scm, doubling(row.count)):
            fall[members] = falls(alone, its)
        tick()
        return Solution(row.part(fall))


@torch.no_grad()
def falls(scm: Scm, row: Row) -> Tensor:
    """How far p falls without each element, 0 if it does not, [n]; world k lacks the k-th element of every instance."""
    place, owner, p = row.place, row.owner, scm.do()[0]
    fall = p.new_zeros(place.numel())
    for first in range(0, int(row.count.max()), AT_ONCE):
        here = ((first <= place) & (place < first + AT_ONCE)).nonzero().flatten()
        world = torch.arange(first, int(place[here].max()) + 1, device=owner.device).unsqueeze(1)
        without = scm.do(*row.space.weights(row.part((place != world).to(scm.dtype))))  # [K, B]
        fall[here] = p[owner[here]] - without[place[here] - first, owner[here]]
    return torch.where(fall < 8 * torch.finfo(fall.dtype).eps, 0, fall)  # what is but rounding must not be ranked
