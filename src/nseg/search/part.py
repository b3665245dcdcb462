"""The interface of a part of a mask, and its first implementation, the edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.graphs.batch import InstanceBatch, offsets
from nseg.graphs.bonds import has_whole_bonds
from nseg.graphs.inputs import EDGE_KIND, Role
from nseg.graphs.subgraph import reverse_edges
from nseg.search.formulas import size

EDGES, NODES, ATTRIBUTES = "edges", "nodes", "attributes"


@dataclass(frozen=True)
class Part(ABC):
    """One part of a mask.

    Values of its elements are [..., n] or [..., n, w] (:attr:`shape`); weights are what the causal model takes.

    Args:
        instances: B instances.
    """

    instances: InstanceBatch

    name: ClassVar[str]
    group: ClassVar[int]
    """0 for structure, 1 for features: sub-events of the complement keep or change whole groups (Eq. 11)."""

    @property
    @abstractmethod
    def owner(self) -> Tensor:
        """Instance of each row of the values, [n]."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Elements per row of the values."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What the elements are called, in plural."""

    @property
    @abstractmethod
    def element_of_weight(self) -> Tensor:
        """Number of the element that each weight is that of, in the shape of one world's weights."""

    @abstractmethod
    def on(self, instances: InstanceBatch) -> Part:
        """The same part of other instances."""

    def select(self, which: Tensor, instances: InstanceBatch) -> Part:
        """The same part of ``instances``, which are those of the numbers ``which``."""
        return self.on(instances)

    def repeat(self, times: int, instances: InstanceBatch) -> Part:
        """The same part of ``instances``, which are all instances ``times`` times."""
        return self.on(instances)

    @abstractmethod
    def to_weights(self, values: Tensor) -> Tensor:
        """Weights for the causal model from values of the elements."""

    @abstractmethod
    def from_weights(self, weights: Tensor) -> Tensor:
        """Values of the elements from weights: the inverse of :meth:`to_weights`."""

    @abstractmethod
    def totals(self, values: Tensor) -> Tensor:
        """Sum of each instance's values, an element counted as often as it covers something, [..., B]."""

    @abstractmethod
    def scale(self, whole_graph: bool) -> Tensor:
        """Number of mask entries that start and mean entropy are scaled by, [B]."""


@dataclass(frozen=True)
class TiedEdges:
    """Which edges of B instances are one element. Elements are numbered instance by instance.

    Args:
        ties: whether both directions of an edge are one element in each instance, [B].
        element: element of each edge, [E].
        count: number of elements of each instance, [B].
    """

    ties: Tensor
    element: Tensor
    count: Tensor

    @classmethod
    def of(cls, instances: InstanceBatch, undirected: bool | None) -> TiedEdges:
        """Those of instances, found among their edges; ``undirected`` as :class:`EdgePart` takes it."""
        edge_index, owner = instances.edge_index, instances.edge_owner
        reverse = cache(lambda: reverse_edges(edge_index, instances.num_nodes, instances.args.get(EDGE_KIND)))
        if undirected is None:
            ties = has_whole_bonds(instances, reverse)
        else:
            ties = torch.full((len(instances),), undirected, device=owner.device)
        position = torch.arange(owner.numel(), device=owner.device)
        if undirected is False or not bool(ties.any()):
            return cls(ties, position, instances.ptr[Role.EDGE].diff())
        first = torch.where(ties[owner], torch.minimum(position, reverse()), position)
        begins = first == position
        return cls(ties, (begins.cumsum(0) - 1)[first], owner[begins].bincount(minlength=len(instances)))

    @cached_property
    def any(self) -> bool:
        """Whether an element may be more than one edge."""
        return bool(self.ties.any())

    def select(self, which: Tensor, before: Tensor, instances: InstanceBatch) -> TiedEdges:
        """Those of ``instances``, which are those of the numbers ``which``.

        Args:
            which: numbers of instances.
            before: offset of each instance among the edges before the selection.
            instances: the selected instances.
        """
        ties, count, owner = self.ties[which], self.count[which], instances.edge_owner
        edge = torch.arange(owner.numel(), device=owner.device)
        if not self.any:
            return TiedEdges(ties, edge, count)
        edge += (before[which] - instances.ptr[Role.EDGE][:-1])[owner]
        shift = offsets(count)[:-1] - offsets(self.count)[which]
        return TiedEdges(ties, self.element[edge] + shift[owner], count)

    def repeat(self, times: int) -> TiedEdges:
        """Those of all instances ``times`` times."""
        shift = torch.arange(times, device=self.element.device).unsqueeze(1) * self.count.sum()
        return TiedEdges(self.ties.repeat(times), (self.element + shift).flatten(), self.count.repeat(times))


@dataclass(frozen=True)
class EdgePart(Part):
    """Weights of the messages over edges.

    Args:
        undirected: whether both directions of an edge are one element; None: in whole graphs whose edges are undirected
            (:func:`nseg.graphs.bonds.has_whole_bonds`), decided for each instance.
        known: which edges are one element, if that is known from a larger or smaller batch.
    """

    undirected: bool | None = False
    known: TiedEdges | None = None
    name = EDGES
    group = 0
    width = 1

    @cached_property
    def tied(self) -> TiedEdges:
        """Which edges are one element."""
        return TiedEdges.of(self.instances, self.undirected) if self.known is None else self.known

    @property
    def ties(self) -> Tensor:
        """Whether both directions of an edge are one element in each instance, [B]."""
        return self.tied.ties

    @property
    def element(self) -> Tensor:
        """Element of each edge, [E]."""
        return self.tied.element

    @cached_property
    def owner(self) -> Tensor:
        return torch.repeat_interleave(self.tied.count) if self.tied.any else self.instances.edge_owner

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.owner.numel(),)

    @property
    def unit(self) -> str:
        return "edges"

    @property
    def element_of_weight(self) -> Tensor:
        return self.element

    def on(self, instances: InstanceBatch) -> EdgePart:
        return EdgePart(instances, self.undirected)

    def select(self, which: Tensor, instances: InstanceBatch) -> EdgePart:
        return EdgePart(instances, self.undirected, self.tied.select(which, self.instances.ptr[Role.EDGE], instances))

    def repeat(self, times: int, instances: InstanceBatch) -> EdgePart:
        return EdgePart(instances, self.undirected, self.tied.repeat(times))

    def to_weights(self, values: Tensor) -> Tensor:
        return values.index_select(-1, self.element) if self.tied.any else values

    def from_weights(self, weights: Tensor) -> Tensor:
        values = weights.new_zeros(self.shape).scatter(0, self.element, weights)
        if not torch.equal(values[self.element], weights):
            raise InputError(
                "Both directions of an edge must be kept or left out together if undirected=True (got a hard mask that "
                "separates them). Make hard_edge_mask equal for both, or explain with undirected=False."
            )
        return values

    def totals(self, values: Tensor) -> Tensor:
        return size(self.to_weights(values), self.instances.edge_owner, len(self.instances))

    def scale(self, whole_graph: bool) -> Tensor:
        count = self.instances.total[:, 0] if whole_graph else self.instances.ptr[Role.EDGE].diff()
        return count.clamp_min(1)
