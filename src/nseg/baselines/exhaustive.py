"""The oracle: all subsets."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nseg.baselines.scores import refuse_features
from nseg.errors import UnsupportedError
from nseg.explainer import BatchedAlgorithm
from nseg.refine import best_subset
from nseg.scm import Scm
from nseg.search import Solution, Tick
from nseg.settings import Common, number, whole, yes_or_no
from nseg.space import Space
from nseg.subsets import Row


@dataclass(frozen=True, kw_only=True)
class Settings(Common):
    """As :class:`nseg.settings.Common`, with other defaults, and:

    Args:
        most: elements that an instance may have; the cost doubles with each.
    """

    undirected: bool = yes_or_no(True)
    tolerance: float = number(0.0)
    most: int = whole(16, 1)


class Exhaustive(BatchedAlgorithm):
    r"""The best of all subsets of edges (and nodes), found by trying every one.

    .. math::
        \max_{S \subseteq E}\; p(S) - p(E \setminus S)

    The mask is 1 on the best subset, of equals the smallest, and 0 elsewhere; ``tolerance`` allows a smaller one for a
    little of the bound. No explanation with hard masks can have a higher PNS bound, which is what the others are judged
    against. Every complement is the subset of another row of the same table, so n elements cost :math:`2^n` forward
    passes, all instances at once. Both directions of an edge are one element unless ``undirected=False``. Cost: about a
    second for 16 edges.

    >>> Exhaustive(most=12)
    Exhaustive(most=12)
    """

    Settings = Settings

    def supports(self) -> bool:
        refuse_features(self)
        return super().supports()

    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        row = Row(space)
        largest = int(row.count.max()) if row.count.numel() else 0
        if largest > self.settings.most:
            raise UnsupportedError(
                f"All subsets can be tried for at most {self.settings.most} elements (got {largest} in an instance). "
                "Leave out large instances, or raise most=..., at twice the cost per element."
            )
        kept, exact = best_subset(scm, space, self.settings, self.settings.most)
        tick()
        hard = row.part(kept)
        return Solution(hard.map(lambda mask: mask.to(scm.dtype)), hard=hard, exact=torch.ones_like(exact))
