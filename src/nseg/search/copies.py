"""Several subsets of the same instances, improved in one batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.parts import MaskParts


class Copies:
    """Every instance several times in one batch, so that several subsets of it are improved at once.

    Args:
        causal, parts: B instances and the parts of their masks.
        number: copies of each.
    """

    def __init__(self, causal: CausalModel, parts: MaskParts, number: int) -> None:
        self.number, self.single, self.causal = number, parts, causal.repeat(number)
        self.parts = parts.repeat(number, self.causal.instances)

    def each(self, flat: Tensor, treat: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Apply a treatment to rows of values [P, n], as many at once as there are copies, [P, n]."""
        found = []
        for first in range(0, len(flat), self.number):
            some = slice(first, first + self.number)
            before = self.single.unflatten(flat[some]).map(lambda mask: mask.flatten(0, 1))
            after = self.parts.unflatten(treat(self.parts.flatten(before), some))
            found.append(self.single.flatten(after.map(lambda mask: mask.view(self.number, -1, *mask.shape[1:]))))
        return torch.cat(found)
