"""The best subset of every size that a search has met."""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.search.parts import MaskParts


class Front:
    """The best subset of every size, from 0 to all elements, of each of B instances; sizes not met have the merit -inf.

    Args:
        parts: the parts of their masks.
        dtype: of merits.

    Attributes:
        merit: what the best subset of each size is worth, [S, B].
        kept: the subsets, [S, n].
    """

    def __init__(self, parts: MaskParts, dtype: torch.dtype) -> None:
        sizes, device = int(parts.count.max()) + 1, parts.owner.device
        self.parts = parts
        self.merit = torch.full((sizes, len(parts.instances)), -torch.inf, dtype=dtype, device=device)
        self.kept = torch.zeros(sizes, parts.owner.numel(), dtype=torch.bool, device=device)

    def add(self, kept: Tensor, merit: Tensor, count: Tensor) -> None:
        """Take in P subsets [P, n] with their merits and sizes, [P, B] each; of equals the first stays."""
        best = self.merit.scatter_reduce(0, count, merit, "amax")
        row = torch.arange(len(kept), device=kept.device).unsqueeze(1).expand_as(count)
        row = torch.where(merit == best.gather(0, count), row, len(kept) - 1)
        first = torch.full_like(best, len(kept) - 1, dtype=torch.long).scatter_reduce(0, count, row, "amin")
        owner = self.parts.owner
        self.kept = torch.where((best > self.merit)[:, owner], kept.gather(0, first[:, owner]), self.kept)
        self.merit = best

    @property
    def leading(self) -> Tensor:
        """Whether the best subset of each size is better than those of all smaller sizes, [S, B]."""
        before = self.merit.cummax(0).values.roll(1, 0)
        before[0] = -torch.inf
        return self.merit > before

    def draw(self, u: Tensor, band: float) -> Tensor:
        """Leading subsets that uniform numbers [P, B] choose, [P, n]; no elements where nothing was met.

        Args:
            u: the uniform numbers.
            band: how far from the best their merit may be.
        """
        leading = self.leading & (self.merit >= self.merit.amax(0) - band)
        order = torch.argsort(leading.long(), dim=0, descending=True, stable=True)
        size = order.gather(0, (u * leading.sum(0)).long())  # [P, B]
        return self.kept.gather(0, size[:, self.parts.owner])
