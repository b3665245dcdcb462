"""Better hard explanations: the best subset of few elements by trying all, else local moves from where the ranking led.

Only forward passes are made, for all instances at once, and every instance is refined as it would be alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nseg.scm import Scm
from nseg.search import STAY
from nseg.settings import Common
from nseg.space import Space, log_odds
from nseg.subsets import Merits, Row, Table, doubling, popcount, ranks, tables

LEAST_GAIN = 2e-3
"""How much a move must add to the merit to be made for its own sake."""

TRIED = 32
"""Flips of an instance that are tried in one round."""

SWAPPED = 4
"""Kept and other elements that are tried in exchange for each other in one round."""

NEVER = 1 << 40
"""A rank that is never reached."""


# --- all subsets -----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def best_subset(scm: Scm, space: Space, settings: Common, most: int) -> tuple[Tensor, Tensor]:
    """The smallest subset within ``tolerance`` of the best of all, where there are at most ``most`` elements.

    Returns:
        which elements are kept, [n]; and which instances were small enough, [B].
    """
    row = Row(space)
    kept = torch.zeros_like(row.owner, dtype=torch.bool)
    for _, members, table in tables(scm, space, most):
        kept[members] = _best_of_all(table, settings)
    return kept, row.count <= most


def _best_of_all(table: Table, settings: Common) -> Tensor:
    """The best subset of each instance, [n]."""
    value = settings.merit(table.p, table.complement(table.row.space.split(settings)))
    size = popcount(table.code)
    good = value >= value.amax(0) - settings.tolerance
    order = torch.where(good, size.to(value.dtype) - 0.5 * (value - value.amax(0)).exp(), torch.inf)
    return table.kept(order.argmin(0))  # the smallest, and of these the best


# --- local moves -----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def climb(scm: Scm, space: Space, kept: Tensor, settings: Common) -> Tensor:
    """Drop, add and exchange elements while the merit rises, [n].

    An instance for which no move is left leaves the batch. Of many elements only those are tried that the gradient at
    the present subset speaks for.

    Args:
        scm, space: B instances and their elements.
        kept: where to begin, [n].
        settings: what subsets are compared by.
    """
    return _in_parts(scm, space, kept, settings, lambda moves, now, _: moves.climb(now))


@torch.no_grad()
def shrink(scm: Scm, space: Space, kept: Tensor, settings: Common, least: Tensor) -> Tensor:
    """Drop what each subset can do without, if its merit is to stay at ``least`` [B] or more, [n]."""
    return _in_parts(scm, space, kept, settings, lambda moves, now, who: moves.shrink(now, least[who]))


def _in_parts(scm: Scm, space: Space, kept: Tensor, settings: Common, move: Move) -> Tensor:
    """Repeat a kind of move while it changes anything, instances of like size together, [n]."""
    row, kept = Row(space), kept.clone()
    for group, members, alone, its in row.parts(scm, doubling(row.count)):
        if members.numel():
            kept[members] = _in_rounds(_Moves(alone, its, settings), kept[members], group, move)
    return kept


def _in_rounds(moves: _Moves, kept: Tensor, who: Tensor, move: Move) -> Tensor:
    """The same for the instances ``who``; those that have not moved leave."""
    members = torch.arange(kept.numel(), device=kept.device)
    for _ in range(moves.settings.rounds):
        kept[members], moved = move(moves, kept[members], who)
        if not bool(moved.any()):
            break
        if int(moved.sum()) <= STAY * moved.numel():
            members, who = members[moved[moves.row.owner]], who[moved]
            scm = moves.scm.select(moved.nonzero().flatten())
            moves = replace(moves, scm=scm, row=Row(moves.row.space.of(scm.instances)))
    return kept


Move = Callable[["_Moves", Tensor, Tensor], tuple[Tensor, Tensor]]
"""From moves, a subset and the numbers of the instances to a new subset and who has moved."""


class _Moves(Merits):
    """Moves away from a subset ``kept``, [n]. Each gives the new subset and who has moved, [B]."""

    def climb(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The best flip, the best few flips together, or the best exchange, if it raises the merit."""
        value = self.of(1, lambda _: kept.unsqueeze(0)).squeeze(0)
        tried = ranks(self._gain(kept), self.row.owner)  # those that promise most come first
        single = self._singles(kept, tried)  # [n], -inf where not tried
        order = ranks(single, self.row.owner)
        useful = self._number(single > value[self.row.owner])
        after, lengths = self._together(kept, order, useful)
        best, which = after.max(0)
        length = torch.where(useful > 0, lengths.gather(0, which.unsqueeze(0)).squeeze(0), 0)
        flips = order < length[self.row.owner]
        swap, swapped = self._exchange(kept, single)
        other = swapped > torch.where(useful > 0, best, -torch.inf)
        best = torch.where(other, swapped, best)
        flips = torch.where(other[self.row.owner], swap, flips)
        take = (best > value + LEAST_GAIN) & (other | (useful > 0))
        return kept ^ (flips & take[self.row.owner]), take

    def shrink(self, kept: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
        """Without as many of the least needed elements as leave the merit at ``least`` or more."""
        owner = self.row.owner
        gain = self._gain(kept)
        single = self._singles(kept, ranks(torch.where(kept, gain, -torch.inf), owner), kept)
        free = single >= least[owner]
        order = torch.where(free, ranks(torch.where(free, single, -torch.inf), owner), NEVER)
        number = self._number(free)
        after, lengths = self._together(kept, order, number)
        length = torch.where((after >= least) & (number > 0), lengths, 0).amax(0)
        return kept ^ (order < length[owner]), length > 0

    def _number(self, chosen: Tensor) -> Tensor:
        """How many of each instance's elements are chosen, [B]."""
        return torch.zeros_like(self.row.count).index_add(0, self.row.owner, chosen.long())

    def _gain(self, kept: Tensor) -> Tensor:
        """What the gradient promises for each flip, [n]."""
        space = self.row.space
        with torch.enable_grad():
            mask = kept.to(self.scm.dtype).requires_grad_()
            z = log_odds(self.scm, space, self.row.part(mask.unsqueeze(0)))
            value = self.settings.surrogate_of(*z, space.split(self.settings)).sum()
            (slope,) = torch.autograd.grad(value, mask)
        return torch.where(kept, -slope, slope)

    def _singles(self, kept: Tensor, tried: Tensor, among: Tensor | None = None) -> Tensor:
        """Merit after each of the flips that are tried first, by element, [n]; -inf for the others."""
        owner = self.row.owner
        if among is not None:
            tried = torch.where(among, tried, NEVER)
        number = min(int(self.row.count.max()), TRIED)
        value = self.of(number, lambda k: kept ^ (tried == k.unsqueeze(1)))
        return torch.where(tried < number, value[tried.clamp(max=number - 1), owner], -torch.inf)

    def _together(self, kept: Tensor, order: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
        """Merit after the first 1, 2, 4, ... and all of an order of flips, and how many they are, [J, B] each."""
        number = [1 << j for j in range(int(most.max()).bit_length())] or [0]
        lengths = torch.minimum(torch.tensor([*number, NEVER], device=most.device).unsqueeze(1), most)
        return self.of(len(lengths), lambda j: kept ^ (order < lengths[j][:, self.row.owner])), lengths

    def _exchange(self, kept: Tensor, single: Tensor) -> tuple[Tensor, Tensor]:
        """The best exchange of a kept for another element, among those that single flips speak for most: flips, merit."""
        owner = self.row.owner
        out = torch.where(kept, ranks(torch.where(kept, single, -torch.inf), owner), NEVER)
        into = torch.where(kept, NEVER, ranks(torch.where(kept, -torch.inf, single), owner))
        drops, adds = (min(int(self._number(some).max()), SWAPPED) for some in (kept, ~kept))
        if not drops or not adds:
            return torch.zeros_like(kept), single.new_full((len(self.scm.instances),), -torch.inf)

        def swap(pair: Tensor) -> Tensor:
            return (out == pair // adds) | (into == pair % adds)

        best, which = self.of(drops * adds, lambda pair: kept ^ swap(pair.unsqueeze(1))).max(0)
        return swap(which[owner]), best
