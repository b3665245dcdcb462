"""Compiled passes over the worlds of a batch of instances."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, fx

from nseg.graphs.batch import InstanceBatch, offsets
from nseg.graphs.inputs import Role
from nseg.model import kernel
from nseg.model.compiled import CompiledPass
from nseg.model.deletion_rules import DegreeData, Deletion, DeletionRules
from nseg.model.kernel_steps import ALL_NODES, GRAPHS, MESSAGES, Code, MessageKind, NotCompilableError, Step, padded
from nseg.model.known_answers import KnownAnswers
from nseg.model.plan import Messages
from nseg.model.products import RowSums
from nseg.model.recorded_arguments import is_masked
from nseg.model.replay import KIND, LEVEL
from nseg.model.subset_worlds import EDGES, NODES, OUTSIDE, SubsetWorlds

MOST_MEMORY = 1 << 25
"""Bytes that the values of the largest instance may take. Larger ones do not fit into the cache, and are left to torch."""


class CompiledBatch:
    """Runs a compiled pass in worlds of some instances of a batch.

    Args:
        compiled: the pass.
        instances: the batch.
        steps: the messages of its steps.
        arguments: what the pass is given in one world, by the name of the argument.
        deletes: how messages change where edges are deleted; None if they are weighed.

    Attributes:
        library, kernel_pass, known: the kernel, what it is told of the pass and the batch, and what it answered if anything.
        rows_each: rows of the kernel's output for each explained one.

    Raises:
        NotCompilableError: the kernel cannot run the pass on these instances.
    """

    def __init__(
        self,
        compiled: CompiledPass,
        instances: InstanceBatch,
        steps: Sequence[Messages],
        arguments: Mapping[str, Any],
        deletes: DeletionRules | None,
    ) -> None:
        self.compiled, self.instances, self._arguments = compiled, instances, arguments
        self.dtype = self._number_type()
        library = kernel.load_kernel(self.dtype)
        if library is None:
            raise NotCompilableError
        self.library = library
        self._kept: list[Any] = []  # what the kernel points to
        self.known: KnownAnswers | None = None
        self._ends = [] if compiled.tail is None else compiled.tail.ends
        self.rows_each = max(len(self._ends), 1)
        self._steps = [steps[kind.step] for kind in compiled.messages]
        self._sort_nodes()
        degrees = [] if deletes is None else deletes.degree_data()
        deletions = [Deletion()] * len(steps) if deletes is None else deletes.deletions()
        messages, self._message_numbers = self._different_messages(steps, deletions)
        self.kernel_pass = kernel.Pass(
            node_ptr=self._point(instances.ptr[Role.NODE]),
            edge_ptr=self._point(instances.ptr[Role.EDGE]),
            place=self._point(self._order - self._first, torch.int32),
            rows=self._point(self._rows, torch.int32),
            row_ptr=self._point(instances.row_ptr * self.rows_each),
            row=self._point(self._explained_rows(), torch.int32),
            instances=len(instances),
            degrees=(kernel.Degrees * len(degrees))(*map(self._degrees, degrees)),
            messages=(kernel.Messages * len(messages))(*map(self._point_to_messages, messages)),
            operations=(kernel.Operation * len(compiled.steps))(
                *map(self._operation, compiled.steps, compiled.chained, compiled.packed)
            ),
            num_degrees=len(degrees),
            num_messages=len(messages),
            num_operations=len(compiled.steps),
            outputs=compiled.result.width,
            factors=1,
        )
        self._allocate(len(degrees), messages)

    def run(self, worlds: SubsetWorlds, which: Tensor, instances: InstanceBatch) -> Tensor:
        """The model's output for the explained rows, [K, R, ...].

        Args:
            worlds: K worlds of some instances of the batch, which may be given several times.
            which: their numbers in the batch, [b].
            instances: these instances.
        """
        subsets, rows = worlds.kept.contiguous(), len(instances.row) * self.rows_each
        output = torch.empty(len(worlds), rows, self.compiled.result.width, dtype=self.dtype)
        names = list(worlds.parts)
        keeps = [[kept[names.index(name)] if name in names else True for name in (EDGES, NODES)] for kept in worlds.keeps]
        given = {
            "instance": which.contiguous(),
            "kept": subsets,
            "keeps": torch.tensor(keeps),
            "outside": torch.tensor(worlds.outside.get(OUTSIDE, [True] * len(worlds.keeps)), dtype=self.dtype),
            "edge_first": instances.ptr[Role.EDGE],
            "node_first": instances.ptr[Role.NODE],
            "row_first": instances.row_ptr * self.rows_each,
            "output": output,
        }
        for name, part in worlds.parts.items():
            kind = {EDGES: "edge", NODES: "node"}[name]
            given |= {f"{kind}_element": part.element.contiguous(), f"{kind}_range": part.ptr.contiguous()}
        self.kernel_pass.factors = worlds.parts[NODES].element.size(1) if NODES in worlds.parts else 1
        if self.known is None or not self.known.fits(worlds):
            self.known = KnownAnswers(self.instances, worlds, self.rows_each * output.size(2), self.dtype)
        question = kernel.Question(
            number=len(which),
            subsets=len(subsets),
            elements=subsets.size(1),
            worlds=len(keeps),
            output_rows=rows,
            known=self.known.address,
            **{name: value.data_ptr() for name, value in given.items()},
            **self._memory,
        )
        if self.library.run_passes(ctypes.byref(self.kernel_pass), ctypes.byref(question)):
            raise MemoryError
        return self.finish(output)

    def finish(self, output: Tensor) -> Tensor:
        """What torch makes of the kernel's output, [K, R, ...]."""
        tail = self.compiled.tail
        if tail is None:
            return output
        results = output.view(-1, self.rows_each, output.size(2)).unbind(1)
        found: Tensor = tail.run(*results, *(self._get(one) for one in tail.arguments))
        return found.view(len(output), output.size(1) // self.rows_each, *found.shape[1:])

    # --- what the kernel is given ----------------------------------------------------------------------------------------

    def _number_type(self) -> torch.dtype:
        """The widest type of all arguments, as torch would choose it."""
        tensors = [one for one in self._arguments.values() if isinstance(one, Tensor) and one.is_floating_point()]
        if not tensors or any(one.device.type != "cpu" for one in tensors):
            raise NotCompilableError
        return reduce(torch.promote_types, (one.dtype for one in tensors))

    def _get(self, node: fx.Node) -> Any:
        """What an argument of the pass holds."""
        found = self._arguments[str(node.target)]
        return found.detach() if isinstance(found, Tensor) else found

    def _point(self, value: Tensor | None, dtype: torch.dtype | None = None) -> int | None:
        """Address of a tensor, which is kept."""
        if value is None:
            return None
        dtype = dtype or (self.dtype if value.is_floating_point() else value.dtype)
        value = value.detach().to(dtype).contiguous()
        self._kept.append(value)
        return value.data_ptr()

    def _sort_nodes(self) -> None:
        """Order the nodes of each instance by hops, so that those within some hops come first."""
        instances = self.instances
        hops, owner, first = instances.hops, instances.node_owner, instances.ptr[Role.NODE]
        self._order = torch.argsort(owner * (int(hops.max()) + 1 if len(hops) else 1) + hops, stable=True)
        self._first = first[owner]  # of each node's instance; the order leaves it as it is
        self._position = torch.empty_like(self._order)
        self._position[self._order] = torch.arange(len(self._order))
        self._position -= self._first
        values = [step.target for step in self.compiled.steps]
        self._levels = sorted({value.level for value in values} - {GRAPHS})
        kept = [self._receivers(level) if level <= MESSAGES else hops <= level for level in self._levels]
        rows = [owner[one].bincount(minlength=len(instances)) for one in kept]
        self._rows = torch.stack(rows) if rows else owner[:0]

    def _receivers(self, level: int) -> Tensor:
        """Receiver of each message that a value has rows for."""
        step = self._steps[MESSAGES - level]
        return step.edge_index[step.call.receiver]

    def _message_order(self, step: Messages) -> Tensor:
        """Messages by the place of their receivers."""
        receiver = step.edge_index[step.call.receiver]
        return torch.argsort(self._position[receiver] + self._first[receiver], stable=True)

    def _explained_rows(self) -> Tensor | None:
        instances = self.instances
        if self._ends:
            ends = [self._get(one) for one in self._ends]
            if instances.outputs is not Role.PAIR or any(len(one) != instances.count(Role.PAIR) for one in ends):
                raise NotCompilableError
            return torch.stack([self._position[one[instances.row]] for one in ends], 1).flatten()
        if self.compiled.result.level == GRAPHS:
            every = torch.arange(len(instances))
            if instances.outputs is not Role.GRAPH or not torch.equal(instances.row, every):
                raise NotCompilableError
            return None
        if instances.outputs is not Role.NODE:
            raise NotCompilableError
        return self._position[instances.row]

    def _degrees(self, data: DegreeData) -> kernel.Degrees:
        ends = self._position[self.instances.edge_index]
        return kernel.Degrees(
            node=self._point(ends[data.receiver], torch.int32),
            other=self._point(ends[1 - data.receiver], torch.int32),
            weight=self._point(data.weight),
            loops=self._point(data.loops[self._order]),
            outside=self._point(data.outside[self._order]),
            loose=self._point(data.loose),
        )

    def _messages(self, kind: MessageKind, step: Messages, deletion: Deletion) -> dict[str, Tensor | int | None]:
        """Fields of ``Messages``."""
        receiver, sender = step.edge_index[step.call.receiver], step.edge_index[1 - step.call.receiver]
        place = self._position[receiver] + self._first[receiver]
        order = self._message_order(step)
        edge = step.edge[order]
        own = self.instances.ptr[Role.EDGE][self.instances.node_owner[receiver[order]]]
        factor = None
        for value in (deletion.factor, *map(self._get, kind.factors)):
            if value is not None:
                factor = value.flatten() if factor is None else factor * value.flatten()
        if factor is not None and torch.allclose(factor, torch.ones_like(factor), rtol=1e-6):
            factor = None  # what a layer divides by is what deletion multiplies by
        return {
            "ptr": offsets(place.bincount(minlength=self.instances.num_nodes)),
            "sender": self._position[sender[order]].int(),
            "edge": torch.where(edge < 0, -1, edge - own).int(),
            "factor": None if factor is None else factor[order].to(self.dtype),
            "degrees": deletion.degrees,
            "mean": int(deletion.mean),
        }

    def _different_messages(
        self, steps: Sequence[Messages], deletions: Sequence[Deletion]
    ) -> tuple[list[dict[str, Tensor | int | None]], list[int]]:
        """The kinds of messages that differ, and which of them each kind is."""
        found: list[dict[str, Tensor | int | None]] = []
        numbers = []
        for kind in self.compiled.messages:
            one = self._messages(kind, steps[kind.step], deletions[kind.step])
            number = next((n for n, other in enumerate(found) if all(_same(one[k], other[k]) for k in one)), len(found))
            found += [one] if number == len(found) else []
            numbers.append(number)
        return found, numbers

    def _operation(self, step: Step, chained: bool, packed: bool) -> kernel.Operation:
        target, source = step.target, step.source
        width, by_message = padded(target.width), target.level <= MESSAGES
        row = None if step.row is None else step.row(self._get)
        return kernel.Operation(
            code=int(self._code(step)),
            target=self.compiled.buffers[target.number],
            source=-1 if source is None else self.compiled.buffers[source.number],
            other=-1 if step.other is None else self.compiled.buffers[step.other.number],
            width=width,
            fan_in=target.width if source is None else source.width,
            stride=width if source is None else padded(source.width),
            level=-1 if target.level == GRAPHS else self._levels.index(target.level),
            messages=self._message_number(step),
            chained=chained,
            compared=target.number in self.compiled.compared,
            packed=packed,
            by_message=by_message,
            activation=step.activation[0],
            slope=self._slope(step.activation[1]),
            least=step.least,
            shared=self._point(self._shared_rows(step, width)),
            row=self._point(None if row is None else _pad(row, width)),
            bias=self._point(None if step.bias is None else _pad(step.bias(self._get), width)),
        )

    def _message_number(self, step: Step) -> int:
        """The kind of messages that an operation works on; of a part that is joined its first column."""
        if step.code is Code.JOIN:
            return step.messages
        if step.target.level <= MESSAGES:
            return self._message_numbers[MESSAGES - step.target.level]
        return self._message_numbers[step.messages] if step.code in (Code.PRODUCT, Code.RECEIVE) else 0

    def _code(self, step: Step) -> Code:
        """The operation; of rows for messages it is known only here whether they are their senders' or receivers'."""
        if step.code is not Code.SENDERS or step.shared is None:
            return step.code
        messages, where = self._steps[step.messages], self._get(step.shared).flatten()
        for code, row in ((Code.SENDERS, 1 - messages.call.receiver), (Code.RECEIVERS, messages.call.receiver)):
            if torch.equal(messages.edge_index[row], where):
                return code
        raise NotCompilableError

    def _slope(self, slope: float | fx.Node) -> float:
        if not isinstance(slope, fx.Node):
            return slope
        if self._get(slope).numel() != 1:
            raise NotCompilableError
        return float(self._get(slope))

    def _shared_rows(self, step: Step, width: int) -> Tensor | None:
        """Rows for all nodes in the order of the kernel, or for all graphs."""
        node, instances = step.shared, self.instances
        if node is None or step.code is Code.SENDERS:
            return None
        if step.code in (Code.POOL, Code.LARGEST):
            sums = self._get(node)
            if not isinstance(sums, RowSums) or not torch.equal(sums.index, instances.node_owner):
                raise NotCompilableError
            return None
        value = instances.x if is_masked(node) else self._get(node)
        value = value.reshape(len(value), -1)
        if step.inverse:
            value = value.reciprocal()
        if step.weights is not None:
            value = value.to(self.dtype) @ step.weights(self._get).to(self.dtype)
        if is_masked(node):
            return _pad(value[self._order], width)
        if value.size(1) == 1:
            value = value.expand(-1, step.target.width)
        if step.code is Code.RECEIVE or step.target.level <= MESSAGES:
            number = step.messages if step.code is Code.RECEIVE else MESSAGES - step.target.level
            order = self._message_order(self._steps[number])
            if len(value) != len(order):
                raise NotCompilableError
            return _pad(value[order], width)
        if step.target.level == GRAPHS:
            if len(value) != len(instances):
                raise NotCompilableError
            return _pad(value, width)
        level = node.meta[LEVEL] if node.meta[KIND] == "nodes" else None
        rows = torch.arange(instances.num_nodes) if level is None else (instances.hops <= level).nonzero().flatten()
        if len(value) != len(rows):
            raise NotCompilableError
        return _pad(value.new_zeros(instances.num_nodes, value.size(1)).index_copy(0, rows, value)[self._order], width)

    def _point_to_messages(self, fields: dict[str, Tensor | int | None]) -> kernel.Messages:
        given = {name: value if isinstance(value, int) else self._point(value) for name, value in fields.items()}
        return kernel.Messages(**given)

    def _allocate(self, degrees: int, messages: Sequence[dict[str, Tensor | int | None]]) -> None:
        """Memory for one instance in as many worlds as there are lanes."""
        instances, lanes = self.instances, int(self.library.lanes())
        nodes, edges = (int(instances.ptr[role].diff().max()) for role in (Role.NODE, Role.EDGE))
        sizes, most_rows = dict[int, int](), dict[int, int]()
        for step in self.compiled.steps:
            buffer, level = self.compiled.buffers[step.target.number], step.target.level
            rows = 1 if level == GRAPHS else nodes
            if level not in (GRAPHS, ALL_NODES):
                rows = int(self._rows[self._levels.index(level)].max())
            sizes[buffer] = max(sizes.get(buffer, 0), rows * padded(step.target.width))
            most_rows[buffer] = max(most_rows.get(buffer, 0), rows)
        most = [int(_tensor(one["ptr"])[instances.ptr[Role.NODE]].diff().max()) for one in messages]
        wanted = [*(sizes.get(buffer, 0) for buffer in range(max(sizes) + 1)), degrees * nodes, *most]
        if sum(wanted) * lanes * self.dtype.itemsize > MOST_MEMORY:
            raise NotCompilableError
        memory = [self._point(torch.zeros(max(size, 1) * lanes, dtype=self.dtype)) for size in wanted]
        *values, degree = memory[: len(memory) - len(messages)]
        sent = [
            kernel.Sent(
                weight=weight,
                lanes=self._point(torch.zeros(max(number, 1), dtype=torch.int32)),
                sender=self._point(torch.zeros(max(number, 1), dtype=torch.int32)),
                place=self._point(torch.zeros(max(number, 1), dtype=torch.int32)),
                ptr=self._point(torch.zeros(nodes + 1, dtype=torch.int32)),
            )
            for weight, number in zip(memory[len(values) + 1 :], most, strict=True)
        ]

        def same(rows: int) -> int | None:
            return self._point(torch.zeros(max(rows, 1) * kernel.SAME_BYTES, dtype=torch.uint8))

        self._memory = {
            "values": self._point(torch.tensor(values)),
            "same": self._point(torch.tensor([same(most_rows.get(buffer, 0)) for buffer in range(len(values))])),
            "same_degree": same(degrees * nodes),
            "bits": self._point(torch.zeros(max(edges, nodes * instances.x[:1].numel(), 1), dtype=torch.int32)),
            "on": self._point(torch.zeros(max(edges, 1), dtype=torch.int32)),
            "degree": degree,
            "sent": (kernel.Sent * len(sent))(*sent),
        }


def _tensor(field: Tensor | int | None) -> Tensor:
    assert isinstance(field, Tensor)
    return field


def _same(one: Tensor | int | None, other: Tensor | int | None) -> bool:
    """Whether two fields of messages are equal."""
    both = isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)
    return both or one is other or (isinstance(one, int) and one == other)


def _pad(value: Tensor, width: int) -> Tensor:
    """A tensor whose last dimension is filled up with zeros."""
    return torch.nn.functional.pad(value, (0, width - value.size(-1)))
