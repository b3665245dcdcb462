"""From soft masks to hard ones: threshold, top-k, and the smallest prefix of the ranking with the best bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nseg.instances import pointers
from nseg.scm import Scm
from nseg.search import Solution
from nseg.settings import Common
from nseg.space import Masks, Space, evaluate

FINE = 32  # every prefix up to this length is looked at, and this many longer ones; the winner's surroundings then again


def above(mask: Tensor, threshold: float) -> Tensor:
    """Elements whose weight exceeds the threshold.

    >>> above(torch.tensor([0.2, 0.5, 0.9]), 0.5)
    tensor([False, False,  True])
    """
    return mask > threshold


def ranks(score: Tensor, owner: Tensor) -> Tensor:
    """Rank of each element among those of its instance, 0 for the highest score; ties go to the earlier element.

    >>> ranks(torch.tensor([0.1, 0.7, 0.7, 0.3]), torch.tensor([0, 0, 0, 1]))
    tensor([2, 0, 1, 0])
    """
    by_score = torch.argsort(score, descending=True, stable=True)
    order = by_score[torch.argsort(owner[by_score], stable=True)]
    first = pointers(owner.bincount())[owner[order]]
    return torch.empty_like(owner).scatter_(0, order, torch.arange(owner.numel(), device=owner.device) - first)


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
        return best_prefix(scm, space, solution.soft, settings), sure
    if settings.extract == "threshold":
        return solution.soft.map(lambda mask: above(mask, settings.threshold)), sure
    owners = iter(space.owners.tensors)

    def top(mask: Tensor) -> Tensor:
        owner = next(owners)
        width = mask[0].numel() if mask.dim() > 1 and len(mask) else 1
        return top_k(mask.flatten(), owner.repeat_interleave(width), settings.k or 0).view_as(mask)

    return solution.soft.map(top), sure


@dataclass(frozen=True)
class Row:
    """All elements of a space in one row, edges before nodes.

    Args:
        space: what the elements are.
    """

    space: Space

    @cached_property
    def owner(self) -> Tensor:
        """Instance of each element, [n]."""
        edge, node = self.space.owners
        parts = [] if edge is None else [edge]
        return torch.cat(parts + ([] if node is None else [node.repeat_interleave(self.space.node_width)]))

    def join(self, masks: Masks) -> Tensor:
        """Masks [..., n_e] and [..., n_n, w] as [..., n]."""
        edge, node = masks
        return torch.cat([m for m in (edge, None if node is None else node.flatten(-2)) if m is not None], -1)

    def part(self, row: Tensor) -> Masks:
        """The other way round."""
        space = self.space
        edges = space.edge_owner.numel() if space.edges else 0
        node = row[..., edges:].reshape(*row.shape[:-1], -1, space.node_width) if space.nodes else None
        return Masks(row[..., :edges] if space.edges else None, node)


@torch.no_grad()
def best_prefix(scm: Scm, space: Space, soft: Masks, settings: Common) -> Masks:
    """The smallest prefix of each instance's ranking whose merit is within ``tolerance`` of the best prefix.

    Edges and nodes are ranked together by their weight. Up to 64 elements every prefix is evaluated; of a longer ranking
    the first 32 and 32 more, and then those between the winner and the next shorter one that was evaluated.
    """
    row = Row(space)
    owner, number = row.owner, len(scm.instances)
    rank = ranks(row.join(soft), owner)
    elements = owner.bincount(minlength=number)
    length = torch.zeros(number, dtype=torch.long, device=owner.device)
    for group in _like_sizes(elements):
        mine = torch.isin(owner, group)  # in the order in which the group's own space numbers its elements
        alone = scm if len(group) == number else scm.select(group)
        prefixes = _Prefixes(
            alone, Row(space.of(alone.instances)), rank[mine], torch.searchsorted(group, owner[mine]), settings
        )
        length[group] = prefixes.best(elements[group])
    return row.part(rank < length[owner])


def _like_sizes(elements: Tensor) -> list[Tensor]:
    """Instances grouped so that sizes differ at most twofold within a group."""
    power = torch.log2(elements.clamp_min(4).double()).ceil().long()
    return [(power == p).nonzero().flatten() for p in torch.unique(power)]


@dataclass(frozen=True)
class _Prefixes:
    """The prefixes of each instance's ranking.

    Args:
        scm, row: B instances and their elements.
        rank: rank of each element within its instance, edges before nodes.
        owner: its instance.
        settings: what is climbed, and how much of it may be given up.
    """

    scm: Scm
    row: Row
    rank: Tensor
    owner: Tensor
    settings: Common

    def best(self, elements: Tensor) -> Tensor:
        """Length of the chosen prefix of each instance, [B]."""
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
        kept = (self.rank < lengths[:, self.owner]).to(self.scm.dtype)  # [T, n]
        space = self.row.space
        return self.settings.merit(*evaluate(self.scm, space, self.row.part(kept), space.split(self.settings)))


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
