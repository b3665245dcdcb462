"""Large heterogeneous graphs: nodes and edges of all types numbered through, and arrays by type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

from nseg.errors import InputError
from nseg.graph_types import EdgeType, TypeKey

Array = NDArray[Any]


@dataclass(frozen=True)
class LargeTypes:
    """Which numbers of a large graph belong to which type.

    Args:
        node_types, edge_types: names, in the order of their blocks.
        nodes, edges: number of nodes of each node type, and of edges of each edge type.
    """

    node_types: tuple[str, ...]
    nodes: tuple[int, ...]
    edge_types: tuple[EdgeType, ...]
    edges: tuple[int, ...]

    @property
    def node_starts(self) -> list[int]:
        """First node of each type, and the number of all nodes."""
        return list(accumulate(self.nodes, initial=0))

    @property
    def edge_starts(self) -> list[int]:
        """First edge of each type, and the number of all edges."""
        return list(accumulate(self.edges, initial=0))

    def as_plain_data(self) -> dict[str, Any]:
        """These types as data that JSON can hold."""
        return {name: list(value) for name, value in vars(self).items()}

    @classmethod
    def from_plain_data(cls, plain: Mapping[str, Any]) -> LargeTypes:
        """Types from the data of :meth:`as_plain_data`."""
        found = {name: tuple(plain[name]) for name in ("node_types", "nodes", "edges")}
        return cls(edge_types=tuple((a, b, c) for a, b, c in plain["edge_types"]), **found)

    def parts(self, numbers: Tensor, edges: bool) -> list[slice]:
        """Where the nodes (or edges) of each type stand among some of all types, which are sorted."""
        starts = torch.tensor(self.edge_starts if edges else self.node_starts)
        return [slice(int(a), int(b)) for a, b in pairwise(torch.searchsorted(numbers, starts))]

    def length(self, name: str) -> int:
        """Number of rows that an array must have, by its name, ``node.x.0``."""
        kind, _, rest = name.partition(".")
        return (self.nodes if kind == "node" else self.edges)[int(rest.rpartition(".")[2])]

    def data(self, arrays: Mapping[str, Array], node: Tensor, edge: Tensor, ends: Tensor) -> HeteroData:
        """Some nodes and edges as a PyG object, in which all types are there.

        Args:
            arrays: of the graph.
            node, edge: numbers of the nodes and edges, sorted.
            ends: positions of the ends of the edges among the nodes, [2, e].
        """
        found = HeteroData()
        nodes, edges = self.parts(node, edges=False), self.parts(edge, edges=True)
        first = dict(zip(self.node_types, (part.start for part in nodes), strict=True))
        for kind, part in zip(self.node_types, nodes, strict=True):
            found[kind].num_nodes = part.stop - part.start
        for edge_type, part in zip(self.edge_types, edges, strict=True):
            begin = ends.new_tensor([[first[edge_type[0]]], [first[edge_type[2]]]])
            found[edge_type].edge_index = ends[:, part] - begin
        for name, value in arrays.items():
            what, _, rest = name.partition(".")
            attribute, _, number = rest.rpartition(".")
            if attribute:
                some, parts, starts, kinds = (
                    (node, nodes, self.node_starts, self.node_types)
                    if what == "node"
                    else (edge, edges, self.edge_starts, self.edge_types)
                )
                rows = some[parts[int(number)]] - starts[int(number)]
                found[kinds[int(number)]][attribute] = torch.from_numpy(np.array(value[rows.numpy()]))
        for kind in self.node_types:  # features say how many there are
            if found[kind].get("x") is not None:
                del found[kind].num_nodes
        return found


def typed_arrays(
    edge_index: Mapping[EdgeType, Array],
    node: Mapping[str, Mapping[str, Array]],
    edge: Mapping[str, Mapping[EdgeType, Array]],
    num_nodes: Mapping[str, int],
) -> tuple[LargeTypes, dict[str, Array]]:
    """Types of a graph, and its arrays by name and number of the type, checked.

    Args:
        edge_index: edges of each type, [2, E].
        node, edge: arrays by name and type, with a row per node or edge.
        num_nodes: number of nodes of each type, where no array says it.
    """
    known = dict(num_nodes)
    for by_type in node.values():
        known |= {kind: len(value) for kind, value in by_type.items()}
    for kind, ends in edge_index.items():
        _check_ends(kind, ends, known)
    # types with features come first, then those of edges, as nseg.graphs.hetero numbers them
    ends_of_edges = [kind[row] for kind in edge_index for row in (0, 2)]
    counts = {kind: known[kind] for kind in dict.fromkeys([*node.get("x", {}), *ends_of_edges, *known])}
    edges = tuple(ends.shape[1] for ends in edge_index.values())
    types = LargeTypes(tuple(counts), tuple(counts.values()), tuple(edge_index), edges)
    arrays = {**_numbered("node", node, types.node_types), **_numbered("edge", edge, types.edge_types)}
    for name, value in arrays.items():
        rows = types.length(name)
        if value.ndim == 0 or len(value) != rows or value.dtype.kind not in "biuf":
            raise InputError(f"{name} must hold numbers, {rows} rows (got {value.dtype} of shape {value.shape}).")
    return types, arrays


def _check_ends(kind: Any, ends: Array, counts: dict[str, int]) -> None:
    """Raise unless edges join nodes that there are; types whose number of nodes is not known have as many as are needed."""
    if not (isinstance(kind, tuple) and len(kind) == 3):
        raise InputError(f"Edges of a heterogeneous graph must be keyed by (source, relation, target) (got {kind!r}).")
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise InputError(f"edge_index of {kind} must be whole numbers, [2, E] (got {ends.dtype} of shape {ends.shape}).")
    for end, row in ((kind[0], ends[0]), (kind[2], ends[1])):
        least, most = (int(row.min()), int(row.max())) if row.size else (0, -1)
        counts.setdefault(end, most + 1)
        if least < 0 or most >= counts[end]:
            raise InputError(
                f"edge_index of {kind} must hold numbers of nodes of type {end!r}, 0 to {counts[end] - 1} (got {least} to "
                f"{most})."
            )


def _numbered(what: str, values: Mapping[str, Mapping[Any, Array]], kinds: tuple[TypeKey, ...]) -> dict[str, Array]:
    """Arrays of nodes or edges by name and number of the type."""
    found = {}
    for name, by_type in values.items():
        for kind, value in by_type.items():
            if kind not in kinds:
                known = ", ".join(map(str, kinds))
                raise InputError(f"{name} must be by types of the graph (got {kind!r}). Known: {known}.")
            found[f"{what}.{name}.{kinds.index(kind)}"] = value
    return found


def joined_edges(edge_index: Mapping[EdgeType, Array], types: LargeTypes, file: Path | None = None) -> Array:
    """Edges of all types with nodes numbered through, [2, E]; in a file if one is given, not in memory."""
    shape, start = (2, sum(types.edges)), dict(zip(types.node_types, types.node_starts, strict=False))
    in_file = file is not None and shape[1] > 0
    found: Array = np.lib.format.open_memmap(str(file), "w+", np.int64, shape) if in_file else np.empty(shape, np.int64)
    for (kind, ends), at in zip(edge_index.items(), types.edge_starts, strict=False):
        for row, end in ((0, kind[0]), (1, kind[2])):
            found[row, at : at + ends.shape[1]] = ends[row]
            found[row, at : at + ends.shape[1]] += start[end]
    return found


def arrays_of(data: HeteroData) -> tuple[dict[EdgeType, Tensor], Any, Any, dict[str, int]]:
    """Edges, arrays of nodes, arrays of edges, and numbers of nodes of a heterogeneous graph, each by type."""
    node: dict[str, dict[str, Tensor]] = {}
    edge: dict[str, dict[EdgeType, Tensor]] = {}
    counts = {kind: int(store.num_nodes or 0) for kind, store in data.node_items()}
    sized: list[tuple[dict[str, Any], Any, Any, int]] = [(node, k, s, counts[k]) for k, s in data.node_items()]
    sized += [(edge, kind, store, int(store.num_edges)) for kind, store in data.edge_items()]
    for found, kind, store, size in sized:
        for name, value in store.items():
            if name != "edge_index" and isinstance(value, Tensor) and value.dim() and len(value) == size:
                found.setdefault(name, {})[kind] = value
    for kind, store in data.edge_items():
        if store.get("edge_index") is None and store.get("adj_t") is not None:
            raise InputError(
                f"A large graph needs edge_index of each type (got adj_t of {kind}). Convert it with PyG's to_edge_index, "
                "and flip it, because adj_t is transposed."
            )
    edges = {kind: store.edge_index for kind, store in data.edge_items() if store.get("edge_index") is not None}
    return edges, node, edge, counts
