"""Explanations whose edges are connected: moves that stay within connectedness, from several seeds.

An edge enters with the shortest path to the subset, and leaves with what it cuts off, so that there is a move for every
element; what several moves leave is made connected by its largest piece. Nodes and features of a joint explanation are
free.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.candidates import Candidates
from nseg.search.copies import Copies
from nseg.search.deadline import time_is_up
from nseg.search.formulas import size
from nseg.search.moves import MIN_GAIN, Limit
from nseg.search.parts import EDGES, MaskParts, Masks
from nseg.search.pieces import Reach, largest_piece
from nseg.search.restarts import MANY_ELEMENTS, common_subsets, restart_subsets
from nseg.search.settings import BaseSettings
from nseg.search.subsets import NEVER, SubsetScorer, acceptable, canonical_choice, pick, ranks
from nseg.search.worlds import world_log_odds

TRIED = 64
"""Flips tried per instance and round; of more elements those that the gradient proposes."""

TOGETHER = (2, 4, 8, 16)
"""How many of the best flips are also made at once."""

EXCHANGED = 5
"""Elements that may leave, and elements that may enter in their place; every pair is tried."""

ROUNDS = 4
"""Rounds of moves for each round of the settings: a move changes few elements, because most would cut the subset."""

KICKS_AT_ONCE = 5
"""Subsets around the best one that are climbed from in one batch of restarts."""

TIMES_MET = 4
"""Climbs that must lead to the best merit known before no more are made."""

SHRUNK = 2
"""Subsets of each instance from which elements are dropped."""


@dataclass(frozen=True)
class ConnectedSearch:
    """Searches connected subsets of the elements of B instances.

    Args:
        causal, parts: the instances and the parts of their masks, edges among them.
        settings: how subsets are compared.
    """

    causal: CausalModel
    parts: MaskParts
    settings: BaseSettings

    @torch.no_grad()
    def best(self, prefixes: Tensor, free: Tensor) -> Tensor:
        """The smallest connected subset within ``tolerance`` of the best that is found, [n].

        Args:
            prefixes: connected subsets to begin with, [P, n].
            free: a good subset that need not be connected, [n].
        """
        parts, few = self.parts, self.parts.count <= MANY_ELEMENTS  # others climb only from what connects the free one
        seeds = torch.cat([_joined(parts, free).unsqueeze(0), one_piece(parts, free.unsqueeze(0)), prefixes])
        seeds = torch.cat([seeds, one_piece(parts, common_subsets(parts))])
        first = torch.arange(len(seeds), device=few.device).unsqueeze(1) == 0
        found = self._climbed(seeds, first | few)
        for batch in range(math.ceil(self.settings.kicks / KICKS_AT_ONCE)):
            met = (found.merit >= found.merit.amax(0) - MIN_GAIN).sum(0)
            left = few & (met < TIMES_MET)
            if not bool(left.any()) or time_is_up("kicks"):
                break
            around = one_piece(parts, restart_subsets(parts, found.best, KICKS_AT_ONCE, batch)[0][-KICKS_AT_ONCE:])
            around = torch.where(left[parts.owner], around, found.best)
            found = found + self._climbed(around, left.expand(len(around), -1))
        return self._chosen(self._with_valid(found))

    def _measure(self, kept: Tensor) -> Candidates:
        scorer = SubsetScorer(self.causal, self.parts, self.settings)
        return Candidates(self.parts, kept, *scorer.measure(len(kept), lambda p: kept[p]))

    def _repeated(self, kept: Tensor, move: Move, who: Tensor) -> Candidates:
        """What repeated moves make of P subsets [P, n] of those who should [P, B] move."""
        copies = Copies(self.causal, self.parts, len(kept) if self.causal.strategy.batched else 1)

        def repeat(flat: Tensor, p: slice) -> Tensor:
            return _repeat(copies.causal, copies.parts, flat, self.settings, move, who[p].flatten())

        return self._measure(copies.each(kept, repeat))

    def _climbed(self, kept: Tensor, who: Tensor, must: bool = False) -> Candidates:
        """What climbs make of P subsets; whether they must be valid."""
        return self._repeated(kept, lambda moves, now, _: moves.climb(now, must), who)

    def _with_valid(self, found: Candidates) -> Candidates:
        """Add a valid subset near the best one, for instances that have none within ``tolerance`` of it."""
        best, tolerance = found.merit.amax(0), self.settings.tolerance
        none = ~(found.valid & (found.merit >= best - tolerance)).any(0) & (best > 0)
        if not tolerance or not bool(none.any()) or time_is_up("moves"):
            return found
        return found + self._climbed(found.best.unsqueeze(0), none.unsqueeze(0), must=True)

    def _chosen(self, found: Candidates) -> Tensor:
        """The smallest subset within ``tolerance`` of the best that dropping elements of candidates leads to, [n]."""
        tolerance, number = self.settings.tolerance, len(self.parts.instances)
        limit = Limit.of_candidates(found.merit, found.valid, tolerance)
        who = found.first(acceptable(found.merit, found.valid, tolerance), SHRUNK)
        found = found + self._repeated(
            found.kept, lambda moves, now, which: moves.shrink(now, limit.of(which % number)), who
        )
        return pick(found.kept, found.choice(tolerance), self.parts)


def one_piece(parts: MaskParts, kept: Tensor) -> Tensor:
    """Subsets [P, n] of whose edges only the largest piece is kept, or what hangs on the explained nodes."""
    masks = parts.unflatten(kept)
    return parts.flatten(Masks({**masks, EDGES: largest_piece(parts.edges, masks[EDGES])}))


def _joined(parts: MaskParts, free: Tensor) -> Tensor:
    """All pieces of a subset, joined with the largest one by shortest paths, [n]."""
    kept = parts.unflatten(free)
    piece = largest_piece(parts.edges, kept[EDGES].unsqueeze(0))[0]
    return parts.flatten(Masks({**kept, EDGES: piece | Reach(parts.edges, piece).joined(kept[EDGES].unsqueeze(0))[0]}))


# --- moves ---------------------------------------------------------------------------------------------------------------

Move = Callable[["_ConnectedMoves", Tensor, Tensor], tuple[Tensor, Tensor]]
"""From moves, a subset and the numbers of the instances to a new subset and which instances have moved."""


def _repeat(causal: CausalModel, parts: MaskParts, kept: Tensor, settings: BaseSettings, move: Move, who: Tensor) -> Tensor:
    """Repeat a kind of move while it changes anything; instances that have not moved leave the batch, [n]."""
    kept, moves = kept.clone(), _ConnectedMoves(causal, parts, settings)
    numbers, members = (torch.arange(len(some), device=kept.device) for some in (who, kept))
    for _ in range(ROUNDS * settings.rounds):
        moves, numbers, members = moves.select(who, numbers, members)
        if not members.numel() or time_is_up("moves"):
            break
        kept[members], who = move(moves, kept[members], numbers)
    return kept


class _ConnectedMoves(SubsetScorer):
    """Moves from a connected subset [n] to others. Each returns the new subset and which instances have moved, [B]."""

    def select(self, stay: Tensor, numbers: Tensor, members: Tensor) -> tuple[_ConnectedMoves, Tensor, Tensor]:
        """Moves of the instances that stay, their numbers and their elements."""
        if bool(stay.all()) or not bool(stay.any()):
            return self, numbers[stay], members[stay[self.parts.owner]]
        which = stay.nonzero().flatten()
        causal = self.causal.select(which)
        some = _ConnectedMoves(causal, self.parts.select(which, causal.instances), self.settings)
        return some, numbers[stay], members[stay[self.parts.owner]]

    def climb(self, kept: Tensor, must: bool) -> tuple[Tensor, Tensor]:
        """The best flip, or the best few flips together, if the merit rises; else the best exchange, if it does."""
        after, leaves = self._flips(kept)
        value, now = self._values(after, must), self._values(kept.unsqueeze(0), must)[0]
        several = self._together(kept, after, torch.where(value > now, value, -torch.inf))
        best, which = torch.cat([value, self._values(several, must)]).max(0)
        moved = best > now + MIN_GAIN
        new = torch.where(moved[self.parts.owner], pick(torch.cat([after, several]), which, self.parts), kept)
        if not bool(moved.all()):
            every = (torch.arange(len(some), device=kept.device) for some in (moved, kept))
            stuck, numbers, members = self.select(~moved, *every)
            pairs = stuck._pairs(kept[members], after[:, members], value[:, numbers], leaves[:, numbers])
            best, which = stuck._values(pairs, must).max(0)
            take = best > now[numbers] + MIN_GAIN
            new[members] = torch.where(take[stuck.parts.owner], pick(pairs, which, stuck.parts), kept[members])
            moved[numbers] = take
        return new, moved

    def shrink(self, kept: Tensor, limit: Limit) -> tuple[Tensor, Tensor]:
        """The smallest subset that dropping one element or several leads to, if the merit stays within the limit."""
        after, leaves = self._flips(kept)
        value = torch.where(leaves, self.score(len(after), lambda k: after[k], limit.must), -torch.inf)
        several = self._together(kept, after, torch.where(_within(value, limit), value, -torch.inf))
        value = torch.cat([value, self.score(len(several), lambda k: several[k], limit.must)])
        after = torch.cat([after, several])
        good = _within(value, limit) & (self._number(after) < self._number(kept.unsqueeze(0)))
        moved = good.any(0)
        new = pick(after, canonical_choice(after, value, good, self.parts), self.parts)
        return torch.where(moved[self.parts.owner], new, kept), moved

    def _values(self, subsets: Tensor, must: bool) -> Tensor:
        """Merits of P subsets [P, n], [P, B]."""
        valid = torch.full_like(self.parts.count, must, dtype=torch.bool)
        return self.score(len(subsets), lambda p: subsets[p], valid)

    def _number(self, subsets: Tensor) -> Tensor:
        """Number of elements of P subsets [P, n], [P, B]."""
        return size(subsets.double(), self.parts.owner, len(self.parts.instances))

    def _flips(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The subsets that flips lead to, [K, n], and which of the flips drop an element, [K, B].

        An edge that enters brings the shortest path to the subset; one that leaves takes what it cuts off.
        """
        owner, count = self.parts.owner, self.parts.count
        rank, number = self.parts.position, min(int(count.max()), TRIED)
        if bool((count > TRIED).any()):
            rank = torch.where((count > TRIED)[owner], ranks(self._gain(kept), owner), rank)
        one = rank == torch.arange(number, device=rank.device).unsqueeze(1)
        flipped, before = self.parts.unflatten(kept ^ one), self.parts.unflatten(kept)[EDGES]
        edges = flipped[EDGES]
        edges = (edges & before) | Reach(self.parts.edges, before).joined(edges & ~before)
        return one_piece(self.parts, self.parts.flatten(Masks({**flipped, EDGES: edges}))), self._number(one & kept) > 0

    def _together(self, kept: Tensor, after: Tensor, value: Tensor) -> Tensor:
        """The subsets that the first 2, 4, ... of K moves to other ones [K, n] lead to, by value [K, B], [J, n]."""
        order = value.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
        order = torch.where(value > -torch.inf, order, NEVER)[:, self.parts.owner]
        most, changed = int((value > -torch.inf).sum(0).max()), after ^ kept
        flips = [(changed & (order < number)).any(0) for number in TOGETHER if number < max(2 * most, 3)]
        return one_piece(self.parts, kept ^ torch.stack(flips))

    def _pairs(self, kept: Tensor, after: Tensor, value: Tensor, leaves: Tensor) -> Tensor:
        """The subsets that one of the best moves that drop something leads to with one of the best others, [J, n]."""
        moves = []
        for some in (leaves, ~leaves & (self._number(after ^ kept) > 0)):
            changed = (after ^ kept) & some[:, self.parts.owner]
            best = torch.where(some, value, -torch.inf).argsort(dim=0, descending=True, stable=True)[:EXCHANGED]
            moves.append([pick(changed, which, self.parts) for which in best])
        return one_piece(self.parts, torch.stack([kept ^ (out | into) for out in moves[0] for into in moves[1]]))

    def _gain(self, kept: Tensor) -> Tensor:
        """Gain of each flip to first order, [n]."""
        with torch.enable_grad():
            mask = kept.to(self.causal.dtype).requires_grad_()
            guide = self.causal.guiding(self.settings.intervention != "mask", self.parts.tied)
            z = world_log_odds(guide, self.parts, self.parts.unflatten(mask.unsqueeze(0)))
            (slope,) = torch.autograd.grad(self.objective.propose(*z, self.parts.split(self.settings)).sum(), mask)
        return torch.where(kept, -slope, slope)


def _within(value: Tensor, limit: Limit) -> Tensor:
    """Whether values [P, B] are within a limit."""
    return (value >= limit.least) & (value <= limit.most)
