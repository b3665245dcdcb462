"""The interface of a part of a mask, and its first implementation, the edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.graphs.batch import InstanceBatch
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
class EdgePart(Part):
    """Weights of the messages over edges.

    Args:
        undirected: whether both directions of an edge are one element; None: in whole graphs whose edges are undirected
            (:func:`nseg.graphs.bonds.has_whole_bonds`), decided for each instance.
    """

    undirected: bool | None = False
    name = EDGES
    group = 0
    width = 1

    @cached_property
    def ties(self) -> Tensor:
        """Whether both directions of an edge are one element in each instance, [B]."""
        if self.undirected is None:
            return has_whole_bonds(self.instances, lambda: self._reverse)
        return torch.full((len(self.instances),), self.undirected, device=self.instances.x.device)

    @cached_property
    def _reverse(self) -> Tensor:
        """Position of each edge's reverse, [E]."""
        return reverse_edges(self.instances.edge_index, self.instances.num_nodes, self.instances.args.get(EDGE_KIND))

    @cached_property
    def _any_ties(self) -> bool:
        return self.undirected is not False and bool(self.ties.any())

    @cached_property
    def element(self) -> Tensor:
        """Element of each edge, [E]."""
        edge_index = self.instances.edge_index
        position = torch.arange(edge_index.size(1), device=edge_index.device)
        if not self._any_ties:
            return position
        first = torch.where(self.ties[self.instances.edge_owner], torch.minimum(position, self._reverse), position)
        element: Tensor = torch.unique(first, return_inverse=True)[1]
        return element

    @cached_property
    def owner(self) -> Tensor:
        owner = self.instances.edge_owner
        number = int(self.element.max()) + 1 if self.element.numel() else 0
        return owner.new_zeros(number).scatter(0, self.element, owner)

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

    def to_weights(self, values: Tensor) -> Tensor:
        return values.index_select(-1, self.element) if self._any_ties else values

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
