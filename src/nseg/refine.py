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
"""Flips of an instance that are tried in one round; a quarter of them where each world is a pass of its own."""

PAIRED = 12
"""The most promising of them, of which also every pair is tried; likewise."""

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
    value = value + settings.tolerance * settings.valid(table.same, table.without)
    size = popcount(table.code)
    good = value >= value.amax(0) - settings.tolerance
    order = torch.where(good, size.to(value.dtype) - 0.5 * (value - value.amax(0)).exp(), torch.inf)
    return table.kept(order.argmin(0))  # the smallest, and of these the best


# --- local moves -----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def climb(scm: Scm, space: Space, kept: Tensor, settings: Common, who: Tensor | None = None) -> Tensor:
    """Drop, add and exchange elements while the merit rises, one or a few at a time and then also two by two, [n].

    An instance for which no move is left leaves the batch. Of many elements only those are tried that the gradient at
    the present subset speaks for.

    Args:
        scm, space: B instances and their elements.
        kept: where to begin, [n].
        settings: what subsets are compared by.
        who: which instances to move, [B]; all if None.
    """
    kept = _in_parts(scm, space, kept, settings, lambda moves, now, _: moves.climb(now, pairs=False), who)
    return _in_parts(scm, space, kept, settings, lambda moves, now, _: moves.climb(now, pairs=True), who)


@torch.no_grad()
def shrink(scm: Scm, space: Space, kept: Tensor, settings: Common, least: Tensor) -> Tensor:
    """Drop what each subset can do without, if its merit is to stay at ``least`` [B] or more, [n]."""
    return _in_parts(scm, space, kept, settings, lambda moves, now, who: moves.shrink(now, least[who]))


def _in_parts(scm: Scm, space: Space, kept: Tensor, settings: Common, move: Move, who: Tensor | None = None) -> Tensor:
    """Repeat a kind of move while it changes anything, instances of like size together, [n]."""
    row, kept = Row(space), kept.clone()
    key = doubling(row.count) if who is None else torch.where(who, doubling(row.count), -1)
    for group, members, alone, its in row.parts(scm, key):
        if members.numel() and int(key[group[0]]) >= 0:
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

    def climb(self, kept: Tensor, pairs: bool) -> tuple[Tensor, Tensor]:
        """The best flip, the best few flips together, or the best pair of flips if asked for, if it raises the merit."""
        owner, value = self.row.owner, self.of(1, lambda _: kept.unsqueeze(0)).squeeze(0)
        single = self._singles(kept, ranks(self._gain(kept), owner))  # [n], -inf where not tried
        order = ranks(single, owner)
        useful = self._number(single > value[owner])
        after, lengths = self._together(kept, order, useful)
        best, which = after.max(0)
        flips = order < lengths.gather(0, which.unsqueeze(0)).squeeze(0)[owner]
        if pairs:
            two, paired = self._pairs(kept, order)
            flips = torch.where((paired > best)[owner], two, flips)
            best = torch.maximum(best, paired)
        take = best > value + LEAST_GAIN
        return kept ^ (flips & take[owner]), take

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
        number = min(int(self.row.count.max()), TRIED if self.scm.way.joint else TRIED // 4)
        value = self.of(number, lambda k: kept ^ (tried == k.unsqueeze(1)))
        return torch.where(tried < number, value[tried.clamp(max=number - 1), owner], -torch.inf)

    def _together(self, kept: Tensor, order: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
        """Merit after the first 1, 2, 4, ... and all of an order of flips, and how many they are, [J, B] each."""
        number = [1 << j for j in range(int(most.max()).bit_length())] or [0]
        lengths = torch.minimum(torch.tensor([*number, NEVER], device=most.device).unsqueeze(1), most)
        return self.of(len(lengths), lambda j: kept ^ (order < lengths[j][:, self.row.owner])), lengths

    def _pairs(self, kept: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """The best two flips at once (an exchange, two drops, two additions) among the first in order: flips, merit."""
        owner, number = self.row.owner, min(int(self.row.count.max()), PAIRED if self.scm.way.joint else PAIRED // 4)
        place = torch.arange(number, device=owner.device)
        pairs = (place.unsqueeze(1) < place).nonzero()  # each once
        first, second = pairs[:, 0], pairs[:, 1]
        if not first.numel():
            return torch.zeros_like(kept), self.of(1, lambda _: kept.unsqueeze(0))[0]

        def flips(a: Tensor, b: Tensor) -> Tensor:
            return (order == a) | (order == b)

        value = self.of(first.numel(), lambda k: kept ^ flips(first[k].unsqueeze(1), second[k].unsqueeze(1)))
        best, which = value.max(0)
        return flips(first[which][owner], second[which][owner]), best
