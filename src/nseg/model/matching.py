"""Which edges of the model's input a layer's edges are."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nseg.adjacency import MatrixForm
from nseg.errors import ModelError
from nseg.graphs.inputs import ModelInputs
from nseg.graphs.subgraph import MAX_PARALLEL_EDGES, edge_keys
from nseg.model.hetero import HeteroModel, TypedEdges


class MatchedEdges(NamedTuple):
    """The edges of a layer's messages.

    Attributes:
        edge: position of each in the model's ``edge_index``, -1 for self-loops that the layer added, [M].
        ends: their nodes in the numbering of the model's input, in the order of the layer's own rows, [2, M].
    """

    edge: Tensor
    ends: Tensor


def match_edges(
    model: nn.Module, inputs: ModelInputs, layer: MessagePassing, edge_index: Any, kwargs: dict[str, Any], name: str
) -> MatchedEdges:
    """Position in ``inputs.edge_index`` of each edge that a layer uses; -1 for self-loops that the layer added.

    Edges are recognised by their node numbers, which pooling or rewiring may change unnoticed:
    :func:`nseg.model.tracing.require_edge_identity` finds that out.
    """
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided or edge_index.is_floating_point():
        raise ModelError(
            f"Layer '{name}' passes messages over a sparse matrix, which edge masks do not reach. Give the model "
            "edge_index as an integer tensor [2, E] (torch_geometric.utils.to_edge_index converts a sparse matrix)."
        )
    if isinstance(model, HeteroModel):
        return _match_typed(model.typed_edges, inputs, edge_index, name)
    if _receives_other_nodes(layer, kwargs, inputs.num_nodes):
        raise identity_error(name)
    return MatchedEdges(_find(edge_index, inputs.edge_index, inputs.num_nodes, name), edge_index)


class KnownMatches:
    """The edges of layers that see the same edges in every pass of the same graph, each matched once.

    Args:
        model: the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._found: dict[tuple[str, bool], tuple[Tensor, Tensor, Tensor]] = {}

    def find(self, layer: MessagePassing, name: str, args: tuple[Any, ...], inputs: ModelInputs) -> Tensor:
        """Position of each message's weight: that of its edge, or one after the last edge for an added self-loop, [M].

        Args:
            layer, name: the layer and its name.
            args: what its ``propagate`` is called with.
            inputs: the graph.
        """
        edge_index, kwargs = args[0], args[2]
        key = name, _receives_other_nodes(layer, kwargs, inputs.num_nodes)
        ours, theirs, known = self._found.get(key, (None, None, None))
        if ours is inputs.edge_index and isinstance(edge_index, Tensor) and _same(edge_index, theirs):
            assert known is not None
            return known
        edge = match_edges(self.model, inputs, layer, edge_index, kwargs, name).edge
        weight = torch.where(edge < 0, inputs.num_edges, edge)
        if not isinstance(self.model, HeteroModel):  # whose edges are matched by more than their numbers
            self._found[key] = inputs.edge_index, edge_index.clone(), weight
        return weight


def _same(edge_index: Tensor, known: Tensor | None) -> bool:
    return known is not None and edge_index.shape == known.shape and torch.equal(edge_index, known)


def _find(edge_index: Tensor, ours: Tensor, nodes: int, name: str, loops: bool = True) -> Tensor:
    """Position of each of a layer's edges among ours; -1 for self-loops, if they may have been added."""
    if edge_index.shape == ours.shape and (torch.equal(edge_index, ours) or torch.equal(edge_index, ours.flip(0))):
        return torch.arange(ours.size(1), device=edge_index.device)  # unchanged, or every edge reversed
    if edge_index.numel() and int(edge_index.max()) >= nodes:
        raise identity_error(name)
    proper = edge_index[0] != edge_index[1] if loops else torch.ones_like(edge_index[0], dtype=torch.bool)
    if not bool(proper.all()) and edge_index.shape == ours.shape:  # our own self-loops, in the order of a sparse matrix
        for form in (MatrixForm(torch.sparse_csr), MatrixForm(torch.sparse_csc)):
            order = form.order(ours)
            if torch.equal(edge_index, ours[:, order]):
                return order
    in_order = _find_in_order(edge_index, ours, proper) if loops else None
    if in_order is not None:
        return in_order
    theirs, own = edge_keys(edge_index[:, proper], nodes), edge_keys(ours, nodes)
    own_sorted, order = own.sort()
    position = torch.searchsorted(own_sorted, theirs).clamp(max=max(own.numel() - 1, 0))
    if theirs.numel() and (not own.numel() or not torch.equal(own_sorted[position], theirs)):
        raise identity_error(name)
    parallel = own_sorted % MAX_PARALLEL_EDGES > 0
    if bool(parallel.any()) and theirs.numel() != int((ours[0] != ours[1]).sum() if loops else ours.size(1)):
        raise ModelError(
            f"Layer '{name}' uses some of several parallel edges, and which ones cannot be determined. Merge parallel "
            "edges with torch_geometric.utils.coalesce."
        )
    edge = torch.full((edge_index.size(1),), -1, dtype=torch.long, device=edge_index.device)
    edge[proper] = order[position]
    return edge


def _find_in_order(edge_index: Tensor, ours: Tensor, proper: Tensor) -> Tensor | None:
    """The same for our edges in their order, with added self-loops after them, as most layers have it; else None."""
    own = (ours[0] != ours[1]).nonzero().flatten()
    number = own.numel()
    if bool(proper[number:].any()) or edge_index.size(1) < number or not torch.equal(edge_index[:, :number], ours[:, own]):
        return None
    return torch.cat([own, own.new_full((edge_index.size(1) - number,), -1)])


def _receives_other_nodes(layer: MessagePassing, kwargs: dict[str, Any], nodes: int) -> bool:
    """Whether a layer is given another number of nodes than the graph has."""
    x = kwargs.get("x")
    values = x if isinstance(x, tuple | list) else (x,)
    return any(isinstance(v, Tensor) and v.dim() > 1 and v.size(layer.node_dim) != nodes for v in values)


def identity_error(layer: str) -> ModelError:
    """The error for a layer whose edges are not edges of the graph."""
    return ModelError(
        f"Layer '{layer}' passes messages over edges that are not in edge_index, or over other nodes (pooling, "
        "rewiring), so a mask over edge_index does not say which messages to weigh. Explain the part of the model "
        "before that layer, or features only (edge_mask_type=None)."
    )


# --- edges of several types ----------------------------------------------------------------------------------------------


def _match_typed(typed: TypedEdges, inputs: ModelInputs, edge_index: Tensor, name: str) -> MatchedEdges:
    """The edges of a layer that sees one edge type, or all types one after the other (as ``HGTConv`` joins them)."""
    kind = _edge_type_of(typed, edge_index, name)
    if kind is None:
        edge = _match_joined(typed, edge_index)
        if edge is None:
            raise identity_error(name)
        return MatchedEdges(edge, inputs.edge_index[:, edge])
    source, target = typed.schema.ends[kind]
    nodes = max(typed.nodes[source].numel(), typed.nodes[target].numel(), 1)
    found = _find(edge_index, typed.edge_index[kind], nodes, name, loops=source == target)
    edge = torch.where(found < 0, -1, typed.edges[kind][found]) if typed.edges[kind].numel() else found
    ends = inputs.edge_index[:, edge] if inputs.num_edges else edge_index
    if bool((found < 0).any()):
        ends = torch.where(edge < 0, typed.nodes[source][edge_index], ends)
    if edge_index.shape == typed.edge_index[kind].shape and torch.equal(edge_index, typed.edge_index[kind].flip(0)):
        same = torch.equal(edge_index, typed.edge_index[kind])
        ends = ends if same else ends.flip(0)
    return MatchedEdges(edge, ends)


def _edge_type_of(typed: TypedEdges, edge_index: Tensor, name: str) -> int | None:
    """Number of the edge type that a layer sees; None if none fits.

    The tensor itself says it, if the model passes it on as it is; else the name of the layer, which ``to_hetero`` and
    ``HeteroConv`` choose by edge type; else the edges.
    """
    for kind, own in enumerate(typed.edge_index):
        if own.numel() and own.data_ptr() == edge_index.data_ptr() and own.shape == edge_index.shape:
            return kind
    for kind, edge_type in enumerate(typed.schema.edge_types):
        if any(form in name for form in ("<" + "___".join(edge_type) + ">", "__".join(edge_type))):
            return kind
    fitting, loops = [], []
    for kind, own in enumerate(typed.edge_index):
        source, target = typed.schema.ends[kind]
        nodes = max(typed.nodes[source].numel(), typed.nodes[target].numel(), 1)
        try:
            found = _find(edge_index, own, nodes, name, loops=source == target)
        except ModelError:
            continue
        if bool((found >= 0).any()) or not edge_index.numel():
            fitting.append(kind)
        elif edge_index.size(1) == typed.nodes[source].numel():  # one added self-loop per node, and no edge
            loops.append(kind)
    if len(fitting) > 1 and edge_index.numel():
        names = " and ".join(str(typed.schema.edge_types[kind]) for kind in fitting[:2])
        raise ModelError(
            f"Layer '{name}' passes messages over edges that are those of {names}, so a mask of one of them cannot be told "
            "from the other. Pass the tensors of edge_index_dict on as they are, or use HeteroConv."
        )
    return next(iter([*fitting, *loops]), None)


def _match_joined(typed: TypedEdges, edge_index: Tensor) -> Tensor | None:
    """Edges of several types one after the other, each block shifted by numbers of its own; None if they are not that.

    Senders are shifted by the nodes of all sending types before, so that each edge type has senders of its own.
    """
    found, position, shift = [], 0, 0
    forms = dict(typed.schema.forms)
    for kind, edge_type in enumerate(typed.schema.edge_types):
        own, at = typed.edge_index[kind], typed.edges[kind]
        if edge_type in forms:
            order = forms[edge_type].order(own)
            own, at = own[:, order], at[order]
        size, senders = own.size(1), typed.nodes[typed.schema.ends[kind][0]].numel()
        block = edge_index[:, position : position + size]
        if size and block.shape == own.shape:
            moved = block - own
            if bool((moved[0] == shift).all()) and bool((moved[1] == moved[1, 0]).all()):
                found.append(at)
                position += size
                shift += senders
        elif not size:
            shift += senders
    return torch.cat(found) if found and position == edge_index.size(1) else None
