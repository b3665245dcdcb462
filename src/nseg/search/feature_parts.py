"""Parts of a mask that cover columns: features of nodes, attributes of edges."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.graphs.baseline import attribute_columns
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import EDGE_TYPE, EDGE_TYPES, MASKED_ATTRIBUTES, Role
from nseg.search.formulas import size
from nseg.search.part import ATTRIBUTES, NODES, Part


@dataclass(frozen=True)
class FeaturePart(Part):
    """Factors of what is known of nodes or edges, column by column.

    Args:
        kind: one element per node or edge (``object``), per column of one (``attributes``), or per column of all of them
            (of one type) in an instance (``common_attributes``).
    """

    kind: MaskType = MaskType.object

    @property
    @abstractmethod
    def row_owner(self) -> Tensor:
        """Instance of each node or edge, [n]."""

    @property
    @abstractmethod
    def row_group(self) -> Tensor:
        """Row of the values that holds the columns common to each node or edge, [n]."""

    @property
    @abstractmethod
    def columns(self) -> int:
        """Number of columns."""

    @property
    @abstractmethod
    def count(self) -> tuple[Role, int]:
        """What has the columns: its role, and its place in the sizes of the whole graph."""

    @property
    def types(self) -> int:
        """Number of kinds of columns."""
        return 1

    @cached_property
    def owner(self) -> Tensor:
        if self.kind is MaskType.common_attributes:
            instances = torch.arange(len(self.instances), device=self.instances.x.device)
            return instances.repeat_interleave(self.types)
        return self.row_owner

    @property
    def width(self) -> int:
        return 1 if self.kind is MaskType.object else self.columns

    @property
    def shape(self) -> tuple[int, ...]:
        return self.owner.numel(), self.width

    @property
    def element_of_weight(self) -> Tensor:
        number, device = len(self.owner), self.owner.device
        rows = self.row_group if self.kind is MaskType.common_attributes else torch.arange(number, device=device)
        return rows.unsqueeze(1) * self.width + torch.arange(self.width, device=device)

    def to_weights(self, values: Tensor) -> Tensor:
        return values[..., self.row_group, :] if self.kind is MaskType.common_attributes else values

    def from_weights(self, weights: Tensor) -> Tensor:
        if self.kind is MaskType.common_attributes:
            index = self.row_group.view(-1, 1).expand(-1, self.width)
            return weights.new_zeros(self.shape).scatter(0, index, weights)
        return weights

    def totals(self, values: Tensor) -> Tensor:
        return size(values.sum(-1), self.owner, len(self.instances))

    def scale(self, whole_graph: bool) -> Tensor:
        role, place = self.count
        count = self.instances.total[:, place] if whole_graph else self.instances.ptr[role].diff()
        if self.kind is MaskType.common_attributes:
            count = torch.full_like(count, self.types)
        return (count * self.width).clamp_min(1)


@dataclass(frozen=True)
class NodePart(FeaturePart):
    """Factors of the features of nodes."""

    name = NODES
    group = 1
    count = Role.NODE, 1

    @property
    def row_owner(self) -> Tensor:
        return self.instances.node_owner

    @property
    def row_group(self) -> Tensor:
        return self.instances.node_group

    @property
    def columns(self) -> int:
        return self.instances.x.size(-1)

    @property
    def types(self) -> int:
        return self.instances.node_types

    @property
    def unit(self) -> str:
        return {
            MaskType.object: "nodes",
            MaskType.attributes: "features of nodes",
            MaskType.common_attributes: "features",
        }[self.kind]

    def on(self, instances: InstanceBatch) -> NodePart:
        return NodePart(instances, self.kind)


def edge_types(instances: InstanceBatch) -> int:
    """Number of edge types; 1 for a homogeneous graph."""
    return int(instances.args.get(EDGE_TYPES, 1))


@dataclass(frozen=True)
class AttributePart(FeaturePart):
    """Factors of the attributes of edges; takes the place of the edge part, so it counts as structure."""

    name = ATTRIBUTES
    group = 0
    count = Role.EDGE, 0

    @property
    def row_owner(self) -> Tensor:
        return self.instances.edge_owner

    @property
    def row_group(self) -> Tensor:
        kind = self.instances.args.get(EDGE_TYPE)
        owner = self.instances.edge_owner
        return owner if kind is None else torch.add(kind, owner, alpha=self.types)

    @property
    def types(self) -> int:
        return edge_types(self.instances)

    @property
    def columns(self) -> int:
        return attribute_columns(self.instances.args[self.instances.args[MASKED_ATTRIBUTES]]).size(1)

    @property
    def unit(self) -> str:
        return "attributes" if self.kind is MaskType.common_attributes else "attributes of edges"

    def on(self, instances: InstanceBatch) -> AttributePart:
        return AttributePart(instances, self.kind)
