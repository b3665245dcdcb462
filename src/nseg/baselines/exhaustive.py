"""Exhaustive search: the best of all subsets."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nseg.baselines.scores import refuse_feature_masks
from nseg.errors import UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.enumeration import best_subset
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts
from nseg.search.settings import MOST_ELEMENTS, TOO_MANY_SUBSETS, BaseSettings, flag_field, integer_field, number_field


@dataclass(frozen=True, kw_only=True)
class ExhaustiveSettings(BaseSettings):
    """Settings of exhaustive search: those of :class:`nseg.search.settings.BaseSettings` with other defaults, and one more.

    Args:
        most: maximum number of elements of an instance; each further element doubles the cost.
    """

    undirected: bool | None = flag_field(True, optional=True)
    tolerance: float = number_field(0.0)
    most: int = integer_field(16, 1, most=MOST_ELEMENTS, why=TOO_MANY_SUBSETS)


class Exhaustive(BatchedAlgorithm):
    r"""The best of all subsets of edges (and nodes), found by trying every one.

    .. math::
        \max_{S \subseteq E}\; p(S) - p(E \setminus S)

    The mask is 1 on the best subset and 0 elsewhere; of equally good subsets the smallest is taken, and ``tolerance``
    allows a smaller one that loses a little of the bound. No hard explanation can have a higher PNS bound: this is what
    other methods are compared with. The complement of each subset is another row of the same table, so n elements cost
    :math:`2^n` forward passes, all instances at once. Both directions of an edge are one element unless
    ``undirected=False``. Cost: about a second for 16 edges.

    >>> Exhaustive(most=12)
    Exhaustive(most=12)
    """

    Settings = ExhaustiveSettings

    def supports(self) -> bool:
        refuse_feature_masks(self)
        return super().supports()

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        largest = int(parts.count.max()) if parts.count.numel() else 0
        if largest > self.settings.most:
            raise UnsupportedError(
                f"All subsets can be tried for at most {self.settings.most} elements (got {largest} in an instance). "
                f"Leave out large instances, or raise most=... to at most {MOST_ELEMENTS}, at twice the cost per element."
            )
        kept, exact = best_subset(causal, parts, self.settings, self.settings.most)
        tick()
        hard = parts.unflatten(kept)
        return SearchResult(hard.map(lambda mask: mask.to(causal.dtype)), hard=hard, exact=torch.ones_like(exact))
