r"""Worlds of a law of the complement: what chance each has where all are known, and samples where they are too many.

Worlds are other than the explanation; a user's law is taken at its word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from nseg.complement import Bernoulli, Law, instance_keys, literal, uniform
from nseg.errors import InputError
from nseg.instances import pointers
from nseg.space import Masks, Noise, Space
from nseg.subsets import Row, Table, popcount

BLOCK = 128
"""Samples that are drawn together; fixed, because the random numbers of a sample must not depend on memory."""

APART = 0x5851F42D4C957F2D
"""Changes a seed, so that worlds are not those which a search with the same seed has seen."""


# --- pure functions --------------------------------------------------------------------------------------------------------


def chances(code: Tensor, part: Tensor, kept: Tensor, q: float) -> Tensor:
    r"""Chance of each world if every element is kept with probability q, given that it is not the explanation, [K, B].

    .. math:: P(S) = \frac{q^{|S|} (1-q)^{n-|S|}}{1 - q^{|S'|} (1-q)^{n-|S'|}}, \quad S \ne S'

    Where the explanation S' is the only world that can be (no element, or q of 0 or 1), it stands for its complement.

    Args:
        code: numbers of the worlds, [K, 1], whose bits say what is kept.
        part: the elements that are drawn, as bits, [B]; of the others nothing is said.
        kept: those in the explanation, as bits, [B].
        q: probability.

    >>> chances(torch.arange(4).unsqueeze(1), torch.tensor([3, 3]), torch.tensor([0, 3]), 0.5).T
    tensor([[0.0000, 0.3333, 0.3333, 0.3333],
            [0.3333, 0.3333, 0.3333, 0.0000]], dtype=torch.float64)
    """
    number, all_of_it, same = popcount(code & part), popcount(part), code & part == kept & part
    q_ = torch.tensor(q, dtype=torch.double, device=code.device)
    chance = torch.where(same, 0, q_**number * (1 - q_) ** (all_of_it - number))
    chance = torch.where(chance.sum(0) > 0, chance, same.double())
    copies = 2.0 ** (popcount(code[-1]) - all_of_it)  # each subset of the part comes with all subsets of the rest
    return chance / chance.sum(0) * copies


def first_difference(agree: Tensor, v: Tensor) -> Tensor:
    r"""First element at which a world differs from the explanation, given that one does, [B, S].

    .. math:: P(J \le j) = \frac{1 - \prod_{i \le j} a_i}{1 - \prod_i a_i}

    Elements before it agree and later ones are free: so worlds other than the explanation are drawn without rejection.

    Args:
        agree: chance of each element to be as in the explanation, in (0, 1), [B, n]; 1 where there is none.
        v: uniform numbers, [B, S].

    >>> first_difference(torch.tensor([[0.5, 0.5, 1.0]]), torch.tensor([[0.0, 0.6, 0.7, 0.99]]))
    tensor([[0, 0, 1, 1]])
    """
    reached = -torch.expm1(agree.log().cumsum(1))
    last = reached[:, -1:]
    return torch.searchsorted(reached / torch.where(last > 0, last, 1), v, right=True)


# --- all worlds ------------------------------------------------------------------------------------------------------------


def world_chances(table: Table, kept: Tensor, q: float, split: Sequence[float]) -> Tensor:
    """Chance of each world in the complement, all sub-events together, under the Bernoulli law, [2^n, B]."""
    explained = table.number(kept)
    total = torch.zeros_like(table.p, dtype=torch.double)
    for share, event in zip(split, table.row.space.events, strict=True):
        chance = torch.ones_like(total)
        for part, stays in zip(table.parts, event, strict=True):
            chance *= table.code & part == explained & part if stays else chances(table.code, part, explained, q)
        total += share * chance
    return total


# --- samples ---------------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """Edges, or nodes, that a world keeps or not.

    Args:
        kept: which are in the explanation, [n].
        owner: instance of each, [n], sorted.
        keys: of the random numbers of the rows of the mask, [n / width].
        width: elements per row.
        stays: for each sub-event, whether they stay as explained.
        number: of the kind.
    """

    kept: Tensor
    owner: Tensor
    keys: Tensor
    width: int
    stays: tuple[bool, ...]
    number: int

    def uniform(self, samples: int, draw: tuple[int, ...]) -> Tensor:
        """Random numbers of some samples, [S, n]."""
        u = uniform(self.keys, samples * self.width, draw, torch.double)
        return u.view(len(self.keys), samples, self.width).transpose(0, 1).flatten(1)

    @property
    def place(self) -> Tensor:
        """Which of its instance's elements each is, [n]."""
        return torch.arange(len(self.owner), device=self.owner.device) - pointers(self.owner.bincount())[self.owner]


@dataclass(frozen=True)
class Sampler:
    """Samples of the worlds of a law.

    Args:
        space: B instances and their elements.
        kept: the explanations, [n].
        law: of the complement.
        seed: equal seeds give equal worlds, alone or in any company.
    """

    space: Space
    kept: Tensor
    law: Law
    seed: int

    def blocks(self, samples: int) -> Iterator[Masks]:
        """Worlds of all A sub-events, some samples at a time: [A, s, n_e] and [A, s, n_n, w]."""
        for number in range(math.ceil(samples / BLOCK)):
            some = min(BLOCK, samples - number * BLOCK)
            edge, node = (None if kind is None else self._worlds(kind, some, number) for kind in self._kinds)
            yield Masks(edge, None if node is None else node.view(*node.shape[:2], -1, self.space.node_width))

    @cached_property
    def _kinds(self) -> tuple[_Kind | None, _Kind | None]:
        space = self.space
        edges_stay, nodes_stay = zip(*space.events, strict=True)
        noise = Noise.of(space, self.seed ^ APART, torch.double)
        edge, node = Row(space).part(self.kept)
        edge_owner, node_owner, width = space.edge_owner, space.node_owner, space.node_width
        return (
            None if edge is None else _Kind(edge, edge_owner, noise.edge, 1, edges_stay, 0),
            None
            if node is None
            else _Kind(node.flatten(), node_owner.repeat_interleave(width), noise.node, width, nodes_stay, 1),
        )

    def _worlds(self, kind: _Kind, samples: int, block: int) -> Tensor:
        """A block of worlds, [A, S, n]."""
        as_explained = kind.kept.double().expand(samples, -1)
        return torch.stack(
            [
                as_explained if stays else self._drawn(kind, as_explained, (kind.number, event, block))
                for event, stays in enumerate(kind.stays)
            ]
        )

    def _drawn(self, kind: _Kind, kept: Tensor, draw: tuple[int, ...]) -> Tensor:
        """A block of worlds in one sub-event, [S, n]."""
        u = kind.uniform(len(kept), draw)
        if self.law is literal:
            return literal(kept, u)
        if not isinstance(self.law, Bernoulli):
            return self._by_the_user(kind, kept, u)
        if self.law.q in (0, 1) or not kind.kept.numel():
            return self.law(kept, u)
        v = uniform(instance_keys(self.space.instances, self.seed ^ APART), len(kept), (2, *draw), torch.double)
        return other_subsets(kind.kept, kind.owner, kind.place, self.law.q, u, v).double()

    def _by_the_user(self, kind: _Kind, kept: Tensor, u: Tensor) -> Tensor:
        """What the user's law says of each instance: alone, so that it can look at all elements without mixing instances."""
        sizes, worlds = kind.owner.bincount().tolist(), []
        for mask, numbers in zip(*(t.split_with_sizes(sizes, 1) for t in (kept, u)), strict=True):
            world = self.law(mask, numbers)
            good = isinstance(world, Tensor) and world.shape == mask.shape and bool(torch.isfinite(world.double()).all())
            if not good:
                got = tuple(world.shape) if isinstance(world, Tensor) else type(world).__name__
                raise InputError(
                    f"A law must give finite weights of the shape of its mask, {tuple(mask.shape)} (got {got}, or NaN or "
                    "infinity in it). Let it be a function of (mask, uniform numbers) that works along the last dimension."
                )
            worlds.append(world.to(kept))
        return torch.cat(worlds, 1) if worlds else kept


def other_subsets(kept: Tensor, owner: Tensor, place: Tensor, q: float, u: Tensor, v: Tensor) -> Tensor:
    """Random subsets that are not the explanation, [S, n].

    Args:
        kept, owner, place: the explanation, the instance of each element and its place there, [n] each.
        q: probability of each element to be kept, in (0, 1).
        u: uniform numbers of the elements, [S, n].
        v: uniform numbers of the instances, [B, S].
    """
    agree = v.new_ones(len(v), int(place.max()) + 1)
    agree[owner, place] = torch.where(kept, q, 1 - q).to(v.dtype)
    first = first_difference(agree, v)[owner].T  # [S, n]
    return torch.where(place < first, kept, torch.where(place == first, ~kept, u < q))
