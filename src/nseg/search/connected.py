"""Explanations whose edges are connected: moves that stay within connectedness, from several seeds.

Edges may enter at the border of a subset, leave where they do not cut it in two, or do both at once. At node and link level
a subset hangs together with the explained nodes; at graph level its edges form one piece. Nodes and features of a joint
explanation are free.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.deadline import time_is_up
from nseg.search.formulas import size
from nseg.search.moves import Limit
from nseg.search.parts import EDGES, EdgePart, MaskParts, Masks
from nseg.search.prefix import best_prefix, connected_ranking
from nseg.search.settings import BaseSettings
from nseg.search.subsets import DECIMALS, NEVER, SubsetScorer, acceptable, canonical_choice, pick, ranks
from nseg.search.worlds import world_log_odds

TRIED = 24
"""Flips tried per instance and round."""

EXCHANGED = 4
"""Elements that may leave, and elements that may enter in their place; every pair is tried."""

SEEDS = 3
"""Edges from which an explanation of a graph grows, besides the strongest of each ranking."""

ROUNDS = 4
"""Rounds of moves for each round of the settings: a move changes few elements, because most would cut the subset."""

CHECKED = 64
"""Kept elements that are checked for whether the subset falls apart without them."""

MIN_GAIN = 2e-3
"""How much a move must add to the merit to be made."""


# --- connectedness -------------------------------------------------------------------------------------------------------


def is_connected(part: EdgePart, kept: Tensor) -> Tensor:
    """Whether each of K subsets of edge elements [K, n] is connected in each instance, [K, B]; an empty one is."""
    instances, (tail, head) = part.instances, part.instances.edge_index
    weight = kept[:, part.element]  # [K, E]
    touched = _touched(part, weight)
    number, device = instances.num_nodes, tail.device
    label = torch.where(touched, torch.arange(number, device=device), number)  # [K, N]
    if instances.explained_nodes is not None:
        label[:, instances.explained_nodes.flatten()] = -1
    while True:
        low = torch.where(weight, torch.minimum(label[:, tail], label[:, head]), number)
        new = label.scatter_reduce(1, tail.expand_as(low), low, "amin").scatter_reduce(1, head.expand_as(low), low, "amin")
        if torch.equal(new, label):
            break
        label = new
    least = label.new_full((len(kept), len(instances)), number)
    least = least.scatter_reduce(1, instances.node_owner.expand_as(label), label, "amin")
    loose = touched & (label != least[:, instances.node_owner])
    return size(loose.double(), instances.node_owner, len(instances)) == 0


def _touched(part: EdgePart, weight: Tensor) -> Tensor:
    """Nodes that kept edges [K, E] touch, and the explained nodes, [K, N]."""
    instances = part.instances
    found = torch.zeros(len(weight), instances.num_nodes, dtype=torch.bool, device=weight.device)
    for end in instances.edge_index:
        found = found.scatter_reduce(1, end.expand_as(weight), weight, "amax")
    if instances.explained_nodes is not None:
        found[:, instances.explained_nodes.flatten()] = True
    return found


def border(part: EdgePart, kept: Tensor) -> Tensor:
    """Edge elements outside a subset [n] that touch it; all of them if there is nothing to touch, [n]."""
    instances, (tail, head) = part.instances, part.instances.edge_index
    touched = _touched(part, kept[part.element].unsqueeze(0)).squeeze(0)
    nothing = size(touched.double(), instances.node_owner, len(instances)) == 0
    near = touched[tail] | touched[head] | nothing[instances.edge_owner]
    return torch.zeros_like(kept).scatter_reduce(0, part.element, near, "amax") & ~kept


# --- seeds ---------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def connected_subset(
    causal: CausalModel, parts: MaskParts, rankings: Masks, settings: BaseSettings, free: Tensor | None = None
) -> Tensor:
    """The smallest connected subset within ``tolerance`` of the best that is found, [n].

    Args:
        causal, parts: B instances and the parts of their masks, edges among them.
        rankings: weights of the elements, [P, ...] per part.
        settings: how subsets are compared, and the number of rounds.
        free: a good subset that need not be connected, [n]; what connects it is one of the seeds.
    """
    flat = parts.flatten(rankings)
    found = [parts.flatten(best_prefix(causal, parts, parts.unflatten(one), settings)) for one in flat]
    if settings.rounds:
        found += list(_from_edges(causal, parts, flat[0], settings))
        if free is not None:
            found.append(_joined(parts, flat[0], free))
    moves, done = _ConnectedMoves(causal, parts, settings), []
    for kept in found:
        done.append(moves.repeat(kept, ROUNDS * settings.rounds))
    candidates = torch.stack([*found, *done])
    merit, valid = moves.measure(len(candidates), lambda k: candidates[k])
    if settings.rounds:
        limit = Limit.of_candidates(merit, valid, settings.tolerance)
        good = acceptable(merit, valid, settings.tolerance)[len(found) :]
        small = torch.stack([moves.shrink(kept, limit, who) for kept, who in zip(done, good, strict=True)])
        more = moves.measure(len(small), lambda k: small[k])
        candidates, merit, valid = torch.cat([candidates, small]), torch.cat([merit, more[0]]), torch.cat([valid, more[1]])
    good = acceptable(merit, valid, settings.tolerance)
    return pick(candidates, canonical_choice(candidates, merit, good, parts), parts)


def _from_edges(causal: CausalModel, parts: MaskParts, weight: Tensor, settings: BaseSettings) -> list[Tensor]:
    """Best prefixes that grow from the second strongest edge, the third, and so on, where whole graphs are explained."""
    if parts.instances.explained_nodes is not None:
        return []
    part, found = parts.edges, []
    masks = parts.unflatten(weight)
    rank = ranks(masks[EDGES], part.owner)
    for number in range(1, SEEDS + 1):
        lifted = torch.where(rank == number, masks[EDGES].max() + 1, masks[EDGES])
        found.append(parts.flatten(best_prefix(causal, parts, Masks({**masks, EDGES: lifted}), settings)))
    return found


def _joined(parts: MaskParts, weight: Tensor, free: Tensor) -> Tensor:
    """A connected subset that holds a given one as far as that is possible, [n]."""
    part, masks, kept = parts.edges, parts.unflatten(weight), parts.unflatten(free)
    span = masks[EDGES].max() - masks[EDGES].min() + 1
    width, links = connected_ranking(part, (masks[EDGES] + span * kept[EDGES]).round(decimals=DECIMALS))
    rank = ranks(width, part.owner, links)
    last = torch.zeros(len(parts.instances), dtype=rank.dtype, device=rank.device)
    reachable = kept[EDGES] & (width > -torch.inf)
    last = last.scatter_reduce(0, part.owner, torch.where(reachable, rank + 1, 0), "amax")
    return parts.flatten(Masks({**kept, EDGES: (rank < last[part.owner]) & (width > -torch.inf)}))


# --- moves ---------------------------------------------------------------------------------------------------------------


class _ConnectedMoves(SubsetScorer):
    """Moves from a connected subset [n] to others; an instance stays where no move improves it."""

    def repeat(self, kept: Tensor, rounds: int) -> Tensor:
        """Flip and exchange elements while the merit of any instance rises and there are rounds left, [n]."""
        for _ in range(rounds):
            if time_is_up("moves"):
                break
            kept, moved = self._flip(kept)
            if not bool(moved.all()):
                kept, exchanged = self._exchange(kept, ~moved)
                moved = moved | exchanged
            if not bool(moved.any()):
                break
        return kept

    def shrink(self, kept: Tensor, limit: Limit, who: Tensor) -> Tensor:
        """Drop elements of some instances, one or several at once, as long as the merit stays within the limit, [n]."""
        owner = self.parts.owner
        for _ in range(ROUNDS * self.settings.rounds):
            if time_is_up("moves"):
                break
            _, single = self._score_single(kept, self._can_leave(kept) & who[owner], limit.must)
            free = (single >= limit.least[owner]) & (single <= limit.most[owner])
            order = torch.where(free, ranks(torch.where(free, single, -torch.inf), owner), NEVER)
            value = self._score_together(kept, order, limit.must)
            good = (value >= limit.least) & (value <= limit.most)
            drop = order < torch.where(good, self._lengths.unsqueeze(1), 0).amax(0)[owner]
            if not bool(drop.any()):
                break
            kept = kept & ~drop
        return kept

    def _flip(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The best flip, or the best few flips together, if the merit rises; and which instances have moved."""
        owner, now = self.parts.owner, self.score(1, lambda k: kept.unsqueeze(0))[0]
        _, single = self._score_single(kept, self._can_leave(kept) | self._can_enter(kept))
        order = torch.where(single > now[owner], ranks(single, owner), NEVER)
        best, which = self._score_together(kept, order).max(0)
        take = best > now + MIN_GAIN
        return kept ^ ((order < self._lengths[which][owner]) & take[owner]), take

    def _exchange(self, kept: Tensor, who: Tensor) -> tuple[Tensor, Tensor]:
        """The best exchange of a kept element for one at the border, if the merit rises; and which instances have moved."""
        owner, gain = self.parts.owner, self._gain(kept)
        leaves, enters = (self._first(some, gain, EXCHANGED) for some in (kept, self._can_enter(kept)))

        def flips(which: Tensor) -> Tensor:
            return (leaves == which // EXCHANGED) | (enters == which % EXCHANGED)

        value = self._score_connected(EXCHANGED**2, lambda k: kept ^ flips(k.unsqueeze(1)))
        best, which = value.max(0)
        take = (best > self.score(1, lambda k: kept.unsqueeze(0))[0] + MIN_GAIN) & who
        return kept ^ (flips(which[owner]) & take[owner]), take

    @cached_property
    def _lengths(self) -> Tensor:
        return torch.tensor([1, 2, 4, 8, 16], device=self.parts.owner.device)

    def _score_single(self, kept: Tensor, possible: Tensor, must: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Order in which possible flips are tried, and the score after each; -inf for those not tried, [n] each."""
        order = self._first(possible, self._gain(kept), TRIED)
        value = self._score_connected(TRIED, lambda k: kept ^ (order == k.unsqueeze(1)), must)
        single = value[order.clamp(max=TRIED - 1), self.parts.owner]
        return order, torch.where(order < TRIED, single, -torch.inf)

    def _score_together(self, kept: Tensor, order: Tensor, must: Tensor | None = None) -> Tensor:
        """Score after the first 1, 2, 4, ... of an order of flips, [J, B]."""
        return self._score_connected(len(self._lengths), lambda j: kept ^ (order < self._lengths[j].unsqueeze(1)), must)

    def _score_connected(self, number: int, subset: Callable[[Tensor], Tensor], must: Tensor | None = None) -> Tensor:
        """Scores of subsets; -inf for those that are not connected, [number, B]."""
        every = torch.arange(number, device=self.parts.owner.device)
        connected = is_connected(self.parts.edges, self.parts.unflatten(subset(every))[EDGES])
        return torch.where(connected, self.score(number, subset, must), -torch.inf)

    def _can_leave(self, kept: Tensor) -> Tensor:
        """Kept elements without which a subset is still connected, among those that are needed least, [n]."""
        order = self._first(kept, self._gain(kept), CHECKED)
        number = min(int(self.parts.count.max()), CHECKED)
        every = torch.arange(number, device=kept.device).unsqueeze(1)
        without = self.parts.unflatten(kept & (order != every))[EDGES]
        connected = is_connected(self.parts.edges, without)
        good = connected[order.clamp(max=max(number - 1, 0)), self.parts.owner] & (order < CHECKED) if number else kept
        return kept & good

    def _can_enter(self, kept: Tensor) -> Tensor:
        """Elements outside a subset that may be added: edges at its border, and all nodes and features, [n]."""
        masks = self.parts.unflatten(kept)
        found = {name: border(self.parts.edges, mask) if name == EDGES else ~mask for name, mask in masks.items()}
        return self.parts.flatten(Masks(found))

    def _first(self, among: Tensor, gain: Tensor, number: int) -> Tensor:
        """Rank of the first few of some elements by gain; never reached for all others, [n]."""
        rank = ranks(torch.where(among, gain, -torch.inf), self.parts.owner)
        return torch.where(among & (rank < number), rank, NEVER)

    def _gain(self, kept: Tensor) -> Tensor:
        """Gain of each flip to first order, [n]."""
        with torch.enable_grad():
            mask = kept.to(self.causal.dtype).requires_grad_()
            guide = self.causal.guiding(self.settings.intervention != "mask", self.parts.tied)
            z = world_log_odds(guide, self.parts, self.parts.unflatten(mask.unsqueeze(0)))
            (slope,) = torch.autograd.grad(self.objective.propose(*z, self.parts.split(self.settings)).sum(), mask)
        return torch.where(kept, -slope, slope)
