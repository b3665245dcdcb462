"""What is searched over: the elements of the masks, their random numbers, and the worlds that masks stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg import objective as obj
from nseg.complement import Law, element_keys, instance_keys, literal, uniform
from nseg.instances import Instances, opposite
from nseg.scm import Scm
from nseg.settings import Common


class Masks(NamedTuple):
    """Values of the edge elements, [..., n_e], and of the node elements, [..., n_n, w]; None where they are not masked."""

    edge: Tensor | None
    node: Tensor | None

    def map(self, function: Callable[[Tensor], Tensor]) -> Masks:
        """The same function of both."""
        return Masks(*(None if mask is None else function(mask) for mask in self))

    @property
    def tensors(self) -> list[Tensor]:
        """Those that are there."""
        return [mask for mask in self if mask is not None]


@dataclass(frozen=True)
class Space:
    """The elements of the masks: what is kept or left out, one by one.

    An edge element is an edge, or both directions of one (``undirected``). A node element is a node, a feature of a
    node, or a feature of all nodes of an instance.

    Args:
        instances: B instances.
        edges: whether edges are masked.
        nodes: how nodes are masked, if they are.
        undirected: whether both directions of an edge are one element.
    """

    instances: Instances
    edges: bool
    nodes: MaskType | None
    undirected: bool = False

    @cached_property
    def element_of_edge(self) -> Tensor:
        """Edge element of each edge, [E]."""
        edge_index = self.instances.edge_index
        place = torch.arange(edge_index.size(1), device=edge_index.device)
        if not self.undirected:
            return place
        partner = opposite(edge_index, self.instances.num_nodes)
        element: Tensor = torch.unique(torch.minimum(place, partner), return_inverse=True)[1]
        return element

    @cached_property
    def edge_owner(self) -> Tensor:
        """Instance of each edge element, [n_e]."""
        element, owner = self.element_of_edge, self.instances.edge_owner
        number = int(element.max()) + 1 if element.numel() else 0
        return owner.new_zeros(number).scatter(0, element, owner)

    @cached_property
    def node_owner(self) -> Tensor:
        """Instance of each row of the node mask, [n_n]."""
        if self.nodes is MaskType.common_attributes:
            return torch.arange(len(self.instances), device=self.instances.x.device)
        return self.instances.node_owner

    @property
    def node_width(self) -> int:
        """Entries per row of the node mask."""
        return 1 if self.nodes is MaskType.object else self.instances.x.size(-1)

    @property
    def events(self) -> tuple[tuple[bool, bool], ...]:
        """Sub-events of the complement as (edges kept, nodes kept): 00, 01, 10 if both are masked (Eq. 11)."""
        return ((False, False), (False, True), (True, False)) if self.edges and self.nodes else ((False, False),)

    def split(self, settings: Common) -> tuple[float, ...]:
        """Probability of each of the events."""
        return settings.split if len(self.events) == 3 else (1.0,)

    def of(self, instances: Instances) -> Space:
        """The same elements of other instances."""
        return replace(self, instances=instances)

    @property
    def owners(self) -> Masks:
        """Instance of each element, [n_e] and [n_n]."""
        return Masks(self.edge_owner if self.edges else None, self.node_owner if self.nodes else None)

    def weights(self, masks: Masks) -> Masks:
        """Weights of edges [..., E] and nodes [..., N, w] from the values of their elements."""
        edge, node = masks
        if edge is not None and self.undirected:
            edge = edge[..., self.element_of_edge]
        if node is not None and self.nodes is MaskType.common_attributes:
            node = node[..., self.instances.node_owner, :]
        return Masks(edge, node)

    def sums(self, masks: Masks) -> Masks:
        """Sum of each instance's values over edges and over node elements, each [..., B]."""
        number = len(self.instances)
        edge, node = masks
        if edge is not None:
            edge = obj.size(self.weights(Masks(edge, None)).tensors[0], self.instances.edge_owner, number)
        if node is not None:
            node = obj.size(node.sum(-1), self.node_owner, number)
        return Masks(edge, node)

    def size(self, masks: Masks) -> Tensor:
        """Sum of each instance's masks, edges and nodes together, [..., B]."""
        total = self.sums(masks).tensors
        return total[0] if len(total) == 1 else total[0] + total[1]


@dataclass(frozen=True)
class Noise:
    """The random numbers of a search: pure functions of seed, instance, element and draw."""

    edge: Tensor
    node: Tensor
    width: int
    dtype: torch.dtype

    @classmethod
    def of(cls, space: Space, seed: int, dtype: torch.dtype) -> Noise:
        """The random numbers of a space's elements."""
        keys = instance_keys(space.instances, seed)
        none = keys[:0]
        return cls(
            element_keys(keys, space.edge_owner) if space.edges else none,
            element_keys(keys ^ 0x5DEECE66D, space.node_owner) if space.nodes else none,
            space.node_width if space.nodes else 1,
            dtype,
        )

    def for_edges(self, *draw: int) -> Tensor:
        """Uniform numbers of one draw, [n_e]."""
        return uniform(self.edge, 1, (0, *draw), self.dtype).squeeze(1)

    def for_nodes(self, *draw: int) -> Tensor:
        """Uniform numbers of one draw, [n_n, w]."""
        return uniform(self.node, self.width, (1, *draw), self.dtype)


@dataclass(frozen=True)
class Draw:
    """How complement worlds are drawn.

    Args:
        law: turns a mask and uniform numbers into the mask of a world without the explanation.
        samples: worlds per sub-event.
        noise: source of the uniform numbers; None where the law needs none.
        step: which draw this is.
    """

    law: Law = literal
    samples: int = 1
    noise: Noise | None = None
    step: int = 0


LITERAL = Draw()
"""The complement 1 - M, which all reported numbers are measured in."""


def worlds(space: Space, masks: Masks, draw: Draw = LITERAL) -> Masks:
    """The factual world of each of P masks and its complement worlds, event by event, sample by sample.

    Args:
        space: what the elements are.
        masks: values of the elements, [P, n_e] and [P, n_n, w].
        draw: how complements are drawn.

    Returns:
        weights of edges [P * (1 + A * S), E] and of nodes [P * (1 + A * S), N, w].
    """

    def stack(mask: Tensor | None, kind: int, numbers: Callable[..., Tensor] | None) -> Tensor | None:
        if mask is None:
            return None
        rows = [mask]
        for number, event in enumerate(space.events):
            for sample in range(draw.samples):
                u = mask[0] if numbers is None else numbers(draw.step, number, sample)
                rows.append(mask if event[kind] else draw.law(mask, u))
        return torch.stack(rows, 1).flatten(0, 1)

    noise = draw.noise
    drawn = (None, None) if noise is None else (noise.for_edges, noise.for_nodes)
    return space.weights(Masks(stack(masks.edge, 0, drawn[0]), stack(masks.node, 1, drawn[1])))


def log_odds(scm: Scm, space: Space, masks: Masks, draw: Draw = LITERAL) -> tuple[Tensor, Tensor]:
    """Log-odds of the class in the factual world [P, B] and in each complement world [P, A, S, B] of P masks."""
    return _apart(scm.log_odds(*worlds(space, masks, draw)), space, draw)


@torch.no_grad()
def evaluate(scm: Scm, space: Space, masks: Masks, split: tuple[float, ...], draw: Draw = LITERAL) -> tuple[Tensor, Tensor]:
    """Probability of the class in the factual world and in the complement of each of P masks, each [P, B]."""
    factual, complement = _apart(scm.do(*worlds(space, masks, draw)), space, draw)
    return factual, obj.mix(complement, split)


@torch.no_grad()
def verdict(
    scm: Scm, space: Space, masks: Masks, split: tuple[float, ...]
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """What :func:`evaluate` gives, and the share of rows that have their class with the explanation and without it."""
    p, same = scm.verdict(*worlds(space, masks))
    factual, complement = _apart(p, space, LITERAL)
    still, gone = _apart(same, space, LITERAL)
    return (factual, obj.mix(complement, split)), (still, gone[:, 0, 0])


def _apart(found: Tensor, space: Space, draw: Draw) -> tuple[Tensor, Tensor]:
    events, instances = len(space.events), found.size(1)
    found = found.view(-1, 1 + events * draw.samples, instances)
    return found[:, 0], found[:, 1:].reshape(-1, events, draw.samples, instances)
