"""Subsets of the elements of each instance, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nseg.instances import pointers
from nseg.scm import Scm
from nseg.settings import Common
from nseg.space import Masks, Space, verdict

DECIMALS = 5
"""Merits are compared up to these, or a batch's rounding errors would decide between subsets that are worth the same."""

AT_ONCE = 1 << 22
"""Entries of the masks that are laid out in memory at once."""


def ranks(score: Tensor, owner: Tensor, late: Tensor | None = None) -> Tensor:
    """Rank of each element among those of its instance, 0 for the highest score.

    Ties go to what is less late, and then to the earlier element.

    >>> ranks(torch.tensor([0.1, 0.7, 0.7, 0.3]), torch.tensor([0, 0, 0, 1]))
    tensor([2, 0, 1, 0])
    """
    order = torch.arange(owner.numel(), device=owner.device) if late is None else torch.argsort(late, stable=True)
    order = order[torch.argsort(score[order], descending=True, stable=True)]
    order = order[torch.argsort(owner[order], stable=True)]
    first = pointers(owner.bincount())[owner[order]]
    return torch.empty_like(owner).scatter_(0, order, torch.arange(owner.numel(), device=owner.device) - first)


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

    @cached_property
    def count(self) -> Tensor:
        """Elements of each instance, [B]."""
        return self.owner.bincount(minlength=len(self.space.instances))

    @cached_property
    def place(self) -> Tensor:
        """Which of its instance's elements each is, [n]."""
        order = torch.argsort(self.owner, stable=True)
        place = torch.arange(order.numel(), device=order.device) - pointers(self.count)[self.owner[order]]
        return torch.empty_like(order).scatter_(0, order, place)

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

    def parts(self, scm: Scm, key: Tensor) -> Iterator[tuple[Tensor, Tensor, Scm, Row]]:
        """Groups of instances with equal key: their numbers, their elements, and both as a causal model of their own."""
        for value in torch.unique(key):
            group = (key == value).nonzero().flatten()
            if group.numel() == key.numel():
                yield group, torch.arange(self.owner.numel(), device=key.device), scm, self
            else:
                alone = scm.select(group)
                yield group, torch.isin(self.owner, group).nonzero().flatten(), alone, Row(self.space.of(alone.instances))


def doubling(count: Tensor) -> Tensor:
    """A key that sizes share if they differ at most twofold.

    >>> doubling(torch.tensor([0, 4, 5, 8, 9]))
    tensor([2, 2, 3, 3, 4])
    """
    return torch.log2(count.clamp_min(4).double()).ceil().long()


@dataclass(frozen=True)
class Merits:
    """What subsets of each instance's elements are worth.

    Args:
        scm, row: B instances and their elements.
        settings: what they are compared by.
    """

    scm: Scm
    row: Row
    settings: Common

    def of(self, number: int, subset: Callable[[Tensor], Tensor]) -> Tensor:
        """Merit of subsets 0 .. number - 1, with a premium of ``tolerance`` for those that are valid, [number, B].

        Args:
            number: how many.
            subset: makes [k, n] of k of their numbers.
        """
        space = self.row.space
        size = max(1, AT_ONCE // max(self.row.owner.numel(), 1))
        found = []
        for some in blocks(number, size, self.row.owner.device):
            masks = self.row.part(subset(some).to(self.scm.dtype))
            p, same = verdict(self.scm, space, masks, space.split(self.settings))
            found.append(self.settings.merit(*p) + self.settings.tolerance * self.settings.valid(*same))
        return torch.cat(found).round(decimals=DECIMALS)


def popcount(code: Tensor) -> Tensor:
    """How many bits of each number are set.

    >>> popcount(torch.tensor([0, 1, 6, 7]))
    tensor([0, 1, 2, 3])
    """
    bits = int(code.max()).bit_length() if code.numel() else 0
    return sum(((code >> i) & 1 for i in range(bits)), torch.zeros_like(code))


@dataclass(frozen=True)
class Table:
    """Every world of B instances that all have n elements.

    Bit i of a world's number says whether element i of the instance is kept.

    Args:
        row: the elements.
        p: probability of the class in each world, [2^n, B].
        same: share of the explained rows that have their class in each world, [2^n, B].
    """

    row: Row
    p: Tensor
    same: Tensor

    @cached_property
    def code(self) -> Tensor:
        """The numbers of the worlds, [2^n, 1]."""
        return torch.arange(len(self.p), device=self.p.device).unsqueeze(1)

    @cached_property
    def parts(self) -> tuple[Tensor, Tensor]:
        """The numbers of the worlds that keep all edges and no node, and all nodes and no edge, [B] each."""
        space = self.row.space
        edge = torch.arange(self.row.owner.numel(), device=self.p.device) < (space.edge_owner.numel() if space.edges else 0)
        return self.number(edge), self.number(~edge)

    def number(self, kept: Tensor) -> Tensor:
        """The number of the world that keeps these elements [n] of each instance, [B]."""
        return torch.zeros_like(self.row.count).index_add(0, self.row.owner, kept.long() << self.row.place)

    def kept(self, number: Tensor) -> Tensor:
        """The other way round."""
        return ((number[self.row.owner] >> self.row.place) & 1).bool()

    @property
    def without(self) -> Tensor:
        """Share of the rows that have their class where all else is kept, [2^n, B]."""
        return self.same.flip(0)

    def complement(self, split: Sequence[float]) -> Tensor:
        """Probability of the class in the literal complement of each world, which is made of other rows, [2^n, B]."""
        total = torch.zeros_like(self.p)
        for share, event in zip(split, self.row.space.events, strict=True):
            turned = sum(part for part, stays in zip(self.parts, event, strict=True) if not stays)
            total += share * self.p.gather(0, self.code ^ turned)
        return total


@torch.no_grad()
def tables(scm: Scm, space: Space, most: int) -> Iterator[tuple[Tensor, Tensor, Table]]:
    """The worlds of all instances with at most ``most`` elements: their numbers, their elements, and the table."""
    row = Row(space)
    for group, members, some, its in row.parts(scm, torch.where(row.count <= most, row.count, -1)):
        number = int(row.count[group[0]])
        if number > most:
            continue
        for block in blocks(group.numel(), max(1, AT_ONCE // ((1 << number) * max(number, 1))), row.owner.device):
            part = some if block.numel() == group.numel() else some.select(block)
            here = Row(space.of(part.instances))
            code = torch.arange(1 << number, device=row.owner.device).unsqueeze(1)
            masks = here.part(((code >> here.place) & 1).to(scm.dtype))
            p, same = part.verdict(*here.space.weights(masks))
            yield group[block], members[torch.isin(its.owner, block)], Table(here, p, same)


def blocks(number: int, size: int, device: torch.device) -> Iterator[Tensor]:
    """The numbers below ``number``, at most ``size`` at a time.

    >>> [block.tolist() for block in blocks(5, 2, torch.device("cpu"))]
    [[0, 1], [2, 3], [4]]
    """
    for first in range(0, number, size):
        yield torch.arange(first, min(first + size, number), device=device)
