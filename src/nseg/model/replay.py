"""Recorded passes, replayed without the model's Python, and with less arithmetic.

- What does not depend on the weights of a world is computed once for the instances, and shared by all worlds.
- What a step computes matters only for nodes from which it can still reach an explained output. Other rows are left out
  of every operation that works row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_arg

from nseg.graphs.batch import repeat_rows
from nseg.model.plan import Plan
from nseg.model.recording import CONSTANT, SIZES, NotRecordableError, size_of
from nseg.model.rewriting import dependents, multiply, simplify, write_in_place

aten = torch.ops.aten

X, PATTERN, WEIGHTS, INDEX = "x", "pattern_", "weights_", "index_"
"""Names of inputs: features; what a step multiplies with, and weights of its messages, which end with the step's number;
beginning of the names of what counts nodes, edges or graphs, and so differs between worlds."""

ROW_OPERAND = {
    **dict.fromkeys((aten.linear.default, aten.mm.default, aten.matmul.default, aten.reshape.default, aten.view.default), 0),
    **dict.fromkeys((aten.layer_norm.default, aten.batch_norm.default, aten.detach.default, aten.clone.default), 0),
    aten.prelu.default: 0,
    aten.addmm.default: 1,
}
"""Position of the operand whose rows become the rows of the result, one by one."""

DIMENSION = {
    **dict.fromkeys((aten.cat.default, aten.log_softmax.int, aten.softmax.int), 1),
    **dict.fromkeys((aten.squeeze.dim, aten.select.int, aten.slice.Tensor), 1),
    aten.linalg_vector_norm.default: 2,
}
"""Position of the dimensions along which an operation works: row by row if the first is not among them."""

Level = int | None
"""Hops up to which rows of a value are computed; None if all are."""

LEVEL = "level"
"""Key of the ``meta`` of what a pass computes and of its arguments: hops up to which it has rows."""

KIND = "kind"
"""Key of the ``meta`` of an argument of a pass: what it holds. ``"varied"``: an input that differs between worlds;
``"fixed"``: the same for all inputs; ``"nodes"`` and ``"worlds"``: rows for nodes, or otherwise repeated for every world;
``"one world"``: rows for the nodes of one world; ``"pattern"``: where messages go; ``"place"``: where rows stand."""

STEP = "step"
"""Key of the ``meta`` of a pattern: the number of its step."""


class Program:
    """A recorded pass, ready to be replayed in any worlds of any instances of its model.

    Args:
        graph: the pass, as a function of its inputs.
        varied: names of the inputs that differ between worlds.
        after: for each step, most later steps in a row that what it computes passes through; empty if all rows matter.
        shared: whether one world's values that are the same in all worlds can be copied for the others.

    Attributes:
        names: names of the arguments of :meth:`run`.
        operations: what :meth:`run` computes.
        level: hops up to which rows of the output are computed.
        weighed, masked: whether messages are weighed, and features masked.

    Raises:
        NotRecordableError: the pass does not depend on what varies, or what it shares cannot be copied.
    """

    def __init__(self, graph: fx.Graph, varied: Collection[str], after: Sequence[int], shared: bool) -> None:
        counting = [str(node.target) for node in graph.nodes if str(node.target).startswith(INDEX)]
        simplify(graph, varied, counting)
        built = _Builder(graph, varied, counting, after, shared)
        self.shared, self.level = shared, built.level
        self.weighed, self.masked = any(name.startswith(WEIGHTS) for name in varied), X in varied
        self._sources, self._varied = list(built.sources.values()), built.varied_positions
        self._shared, self._local = _Prepared(built.shared_values), _Prepared(built.local_values)
        self.names = list(built.sources)
        self.operations = fx.Graph()
        self.operations.output(self.operations.graph_copy(built.run, {}))
        self._forward = fx.GraphModule({}, built.run).forward
        write_in_place(built.run)
        self._forward_in_place = fx.GraphModule({}, built.run).forward

    def prepare(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values that are the same in all worlds, from the inputs of one world."""
        return self._shared(inputs)

    def bind(self, plan: Plan, inputs: Mapping[str, Any], base: Mapping[str, Any], prepared: tuple[Any, ...]) -> list[Any]:
        """The arguments of :meth:`run` in the worlds of a plan; those that vary are None.

        Args:
            plan: the plan.
            inputs: inputs of the pass in the worlds of the plan.
            base: inputs of the pass in one world.
            prepared: result of :meth:`prepare` for them.
        """
        bound = _Bound(plan, inputs, base, prepared, self._local(inputs))
        with torch.no_grad():
            return [source(bound) for source in self._sources]

    def run(self, bound: list[Any], varied: Mapping[str, Any]) -> Tensor:
        """The model's output, of which only the rows up to :attr:`level` hops are computed."""
        args = list(bound)
        for position, name in self._varied:
            args[position] = varied[name]
        found: Tensor = (self._forward if torch.is_grad_enabled() else self._forward_in_place)(*args)
        return found


class _Values:
    """Values of a recorded pass that are computed before it is run, as a function of their own."""

    def __init__(self) -> None:
        self.graph, self.constants = fx.Graph(), dict[str, Tensor]()
        self._copies: dict[fx.Node, fx.Node] = {}
        self._results: dict[fx.Node, int] = {}

    def number(self, node: fx.Node) -> int:
        """Position of a value among the results."""
        return self._results.setdefault(self._copy(node), len(self._results))

    def finish(self) -> None:
        self.graph.output(tuple(self._results))

    def _copy(self, node: fx.Node) -> fx.Node:
        if node not in self._copies:
            if node.op == "placeholder":
                name = str(node.target)
                if CONSTANT in node.meta:
                    self.constants[name] = node.meta[CONSTANT]
                with self.graph.inserting_before(next(iter(self.graph.nodes), None)):
                    self._copies[node] = self.graph.placeholder(name)
            else:
                args, kwargs = map_arg((node.args, node.kwargs), self._copy)
                self._copies[node] = self.graph.create_node(node.op, node.target, args, kwargs)
        return self._copies[node]


class _Prepared:
    """Computes values from the inputs of a pass."""

    def __init__(self, values: _Values) -> None:
        self._constants, self._compute = values.constants, fx.GraphModule({}, values.graph).forward
        self._names = [str(node.target) for node in values.graph.nodes if node.op == "placeholder"]

    @torch.no_grad()
    def __call__(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        known = {**self._constants, **inputs}
        found: tuple[Any, ...] = self._compute(*(known[name] for name in self._names))
        return found


@dataclass(frozen=True)
class _Bound:
    """The worlds of a plan.

    Args:
        plan: the plan.
        inputs: inputs of the pass in its worlds.
        base: inputs of the pass in one world.
        shared: values that are the same in all worlds, from those.
        local: other values that do not vary.
    """

    plan: Plan
    inputs: Mapping[str, Any]
    base: Mapping[str, Any]
    shared: tuple[Any, ...]
    local: tuple[Any, ...]

    def expand(self, value: Any, kind: str, level: Level) -> Any:
        """A value of one world, for all worlds."""
        if kind == "nodes":
            return self.rows(value.index_select(0, self.plan.batch.node), level)
        return repeat_rows(value, self.plan.worlds) if kind == "worlds" else value

    def rows(self, value: Any, level: Level) -> Any:
        """Rows of a value up to some hops."""
        return value if level is None else value.index_select(0, self.plan.rows_within(level))


Source = Callable[[_Bound], Any]
"""Where an argument of the replayed function comes from."""


class _Builder:
    """Splits a recorded pass into what is prepared once and what is run in every pass.

    Attributes:
        run: what every pass computes, as a function.
        shared_values, local_values: what is prepared, for one world and for all.
        sources: where the arguments of ``run`` come from, by name.
        varied_positions: positions and names of those that vary.
        level: hops up to which rows of the output are computed.
    """

    def __init__(
        self, graph: fx.Graph, varied: Collection[str], counting: Collection[str], after: Sequence[int], shared: bool
    ) -> None:
        self.varied, self.after, self.shared = set(varied), after, shared
        self.nodes_pair = next(_rows(n) for n in graph.nodes if n.op == "placeholder" and n.target == X)
        self.run, self.shared_values, self.local_values = fx.Graph(), _Values(), _Values()
        self.sources: dict[str, Source] = {}
        self.varied_positions: list[tuple[int, str]] = []
        self._arguments: dict[str, fx.Node] = {}
        self._live: dict[fx.Node, tuple[fx.Node, Level]] = {}  # what depends on what varies
        self._counts = dependents(graph, counting)  # what depends on the numbering of a world
        varies = dependents(graph, varied)
        for node in graph.nodes:
            if node.op == "output":
                self._finish(node.args[0])
            elif node in varies:
                self._live[node] = self._convert(node)

    def _finish(self, output: fx.Node) -> None:
        if output not in self._live:
            raise NotRecordableError("the output does not depend on what varies")
        value, self.level = self._live[output]
        self.run.output(value)
        self.shared_values.finish()
        self.local_values.finish()
        names = [node.target for node in self.run.nodes if node.op == "placeholder"]
        self.sources = {name: self.sources[name] for name in names}
        self.varied_positions = [(names.index(name), name) for name in names if name in self.varied]

    def _kind(self, node: fx.Node) -> str:
        """Whether the rows of a value stand for nodes, are otherwise repeated for every world, or neither."""
        sizes = node.meta.get(SIZES)
        if sizes is None or sizes[0] is None or sizes[0] == sizes[1]:
            return "fixed"
        if sizes[0][1:] != sizes[1][1:]:
            return "unknown"
        return "nodes" if _rows(node) == self.nodes_pair else "worlds"

    # --- what every pass computes ----------------------------------------------------------------------------------------

    def _convert(self, node: fx.Node) -> tuple[fx.Node, Level]:
        """A node of the pass in ``run``, and the hops up to which its rows are computed."""
        if node.op == "placeholder":
            argument = self._argument(str(node.target), lambda _: None, "varied")
            argument.meta[SIZES] = node.meta.get(SIZES)
            return argument, None
        if node.target is multiply:
            return self._product(node)
        if node.target is getitem:
            source, position = _args(node)
            value, level = self._live[source]
            level = level if self._kind(node) == "nodes" else None
            return self._copy(node, (value, position), {}, level), level
        level = self._level_of(node)
        args, kwargs = map_arg((node.args, node.kwargs), lambda one: self._operand(one, level))
        return self._copy(node, args, kwargs, level), level

    def _copy(self, node: fx.Node, args: Any, kwargs: Any, level: Level) -> fx.Node:
        copy = self.run.create_node(node.op, node.target, args, kwargs)
        copy.meta = {**node.meta, KIND: self._kind(node), LEVEL: level}
        return copy

    def _level_of(self, node: fx.Node) -> Level:
        """Hops up to which the rows of an operation are computed: as far as all its operands are, if it works by rows."""
        operands = [one for one in node.all_input_nodes if one.target is not size_of and self._kind(one) == "nodes"]
        levels = [level for one in operands if one in self._live and (level := self._live[one][1]) is not None]
        return min(levels) if levels and self._is_by_row(node, operands) else None

    def _is_by_row(self, node: fx.Node, operands: list[fx.Node]) -> bool:
        """Whether every row of the result depends on the same row of the operands alone."""
        function: Any = node.target
        if function in ROW_OPERAND:
            return operands == [_args(node)[ROW_OPERAND[function]]]
        rank = len(node.meta[SIZES][0]) if SIZES in node.meta else 0
        if function in DIMENSION:
            given = _args(node)[DIMENSION[function] :][:1]  # not given: the first
            along = given[0] if given and isinstance(given[0], list | tuple) else given
            return bool(along) and all(one % len(operands[0].meta[SIZES][0]) for one in along)
        pointwise = torch.Tag.pointwise in getattr(function, "tags", ())
        return pointwise and all(len(one.meta[SIZES][0]) == rank for one in operands)

    def _operand(self, node: fx.Node, level: Level) -> fx.Node:
        """An operand with its rows up to ``level`` hops."""
        if node.target is size_of:
            source, dimension = _args(node)
            return self.run.call_function(size_of, (self._operand(source, level), dimension))
        if node not in self._live:
            return self._constant(node, level)
        value, own = self._live[node]
        if own == level or self._kind(node) != "nodes":
            return value
        if level is None:
            assert own is not None
            everything = self._argument("node_rows", lambda bound: bound.plan.batch.inputs.num_nodes, "place")
            return self.run.call_function(spread, (value, self._rows_within(own), everything))
        place = self._argument(f"rows_{level}_of_{own}", lambda bound: bound.plan.positions(level, own), "place")
        fewer = self.run.call_function(aten.index_select.default, (value, 0, place))
        fewer.meta = {**node.meta, KIND: "nodes", LEVEL: level}
        return fewer

    def _rows_within(self, level: int) -> fx.Node:
        return self._argument(f"rows_{level}", lambda bound: bound.plan.rows_within(level), "place")

    def _product(self, node: fx.Node) -> tuple[fx.Node, Level]:
        """What nodes receive: computed for those that matter, from features that may be shared by all worlds."""
        given, values, features = _args(node)
        step = int(str(given.target).removeprefix(PATTERN))
        to = self.after[step] if self.after and self._kind(node) == "nodes" else None
        if features in self._live:
            sent, of = self._live[features]
            name = f"{PATTERN}{step}_{of}_{to}"
            pattern = self._argument(name, lambda bound: bound.plan.pattern(step, of, to), "pattern")
        elif self._is_shared(features) and self._kind(features) == "nodes":
            sent = self._constant(features, None, of_one_world=True)
            name = f"{PATTERN}{step}_shared_{to}"
            pattern = self._argument(name, lambda bound: bound.plan.shared_pattern(step, to), "pattern")
        else:
            sent = self._constant(features, None)
            name = f"{PATTERN}{step}_None_{to}"
            pattern = self._argument(name, lambda bound: bound.plan.pattern(step, None, to), "pattern")
        pattern.meta[STEP] = step
        return self._copy(node, (pattern, self._operand(values, None), sent), {}, to), to

    # --- what is the same in all worlds ----------------------------------------------------------------------------------

    def _is_shared(self, node: fx.Node) -> bool:
        """Whether a value that does not vary is the same in all worlds."""
        return self.shared and node not in self._counts

    def _constant(self, node: fx.Node, level: Level, of_one_world: bool = False) -> fx.Node:
        """An argument of ``run`` that holds a value which does not vary."""
        kind = self._kind(node)
        level = level if kind == "nodes" else None
        name = f"{node.name}_{level}" + "_shared" * of_one_world
        source = self._constant_source(node, kind, level, of_one_world)
        return self._argument(name, source, "one world" if of_one_world else kind, level)

    def _constant_source(self, node: fx.Node, kind: str, level: Level, of_one_world: bool) -> Source:
        if CONSTANT in node.meta:
            constant = node.meta[CONSTANT]
            return lambda _: constant
        if node.op == "placeholder":
            given = str(node.target)
            if of_one_world:
                return lambda bound: bound.base[given]
            return lambda bound: bound.rows(bound.inputs[given], level)
        if not self._is_shared(node):
            local = self.local_values.number(node)
            return lambda bound: bound.rows(bound.local[local], level)
        if kind == "unknown":
            raise NotRecordableError("a value has worlds along another dimension than its first")
        number = self.shared_values.number(node)
        if of_one_world:
            return lambda bound: bound.shared[number]
        return lambda bound: bound.expand(bound.shared[number], kind, level)

    def _argument(self, name: str, source: Source, kind: str, level: Level = None) -> fx.Node:
        """An argument of ``run``, by name; it is made where it is used first."""
        if name not in self._arguments:
            self.sources[name] = source
            with self.run.inserting_before(next(iter(self.run.nodes), None)):
                self._arguments[name] = self.run.placeholder(name)
            self._arguments[name].meta = {KIND: kind, LEVEL: level}
        return self._arguments[name]


def _args(node: fx.Node) -> tuple[Any, ...]:
    """Arguments of a node, which are nodes or plain values."""
    return node.args


def _rows(node: fx.Node) -> tuple[int, int] | None:
    """Number of rows of a value in both recordings."""
    first, second = node.meta[SIZES]
    return (first[0], second[0]) if first and second else None


def spread(value: Tensor, rows: Tensor, number: int) -> Tensor:
    """Values of some rows, and zeros for all others."""
    return value.new_zeros(number, *value.shape[1:]).index_copy(0, rows, value)
