"""What may change in a heterogeneous graph: edges to add and features to set, by type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.explain.change import FeatureChange, feature_changes, feature_place, values_to_try
from nseg.graph_types import GraphTypes
from nseg.graphs.checks import check_index
from nseg.graphs.inputs import EDGE_KIND, EDGE_TYPE, ModelInputs, Role, common_roles
from nseg.names import Names


def add_typed_edges(inputs: ModelInputs, additions: Any, types: GraphTypes) -> ModelInputs:
    """The flat graph with all edges that may be added, after its own.

    Args:
        inputs: the flat graph.
        additions: edges by edge type, [2, A] each.
        types: its types.
    """
    if not isinstance(additions, Mapping) or any(key not in types.edge_types for key in additions):
        known = ", ".join(map(str, types.edge_types))
        raise InputError(f"additions must be edges by edge type, of {known} (got {type(additions).__name__}).")
    kwargs, edge_index = dict(inputs.kwargs), inputs.edge_index
    needed = [
        name for name, role in common_roles([inputs]).items() if role is Role.EDGE and name not in (EDGE_TYPE, EDGE_KIND)
    ]
    if needed:
        raise InputError("Edges cannot be added to a heterogeneous graph whose model takes further values per edge.")
    for key, given in additions.items():
        edges, kind = torch.as_tensor(given).to(edge_index), types.edge_types.index(key)
        sizes = [types.nodes[types.node_types.index(end)] for end in (key[0], key[2])]
        good = edges.dim() == 2 and len(edges) == 2
        if not good or any(
            edges.numel() and not 0 <= int(e.min()) <= int(e.max()) < n for e, n in zip(edges, sizes, strict=True)
        ):
            raise InputError(f"additions of {key} must be node numbers of its types, [2, A] (got {tuple(edges.shape)}).")
        start = torch.tensor([[types.node_number(key[0], 0)], [types.node_number(key[2], 0)]], device=edges.device)
        edge_index = torch.cat([edge_index, edges + start], 1)
        for name, value in ((EDGE_TYPE, kind), (EDGE_KIND, types.kinds[kind])):
            kwargs[name] = torch.cat([kwargs[name], kwargs[name].new_full((edges.size(1),), value)])
    return replace(inputs, edge_index=edge_index, kwargs=kwargs)


def typed_cells(features: Mapping[Any, Any], nodes: Any, x: Tensor, reached: Tensor, names: Names) -> list[FeatureChange]:
    """All feature changes that are possible.

    Args:
        features: for each node type, features by number or name and the values to try.
        nodes: nodes whose features may change, by type; None for all that can matter.
        x: features of the flat graph.
        reached: nodes of the flat graph that can matter.
        names: names of the flat graph.
    """
    types, near, found = names.types, set(reached.tolist()), list[FeatureChange]()
    assert types is not None
    for kind, asked in features.items():
        if kind not in types.node_types or not isinstance(asked, Mapping):
            raise InputError(
                f"features of a heterogeneous graph must be dictionaries by node type (got {kind!r}). Known: "
                f"{', '.join(types.node_types)}. Try features={{{types.node_types[0]!r}: {{0: 1.0}}}}."
            )
        number = types.node_types.index(kind)
        own = None if nodes is None else nodes.get(kind, [])
        local = (
            range(types.nodes[number]) if own is None else check_index(own, types.nodes[number]).tolist() if len(own) else ()
        )
        some = [node for node in (types.node_starts[number] + n for n in local) if node in near]
        columns = {names.of_type(kind).feature(n): n for n in range(types.widths[number])}
        for key, given in asked.items():
            (of, feature), values = feature_place(key, columns), values_to_try(given)
            if not 0 <= feature < types.widths[number] or values is None:
                raise InputError(f"features must map features of {kind!r} to numbers (got {key!r}: {given!r}).")
            one = None if of is None else types.node_starts[number] + of
            for node in some if one is None else [one] if one in near else []:
                found += feature_changes(x, node, feature, values)
    return found
