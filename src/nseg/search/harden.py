"""From soft masks to hard explanations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.connected import connected_subset
from nseg.search.deadline import time_is_up
from nseg.search.enumeration import best_subset
from nseg.search.formulas import size
from nseg.search.moves import climb_merit, exchange, shrink
from nseg.search.noise import mask_noise
from nseg.search.parts import EDGES, MaskParts, Masks
from nseg.search.prefix import best_prefix
from nseg.search.settings import BaseSettings
from nseg.search.subsets import SubsetScorer, ranks

MANY_ELEMENTS = 128
"""Of larger instances only the best ranking's prefix is improved by moves, not that of every ranking."""

STUCK = 0.93
"""Instances whose merit stays below this are searched again from subsets around the best one found."""

KICK_SHARE = 0.25
"""Share of the elements that are flipped to get away from a subset that no move improves."""

FINE = 16
"""Prefixes of a ranking are tried one by one up to this length, where moves follow."""

SEARCH_TOLERANCE = 0.05
"""Tolerance with which subsets are searched, whatever tolerance they are chosen with."""

EXCHANGES = 2
"""Rounds of exchanges of the chosen subset, before elements are dropped again."""

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
    if settings.exact and not settings.connected and not time_is_up("enumeration"):
        kept, exact = best_subset(causal, parts, settings, settings.exact)
    else:
        kept = torch.zeros_like(parts.owner, dtype=torch.bool)
    for group, members, some, its in parts.grouped(causal, exact.long()):
        if not bool(exact[group[0]]):
            kept[members] = _search(some, its, its.unflatten(parts.flatten(rankings)[:, members]), settings)
    return parts.unflatten(kept), exact


def _search(causal: CausalModel, parts: MaskParts, rankings: Masks, settings: BaseSettings) -> Tensor:
    """The subset that P rankings lead to, connected if the settings ask for it, [n]."""
    if not (settings.connected and EDGES in parts):
        return _best_of_rankings(causal, parts, rankings, settings)
    free = _best_of_rankings(causal, parts, rankings, replace(settings, connected=False)) if settings.rounds else None
    return connected_subset(causal, parts, rankings, settings, free)


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
    search = _SubsetSearch(causal, parts, replace(settings, tolerance=SEARCH_TOLERANCE))
    candidates = search.prefixes(parts.flatten(rankings))
    if not _makes_moves(settings) or time_is_up("moves"):
        return _choose(candidates, search.value(candidates), settings.tolerance, parts)
    candidates = search.kick(search.climb(candidates))
    chosen = search.choose_small(candidates)
    if settings.tolerance == SEARCH_TOLERANCE:
        return chosen
    search = _SubsetSearch(causal, parts, settings)
    candidates = torch.cat([candidates, chosen.unsqueeze(0)])
    return search.choose_small(search.climb(candidates) if settings.tolerance < SEARCH_TOLERANCE else candidates)


def _makes_moves(settings: BaseSettings) -> bool:
    return settings.rounds > 0 and not settings.connected


@dataclass(frozen=True)
class _SubsetSearch:
    """Searches subsets of the elements of B instances: candidates [P, n], from which one is chosen in the end, [n].

    Args:
        causal, parts: the instances and the parts of their masks.
        settings: how subsets are compared.
    """

    causal: CausalModel
    parts: MaskParts
    settings: BaseSettings

    def value(self, candidates: Tensor) -> Tensor:
        """Score of each candidate, [P, B]."""
        scorer = SubsetScorer(self.causal, self.parts, self.settings)
        return scorer.score(len(candidates), lambda p: candidates[p])

    def prefixes(self, rankings: Tensor) -> Tensor:
        """The best prefix of each of P rankings [P, n]."""
        copies, fine = self._copies(len(rankings)), FINE if _makes_moves(self.settings) else None
        many, its = copies.causal, copies.parts

        def cut(flat: Tensor, _: slice) -> Tensor:
            return its.flatten(best_prefix(many, its, its.unflatten(flat), self.settings, fine))

        return copies.each(rankings, cut)

    def climb(self, candidates: Tensor) -> Tensor:
        """Improve different candidates by moves; of instances with many elements only the best."""
        value, copies = self.value(candidates), self._copies(len(candidates))
        best = value.argmax(0) == torch.arange(len(candidates), device=value.device).unsqueeze(1)
        who = best | (_is_new(candidates, self.parts) & (self.parts.count <= MANY_ELEMENTS))
        settings = self.settings
        return copies.each(
            candidates, lambda flat, p: climb_merit(copies.causal, copies.parts, flat, settings, who[p].flatten())
        )

    def kick(self, candidates: Tensor) -> Tensor:
        """Add what moves make of subsets around the best one, for instances that are stuck below what can be reached."""
        value, best = self._best(candidates)
        stuck = ((value < STUCK) & (self.parts.count <= MANY_ELEMENTS)).nonzero().flatten()
        if not stuck.numel() or not self.settings.kicks or time_is_up("kicks"):
            return candidates
        causal = self.causal.select(stuck)
        small = _SubsetSearch(causal, self.parts.on(causal.instances), self.settings)
        members = torch.isin(self.parts.owner, stuck)
        noise = mask_noise(small.parts, 0, causal.dtype)
        draws = [Masks({name: one.draw(number) for name, one in noise.items()}) for number in range(self.settings.kicks)]
        flips = torch.stack([small.parts.flatten(draw) < KICK_SHARE for draw in draws])
        found = small.climb(best[members] ^ flips)
        good = torch.argsort(small.value(found), dim=0, descending=True, stable=True)[:2]
        more = best.expand(len(good), -1).clone()
        more[:, members] = found.gather(0, good[:, small.parts.owner])
        return torch.cat([candidates, more])

    def choose_small(self, candidates: Tensor) -> Tensor:
        """The smallest subset within ``tolerance`` of the best that dropping elements of candidates leads to, [n]."""
        settings, value, copies = self.settings, self.value(candidates), self._copies(len(candidates))
        least = value.amax(0) - settings.tolerance
        # two candidates that are too bad must not count as equal to a good one
        who = (value >= least) & _is_new(torch.where((value >= least)[:, self.parts.owner], candidates, False), self.parts)
        limits = least.expand(len(candidates), -1)

        def drop(flat: Tensor, p: slice) -> Tensor:
            return shrink(copies.causal, copies.parts, flat, settings, limits[p].flatten(), who[p].flatten())

        small = copies.each(candidates, drop)
        chosen = _smallest(small, who & (self.value(small) >= least), self.parts)
        few = self.parts.count <= MANY_ELEMENTS
        chosen = exchange(self.causal, self.parts, chosen, settings, EXCHANGES, few)
        return shrink(self.causal, self.parts, chosen, replace(settings, rounds=1), least, few)

    def _best(self, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The highest score [B], and the candidate that has it [n]."""
        value, which = self.value(candidates).max(0)
        return value, candidates.gather(0, which[self.parts.owner].unsqueeze(0)).squeeze(0)

    def _copies(self, number: int) -> _Copies:
        return _Copies(self.causal, self.parts, number if self.causal.strategy.batched else 1)


def _is_new(candidates: Tensor, parts: MaskParts) -> Tensor:
    """Whether each of P subsets [P, n] differs from all before it, [P, B]."""
    found = torch.ones(len(candidates), len(parts.instances), dtype=torch.bool, device=candidates.device)
    for later in range(1, len(candidates)):
        other = (candidates[:later] != candidates[later]).double()
        found[later] = (size(other, parts.owner, len(parts.instances)) > 0).all(0)
    return found


def _choose(candidates: Tensor, value: Tensor, tolerance: float, parts: MaskParts) -> Tensor:
    """The smallest of P subsets [P, n] whose value [P, B] is within the tolerance of the best, [n]."""
    return _smallest(candidates, value >= value.amax(0) - tolerance, parts)


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
    masked = replace(settings, intervention="mask")  # soft masks weigh messages
    value = SubsetScorer(causal, parts, masked).score(len(line), lambda t: line[t])
    first = (value >= value.amax(0) - settings.tolerance).long().argmax(0)
    return parts.unflatten(line.gather(0, first[parts.owner].unsqueeze(0)).squeeze(0))
