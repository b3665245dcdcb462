"""Subsets of the elements of each instance, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nseg.graphs.batch import offsets
from nseg.model.causal import CausalModel
from nseg.search.formulas import size
from nseg.search.objective import Objective, objective_of
from nseg.search.parts import MaskParts
from nseg.search.settings import BaseSettings
from nseg.search.worlds import evaluate

DECIMALS = 5
"""Merits are compared up to these, or rounding errors of a batch would decide between subsets of equal worth."""

NEVER = 1 << 40
"""A rank or a length that is never reached."""

ENTRIES_AT_ONCE = 1 << 22
"""Mask entries that are laid out in memory at once."""


def ranks(score: Tensor, owner: Tensor, late: Tensor | None = None) -> Tensor:
    """Rank of each element among those of its instance, 0 for the highest score.

    Ties go to the element with the smaller ``late``, and then to the earlier element.

    >>> ranks(torch.tensor([0.1, 0.7, 0.7, 0.3]), torch.tensor([0, 0, 0, 1]))
    tensor([2, 0, 1, 0])
    """
    number = torch.arange(owner.numel(), device=owner.device)
    order = number if late is None else torch.argsort(late, stable=True)
    if score.dtype in (torch.float32, torch.bool):  # instance and score fit into one number: one sort is enough
        key = (owner << 32) - (ordered_bits(score) if score.is_floating_point() else score.long())
        order = order[torch.argsort(key[order], stable=True)]
    else:
        order = order[torch.argsort(score[order], descending=True, stable=True)]
        order = order[torch.argsort(owner[order], stable=True)]
    first = offsets(owner.bincount())[owner[order]]
    return torch.empty_like(owner).scatter_(0, order, number - first)


def ordered_bits(value: Tensor) -> Tensor:
    """Whole numbers of 32 bits in the order of floating point numbers; 0 and -0 are equal.

    >>> ordered_bits(torch.tensor([-torch.inf, -1.0, -0.0, 0.0, 2.0])).diff() > 0
    tensor([ True,  True, False,  True])
    """
    bits = (value + 0.0).view(torch.int32).long()
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


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

    def score(self, number: int, subset: Callable[[Tensor], Tensor], must: Tensor | None = None) -> Tensor:
        """Merit of subsets 0 .. number - 1, [number, B].

        Args:
            number: number of subsets.
            subset: returns the subsets of some numbers, [k] to [k, n].
            must: instances whose subsets must be valid, [B]; others of theirs have the merit -inf.
        """
        merit, valid = self.measure(number, subset)
        return merit if must is None else torch.where(valid | ~must, merit, -torch.inf)

    def measure(self, number: int, subset: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Merit of subsets 0 .. number - 1, and whether each is valid, [number, B] each.

        A subset without elements shows nothing: it is not valid, and its merit is 0 at most.
        """
        merit, valid, _ = self._ask(number, subset, odds=False)
        return merit, valid

    def measure_odds(self, number: int, subset: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The results of :meth:`measure`, and log-odds in the factual world and each sub-event, [number, 1 + A, B]."""
        merit, valid, odds = self._ask(number, subset, odds=True)
        return merit, valid, torch.cat(odds)

    def _ask(self, number: int, subset: Callable[[Tensor], Tensor], odds: bool) -> tuple[Tensor, Tensor, list[Tensor]]:
        at_once = max(1, ENTRIES_AT_ONCE // max(self.parts.owner.numel(), 1))
        split, intervention = self.parts.split(self.settings), self.settings.intervention
        merit, valid, log_odds = [], [], []
        for some in blocks(number, at_once, self.parts.owner.device):
            kept = subset(some)
            masks = kept if kept.dtype == torch.bool else self.parts.unflatten(kept)
            answer = evaluate(self.causal, self.parts, masks, split, intervention, odds)
            self.causal.extremes.note(torch.cat([answer.p_factual, answer.p_complement]))
            value = self.objective.merit(answer.p_factual, answer.p_complement)
            nothing = self.parts.sizes(kept) == 0
            merit.append(torch.where(nothing, value.clamp(max=0), value))
            valid.append(self.objective.valid(answer.keeps, answer.remains) & ~nothing)
            log_odds += [] if answer.log_odds is None else [answer.log_odds]
        return torch.cat(merit).round(decimals=DECIMALS), torch.cat(valid), log_odds


def acceptable(merit: Tensor, valid: Tensor, tolerance: float) -> Tensor:
    """Which of P subsets may be chosen: within the tolerance of the best, and valid if one of these is, [P, B].

    >>> acceptable(torch.tensor([[0.9], [0.88], [0.7]]), torch.tensor([[False], [True], [True]]), 0.05).T
    tensor([[False,  True, False]])
    """
    good = merit >= merit.amax(0) - tolerance
    return torch.where((good & valid).any(0), good & valid, good)


def canonical_choice(kept: Tensor, merit: Tensor, good: Tensor, parts: MaskParts) -> Tensor:
    """Of the good ones of P subsets the smallest; of these the best; of these the one with the earliest elements, [B].

    So the choice depends on which subsets there are, not on the order in which they were found.

    Args:
        kept: the subsets, [P, n].
        merit: what they are worth, rounded, [P, B].
        good: which may be chosen, [P, B]; one of each instance at least.
        parts: the parts of the masks.
    """
    number = len(parts.instances)
    count = size(kept.double(), parts.owner, number)
    good = good & (count == torch.where(good, count, torch.inf).amin(0))
    good = good & (merit == torch.where(good, merit, -torch.inf).amax(0))
    place = (parts.position + 1).double()
    for power in (place, place.square(), place.sqrt()):  # sums that hardly ever agree for different subsets
        total = size(kept * power, parts.owner, number)
        good = good & (total == torch.where(good, total, torch.inf).amin(0))
    return good.long().argmax(0)


def pick(kept: Tensor, which: Tensor, parts: MaskParts) -> Tensor:
    """Of P subsets [P, n] the one of each instance that has the number ``which`` [B], [n]."""
    return kept.gather(0, which[parts.owner].unsqueeze(0)).squeeze(0)
