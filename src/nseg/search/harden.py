"""From soft masks to hard explanations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.enumeration import best_subset
from nseg.search.formulas import size
from nseg.search.moves import climb_merit, shrink
from nseg.search.parts import MaskParts, Masks
from nseg.search.prefix import best_prefix
from nseg.search.settings import BaseSettings
from nseg.search.subsets import SubsetScorer, ranks

MANY_ELEMENTS = 128
"""Of larger instances only the best ranking's prefix is improved by moves, not that of every start."""

SEARCH_TOLERANCE = 0.05
"""Tolerance with which subsets are searched, whatever tolerance they are chosen with."""

BLEND_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
"""How far soft masks may move towards hard ones; never all the way, so that they still rank what is kept."""


@dataclass(frozen=True)
class SearchResult:
    """What a method found: soft masks, and its own hard ones if it makes them itself.

    Args:
        soft: values of the elements, by part.
        rankings: further masks from which a hard explanation may be made, [P, ...] per part.
        hard: hard masks that need no extraction.
        exact: whether each instance's hard mask is the best there is, [B].
        steps: number of steps that each instance made, [B].
    """

    soft: Masks
    rankings: Masks | None = None
    hard: Masks | None = None
    exact: Tensor | None = None
    steps: Tensor | None = None


def harden(causal: CausalModel, parts: MaskParts, result: SearchResult, settings: BaseSettings) -> tuple[Masks, Tensor]:
    """Hard masks of the elements, and whether each instance's is the best there is, [B]."""
    exact = torch.zeros(len(causal.instances), dtype=torch.bool, device=causal.instances.x.device)
    if result.hard is not None:
        return result.hard, exact if result.exact is None else result.exact
    if settings.extract == "threshold":
        return result.soft.map(lambda mask: above(mask, settings.threshold)), exact
    if settings.extract == "topk":
        return _top_of_each_part(parts, result.soft, settings.k or 0), exact
    rankings = result.soft.map(lambda mask: mask.unsqueeze(0)) if result.rankings is None else result.rankings
    kept = _best_of_rankings(causal, parts, rankings, settings)
    if settings.exact and not settings.connected:
        best, exact = best_subset(causal, parts, settings, settings.exact)
        kept = torch.where(exact[parts.owner], best, kept)
    return parts.unflatten(kept), exact


def above(mask: Tensor, threshold: float) -> Tensor:
    """Elements whose weight exceeds the threshold.

    >>> above(torch.tensor([0.2, 0.5, 0.9]), 0.5)
    tensor([False, False,  True])
    """
    return mask > threshold


def top_k(score: Tensor, owner: Tensor, k: int) -> Tensor:
    """The k highest elements of each instance.

    >>> top_k(torch.tensor([0.1, 0.7, 0.5, 0.3]), torch.tensor([0, 0, 0, 1]), 2)
    tensor([False,  True,  True,  True])
    """
    return ranks(score, owner) < k


def _top_of_each_part(parts: MaskParts, soft: Masks, k: int) -> Masks:
    """The k highest elements of each instance, part by part."""
    found = Masks()
    for part in parts:
        owner = part.owner.repeat_interleave(part.width)
        found[part.name] = top_k(soft[part.name].flatten(), owner, k).view(part.shape)
    return found


def _best_of_rankings(causal: CausalModel, parts: MaskParts, rankings: Masks, settings: BaseSettings) -> Tensor:
    """The smallest subset that P rankings lead to, if it is within ``tolerance`` of the best, [n].

    Subsets are searched with one fixed tolerance, and only the choice among them uses that of the settings. So a smaller
    tolerance never gives a worse explanation: all tolerances choose from the same subsets.
    """
    usual = replace(settings, tolerance=SEARCH_TOLERANCE)
    found = _improve(causal, parts, parts.flatten(rankings), usual)
    chosen = _choose_smallest(causal, parts, found, usual)
    if settings.tolerance == SEARCH_TOLERANCE:
        return chosen
    candidates = torch.cat([found, chosen.unsqueeze(0)])
    if settings.tolerance < SEARCH_TOLERANCE and _makes_moves(settings):
        copies = _Copies(causal, parts, len(candidates) if causal.strategy.batched else 1)
        candidates = copies.each(candidates, lambda flat, _: climb_merit(copies.causal, copies.parts, flat, settings))
    return _choose_smallest(causal, parts, candidates, settings)


def _makes_moves(settings: BaseSettings) -> bool:
    return settings.rounds > 0 and not settings.connected


def _improve(causal: CausalModel, parts: MaskParts, rankings: Tensor, settings: BaseSettings) -> Tensor:
    """The best prefix of each of P rankings [P, n], improved by moves, [P, n]."""
    number = len(rankings)
    copies = _Copies(causal, parts, number if causal.strategy.batched else 1)
    many, its = copies.causal, copies.parts
    kept = copies.each(rankings, lambda flat, _: its.flatten(best_prefix(many, its, its.unflatten(flat), settings)))
    if not _makes_moves(settings):
        return kept
    best = SubsetScorer(causal, parts, settings).score(number, lambda p: kept[p]).argmax(0)
    is_best = best == torch.arange(number, device=best.device).unsqueeze(1)
    who = (parts.count <= MANY_ELEMENTS) | is_best  # [P, B]
    return copies.each(kept, lambda flat, p: climb_merit(many, its, flat, settings, who[p].flatten()))


def _choose_smallest(causal: CausalModel, parts: MaskParts, kept: Tensor, settings: BaseSettings) -> Tensor:
    """Shrink P subsets [P, n] within ``tolerance`` of the best of them; the smallest that is good enough, [n]."""
    number, scorer = len(kept), SubsetScorer(causal, parts, settings)
    value = scorer.score(number, lambda p: kept[p])
    least = value.amax(0) - settings.tolerance
    if _makes_moves(settings):
        copies = _Copies(causal, parts, number if causal.strategy.batched else 1)
        kept = copies.each(
            kept, lambda flat, _: shrink(copies.causal, copies.parts, flat, settings, least.repeat(copies.number))
        )
        value = scorer.score(number, lambda p: kept[p])
    return _smallest(kept, value >= least, parts)


class _Copies:
    """Every instance several times in one batch, so that several subsets of it are improved at once.

    Args:
        causal, parts: B instances and the parts of their masks.
        number: copies of each.
    """

    def __init__(self, causal: CausalModel, parts: MaskParts, number: int) -> None:
        self.number, self.single, self.causal = number, parts, causal.repeat(number)
        self.parts = parts.on(self.causal.instances)

    def each(self, flat: Tensor, treat: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Apply a treatment to rows of values [P, n], as many at once as there are copies, [P, n]."""
        found = []
        for first in range(0, len(flat), self.number):
            some = slice(first, first + self.number)
            before = self.single.unflatten(flat[some]).map(lambda mask: mask.flatten(0, 1))
            after = self.parts.unflatten(treat(self.parts.flatten(before), some))
            found.append(self.single.flatten(after.map(lambda mask: mask.view(self.number, -1, *mask.shape[1:]))))
        return torch.cat(found)


def _smallest(kept: Tensor, good: Tensor, parts: MaskParts) -> Tensor:
    """The smallest of P subsets [P, n] that is good [P, B], [n]."""
    number = size(kept.double(), parts.owner, len(parts.instances))
    which = torch.where(good, number, torch.inf).argmin(0)
    return kept.gather(0, which[parts.owner].unsqueeze(0)).squeeze(0)


@torch.no_grad()
def blend_to_hard(causal: CausalModel, parts: MaskParts, soft: Masks, hard: Masks, settings: BaseSettings) -> Masks:
    """Soft masks, moved towards the hard ones only as far as needed to be no worse.

    Of the masks on the line between both, the first within ``tolerance`` of the best is taken.
    """
    begin, end = parts.flatten(soft), parts.flatten(hard).to(causal.dtype)
    share = torch.tensor(BLEND_SHARES, dtype=end.dtype, device=end.device).unsqueeze(1)
    line = begin + share * (end - begin)  # [T, n]
    value = SubsetScorer(causal, parts, settings).score(len(line), lambda t: line[t])
    first = (value >= value.amax(0) - settings.tolerance).long().argmax(0)
    return parts.unflatten(line.gather(0, first[parts.owner].unsqueeze(0)).squeeze(0))
