"""The arguments of one model call, and what the entries of each argument stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

NODE_TYPE, EDGE_TYPE, EDGE_KIND = ".node_type", ".edge_type", ".edge_kind"
"""Arguments of a flattened heterogeneous graph: type of each node and edge, and a number that an edge type shares with its
reverse."""

NODE_GRAPH = ".node_graph"
"""The graph, or copy of a graph, that each of its nodes belongs to."""

NODE_TYPES, EDGE_TYPES = ".node_types", ".edge_types"
"""The number of its node types, and of its edge types."""

MATRIX, EDGE_VALUE = ".matrix", ".edge_value"
"""Arguments of a graph that the model takes as a sparse matrix: the matrix's form, and the value of each entry."""

MASKED_ATTRIBUTES, EDGE_BASELINE = ".masked_attributes", ".edge_baseline"
"""Arguments of a graph whose edge attributes are masked: the name of the argument that holds them, and what they become,
[E, D]; without the latter 0."""

IMPLIED_BATCH = ".implied_batch"
"""Argument that says that the caller gave no ``batch``: one graph alone is run without it, as the caller would."""

HIDDEN = (MATRIX, EDGE_VALUE, MASKED_ATTRIBUTES, EDGE_BASELINE, IMPLIED_BATCH)
"""Arguments that the model does not get."""


class Role(Enum):
    """What the entries of a model argument stand for, hence how it is cut and packed."""

    NODE = "one entry per node"
    EDGE = "one entry per edge"
    GRAPH = "one entry per graph"
    PAIR = "one entry per explained pair of nodes"
    BATCH = "the graph of each node"
    PAIR_INDEX = "pairs of nodes, [2, P]"
    COUNT = "number of graphs"
    SHARED = "the same for all"


@dataclass(frozen=True)
class ModelInputs:
    """The arguments of one call, ``model(x, edge_index, **kwargs)``.

    Args:
        x, edge_index, kwargs: as the model takes them.
        pairs_name: the argument that holds the node pairs which a link model scores, if there is one.
        original_size: edges and nodes of the graph that this is a subgraph of, if it is one.
        known_roles: roles of arguments that need not be judged by name and size.
        baseline: what masked features become, [N, F]; None for 0; [N, 0] if nodes are deleted.
    """

    x: Tensor
    edge_index: Tensor
    kwargs: Mapping[str, Any]
    pairs_name: str | None = None
    original_size: tuple[int, int] | None = None
    known_roles: Mapping[str, Role] = field(default_factory=dict)
    baseline: Tensor | None = None

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)

    @cached_property
    def num_graphs(self) -> int:
        batch = self.kwargs.get("batch")
        return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1

    @property
    def total(self) -> tuple[int, int]:
        """Edges and nodes of the caller's graph."""
        return self.original_size or (self.num_edges, self.num_nodes)

    def call_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the model is called with: positional arguments (the edges as the matrix that it expects), and keywords."""
        form = self.kwargs.get(MATRIX)
        left_out = HIDDEN if IMPLIED_BATCH not in self.kwargs or self.num_graphs > 1 else (*HIDDEN, "batch")
        rest = {name: value for name, value in self.kwargs.items() if name not in left_out}
        if form is None:
            return (self.x, self.edge_index), rest
        size = self.num_nodes, self.num_nodes
        return (self.x, form.matrix(self.edge_index, self.kwargs.get(EDGE_VALUE), size)), rest

    def copied(self) -> ModelInputs:
        """The same arguments in tensors of their own, for a model that may change what it is given."""

        def copy(value: Any) -> Any:
            return value.clone() if type(value) is Tensor else value

        kwargs = {name: copy(value) for name, value in self.kwargs.items()}
        return replace(self, x=copy(self.x), edge_index=copy(self.edge_index), kwargs=kwargs)

    @property
    def pairs(self) -> Tensor | None:
        """Node pairs that a link model scores, [2, P]."""
        return None if self.pairs_name is None else self.kwargs[self.pairs_name]

    def possible_roles(self, name: str) -> list[Role]:
        """Roles that an argument may have, judged by its name and size, most likely first."""
        value = self.kwargs[name]
        if name in self.known_roles:
            return [self.known_roles[name]]
        if name == "batch_size":
            return [Role.COUNT]
        if not isinstance(value, Tensor) or value.dim() == 0:
            return [Role.SHARED]
        if name in ("batch", NODE_GRAPH):
            return [Role.BATCH]
        if name == self.pairs_name:
            return [Role.PAIR_INDEX]
        sizes = {Role.EDGE: self.num_edges, Role.NODE: self.num_nodes, Role.GRAPH: self.num_graphs}
        if "batch" not in self.kwargs:
            del sizes[Role.GRAPH]
        if self.pairs is not None:
            sizes[Role.PAIR] = self.pairs.size(1)
        found = [role for role, size in sizes.items() if value.size(0) == size]
        if "edge" not in name and found[:2] == [Role.EDGE, Role.NODE]:
            found[:2] = [Role.NODE, Role.EDGE]
        return [*found, Role.SHARED]


def common_roles(graphs: Sequence[ModelInputs]) -> dict[str, Role]:
    """The first role of each argument that is possible in all graphs."""
    roles = {}
    for name in graphs[0].kwargs:
        possible = [graph.possible_roles(name) for graph in graphs]
        roles[name] = next((role for role in possible[0] if all(role in other for other in possible)), Role.SHARED)
    return roles


def can_pack(graphs: Sequence[ModelInputs]) -> bool:
    """Whether graphs fit into one disjoint union: arguments without a size must be equal in all of them."""
    first = graphs[0]
    for name, role in common_roles(graphs).items():
        if role is Role.SHARED and not all(_equal(first.kwargs[name], g.kwargs[name]) for g in graphs):
            return False
    return True


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    return bool(a is b or (type(a) is type(b) and a == b))
