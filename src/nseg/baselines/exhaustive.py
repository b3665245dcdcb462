"""The oracle: all subsets."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nseg.baselines.scores import refuse_features
from nseg.errors import UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.enumeration import best_subset
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts
from nseg.search.settings import BaseSettings, flag_field, integer_field, number_field


@dataclass(frozen=True, kw_only=True)
class ExhaustiveSettings(BaseSettings):
    """As :class:`nseg.search.settings.BaseSettings`, with other defaults, and:

    Args:
        most: elements that an instance may have; the cost doubles with each.
    """

    undirected: bool = flag_field(True)
    tolerance: float = number_field(0.0)
    most: int = integer_field(16, 1)


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

    Settings = ExhaustiveSettings

    def supports(self) -> bool:
        refuse_features(self)
        return super().supports()

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        largest = int(parts.count.max()) if parts.count.numel() else 0
        if largest > self.settings.most:
            raise UnsupportedError(
                f"All subsets can be tried for at most {self.settings.most} elements (got {largest} in an instance). "
                "Leave out large instances, or raise most=..., at twice the cost per element."
            )
        kept, exact = best_subset(causal, parts, self.settings, self.settings.most)
        tick()
        hard = parts.unflatten(kept)
        return SearchResult(hard.map(lambda mask: mask.to(causal.dtype)), hard=hard, exact=torch.ones_like(exact))
