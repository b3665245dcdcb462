"""From soft masks to hard ones: threshold, top-k, and the smallest prefix of the ranking with the best bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nseg import objective as obj
from nseg.refine import best_subset, climb, shrink
from nseg.scm import Scm
from nseg.search import Solution
from nseg.settings import Common
from nseg.space import Masks, Space
from nseg.subsets import DECIMALS, Merits, Row, doubling, ranks

FINE = 32  # every prefix up to this length is looked at, and this many longer ones; the winner's surroundings then again


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


def harden(scm: Scm, space: Space, solution: Solution, settings: Common) -> tuple[Masks, Tensor]:
    """Hard masks of the elements, as the settings ask, and whether each instance's is the best there is, [B]."""
    sure = torch.zeros(len(scm.instances), dtype=torch.bool, device=scm.instances.x.device)
    if solution.hard is not None:
        return solution.hard, sure if solution.exact is None else solution.exact
    if settings.extract == "prefix":
        rankings = solution.soft.map(lambda mask: mask.unsqueeze(0)) if solution.rankings is None else solution.rankings
        kept = _from_rankings(scm, space, rankings, settings)
        if settings.exact and not settings.connected:
            best, sure = best_subset(scm, space, settings, settings.exact)
            kept = torch.where(sure[Row(space).owner], best, kept)
        return Row(space).part(kept), sure
    if settings.extract == "threshold":
        return solution.soft.map(lambda mask: above(mask, settings.threshold)), sure
    owners = iter(space.owners.tensors)

    def top(mask: Tensor) -> Tensor:
        owner = next(owners)
        width = mask[0].numel() if mask.dim() > 1 and len(mask) else 1
        return top_k(mask.flatten(), owner.repeat_interleave(width), settings.k or 0).view_as(mask)

    return solution.soft.map(top), sure


def _from_rankings(scm: Scm, space: Space, rankings: Masks, settings: Common) -> Tensor:
    """The smallest of what P rankings lead to, if it is within ``tolerance`` of the best, [n]."""
    row, number = Row(space), len(rankings.tensors[0])
    copies = _Copies(scm, row, number if scm.way.joint else 1)
    several, its = copies.scm, copies.row
    kept = copies.each(row.join(rankings), lambda one, _: its.join(best_prefix(several, its.space, its.part(one), settings)))
    merits, moves = Merits(scm, row, settings), settings.rounds and not settings.connected
    if moves:
        best = merits.of(number, lambda p: kept[p]).argmax(0)
        who = (row.count <= MANY) | (best == torch.arange(number, device=best.device).unsqueeze(1))  # [P, B]
        kept = copies.each(kept, lambda one, p: climb(several, its.space, one, settings, who[p].flatten()))
    value = merits.of(number, lambda p: kept[p])
    least = value.amax(0) - settings.tolerance
    if moves:
        kept = copies.each(kept, lambda one, p: shrink(several, its.space, one, settings, least.repeat(copies.number)))
        value = merits.of(number, lambda p: kept[p])
    return _smallest(kept, value >= least, row, len(scm.instances))


class _Copies:
    """Every instance several times in one batch, so that as many subsets of it are improved at once.

    Args:
        scm, row: B instances and their elements.
        number: how many of each.
    """

    def __init__(self, scm: Scm, row: Row, number: int) -> None:
        self.number, self.single, self.scm = number, row, scm.repeated(number)
        self.row = Row(row.space.of(self.scm.instances))

    def each(self, rows: Tensor, treat: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Rows of values [P, n] after a treatment of as many at once as there are copies, [P, n]."""
        found = []
        for first in range(0, len(rows), self.number):
            some = slice(first, first + self.number)
            before = self.single.part(rows[some]).map(lambda mask: mask.flatten(0, 1))
            after = self.row.part(treat(self.row.join(before), some))
            found.append(self.single.join(after.map(lambda mask: mask.view(self.number, -1, *mask.shape[1:]))))
        return torch.cat(found)


@torch.no_grad()
def towards(scm: Scm, space: Space, soft: Masks, hard: Masks, settings: Common) -> Masks:
    """Soft masks, moved towards the hard ones only as far as needed for being no worse than they are.

    Of the masks on the line between both, the first within ``tolerance`` of the best is taken.
    """
    row = Row(space)
    from_, to = row.join(soft), row.join(hard).to(scm.dtype)
    part = torch.tensor(PARTS, dtype=to.dtype, device=to.device).unsqueeze(1)
    line = from_ + part * (to - from_)  # [T, n]
    value = Merits(scm, row, settings).of(len(line), lambda t: line[t])
    first = (value >= value.amax(0) - settings.tolerance).long().argmax(0)
    return row.part(line.gather(0, first[row.owner].unsqueeze(0)).squeeze(0))


MANY = 128
"""Of instances with more elements only the best ranking's prefix is improved by moves, not every start's."""

PARTS = (0.0, 0.25, 0.5, 0.75, 0.9)
"""How far soft masks may go towards hard ones; never all the way, so that they still rank what is kept."""


def _smallest(kept: Tensor, good: Tensor, row: Row, number: int) -> Tensor:
    """Of P subsets [P, n] the smallest that is good [P, B], [n]."""
    size = obj.size(kept.double(), row.owner, number)
    which = torch.where(good, size, torch.inf).argmin(0)
    return kept.gather(0, which[row.owner].unsqueeze(0)).squeeze(0)


@torch.no_grad()
def best_prefix(scm: Scm, space: Space, soft: Masks, settings: Common) -> Masks:
    """The smallest prefix of each instance's ranking whose merit is within ``tolerance`` of the best prefix.

    Edges and nodes are ranked together by their weight; if explanations are to be connected, edges by the weight of their
    weakest link to where they grow from (:func:`attached`). Up to 64 elements every prefix is evaluated; of a longer ranking
    the first 32 and 32 more, and then those between the winner and the next shorter one that was evaluated.
    """
    row = Row(space)
    score, late = soft.map(lambda mask: mask.round(decimals=DECIMALS)), torch.zeros_like(row.owner)
    if settings.connected and score.edge is not None:
        edge, when = attached(space, score.edge)
        score, late = Masks(edge, score.node), torch.cat([when, late[when.numel() :]])
    rank, length = ranks(row.join(score), row.owner, late), torch.zeros_like(row.count)
    for group, members, alone, its in row.parts(scm, doubling(row.count)):
        length[group] = _Prefixes(alone, its, settings, rank[members]).best()
    return row.part((rank < length[row.owner]) & (row.join(score) > -torch.inf))  # what cannot be attached stays out


def attached(space: Space, score: Tensor) -> tuple[Tensor, Tensor]:
    """The weakest link between each edge element and where explanations grow from, by the best way there, [n_e].

    They grow from the explained nodes; at graph level from the strongest edge. Also how many links the way has: in the
    order of both, each edge touches one before it or the origin, so that every prefix is connected.
    """
    instances = space.instances
    weight, (tail, head) = score[space.element_of_edge], instances.edge_index
    explained, owner = instances.explained_nodes, instances.edge_owner
    width = score.new_full((instances.num_nodes,), -torch.inf)
    if explained is None:
        best = top_k(weight, owner, 1)
        width[tail[best]] = torch.inf
    else:
        width[explained.flatten()] = torch.inf
    links = torch.where(width > 0, 0, instances.num_nodes)
    for step in range(1, instances.num_nodes + 1):  # as long as some way gets wider
        reach = torch.minimum(torch.maximum(width[tail], width[head]), weight)
        wider = width.scatter_reduce(0, tail, reach, "amax").scatter_reduce(0, head, reach, "amax")
        changed = wider > width
        if not bool(changed.any()):
            break
        width, links = wider, torch.where(changed, step, links)
    reach = torch.minimum(torch.maximum(width[tail], width[head]), weight)
    near = torch.where(width[tail] >= reach, links[tail], instances.num_nodes)
    near = torch.minimum(near, torch.where(width[head] >= reach, links[head], instances.num_nodes))
    element, number = space.element_of_edge, score.numel()
    lowest = score.new_full((number,), torch.inf).scatter_reduce(0, element, reach, "amin")
    return lowest, near.new_zeros(number).scatter_reduce(0, element, near, "amax")


@dataclass(frozen=True)
class _Prefixes(Merits):
    """The prefixes of each instance's ranking.

    Args:
        scm, row, settings: as in :class:`Merits`.
        rank: rank of each element within its instance, [n].
    """

    rank: Tensor

    def best(self) -> Tensor:
        """Length of the chosen prefix of each instance, [B]."""
        elements = self.row.count
        lengths = _grid(torch.zeros_like(elements), elements)  # [T, B]
        value = self._value(lengths)
        best, below = value.amax(0), torch.full_like(elements, -1)  # nothing of length ``below`` or less will do
        while True:
            chosen = (value >= best - self.settings.tolerance).long().argmax(0, keepdim=True)
            upper = lengths.gather(0, chosen).squeeze(0)
            below = torch.maximum(below, torch.where(lengths < upper, lengths, -1).amax(0))
            if bool((upper - below <= 1).all()):
                return upper
            lengths = _grid(below + 1, upper)
            value = self._value(lengths)
            best = torch.maximum(best, value.amax(0))

    def _value(self, lengths: Tensor) -> Tensor:
        """The objective of the prefixes of the given lengths, [T, B]."""
        return self.of(len(lengths), lambda t: self.rank < lengths[t][:, self.row.owner])


def _grid(lower: Tensor, upper: Tensor) -> Tensor:
    """Lengths from ``lower`` to ``upper``: the first 33 one by one, then 32 evenly spaced, [T, B].

    >>> _grid(torch.tensor([0, 0]), torch.tensor([3, 128]))[[0, 1, 2, 3, 32, 33, 64]]
    tensor([[  0,   0],
            [  1,   1],
            [  2,   2],
            [  3,   3],
            [  3,  32],
            [  3,  35],
            [  3, 128]])
    """
    span = upper - lower
    step = torch.arange(min(int(span.max()), 2 * FINE) + 1, device=lower.device).unsqueeze(1)
    beyond = FINE + ((step - FINE) * (span - FINE)) // FINE
    return lower + torch.where((step <= FINE) | (span <= 2 * FINE), torch.minimum(step, span), beyond)
