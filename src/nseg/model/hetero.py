"""A heterogeneous model as a model of one flat graph: dictionaries are made where the borrowed model is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError, ModelError
from nseg.graph_types import TypeKey
from nseg.graphs.checks import check_node_numbers
from nseg.graphs.hetero import HeteroGraph, HeteroSchema, flatten_graph
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
from nseg.model.borrow import wrap_model_errors
from nseg.model.semantic_attention import separate_graphs_in_attention
from nseg.model.slow_runs import raise_own_fault

Dictionary = dict[Any, Any]


@dataclass(frozen=True)
class TypedEdges:
    """Nodes and edges of a flat graph by type.

    Args:
        schema: the types.
        nodes: positions of the nodes of each type, in order.
        edges: positions of the edges of each type.
        edge_type: type of each edge, [E].
        local: number of each node among those of its type, [N].
        edge_index: edges of each type in the numbers of their types, [2, E] each.
    """

    schema: HeteroSchema
    nodes: list[Tensor]
    edges: list[Tensor]
    edge_type: Tensor
    local: Tensor
    edge_index: list[Tensor]

    def members(self, key: TypeKey) -> Tensor:
        """Positions of the nodes of a node type, or of the edges of an edge type."""
        if isinstance(key, str):
            return self.nodes[self.schema.node_types.index(key)]
        return self.edges[self.schema.edge_types.index(key)]

    @classmethod
    def of(cls, schema: HeteroSchema, edge_index: Tensor, node_type: Tensor, edge_type: Tensor) -> TypedEdges:
        """Sort a flat graph by type."""
        nodes = [(node_type == n).nonzero().flatten() for n in range(len(schema.node_types))]
        edges = [(edge_type == n).nonzero().flatten() for n in range(len(schema.edge_types))]
        local = torch.empty_like(node_type)
        for some in nodes:
            local[some] = torch.arange(some.numel(), device=some.device)
        return cls(schema, nodes, edges, edge_type, local, [local[edge_index[:, some]] for some in edges])


def sort_by_type(schema: HeteroSchema, inputs: ModelInputs) -> TypedEdges:
    """Nodes and edges of a flat graph by type."""
    return TypedEdges.of(schema, inputs.edge_index, inputs.kwargs[NODE_TYPE], inputs.kwargs[EDGE_TYPE])


class HeteroModel(nn.Module):
    """A model of dictionaries, called with a flat graph.

    Args:
        model: the model, borrowed.
        schema: the types, and how dictionaries become a flat graph.
    """

    def __init__(self, model: nn.Module, schema: HeteroSchema) -> None:
        super().__init__()
        self.model, self.schema = model, schema
        # a list, because attributes that are assigned in a forward pass do not outlive it (borrow.keep_attributes)
        self._latest: list[tuple[tuple[Tensor, ...], TypedEdges]] = []

    @property
    def adapted_name(self) -> str:
        """What the model is called in warnings."""
        return type(self.model).__name__

    @property
    def typed_edges(self) -> TypedEdges:
        """Nodes and edges of the latest call by type."""
        ((_, typed),) = self._latest
        return typed

    def _sort(self, *flat: Tensor) -> TypedEdges:
        """Nodes and edges by type; kept, because the worlds of a search share them."""
        if not self._latest or any(a is not b for a, b in zip(self._latest[0][0], flat, strict=True)):
            self._latest[:] = [(flat, TypedEdges.of(self.schema, *flat))]
        return self.typed_edges

    def forward(self, x: Tensor, edge_index: Tensor, **flat: Any) -> Tensor:
        """The model's output; at node level one row per node of the flat graph, arbitrary for nodes of other types."""
        features, edges, rest = self.arguments(x, edge_index, flat)
        known, names = flat.get(NODE_GRAPH), self.schema.node_types
        graphs = {} if known is None else {k: known[at] for k, at in zip(names, self.typed_edges.nodes, strict=True)}
        with separate_graphs_in_attention(self.model, graphs):
            output: Tensor = self.model(features, edges, **rest)
        return output if self.schema.output is None else self._spread(output, self.typed_edges, len(x))

    def arguments(self, x: Tensor, edge_index: Tensor, flat: Mapping[str, Any]) -> tuple[Dictionary, Dictionary, Dictionary]:
        """What the model itself is called with: features and edges by type, and further arguments."""
        schema, typed = self.schema, self._sort(edge_index, flat[NODE_TYPE], flat[EDGE_TYPE])
        given = self._dictionaries(typed, {"x": x, **flat})
        types = {NODE_TYPE, NODE_GRAPH, EDGE_TYPE, EDGE_KIND, NODE_TYPES, EDGE_TYPES}
        columns = {*types, *(field.column for field in schema.fields)}
        rest = {name: value for name, value in flat.items() if name not in columns}
        if "batch" in rest:
            batch = rest.pop("batch")
            rest["batch_dict"] = {name: batch[typed.nodes[n]] for n, name in enumerate(schema.node_types)}
        if schema.pairs_name is not None and schema.pair_types is not None:
            pairs = typed.local[rest[schema.pairs_name]]
            rest[schema.pairs_name] = pairs if schema.pairs_key is None else {schema.pairs_key: pairs}
        edges: Dictionary = dict(zip(schema.edge_types, typed.edge_index, strict=True))
        values = given.pop(EDGE_VALUE)
        for key, form in schema.forms:
            size = typed.members(key[2]).numel(), typed.members(key[0]).numel()
            edges[key] = form.matrix(edges[key], values.get(key), size)
        return given.pop("x"), edges, {**given, **rest}

    def output_rows(self, inputs: ModelInputs, output: Tensor) -> Tensor:
        """Rows of the flat output that stand for something."""
        if self.schema.output is None:
            return torch.arange(len(output), device=output.device)
        rows: Tensor = (inputs.kwargs[NODE_TYPE] == self.schema.type_number(self.schema.output)).nonzero().flatten()
        return rows

    def _dictionaries(self, typed: TypedEdges, flat: Mapping[str, Any]) -> dict[str, Dictionary]:
        """Dictionary arguments by name, from the columns of the flat graph."""
        schema = self.schema
        given: dict[str, Dictionary] = {name: {} for name in ("x", EDGE_VALUE, *schema.arguments)}
        for name, key in schema.empty:
            given[name][key] = None
        for field in schema.fields:
            given[field.argument][field.key] = field.cut(_take(flat[field.column], typed.members(field.key)))
        order = {key: n for n, key in enumerate([*schema.node_types, *schema.edge_types])}
        return {name: {key: value[key] for key in sorted(value, key=order.__getitem__)} for name, value in given.items()}

    def _spread(self, output: Any, typed: TypedEdges, nodes: int) -> Any:
        """Output rows of one node type, at the places of its nodes among all nodes."""
        assert self.schema.output is not None
        at = typed.nodes[self.schema.type_number(self.schema.output)]
        if not isinstance(output, Tensor) or output.dim() == 0 or len(output) != at.numel():
            return output
        if at.numel() == nodes:
            return output
        return output[:1].detach().expand(nodes, *output.shape[1:]).index_copy(0, at, output)


def _take(column: Tensor, at: Tensor) -> Tensor:
    """Rows of a column; without a copy if they stand together."""
    if at.numel() and int(at[-1]) - int(at[0]) + 1 == at.numel():
        return column[int(at[0]) : int(at[-1]) + 1] if at.numel() < len(column) else column
    return column[at]


# --- what rows and pairs stand for -----------------------------------------------------------------------------------------


def adapt(
    model: nn.Module,
    x_dict: Any,
    edge_index_dict: Any,
    kwargs: Mapping[str, Any],
    level: ModelTaskLevel,
    nodes: bool,
    num_nodes: Mapping[str, int] | None = None,
    lenient: bool = False,
    output: str | tuple[str, str] | None = None,
) -> tuple[HeteroModel, HeteroGraph]:
    """The model as one of flat graphs, and the caller's graph flattened.

    Which node type the model's rows stand for (node level), and which types its pairs join (link level), is found out by
    running the model: nodes of each type change places, and the output must follow those of the right type.

    Args:
        model: the model, borrowed.
        x_dict, edge_index_dict, kwargs, level, num_nodes: as :func:`nseg.graphs.hetero.flatten_graph` takes them.
        nodes: whether features will be masked.
        lenient: whether a model that is said to be of links or graphs may return a row per node of one type, as PyG lets it.
        output: node type that the model's rows stand for, or both types that its pairs join, if that is known.
    """
    graph = flatten_graph(model, x_dict, edge_index_dict, kwargs, level, num_nodes)
    schema = graph.schema
    if nodes and not any(schema.maskable):
        raise InputError(
            f"A node mask needs a node type with features, floating point [nodes, features] (got none among "
            f"{', '.join(schema.node_types)}). Explain edges only: node_mask_type=None."
        )
    if isinstance(output, str):
        schema = replace(schema, output=output)
        return HeteroModel(model, schema), replace(graph, schema=schema)
    if lenient and level is not ModelTaskLevel.node and schema.pairs_name is None and _gives_rows_of_nodes(model, graph):
        level = ModelTaskLevel.node
    if level is ModelTaskLevel.graph:
        return HeteroModel(model, schema), graph
    if level is ModelTaskLevel.edge and schema.pairs_name is None:
        raise InputError(
            "A link model of a heterogeneous graph must get its pairs as edge_label_index=..., [2, pairs] (got none)."
        )
    try:
        with wrap_model_errors():
            return _adapt_links(model, graph, output) if level is ModelTaskLevel.edge else _adapt_nodes(model, graph)
    except ModelError as error:
        if error.__cause__ is None:  # not what the model raised itself
            raise
        raise ModelError(f"{error} The graph is heterogeneous, so the model gets dictionaries by type.") from error.__cause__


def _gives_rows_of_nodes(model: nn.Module, graph: HeteroGraph) -> bool:
    """Whether the model returns a row per node of one type, and not one per graph."""
    inputs = graph.inputs
    try:
        with torch.no_grad():
            output = HeteroModel(model, graph.schema)(inputs.x, inputs.edge_index, **inputs.kwargs)
    except Exception as error:  # what is wrong is said where the model is called in earnest
        raise_own_fault(error)
        return False
    rows = len(output) if isinstance(output, Tensor) and output.dim() else 0
    return rows != inputs.num_graphs and rows in graph.sizes[0]


def _adapt_nodes(model: nn.Module, graph: HeteroGraph) -> tuple[HeteroModel, HeteroGraph]:
    schema, inputs = graph.schema, graph.inputs
    with torch.no_grad():
        plain = HeteroModel(model, schema)(inputs.x, inputs.edge_index, **inputs.kwargs)
    if not isinstance(plain, Tensor):
        raise ModelError(f"The model must return one tensor (got {type(plain).__name__}). Wrap it so that it does.")
    rows = len(plain) if plain.dim() else 0
    fitting = [n for n, size in enumerate(graph.sizes[0]) if size == rows]
    if not fitting:
        sizes = ", ".join(f"{size} {name}" for name, size in zip(schema.node_types, graph.sizes[0], strict=True))
        raise ModelError(
            f"A model of task level 'node' must return one row per node of one type (got {rows} rows for {sizes}). Check "
            "task_level in model_config."
        )
    chosen = fitting[0] if len(fitting) == 1 else _follow_rows(model, graph, plain, fitting)
    schema = replace(schema, output=schema.node_types[chosen])
    return HeteroModel(model, schema), replace(graph, schema=schema)


def _follow_rows(model: nn.Module, graph: HeteroGraph, plain: Tensor, fitting: list[int]) -> int:
    """The node type whose nodes the output's rows follow when nodes change places."""
    schema = graph.schema
    moved, order = _permute(graph)
    with torch.no_grad():
        output = HeteroModel(model, schema)(moved.x, moved.edge_index, **moved.kwargs)
    found = [n for n in fitting if _close(output, plain[order[n]])]
    if not found:
        names = " and ".join(repr(schema.node_types[n]) for n in fitting)
        raise ModelError(
            f"The node type of the model's rows must be clear (got {len(plain)} rows, and as many nodes of types {names}). "
            "Add a node without edges to one of them."
        )
    return found[0]


def _adapt_links(
    model: nn.Module, graph: HeteroGraph, known: tuple[str, str] | None = None
) -> tuple[HeteroModel, HeteroGraph]:
    schema, inputs = graph.schema, graph.inputs
    name, pairs, sizes = schema.pairs_name, inputs.pairs, graph.sizes[0]
    assert name is not None
    assert pairs is not None

    def flat(types: tuple[int, int], local: Tensor) -> Tensor:
        return local + local.new_tensor([[graph.starts[0][types[0]]], [graph.starts[0][types[1]]]])

    def adapted(types: tuple[int, int], local: Tensor = pairs) -> tuple[HeteroModel, HeteroGraph]:
        found = replace(schema, pair_types=(schema.node_types[types[0]], schema.node_types[types[1]]))
        kwargs = {**inputs.kwargs, name: flat(types, local)}
        return HeteroModel(model, found), replace(graph, schema=found, inputs=replace(inputs, kwargs=kwargs))

    for row in (0, 1):
        check_node_numbers(f"Row {row} of {name}", pairs[row], max(sizes))
    if schema.pairs_key is not None:
        source, _, target = schema.pairs_key
        if source not in schema.node_types or target not in schema.node_types:
            raise InputError(
                f"The edge type of {name} must join node types of the graph (got {schema.pairs_key}; the graph has "
                f"{', '.join(schema.node_types)})."
            )
        types = schema.type_number(source), schema.type_number(target)
        for row in (0, 1):
            check_node_numbers(f"Row {row} of {name}", pairs[row], sizes[types[row]])
        return adapted(types)
    if known is not None:
        return adapted((schema.type_number(known[0]), schema.type_number(known[1])))
    every = product(range(len(sizes)), range(len(sizes)))
    fitting = [t for t in every if all(int(pairs[row].max()) < sizes[t[row]] for row in (0, 1))]
    if len(fitting) > 1:
        moved, order = _permute(graph)
        place = [torch.empty_like(one).scatter_(0, one, torch.arange(len(one), device=one.device)) for one in order]
        with torch.no_grad():
            plain = HeteroModel(model, schema)(inputs.x, inputs.edge_index, **inputs.kwargs)
            for types in fitting:
                local = torch.stack([place[types[0]][pairs[0]], place[types[1]][pairs[1]]])
                try:
                    output = HeteroModel(model, schema)(moved.x, moved.edge_index, **{**moved.kwargs, name: local})
                except Exception as error:  # another type may have fewer nodes than the model looks up
                    raise_own_fault(error)
                    continue
                if _close(output, plain):
                    return adapted(types)
        raise ModelError(
            f"The node types that {name} joins must be clear (they are not). Give it as a dictionary: "
            f"{name}={{(source, relation, target): pairs}}."
        )
    return adapted(fitting[0])


def _permute(graph: HeteroGraph) -> tuple[ModelInputs, list[Tensor]]:
    """The flat graph with the nodes of each type in another order, and the order of each type."""
    inputs, device = graph.inputs, graph.inputs.x.device
    rng = torch.Generator().manual_seed(0)
    order = [torch.randperm(size, generator=rng).to(device) for size in graph.sizes[0]]
    whole = torch.cat([one + start for one, start in zip(order, graph.starts[0], strict=True)])
    place = torch.empty_like(whole).scatter_(0, whole, torch.arange(len(whole), device=device))
    roles = inputs.known_roles
    kwargs = {k: v[whole] if roles.get(k) in (Role.NODE, Role.BATCH) else v for k, v in inputs.kwargs.items()}
    return replace(inputs, x=inputs.x[whole], edge_index=place[inputs.edge_index], kwargs=kwargs), order


def _close(a: Any, b: Tensor) -> bool:
    """Whether two outputs agree up to rounding."""
    return isinstance(a, Tensor) and a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-5)
