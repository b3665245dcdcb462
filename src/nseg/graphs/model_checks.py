"""Checks of the model that a caller gives: whether it can be run and differentiated, and which arguments it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from inspect import Parameter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from nseg.errors import InputError, ModelError

PRECISIONS = (torch.float32, torch.float64)
"""Floating point types in which probabilities can be compared."""


def forward_parameters(model: nn.Module) -> dict[str, Parameter]:
    """Parameters of the model's ``forward`` by name; empty if they cannot be found out.

    Those of ``forward(*args, **kwargs)`` are the ones of the only module inside, which such a wrapper passes them on to.
    What follows from them is verified where the model is called, so a wrapper that does something else costs time only.
    """
    own, inside = _own_parameters(model), list(model.children())
    kinds = {one.kind for one in own.values()}
    if Parameter.VAR_KEYWORD in kinds <= {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD} and len(inside) == 1:
        return forward_parameters(inside[0]) or own
    return own


def _own_parameters(model: nn.Module) -> dict[str, Parameter]:
    """Parameters of the model's own ``forward`` by name."""
    function = getattr(model.forward, "__func__", None)
    try:
        if function is None:
            return dict(inspect.signature(model.forward).parameters)
        return dict(_parameters(function)[1:])  # without self
    except (TypeError, ValueError):
        return {}


@lru_cache(maxsize=64)
def _parameters(function: Callable[..., Any]) -> tuple[tuple[str, Parameter], ...]:
    """Names and parameters of a function; asked once for a list of graphs, because looking them up is slow."""
    return tuple(inspect.signature(function).parameters.items())


def takes_any_argument(model: nn.Module) -> bool:
    """Whether the model's ``forward`` takes arguments of any name, or cannot be asked."""
    parameters = _own_parameters(model)
    return not parameters or any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())


def check_model(model: nn.Module) -> None:
    """Raise unless the model takes ``(x, edge_index)``, has all of its weights, and computes precisely enough."""
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if isinstance(value, UninitializedParameter | UninitializedBuffer):
            raise ModelError(
                f"The model must have all of its weights (got {name}, of a lazy layer that has not run yet). Run the model "
                "once on a graph, and train it or load its weights, before explaining it."
            )
        if value.is_inference():
            raise ModelError(
                f"The model's weights must take part in autograd (got {name}, made under torch.inference_mode()). Build the "
                "model outside of inference mode and load its weights there with load_state_dict."
            )
        if isinstance(value, nn.Parameter):
            check_precision(name, value)
    parameters = _own_parameters(model).values()
    names = [one.name for one in parameters if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    takes_two = not parameters or len(names) > 1 or any(one.kind is Parameter.VAR_POSITIONAL for one in parameters)
    if not takes_two or names[:1] in (["edge_index"], ["adj_t"]):
        raise ModelError(
            f"The model's forward must take x and edge_index, in this order (got forward({', '.join(names)})). Wrap it in a "
            "module whose forward(x, edge_index) calls it, e.g. with Data(x=x, edge_index=edge_index)."
        )


def check_precision(name: str, value: Tensor) -> None:
    """Raise if a tensor has fewer digits than probabilities need."""
    if value.is_floating_point() and value.dtype not in PRECISIONS:
        raise ModelError(
            f"Model and features must be torch.float32 or torch.float64 (got {name} in {value.dtype}): with fewer digits, "
            "gradients vanish and probabilities cannot be compared. Explain a copy, copy.deepcopy(model).float(), with "
            "x.float(), outside of torch.autocast."
        )


USUAL_ARGUMENTS = {"batch", "edge_attr", "edge_weight", "edge_type", "node_type", "edge_label_index", "pos"}
"""Arguments as PyG's layers name them, which are no misspelt options."""


def check_arguments(model: nn.Module, given: Iterable[str], options: Sequence[str]) -> str | None:
    """Raise if the model's ``forward`` does not take an argument.

    Args:
        model: the model.
        given: names of arguments for the model.
        options: what the caller could have meant instead.

    Returns:
        a warning if ``forward`` takes anything, so that a misspelt option goes unnoticed; else None.
    """
    known = [name for name in forward_parameters(model) if name not in ("x", "edge_index")]
    forward = f"{type(model).__name__}.forward"
    for name in given:
        if name in known or (name in USUAL_ARGUMENTS and takes_any_argument(model)):
            continue
        if not takes_any_argument(model):
            takes = ", ".join(known) or "only x and edge_index"
            hint = did_you_mean(name, [*options, *known]) or "Leave it out."
            raise InputError(
                f"Each keyword must be an option of this call or an argument of {forward} (got {name}; {forward} takes "
                f"{takes}). {hint}"
            )
        if hint := did_you_mean(name, options):
            return f"{name} is no option of this call; it is passed on to {forward}, which takes any argument. {hint}"
    return None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question that names the closest known name; empty if none is close.

    >>> did_you_mean("n_workers", ["budget", "workers"])
    'Did you mean workers?'
    """
    near = get_close_matches(name, list(known), 1, 0.6)
    return f"Did you mean {near[0]}?" if near else ""
