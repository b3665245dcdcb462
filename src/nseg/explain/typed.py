"""Explanations of heterogeneous graphs: from the flat graph to masks by type, and back."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.explanation import Explanation
from nseg.graph_types import GraphTypes
from nseg.graphs.baseline import ABSENT
from nseg.graphs.inputs import EDGE_VALUE
from nseg.hetero_explanation import PER_ATTRIBUTE, PER_EDGE, PER_NODE, HeteroExplanation
from nseg.model.hetero import TypedEdges


def to_types(flat: Explanation, typed: TypedEdges, common: bool) -> HeteroExplanation:
    """An explanation with masks by type, from one of the flat graph.

    Args:
        flat: masks and numbers.
        typed: nodes and edges of its graph by type.
        common: whether node masks are of features common to all nodes of a type.
    """
    schema, found = typed.schema, HeteroExplanation()
    for name, value in flat.to_dict().items():
        if name in PER_EDGE:
            for kind, edges in zip(schema.edge_types, typed.edges, strict=True):
                found[kind][name] = value[edges]
        elif name in PER_NODE:
            deleted = (flat.get("settings") or {}).get("baseline") == ABSENT  # nodes without features can be, too
            for number, (node_type, field) in enumerate(zip(schema.node_types, schema.maskable, strict=True)):
                if field is not None or deleted:
                    rows = value[number : number + 1] if common else value[typed.nodes[number]]
                    found[node_type][name] = rows if field is None or value.size(1) == 1 else rows[:, : field.width]
        elif name in PER_ATTRIBUTE:
            of_all = (flat.get("settings") or {}).get("edge_attributes") == MaskType.common_attributes.value
            for number, field in enumerate(schema.edge_attributes):
                if field is not None:
                    rows = value[number : number + 1] if of_all else value[typed.edges[number]]
                    found[field.key][name] = rows[:, : field.width]
        else:
            found[name] = value
    for node_type, nodes in zip(schema.node_types, typed.nodes, strict=True):
        if node_type not in schema.features:
            found[node_type].num_nodes = nodes.numel()
    return found


def fill_graph(found: HeteroExplanation, flat: Explanation, typed: TypedEdges, types: GraphTypes) -> None:
    """Put the graph of a flat explanation, its numbers in the caller's graph and the model's output into one by type.

    Args:
        found: the explanation by type.
        flat: the explanation of the flat graph.
        typed: nodes and edges of its graph by type.
        types: the types of the caller's flat graph.
    """
    schema = typed.schema
    for field in (one for one in schema.fields if one.argument != EDGE_VALUE):
        at = typed.members(field.key)
        found[field.key][field.argument.removesuffix("_dict")] = field.cut(flat[field.column][at])
    for node_type, nodes, start in zip(schema.node_types, typed.nodes, types.node_starts, strict=False):
        found[node_type].node_id = flat.node_id[nodes] - start
        if flat.get("batch") is not None:
            found[node_type].batch = flat.batch[nodes]
    for number, kind in enumerate(schema.edge_types):
        found[kind].edge_index = typed.edge_index[number]
        found[kind].edge_id = flat.edge_id[typed.edges[number]] - types.edge_starts[number]
    rows = slice(None) if schema.output is None else typed.members(schema.output)
    prediction, index = flat.get("prediction"), flat.get("index")  # None is not stored
    found.prediction = None if prediction is None else prediction[rows]
    found.target = flat.target[rows] if len(flat.target) == len(typed.local) else flat.target  # given classes are by type
    found.index = index if schema.output is None or index is None else typed.local[index]
    if schema.pairs_name is not None:
        found[schema.pairs_name] = typed.local[flat[schema.pairs_name]]


def masks_to_flat(one: Any, typed: TypedEdges, common: bool) -> Explanation:
    """The masks of an explanation on the flat graph: 0 where a type has none."""
    flat, schema = Explanation(), typed.schema
    for name in PER_EDGE:
        masks = [one[kind].get(name) for kind in schema.edge_types]
        if any(mask is not None for mask in masks):
            flat[name] = _join(masks, typed.edges, len(typed.edge_type))
    for name in PER_NODE:
        masks = [one[kind].get(name) for kind in schema.node_types]
        if any(mask is not None for mask in masks):
            rows = [at.new_tensor([n]) for n, at in enumerate(typed.nodes)] if common else typed.nodes
            flat[name] = _join(masks, rows, len(rows) if common else len(typed.local))
    for name in PER_ATTRIBUTE:
        masks = [one[kind].get(name) for kind in schema.edge_types]
        if any(mask is not None for mask in masks):
            of_all = (one.get("settings") or {}).get("edge_attributes") == MaskType.common_attributes.value
            rows = [at.new_tensor([n]) for n, at in enumerate(typed.edges)] if of_all else typed.edges
            flat[name] = _join(masks, rows, len(rows) if of_all else len(typed.edge_type))
    return flat


def _join(masks: list[Tensor | None], rows: list[Tensor], number: int) -> Tensor:
    """Masks of all types as one with ``number`` rows; each type's are put into its rows."""
    known = [mask for mask in masks if mask is not None]
    flat = known[0].new_zeros(number, *([max(mask.size(1) for mask in known)] if known[0].dim() == 2 else []))
    for mask, at in zip(masks, rows, strict=True):
        if mask is not None and mask.dim() == 2:
            flat[at, : mask.size(1)] = mask
        elif mask is not None:
            flat[at] = mask
    return flat
