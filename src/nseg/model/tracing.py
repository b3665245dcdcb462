"""Which edge of the caller's graph every message of a forward pass belongs to."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nseg.errors import ModelError
from nseg.graphs.inputs import ModelInputs
from nseg.graphs.subgraph import MAX_PARALLEL_EDGES, edge_keys
from nseg.model.hooks import call_model, hook_layers, message_passing_layers
from nseg.model.outcomes import Outcome


@dataclass(frozen=True)
class PropagateCall:
    """One call of ``propagate``: the edges over which a layer passed messages.

    Args:
        layer: name of the layer.
        edge: position of each message's edge in the model's ``edge_index``, -1 for self-loops that the layer adds, [M].
        edge_index: the layer's edges, [2, M].
        receiver: the row of ``edge_index`` that messages go to.
        per_edge: names of the arguments with one entry per message.
        constant: those of them that carry no gradient although features and parameters do: the layer seems to derive
            them from the graph alone.
        weighted: whether masks apply (PyG exempts layers with ``explain = False``).
    """

    layer: str
    edge: Tensor
    edge_index: Tensor
    receiver: int
    per_edge: tuple[str, ...]
    constant: dict[str, Tensor]
    weighted: bool


def trace_model(model: nn.Module, inputs: ModelInputs, outcome: Outcome) -> tuple[Tensor, list[PropagateCall]]:
    """Run the model once and record every message passing step."""
    names = {id(layer): name for name, layer in message_passing_layers(model).items()}
    calls: list[PropagateCall] = []
    hooked: set[int] = set()
    ran: set[int] = set()

    def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
        hooked.add(id(layer))
        calls.append(_record_call(layer, names[id(layer)], args, inputs))

    parameters = list(model.parameters())
    x = inputs.x.detach().clone()
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(hook_layers(model, on_propagate))
        for layer in message_passing_layers(model).values():
            stack.callback(layer.register_forward_hook(lambda module, *_: ran.add(id(module))).remove)
        try:
            for tensor in [x, *parameters]:
                if tensor.is_floating_point():
                    tensor.requires_grad_(True)
            output = call_model(model, replace(inputs, x=x), outcome)
        finally:
            for parameter in parameters:
                parameter.requires_grad_(False)
    for layer in message_passing_layers(model).values():
        if id(layer) in ran - hooked and not type(layer).propagate.__module__.endswith("_propagate"):
            raise ModelError(
                f"Layer '{names[id(layer)]}' ({type(layer).__name__}) has its own propagate(), which edge masks do not "
                "reach. Let it call MessagePassing.propagate, or explain features only (edge_mask_type=None)."
            )
    return output.detach(), calls


def _record_call(layer: MessagePassing, name: str, args: tuple[Any, ...], inputs: ModelInputs) -> PropagateCall:
    edge_index, _, kwargs = args
    edge = match_edges(edge_index, inputs, kwargs, name)
    per_edge = tuple(k for k, v in kwargs.items() if _is_per_edge(layer, k, v, edge.numel()))
    return PropagateCall(
        layer=name,
        edge=edge,
        edge_index=edge_index,
        receiver=1 if layer.flow == "source_to_target" else 0,
        per_edge=per_edge,
        constant={k: kwargs[k].detach() for k in per_edge if not kwargs[k].requires_grad},
        weighted=layer.explain is not False,
    )


def _is_per_edge(layer: MessagePassing, name: str, value: Any, messages: int) -> bool:
    """Whether an argument of ``propagate`` has one entry per message (and is not gathered from the nodes)."""
    if not isinstance(value, Tensor) or value.dim() == 0 or value.size(0) != messages:
        return False
    used = {p for f in (layer.message, layer.aggregate, layer.update) for p in inspect.signature(f).parameters}
    return not {f"{name}_i", f"{name}_j"} & used


def match_edges(edge_index: Any, inputs: ModelInputs, kwargs: dict[str, Any], layer: str) -> Tensor:
    """Position in ``inputs.edge_index`` of each edge that a layer uses; -1 for self-loops that the layer added."""
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided or edge_index.is_floating_point():
        raise ModelError(
            f"Layer '{layer}' passes messages over a sparse matrix, which edge masks do not reach. Give the model "
            "edge_index as an integer tensor [2, E] (torch_geometric.utils.to_edge_index converts a sparse matrix)."
        )
    ours, device = inputs.edge_index, edge_index.device
    if edge_index.shape == ours.shape and (torch.equal(edge_index, ours) or torch.equal(edge_index, ours.flip(0))):
        return torch.arange(ours.size(1), device=device)  # unchanged, or every edge reversed
    nodes = inputs.num_nodes
    x = kwargs.get("x")
    pooled = isinstance(x, Tensor) and x.dim() > 1 and nodes not in x.shape
    proper = edge_index[0] != edge_index[1]
    theirs, own = edge_keys(edge_index[:, proper], nodes), edge_keys(ours, nodes)
    own_sorted, order = own.sort()
    position = torch.searchsorted(own_sorted, theirs).clamp(max=max(own.numel() - 1, 0))
    if pooled or (theirs.numel() and (not own.numel() or not torch.equal(own_sorted[position], theirs))):
        raise ModelError(
            f"Layer '{layer}' passes messages over edges that are not in edge_index, or over other nodes (pooling, "
            "rewiring), so a mask over edge_index does not say which messages to weigh. Explain the part of the model "
            "before that layer, or features only (edge_mask_type=None)."
        )
    parallel = own_sorted % MAX_PARALLEL_EDGES > 0
    if bool(parallel.any()) and theirs.numel() != int((ours[0] != ours[1]).sum()):
        raise ModelError(
            f"Layer '{layer}' uses some of several parallel edges, and which ones cannot be determined. Merge parallel "
            "edges with torch_geometric.utils.coalesce."
        )
    edge = torch.full((edge_index.size(1),), -1, dtype=torch.long, device=device)
    edge[proper] = order[position]
    return edge
