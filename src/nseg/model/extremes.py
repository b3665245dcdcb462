"""The lowest and highest probabilities that worlds have given, by which a search knows how much could still be gained."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Extremes:
    """The lowest and highest probability of each instance's class in the worlds that were asked so far.

    All causal models made from one by selecting and repeating instances write into the same tensors.

    Args:
        low, high: of the instances that the first model had, [B].
        numbers: which of these the present ones are, [b].
    """

    low: Tensor
    high: Tensor
    numbers: Tensor

    @classmethod
    def unknown(cls, number: int, device: torch.device) -> Extremes:
        """Of instances that nothing was asked of."""
        none = torch.zeros(number, dtype=torch.double, device=device)
        return cls(none + 1, none, torch.arange(number, device=device))

    def select(self, which: Tensor) -> Extremes:
        """Those of some instances."""
        return replace(self, numbers=self.numbers[which])

    def repeat(self, times: int) -> Extremes:
        """Those of all instances ``times`` times."""
        return replace(self, numbers=self.numbers.repeat(times))

    def note(self, p: Tensor) -> None:
        """Take in the probabilities of K worlds, [K, b]."""
        p = p.to(self.low.dtype)
        self.low.scatter_reduce_(0, self.numbers, p.amin(0), "amin")
        self.high.scatter_reduce_(0, self.numbers, p.amax(0), "amax")

    @property
    def span(self) -> tuple[Tensor, Tensor]:
        """The highest and the lowest probability of each instance, [b] each."""
        return self.high[self.numbers], self.low[self.numbers]
