"""A heterogeneous graph as a homogeneous one, for pictures and texts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from nseg.errors import InputError
from nseg.graph_types import GraphTypes


def flat_data(data: Any, types: GraphTypes) -> Data:
    """The nodes, edges and classes of a heterogeneous graph as a homogeneous one, for pictures and texts.

    Args:
        data: ``HeteroData``.
        types: its types; nodes and edges are numbered through in their order.
    """
    start = dict(zip(types.node_types, types.node_starts, strict=False))
    known = [kind for kind in types.edge_types if kind in data.edge_types]
    sizes = [int(data[kind].num_nodes or 0) if kind in data.node_types else -1 for kind in types.node_types]
    if tuple(sizes) != types.nodes or [data[kind].num_edges for kind in known] != list(types.edges):
        raise InputError(
            "data must be what was explained (got a graph with other types, nodes or edges). Give the same graph."
        )
    edges = [data[k].edge_index.cpu() + torch.tensor([[start[k[0]]], [start[k[2]]]]) for k in known]
    found = Data(edge_index=torch.cat([torch.zeros(2, 0, dtype=torch.long), *edges], 1), num_nodes=sum(types.nodes))
    y = data._global_store.get("y") if types.output is None else data[types.output].get("y")
    if isinstance(y, Tensor) and types.output is not None and y.dim() == 1:
        first = types.node_number(types.output, 0)
        found.y = y.new_full((sum(types.nodes),), -1).index_copy(0, torch.arange(first, first + len(y)), y.cpu())
    elif isinstance(y, Tensor) and types.output is None:
        found.y = y.cpu()
    return found
