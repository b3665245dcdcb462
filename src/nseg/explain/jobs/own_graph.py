"""The graph that an explanation is returned on."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import ModelInputs, Role


class OwnGraph(NamedTuple):
    """One instance as a graph of its own.

    Attributes:
        inputs: arguments of the model call.
        edge_id, node_id: the caller's numbers of its edges and nodes.
        rows: explained rows of the model's output; None if that is one row for the graph.
    """

    inputs: ModelInputs
    edge_id: Tensor
    node_id: Tensor
    rows: Tensor | None

    @classmethod
    def of_instance(cls, instances: InstanceBatch, b: int) -> OwnGraph:
        """That of an instance of a batch."""
        inputs, row = instances.single(b)
        edge_id = instances.edge_id[instances.members(Role.EDGE, b)]
        node_id = instances.node_id[instances.members(Role.NODE, b)]
        return cls(inputs, edge_id, node_id, None if instances.outputs is Role.GRAPH else row)

    @classmethod
    def of_graph(cls, graph: ModelInputs) -> OwnGraph:
        """A whole graph of the caller, in tensors of its own."""
        edge_id, node_id = (torch.arange(n, device=graph.x.device) for n in (graph.num_edges, graph.num_nodes))
        return cls(graph.copied(), edge_id, node_id, None)
