"""Recorded passes with cheaper operations in place of some, equal but for rounding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from nseg.model.products import RowSums, SparsePattern
from nseg.model.recording import CONSTANT, SIZES

aten = torch.ops.aten


def multiply(pattern: SparsePattern, values: Tensor, features: Tensor) -> Tensor:
    """What each node receives, as one operation of a recorded pass."""
    return pattern.multiply(values, features)


def add_up(sums: RowSums, rows: Tensor) -> Tensor:
    """Sums of rows, as one operation of a recorded pass."""
    return sums.add_up(rows)


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
    """A read-out, which adds up rows by their index, with the index sorted once."""
    zeros, dim, index, rows = _args(node)
    if zeros.target is not aten.new_zeros.default or dim != 0 or index.target is not aten.expand_as.default:
        return
    given, number = _args(index)[0], _args(zeros)[1][0]
    if given in counts and set(given.meta[SIZES][0][1:]) <= {1}:
        sums = _insert(node, RowSums, (given, number), None)
        node.replace_all_uses_with(_insert(node, add_up, (sums, rows), node.meta[SIZES]))


def _add_product(node: fx.Node) -> None:
    """What a node receives plus a product, such as its own features times a number, in one operation."""
    (received, product), same = _args(node), node.meta[SIZES]
    if node.kwargs or not isinstance(product, fx.Node) or product.target is not aten.mul.Tensor or len(product.users) != 1:
        return
    if received.target is multiply and received.meta[SIZES] == product.meta[SIZES] == same:
        node.replace_all_uses_with(_insert(node, aten.addcmul.default, (received, *_args(product)), same))


def _insert(before: fx.Node, function: Callable[..., Any], args: tuple[Any, ...], sizes: Sequence[Any] | None) -> fx.Node:
    with before.graph.inserting_before(before):
        node = before.graph.call_function(function, args)
    if sizes is not None:
        node.meta[SIZES] = tuple(sizes)
    return node


def _args(node: fx.Node) -> tuple[Any, ...]:
    """Arguments of a node, which are nodes or plain values."""
    return node.args
