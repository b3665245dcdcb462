"""Arguments of recorded operations, as conversions to the compiled kernel look at them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, fx

from nseg.model.kernel_steps import ALL_NODES, Constant, Lookup, NotCompilableError
from nseg.model.recording import SIZES
from nseg.model.replay import KIND, LEVEL, X

aten = torch.ops.aten

LAYER_NORM_DEFAULTS: list[Any] = [None, None, 1e-5]
"""Weight, bias and what is added to variances."""

UNCHANGED = (aten.detach.default, aten.clone.default, aten.alias.default, aten.view.default, aten.reshape.default)
"""Operations that return their first operand if its shape stays."""

KEYWORDS: dict[Any, set[str]] = {aten.add.Tensor: {"alpha"}, aten.sub.Tensor: {"alpha"}, aten.gelu.default: {"approximate"}}
"""Keywords of operations that are heeded; others are not expected."""


def arguments_of(node: fx.Node) -> tuple[Any, ...]:
    """Arguments of a node, which are nodes or plain values."""
    if set(node.kwargs) - KEYWORDS.get(node.target, set()):
        raise NotCompilableError
    return node.args


def as_number(value: Any) -> float:
    """A plain number."""
    if isinstance(value, fx.Node):
        raise NotCompilableError
    return float(value)


def shape_of(node: Any) -> tuple[int, ...]:
    """Shape of a value in the first recording."""
    sizes = node.meta.get(SIZES) if isinstance(node, fx.Node) else None
    return () if sizes is None or sizes[0] is None else sizes[0]


def used_once(node: fx.Node) -> bool:
    """Whether a value is used only once, under whatever name."""
    while node.op == "call_function" and node.target in (*UNCHANGED, aten.index_select.default) and len(node.users) == 1:
        node = node.all_input_nodes[0]
    return len(node.users) == 1


def level_of(node: fx.Node) -> int:
    """Hops up to which a value of nodes has rows."""
    if node.meta.get(KIND) != "nodes":
        raise NotCompilableError
    level = node.meta.get(LEVEL)
    return ALL_NODES if level is None else int(level)


def has_rows(node: Any) -> bool:
    """Whether an argument has rows for nodes, or for graphs."""
    return isinstance(node, fx.Node) and node.op == "placeholder" and node.meta[KIND] in ("nodes", "worlds")


def require_fixed(*nodes: Any) -> None:
    """All are numbers, or arguments that are the same in all passes."""
    for node in nodes:
        if isinstance(node, fx.Node) and (node.op != "placeholder" or node.meta[KIND] != "fixed"):
            raise NotCompilableError


def constant(node: fx.Node | None) -> Constant | None:
    """What an argument holds; None if there is none."""
    return None if node is None else lambda get: get(node)


def as_row(value: Any, get: Lookup, width: int) -> Tensor:
    """A number, or a tensor with one row at most, as a row."""
    found = get(value) if isinstance(value, fx.Node) else torch.tensor(float(value), dtype=torch.float64)
    return found.detach().reshape(-1).expand(width)


def is_scalar(value: Any) -> bool:
    """Whether a value is a number, or an argument that holds only one."""
    return not isinstance(value, fx.Node) or math.prod(shape_of(value)) == 1


def is_masked(node: Any) -> bool:
    """Whether an argument holds the masked features."""
    return isinstance(node, fx.Node) and node.op == "placeholder" and node.target == X and node.meta[KIND] == "varied"
