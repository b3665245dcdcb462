"""Local moves that improve hard explanations: flips, exchanges and drops of elements.

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
from nseg.search.parts import EDGES, MaskParts
from nseg.search.settings import BaseSettings
from nseg.search.subsets import SubsetScorer, ranks
from nseg.search.worlds import world_log_odds

MIN_GAIN = 2e-3
"""How much a move must add to the merit to be made."""

FLIPS_TRIED = 24
"""Single flips tried per instance and round."""

EXCHANGED = 5
"""Elements that may leave, and elements that may enter in their place; every pair is tried."""

NEVER = 1 << 40
"""A rank that is never reached."""


@torch.no_grad()
def climb_merit(
    causal: CausalModel, parts: MaskParts, kept: Tensor, settings: BaseSettings, who: Tensor | None = None
) -> Tensor:
    """Drop and add elements, one or a few at a time, while the merit rises and there are rounds left, [n].

    An instance without an improving move leaves the batch. Of many elements only those are tried that the gradient at
    the present subset proposes.

    Args:
        causal, parts: B instances and the parts of their masks.
        kept: where to begin, [n].
        settings: how subsets are compared, and the number of rounds.
        who: which instances to move, [B]; all if None.
    """
    return _repeat_moves(causal, parts, kept, settings, lambda moves, now, _: moves.climb(now), settings.rounds, who)


@torch.no_grad()
def exchange(
    causal: CausalModel, parts: MaskParts, kept: Tensor, settings: BaseSettings, rounds: int, who: Tensor | None = None
) -> Tensor:
    """Exchange one kept element for another while the merit rises, so that the size stays, [n]."""
    return _repeat_moves(causal, parts, kept, settings, lambda moves, now, _: moves.exchange(now), rounds, who)


@torch.no_grad()
def shrink(
    causal: CausalModel,
    parts: MaskParts,
    kept: Tensor,
    settings: BaseSettings,
    least: Tensor,
    who: Tensor | None = None,
) -> Tensor:
    """Drop elements as long as the merit stays at ``least`` [B] or above and there are rounds left, [n]."""
    move: Move = lambda moves, now, which: moves.shrink(now, least[which])  # noqa: E731
    return _repeat_moves(causal, parts, kept, settings, move, settings.rounds, who)


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
        causal = self.causal.select(stay.nonzero().flatten())
        return (
            replace(self, causal=causal, parts=self.parts.on(causal.instances)),
            numbers[stay],
            members[stay[self.parts.owner]],
        )

    def climb(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The best flip, or the best few flips together, if the merit rises."""
        owner = self.parts.owner
        single, value = self._score_flips(kept, ranks(self._proposed_gain(kept), owner))  # -inf where not tried
        order, useful = ranks(single, owner), self._count(single > value[owner])
        after, lengths = self._score_together(kept, order, useful)
        best, which = after.max(0)
        take = best > value + MIN_GAIN
        flips = order < lengths.gather(0, which.unsqueeze(0)).squeeze(0)[owner]
        return kept ^ (flips & take[owner]), take

    def exchange(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The best exchange of a kept element for another, if the merit rises."""
        owner, gain = self.parts.owner, self._proposed_gain(kept)
        leaves, enters = self._order(kept, gain), self._order(~kept, gain)
        pair = torch.arange(EXCHANGED**2, device=owner.device)

        def flips(which: Tensor) -> Tensor:
            return (leaves == which // EXCHANGED) | (enters == which % EXCHANGED)

        value = self.score(1 + len(pair), lambda k: kept ^ (flips(k.unsqueeze(1) - 1) & (k > 0).unsqueeze(1)))
        inside = self._count(kept)
        possible = pair.unsqueeze(1) // EXCHANGED < inside
        possible &= pair.unsqueeze(1) % EXCHANGED < self.parts.count - inside
        best, which = torch.where(possible, value[1:], -torch.inf).max(0)
        take = best > value[0] + MIN_GAIN
        return kept ^ (flips(which[owner]) & take[owner]), take

    def shrink(self, kept: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
        """Drop as many of the least needed elements as leave the merit at ``least`` or above."""
        owner = self.parts.owner
        rank = self._order(kept, self._proposed_gain(kept))
        guessed, guesses = self._score_together(kept, rank, self._count(kept))
        single, _ = self._score_flips(kept, rank)
        free = single >= least[owner]
        order = torch.where(free, ranks(torch.where(free, single, -torch.inf), owner), NEVER)
        known, lengths = self._score_together(kept, order, self._count(free))
        by_guess = torch.where(guessed >= least, guesses, 0).amax(0)
        length = torch.where(known >= least, lengths, 0).amax(0)
        drop = torch.where((by_guess > length)[owner], rank < by_guess[owner], order < length[owner])
        moved = torch.maximum(by_guess, length) > 0
        return kept & ~(drop & moved[owner]), moved

    def _order(self, among: Tensor, gain: Tensor) -> Tensor:
        """Rank of each of some elements by gain; the others are never reached, [n]."""
        return torch.where(among, ranks(torch.where(among, gain, -torch.inf), self.parts.owner), NEVER)

    def _count(self, chosen: Tensor) -> Tensor:
        """Number of chosen elements of each instance, [B]."""
        return torch.zeros_like(self.parts.count).index_add(0, self.parts.owner, chosen.long())

    def _proposed_gain(self, kept: Tensor) -> Tensor:
        """Gain of each flip to first order, [n]."""
        with torch.enable_grad():
            mask = kept.to(self.causal.dtype).requires_grad_()
            guide = self.causal.guiding(self.settings.intervention != "mask" and EDGES in self.parts, self.parts.tied)
            z = world_log_odds(guide, self.parts, self.parts.unflatten(mask.unsqueeze(0)))
            value = self.objective.propose(*z, self.parts.split(self.settings)).sum()
            (slope,) = torch.autograd.grad(value, mask)
        return torch.where(kept, -slope, slope)

    def _score_flips(self, kept: Tensor, rank: Tensor) -> tuple[Tensor, Tensor]:
        """Score after each of the flips of the lowest ranks, by element [n] (-inf for those not tried), and of ``kept``."""
        number = min(int(self._count(rank < NEVER).max()), FLIPS_TRIED)
        value = self.score(number + 1, lambda k: kept ^ (rank == k.unsqueeze(1) - 1))
        single = value[1:][rank.clamp(max=number - 1), self.parts.owner] if number else value[0][self.parts.owner]
        return torch.where(rank < number, single, -torch.inf), value[0]

    def _score_together(self, kept: Tensor, order: Tensor, most: Tensor) -> tuple[Tensor, Tensor]:
        """Score after the first 1, 2, 4, ... and all of an order of flips, and how many they are, [J, B] each."""
        number = [1 << j for j in range(int(most.max()).bit_length())]
        lengths = torch.minimum(torch.tensor([*number, NEVER], device=most.device).unsqueeze(1), most)
        return self.score(len(lengths), lambda j: kept ^ (order < lengths[j][:, self.parts.owner])), lengths
