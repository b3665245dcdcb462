"""The graph of a stored explanation of a heterogeneous graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from nseg.errors import InputError
from nseg.graph_types import GraphTypes, TypeKey
from nseg.graphs.hetero_checks import EdgesByType, typed_edges_of
from nseg.graphs.large import LargeGraph
from nseg.hetero_explanation import HeteroExplanation, graph_types


def attach_by_type(one: HeteroExplanation, data: Any, kwargs: Mapping[str, Any]) -> HeteroExplanation:
    """A stored explanation together with its heterogeneous graph.

    Args:
        one: from :func:`nseg.read`.
        data: the graph that was explained.
        kwargs: model arguments that are no attributes of the graph.
    """
    if isinstance(data, LargeGraph):
        return _attach_large(one, data, kwargs)
    types, number = graph_types(one), int(one.output_id)
    sizes = {kind: int(store.num_nodes or 0) for kind, store in data.node_items()} if isinstance(data, HeteroData) else {}
    wrong = [kind for kind, size in zip(types.node_types, types.nodes, strict=True) if sizes.get(kind, 0) != size]
    wrong += [
        str(kind)
        for kind, size in zip(types.edge_types, types.edges, strict=True)
        if not isinstance(data, HeteroData) or kind not in data.edge_types or data[kind].num_edges != size
    ]
    if wrong:
        raise InputError(
            f"data must be what was explained (got other nodes or edges of type {wrong[0]}, for output {number}). Give the "
            "same graph, or list of graphs, as to explain_many."
        )
    found: HeteroExplanation = one.clone()
    for kind in types.node_types:
        x = data[kind].get("x")
        if x is None:
            found[kind].num_nodes = found[kind].node_id.numel()
        else:
            found[kind].x = x[found[kind].node_id]
    edges = EdgesByType.of(typed_edges_of(data)).ends
    for edge_type in types.edge_types:
        ends = edges[edge_type][:, found[edge_type].edge_id]
        found[edge_type].edge_index = torch.stack([_local(found, edge_type[2 * row], ends[row]) for row in (0, 1)])
    for name in one.__dict__.get("_stored_args") or ():
        _add_argument(found, name, data, kwargs)
    found.__dict__["_model_args"] = one.__dict__.get("_stored_args")
    return found


def _attach_large(one: HeteroExplanation, graph: LargeGraph, kwargs: Mapping[str, Any]) -> HeteroExplanation:
    """A stored explanation together with its part of a large graph."""
    types, known = graph_types(one), graph.types
    if known is None or (types.node_types, types.nodes, types.edge_types, types.edges) != (
        *(known.node_types, known.nodes),
        *(known.edge_types, known.edges),
    ):
        raise InputError("data must be what was explained (got a large graph with other types, nodes or edges).")
    flat, local = one.flat(), one.clone()
    for kind in types.node_types:
        local[kind].node_id = torch.arange(one[kind].node_id.numel())
    for edge_type in types.edge_types:
        local[edge_type].edge_id = torch.arange(one[edge_type].edge_id.numel())
    sizes = [tuple(local[kind][name].numel() for kind in kinds) for name, kinds in _ids(types)]
    local.__dict__["_types"] = replace(types, nodes=sizes[0], edges=sizes[1])
    given = one.__dict__.get("_stored_args")
    local.__dict__["_stored_args"] = [name for name in given or () if name != types.pairs_name]
    found = attach_by_type(local, graph.induced(flat.node_id, flat.edge_id), kwargs)
    found.__dict__.update(_types=types, _model_args=given)
    for name, kinds in _ids(types):
        for kind in kinds:
            found[kind][name] = one[kind][name]
    if types.pairs_name is not None:  # by the numbers of the whole graph
        _add_pairs(found, types.pairs_name, kwargs.get(types.pairs_name))
    return found


def _ids(types: GraphTypes) -> list[tuple[str, tuple[Any, ...]]]:
    """Names of the numbers of nodes and edges, and the types that have them."""
    return [("node_id", types.node_types), ("edge_id", types.edge_types)]


def _local(found: HeteroExplanation, kind: str, nodes: Tensor) -> Tensor:
    """Positions of some nodes among those of their type in an explanation."""
    ids = found[kind].node_id
    position = torch.searchsorted(ids, nodes.contiguous()).clamp(max=max(ids.numel() - 1, 0))
    if nodes.numel() and not torch.equal(ids[position], nodes):
        raise InputError(f"data must be what was explained (got other edges around output {int(found.output_id)}).")
    return position


def _add_argument(found: HeteroExplanation, name: str, data: HeteroData, kwargs: Mapping[str, Any]) -> None:
    """Put one of the model's arguments on an explanation's own graph."""
    types, attribute = graph_types(found), name.removesuffix("_dict")
    by_type = {key: store[attribute] for key, store in _stores(data) if store.get(attribute) is not None}
    given = kwargs.get(name, data._global_store.get(name))
    if name == types.pairs_name:
        _add_pairs(found, name, next(iter(by_type.values()), None) if given is None else given)
    elif name == "batch_dict":
        for kind in types.node_types:
            found[kind].batch = torch.zeros_like(found[kind].node_id)
    elif name.endswith("_dict") and (isinstance(given, Mapping) or by_type):
        for key, value in (by_type if given is None else given).items():
            if value is not None:
                found[key][attribute] = value[found[key].edge_id if isinstance(key, tuple) else found[key].node_id]
    elif given is not None:
        found[name] = given
    else:
        _unknown(name)


def _stores(data: HeteroData) -> list[tuple[TypeKey, Any]]:
    return [*data.node_items(), *data.edge_items()]


def _unknown(name: str) -> None:
    raise InputError(
        f"{name} must be known, because the model took it (got neither an attribute of data nor an argument of that name). "
        f"Pass it as to explain_many: attach(..., {name}=...)."
    )


def _add_pairs(found: HeteroExplanation, name: str, pairs: Any) -> None:
    """The pair that is explained, or all of them if the explanation has the outputs of all."""
    if pairs is None:
        _unknown(name)
    pairs = torch.as_tensor(next(iter(pairs.values())) if isinstance(pairs, Mapping) else pairs).reshape(2, -1)
    number, kinds = int(found.output_id), graph_types(found).pair_types
    assert kinds is not None
    if found.target.numel() != pairs.size(1):
        pairs = pairs[:, number : number + 1]
    found[name] = torch.stack([_local(found, kind, row) for kind, row in zip(kinds, pairs, strict=True)])
