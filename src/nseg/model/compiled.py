"""Recorded passes as lists of operations of the compiled kernel.

The kernel (:mod:`nseg.model.kernel`) knows the operations that most networks are made of. A pass that begins with others is
left to torch; what follows on the read-out, or on explained nodes or pairs of nodes, may be anything: it is run by torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from nseg.model.conversion import Conversion
from nseg.model.kernel_steps import ALL_NODES, GRAPHS, Code, NotCompilableError, Step, Value, padded
from nseg.model.narrowing import narrow_messages
from nseg.model.replay import KIND, LEVEL, Program, spread

aten = torch.ops.aten

MOST_CHAINED = 256
"""Widest value that is not stored between two linear operations, ``MOST_FEATURES`` of passes.c."""

LEAST_PACKED = 256
"""Products per row from which on it pays to look for rows that are the same."""


@cache
def compile_program(program: Program) -> CompiledPass:
    """A recorded pass as operations of the kernel, made once."""
    return CompiledPass(program)


class CompiledPass:
    """A recorded pass as operations of the kernel.

    Args:
        program: the recorded pass.

    Attributes:
        steps: the operations.
        messages: the kinds of messages that they pass on.
        result: the value that they end with.
        chained: whether each operation is run together with the next one, so that its own target is not kept.
        packed: whether each operation computes rows only once that are the same in several worlds.
        compared: numbers of the values of which it must be known for that where rows are the same.
        buffers: where each value is kept; several share a place.
        tail: what torch makes of the result, and its other arguments; None if nothing.

    Raises:
        NotCompilableError: the kernel does not know an operation.
    """

    def __init__(self, program: Program) -> None:
        converted = Conversion()
        rest = [node for node in program.operations.nodes if node.op == "call_function"]
        last: Any = next(node for node in program.operations.nodes if node.op == "output").args[0]
        try:
            while rest:
                converted.convert(rest[0])
                rest = rest[1:]
        except NotCompilableError:
            pass
        self.tail = Tail(_entry(rest, converted.values), rest, last) if rest else None
        self.result = converted.live(last if self.tail is None else self.tail.entry)
        if self.tail is not None and not self.tail.ends and not _can_be_last(self.result, rest):
            raise NotCompilableError
        self.messages, self.steps = converted.messages, narrow_messages(_needed(converted.steps, self.result))
        self.chained = _chained(self.steps)
        self.packed = _packed(self.steps, self.chained)
        self.compared = _compared(self.steps, self.packed)
        self.buffers = _share_memory(self.steps, self.chained, self.result)


class Tail:
    """What torch makes of the kernel's result.

    Args:
        entry: the result.
        nodes: the operations that follow on it.
        last: the one that is returned.

    Attributes:
        ends: arguments that hold the rows of the result which explained pairs need, one for each end; empty if rows of the
            result are explained themselves.
        arguments: the others.
    """

    def __init__(self, entry: fx.Node, nodes: Sequence[fx.Node], last: fx.Node) -> None:
        self.entry, self.arguments = entry, list[fx.Node]()
        graph, same = fx.Graph(), [entry, *(node for node in nodes if node.target is spread and node.args[0] is entry)]
        looked_up = {node: end for node in nodes if (end := _looked_up(node, same)) is not None}
        self.ends = list(dict.fromkeys(looked_up.values()))
        copies = dict(zip(self.ends, [graph.placeholder(f"end_{end.name}") for end in self.ends], strict=True))
        copies |= {node: copies[end] for node, end in looked_up.items()}
        if not self.ends:
            copies[entry] = graph.placeholder("result")
        nodes = [node for node in nodes if node not in looked_up and not (self.ends and node in same)]
        for one in dict.fromkeys(one for node in nodes for one in node.all_input_nodes):
            if one not in copies and one not in nodes:
                if one.op != "placeholder" or one.meta[KIND] != "fixed":
                    raise NotCompilableError
                self.arguments.append(one)
                copies[one] = graph.placeholder(one.name)
        for node in nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(copies[last])
        self.run = fx.GraphModule({}, graph).forward


def _looked_up(node: fx.Node, same: Sequence[fx.Node]) -> fx.Node | None:
    """The argument that says which rows of a value a node is; None if it is something else."""
    args: tuple[Any, ...] = node.args
    if node.target is aten.index.Tensor and args[0] in same and len(args[1]) == 1:
        end = args[1][0]
    elif node.target is aten.index_select.default and args[0] in same and args[1] in (0, -2):
        end = args[2]
    else:
        return None
    return end if isinstance(end, fx.Node) and end.op == "placeholder" and end.meta[KIND] == "worlds" else None


def _entry(rest: Sequence[fx.Node], values: dict[fx.Node, Value]) -> fx.Node:
    """The only value that what is left to torch needs."""
    used = {one for node in rest for one in node.all_input_nodes if one in values}
    if len(used) != 1:
        raise NotCompilableError
    return used.pop()


def _can_be_last(value: Value, rest: Sequence[fx.Node]) -> bool:
    """Whether what follows on a value works on rows of graphs, or of explained nodes, one by one."""
    by_row = value.level not in (GRAPHS, ALL_NODES) and all(node.meta.get(LEVEL) == value.level for node in rest)
    return value.level == GRAPHS or by_row


def _needed(steps: Sequence[Step], result: Value) -> list[Step]:
    """The steps that a result needs."""
    used = {result.number}
    for step in reversed(steps):
        if step.target.number in used:
            used |= {one.number for one in step.used}
    found = [step for step in steps if step.target.number in used]
    if not found or found[-1].target.number != result.number:
        raise NotCompilableError
    return found


def _chained(steps: Sequence[Step]) -> list[bool]:
    """Whether only the next operation uses what each computes, and both can be run together.

    These are linear operations in a row, and a sum after messages: a network adds what a node receives to its own row.
    """
    uses = Counter(value.number for step in steps for value in step.used)
    found = [False] * len(steps)
    for number, (step, following) in enumerate(pairwise(steps)):
        linear = step.code is Code.LINEAR and following.code is Code.LINEAR and step.shared is None
        narrow = padded(max(step.target.width, following.target.width)) <= MOST_CHAINED
        plain = step.bias is None and step.activation[0] == 0 and step.target.level == following.target.level
        added = step.code is Code.PRODUCT and following.code is Code.SUM and plain
        alone = following.source == step.target and uses[step.target.number] == 1
        found[number] = alone and ((linear and narrow) or added)
    return found


def _packed(steps: Sequence[Step], chained: Sequence[bool]) -> list[bool]:
    """Whether it is worth while that an operation, with those chained to it, computes rows only once that are the same."""
    found, after = [False] * len(steps), 0  # after: products per row of what is chained to the operation
    for number in reversed(range(len(steps))):
        step = steps[number]
        if step.code is Code.LINEAR and step.source is not None:
            widths = step.source.width, padded(step.target.width)
            after = widths[0] * widths[1] + (after if chained[number] else 0)
            found[number] = max(widths) <= MOST_CHAINED and after >= LEAST_PACKED
    return found


def _compared(steps: Sequence[Step], packed: Sequence[bool]) -> set[int]:
    """Values of which it must be known where rows are the same: those that are packed, and what they are computed from."""
    found = set[int]()
    for step, is_packed in zip(reversed(steps), reversed(packed), strict=True):
        if is_packed or step.target.number in found:
            found |= {value.number for value in step.used}
    return found


def _share_memory(steps: Sequence[Step], chained: Sequence[bool], result: Value) -> dict[int, int]:
    """Where each value is kept: in the place of one that is not needed any more, if there is one."""
    last: dict[int, int] = {}
    for at, step in enumerate(steps):
        end = next(later for later in range(at, len(steps)) if not chained[later])
        last |= {one.number: end for one in step.used}
    last[result.number] = len(steps)
    places: dict[int, int] = {}
    for at, step in enumerate(steps):
        if step.target.number not in places:
            taken = {places[number] for number in places if last.get(number, -1) >= at}
            places[step.target.number] = next(place for place in range(len(steps) + 1) if place not in taken)
    return places
