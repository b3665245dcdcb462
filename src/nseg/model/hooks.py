"""PyG's public hooks on message passing layers, and what can be recorded with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.nn import MessagePassing

from nseg.adjacency import is_matrix, matrix_edges
from nseg.errors import ModelError
from nseg.graphs.inputs import IMPLIED_BATCH, ModelInputs
from nseg.graphs.model_checks import check_precision
from nseg.model.borrow import borrow, forget_attributes, keep_attributes, wrap_model_errors
from nseg.model.outcomes import Outcome
from nseg.model.slow_runs import raise_own_fault


def message_passing_layers(model: nn.Module) -> dict[str, MessagePassing]:
    """The model's message passing layers by name."""
    return {name or type(m).__name__: m for name, m in model.named_modules() if isinstance(m, MessagePassing)}


@contextmanager
def hook_layers(
    model: nn.Module | Sequence[MessagePassing],
    on_propagate: Callable[..., Any],
    on_message: Callable[..., Any] | None = None,
    on_aggregate: Callable[..., Any] | None = None,
) -> Iterator[None]:
    """Let functions see and change the arguments of each ``propagate`` call, its messages, and what nodes receive.

    Args:
        model: the model, or its layers if they are known.
        on_propagate, on_message, on_aggregate: the functions. They see edges, and the layer passes messages over edges,
            also where the model gives it a sparse matrix.
    """

    def see_edges(layer: MessagePassing, args: tuple[Any, ...]) -> Any:
        if not is_matrix(args[0]):
            return on_propagate(layer, args)
        plain = _matrix_to_edges(*args)
        changed = on_propagate(layer, plain)
        return plain if changed is None else changed

    layers = model if isinstance(model, Sequence) else list(message_passing_layers(model).values())
    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_propagate_forward_pre_hook(see_edges).remove)
            if on_message is not None:
                stack.callback(layer.register_message_forward_hook(on_message).remove)
            if on_aggregate is not None:
                stack.callback(layer.register_aggregate_forward_hook(on_aggregate).remove)
        yield


def _matrix_to_edges(matrix: Any, size: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments of ``propagate`` with edges in place of a sparse matrix, whose values become weights, as PyG has it."""
    edge_index, value = matrix_edges(matrix)
    if value is not None:
        names = ("edge_weight", "edge_type") if value.dim() == 1 else ("edge_weight", "edge_attr", "edge_type")
        kwargs = {**kwargs, **{name: value for name in names if kwargs.get(name) is None}}
    return edge_index, (matrix.size(1), matrix.size(0)), kwargs


def call_model(model: nn.Module, inputs: ModelInputs, outcome: Outcome) -> Tensor:
    """The model's output in the canonical shape of its outcome: one row per node, link or graph."""
    with keep_attributes(model):
        given, named = inputs.call_arguments()
        output = model(*given, **named)
    if not isinstance(output, Tensor):
        raise ModelError(f"The model must return one tensor (got {type(output).__name__}). Wrap it so that it does.")
    if not output.is_floating_point():
        raise ModelError(
            f"The model must return scores or probabilities (got {output.dtype}). Remove argmax and the like from forward()."
        )
    return outcome.as_rows(output)


def keep_needed_batch(model: nn.Module, inputs: ModelInputs, outcome: Outcome) -> ModelInputs:
    """Arguments with a ``batch`` that is always passed, if the model needs one although its signature says otherwise."""
    if IMPLIED_BATCH not in inputs.kwargs:
        return inputs
    if model not in _needs_batch:
        with borrow(model), torch.no_grad():
            try:
                call_model(model, inputs.copied(), outcome)
                _needs_batch[model] = False
            except Exception as error:  # a model may raise anything
                raise_own_fault(error)
                _needs_batch[model] = True
    if not _needs_batch[model]:
        return inputs
    return replace(inputs, kwargs={name: value for name, value in inputs.kwargs.items() if name != IMPLIED_BATCH})


_needs_batch: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def predict(model: nn.Module, inputs: ModelInputs, outcome: Outcome, twice: bool = True) -> Tensor:
    """The model's output, checked: what its configuration says it is and, if run ``twice``, deterministic.

    A pass that is not run twice trusts what earlier passes showed of the attributes that ``forward`` assigns.
    """
    if twice:
        forget_attributes(model)
    with torch.no_grad(), wrap_model_errors():
        own = inputs.copied()
        output = call_model(model, own, outcome)
        if own.x.numel() and not own.x.untyped_storage().nbytes():  # reading it would end the process
            raise ModelError(
                "The model must leave its features as they are (got a forward that frees their memory, as PyG's GroupAddRev "
                "does with what it is given). Pass it a copy inside forward(), x.clone(), and make it with disable=True."
            )
        _require_unchanged(own, inputs)
        again = call_model(model, own, outcome) if twice else None
    check_precision("the output", output)
    if again is not None and not _same_output(again, output, outcome):
        raise ModelError(
            "The model must give the same output for the same input in evaluation mode (got two different ones). Remove "
            "the randomness from forward(), e.g. pass training=self.training to dropout."
        )
    outcome.check_values(output)
    return output


def _same_output(again: Tensor, output: Tensor, outcome: Outcome) -> bool:
    """Whether two passes agree; rows that are NaN are reported later, if one is explained."""
    if again.shape != output.shape:
        return False
    broken = torch.isnan(output)
    return bool(outcome.agree(again.masked_fill(broken, 0), output.masked_fill(broken, 0)).all())


def _require_unchanged(own: ModelInputs, given: ModelInputs) -> None:
    """Raise if a model has changed the copies of its arguments: every further pass would get other ones."""
    pairs = {"x": (own.x, given.x), "edge_index": (own.edge_index, given.edge_index)}
    pairs |= {name: (value, given.kwargs[name]) for name, value in own.kwargs.items()}
    for name, (value, before) in pairs.items():
        if value is not before and isinstance(value, Tensor) and value._version:
            raise ModelError(
                f"The model must leave its arguments as they are (got a forward that changes {name} in place). Make a copy "
                f"first, {name} = {name}.clone(), or use operations that return a new tensor, e.g. clamp instead of clamp_."
            )


def node_embeddings(model: nn.Module, inputs: ModelInputs, outcome: Outcome) -> Tensor:
    """Output of the last message passing layer for each node, [N, D]."""
    outputs: list[Any] = []
    with torch.no_grad(), ExitStack() as stack:
        for layer in message_passing_layers(model).values():
            stack.callback(layer.register_forward_hook(lambda module, args, output: outputs.append(output)).remove)
        call_model(model, inputs, outcome)
    last = outputs[-1] if outputs else None
    last = last[0] if isinstance(last, tuple) else last  # a layer may also return its attention
    if not isinstance(last, Tensor) or last.dim() == 0 or last.size(0) != inputs.num_nodes:
        raise ModelError(
            f"The model's last message passing layer must return a tensor with one row per node, {inputs.num_nodes} here "
            f"(got {'no such layer' if last is None else tuple(getattr(last, 'shape', ())) or type(last).__name__}), "
            "because this explainer needs an embedding of every node. Use an explainer that needs none, e.g. NSEG."
        )
    return last.detach().flatten(1) if last.dim() > 1 else last.detach().unsqueeze(1)


@contextmanager
def record_layer_outputs(model: nn.Module) -> Iterator[list[tuple[Tensor, int]]]:
    """Record the output of each layer, and the number of message passing steps up to then."""
    recorded: list[tuple[Tensor, int]] = []
    steps = 0

    def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
        nonlocal steps
        steps += 1

    def on_output(layer: MessagePassing, args: Any, output: Any) -> Tensor | None:
        if not isinstance(output, Tensor):
            return None
        kept = output.clone() if output.requires_grad else output.detach().clone().requires_grad_()
        recorded.append((kept, steps))
        return kept.clone()  # the recorded tensor must not change if the model goes on in place

    with hook_layers(model, on_propagate), ExitStack() as stack:
        for layer in message_passing_layers(model).values():
            stack.callback(layer.register_forward_hook(on_output).remove)
        yield recorded


@contextmanager
def count_saved_bytes() -> Iterator[Callable[[], int]]:
    """Count the bytes that autograd saves for the backward pass; yields a function that returns the count so far."""
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided:  # sparse tensors have no single storage
            saved[id(tensor)] = tensor._values().nbytes if tensor.layout is torch.sparse_coo else tensor.values().nbytes
            return tensor
        storage = tensor.untyped_storage()
        # a slice keeps no more than itself alive, a broadcast tensor no more than its storage
        size = min(storage.nbytes(), tensor.nbytes)
        saved[storage.data_ptr()] = max(saved.get(storage.data_ptr(), 0), size)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(saved.values())


def bytes_per_member(model: nn.Module, inputs: ModelInputs, outcome: Outcome) -> float:
    """Bytes that a forward pass with gradients saves per node and edge."""
    x = inputs.x.detach().clone().requires_grad_() if inputs.x.is_floating_point() else inputs.x
    with torch.enable_grad(), count_saved_bytes() as saved, wrap_model_errors():
        call_model(model, replace(inputs, x=x), outcome)
    return max(saved() / (inputs.num_nodes + inputs.num_edges), 256.0)


class _GuidedReLU(torch.autograd.Function):
    """A ReLU that passes only positive gradients back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        kept = value.clamp_min(0)
        ctx.save_for_backward(kept)
        return kept

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        (kept,) = ctx.saved_tensors
        return torch.where(kept > 0, gradient[0].clamp_min(0), 0)


class GuidedBackpropMode(TorchFunctionMode):
    """While active, every ReLU (module, function or method) passes only positive gradients back."""

    IN_PLACE = (torch.relu_, Tensor.relu_)
    RELUS = (torch.relu, Tensor.relu, nn.functional.relu, *IN_PLACE)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.RELUS:
            return func(*args, **kwargs)
        value = args[0] if args else kwargs["input"]
        kept = _GuidedReLU.apply(value)  # type: ignore[no-untyped-call]
        in_place = func in self.IN_PLACE or (args[1] if len(args) > 1 else kwargs.get("inplace", False))
        return value.copy_(kept) if in_place else kept
