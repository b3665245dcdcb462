"""Explanations of heterogeneous graphs as explanations of flat graphs, so that every metric takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer
from torch_geometric.explain import HeteroExplanation as PyGHeteroExplanation
from torch_geometric.explain.config import MaskType

from nseg.errors import InputError
from nseg.explain.jobs.hetero import adapt_data
from nseg.explain.typed import masks_to_flat
from nseg.explanation import Explanation
from nseg.graphs.baseline import FeatureBaseline
from nseg.graphs.hetero import HeteroGraph
from nseg.graphs.inputs import EDGE_TYPE, NODE_TYPE, Role
from nseg.graphs.typed_baseline import TypedBaseline, features_by_type
from nseg.model.borrow import unwrap_compiled
from nseg.model.hetero import HeteroModel, TypedEdges


def flatten_for_metrics(
    explainer: Explainer, data: Any, explanations: Sequence[PyGHeteroExplanation]
) -> tuple[HeteroModel, Data | list[Data], list[Explanation]]:
    """The model, the graph (or graphs) and the explanations of heterogeneous graphs, all of them flat.

    Args:
        explainer: the explainer that made them, or any for the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: explanations of them.
    """
    model, level = unwrap_compiled(explainer.model), explainer.model_config.task_level
    one_graph = isinstance(data, HeteroData)
    if one_graph == (level.value == "graph"):
        raise InputError(
            f"data must be what was explained (got {type(data).__name__} at {level.value} level). Give the same graph, or "
            "list of graphs, as to explain_many."
        )
    common = explainer.node_mask_type is MaskType.common_attributes
    adapted = [adapt_data(model, one, {}, level, False) for one in ([data] if one_graph else data)]
    graphs = [graph for _, graph in adapted]
    flat = []
    for one in explanations:
        number = _output_id(one)
        if not one_graph and number >= len(graphs):
            raise InputError(f"data must be what was explained (got {len(graphs)} graphs, and an explanation of {number}).")
        flat.append(_flatten(one, graphs[0 if one_graph else number], number, common, explainer))
    whole = [Data(x=g.inputs.x, edge_index=g.inputs.edge_index, **g.inputs.kwargs) for g in graphs]
    return adapted[0][0], whole[0] if one_graph else whole, flat


def missing_features(
    model: nn.Module, data: Any, settings: Mapping[str, Any]
) -> Callable[[Tensor, Mapping[str, Any]], Tensor | None]:
    """What masked features become, as a function of the features and the further arguments of a (flat) graph.

    Args:
        model: the model, which is a :class:`HeteroModel` if the graph was heterogeneous.
        data: what was explained, as the caller gave it.
        settings: those of the explanations.
    """
    asked, seed = settings.get("baseline"), settings.get("seed", 0)
    if not isinstance(model, HeteroModel):
        plain = FeatureBaseline.of(asked, data, seed)
        return lambda x, _: plain.rows(x)
    graphs, schema = [data] if isinstance(data, HeteroData) else data, model.schema
    typed = TypedBaseline.of(asked, map(features_by_type, graphs), seed)
    return lambda x, given: typed.rows(x, given[NODE_TYPE], schema.maskable, schema.node_types)


def _output_id(one: Any) -> int:
    """Number of the explained output."""
    if one.get("output_id") is not None:
        return int(one.output_id)
    index = one.get("index")
    if index is None:
        return 0
    rows = torch.as_tensor(index).flatten()
    if rows.numel() != 1:
        raise InputError(
            f"Each explanation must be of one output (got one of {rows.numel()}). Explain them one by one with explain_many."
        )
    return int(rows)


def _ids(one: Any, types: Sequence[Any], name: str, starts: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Flat numbers of an explanation's nodes or edges, type after type."""
    own = [one[kind].get(name) for kind in types]
    return torch.cat(
        [(torch.arange(size) if ids is None else ids) + start for ids, start, size in zip(own, starts, sizes, strict=True)]
        or [torch.zeros(0, dtype=torch.long)]
    )


def _flatten(one: Any, graph: HeteroGraph, number: int, common: bool, explainer: Explainer) -> Explanation:
    schema, inputs = graph.schema, graph.inputs
    device = inputs.x.device
    node_id = _ids(one, schema.node_types, "node_id", graph.starts[0], graph.sizes[0]).to(device)
    edge_id = _ids(one, schema.edge_types, "edge_id", graph.starts[1], graph.sizes[1]).to(device)
    if (node_id.numel() and int(node_id.max()) >= inputs.num_nodes) or (
        edge_id.numel() and int(edge_id.max()) >= inputs.num_edges
    ):
        raise InputError("data must be what was explained (got a graph with fewer nodes or edges). Give the same graph.")
    edge_index = torch.searchsorted(node_id, inputs.edge_index[:, edge_id])
    kept = {Role.NODE: node_id, Role.EDGE: edge_id, Role.BATCH: node_id}
    roles = inputs.known_roles
    kwargs = {name: value[kept[roles[name]]] if roles.get(name) in kept else value for name, value in inputs.kwargs.items()}
    row, index = 0, None
    if schema.output is not None:
        row = int(torch.searchsorted(node_id, graph.starts[0][schema.type_number(schema.output)] + number))
        index = torch.tensor([row], device=device)
    elif schema.pairs_name is not None:
        kwargs[schema.pairs_name] = torch.searchsorted(node_id, inputs.kwargs[schema.pairs_name][:, number : number + 1])
        index = torch.zeros(1, dtype=torch.long, device=device)
    typed = TypedEdges.of(schema, edge_index, kwargs[NODE_TYPE], kwargs[EDGE_TYPE])
    flat = masks_to_flat(one, typed, common)
    for name in ("node_mask", "hard_node_mask"):
        if common and flat.get(name) is not None:
            flat[name] = flat[name][kwargs[NODE_TYPE]]
    for name, value in one._global_store.items():
        if name not in ("prediction", "target", "index", *kwargs):
            flat[name] = value
    own = (
        torch.as_tensor(one.target).flatten()
        if one.get("index") is None
        else torch.as_tensor(one.target)[one.index].flatten()
    )
    flat.target = own.new_zeros(len(node_id)).index_fill(0, own.new_tensor([row], dtype=torch.long), own.item())
    flat.target = flat.target if schema.output else own  # a class, or the value of a regression
    flat.x, flat.edge_index, flat.index, flat.output_id = inputs.x[node_id], edge_index, index, number
    flat.edge_id, flat.node_id = edge_id, node_id
    for name, value in kwargs.items():
        flat[name] = value
    flat._model_args, flat._model_config = list(kwargs), explainer.model_config
    return flat
