"""A heterogeneous graph as one flat graph: one numbering of all nodes and all edges, in which types are blocks.

Everything above this file works on the flat graph. Its dictionaries come back only where the model is called
(:mod:`nseg.model.hetero`) and where an explanation is handed out (:mod:`nseg.explain.typed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain.config import ModelTaskLevel
from torch_geometric.nn import HANConv

from nseg.adjacency import MatrixForm
from nseg.graph_types import REVERSE, EdgeType, GraphTypes, TypeKey
from nseg.graphs.batch import offsets
from nseg.graphs.checks import check_devices, check_finite, check_node_numbers, leave_inference_mode
from nseg.graphs.hetero_checks import EdgesByType, check_dictionaries, check_end_types, check_pairs, join_batches
from nseg.graphs.inputs import (
    EDGE_KIND,
    EDGE_TYPE,
    EDGE_TYPES,
    EDGE_VALUE,
    NODE_GRAPH,
    NODE_TYPE,
    NODE_TYPES,
    ModelInputs,
    Role,
)
from nseg.graphs.model_checks import check_precision, forward_parameters


@dataclass(frozen=True)
class Field:
    """One type's entry of a dictionary argument, and where the flat graph keeps it.

    Args:
        argument: name of the argument.
        key: node type or edge type.
        column: argument of the flat graph that holds the values, in its first columns.
        shape: shape of one value.
        numbers: whether the values are floating point.
    """

    argument: str
    key: TypeKey
    column: str
    shape: tuple[int, ...]
    numbers: bool = True

    @property
    def width(self) -> int:
        """Number of columns of a value."""
        return (self.shape or (1,))[0]

    def cut(self, values: Tensor) -> Tensor:
        """The entry from the rows of the flat column that belong to its type."""
        if len(self.shape) == 1 and values.size(1) > self.shape[0]:
            return values[:, : self.shape[0]]
        return values


@dataclass(frozen=True)
class HeteroSchema:
    """What a heterogeneous graph is made of, and how its dictionaries become a flat graph and come back.

    Args:
        node_types, edge_types: names, in the caller's order.
        fields: entries of dictionary arguments; those of ``x`` are the features.
        empty: entries that are None, by argument and type.
        arguments: names of the dictionary arguments besides features and edges, in the caller's order.
        pairs_name: the argument with the node pairs that a link model scores, if there is one.
        pairs_key: its edge type, if it is a dictionary.
        pair_types: node types of both ends of the pairs.
        output: node type that the model's rows stand for, at node level.
        forms: edge types whose edges the model takes as a sparse matrix, and the forms of these matrices.
    """

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    fields: tuple[Field, ...]
    empty: tuple[tuple[str, TypeKey], ...]
    arguments: tuple[str, ...]
    pairs_name: str | None = None
    pairs_key: EdgeType | None = None
    pair_types: tuple[str, str] | None = None
    output: str | None = None
    forms: tuple[tuple[EdgeType, MatrixForm], ...] = ()

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """Numbers of the node types that each edge type joins."""
        number = {name: n for n, name in enumerate(self.node_types)}
        return [(number[source], number[target]) for source, _, target in self.edge_types]

    @cached_property
    def features(self) -> dict[str, Field]:
        """Features of each node type that has some."""
        return {str(one.key): one for one in self.fields if one.argument == "x"}

    @property
    def maskable(self) -> list[Field | None]:
        """Features of each node type that node masks reach: numbers, [nodes, features]; None for a type without."""
        found = [self.features.get(name) for name in self.node_types]
        return [one if one is not None and one.column == "x" and len(one.shape) == 1 else None for one in found]

    @cached_property
    def edge_attributes(self) -> list[Field | None]:
        """Attributes of each edge type that masks of attributes reach: numbers, all in one column of the flat graph."""
        for name in ("edge_attr", "edge_weight"):
            own = {one.key: one for one in self.fields if one.argument == f"{name}_dict" and one.numbers}
            if own:
                column = next(iter(own.values())).column
                found = [own.get(kind) for kind in self.edge_types]
                return [one if one is not None and one.column == column else None for one in found]
        return [None] * len(self.edge_types)

    @cached_property
    def kinds(self) -> list[int]:
        """One number per edge type; a type and its reverse share it.

        The reverse of ``(a, to, b)`` is ``(b, rev_to, a)``, as PyG's ``ToUndirected`` names it; a type without one is
        matched with the only type that goes the other way, if there is exactly one.
        """
        partner = [self._reverse(edge_type) for edge_type in self.edge_types]
        number = {name: n for n, name in enumerate(self.edge_types)}
        return [min(n, number[other]) if other is not None else n for n, other in enumerate(partner)]

    def _reverse(self, edge_type: EdgeType) -> EdgeType | None:
        source, name, target = edge_type
        back = [one for one in self.edge_types if (one[0], one[2]) == (target, source)]
        for other in back:
            if other[1] in (f"{REVERSE}{name}", name.removeprefix(REVERSE)) and other[1] != name:
                return other
        if len(back) == 1 and len([one for one in self.edge_types if (one[0], one[2]) == (source, target)]) == 1:
            return back[0]
        return None

    def type_number(self, name: str) -> int:
        """Number of a node type."""
        return self.node_types.index(name)


@dataclass(frozen=True)
class HeteroGraph:
    """A heterogeneous graph, flattened.

    Args:
        schema: how its dictionaries were flattened.
        inputs: the flat graph.
        sizes: nodes of each node type, and edges of each edge type.
    """

    schema: HeteroSchema
    inputs: ModelInputs
    sizes: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def starts(self) -> tuple[list[int], list[int]]:
        """First node of each node type, and first edge of each edge type, in the flat numbering."""
        return self.types.node_starts[:-1], self.types.edge_starts[:-1]

    @cached_property
    def types(self) -> GraphTypes:
        """The types, with the sizes of this graph."""
        schema, (nodes, edges) = self.schema, self.sizes
        return GraphTypes(
            schema.node_types,
            nodes,
            schema.edge_types,
            edges,
            tuple(0 if field is None else field.width for field in schema.maskable),
            tuple(schema.kinds),
            schema.output,
            schema.pairs_name,
            schema.pair_types,
            edge_widths=tuple(0 if field is None else field.width for field in schema.edge_attributes),
        )


def is_hetero(x: Any, edge_index: Any) -> bool:
    """Whether a graph is given as dictionaries by type."""
    return isinstance(x, Mapping) or isinstance(edge_index, Mapping)


def flatten_graph(
    model: nn.Module,
    x_dict: Any,
    edge_index_dict: Any,
    kwargs: Mapping[str, Any],
    level: ModelTaskLevel,
    num_nodes: Mapping[str, int] | None = None,
) -> HeteroGraph:
    """A heterogeneous graph as a flat one, checked.

    Args:
        model: the model.
        x_dict: features by node type; a type without features has none, or None.
        edge_index_dict: edges by edge type, or sparse matrices.
        kwargs: further arguments of the model, dictionaries by type or anything else.
        level: what the model's rows stand for.
        num_nodes: nodes of each type, where features do not say it.
    """
    check_dictionaries(x_dict, edge_index_dict)
    given = EdgesByType.of(edge_index_dict)
    edges, known = given.ends, {**given.known_nodes, **(num_nodes or {})}
    check_end_types(x_dict, edges, kwargs, known, in_full=num_nodes is not None)
    counts = _count_nodes(x_dict, edges, kwargs, known)
    given.check_sizes(counts)
    sizes = tuple(counts.values()), tuple(value.size(1) for value in edges.values())
    packer = _Packer(sizes, {**_numbered(counts), **_numbered(edges)})
    packer.add("x", x_dict)
    packer.add(EDGE_VALUE, given.values)
    flat = _FlatArguments(packer, counts, level)
    for name, value in kwargs.items():
        flat.add(name, value)
    device = next((v.device for v in [*_tensors(x_dict), *edges.values()]), torch.device("cpu"))
    if level is ModelTaskLevel.graph and "batch_dict" in forward_parameters(model):
        flat.add_batch(device)
    columns, column_roles = packer.columns(device)
    pairs_name, pairs_key = flat.pairs
    schema = HeteroSchema(
        tuple(counts), tuple(edges), tuple(packer.fields), tuple(packer.empty), tuple(flat.names), pairs_name, pairs_key
    )
    schema = replace(schema, forms=tuple(given.forms.items()))
    types, type_roles = _type_arguments(schema, sizes, device)
    if any(isinstance(layer, HANConv) for layer in model.modules()):  # it averages over all nodes of a graph
        types[NODE_GRAPH], type_roles[NODE_GRAPH] = torch.zeros_like(types[NODE_TYPE]), Role.BATCH
    features = columns.pop("x", torch.zeros(sum(sizes[0]), 1, device=device)).detach()
    edge_index = _join_edges(edges, counts, device)
    arguments = {**types, **flat.values, **columns}
    check_devices(model, {"x": features, "edge_index": edge_index, **arguments})
    for name, key, value in packer.given:
        check_precision(f"{name}[{key!r}]", value)
        check_finite(f"{name}[{key!r}]", value)
    roles = {**type_roles, **flat.roles, **column_roles}
    return HeteroGraph(schema, ModelInputs(features, edge_index, arguments, pairs_name, known_roles=roles), sizes)


def _join_edges(edges: Mapping[EdgeType, Tensor], counts: Mapping[str, int], device: torch.device) -> Tensor:
    """Edges of all types in the flat numbering, checked, [2, E]."""
    start = dict(zip(counts, offsets(torch.tensor(list(counts.values()))).tolist(), strict=False))
    found = [torch.zeros(2, 0, dtype=torch.long, device=device)]
    for key, value in edges.items():
        for row, end in ((0, key[0]), (1, key[2])):
            check_node_numbers(f"Row {row} of the edges {key}", value[row], counts[end])
        found.append(value + value.new_tensor([[start[key[0]]], [start[key[2]]]]))
    return torch.cat(found, 1)


def _type_arguments(
    schema: HeteroSchema, sizes: tuple[tuple[int, ...], tuple[int, ...]], device: torch.device
) -> tuple[dict[str, Any], dict[str, Role]]:
    """Types of nodes and edges as arguments of the flat graph, and their roles."""
    node, edge = (torch.repeat_interleave(torch.arange(len(one)), torch.tensor(one, dtype=torch.long)) for one in sizes)
    kinds = torch.tensor(schema.kinds, dtype=torch.long)
    values = {NODE_TYPE: node.to(device), EDGE_TYPE: edge.to(device), EDGE_KIND: kinds[edge].to(device)}
    counts = {NODE_TYPES: len(sizes[0]), EDGE_TYPES: len(sizes[1])}
    roles = {NODE_TYPE: Role.NODE, EDGE_TYPE: Role.EDGE, EDGE_KIND: Role.EDGE}
    return {**values, **counts}, roles | dict.fromkeys(counts, Role.SHARED)


class _FlatArguments:
    """Arguments besides features and edges, as those of the flat graph.

    Args:
        packer: takes the dictionaries with one entry per node or edge.
        counts: number of nodes of each type.
        level: what the model's rows stand for.
    """

    def __init__(self, packer: _Packer, counts: Mapping[str, int], level: ModelTaskLevel) -> None:
        self.packer, self.counts, self.level = packer, counts, level
        self.values: dict[str, Any] = {}
        self.roles: dict[str, Role] = {}
        self.names: list[str] = []
        self.pairs: tuple[str | None, EdgeType | None] = None, None

    def add(self, name: str, value: Any) -> None:
        """Add an argument."""
        if self.level is ModelTaskLevel.edge and name.startswith("edge_label_index"):
            key, self.values[name] = check_pairs(name, value)
            self.roles[name], self.pairs = Role.PAIR_INDEX, (name, key)
        elif isinstance(value, Mapping) and name == "batch_dict":
            self.values["batch"], self.roles["batch"] = join_batches(value, self.counts), Role.BATCH
        elif isinstance(value, Mapping) and self.packer.fits(value):
            self.names.append(name)
            self.packer.add(name, value)
        else:
            self.values[name], self.roles[name] = value, Role.SHARED

    def add_batch(self, device: torch.device) -> None:
        """Say that all nodes belong to one graph, unless the caller has said otherwise."""
        zeros = torch.zeros(sum(self.counts.values()), dtype=torch.long, device=device)
        self.values.setdefault("batch", zeros)
        self.roles["batch"] = Role.BATCH


class _Packer:
    """Collects dictionaries by type, and puts them into few columns of the flat graph.

    Args:
        sizes: nodes of each node type, and edges of each edge type.
        number: number of each node type and edge type.
    """

    def __init__(self, sizes: tuple[tuple[int, ...], tuple[int, ...]], number: Mapping[TypeKey, int]) -> None:
        self.sizes, self.number = sizes, number
        self.given: list[tuple[str, TypeKey, Tensor]] = []
        self.empty: list[tuple[str, TypeKey]] = []
        self.fields: list[Field] = []

    def fits(self, values: Mapping[Any, Any]) -> bool:
        """Whether a dictionary has one entry per node or per edge of its types."""
        known = all(key in self.number for key in values)
        return known and all(
            value is None or (isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == self._size(key))
            for key, value in values.items()
        )

    def _size(self, key: TypeKey) -> int:
        return self.sizes[isinstance(key, tuple)][self.number[key]]

    def add(self, name: str, values: Mapping[Any, Any]) -> None:
        """Add a dictionary argument."""
        for key, value in values.items():
            if value is None:
                self.empty.append((name, key))
            else:
                self.given.append((name, key, leave_inference_mode(value)))

    def columns(self, device: torch.device) -> tuple[dict[str, Tensor], dict[str, Role]]:
        """All values as columns of the flat graph, and their roles; features that can be masked come first, as ``x``."""
        groups: dict[Any, list[tuple[str, TypeKey, Tensor]]] = {}
        for name, key, value in self.given:
            layout = value.dtype, isinstance(key, tuple), 2 if value.dim() == 2 else tuple(value.shape[1:])
            groups.setdefault((name, layout), []).append((name, key, value))
        features = [group for group in groups if group[0] == "x"]
        main = next((one for one in features if one[1][0].is_floating_point and one[1][2] == 2), (features or [None])[0])
        columns: dict[str, Tensor] = {}
        roles: dict[str, Role] = {}
        for n, (group, members) in enumerate(groups.items()):
            column = "x" if group == main else f".{group[0]}.{n}"
            columns[column] = self._join(members, device)
            roles[column] = Role.EDGE if group[1][1] else Role.NODE
            numbers = group[1][0].is_floating_point
            self.fields += [Field(name, key, column, tuple(value.shape[1:]), numbers) for name, key, value in members]
        roles.pop("x", None)
        return columns, roles

    def _join(self, members: Sequence[tuple[str, TypeKey, Tensor]], device: torch.device) -> Tensor:
        """One column for all nodes (or edges): each type's values in its block, padded with zeros."""
        first, sizes = members[0][2], self.sizes[isinstance(members[0][1], tuple)]
        shape = [max(value.size(1) for _, _, value in members)] if first.dim() == 2 else list(first.shape[1:])
        if len(sizes) == 1:
            return first
        start = offsets(torch.tensor(sizes)).tolist()
        column = torch.zeros(sum(sizes), *shape, dtype=first.dtype, device=device)
        for _, key, value in members:
            rows = column[start[self.number[key]] : start[self.number[key]] + len(value)]
            (rows[:, : value.size(1)] if first.dim() == 2 else rows).copy_(value.detach())
        return column


def _numbered(kinds: Iterable[TypeKey]) -> dict[TypeKey, int]:
    return {key: number for number, key in enumerate(kinds)}


def _tensors(values: Mapping[Any, Any]) -> Iterable[Tensor]:
    return (value for value in values.values() if isinstance(value, Tensor))


def _count_nodes(
    x_dict: Mapping[str, Any],
    edges: Mapping[EdgeType, Tensor],
    kwargs: Mapping[str, Any],
    given: Mapping[str, int],
) -> dict[str, int]:
    """Number of nodes of each type, in the order of the features, then of the edges."""
    counts = {key: -1 if value is None else value.size(0) for key, value in x_dict.items()}
    for source, _, target in edges:
        counts.setdefault(source, -1)
        counts.setdefault(target, -1)
    counts |= {key: number for key, number in given.items() if counts.get(key, -1) < 0}
    for value in kwargs.values():
        for key, one in value.items() if isinstance(value, Mapping) else ():
            if counts.get(key) == -1 and isinstance(one, Tensor) and one.dim():
                counts[key] = one.size(0)
    for key in [key for key, number in counts.items() if number < 0]:
        ends = [value[row] for kind, value in edges.items() for row, end in ((0, kind[0]), (1, kind[2])) if end == key]
        counts[key] = max((int(end.max()) + 1 for end in ends if end.numel()), default=0)
    return counts
