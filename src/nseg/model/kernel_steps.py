"""Operations of the compiled kernel, as Python describes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torch import Tensor, fx

from nseg.model.kernel import TILE

Lookup = Callable[[fx.Node], Any]
"""Returns what an argument of a pass holds in one world of all instances."""

Constant = Callable[[Lookup], Tensor]
"""A tensor made of arguments of a pass."""

GRAPHS = -1
"""In place of hops: a value with one row per instance."""

MESSAGES = -2
"""In place of hops: a value with one row per message; minus the number of the messages."""

ALL_NODES = 1 << 30
"""In place of hops: a value with rows for all nodes."""


class NotCompilableError(Exception):
    """The kernel does not know an operation of the pass."""


class Code(IntEnum):
    """Operations of the kernel."""

    PRODUCT, LINEAR, SUM, TIMES, POOL, JOIN, FEATURES, LAYER_NORM, UNIT, LARGEST = range(10)
    RECEIVE, SENDERS, RECEIVERS = range(10, 13)


@dataclass(frozen=True)
class Value:
    """A value that the kernel computes.

    Args:
        number: which one.
        width: its columns.
        level: hops up to which it has rows, or :data:`ALL_NODES`, :data:`GRAPHS` or :data:`MESSAGES`.
    """

    number: int
    width: int
    level: int


@dataclass(frozen=True)
class MessageKind:
    """The messages of a step.

    Args:
        step: its number.
        factors: arguments that every message is multiplied with.
    """

    step: int
    factors: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Step:
    """An operation of the kernel, see ``Operation`` of pass.h.

    Args:
        code, target, source, other: as there.
        messages: number of the messages, or the first column of a part.
        shared: argument that holds rows for nodes, graphs or messages; of a read-out, which nodes are added up; of rows for
            messages, where they are taken from.
        inverse: whether one over these rows is meant.
        weights: what the shared rows are multiplied with first, [., width].
        row, bias: the same for all rows.
        is_scalar: whether all entries of ``row`` are the same number.
        activation: number and parameter, which may be an argument.
        least: what is added to a variance, or the least length.
    """

    code: Code
    target: Value
    source: Value | None = None
    other: Value | None = None
    messages: int = 0
    shared: fx.Node | None = None
    inverse: bool = False
    weights: Constant | None = None
    row: Constant | None = None
    bias: Constant | None = None
    is_scalar: bool = False
    activation: tuple[int, float | fx.Node] = (0, 0.0)
    least: float = 0.0

    @property
    def used(self) -> list[Value]:
        return [one for one in (self.source, self.other) if one is not None]


def padded(width: int) -> int:
    """Columns of a value in memory.

    >>> padded(10)
    16
    """
    return -(-width // TILE) * TILE
