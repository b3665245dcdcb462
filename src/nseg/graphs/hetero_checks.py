"""Checks of dictionaries by type: what a caller gives as a heterogeneous graph."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from nseg.adjacency import MatrixForm, is_matrix, matrix_edges, without_duplicates
from nseg.errors import InputError, NsegWarning
from nseg.graph_types import EdgeType
from nseg.graphs.checks import as_long, is_integer, leave_inference_mode
from nseg.graphs.model_checks import did_you_mean


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
        if not is_matrix(value) and not (good and is_integer(value)):
            raise InputError(
                f"edge_index of {key} must be an integer tensor [2, E], or a sparse matrix [targets, sources] (got "
                f"{describe(value)}). Give data.edge_index_dict or data.adj_t_dict."
            )
    if not edge_index_dict and not any(value is not None for value in x_dict.values()):
        raise InputError("A heterogeneous graph must have at least one node (got no features and no edges).")


def check_end_types(
    x_dict: Mapping[str, Any],
    edges: Mapping[EdgeType, Tensor],
    kwargs: Mapping[str, Any],
    num_nodes: Mapping[str, int],
    in_full: bool,
) -> None:
    """Raise if edges join a node type that the graph does not have; warn if that is not known, but the name looks misspelt.

    Args:
        x_dict, edges, kwargs: as the caller gives them.
        num_nodes: number of nodes by type.
        in_full: whether these are all types of the graph. Else a type without features need not be named anywhere.
    """
    given = {key for value in kwargs.values() if isinstance(value, Mapping) for key in value}
    for key in edges:
        for end in (key[0], key[2]):
            if end in x_dict or end in num_nodes or end in given:
                continue
            hint = did_you_mean(end, x_dict)
            if in_full:
                known = ", ".join(dict.fromkeys([*x_dict, *num_nodes]))
                raise InputError(
                    f"Edges must join node types of the graph (got {key}, and no nodes of type {end!r}; known: {known}). "
                    + (hint or f"Set data[{end!r}].num_nodes.")
                )
            if hint:
                warnings.warn(
                    f"Edges {key} join nodes of type {end!r}, which has no features. {hint}", NsegWarning, stacklevel=4
                )


def typed_edges_of(data: HeteroData, as_matrices: bool = False) -> dict[EdgeType, Any]:
    """Edges of a graph by type: ``edge_index``, or the sparse matrix ``adj_t``.

    The matrix is taken if there is no ``edge_index`` (``T.ToSparseTensor`` replaces it), or if the model takes matrices.

    Args:
        data: the graph.
        as_matrices: whether the model names its argument ``adj_t_dict``.
    """
    found: dict[EdgeType, Any] = {}
    for kind, store in data.edge_items():
        matrix, edges = store.get("adj_t"), store.get("edge_index")
        chosen = matrix if is_matrix(matrix) and (as_matrices or edges is None) else edges
        if chosen is not None:
            found[kind] = chosen
    return found


@dataclass(frozen=True)
class EdgesByType:
    """Edges of a heterogeneous graph, and what they were if they were given as sparse matrices.

    Args:
        ends: edges of each type, [2, E].
        values: values of the entries of each matrix that has some.
        forms: form of each matrix.
        sizes: rows and columns of each matrix: nodes of its target type and of its source type.
    """

    ends: dict[EdgeType, Tensor]
    values: dict[EdgeType, Tensor]
    forms: dict[EdgeType, MatrixForm]
    sizes: dict[EdgeType, tuple[int, int]]

    @classmethod
    def of(cls, given: Mapping[EdgeType, Any]) -> EdgesByType:
        """Edges from those that a caller gives, checked before."""
        found = cls({}, {}, {}, {})
        for key, value in given.items():
            if not is_matrix(value):
                found.ends[key] = leave_inference_mode(as_long(value))
                continue
            found.ends[key], entries = matrix_edges(without_duplicates(value))
            found.forms[key], found.sizes[key] = MatrixForm.of(value), (int(value.size(0)), int(value.size(1)))
            if entries is not None:
                found.values[key] = entries.detach()
        return found

    @property
    def known_nodes(self) -> dict[str, int]:
        """Number of nodes of each type that a matrix says."""
        ends = [((key[2], rows), (key[0], columns)) for key, (rows, columns) in self.sizes.items()]
        return {name: size for pair in ends for name, size in pair}

    def check_sizes(self, counts: Mapping[str, int]) -> None:
        """Raise unless each matrix has a row per node of its target type and a column per node of its source type."""
        for key, size in self.sizes.items():
            if size != (counts[key[2]], counts[key[0]]):
                raise InputError(
                    f"The sparse matrix of {key} must have a row per node of type {key[2]!r}, {counts[key[2]]}, and a "
                    f"column per node of type {key[0]!r}, {counts[key[0]]} (got {size[0]} rows and {size[1]} columns). It "
                    "is the transposed adjacency, adj_t."
                )


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
