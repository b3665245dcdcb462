"""Subsets that a search has found, and which of them to choose."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.search.formulas import size
from nseg.search.parts import MaskParts
from nseg.search.subsets import acceptable, canonical_choice, pick


@dataclass(frozen=True)
class Candidates:
    """P subsets of the elements of B instances.

    Args:
        parts: the parts of their masks.
        kept: the subsets, [P, n].
        merit: what they are worth, [P, B].
        valid: whether they do what the objective asks for, [P, B].
    """

    parts: MaskParts
    kept: Tensor
    merit: Tensor
    valid: Tensor

    def __add__(self, other: Candidates) -> Candidates:
        both = zip((self.kept, self.merit, self.valid), (other.kept, other.merit, other.valid), strict=True)
        return Candidates(self.parts, *map(torch.cat, both))

    @property
    def best(self) -> Tensor:
        """The subset with the highest merit, [n]."""
        return pick(self.kept, self.choice(0.0), self.parts)

    def at(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """Merits and validity of some instances, [P, b] each."""
        return self.merit[:, which], self.valid[:, which]

    def choice(self, tolerance: float) -> Tensor:
        """Number of the subset that is chosen within a tolerance of the best, [B]."""
        return canonical_choice(self.kept, self.merit, acceptable(self.merit, self.valid, tolerance), self.parts)

    def first_and_best(self, number: int, tolerance: float) -> Candidates:
        """The first of the acceptable ones and the best one."""
        left, rows = acceptable(self.merit, self.valid, tolerance), [self.choice(0.0)]
        for _ in range(number):
            rows.append(torch.where(left.any(0), canonical_choice(self.kept, self.merit, left, self.parts), rows[0]))
            left = left & self._differs(rows[-1])
        which = torch.stack(rows)
        kept = torch.stack([pick(self.kept, row, self.parts) for row in rows])
        return Candidates(self.parts, kept, self.merit.gather(0, which), self.valid.gather(0, which))

    def _differs(self, which: Tensor) -> Tensor:
        """Whether each subset differs from those of the numbers ``which`` [B], [P, B]."""
        other = (self.kept != pick(self.kept, which, self.parts)).double()
        return size(other, self.parts.owner, self.merit.size(1)) > 0

    def first(self, good: Tensor, number: int) -> Tensor:
        """Which of the good ones [P, B] are the first, by size and then by merit, and differ from each other, [P, B]."""
        left, chosen = good, torch.zeros_like(good)
        rows = torch.arange(len(good), device=good.device).unsqueeze(1)
        for _ in range(number):
            which = canonical_choice(self.kept, self.merit, left, self.parts)
            chosen |= (rows == which) & left
            left = left & self._differs(which)
        return chosen
