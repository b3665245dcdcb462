"""Explanations of heterogeneous graphs, read as explanations of flat graphs whose nodes and edges have types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData

from nseg.errors import InputError, UnsupportedError
from nseg.explanation import Explanation
from nseg.graph_types import GraphTypes, relation_words
from nseg.graphs.flat_data import flat_data
from nseg.hetero_explanation import flat_view

FEW_NODES = 50
"""Nodes of types with at most this many are told apart: conferences are, papers are not."""

SHARED = 4
"""They are only told apart if there are this many times more nodes of the explained type: many predictions share them."""


def flatten_explanations(explanations: Sequence[Any], graphs: Any) -> tuple[list[Explanation], Any, GraphTypes]:
    """Explanations with their graphs, and what was explained, all flat; and the types.

    Args:
        explanations: explanations by type, with their graphs.
        graphs: the heterogeneous graph, or graphs, that were explained.
    """
    flat = [flat_view(one) for one in explanations]
    if any(one.get("node_mask") is not None and one.node_mask.size(1) > 1 for one in flat):
        raise UnsupportedError(
            "Patterns of heterogeneous graphs consist of nodes and edges (got masks of features). Explain with "
            "edge_mask_type='object' or node_mask_type='object'."
        )
    types: GraphTypes = flat[0].names.types
    for one in flat:
        one.x = torch.zeros(one.node_id.numel(), 1)
    if isinstance(graphs, HeteroData):
        return flat, _flat_graph(graphs, types), types
    if any(int(one.output_id) >= len(graphs) for one in flat):
        raise InputError(
            f"data must be what was explained (got {len(graphs)} graphs, and an explanation of a later one). Do not mix "
            "explanations of different datasets."
        )
    known = {int(one.output_id): one.names.types for one in flat}
    return flat, [_flat_graph(graphs[n], known[n]) if n in known else Data() for n in range(len(graphs))], types


def _flat_graph(graph: HeteroData, types: GraphTypes) -> Data:
    """A heterogeneous graph as a flat one, with a type for each node and edge; a reverse has the type that it reverses."""
    found = flat_data(graph, types)
    found.x = torch.zeros(sum(types.nodes), 1)
    found.node_type = torch.repeat_interleave(torch.arange(len(types.nodes)), torch.tensor(types.nodes))
    found.edge_type = torch.repeat_interleave(torch.tensor(types.kinds), torch.tensor(types.edges))
    return found


def relations(types: GraphTypes) -> tuple[str, ...]:
    """What each type of edges is called; one name for a type and its reverse."""
    return tuple(relation_words(types.edge_types[kind][1]) for kind in types.kinds)


def individual_names(one: Explanation) -> tuple[str, ...]:
    """Names of the nodes of an explanation that are told apart, ``""`` for the others.

    Nodes are the same in several predictions only if these are of one graph.
    """
    types = one.names.types
    if types is None or types.output is None:
        return ()
    explained = types.nodes[types.node_types.index(types.output)]
    few = [size <= min(FEW_NODES, explained / SHARED) for size in types.nodes]
    return tuple(one.names.node_label(n) if few[types.type_of_node(n)] else "" for n in one.node_id.tolist())
