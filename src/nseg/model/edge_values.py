"""Whether the per-edge values that layers seem to derive from the graph alone do not depend on anything else.

A traced pass takes a value without a gradient for one of the graph, such as a degree normalisation. A comparison of hidden
features has no gradient either. So the values of every message are compared between worlds, which differ in nothing but
what is masked: a value that depends on it changes for some message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nseg.model.causal import CausalModel, Weights
from nseg.model.hooks import hook_layers
from nseg.model.tracing import PropagateCall


@contextmanager
def watch_edge_values(model: nn.Module, calls: Sequence[PropagateCall]) -> Iterator[Callable[[], bool]]:
    """Compare the cached values of traced calls with those of later passes; yields whether they were the same so far.

    They are not if a pass has other calls.
    """
    seen, same = 0, True

    def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
        nonlocal seen, same
        call = calls[seen % len(calls)] if calls else None
        seen += 1
        same = same and call is not None and all(_equal(value, args[2].get(name)) for name, value in call.constant.items())

    with hook_layers(model, on_propagate):
        yield lambda: same and (not calls or seen % len(calls) == 0)


def edge_values_are_constant(causal: CausalModel, calls: Sequence[PropagateCall], weights: Weights) -> bool:
    """Whether the values of all messages of a batch stay in some worlds, which are run one at a time.

    Args:
        causal: a causal model without shortcuts.
        calls: its message passing steps where nothing is masked.
        weights: of K worlds, [K, ...] each.
    """
    if not any(call.constant for call in calls):
        return True
    with torch.no_grad(), watch_edge_values(causal.model, calls) as constant:
        for world in range(len(next(iter(weights.values()), ()))):
            causal.output({name: weight[world : world + 1] for name, weight in weights.items()})
    return constant()


def _equal(value: Tensor, other: Any) -> bool:
    """Whether two tensors are equal up to rounding."""
    if not isinstance(other, Tensor) or other.shape != value.shape:
        return False
    return torch.equal(value, other) or (value.is_floating_point() and torch.allclose(value, other, 1e-4, 1e-6))
