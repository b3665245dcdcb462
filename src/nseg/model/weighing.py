"""Messages times their weights, in one step of a forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from nseg.model.plan import PlannedCall
from nseg.model.products import LinearMessages
from nseg.model.recording import Recorder
from nseg.model.rewriting import multiply


def multiply_messages(
    call: PlannedCall, linear: LinearMessages, kwargs: Mapping[str, Any], weight: Tensor | None, recorder: Recorder | None
) -> Tensor:
    """What each node receives, as a sparse product."""
    features = linear.features(kwargs, 1 - call.receiver)
    factors = [] if weight is None else [weight]
    if linear.coefficient is not None:
        coefficient = call.constant.get(linear.coefficient)
        if coefficient is None:
            coefficient = kwargs[linear.coefficient] if call.keep is None else kwargs[linear.coefficient][call.keep]
        factors.append(coefficient.flatten())
    if linear.mean:
        factors.append(call.shares)
    values = reduce(torch.mul, factors) if factors else torch.ones_like(call.weight, dtype=features.dtype)
    if values.dtype != features.dtype:
        values = values.to(features.dtype)
    if recorder is not None:
        recorded: Tensor = recorder.call(multiply, call.pattern, values, features)
        return recorded
    return multiply(call.pattern, values, features)


def weigh_messages(layer: MessagePassing, message: Tensor, weight: Tensor | None) -> Tensor:
    """Messages times their weights."""
    if weight is None:
        return message
    axis = layer.node_dim % message.dim()
    return message * weight.view([-1 if d == axis else 1 for d in range(message.dim())])
