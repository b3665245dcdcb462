"""Checks of dictionaries by type: what a caller gives as a heterogeneous graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.graph_types import EdgeType
from nseg.graphs.checks import as_long, is_integer, leave_inference_mode


def check_dictionaries(x_dict: Any, edge_index_dict: Any) -> None:
    """Raise unless features and edges are dictionaries by type."""
    if not isinstance(x_dict, Mapping) or not isinstance(edge_index_dict, Mapping):
        kinds = type(x_dict).__name__, type(edge_index_dict).__name__
        raise InputError(
            f"Features and edges of a heterogeneous graph must both be dictionaries by type (got {kinds[0]} and "
            f"{kinds[1]}). Give data.x_dict and data.edge_index_dict."
        )
    for key, value in x_dict.items():
        if not isinstance(key, str) or not (value is None or isinstance(value, Tensor)):
            raise InputError(
                f"x_dict must map names of node types to tensors (got {key!r} with {type(value).__name__}). Give "
                "data.x_dict."
            )
        if value is not None and (value.layout is not torch.strided or value.dim() == 0):
            raise InputError(
                f"x_dict[{key!r}] must be a dense tensor with one row per node. Use to_dense() on a sparse one."
            )
    for key, value in edge_index_dict.items():
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(name, str) for name in key)):
            raise InputError(
                f"edge_index_dict must be keyed by (source, relation, target) (got {key!r}). Give data.edge_index_dict."
            )
        good = isinstance(value, Tensor) and value.layout is torch.strided and value.dim() == 2 and value.size(0) == 2
        if not good or not is_integer(value):
            raise InputError(
                f"edge_index of {key} must be an integer tensor [2, E] (got {describe(value)}). Convert a sparse matrix "
                "with torch_geometric.utils.to_edge_index."
            )
    if not edge_index_dict and not any(value is not None for value in x_dict.values()):
        raise InputError("A heterogeneous graph must have at least one node (got no features and no edges).")


def describe(value: Any) -> str:
    """What a value is, for an error."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return f"a {type(value).__name__}"
    return f"{value.dtype} of shape {tuple(value.shape)}"


def check_pairs(name: str, value: Any) -> tuple[EdgeType | None, Tensor]:
    """Edge type (None if it is not said) and node pairs that a link model scores."""
    key = None
    if isinstance(value, Mapping):
        if len(value) != 1:
            raise InputError(
                f"{name} must hold the pairs of one edge type (got {len(value)}). Explain one edge type at a time."
            )
        ((key, value),) = value.items()
        if not (isinstance(key, tuple) and len(key) == 3):
            raise InputError(f"{name} must be keyed by (source, relation, target) (got {key!r}).")
    good = isinstance(value, Tensor) and value.dim() in (1, 2) and len(value) == 2 and is_integer(value) and value.numel()
    if not good:
        raise InputError(
            f"{name} must be a tensor of node numbers, [2, pairs] (got {describe(value)}). Try torch.tensor([[a], [b]])."
        )
    return key, leave_inference_mode(as_long(value)).reshape(2, -1)


def join_batches(value: Mapping[str, Any], counts: Mapping[str, int]) -> Tensor:
    """The graph of each node of the flat graph."""
    found = []
    for key, number in counts.items():
        one = value.get(key)
        if number and (not isinstance(one, Tensor) or one.shape != (number,) or not is_integer(one)):
            raise InputError(
                f"batch_dict must give the graph of each of the {number} nodes of type {key!r} (got {describe(one)}). Omit "
                "it if there is one graph."
            )
        found += [] if one is None else [one.long()]
    return torch.cat(found)
