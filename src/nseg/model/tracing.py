"""Which edge of the caller's graph every message of a forward pass belongs to."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nseg.errors import ModelError
from nseg.graphs.inputs import MASKED_ATTRIBUTES, ModelInputs, Role
from nseg.model.hooks import call_model, hook_layers, message_passing_layers
from nseg.model.matching import identity_error, match_edges
from nseg.model.outcomes import Outcome
from nseg.model.products import LinearMessages, recognise_messages
from nseg.model.slow_runs import raise_own_fault
from nseg.model.steps import StepChain


@dataclass(frozen=True)
class PropagateCall:
    """One call of ``propagate``: the edges over which a layer passed messages.

    Args:
        layer: name of the layer.
        edge: position of each message's edge in the model's ``edge_index``, -1 for self-loops that the layer adds, [M].
        edge_index: the layer's edges, [2, M].
        ends: their nodes in the numbering of the model's input, [2, M].
        receiver: the row of ``edge_index`` that messages go to.
        per_edge: names of the arguments with one entry per message.
        constant: those of them that carry no gradient although features and parameters do: the layer seems to derive
            them from the graph alone.
        weighted: whether masks apply; PyG exempts layers with ``explain = False``, of which nothing else is recorded.
        linear: what the messages are made of, if they are features times numbers.
        received: number of nodes that receive messages, where the messages are linear.
        after: most later steps in a row that what this step computes passes through.
    """

    layer: str
    edge: Tensor
    edge_index: Tensor
    ends: Tensor
    receiver: int
    per_edge: tuple[str, ...]
    constant: dict[str, Tensor]
    weighted: bool
    linear: LinearMessages | None = None
    received: int = 0
    after: int = 0


def trace_model(
    model: nn.Module, inputs: ModelInputs, outcome: Outcome, recognise: bool = True
) -> tuple[Tensor, list[PropagateCall]]:
    """Run the model once and record every message passing step.

    Args:
        model, inputs, outcome: the model, its arguments, and how its output is read.
        recognise: whether to find out what messages are made of; that takes as long as the pass.
    """
    names = {id(layer): name for name, layer in message_passing_layers(model).items()}
    calls: list[PropagateCall] = []
    hooked: set[int] = set()
    ran: set[int] = set()
    per_edge: dict[str, Tensor] = {}
    messages: list[tuple[dict[str, Any], Any]] = []
    chain = StepChain()

    def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
        hooked.add(id(layer))
        chain.begin(args[2])
        calls.append(_record_call(model, layer, names[id(layer)], args, inputs))
        per_edge.clear()
        per_edge.update({name: args[2][name].detach() for name in calls[-1].per_edge})
        messages.clear()

    def on_message(layer: MessagePassing, args: tuple[Any, ...], message: Any) -> None:
        messages.append((args[0], message))

    def on_aggregate(layer: MessagePassing, args: tuple[Any, ...], received: Any) -> None:
        call = calls[-1]
        if call.weighted and len(messages) == 1:  # PyG can decompose a layer into several
            receiver = call.edge_index[call.receiver]
            with torch.no_grad():
                linear = recognise_messages(layer, receiver, per_edge, *messages[0], received)
            calls[-1] = replace(call, linear=linear, received=len(received) if isinstance(received, Tensor) else 0)
        elif call.linear is not None:
            calls[-1] = replace(call, linear=None)

    parameters = list(model.parameters())
    x = inputs.x.detach().clone()
    kwargs, masked = dict(inputs.kwargs), inputs.kwargs.get(MASKED_ATTRIBUTES)
    if masked is not None:  # what worlds change must not be taken for constant
        kwargs[masked] = kwargs[masked].detach().clone().requires_grad_()
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(hook_layers(model, on_propagate, *((on_message, on_aggregate) if recognise else ())))
        for layer in message_passing_layers(model).values():
            stack.callback(layer.register_propagate_forward_hook(lambda _, __, output: chain.end(output)).remove)
            stack.callback(layer.register_forward_hook(lambda module, *_: ran.add(id(module))).remove)
        try:
            for tensor in [x, *parameters]:
                if tensor.is_floating_point():
                    tensor.requires_grad_(True)
            output = call_model(model, replace(inputs, x=x, kwargs=kwargs), outcome)
        finally:
            for parameter in parameters:
                parameter.requires_grad_(False)
    _require_hooks(model, ran - hooked)
    return output.detach(), [replace(call, after=after) for call, after in zip(calls, chain.after, strict=True)]


def _require_hooks(model: nn.Module, missed: set[int]) -> None:
    """Raise if one of the layers that ran, but not by way of their hooks, passes messages of its own."""
    for name, layer in message_passing_layers(model).items():
        if id(layer) in missed and not type(layer).propagate.__module__.endswith("_propagate"):
            raise ModelError(
                f"Layer '{name}' ({type(layer).__name__}) has its own propagate(), which edge masks do not "
                "reach. Let it call MessagePassing.propagate, or explain features only (edge_mask_type=None)."
            )


def _record_call(
    model: nn.Module, layer: MessagePassing, name: str, args: tuple[Any, ...], inputs: ModelInputs
) -> PropagateCall:
    edge_index, _, kwargs = args
    receiver = 1 if layer.flow == "source_to_target" else 0
    if layer.explain is False:  # exempt: its messages stay as they are, over whatever nodes they go
        return PropagateCall(
            name, torch.empty(0, dtype=torch.long), edge_index, edge_index, receiver, (), {}, weighted=False
        )
    edge, ends = match_edges(model, inputs, layer, edge_index, kwargs, name)
    per_edge = tuple(k for k, v in kwargs.items() if _is_per_edge(layer, k, v, edge.numel()))
    return PropagateCall(
        layer=name,
        edge=edge,
        edge_index=edge_index,
        ends=ends,
        receiver=receiver,
        per_edge=per_edge,
        constant={k: kwargs[k].detach() for k in per_edge if not kwargs[k].requires_grad},
        weighted=True,
    )


def _is_per_edge(layer: MessagePassing, name: str, value: Any, messages: int) -> bool:
    """Whether an argument of ``propagate`` has one entry per message (and is not gathered from the nodes)."""
    if not isinstance(value, Tensor) or value.dim() == 0 or value.size(0) != messages:
        return False
    kind: Any = type(layer)
    used = _parameters(kind)
    return f"{name}_i" not in used and f"{name}_j" not in used


@cache
def _parameters(layer: Any) -> frozenset[str]:
    """Names of all that the functions of a kind of layer take; reading signatures takes as long as a small pass."""
    functions = (layer.message, layer.aggregate, layer.update)
    return frozenset(name for function in functions for name in inspect.signature(function).parameters)


def require_edge_identity(
    model: nn.Module, inputs: ModelInputs, outcome: Outcome, calls: Sequence[PropagateCall], graph_of_node: Tensor | None
) -> None:
    """Raise if a layer's edges only look like edges of the graph, e.g. because pooling has renumbered the nodes.

    The model is traced again on the same graph with its nodes in another order. Messages over edges of the graph then
    belong to the same edges as before; edges between renumbered nodes match others, or none.

    Args:
        model, inputs, outcome: as in :func:`trace_model`.
        calls: its result.
        graph_of_node: graph of each node, [N], within which nodes change places; None if there is one graph.
    """
    nodes = inputs.num_nodes
    shuffled = torch.rand(nodes, generator=torch.Generator().manual_seed(nodes)).to(inputs.x.device)
    order = torch.argsort(shuffled)
    if graph_of_node is not None:  # models may rely on the nodes of a graph standing together
        order = order[torch.argsort(graph_of_node[order], stable=True)]
    new_number = torch.empty_like(order).scatter_(0, order, torch.arange(nodes, device=order.device))

    def permute(name: str, value: Any) -> Any:
        role = inputs.possible_roles(name)[0]
        if role is Role.PAIR_INDEX:
            return new_number[value]
        return value[order] if role in (Role.NODE, Role.BATCH) else value

    other = replace(
        inputs,
        x=inputs.x[order],
        edge_index=new_number[inputs.edge_index],
        kwargs={name: permute(name, value) for name, value in inputs.kwargs.items()},
    )
    try:
        again = trace_model(model, other, outcome, recognise=False)[1]
    except ModelError:
        raise
    except Exception as error:  # a model that accepts no other order of its nodes, e.g. because it stores something per node
        raise_own_fault(error)
        return
    if len(again) != len(calls):
        return  # a branch on the input, which the planned strategies notice
    tail, head = inputs.edge_index

    def used(call: PropagateCall) -> Tensor:
        """How many messages are passed over each edge; a layer may replace self-loops by its own, in another order."""
        count = call.edge[call.edge >= 0].bincount(minlength=tail.numel())
        return torch.where(tail != head, count, 0)

    for before, after in zip(calls, again, strict=True):
        if before.weighted and not torch.equal(used(before), used(after)):
            raise identity_error(before.layer)
