"""Local moves that improve hard explanations: drop, add and exchange elements.

Only forward passes are needed (and one gradient to propose moves), for all instances at once; every instance is
improved exactly as it would be alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.descent import REPACK_SHARE
from nseg.search.parts import MaskParts
from nseg.search.settings import BaseSettings
from nseg.search.subsets import SubsetScorer, ranks, size_bucket
from nseg.search.worlds import world_log_odds

MIN_GAIN = 2e-3
"""How much a move must add to the merit to be made."""

FLIPS_TRIED = 32
"""Single flips tried per instance and round."""

PAIRED_FLIPS = 12
"""Most promising flips, of which every pair is tried as well."""

NEVER = 1 << 40
"""A rank that is never reached."""


@torch.no_grad()
def climb_merit(
    causal: CausalModel, parts: MaskParts, kept: Tensor, settings: BaseSettings, who: Tensor | None = None
) -> Tensor:
    """Drop, add and exchange elements while the merit rises, first one or a few at a time, then also in pairs, [n].

    An instance without an improving move leaves the batch. Of many elements only those are tried that the gradient at
    the present subset proposes.

    Args:
        causal, parts: B instances and the parts of their masks.
        kept: where to begin, [n].
        settings: how subsets are compared.
        who: which instances to move, [B]; all if None.
    """
    kept = _repeat_moves(causal, parts, kept, settings, lambda moves, now, _: moves.climb(now, pairs=False), who)
    return _repeat_moves(causal, parts, kept, settings, lambda moves, now, _: moves.climb(now, pairs=True), who)


@torch.no_grad()
def shrink(causal: CausalModel, parts: MaskParts, kept: Tensor, settings: BaseSettings, least: Tensor) -> Tensor:
    """Drop elements as long as the merit stays at ``least`` [B] or above, [n]."""
    return _repeat_moves(causal, parts, kept, settings, lambda moves, now, who: moves.shrink(now, least[who]))


Move = Callable[["_Moves", Tensor, Tensor], tuple[Tensor, Tensor]]
"""From moves, a subset and the numbers of the instances to a new subset and which instances have moved."""


def _repeat_moves(
    causal: CausalModel,
    parts: MaskParts,
    kept: Tensor,
    settings: BaseSettings,
    move: Move,
    who: Tensor | None = None,
) -> Tensor:
    """Repeat a kind of move while it changes anything, instances of similar size together, [n]."""
    kept = kept.clone()
    bucket = size_bucket(parts.count)
    key = bucket if who is None else torch.where(who, bucket, -1)
    for group, members, alone, its in parts.grouped(causal, key):
        if members.numel() and int(key[group[0]]) >= 0:
            kept[members] = _rounds(_Moves(alone, its, settings), kept[members], group, move)
    return kept


def _rounds(moves: _Moves, kept: Tensor, who: Tensor, move: Move) -> Tensor:
    """Rounds of moves for the instances ``who``; those that have not moved leave the batch."""
    members = torch.arange(kept.numel(), device=kept.device)
    for _ in range(moves.settings.rounds):
        kept[members], moved = move(moves, kept[members], who)
        if not bool(moved.any()):
            break
        if int(moved.sum()) <= REPACK_SHARE * moved.numel():
            members, who = members[moved[moves.parts.owner]], who[moved]
            causal = moves.causal.select(moved.nonzero().flatten())
            moves = replace(moves, causal=causal, parts=moves.parts.on(causal.instances))
    return kept


class _Moves(SubsetScorer):
    """Moves away from a subset ``kept``, [n]. Each returns the new subset and which instances have moved, [B]."""

    def climb(self, kept: Tensor, pairs: bool) -> tuple[Tensor, Tensor]:
        """The best flip, the best few flips together, or the best pair of flips if asked for, if the merit rises."""
        owner, value = self.parts.owner, self.score(1, lambda _: kept.unsqueeze(0)).squeeze(0)
        single = self._score_flips(kept, ranks(self._proposed_gain(kept), owner))  # [n], -inf where not tried
        order = ranks(single, owner)
        useful = self._count(single > value[owner])
        after, lengths = self._score_together(kept, order, useful)
        best, which = after.max(0)
        flips = order < lengths.gather(0, which.unsqueeze(0)).squeeze(0)[owner]
        if pairs:
            two, paired = self._score_pairs(kept, order)
            flips = torch.where((paired > best)[owner], two, flips)
            best = torch.maximum(best, paired)
        take = best > value + MIN_GAIN
        return kept ^ (flips & take[owner]), take

    def shrink(self, kept: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
        """Drop as many of the least needed elements as leave the merit at ``least`` or above."""
        owner = self.parts.owner
        gain = self._proposed_gain(kept)
        single = self._score_flips(kept, ranks(torch.where(kept, gain, -torch.inf), owner), kept)
        free = single >= least[owner]
        order = torch.where(free, ranks(torch.where(free, single, -torch.inf), owner), NEVER)
        number = self._count(free)
        after, lengths = self._score_together(kept, order, number)
        length = torch.where((after >= least) & (number > 0), lengths, 0).amax(0)
        return kept ^ (order < length[owner]), length > 0

    def _count(self, chosen: Tensor) -> Tensor:
        """Number of chosen elements of each instance, [B]."""
        return torch.zeros_like(self.parts.count).index_add(0, self.parts.owner, chosen.long())

    def _limit(self, most: int) -> int:
        """Number of flips to try: never more than the largest instance has elements."""
        return min(int(self.parts.count.max()), most)

    def _proposed_gain(self, kept: Tensor) -> Tensor:
        """Gain of each flip to first order, [n]."""
        with torch.enable_grad():
            mask = kept.to(self.causal.dtype).requires_grad_()
            z = world_log_odds(self.causal, self.parts, self.parts.unflatten(mask.unsqueeze(0)))
            value = self.objective.propose(*z, self.parts.split(self.settings)).sum()
            (slope,) = torch.autograd.grad(value, mask)
        return torch.where(kept, -slope, slope)

    def _score_flips(self, kept: Tensor, rank: Tensor, among: Tensor | None = None) -> Tensor:
        """Score after each of the flips of the lowest ranks, by element, [n]; -inf for those not tried."""
        owner = self.parts.owner
        if among is not None:
            rank = torch.where(among, rank, NEVER)
        number = self._limit(FLIPS_TRIED)
        value = self.score(number, lambda k: kept ^ (rank == k.unsqueeze(1)))
        return torch.where(rank < number, value[rank.clamp(max=number - 1), owner], -torch.inf)

    def _score_together(self, kept: Tensor, order: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
        """Score after the first 1, 2, 4, ... and all of an order of flips, and how many they are, [J, B] each."""
        number = [1 << j for j in range(int(most.max()).bit_length())] or [0]
        lengths = torch.minimum(torch.tensor([*number, NEVER], device=most.device).unsqueeze(1), most)
        return self.score(len(lengths), lambda j: kept ^ (order < lengths[j][:, self.parts.owner])), lengths

    def _score_pairs(self, kept: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """The best two flips at once (an exchange, two drops, two additions) among the first in order: flips, score."""
        owner, number = self.parts.owner, self._limit(PAIRED_FLIPS)
        position = torch.arange(number, device=owner.device)
        pairs = (position.unsqueeze(1) < position).nonzero()  # each pair once
        first, second = pairs[:, 0], pairs[:, 1]
        if not first.numel():
            return torch.zeros_like(kept), self.score(1, lambda _: kept.unsqueeze(0))[0]

        def flips(a: Tensor, b: Tensor) -> Tensor:
            return (order == a) | (order == b)

        value = self.score(first.numel(), lambda k: kept ^ flips(first[k].unsqueeze(1), second[k].unsqueeze(1)))
        best, which = value.max(0)
        return flips(first[which][owner], second[which][owner]), best
