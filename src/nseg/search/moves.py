"""Local moves that improve hard explanations: flips, exchanges and drops of elements.

Only forward passes are needed (and one gradient to propose moves), for all instances at once; every instance is
improved exactly as it would be alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.additive import AdditiveFlips
from nseg.search.deadline import time_is_up
from nseg.search.descent import REPACK_SHARE
from nseg.search.formulas import size
from nseg.search.parts import EDGES, MaskParts
from nseg.search.settings import BaseSettings
from nseg.search.subsets import NEVER, SubsetScorer, pick, ranks
from nseg.search.worlds import world_log_odds

MIN_GAIN = 2e-3
"""How much a move must add to the merit to be made."""

FLIPS_TRIED = 24
"""Single flips tried per instance and round, the most promising ones by the gradient."""

ALL_FLIPS = 96
"""Up to so many elements all flips are tried: that costs about as much as the gradient, and finds better ones."""

FLIPS_UNGUIDED = 64
"""The same where edges are deleted and the gradient is that of weighed messages, which may mislead."""

EXCHANGED = 5
"""Elements that may leave, and elements that may enter in their place; every pair is tried."""


@torch.no_grad()
def climb_merit(
    causal: CausalModel,
    parts: MaskParts,
    kept: Tensor,
    settings: BaseSettings,
    who: Tensor | None = None,
    must: Tensor | None = None,
) -> Tensor:
    """Drop and add elements, one or a few at a time, while the merit rises and there are rounds left, [n].

    An instance without an improving move leaves the batch. Of many elements only those are tried that the gradient at
    the present subset proposes.

    Args:
        causal, parts: B instances and the parts of their masks.
        kept: where to begin, [n].
        settings: how subsets are compared, and the number of rounds.
        who: which instances to move, [B]; all if None.
        must: instances whose subsets must be valid, [B]; none if None.
    """
    must = torch.zeros_like(parts.count, dtype=torch.bool) if must is None else must
    return _repeat_moves(
        causal, parts, kept, settings, lambda moves, now, which: moves.climb(now, must[which]), settings.rounds, who
    )


@torch.no_grad()
def exchange(
    causal: CausalModel,
    parts: MaskParts,
    kept: Tensor,
    settings: BaseSettings,
    limit: Limit,
    rounds: int,
    who: Tensor | None = None,
) -> Tensor:
    """Exchange one kept element for another while the merit rises up to the limit, so that the size stays, [n]."""
    return _repeat_moves(
        causal, parts, kept, settings, lambda moves, now, which: moves.exchange(now, limit.of(which)), rounds, who
    )


@torch.no_grad()
def shrink(
    causal: CausalModel,
    parts: MaskParts,
    kept: Tensor,
    settings: BaseSettings,
    limit: Limit,
    who: Tensor | None = None,
) -> Tensor:
    """Drop elements as long as the merit stays within the limit and there are rounds left, [n]."""
    return _repeat_moves(
        causal, parts, kept, settings, lambda moves, now, which: moves.shrink(now, limit.of(which)), settings.rounds, who
    )


@dataclass(frozen=True)
class Limit:
    """What subsets must keep to when they are made smaller, [B] each.

    Args:
        least: the lowest merit.
        most: the highest merit: that of the best subset known. No move goes beyond it, so that a search with a lower
            tolerance, which chooses the best one, never gives less.
        must: whether they must be valid.
    """

    least: Tensor
    most: Tensor
    must: Tensor

    @classmethod
    def of_candidates(cls, merit: Tensor, valid: Tensor, tolerance: float) -> Limit:
        """Within the tolerance of the best of P subsets [P, B], and valid if one of these is."""
        most = merit.amax(0)
        return cls(most - tolerance, most, (valid & (merit >= most - tolerance)).any(0))

    def of(self, which: Tensor) -> Limit:
        """That of some instances."""
        return Limit(self.least[which], self.most[which], self.must[which])

    def repeat(self, times: int) -> Limit:
        """That of all instances ``times`` times."""
        return Limit(self.least.repeat(times), self.most.repeat(times), self.must.repeat(times))


@torch.no_grad()
def exchanges(causal: CausalModel, parts: MaskParts, kept: Tensor, settings: BaseSettings, number: int = 8) -> Tensor:
    """Subsets in which one of the least needed elements is exchanged for one of the most promising others, [J, n].

    Args:
        causal, parts, kept, settings: as in :func:`climb_merit`.
        number: elements that may leave, and that may enter; there are as many subsets as pairs.
    """
    moves = _Moves(causal, parts, settings)
    gain = moves._proposed_gain(kept)
    leaves, enters = moves._order(kept, gain), moves._order(~kept, gain)
    pair = torch.arange(number**2, device=kept.device).unsqueeze(1)
    out, into = leaves == pair // number, enters == pair % number
    both = moves._count_all(out) * moves._count_all(into) > 0
    return kept ^ ((out | into) & both[:, parts.owner])


Move = Callable[["_Moves", Tensor, Tensor], tuple[Tensor, Tensor]]
"""From moves, a subset and the numbers of the instances to a new subset and which instances have moved."""


def _repeat_moves(
    causal: CausalModel,
    parts: MaskParts,
    kept: Tensor,
    settings: BaseSettings,
    move: Move,
    rounds: int,
    who: Tensor | None = None,
) -> Tensor:
    """Repeat a kind of move while it changes anything; instances that have not moved leave the batch, [n]."""
    kept = kept.clone()
    moves, numbers = _Moves(causal, parts, settings), torch.arange(len(parts.instances), device=kept.device)
    members = torch.arange(kept.numel(), device=kept.device)
    if who is not None and not bool(who.all()):
        moves, numbers, members = moves.select(who, numbers, members)
    for _ in range(rounds if members.numel() else 0):
        if time_is_up("moves"):
            break
        kept[members], moved = move(moves, kept[members], numbers)
        if not bool(moved.any()):
            break
        if int(moved.sum()) <= REPACK_SHARE * moved.numel():
            moves, numbers, members = moves.select(moved, numbers, members)
    return kept


class _Moves(SubsetScorer):
    """Moves away from a subset ``kept``, [n]. Each returns the new subset and which instances have moved, [B]."""

    def select(self, stay: Tensor, numbers: Tensor, members: Tensor) -> tuple[_Moves, Tensor, Tensor]:
        """Moves of the instances that stay, their numbers and their elements."""
        if not bool(stay.any()):
            return self, numbers[:0], members[:0]
        which = stay.nonzero().flatten()
        causal = self.causal.select(which)
        return (
            replace(self, causal=causal, parts=self.parts.select(which, causal.instances)),
            numbers[stay],
            members[stay[self.parts.owner]],
        )

    def climb(self, kept: Tensor, must: Tensor) -> tuple[Tensor, Tensor]:
        """The best flip, or the best few flips together, if the merit rises."""
        rank, owner, tried = self._number_flips(kept), self.parts.owner, torch.minimum(self.parts.count, self.flips_tried)
        number = int(tried.max())
        merit, valid, odds = self.measure_odds(number + 1, lambda k: kept ^ (rank == k.unsqueeze(1) - 1))
        merit = torch.where(valid | ~must, merit, -torch.inf)
        exists = torch.arange(number, device=owner.device).unsqueeze(1) < tried  # [number, B]
        value, single = merit[0], torch.where(exists, merit[1:], -torch.inf)
        change = torch.where(exists.unsqueeze(1), odds[1:] - odds[:1], 0)
        flips = AdditiveFlips(self.objective, self.parts.split(self.settings), odds[0], change, exists)
        together = flips.promising(single)[:, rank.clamp(max=number - 1), owner] & (rank < number)  # [J, n]
        best, which = single.max(0)
        chosen = rank == which[owner]
        if len(together):
            more, which = self.score(len(together), lambda j: kept ^ together[j], must).max(0)
            chosen = torch.where((more > best)[owner], pick(together, which, self.parts), chosen)
            best = torch.maximum(more, best)
        take = best > value + MIN_GAIN
        return kept ^ (chosen & take[owner]), take

    def exchange(self, kept: Tensor, limit: Limit) -> tuple[Tensor, Tensor]:
        """The best exchange of a kept element for another, if the merit rises."""
        owner, gain = self.parts.owner, self._proposed_gain(kept)
        leaves, enters = self._order(kept, gain), self._order(~kept, gain)
        pair = torch.arange(EXCHANGED**2, device=owner.device)

        def flips(which: Tensor) -> Tensor:
            return (leaves == which // EXCHANGED) | (enters == which % EXCHANGED)

        value = self.score(1 + len(pair), lambda k: kept ^ (flips(k.unsqueeze(1) - 1) & (k > 0).unsqueeze(1)), limit.must)
        inside = self._count(kept)
        possible = pair.unsqueeze(1) // EXCHANGED < inside
        possible &= pair.unsqueeze(1) % EXCHANGED < self.parts.count - inside
        possible &= value[1:] <= limit.most
        best, which = torch.where(possible, value[1:], -torch.inf).max(0)
        take = best > value[0] + MIN_GAIN
        return kept ^ (flips(which[owner]) & take[owner]), take

    def shrink(self, kept: Tensor, limit: Limit) -> tuple[Tensor, Tensor]:
        """Drop as many of the least needed elements as leave enough of the merit.

        Tried are single elements, or of many elements groups of equal size, and as many of those that can go together as
        can be. Of many elements also those that the gradient says are needed least, 1, 2, 4, ... at once; and where neither
        these nor groups can go, the first single elements.
        """
        owner, number = self.parts.owner, self._count(kept)
        many, rank = number > self.flips_tried, self._number(kept)  # by position, where all are tried
        guessed = torch.zeros_like(number)
        if bool(many.any()):
            rank = torch.where(many[owner], self._order(kept, self._gain_if_many(kept)), rank)
            guessed = _longest(*self._score_together(kept, rank, number * many, limit.must), limit)
        most = self.flips_tried[owner]
        group = torch.where(kept, rank * most // torch.maximum(number[owner], most), NEVER)
        dropped, moved = self._drop_groups(kept, group, limit)
        left = ~moved & (guessed == 0) & many  # else groups are single elements
        if bool(left.any()):
            some, which, members = self.select(left, *(torch.arange(len(a), device=a.device) for a in (left, owner)))
            dropped[members], moved[which] = some._drop_groups(kept[members], rank[members], limit.of(which))
        by_guess = guessed > self._count(dropped)
        drop = torch.where(by_guess[owner], rank < guessed[owner], dropped)
        return kept & ~drop, moved | by_guess

    def _drop_groups(self, kept: Tensor, group: Tensor, limit: Limit) -> tuple[Tensor, Tensor]:
        """What can be dropped of the first groups of elements, as many groups as can go together; and where any can."""
        owner = self.parts.owner
        value = self._score_drops(kept, group, limit.must)
        free = (value >= limit.least[owner]) & (value <= limit.most[owner])
        # ranks of groups: an element counts as many as are in better groups
        order = torch.where(free, ranks(torch.where(free, value, -torch.inf), owner, group), NEVER)
        first = torch.full_like(order, NEVER).scatter_reduce(0, self._group_key(group), order, "amin")
        order = torch.where(free, first[self._group_key(group)], NEVER)
        number, alone = self._count(free), self._count(order == 0)  # the best group alone is known to be free
        several = torch.where(number > alone, number, 0)
        if bool(several.any()):
            together = _longest(*self._score_together(kept, order, several, limit.must, shortest=2), limit)
            alone = torch.maximum(alone, together)
        return order < alone[owner], alone > 0

    def _group_key(self, group: Tensor) -> Tensor:
        """A number for each group of each instance, below the number of elements; any for elements of no group, [n]."""
        first = self.parts.count.cumsum(0) - self.parts.count
        return first[self.parts.owner] + torch.minimum(group, self.parts.count[self.parts.owner] - 1)

    def _number_flips(self, kept: Tensor) -> Tensor:
        """The flips that are tried, numbered by position, so that equals do not depend on the batch; others never, [n]."""
        position, most = self.parts.position, self.flips_tried[self.parts.owner]
        if self._large is None:
            return position
        tried = ranks(self._gain_if_many(kept), self.parts.owner) < most
        return self._number(tried)

    @cached_property
    def _large(self) -> tuple[_Moves, Tensor] | None:
        """Moves of the instances of which only some flips are tried, and their elements; None if there are none."""
        large, device = self.parts.count > self.flips_tried, self.parts.owner.device
        if not bool(large.any()):
            return None
        every = torch.arange(len(self.parts.owner), device=device)
        moves, _, members = (self, large, every) if bool(large.all()) else self.select(large, large, every)
        return moves, members

    def _gain_if_many(self, kept: Tensor) -> Tensor:
        """Gain of each flip to first order; 0 for instances of which all flips are tried, [n]."""
        gain = torch.zeros(kept.shape, dtype=self.causal.dtype, device=kept.device)
        if self._large is not None:
            moves, members = self._large
            gain[members] = moves._proposed_gain(kept[members])
        return gain

    @property
    def _deletes(self) -> bool:
        return self.settings.intervention != "mask" and EDGES in self.parts

    @cached_property
    def _guide(self) -> CausalModel:
        """The causal model whose gradient proposes moves."""
        return self.causal.guiding(self._deletes, self.parts.tied)

    @cached_property
    def flips_tried(self) -> Tensor:
        """Most flips, drops or groups of drops tried per round, [B]."""
        some = FLIPS_UNGUIDED if self._deletes and self._guide is self.causal else FLIPS_TRIED
        return torch.where(self.parts.count <= ALL_FLIPS, max(ALL_FLIPS, some), some)

    def _order(self, among: Tensor, gain: Tensor) -> Tensor:
        """Rank of each of some elements by gain; the others are never reached, [n]."""
        return torch.where(among, ranks(torch.where(among, gain, -torch.inf), self.parts.owner), NEVER)

    def _number(self, among: Tensor) -> Tensor:
        """Rank of each of some elements by position; the others are never reached, [n]."""
        return torch.where(among, self.parts.number(among), NEVER)

    def _count(self, chosen: Tensor) -> Tensor:
        """Number of chosen elements of each instance, [B]."""
        return self.parts.sizes(chosen.unsqueeze(0)).squeeze(0)

    def _count_all(self, chosen: Tensor) -> Tensor:
        """Number of chosen elements of each instance in each of P subsets [P, n], [P, B]."""
        return size(chosen.double(), self.parts.owner, len(self.parts.instances))

    def _proposed_gain(self, kept: Tensor) -> Tensor:
        """Gain of each flip to first order, [n]."""
        with torch.enable_grad():
            mask = kept.to(self.causal.dtype).requires_grad_()
            z = world_log_odds(self._guide, self.parts, self.parts.unflatten(mask.unsqueeze(0)))
            value = self.objective.propose(*z, self.parts.split(self.settings)).sum()
            (slope,) = torch.autograd.grad(value, mask)
        return torch.where(kept, -slope, slope)

    def _score_drops(self, kept: Tensor, rank: Tensor, must: Tensor) -> Tensor:
        """Score after dropping each of the groups of the lowest ranks, by element (-inf for those not tried), [n]."""
        tried = rank < self.flips_tried[self.parts.owner]
        number = int(torch.where(tried, rank, -1).max()) + 1
        if not number:
            return torch.full_like(rank, -torch.inf, dtype=self.causal.dtype)
        value = self.score(number, lambda k: kept & (rank != k.unsqueeze(1)), must)
        return torch.where(tried, value[rank.clamp(max=number - 1), self.parts.owner], -torch.inf)

    def _score_together(
        self, kept: Tensor, order: Tensor, most: Tensor, must: Tensor, shortest: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Score after the first 1, 2, 4, ... and all of an order of flips, and how many they are, [J, B] each."""
        number = [length for j in range(int(most.max()).bit_length()) if (length := 1 << j) >= shortest]
        lengths = torch.minimum(torch.tensor([*number, NEVER], device=most.device).unsqueeze(1), most)
        return self.score(len(lengths), lambda j: kept ^ (order < lengths[j][:, self.parts.owner]), must), lengths


def _longest(value: Tensor, lengths: Tensor, limit: Limit) -> Tensor:
    """The longest of J lengths whose value is within the limit, [B]; 0 if none is."""
    return torch.where((value >= limit.least) & (value <= limit.most), lengths, 0).amax(0)
