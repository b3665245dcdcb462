"""Subsets of the elements of each instance, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nseg.graphs.batch import offsets
from nseg.model.causal import CausalModel
from nseg.search.objective import Objective, objective_of
from nseg.search.parts import MaskParts
from nseg.search.settings import BaseSettings
from nseg.search.worlds import evaluate

DECIMALS = 5
"""Merits are compared up to these, or rounding errors of a batch would decide between subsets of equal worth."""

ENTRIES_AT_ONCE = 1 << 22
"""Mask entries that are laid out in memory at once."""


def ranks(score: Tensor, owner: Tensor, late: Tensor | None = None) -> Tensor:
    """Rank of each element among those of its instance, 0 for the highest score.

    Ties go to the element with the smaller ``late``, and then to the earlier element.

    >>> ranks(torch.tensor([0.1, 0.7, 0.7, 0.3]), torch.tensor([0, 0, 0, 1]))
    tensor([2, 0, 1, 0])
    """
    order = torch.arange(owner.numel(), device=owner.device) if late is None else torch.argsort(late, stable=True)
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    order = order[torch.argsort(owner[order], stable=True)]
    first = offsets(owner.bincount())[owner[order]]
    return torch.empty_like(owner).scatter_(0, order, torch.arange(owner.numel(), device=owner.device) - first)


def size_bucket(count: Tensor) -> Tensor:
    """Bucket of each size; sizes in a bucket differ at most twofold.

    >>> size_bucket(torch.tensor([0, 4, 5, 8, 9]))
    tensor([2, 2, 3, 3, 4])
    """
    return torch.log2(count.clamp_min(4).double()).ceil().long()


def blocks(number: int, size: int, device: torch.device) -> Iterator[Tensor]:
    """The numbers below ``number``, at most ``size`` at a time.

    >>> [block.tolist() for block in blocks(5, 2, torch.device("cpu"))]
    [[0, 1], [2, 3], [4]]
    """
    for first in range(0, number, size):
        yield torch.arange(first, min(first + size, number), device=device)


@dataclass(frozen=True)
class SubsetScorer:
    """What subsets of each instance's elements are worth.

    Args:
        causal, parts: B instances and the parts of their masks.
        settings: how subsets are compared.
    """

    causal: CausalModel
    parts: MaskParts
    settings: BaseSettings

    @cached_property
    def objective(self) -> Objective:
        """What subsets are compared by."""
        return objective_of(self.settings)

    def score(self, number: int, subset: Callable[[Tensor], Tensor]) -> Tensor:
        """Merit of subsets 0 .. number - 1, with a bonus of ``tolerance`` for valid ones, [number, B].

        Args:
            number: number of subsets.
            subset: returns the subsets of some numbers, [k] to [k, n].
        """
        size = max(1, ENTRIES_AT_ONCE // max(self.parts.owner.numel(), 1))
        found = []
        for some in blocks(number, size, self.parts.owner.device):
            masks = self.parts.unflatten(subset(some).to(self.causal.dtype))
            split, intervention = self.parts.split(self.settings), self.settings.intervention
            answer = evaluate(self.causal, self.parts, masks, split, intervention)
            merit = self.objective.merit(answer.p_factual, answer.p_complement)
            found.append(merit + self.settings.tolerance * self.objective.valid(answer.keeps, answer.remains))
        return torch.cat(found).round(decimals=DECIMALS)
