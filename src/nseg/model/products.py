"""Message passing as a sparse product, where a layer's messages are its senders' features times a number.

Gathering the senders' features, weighing them and adding them up writes and reads every message. Most layers need none of
that: what node i receives is :math:`\\sum_j w_{ij} c_{ij} v_j`, a sparse matrix times the features.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag
from torch_geometric.nn import MessagePassing

from nseg.graphs.batch import offsets

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch says once that such tensors are in beta; the product below is all we need
    torch.sparse_csr_tensor([0, 0], [], [], (1, 1))


@dataclass(frozen=True)
class LinearMessages:
    """What a layer's messages are made of, as found in a traced pass.

    Args:
        source: argument of ``propagate`` that holds the senders' features.
        coefficient: argument with the factor of each message; None for 1.
        mean: whether messages are averaged instead of added up.
        dtype: number type of the messages.
    """

    source: str
    coefficient: str | None
    mean: bool
    dtype: torch.dtype

    def features(self, kwargs: Mapping[str, Any], sender: int) -> Tensor:
        """The features that messages are made of, [N, ...]; ``sender`` is the row of ``edge_index`` they come from."""
        value = kwargs[self.source]
        found: Tensor = value[sender] if isinstance(value, tuple | list) else value
        return found


def recognise_messages(
    layer: MessagePassing,
    receiver: Tensor,
    per_edge: Mapping[str, Tensor],
    message_args: Mapping[str, Any],
    message: Any,
    received: Any,
) -> LinearMessages | None:
    """How messages follow from the senders' features, if they do so linearly; else None.

    Args:
        layer: the layer.
        receiver: receiver of each message, [M].
        per_edge: its arguments with one entry per message.
        message_args: what ``message`` was called with.
        message: what it returned.
        received: what ``aggregate`` made of it.
    """
    if not (isinstance(message, Tensor) and isinstance(received, Tensor)) or not message.numel():
        return None
    if message.dim() < 2 or layer.node_dim % message.dim() != 0 or received.shape[1:] != message.shape[1:]:
        return None
    made = _made_of(message, per_edge, message_args)
    if made is None:
        return None
    total = torch.zeros_like(received).index_add(0, receiver, message)
    largest = float(received.abs().max())
    for mean in (False, True):
        if mean:
            total = total / receiver.bincount(minlength=len(received)).clamp_min(1).view(-1, *[1] * (received.dim() - 1))
        if torch.allclose(received, total, rtol=1e-4, atol=1e-5 * largest):
            return LinearMessages(*made, mean, message.dtype)
    return None


def _made_of(
    message: Tensor, per_edge: Mapping[str, Tensor], message_args: Mapping[str, Any]
) -> tuple[str, str | None] | None:
    """Names of the features and the factors whose product the messages are; None if there are none."""
    for name, sent in message_args.items():
        if not name.endswith("_j") or not isinstance(sent, Tensor) or sent.shape != message.shape:
            continue
        if torch.equal(sent, message):
            return name[:-2], None
        for factor, value in per_edge.items():
            if value.numel() == len(message) and torch.equal(_as_column(value, message) * sent, message):
                return name[:-2], factor
    return None


def _as_column(value: Tensor, message: Tensor) -> Tensor:
    return value.reshape(-1, *[1] * (message.dim() - 1))


class SparsePattern:
    """Where the entries of a sparse matrix stand: which message goes from which sender to which receiver.

    Args:
        sender: sender of each message, [M].
        receiver: receiver of each, [M].
        nodes: number of receiving nodes.
    """

    def __init__(self, sender: Tensor, receiver: Tensor, nodes: int) -> None:
        self.nodes = nodes
        self.order = None if bool((receiver[1:] >= receiver[:-1]).all()) else torch.argsort(receiver, stable=True)
        self.sender = sender if self.order is None else sender[self.order]
        self.receiver = receiver if self.order is None else receiver[self.order]
        self.ptr = offsets(self.receiver.bincount(minlength=nodes))
        self._transposed: tuple[Tensor, Tensor, Tensor] | None = None

    def transposed(self, senders: int) -> tuple[Tensor, Tensor, Tensor]:
        """Messages in the order of their senders, the receivers in that order, and the first message of each sender."""
        if self._transposed is None:
            order = torch.argsort(self.sender, stable=True)
            first = offsets(self.sender.bincount(minlength=senders))[:-1]
            self._transposed = order, self.receiver[order], first
        return self._transposed

    def multiply(self, values: Tensor, features: Tensor) -> Tensor:
        """What each node receives if message m is ``values[m]`` times its sender's features, [N, ...]."""
        if self.order is not None:
            values = values.index_select(0, self.order)
        if not torch.is_grad_enabled():
            flat = self.bag(values, features.flatten(1))
        else:
            flat = _Product.apply(values, features.flatten(1), self)  # type: ignore[no-untyped-call]
        return flat.view(-1, *features.shape[1:])

    def bag(self, values: Tensor, features: Tensor) -> Tensor:
        """The product, without gradients."""
        return embedding_bag(
            self.sender, features, self.ptr, mode="sum", per_sample_weights=values, include_last_offset=True
        )


class RowSums:
    """Adds up rows that have the same index, or picks the largest entries.

    Args:
        index: of each row, [N] or [N, 1, ...].
        number: of sums.
    """

    def __init__(self, index: Tensor, number: int) -> None:
        self.index = index.flatten()
        everything = torch.arange(len(self.index), device=index.device)
        self._pattern = SparsePattern(everything, self.index, number)

    def add_up(self, rows: Tensor) -> Tensor:
        """The sums of rows [N, ...]."""
        if torch.is_grad_enabled():
            return rows.new_zeros(self._pattern.nodes, *rows.shape[1:]).index_add(0, self.index, rows)
        flat = embedding_bag(self._pattern.sender, rows.flatten(1), self._pattern.ptr, mode="sum", include_last_offset=True)
        return flat.view(-1, *rows.shape[1:])

    def pick_largest(self, rows: Tensor) -> Tensor:
        """The largest entries of rows [N, ...]."""
        nothing = rows.new_zeros(self._pattern.nodes, *rows.shape[1:])
        index = self.index.view(-1, *[1] * (rows.dim() - 1)).expand_as(rows)
        return nothing.scatter_reduce(0, index, rows, "amax", include_self=False)

    def count_rows(self, dtype: torch.dtype) -> Tensor:
        """Number of rows for each sum."""
        return self.index.bincount(minlength=self._pattern.nodes).to(dtype)


class _Product(torch.autograd.Function):
    """A sparse matrix, given by its values, times a dense one; both gradients are sparse products too."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, features: Tensor, pattern: SparsePattern) -> Tensor:
        ctx.save_for_backward(values, features)
        ctx.pattern = pattern
        return pattern.bag(values, features)

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        values, features = ctx.saved_tensors
        pattern, slope = ctx.pattern, gradient[0].contiguous()
        of_values = of_features = None
        if ctx.needs_input_grad[0]:
            of_values = _sampled_product(slope, features, pattern)
        if ctx.needs_input_grad[1]:
            order, receiver, first = pattern.transposed(len(features))
            of_features = embedding_bag(receiver, slope, first, mode="sum", per_sample_weights=values.index_select(0, order))
        return of_values, of_features, None


def _sampled_product(left: Tensor, right: Tensor, pattern: SparsePattern) -> Tensor:
    """The product of each message's row of ``left`` (its receiver) and of ``right`` (its sender), [M]."""
    crowded = len(pattern.sender) > pattern.nodes * len(right)  # parallel edges only: torch refuses more entries than places
    if crowded or left.device.type != "cpu" or not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return (left.index_select(0, pattern.receiver) * right.index_select(0, pattern.sender)).sum(1)
    nothing = torch.zeros(len(pattern.sender), dtype=left.dtype, device=left.device)
    shape = pattern.nodes, len(right)
    where = torch.sparse_csr_tensor(pattern.ptr, pattern.sender, nothing, shape, check_invariants=False)
    product: Tensor = torch.sparse.sampled_addmm(where, left, right.t(), beta=0.0)
    return product.values()
