"""From soft masks to hard explanations."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nseg.graphs.groups import is_in_groups
from nseg.graphs.inputs import Role
from nseg.model.causal import CausalModel
from nseg.search.annealing import anneal
from nseg.search.candidates import Candidates
from nseg.search.connected import ConnectedSearch
from nseg.search.copies import Copies
from nseg.search.deadline import time_is_up
from nseg.search.enumeration import best_subset
from nseg.search.moves import MIN_GAIN, Limit, climb_merit, exchange, shrink
from nseg.search.objective import objective_of
from nseg.search.parts import EDGES, MaskParts, Masks
from nseg.search.prefix import best_prefix
from nseg.search.restarts import MANY_ELEMENTS, restart_subsets
from nseg.search.settings import BaseSettings
from nseg.search.subsets import SubsetScorer, acceptable, canonical_choice, pick, ranks

FINE = 16
"""Prefixes of a ranking are tried one by one up to this length, where moves follow."""

SEARCH_TOLERANCE = 0.05
"""Tolerance with which masks and prefixes are chosen that moves start from, whatever tolerance the settings have."""

KICKS_AT_ONCE = 2
"""Subsets around the best one that are climbed from in one batch of restarts."""

EASY_TO_RESTART, HARD_SHARE = 32, 1 / 3
"""Instances of more elements than this, whose climbs take long, get this share of the batches of restarts."""

TIMES_MET = 4
"""Climbs that must lead to the best merit known before no more are made."""

MORE_IF_STUCK, MOST_IF_STUCK = 3, 15
"""Where moves end far below what could be reached, all subsets are tried of so many more elements, up to so many."""

CLOSE = 2
"""Restarts end where the best merit is within this many times the tolerance of its ceiling."""

FAR = 3
"""Far below is further from 1 than this many times the tolerance."""

RESTART_ROUNDS = 10
"""Maximum number of moves from each of them."""

SHRUNK = 2
"""Subsets of each instance from which elements are dropped."""

EXCHANGES = 2
"""Rounds of exchanges of the chosen subset, before elements are dropped again."""

REVISIONS = 3
"""How often the choice is made anew because moves from the chosen subset lead to a better one than all before."""

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
    if settings.exact and not time_is_up("enumeration"):
        kept, exact = best_subset(causal, parts, settings, settings.exact)
    else:
        kept = torch.zeros_like(parts.owner, dtype=torch.bool)
    for group, members, some, its in parts.grouped(causal, exact.long()):
        if not bool(exact[group[0]]):
            kept[members] = _search(some, its, its.unflatten(parts.flatten(rankings)[:, members]), settings)
    return _enumerate_stuck(causal, parts, settings, kept, exact)


def _enumerate_stuck(
    causal: CausalModel, parts: MaskParts, settings: BaseSettings, kept: Tensor, exact: Tensor
) -> tuple[Masks, Tensor]:
    """Try all subsets of instances with few elements whose explanation is far from 1 and from its ceiling."""
    most = _most_if_stuck(parts, settings)
    few = (parts.count <= most) & ~exact
    if bool(few.any()) and not time_is_up("enumeration"):
        search = SubsetSearch(causal, parts, settings)
        merit = search.measure(kept.unsqueeze(0)).merit[0]
        stuck = few & (merit < 1 - FAR * settings.tolerance) & (merit < search.ceiling - settings.tolerance)
        for group, members, some, its in parts.grouped(causal, stuck.long()):
            if bool(stuck[group[0]]):
                kept[members], exact[group] = best_subset(some, its, settings, most)
    return parts.unflatten(kept), exact


def _most_if_stuck(parts: MaskParts, settings: BaseSettings) -> int:
    """Elements up to which all subsets are tried where the search is stuck; -1 if they cannot or need not be."""
    if not (settings.exact and settings.kicks and settings.rounds):
        return -1
    if parts.nodes_vanish and settings.intervention != "mask":  # tables of worlds know of edges only
        return -1
    return max(settings.exact, min(settings.exact + MORE_IF_STUCK, MOST_IF_STUCK))


def _search(causal: CausalModel, parts: MaskParts, rankings: Masks, settings: BaseSettings) -> Tensor:
    """The subset that P rankings lead to, connected if the settings ask for it, [n]."""
    if not (settings.connected and EDGES in parts):
        return _try_connected(causal, parts, settings, _best_of_rankings(causal, parts, rankings, settings))
    found = SubsetSearch(causal, parts, settings).prefixes(parts.flatten(rankings))
    if not settings.rounds or time_is_up("moves"):
        return pick(found.kept, found.choice(settings.tolerance), parts)
    free = _best_of_rankings(causal, parts, rankings, replace(settings, connected=False, kicks=0, anneal=0))
    return ConnectedSearch(causal, parts, settings).best(found.kept, free)


def _try_connected(causal: CausalModel, parts: MaskParts, settings: BaseSettings, kept: Tensor) -> Tensor:
    """Add what hangs on the explained node, where nodes are explained by whole bonds and moves end far below 1, [n].

    Without one of its bonds a node's own degree changes, so that single moves rarely help; whole paths and branches do.
    """
    search = SubsetSearch(causal, parts, settings)
    local = parts.tied and EDGES in parts and parts.instances.outputs is not Role.GRAPH
    if not (local and settings.kicks and _makes_moves(settings)) or time_is_up("kicks"):
        return kept
    merit = search.measure(kept.unsqueeze(0)).merit[0]
    stuck = (merit < 1 - FAR * settings.tolerance).nonzero().flatten()
    if not stuck.numel():
        return kept
    small, members = search._select(stuck)
    connected = ConnectedSearch(small.causal, small.parts, replace(settings, connected=True))
    starts = torch.stack([kept[members], connected.best(kept[None, members][:0], kept[members])])
    kept = kept.clone()
    kept[members] = small.choose(small.measure(torch.cat([starts, small.climbed(starts[1:], settings)])))
    return kept


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

    A smaller tolerance never gives a worse explanation: it searches at least the same subsets, and what is made of them
    is never better than the best of them, which tolerance 0 chooses.
    """
    search = SubsetSearch(causal, parts, settings)
    found = search.prefixes(parts.flatten(rankings))
    if not _makes_moves(settings) or time_is_up("moves"):
        return pick(found.kept, found.choice(settings.tolerance), parts)
    found = search.climb(found)
    found = search.anneal(found.kept, search.restart(found))
    kept, which = search.choose(found), search.stuck(found)
    for _ in range(REVISIONS if settings.kicks else 0):
        found, kept, which = search.revise(found, kept, which)
    return kept


def _makes_moves(settings: BaseSettings) -> bool:
    return settings.rounds > 0 and not settings.connected


def _batches(number: int, size: int) -> list[int]:
    """A number as a sum of batches of at most some size.

    >>> _batches(5, 2)
    [2, 2, 1]
    """
    return [min(size, number - first) for first in range(0, number, size)]


@dataclass(frozen=True)
class SubsetSearch:
    """Searches subsets of the elements of B instances.

    Args:
        causal, parts: the instances and the parts of their masks.
        settings: how subsets are compared.
    """

    causal: CausalModel
    parts: MaskParts
    settings: BaseSettings

    def measure(self, kept: Tensor) -> Candidates:
        """P subsets [P, n] and what they are worth."""
        scorer = SubsetScorer(self.causal, self.parts, self.settings)
        return Candidates(self.parts, kept, *scorer.measure(len(kept), lambda p: kept[p]))

    def prefixes(self, rankings: Tensor) -> Candidates:
        """The best prefix of each of P rankings [P, n]."""
        copies, moves = self._copies(len(rankings)), _makes_moves(self.settings)
        many, its, settings = copies.causal, copies.parts, self.settings
        settings = replace(settings, tolerance=SEARCH_TOLERANCE) if moves else settings

        def cut(flat: Tensor, _: slice) -> Tensor:
            return its.flatten(best_prefix(many, its, its.unflatten(flat), settings, FINE if moves else None))

        return self.measure(copies.each(rankings, cut))

    def climb(self, found: Candidates) -> Candidates:
        """Improve different subsets by moves; of instances with many elements only the best."""
        rows = torch.arange(len(found.kept), device=found.kept.device).unsqueeze(1)
        few = self.parts.count <= MANY_ELEMENTS
        who = found.first(found.merit >= -torch.inf, len(rows)) & few
        return self.measure(self.climbed(found.kept, self.settings, who | (rows == found.merit.argmax(0))))

    def restart(self, found: Candidates) -> Candidates:
        """Add what moves make of other subsets, for instances that are stuck below 1: some may be better or smaller.

        It is done again from other subsets until the best was met several times or is near its ceiling, so that there is
        hardly a better one.
        """
        stuck = self.stuck(found)
        met = (found.merit >= found.merit.amax(0) - MIN_GAIN).sum(0)
        batches = _batches(self.settings.kicks, KICKS_AT_ONCE)
        for batch, kicks in enumerate(batches):
            if not stuck.numel() or time_is_up("kicks"):
                break
            small, members = self._select(stuck)
            starts, who = restart_subsets(small.parts, found.best[members], kicks, batch)
            settings = replace(self.settings, rounds=max(self.settings.rounds, RESTART_ROUNDS))
            more, before = small.measure(small.climbed(starts, settings, who)), found.merit.amax(0)
            found = (found + self._spread(more, stuck, members, found)).first_and_best(SHRUNK, self.settings.tolerance)
            best = found.merit.amax(0)
            met = torch.where(best > before + MIN_GAIN, 0, met)
            met[stuck] += (who & (more.merit >= best[stuck] - MIN_GAIN)).sum(0)
            few = self.parts.count <= (MANY_ELEMENTS if batch + 1 < HARD_SHARE * len(batches) else EASY_TO_RESTART)
            far = found.merit.amax(0) < self.ceiling - CLOSE * self.settings.tolerance
            stuck = (few & self._is_stuck(found) & far & (met < TIMES_MET)).nonzero().flatten()
        return found

    def anneal(self, known: Tensor, found: Candidates) -> Candidates:
        """Add what annealing makes of known subsets [P, n], for instances that are stuck below 1, if asked for.

        The known subsets must not depend on the tolerance.
        """
        stuck = self.stuck(found)
        stuck = stuck[self.parts.count[stuck] <= MANY_ELEMENTS]
        if not (self.settings.anneal and stuck.numel()) or time_is_up("annealing"):
            return found
        small, members = self._select(stuck)
        more = anneal(small.causal, small.parts, self.settings, known[:, members])
        found = found + self._spread(more, stuck, members, found)
        return found.first_and_best(SHRUNK, self.settings.tolerance)

    def choose(self, found: Candidates) -> Tensor:
        """The smallest subset within ``tolerance`` of the best that dropping elements of candidates leads to, [n]."""
        found = self._add_valid(found)
        settings, copies = self.settings, self._copies(len(found.kept))
        limit = Limit.of_candidates(found.merit, found.valid, settings.tolerance)
        who = found.first(acceptable(found.merit, found.valid, settings.tolerance), SHRUNK)

        def drop(flat: Tensor, p: slice) -> Tensor:
            return shrink(copies.causal, copies.parts, flat, settings, limit.repeat(copies.number), who[p].flatten())

        small = self.measure(copies.each(found.kept, drop))
        kept = pick(small.kept, canonical_choice(small.kept, small.merit, who, self.parts), self.parts)
        few = self.parts.count <= MANY_ELEMENTS
        kept = exchange(self.causal, self.parts, kept, settings, limit, EXCHANGES, few)
        return shrink(self.causal, self.parts, kept, replace(settings, rounds=1), limit, few)

    def revise(self, found: Candidates, kept: Tensor, which: Tensor) -> tuple[Candidates, Tensor, Tensor]:
        """Choose anew where moves from the chosen subset lead to a better one than all before; says for which instances.

        So no climb from the explanation, such as that of a certificate, ends far above it.
        """
        which = which[self.parts.count[which] <= MANY_ELEMENTS]
        if not which.numel() or time_is_up("revision"):
            return found, kept, which[:0]
        small, members = self._select(which)
        settings = replace(self.settings, rounds=max(self.settings.rounds, RESTART_ROUNDS))
        ends = small.measure(small.climbed(kept[members].unsqueeze(0), settings))
        above = which[ends.merit[0] > found.merit.amax(0)[which]]
        if above.numel():
            found = found + self._spread(ends, which, members, found)
            again, members = self._select(above)
            kept = kept.clone()
            kept[members] = again.choose(Candidates(again.parts, found.kept[:, members], *found.at(above)))
        return found, kept, above

    def _add_valid(self, found: Candidates) -> Candidates:
        """Add a valid subset near the best one, for instances that have none within ``tolerance`` of it."""
        none = ~(found.valid & (found.merit >= found.merit.amax(0) - self.settings.tolerance)).any(0)
        none &= found.merit.amax(0) > 0  # what is worth nothing cannot be valid
        if not self.settings.tolerance or not bool(none.any()) or time_is_up("moves"):
            return found
        which = none.nonzero().flatten()
        small, members = self._select(which)
        must = torch.ones_like(which, dtype=torch.bool)
        near = climb_merit(small.causal, small.parts, found.best[members], self.settings, None, must)
        return found + self._spread(small.measure(near.unsqueeze(0)), which, members, found)

    def climbed(self, kept: Tensor, settings: BaseSettings, who: Tensor | None = None) -> Tensor:
        """What moves make of P subsets [P, n]."""
        copies = self._copies(len(kept))

        def climb(flat: Tensor, p: slice) -> Tensor:
            some = None if who is None else who[p].flatten()
            return climb_merit(copies.causal, copies.parts, flat, settings, some)

        return copies.each(kept, climb)

    def _is_stuck(self, found: Candidates) -> Tensor:
        """Whether each instance's best merit is further from 1 than the tolerance, [B]."""
        return found.merit.amax(0) < 1 - self.settings.tolerance

    @property
    def ceiling(self) -> Tensor:
        """The merit if one subset gave both the highest and, left out, the lowest probability met so far, [B].

        As complements of subsets are subsets too, hardly any subset is better once many worlds were asked.
        """
        return objective_of(self.settings).merit(*self.causal.extremes.span)

    def stuck(self, found: Candidates) -> Tensor:
        """Numbers of the instances whose best merit is further from 1 than the tolerance."""
        return self._is_stuck(found).nonzero().flatten()

    def _select(self, which: Tensor) -> tuple[SubsetSearch, Tensor]:
        """The search of some instances, and their elements, [n]."""
        causal = self.causal.select(which)
        parts = self.parts.select(which, causal.instances)
        return SubsetSearch(causal, parts, self.settings), is_in_groups(self.parts.owner, which, len(self.parts.instances))

    def _spread(self, some: Candidates, which: Tensor, members: Tensor, found: Candidates) -> Candidates:
        """Candidates of some instances as candidates of all; the others repeat one that they have."""
        number = len(some.kept)
        kept, merit, valid = (one[:1].repeat(number, 1) for one in (found.kept, found.merit, found.valid))
        kept[:, members], merit[:, which], valid[:, which] = some.kept, some.merit, some.valid
        return Candidates(self.parts, kept, merit, valid)

    def _copies(self, number: int) -> Copies:
        return Copies(self.causal, self.parts, number if self.causal.strategy.batched else 1)


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
