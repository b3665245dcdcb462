"""From the operations of a recorded pass to those of the compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from nseg.model.kernel_steps import ALL_NODES, GRAPHS, MESSAGES, Code, Lookup, MessageKind, NotCompilableError, Step, Value
from nseg.model.products import RowSums
from nseg.model.recorded_arguments import (
    LAYER_NORM_DEFAULTS,
    UNCHANGED,
    arguments_of,
    as_number,
    as_row,
    constant,
    has_rows,
    is_masked,
    is_scalar,
    level_of,
    require_fixed,
    shape_of,
    used_once,
)
from nseg.model.recording import size_of
from nseg.model.replay import KIND, STEP, WEIGHTS
from nseg.model.rewriting import add_up, multiply, pick_largest

aten = torch.ops.aten

ACTIVATIONS: dict[Any, tuple[int, float]] = {
    aten.relu.default: (1, 0.0),
    aten.leaky_relu.default: (2, 0.01),
    aten.elu.default: (3, 1.0),
    aten.sigmoid.default: (4, 0.0),
    aten.tanh.default: (5, 0.0),
    aten.gelu.default: (6, 0.0),
    aten.silu.default: (8, 0.0),
    aten.softplus.default: (9, 0.0),
    aten.selu.default: (10, 0.0),
    aten.hardtanh.default: (11, 0.0),
}
"""Number of each activation in the kernel, and the default of its only parameter."""

GELU_BY_TANH = 7
"""Number of the approximation of GELU."""

USUAL: dict[Any, list[tuple[int, ...]]] = {aten.softplus.default: [(), (1, 20)], aten.hardtanh.default: [(0, 6)]}
"""Parameters of activations that the kernel knows with these alone."""

WAITING = Value(-1, 0, ALL_NODES)
"""In place of a value that is computed later, or by what uses it."""


class Conversion:
    """Converts a recorded pass, operation by operation.

    Attributes:
        steps: operations of the kernel so far.
        messages: the kinds of messages that they pass on.
        values: what they compute, by node of the pass; those that wait are computed when it is known for which step.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.messages: list[MessageKind] = []
        self.values: dict[fx.Node, Value] = {}

    def convert(self, node: fx.Node) -> None:
        """Append the operation of a node.

        Raises:
            NotCompilableError: the kernel does not know it.
        """
        if self._can_wait(node):
            self.values[node] = WAITING
        elif node.target in _METHODS:
            self.values[node] = _METHODS[node.target](self, node)
        else:
            raise NotCompilableError

    def live(self, node: Any) -> Value:
        """A value that was computed before, or the masked features."""
        if is_masked(node):
            if node not in self.values:
                target = Value(len(self.steps), shape_of(node)[-1], ALL_NODES)
                self.values[node] = self._append(Step(Code.FEATURES, target, shared=node))
            return self.values[node]
        found = self.values.get(node)
        if found is None or found.number < 0:
            raise NotCompilableError
        return found

    def _is_live(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and (node in self.values or is_masked(node))

    def _append(self, step: Step) -> Value:
        self.steps.append(step)
        return step.target

    def _new(self, node: fx.Node, level: int | None = None) -> Value:
        """The value of a node."""
        shape = shape_of(node)
        if len(shape) != 2:
            raise NotCompilableError
        return Value(len(self.steps), shape[1], level_of(node) if level is None else level)

    def _then(self, node: Any, **more: Any) -> Value:
        """Do something with each entry of a value, at once where it is computed if nothing else uses the value."""
        value, last = self.live(node), self.steps[-1]
        simple = last.code not in (Code.JOIN, Code.FEATURES) and not last.activation[0]
        if simple and last.target.number == value.number and used_once(node) and ("bias" not in more or last.bias is None):
            self.steps[-1] = replace(last, **more)
            return value

        def one(_: Lookup) -> Tensor:
            return torch.ones(value.width)

        return self._append(Step(Code.TIMES, replace(value, number=len(self.steps)), value, row=one, **more))

    # --- messages --------------------------------------------------------------------------------------------------------

    def _product(self, node: fx.Node) -> Value:
        pattern, values, sent = arguments_of(node)
        factors = self._message_factors(values)
        if factors is None:
            raise NotCompilableError
        kind = MessageKind(pattern.meta[STEP], factors)
        number = self._number_of(kind)
        shared = sent if sent.op == "placeholder" and sent.meta[KIND] in ("one world", "nodes") else None
        source = None if shared is not None else self.live(sent)
        return self._append(Step(Code.PRODUCT, self._new(node), source, messages=number, shared=shared))

    def _message_factors(self, node: Any) -> tuple[fx.Node, ...] | None:
        """Arguments whose product the weights of messages are, besides those of the world; None if they are not."""
        if not isinstance(node, fx.Node):
            return None
        if node.op == "placeholder":
            if node.meta[KIND] == "varied":
                return () if str(node.target).startswith(WEIGHTS) else None
            return (node,) if node.meta[KIND] in ("worlds", "nodes") else None
        if node.target is aten.mul.Tensor and len(shape_of(node)) == 1:
            parts = [self._message_factors(one) for one in node.args]
            return None if None in parts else tuple(one for part in parts for one in part or ())
        return None

    def _can_wait(self, node: fx.Node) -> bool:
        """Whether a value has rows for messages, or only says where they go."""
        if node.target in (RowSums, size_of):
            return True
        if node.target is aten.index_select.default:
            return bool(arguments_of(node)[2].meta.get(KIND) == "worlds")
        if node.target is aten.view.default and str(arguments_of(node)[0].target).startswith(WEIGHTS):
            return True
        return node.target is not add_up and any(self.values.get(one) is WAITING for one in node.all_input_nodes)

    def _receive(self, node: fx.Node) -> Value:
        """What nodes receive of messages that are not linear in the senders' features."""
        _, weighed = arguments_of(node)
        parts = [*weighed.args] if weighed.target is aten.mul.Tensor else []
        weights = [one for one in parts if one.target is aten.view.default and one.args[0].op == "placeholder"]
        if len(parts) != 2 or len(weights) != 1 or not str(weights[0].args[0].target).startswith(WEIGHTS):
            raise NotCompilableError
        sent = parts[1 - parts.index(weights[0])]
        kind = MessageKind(int(str(weights[0].args[0].target).removeprefix(WEIGHTS)), ())
        number = self._number_of(kind)
        self._end_waiting(sent, number)
        source, shared = (self.live(sent), None) if self._is_live(sent) else (None, sent)
        if source is not None and source.level != MESSAGES - number:
            raise NotCompilableError
        return self._append(Step(Code.RECEIVE, self._new(node), source, messages=number, shared=shared))

    def _end_waiting(self, node: fx.Node, number: int) -> None:
        """Compute a value that waits, and before it all those that it needs, for the messages with a number."""
        if self.values.get(node) is not WAITING:
            return
        if node.target is aten.index_select.default:
            source, _, where = arguments_of(node)
            given = self.live(source)
            target = self._new(node, MESSAGES - number)
            self.values[node] = self._append(Step(Code.SENDERS, target, given, messages=number, shared=where))
        elif node.target in _METHODS:
            for one in node.all_input_nodes:
                self._end_waiting(one, number)
            self.values[node] = _METHODS[node.target](self, node)
        else:
            raise NotCompilableError

    def _number_of(self, kind: MessageKind) -> int:
        if kind not in self.messages:
            self.messages.append(kind)
        return self.messages.index(kind)

    # --- rows ------------------------------------------------------------------------------------------------------------

    def _unchanged(self, node: fx.Node) -> Value:
        source = arguments_of(node)[0]
        if shape_of(node) != shape_of(source):
            raise NotCompilableError
        return self.live(source)

    def _fewer_rows(self, node: fx.Node) -> Value:
        """The rows within fewer hops, which come first."""
        if arguments_of(node)[2].meta.get(KIND) != "place":
            raise NotCompilableError
        return replace(self.live(arguments_of(node)[0]), level=level_of(node))

    def _linear(self, node: fx.Node) -> Value:
        if node.target is aten.addmm.default:
            bias, source, weight = arguments_of(node)
        else:
            source, weight, bias = (*arguments_of(node), None)[:3]
        require_fixed(weight, bias)
        turned = node.target is aten.linear.default

        def row(get: Lookup) -> Tensor:
            found: Tensor = get(weight)
            return found.t() if turned else found

        given = self.live(source)
        return self._append(Step(Code.LINEAR, self._new(node, given.level), given, row=row, bias=constant(bias)))

    def _activation(self, node: fx.Node) -> Value:
        function: Any = node.target
        number, slope = ACTIVATIONS[function]
        source, *more = arguments_of(node)
        if tuple(more) not in USUAL[function] if function in USUAL else len(more) > 1:
            raise NotCompilableError
        if more and function not in USUAL:
            slope = as_number(more[0])
        if node.kwargs.get("approximate", "none") != "none":
            number = GELU_BY_TANH
        return self._then(source, activation=(number, slope))

    def _learned_slope(self, node: fx.Node) -> Value:
        source, slope = arguments_of(node)
        require_fixed(slope)
        return self._then(source, activation=(ACTIVATIONS[aten.leaky_relu.default][0], slope))

    def _batch_norm(self, node: fx.Node) -> Value:
        source, weight, bias, mean, variance, training, _, eps, *_ = arguments_of(node)
        require_fixed(weight, bias, mean, variance)
        if training:
            raise NotCompilableError

        def row(get: Lookup) -> Tensor:
            found: Tensor = (get(variance) + eps).rsqrt()
            if weight is not None:
                found = found * get(weight)
            return found

        def shift(get: Lookup) -> Tensor:
            found: Tensor = -row(get) * get(mean)
            if bias is not None:
                found = found + get(bias)
            return found

        value = self.live(source)
        return self._append(Step(Code.TIMES, self._new(node, value.level), value, row=row, bias=shift))

    def _layer_norm(self, node: fx.Node) -> Value:
        source, shape, *more = arguments_of(node)
        weight, bias, eps = [*more, *LAYER_NORM_DEFAULTS[len(more) :]][:3]
        value, target = self.live(source), self._new(node, self.live(source).level)
        require_fixed(weight, bias)
        if list(shape) != [value.width]:
            raise NotCompilableError
        row, shift = constant(weight), constant(bias)
        return self._append(Step(Code.LAYER_NORM, target, value, row=row, bias=shift, least=as_number(eps)))

    def _lengths(self, node: fx.Node) -> Value:
        """Lengths of rows, which what divides by them looks up."""
        _, order, dim, keep, *_ = (*arguments_of(node), None, None)
        if order != 2 or list(dim or ()) not in ([1], [-1]) or keep is not True:
            raise NotCompilableError
        return Value(-1, 0, ALL_NODES)

    def _least_lengths(self, node: fx.Node) -> Value:
        if arguments_of(node)[0].target is not aten.linalg_vector_norm.default:
            raise NotCompilableError
        return Value(-1, 0, ALL_NODES)

    def _join(self, node: fx.Node) -> Value:
        given, *dim = arguments_of(node)
        parts = [self.live(one) for one in given]
        if dim not in ([1], [-1]) or len({part.level for part in parts}) > 1:
            raise NotCompilableError
        target, column = self._new(node, parts[0].level), 0
        for part in parts:
            self.steps.append(Step(Code.JOIN, target, part, messages=column))
            column += part.width
        return target

    def _pool(self, node: fx.Node) -> Value:
        groups, rows = arguments_of(node)
        if self.values.get(rows) is WAITING:
            return self._receive(node)
        source = self.live(rows)
        if source.level != ALL_NODES:
            raise NotCompilableError
        code = Code.POOL if node.target is add_up else Code.LARGEST
        return self._append(Step(code, self._new(node, GRAPHS), source, shared=groups))

    # --- sums and products -----------------------------------------------------------------------------------------------

    def _add(self, node: fx.Node) -> Value:
        (a, b), alpha = arguments_of(node), float(as_number(node.kwargs.get("alpha", 1)))
        if node.target is aten.add.Tensor and alpha == 1 and not self._is_live(a):
            a, b = b, a
        return self._sum(node, a, (b,), -alpha if node.target is aten.sub.Tensor else alpha)

    def _add_product(self, node: fx.Node) -> Value:
        a, *factors = arguments_of(node)
        return self._sum(node, a, factors)

    def _sum(self, node: fx.Node, a: Any, factors: Sequence[Any], scale: float = 1.0) -> Value:
        """A value plus the product of some others."""
        source = self.live(a)
        live = [self._same_rows(one, source) for one in factors if self._is_live(one)]
        rest = [one for one in factors if not self._is_live(one)]
        shared = [one for one in rest if has_rows(one)]
        fixed = [one for one in rest if one not in shared]
        require_fixed(*fixed)
        if len(live) > 1 or len(shared) > 1:
            raise NotCompilableError

        def row(get: Lookup) -> Tensor:
            found = torch.full((source.width,), scale, dtype=torch.float64)
            for one in fixed:
                found = found * as_row(one, get, source.width)
            return found

        if not live and not shared:
            return self._then(a, bias=row)
        target, other, rows = self._new(node, source.level), next(iter(live), None), next(iter(shared), None)
        scalar = all(map(is_scalar, fixed))
        return self._append(Step(Code.SUM, target, source, other, shared=rows, row=row, is_scalar=scalar))

    def _multiply(self, node: fx.Node) -> Value:
        if self._message_factors(node) is not None:
            return Value(-1, 0, ALL_NODES)  # part of a product
        a, b = arguments_of(node)
        return self._times(node, a, b) if self._is_live(a) else self._times(node, b, a)

    def _divide(self, node: fx.Node) -> Value:
        a, b = arguments_of(node)
        if not self._is_live(b):
            return self._times(node, a, b, inverse=True)
        lengths, least = (*b.args, None)[:2] if b.target is aten.clamp_min.default else (b, 0.0)
        if lengths.target is not aten.linalg_vector_norm.default or lengths.args[0] is not a:
            raise NotCompilableError
        source = self.live(a)
        return self._append(Step(Code.UNIT, self._new(node, source.level), source, least=as_number(least)))

    def _times(self, node: fx.Node, a: Any, b: Any, inverse: bool = False) -> Value:
        """A value times another one, or divided by what does not vary."""
        source = self.live(a)
        target = self._new(node, source.level)
        if self._is_live(b):
            return self._append(Step(Code.TIMES, target, source, self._same_rows(b, source)))
        if has_rows(b):
            return self._append(Step(Code.TIMES, target, source, shared=b, inverse=inverse))
        require_fixed(b)

        def row(get: Lookup) -> Tensor:
            found = as_row(b, get, source.width)
            return found.reciprocal() if inverse else found

        return self._append(Step(Code.TIMES, target, source, row=row))

    def _same_rows(self, node: Any, source: Value) -> Value:
        found = self.live(node)
        if (found.width, found.level) != (source.width, source.level):
            raise NotCompilableError
        return found


_METHODS: dict[Any, Callable[[Conversion, fx.Node], Value]] = {
    multiply: Conversion._product,
    **dict.fromkeys((add_up, pick_largest), Conversion._pool),
    aten.index_select.default: Conversion._fewer_rows,
    aten.batch_norm.default: Conversion._batch_norm,
    aten.layer_norm.default: Conversion._layer_norm,
    aten.linalg_vector_norm.default: Conversion._lengths,
    aten.clamp_min.default: Conversion._least_lengths,
    aten.prelu.default: Conversion._learned_slope,
    aten.cat.default: Conversion._join,
    aten.addcmul.default: Conversion._add_product,
    aten.mul.Tensor: Conversion._multiply,
    aten.div.Tensor: Conversion._divide,
    **dict.fromkeys((aten.add.Tensor, aten.sub.Tensor), Conversion._add),
    **dict.fromkeys((aten.linear.default, aten.mm.default, aten.matmul.default, aten.addmm.default), Conversion._linear),
    **dict.fromkeys(ACTIVATIONS, Conversion._activation),
    **dict.fromkeys(UNCHANGED, Conversion._unchanged),
}
"""How each operation of a pass is converted."""
