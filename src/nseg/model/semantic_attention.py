"""Lets ``HANConv`` run several graphs, or worlds of one, in a pass as it runs each alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import HANConv


@contextmanager
def separate_graphs_in_attention(model: nn.Module, graphs: Mapping[str, Tensor]) -> Iterator[None]:
    """While open, the semantic attention of ``HANConv`` layers is that of each graph.

    The layer weighs edge types by a mean over all nodes of a type, which would mix the graphs of one pass.

    Args:
        model: the model, borrowed.
        graphs: for each node type, the graph that each of its nodes belongs to.
    """
    layers = [layer for layer in model.modules() if isinstance(layer, HANConv)]
    number = 1 + max((int(one.max()) for one in graphs.values() if one.numel()), default=0)
    with ExitStack() as stack:
        for layer in layers if number > 1 else ():
            messages: list[Tensor] = []

            def collect(_: Any, __: Any, output: Tensor, messages: list[Tensor] = messages) -> None:
                messages.append(output)

            def regroup(layer: Any, args: Any, kwargs: Any, output: Any, messages: list[Tensor] = messages) -> Any:
                edges = args[1] if len(args) > 1 else kwargs["edge_index_dict"]
                found, messages[:] = list(messages), []
                return _weigh_by_graph(layer, list(edges), found, output, graphs, number)

            stack.callback(layer.register_propagate_forward_hook(collect).remove)
            stack.callback(layer.register_forward_hook(regroup, with_kwargs=True).remove)
        yield


def _weigh_by_graph(
    layer: Any, kinds: list[Any], messages: list[Tensor], output: Any, graphs: Mapping[str, Tensor], number: int
) -> Any:
    """What a layer returns if the weights of edge types are those of each graph."""
    if not isinstance(output, dict):
        return output
    found = dict(output)
    for node_type in output:
        received = [one.relu() for kind, one in zip(kinds, messages, strict=True) if kind[2] == node_type]
        if not received or not received[0].numel():
            continue
        values, graph = torch.stack(received), graphs[node_type]  # [T, N, D]
        keys = torch.tanh(layer.k_lin(values))
        size = torch.zeros(number, device=graph.device).index_add(0, graph, torch.ones_like(graph, dtype=torch.float))
        mean = keys.new_zeros(len(values), number, keys.size(-1)).index_add(1, graph, keys) / size.clamp(min=1).view(-1, 1)
        weight = (layer.q * mean).sum(-1).softmax(0)  # [T, graphs]
        found[node_type] = (weight[:, graph].unsqueeze(-1) * values).sum(0)
    return found
