"""Recorded passes as lists of operations of the compiled kernel.

The kernel (:mod:`nseg.model.kernel`) knows the operations that most networks are made of. A pass that begins with others is
left to torch; what follows on the read-out, or on the explained nodes, may be anything: it is run by torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx

from nseg.model.kernel import TILE
from nseg.model.recording import SIZES
from nseg.model.replay import KIND, LEVEL, STEP, WEIGHTS, Program, X
from nseg.model.rewriting import add_up, multiply

aten = torch.ops.aten

Lookup = Callable[[fx.Node], Any]
"""Returns what an argument of a pass holds in one world of all instances."""

Constant = Callable[[Lookup], Tensor]
"""A tensor made of arguments of a pass."""

GRAPHS = -1
"""In place of hops: a value with one row per instance."""

ALL_NODES = 1 << 30
"""In place of hops: a value with rows for all nodes."""


class Code(IntEnum):
    """Operations of the kernel."""

    PRODUCT, LINEAR, SUM, TIMES, POOL, JOIN, FEATURES = range(7)


ACTIVATIONS = {
    aten.relu.default: (1, 0.0),
    aten.leaky_relu.default: (2, 0.01),
    aten.elu.default: (3, 1.0),
    aten.sigmoid.default: (4, 0.0),
    aten.tanh.default: (5, 0.0),
}
"""Number of each activation in the kernel, and the default of its only parameter."""

UNCHANGED = (aten.detach.default, aten.clone.default, aten.alias.default, aten.view.default, aten.reshape.default)
"""Operations that return their first operand if its shape stays."""


class NotCompilableError(Exception):
    """The kernel does not know an operation of the pass."""


@dataclass(frozen=True)
class Value:
    """A value that the kernel computes.

    Args:
        number: which one.
        width: its columns.
        level: hops up to which it has rows, or :data:`ALL_NODES` or :data:`GRAPHS`.
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
    """An operation of the kernel, see ``Operation`` of passes.c.

    Args:
        code, target, source, other: as there.
        messages: number of the messages, or the first column of a part.
        shared: argument that holds rows for nodes, or for graphs; of a read-out, which nodes are added up.
        inverse: whether one over these rows is meant.
        row, bias: the same for all rows.
        activation: number and parameter.
    """

    code: Code
    target: Value
    source: Value | None = None
    other: Value | None = None
    messages: int = 0
    shared: fx.Node | None = None
    inverse: bool = False
    row: Constant | None = None
    bias: Constant | None = None
    activation: tuple[int, float] = (0, 0.0)

    @property
    def used(self) -> list[Value]:
        return [one for one in (self.source, self.other) if one is not None]


@cache
def compile_program(program: Program) -> CompiledPass:
    """A recorded pass as operations of the kernel, made once."""
    return CompiledPass(program)


class CompiledPass:
    """A recorded pass as operations of the kernel.

    Args:
        program: the recorded pass.

    Attributes:
        program: the same.
        steps: the operations.
        messages: the kinds of messages that they pass on.
        result: the value that they end with.
        buffers: where each value is kept; several share a place.
        tail: what torch makes of the result, and its other arguments; None if nothing.

    Raises:
        NotCompilableError: the kernel does not know an operation.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps: list[Step] = []
        self.messages: list[MessageKind] = []
        self._values: dict[fx.Node, Value] = {}
        nodes = [node for node in program.operations.nodes if node.op == "call_function"]
        last = next(node for node in program.operations.nodes if node.op == "output").args[0]
        compiled = 0
        for node in nodes:
            try:
                self._values[node] = self._convert(node)
            except NotCompilableError:
                break
            compiled += 1
        rest = nodes[compiled:]
        self.result = self._values[last] if last in self._values else self._result_of_prefix(rest)
        self.tail = _Tail(self._entry(rest), rest, last) if last not in self._values else None
        self._drop_unused()
        self.buffers = _share_memory(self.steps, self.result)

    # --- operations ------------------------------------------------------------------------------------------------------

    def _convert(self, node: fx.Node) -> Value:
        """Append the operation of a node; returns what it computes."""
        function, args = node.target, node.args
        if function is aten.mul.Tensor and self._message_factors(node) is not None:
            return Value(-1, 0, ALL_NODES)  # part of a product
        if function is multiply:
            return self._product(node)
        if function in (aten.linear.default, aten.mm.default, aten.addmm.default):
            return self._linear(node)
        if function in ACTIVATIONS:
            number, default = ACTIVATIONS[function]
            slope = float(args[1]) if len(args) > 1 else default
            if len(args) > 2 or node.kwargs:
                raise NotCompilableError
            return self._then(args[0], activation=(number, slope))
        if function in UNCHANGED and _shape(node) == _shape(args[0]):
            return self._live(args[0])
        if function is aten.index_select.default and args[2].meta.get(KIND) == "place":
            return replace(self._live(args[0]), level=_level(node))
        if function in (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor):
            return self._elementwise(node)
        if function is aten.addcmul.default and not node.kwargs and len(args) == 3:
            return self._sum(node, args[0], args[1:])
        if function is aten.batch_norm.default and not args[5]:
            return self._batch_norm(node)
        if function is add_up:
            source = self._live(args[1])
            if source.level != ALL_NODES:
                raise NotCompilableError
            return self._append(Step(Code.POOL, self._new(node, GRAPHS), source, shared=args[0]))
        if function is aten.cat.default and len(args) == 2 and args[1] in (1, -1):
            return self._join(node)
        raise NotCompilableError

    def _append(self, step: Step) -> Value:
        self.steps.append(step)
        return step.target

    def _new(self, node: fx.Node, level: int | None = None) -> Value:
        """The value of a node."""
        shape = _shape(node)
        if len(shape) != 2:
            raise NotCompilableError
        return Value(len(self.steps), shape[1], _level(node) if level is None else level)

    def _live(self, node: Any) -> Value:
        """A value that was computed before, or the masked features."""
        if isinstance(node, fx.Node) and node.op == "placeholder" and node.target == X and node.meta[KIND] == "varied":
            if node not in self._values:
                target = Value(len(self.steps), _shape(node)[-1], ALL_NODES)
                self._values[node] = self._append(Step(Code.FEATURES, target, shared=node))
            return self._values[node]
        found = self._values.get(node)
        if found is None or found.number < 0:
            raise NotCompilableError
        return found

    def _then(self, node: Any, **more: Any) -> Value:
        """Do something with each entry of a value, at once where it is computed if nothing else uses the value."""
        value, last = self._live(node), self.steps[-1]
        simple = last.code not in (Code.JOIN, Code.FEATURES) and not last.activation[0]
        if simple and last.target.number == value.number and _used_once(node) and ("bias" not in more or last.bias is None):
            self.steps[-1] = replace(last, **more)
            return value
        one: Constant = lambda _: torch.ones(value.width)
        return self._append(Step(Code.TIMES, replace(value, number=len(self.steps)), value, row=one, **more))

    def _product(self, node: fx.Node) -> Value:
        pattern, values, sent = node.args
        factors = self._message_factors(values)
        if factors is None:
            raise NotCompilableError
        kind = MessageKind(pattern.meta[STEP], factors)
        if kind not in self.messages:
            self.messages.append(kind)
        shared = sent if sent.op == "placeholder" and sent.meta[KIND] in ("one world", "nodes") else None
        source = None if shared is not None else self._live(sent)
        return self._append(Step(Code.PRODUCT, self._new(node), source, messages=self.messages.index(kind), shared=shared))

    def _message_factors(self, node: Any) -> tuple[fx.Node, ...] | None:
        """Arguments whose product the weights of messages are, besides those of the world; None if they are not."""
        if not isinstance(node, fx.Node):
            return None
        if node.op == "placeholder":
            if node.meta[KIND] == "varied":
                return () if str(node.target).startswith(WEIGHTS) else None
            return (node,) if node.meta[KIND] in ("worlds", "nodes") else None
        if node.target is aten.mul.Tensor and len(_shape(node)) == 1:
            parts = [self._message_factors(one) for one in node.args]
            return None if None in parts else tuple(one for part in parts for one in part or ())
        return None

    def _linear(self, node: fx.Node) -> Value:
        args = node.args
        if node.kwargs:
            raise NotCompilableError
        if node.target is aten.addmm.default:
            bias, source, weight = args
        else:
            source, weight, bias = (*args, None)[:3]
        _require_fixed(weight, bias)
        turned = node.target is aten.linear.default
        row: Constant = lambda get: get(weight).t() if turned else get(weight)
        shift: Constant | None = None if bias is None else lambda get: get(bias)
        given = self._live(source)
        return self._append(Step(Code.LINEAR, self._new(node, given.level), given, row=row, bias=shift))

    def _elementwise(self, node: fx.Node) -> Value:
        a, b = node.args
        inverse, alpha = node.target is aten.div.Tensor, float(node.kwargs.get("alpha", 1))
        if set(node.kwargs) - {"alpha"}:
            raise NotCompilableError
        if node.target in (aten.mul.Tensor, aten.div.Tensor):
            if not inverse and not self._is_live(a):
                a, b = b, a
            return self._times(node, a, b, inverse)
        if node.target is aten.add.Tensor and alpha == 1 and not self._is_live(a):
            a, b = b, a
        return self._sum(node, a, (b,), -alpha if node.target is aten.sub.Tensor else alpha)

    def _is_live(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and node in self._values

    def _times(self, node: fx.Node, a: Any, b: Any, inverse: bool) -> Value:
        source = self._live(a)
        if self._is_live(b):
            if inverse:
                raise NotCompilableError
            return self._append(Step(Code.TIMES, self._new(node, source.level), source, self._same_rows(b, source)))
        if isinstance(b, fx.Node) and b.meta[KIND] in ("nodes", "worlds"):
            return self._append(Step(Code.TIMES, self._new(node, source.level), source, shared=b, inverse=inverse))
        row: Constant = lambda get: _as_row(b, get, source.width).reciprocal() if inverse else _as_row(b, get, source.width)
        _require_fixed(b)
        return self._append(Step(Code.TIMES, self._new(node, source.level), source, row=row))

    def _sum(self, node: fx.Node, a: Any, factors: Sequence[Any], scale: float = 1.0) -> Value:
        """A value plus the product of some others."""
        source = self._live(a)
        live = [self._same_rows(one, source) for one in factors if self._is_live(one)]
        rest = [one for one in factors if not self._is_live(one)]
        shared = [one for one in rest if isinstance(one, fx.Node) and one.meta[KIND] in ("nodes", "worlds")]
        fixed = [one for one in rest if one not in shared]
        _require_fixed(*fixed)
        if len(live) > 1 or len(shared) > 1:
            raise NotCompilableError

        def row(get: Lookup) -> Tensor:
            found = torch.full((source.width,), scale)
            for one in fixed:
                found = found * _as_row(one, get, source.width)
            return found

        if not live and not shared:
            return self._then(a, bias=row)
        other, rows = (live or [None])[0], (shared or [None])[0]
        return self._append(Step(Code.SUM, self._new(node, source.level), source, other, shared=rows, row=row))

    def _same_rows(self, node: Any, source: Value) -> Value:
        found = self._live(node)
        if (found.width, found.level) != (source.width, source.level):
            raise NotCompilableError
        return found

    def _batch_norm(self, node: fx.Node) -> Value:
        source, weight, bias, mean, variance = node.args[:5]
        eps = float(node.args[7])
        _require_fixed(weight, bias, mean, variance)

        def row(get: Lookup) -> Tensor:
            found: Tensor = (get(variance) + eps).rsqrt()
            return found if weight is None else found * get(weight)

        def shift(get: Lookup) -> Tensor:
            found = -row(get) * get(mean)
            return found if bias is None else found + get(bias)

        value = self._live(source)
        return self._append(Step(Code.TIMES, self._new(node, value.level), value, row=row, bias=shift))

    def _join(self, node: fx.Node) -> Value:
        parts = [self._live(one) for one in node.args[0]]
        target, column = self._new(node, parts[0].level), 0
        if len({part.level for part in parts}) > 1:
            raise NotCompilableError
        for part in parts:
            self.steps.append(Step(Code.JOIN, target, part, messages=column))
            column += part.width
        return target

    # --- the end ---------------------------------------------------------------------------------------------------------

    def _entry(self, rest: Sequence[fx.Node]) -> fx.Node:
        """The only value that what is left to torch needs."""
        used = {one for node in rest for one in node.all_input_nodes if one in self._values}
        if len(used) != 1:
            raise NotCompilableError
        return used.pop()

    def _result_of_prefix(self, rest: Sequence[fx.Node]) -> Value:
        entry = self._entry(rest)
        value = self._live(entry)
        by_row = value.level not in (GRAPHS, ALL_NODES) and all(node.meta.get(LEVEL) == value.level for node in rest)
        if value.level != GRAPHS and not by_row:
            raise NotCompilableError
        return value

    def _drop_unused(self) -> None:
        """Drop what follows on the result, which torch computes."""
        used = {self.result.number}
        for step in reversed(self.steps):
            if step.target.number in used:
                used |= {one.number for one in step.used}
        self.steps = [step for step in self.steps if step.target.number in used]
        if not self.steps or self.steps[-1].target.number != self.result.number:
            raise NotCompilableError


class _Tail:
    """What torch makes of the kernel's result.

    Args:
        entry: the result.
        nodes: the operations that follow on it.
        last: the one that is returned.
    """

    def __init__(self, entry: fx.Node, nodes: Sequence[fx.Node], last: fx.Node) -> None:
        graph = fx.Graph()
        copies = {entry: graph.placeholder("result")}
        self.arguments: list[fx.Node] = []
        for node in nodes:
            for one in node.all_input_nodes:
                if one not in copies:
                    if one.op != "placeholder" or one.meta[KIND] != "fixed":
                        raise NotCompilableError
                    self.arguments.append(one)
                    copies[one] = graph.placeholder(one.name)
        for node in nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(copies[last])
        self.run = fx.GraphModule({}, graph).forward


def _share_memory(steps: Sequence[Step], result: Value) -> dict[int, int]:
    """Where each value is kept: in the place of one that is not needed any more, if there is one."""
    last = {one.number: at for at, step in enumerate(steps) for one in step.used}
    last[result.number] = len(steps)
    places: dict[int, int] = {}
    for at, step in enumerate(steps):
        if step.target.number not in places:
            taken = {places[number] for number in places if last.get(number, -1) >= at}
            places[step.target.number] = next(place for place in range(len(steps) + 1) if place not in taken)
    return places


def padded(width: int) -> int:
    """Columns of a value in memory.

    >>> padded(10)
    16
    """
    return -(-width // TILE) * TILE


def _shape(node: Any) -> tuple[int, ...]:
    sizes = node.meta.get(SIZES) if isinstance(node, fx.Node) else None
    return () if sizes is None or sizes[0] is None else sizes[0]


def _used_once(node: fx.Node) -> bool:
    """Whether a value is used only once, under whatever name."""
    while node.op == "call_function" and node.target in (*UNCHANGED, aten.index_select.default) and len(node.users) == 1:
        node = node.args[0]
    return len(node.users) == 1


def _level(node: fx.Node) -> int:
    if node.meta.get(KIND) != "nodes":
        raise NotCompilableError
    level = node.meta.get(LEVEL)
    return ALL_NODES if level is None else int(level)


def _require_fixed(*nodes: Any) -> None:
    """All are numbers, or arguments that are the same in all passes."""
    for node in nodes:
        if isinstance(node, fx.Node) and (node.op != "placeholder" or node.meta[KIND] != "fixed"):
            raise NotCompilableError


def _as_row(value: Any, get: Lookup, width: int) -> Tensor:
    """A number, or a tensor with one row at most, as a row."""
    found = get(value) if isinstance(value, fx.Node) else torch.tensor(float(value))
    return found.detach().reshape(-1).expand(width)
