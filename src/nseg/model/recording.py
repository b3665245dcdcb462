"""A forward pass as a list of tensor operations, recorded while the model runs.

The Python of a model (modules, hooks, shape checks, branches) costs more than its arithmetic where graphs are small. It
does the same in every pass, so it is run twice, on inputs of different sizes, and what both runs have in common is a
function of the inputs: a :class:`torch.fx.Graph`, in which sizes are looked up instead of fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import getitem
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = "sizes"
"""Key of a node's ``meta``: the shape of its value in both recordings."""

DTYPE = "dtype"
"""Key of a node's ``meta``: the number type of its value; None if it is no tensor."""

CONSTANT = "constant"
"""Key of the ``meta`` of a placeholder that is no input: its value, such as a parameter of the model."""


class NotRecordableError(Exception):
    """The pass is not the same list of operations for every input; its Python has to run."""


@dataclass(frozen=True)
class _Slot:
    """A value of the recorded pass, by number."""

    number: int


@dataclass(frozen=True)
class _Operation:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[int]
    many: bool  # whether it returns several values


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records all tensor operations while active. To be used in inference mode, where views keep their identity.

    Args:
        inputs: what the pass starts from, by name; tensors are recognised by identity.
    """

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names = list(inputs)
        self.operations: list[_Operation] = []
        self.values: list[Any] = []  # kept, so that no identity is used twice
        self.depends: list[bool] = []  # whether a value depends on floating point inputs
        self._slots: dict[int, int] = {}
        self._paused = False
        for value in inputs.values():
            self._add(value, isinstance(value, Tensor) and value.is_floating_point())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = None if self._paused else self._encode((args, kwargs))
        result = func(*args, **kwargs)
        if inputs is not None:
            self._record(func, args, inputs, result)
        return result

    def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function as one operation of the pass."""
        inputs, self._paused = self._encode((args, {})), True
        try:
            result = function(*args)
        finally:
            self._paused = False
        self._append(function, inputs, result)
        return result

    def slot(self, value: Tensor) -> int:
        """Number of a value."""
        if id(value) not in self._slots:
            raise NotRecordableError("the output is not computed by tensor operations")
        return self._slots[id(value)]

    def shape(self, number: int) -> tuple[int, ...] | None:
        """Shape of a value; None if it is no tensor."""
        return tuple(self.values[number].shape) if isinstance(self.values[number], Tensor) else None

    def _add(self, value: Any, depends: bool) -> int:
        self.values.append(value)
        self.depends.append(depends)
        self._slots[id(value)] = len(self.values) - 1
        return len(self.values) - 1

    def _encode(self, args: Any) -> Any:
        """Arguments with slots in place of known values."""

        def encode(leaf: Any) -> Any:
            return _Slot(self._slots[id(leaf)]) if id(leaf) in self._slots and not isinstance(leaf, int) else leaf

        return map_aggregate(args, encode)

    def _record(self, function: Any, args: tuple[Any, ...], inputs: Any, result: Any) -> None:
        if any(result is one for one in args) and not function._schema.is_mutable:
            return  # dropout in evaluation, for instance, returns what it was given
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise NotRecordableError("it draws random numbers")
        if function._schema.is_mutable:
            function = self._functional(function, args, result)
        self._append(function, inputs, result)

    def _append(self, function: Callable[..., Any], inputs: Any, result: Any) -> None:
        depends = any(self.depends[slot.number] for slot in _leaves(inputs) if isinstance(slot, _Slot))
        many = isinstance(result, tuple | list)
        results = list(result) if many else [result]
        if not all(isinstance(one, Tensor) for one in results):
            if depends:
                raise NotRecordableError("its Python depends on values")
            return  # a number made of indices alone, which later arguments show
        args, kwargs = inputs
        self.operations.append(_Operation(function, args, kwargs, [self._add(one, depends) for one in results], many))

    def _functional(self, function: Any, args: tuple[Any, ...], result: Any) -> Any:
        """The operation that computes what a mutating one writes, if nothing else sees the change."""
        changed = args[0] if args else None
        space, name = function._schema.name.split("::")
        other = getattr(getattr(torch.ops, space), name[:-1], None) if name.endswith("_") else None
        overload = None if other is None else getattr(other, function._overloadname, None)
        if overload is None or result is not changed or not isinstance(changed, Tensor) or id(changed) not in self._slots:
            raise NotRecordableError(f"it writes in place ({name})")
        place, own = changed.untyped_storage().data_ptr(), self._slots[id(changed)]
        tensors = (v for number, v in enumerate(self.values) if number != own and isinstance(v, Tensor) and v is not changed)
        shared = own < len(self.names) or any(v.numel() and v.untyped_storage().data_ptr() == place for v in tensors)
        if shared and changed.numel():
            raise NotRecordableError(f"it writes in place what is also used elsewhere ({name})")
        return overload


def _leaves(args: Any) -> Iterator[Any]:
    found: list[Any] = []
    map_aggregate(args, found.append)
    yield from found


@contextmanager
def recording(inputs: Mapping[str, Any]) -> Iterator[Recorder]:
    """Record the operations of a pass that is run without gradients."""
    with torch.inference_mode(), Recorder(inputs) as recorder:
        yield recorder


def size_of(value: Any, dimension: int) -> int:
    """Size of a tensor along a dimension, or a number of the inputs itself."""
    return int(value.shape[dimension]) if isinstance(value, Tensor) else int(value)


def merge(one: Recorder, other: Recorder, outputs: tuple[Tensor, Tensor], symbols: Mapping[str, int]) -> fx.Graph:
    """The function that two recordings have in common, with one placeholder per input.

    Args:
        one, other: recordings of the same pass on inputs of different sizes.
        outputs: what they returned.
        symbols: inputs that sizes may come from, and the dimension (0 for an input that is a number).

    Raises:
        NotRecordableError: the two are not the same function of their inputs.
    """
    if [o.function for o in one.operations] != [o.function for o in other.operations] or one.names != other.names:
        raise NotRecordableError("the operations depend on the size of the input")
    graph = fx.Graph()
    merged = _Merge(one, other, graph, symbols)
    for first, second in zip(one.operations, other.operations, strict=True):
        if first.results != second.results:
            raise NotRecordableError("the operations depend on the size of the input")
        args, kwargs = merged.arguments((first.args, first.kwargs), (second.args, second.kwargs))
        node = graph.call_function(first.function, args, kwargs)
        for position, number in enumerate(first.results):
            merged.define(number, graph.call_function(getitem, (node, position)) if first.many else node)
    slots = one.slot(outputs[0]), other.slot(outputs[1])
    if slots[0] != slots[1]:
        raise NotRecordableError("the output depends on the size of the input")
    graph.output(merged.nodes[slots[0]])
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output"))
    return graph


class _Merge:
    """Nodes of the graph by slot, and arguments that both recordings have in common."""

    def __init__(self, one: Recorder, other: Recorder, graph: fx.Graph, symbols: Mapping[str, int]) -> None:
        self.one, self.other, self.graph = one, other, graph
        self.nodes: dict[int, fx.Node] = {}
        self.constants: dict[int, fx.Node] = {}
        for number, name in enumerate(one.names):
            self.define(number, graph.placeholder(name))
        numbers = {name: number for number, name in enumerate(one.names)}
        self.symbols = [(numbers[name], dimension) for name, dimension in symbols.items()]

    def define(self, number: int, node: fx.Node) -> None:
        node.meta[SIZES] = self.one.shape(number), self.other.shape(number)
        node.meta[DTYPE] = getattr(self.one.values[number], "dtype", None)
        self.nodes[number] = node

    def arguments(self, first: Any, second: Any) -> Any:
        """The arguments of an operation, with nodes in place of slots and of sizes."""
        others = iter(list(_leaves(second)))
        own = [leaf.number for leaf in _leaves(first) if isinstance(leaf, _Slot)]
        return map_aggregate(first, lambda leaf: self._leaf(leaf, next(others, None), own))

    def _leaf(self, leaf: Any, other: Any, own: list[int]) -> Any:
        if isinstance(leaf, _Slot):
            if leaf != other:
                raise NotRecordableError("the operations depend on the size of the input")
            return self.nodes[leaf.number]
        if isinstance(leaf, Tensor):
            return self._constant(leaf, other)
        if type(leaf) is not type(other):
            raise NotRecordableError("the arguments depend on the size of the input")
        if leaf == other:
            return leaf
        if type(leaf) is not int:
            raise NotRecordableError("the arguments depend on the input")
        return self._size(leaf, other, own)

    def _constant(self, leaf: Tensor, other: Any) -> fx.Node:
        if other is not leaf and not (isinstance(other, Tensor) and leaf.dtype == other.dtype and torch.equal(leaf, other)):
            raise NotRecordableError("it uses tensors from elsewhere")
        if id(leaf) not in self.constants:
            node = self.graph.placeholder(f"constant_{len(self.constants)}")
            with torch.inference_mode(False):
                node.meta[CONSTANT] = leaf.clone() if leaf.is_inference() else leaf
            node.meta[SIZES] = tuple(leaf.shape), tuple(leaf.shape)
            self.constants[id(leaf)] = node
        return self.constants[id(leaf)]

    def _size(self, leaf: int, other: int, own: list[int]) -> fx.Node:
        """A node with the size that is ``leaf`` in one recording and ``other`` in the other."""
        found = [(n, d) for n in own for d in range(len(self.one.shape(n) or ())) if self._sizes(n, d) == (leaf, other)]
        found = found[:1] or [(n, d) for n, d in self.symbols if self._sizes(n, d) == (leaf, other)]
        if len(found) != 1:
            raise NotRecordableError("a size is none of the input's, or could be several")
        return self.graph.call_function(size_of, (self.nodes[found[0][0]], found[0][1]))

    def _sizes(self, number: int, dimension: int) -> tuple[int, int]:
        return size_of(self.one.values[number], dimension), size_of(self.other.values[number], dimension)
