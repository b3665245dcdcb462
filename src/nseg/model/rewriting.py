"""Recorded passes with cheaper operations in place of some, equal but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from nseg.model.products import RowSums, SparsePattern
from nseg.model.recording import CONSTANT, DTYPE, SIZES

aten = torch.ops.aten

IN_PLACE = {
    aten.add.Tensor: aten.add_.Tensor,
    aten.addcmul.default: aten.addcmul_.default,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.relu.default: aten.relu_.default,
}
"""Operations that may write over their first operand, if that is not used again."""


def multiply(pattern: SparsePattern, values: Tensor, features: Tensor) -> Tensor:
    """What each node receives, as one operation of a recorded pass."""
    return pattern.multiply(values, features)


def add_up(sums: RowSums, rows: Tensor) -> Tensor:
    """Sums of rows, as one operation of a recorded pass."""
    return sums.add_up(rows)


def pick_largest(groups: RowSums, rows: Tensor) -> Tensor:
    """Largest entries of rows, as one operation of a recorded pass."""
    return groups.pick_largest(rows)


def count_rows(groups: RowSums, dtype: torch.dtype) -> Tensor:
    """Number of rows of each group, as one operation of a recorded pass."""
    return groups.count_rows(dtype)


def simplify(graph: fx.Graph, varied: Collection[str], counting: Collection[str]) -> None:
    """Replace operations of a recorded pass by cheaper ones.

    Args:
        graph: the pass.
        varied: names of the inputs that differ between worlds; what does not depend on them is computed once anyway.
        counting: names of the inputs that count nodes, edges or graphs.
    """
    varies, counts = dependents(graph, varied), dependents(graph, counting)
    for node in list(graph.nodes):
        if node.target is multiply:
            _multiply_first(node, varies)
        elif node.target is aten.scatter_add.default:
            _add_up_once_sorted(node, counts)
        elif node.target is aten.scatter_reduce.two:
            _pick_largest(node, counts)
        elif node.target is aten.expand_as.default:
            _broadcast(node)
        elif node.target is aten.add.Tensor:
            _add_product(node)
    graph.eliminate_dead_code()


def dependents(graph: fx.Graph, names: Collection[str]) -> set[fx.Node]:
    """The nodes that depend on some of the inputs."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.target in names or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def _multiply_first(node: fx.Node, varies: Collection[fx.Node]) -> None:
    """A (X W) + b as (A X) W + b, if X is no wider than X W: fewer columns pass messages, and the bias is added for free."""
    pattern, values, features = _args(node)
    if features.target is not aten.linear.default or len(features.args) != 2 or len(features.users) != 1:
        return
    x, weight = _args(features)
    (_, inner), (_, outer) = (one.meta[SIZES][0] if len(one.meta[SIZES][0]) == 2 else (0, 0) for one in (x, features))
    if x not in varies or not 0 < inner <= outer:
        return
    end, bias = _with_bias(node, outer)
    received = _insert(end, multiply, (pattern, values, x), [(rows, inner) for rows, _ in node.meta[SIZES]])
    end.replace_all_uses_with(_insert(end, aten.linear.default, (received, weight, *bias), end.meta[SIZES]))


def _with_bias(node: fx.Node, width: int) -> tuple[fx.Node, tuple[fx.Node, ...]]:
    """The operation that adds a bias to a value and the bias, if that is all that is done with the value; else the value."""
    for user in node.users if len(node.users) == 1 else ():
        if user.target is aten.add.Tensor and user.args[0] is node and not user.kwargs:
            bias = user.args[1]
            if isinstance(bias, fx.Node) and CONSTANT in bias.meta and bias.meta[SIZES][0] == (width,):
                return user, (bias,)
    return node, ()


def _add_up_once_sorted(node: fx.Node, counts: Collection[fx.Node]) -> None:
    """A read-out, which adds up rows by their index, with the index sorted once; of ones, the numbers of rows."""
    zeros, _, index, rows = _args(node)
    if rows.target is aten.new_ones.default and len(index.meta[SIZES][0]) == 1 and _fills_zeros(node) and index in counts:
        sums = _insert(node, RowSums, (index, _args(zeros)[1][0]), None)
        node.replace_all_uses_with(_insert(node, count_rows, (sums, node.meta[DTYPE]), node.meta[SIZES]))
    else:
        _group(node, add_up, counts)


def _pick_largest(node: fx.Node, counts: Collection[fx.Node]) -> None:
    """A read-out of the largest entries."""
    if node.args[4] == "amax" and node.kwargs == {"include_self": False}:
        _group(node, pick_largest, counts)


def _group(node: fx.Node, function: Callable[..., Any], counts: Collection[fx.Node]) -> None:
    """Let a function of groups of rows take the place of an operation that scatters rows by their index."""
    zeros, _, index, rows = _args(node)[:4]
    if not _fills_zeros(node) or index.target is not aten.expand_as.default or len(node.meta[SIZES][0]) < 2:
        return
    given = _args(index)[0]
    if given in counts and set(given.meta[SIZES][0][1:]) <= {1}:
        groups = _insert(node, RowSums, (given, _args(zeros)[1][0]), None)
        node.replace_all_uses_with(_insert(node, function, (groups, rows), node.meta[SIZES]))


def _fills_zeros(node: fx.Node) -> bool:
    """Whether an operation scatters rows into zeros."""
    zeros, dim = _args(node)[:2]
    return zeros.target is aten.new_zeros.default and dim == 0


def _broadcast(node: fx.Node) -> None:
    """Let operations expand an operand themselves, which then need not be expanded in every pass."""
    for user in list(node.users):
        others = [one for one in user.all_input_nodes if one is not node]
        same = len(others) == 1 and others[0].meta.get(SIZES) == node.meta[SIZES] == user.meta.get(SIZES)
        if same and user.target in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor):
            user.replace_input_with(node, _args(node)[0])


def _add_product(node: fx.Node) -> None:
    """What a node receives plus a product, such as its own features times a number, in one operation."""
    (received, product), same = _args(node), node.meta[SIZES]
    if node.kwargs or not isinstance(product, fx.Node) or product.target is not aten.mul.Tensor or len(product.users) != 1:
        return
    if received.target is multiply and received.meta[SIZES] == product.meta[SIZES] == same:
        node.replace_all_uses_with(_insert(node, aten.addcmul.default, (received, *_args(product)), same))


def write_in_place(graph: fx.Graph) -> None:
    """Let operations write over operands that nothing else uses; for passes without gradients."""
    fresh = {multiply, add_up, aten.linear.default, aten.mm.default, aten.addmm.default, *IN_PLACE, *IN_PLACE.values()}
    for node in graph.nodes:
        over = _args(node)[0] if node.target in IN_PLACE else None
        if (
            isinstance(over, fx.Node)
            and over.target in fresh
            and len(over.users) == 1
            and over.meta.get(SIZES) == node.meta.get(SIZES)
        ):
            node.target = IN_PLACE[node.target]


def _insert(before: fx.Node, function: Callable[..., Any], args: tuple[Any, ...], sizes: Sequence[Any] | None) -> fx.Node:
    with before.graph.inserting_before(before):
        node = before.graph.call_function(function, args)
    if sizes is not None:
        node.meta[SIZES] = tuple(sizes)
    return node


def _args(node: fx.Node) -> tuple[Any, ...]:
    """Arguments of a node, which are nodes or plain values."""
    return node.args
