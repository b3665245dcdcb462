"""Whole bonds: graphs in which both directions of an edge are one thing.

Where a whole graph is explained, such as a molecule, an edge and its reverse with equal attributes are one bond. Where
nodes or links are explained, who sends a message to whom is part of the answer, so edges stay directed there; and in
heterogeneous graphs, where the reverse is of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import EDGE_KIND, ModelInputs, Role
from nseg.graphs.subgraph import reverse_edges


def has_whole_bonds(instances: InstanceBatch, reverse: Callable[[], Tensor]) -> Tensor:
    """Whether each instance is a graph whose edges all have their reverse, with equal attributes, [B].

    Args:
        instances: B instances.
        reverse: returns the position of each edge's reverse (:func:`nseg.graphs.subgraph.reverse_edges`), [E].
    """
    if instances.outputs is not Role.GRAPH or EDGE_KIND in instances.args:
        return torch.zeros(len(instances), dtype=torch.bool, device=instances.x.device)
    values = (instances.args[name] for name, role in instances.roles.items() if role is Role.EDGE)
    single = ~_is_half(instances.edge_index, reverse(), values)
    good = torch.zeros(len(instances), dtype=torch.long, device=single.device)
    return good.index_add(0, instances.edge_owner, single.long()) == instances.ptr[Role.EDGE].diff()


def is_whole_graph_of_bonds(graph: ModelInputs) -> bool:
    """Whether all edges of a graph have their reverse, with equal attributes."""
    if EDGE_KIND in graph.kwargs:
        return False
    values = (graph.kwargs[name] for name in graph.kwargs if graph.possible_roles(name)[0] is Role.EDGE)
    return not bool(_is_half(graph.edge_index, reverse_edges(graph.edge_index, graph.num_nodes), values).any())


def _is_half(edge_index: Tensor, partner: Tensor, values: Iterable[Tensor]) -> Tensor:
    """Which edges lack a reverse with equal values, given where it is, [E]; parallel edges need one each.

    >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]])
    >>> _is_half(edges, reverse_edges(edges, 3), [])
    tensor([False, False,  True, False])
    """
    position = torch.arange(edge_index.size(1), device=edge_index.device)
    half = (partner[partner] != position) | ((partner == position) & (edge_index[0] != edge_index[1]))
    for value in values if len(position) else ():
        flat = value.reshape(len(position), -1)
        half |= (flat != flat[partner]).any(1)
    return half
