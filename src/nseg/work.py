"""What a worker does for :func:`nseg.explain_many`: explain the targets of a shard.

There is one kind of work for each kind of data: one graph, many graphs, and a graph that is shown in parts only. All cut
what they explain into instances and chunks that fit into memory, and write explanations in the same way.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, HeteroData
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import ExplanationType, ModelTaskLevel

from nseg import fingerprint
from nseg.errors import BudgetError, InputError, ModelError
from nseg.explainer import Answer, BatchedAlgorithm, explanation
from nseg.explanation import Explanation as OwnExplanation
from nseg.instances import Inputs, Instances, Role, whole
from nseg.large import LargeGraph, Part, TooLargeError
from nseg.scm import Scm, borrowed, call, close, counted, trace, uncompiled
from nseg.source import (
    Source,
    arguments,
    bytes_per_member,
    checked_classes,
    checked_index,
    checked_inputs,
    checked_pairs,
    checked_rows,
    graph_scms,
    in_words,
    outputs_of,
    prediction,
)
from nseg.space import Masks
from nseg.store import Layout

BUDGET = 256 * 2**20
"""Bytes of memory that a search uses at once by default."""

SHARD = 256
"""Targets that are explained, sent and stored together at the most by default."""

MOST_AT_ONCE = 512  # instances cut out of a graph in one go
OVERHEAD = 4.5  # bytes at the peak per byte kept for the backward pass; measured on a GCN 512 wide

LONGEST_REASON = 1000  # characters
WIDEST = 3  # hops beyond its layers and one more that a model on a large graph may look
WHOLE = 1 << 30  # hops that only the whole graph holds

Advance = Callable[[float], object]
Shard = tuple[int, list[int]]
"""The number of a shard, and its targets."""


def work_on(explainer: Explainer, data: Any, target: Any, budget: int, kwargs: dict[str, Any], strict: bool = True) -> Work:
    """The kind of work that data ask for.

    Args:
        explainer, data, target, budget, kwargs: as :func:`nseg.explain_many` takes them.
        strict: raise where a target cannot be explained; else its explanation says why.
    """
    if not isinstance(explainer, Explainer):
        raise InputError(
            f"explainer must be an Explainer of PyG or nseg (got {type(explainer).__name__}). Make one of the model."
        )
    level = explainer.model_config.task_level
    if isinstance(data, Batch) and level is ModelTaskLevel.graph:
        data = data.to_data_list()
    if isinstance(data, HeteroData):
        raise InputError("Heterogeneous graphs are not supported (got HeteroData). Use data.to_homogeneous().")
    if not isinstance(data, Data | LargeGraph | Sequence | Dataset) and isinstance(data, Iterable):
        data = list(data)
    graphs = isinstance(data, Sequence | Dataset) and not isinstance(data, str | bytes)
    if not (isinstance(data, Data | LargeGraph) or (graphs and all(isinstance(one, Data) for one in data[:1]))):
        raise InputError(f"data must be a graph, or a sequence of graphs, of PyG (got {type(data).__name__}).")
    if isinstance(data, Data | LargeGraph) == (level is ModelTaskLevel.graph):
        raise InputError(
            "explain_many at graph level needs a sequence of graphs (got one graph). Put it in a list."
            if isinstance(data, Data | LargeGraph)
            else f"explain_many at {level.value} level needs one graph (got a sequence). Call it once per graph."
        )
    kind = OneGraph if isinstance(data, Data) else LargeParts if isinstance(data, LargeGraph) else ManyGraphs
    return kind(explainer, data, target, budget, kwargs, strict)


def in_order(shards: Sequence[Sequence[Any]]) -> list[Any]:
    """What belongs to each target, shard by shard, in the order of the targets."""
    layout = Layout(sum(map(len, shards)), len(shards[0]))
    return [shards[shard][place] for shard, place in map(layout.place, range(layout.total))]


class Work(ABC):
    """A function of shards that can be sent to workers."""

    def __init__(
        self, explainer: Explainer, data: Any, target: Any, budget: int, kwargs: dict[str, Any], strict: bool = True
    ) -> None:
        self.explainer, self.data, self.target, self.kwargs, self.strict = explainer, data, target, kwargs, strict
        self.budget = budget
        self.phenomenon = explainer.explanation_type is ExplanationType.phenomenon
        self.seed = torch.initial_seed()
        self.part_of: tuple[int, int] | None = None
        self.advance: Advance = _ignore
        self.checked = False
        if isinstance(budget, bool) or not isinstance(budget, Real) or not 0 < budget < math.inf:
            raise BudgetError(f"budget must be a positive number of bytes (got {budget!r}). Try {BUDGET}.")
        if target is not None and not self.phenomenon:
            raise InputError(
                "target must be None for explanation_type='model', which explains the model's prediction (got a target). "
                "Use explanation_type='phenomenon' to explain given classes."
            )

    SENT = ("explainer", "data", "target", "budget", "kwargs", "strict", "phenomenon", "seed", "part_of")

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.SENT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, advance=_ignore, checked=False)

    @property
    def model(self) -> torch.nn.Module:
        return uncompiled(self.explainer.model)

    @property
    def config(self) -> Any:
        return self.explainer.model_config

    @property
    def algorithm(self) -> Any:
        return self.explainer.algorithm

    @property
    def gpus(self) -> int:
        """How many a worker needs."""
        return int(any(p.is_cuda for p in self.model.parameters()))

    @property
    def masks(self) -> tuple[bool, bool]:
        """Whether edges and whether nodes are intervened on."""
        if isinstance(self.algorithm, BatchedAlgorithm):
            return self.algorithm.masks
        return self.explainer.edge_mask_type is not None, self.explainer.node_mask_type is not None

    @abstractmethod
    def number(self) -> int:
        """How many outputs there are that could be explained."""

    @abstractmethod
    def prepare(self) -> None:
        """Work out once what concerns all targets; what goes wrong here is not one target's fault."""

    @abstractmethod
    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        """The explanations of some rows, in their order."""

    @abstractmethod
    def groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, Scm]]]]:
        """Causal models of some rows, group by group, with the size of each group."""

    # --- what there is to do ---------------------------------------------------------------------------------------------

    def rows(self, index: Any) -> Tensor:
        """Explained rows from an index."""
        return checked_index(index, self.number())

    def shards(self, index: Any, most: int) -> list[Shard]:
        """Explained rows, dealt to shards of equal size, which depends on nothing but their number."""
        if isinstance(most, bool) or not isinstance(most, Integral) or most < 1:
            raise InputError(f"shard must be a positive number of targets (got {most!r}). Try {SHARD}.")
        rows = self.rows(index)
        layout = Layout(len(rows), -(-len(rows) // -(-len(rows) // int(most))))
        return [(n, rows[list(layout.targets(n))].tolist()) for n in range(layout.shards)]

    def manifest(self, cut: list[Shard]) -> dict[str, Any]:
        """What the results of this run depend on, as plain data."""
        rows = in_order([rows for _, rows in cut])
        seed = {} if isinstance(self.algorithm, BatchedAlgorithm) else {"torch_seed": self.seed}
        return {
            "format": 1,
            "versions": fingerprint.versions(),
            "model": fingerprint.of_model(self.model),
            "data": fingerprint.of_data(self.data, self.kwargs),
            "explainer": fingerprint.of_explainer(self.explainer),
            "settings": fingerprint.of_settings(self.algorithm) | seed,
            "targets": {
                "number": len(rows),
                "rows": fingerprint.digest(torch.tensor(rows)),
                "classes": None if self.target is None else fingerprint.digest(torch.as_tensor(self.target)),
            },
            "shard": len(cut[0][1]),
        }

    # --- a shard ---------------------------------------------------------------------------------------------------------

    def __call__(self, shard: Shard) -> list[Explanation]:
        number, rows = shard
        with self.ready():
            if not isinstance(self.algorithm, BatchedAlgorithm):  # draws on torch's random numbers
                torch.manual_seed(self.seed if number == 0 else (self.seed + number) % (1 << 63))
            return self._found(torch.tensor(rows))

    @contextmanager
    def ready(self) -> Iterator[None]:
        """With the model borrowed, one thread, and all that is worked out once."""
        with torch.inference_mode(False), torch.enable_grad(), borrowed(self.model), one_thread():
            self.prepare()
            yield

    def _found(self, rows: Tensor) -> list[Explanation]:
        """The explanations of some rows, or the reasons why there are none."""
        self.checked = False
        try:
            return [one.threshold(self.explainer.threshold_config) for one in self.explanations(rows)]
        except Exception as error:
            if self.strict:
                raise
            if len(rows) == 1:
                return [OwnExplanation(output_id=int(rows), reason=f"{type(error).__name__}: {error}"[:LONGEST_REASON])]
        half = len(rows) // 2
        return self._found(rows[:half]) + self._found(rows[half:])

    def scms(self, rows: Tensor) -> Iterator[tuple[Tensor, Scm]]:
        """The causal models that explanations are searched in, with the numbers of the instances that each holds."""
        before = 0
        for number, scms in self.groups(rows):
            for which, scm in scms:
                yield from ((before + which[part], small) for part, small in self._pieces(scm))
            before += number

    # --- one chunk ---------------------------------------------------------------------------------------------------------

    def _solve(self, scm: Scm) -> Iterator[tuple[Tensor, Answer]]:
        """Batched answers that together hold all instances, with the numbers of those that each holds, in order."""
        algorithm = self.algorithm
        for part, small in self._pieces(scm):
            tick = partial(self.advance, len(part) / algorithm.ticks)
            yield part, algorithm.answer(small, algorithm.space(small.instances), tick)

    def _pieces(self, scm: Scm) -> Iterator[tuple[Tensor, Scm]]:
        """Causal models that fit into memory and together hold all instances, with the numbers of those that each holds."""
        algorithm = self.algorithm
        most = min(3, len(scm.instances)) if scm.way.joint else 1
        few = scm.select(scm.instances.sizes.topk(most).indices.sort().values)
        if not self.checked:
            few.require_dependence(*self.masks)
            self.checked = True
        per_world = OVERHEAD * _bytes_kept(algorithm, few) / int(few.instances.sizes.sum())
        need = per_world * algorithm.worlds(algorithm.space(few.instances)) * scm.instances.sizes
        if float(need.max()) > self.budget:
            raise BudgetError(
                f"The memory budget must hold one instance, which needs about {int(need.max())} bytes here "
                f"(got {int(self.budget)}). Raise it: budget={int(need.max()) + 1}."
            )
        scm.members_at_once = min(scm.members_at_once, max(int(self.budget / per_world), 1))
        for part in chunks(need, self.budget, len(need) if scm.way.joint else 1):
            yield part, scm.select(part.to(scm.instances.x.device))

    def _call(self, inputs: Inputs, row: int | None, target: Tensor | None) -> Explanation:
        """One call of an algorithm that cannot batch."""
        index = {} if row is None else {"index": row}
        found = self.explainer(inputs.x, inputs.edge_index, target=target, **index, **inputs.kwargs)
        self.advance(1)
        return found

    # --- in and out ------------------------------------------------------------------------------------------------------

    def _inputs(self, data: Data, kwargs: dict[str, Any]) -> Inputs:
        found = {name: data[name] for name in arguments(self.model, data)} | kwargs
        inputs = checked_inputs(self.model, data.x, data.edge_index, found, self.config.task_level)
        return replace(inputs, part_of=self.part_of)

    def _target(self, data: Data, number: int | None = None) -> Tensor | None:
        """The caller's classes of all outputs on one graph, if a phenomenon is explained."""
        if not self.phenomenon:
            return None
        if self.target is None:
            target = data.get("y")
        else:
            target = torch.as_tensor(self.target).flatten()
            if number is not None and number >= target.numel():
                raise InputError(f"target must hold a class for every graph (got {target.numel()} entries, graph {number}).")
            target = target if number is None else target[number]
        if target is None:
            raise InputError("explanation_type='phenomenon' needs the class of every output. Give target=... or data.y.")
        return torch.as_tensor(target).flatten()

    def _write(
        self, instances: Instances, b: int, output: Tensor, answer: Explanation | tuple[Answer, int], target: Tensor | None
    ) -> Explanation:
        """The explanation of one instance on its own graph, with all that PyG puts into one."""
        inputs, row = instances.alone(b)
        edge_id, node_id = (
            instances.edge_id[instances.members(Role.EDGE, b)],
            instances.node_id[instances.members(Role.NODE, b)],
        )
        if isinstance(answer, Explanation):
            found = OwnExplanation(
                **{
                    key: _restricted(answer.get(key), ids, size)
                    for key, ids, size in (
                        ("edge_mask", edge_id, answer.num_edges),
                        ("node_mask", node_id, answer.num_nodes),
                    )
                    if answer.get(key) is not None
                }
            )
        else:
            batch, place = answer
            found = explanation(batch, place, inputs.edge_index, edge_id, node_id, self.algorithm.settings)
        found._model_config, found._model_args = self.config, list(inputs.kwargs)
        found.prediction = output if not self.phenomenon else None
        found.target = self.explainer.get_target(output) if target is None else target
        found.index = None if instances.outputs is Role.GRAPH else row
        found.x, found.edge_index = inputs.x, inputs.edge_index
        for name, value in inputs.kwargs.items():
            found[name] = value
        found.edge_id, found.node_id = edge_id, node_id
        found.validate_masks()
        return found


class OneGraph(Work):
    """Nodes or links of one graph."""

    def number(self) -> int:
        return outputs_of(self.inputs, self.config.task_level)[1]

    def prepare(self) -> None:
        if isinstance(self.algorithm, BatchedAlgorithm):
            _ = self.source.way

    @cached_property
    def inputs(self) -> Inputs:
        """The whole graph."""
        return self._inputs(self.data, self.kwargs)

    @cached_property
    def source(self) -> Source:
        return Source(self.model, self.config, self.inputs, *self.masks)

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        target, source = self._target(self.data), self.source
        for here, classes in self._blocks(rows):
            answers, hops = self._answers(here, classes, target)
            written: dict[int, Explanation] = {}
            for which, (instances, output) in source.standalone(here, classes, hops):
                outputs = instances.ptr[instances.outputs]
                for b, number in enumerate(which.tolist()):
                    mine = slice(*outputs[b : b + 2].tolist())
                    local = None if target is None else _local(target, instances, b, here[number : number + 1])
                    written[number] = self._write(instances, b, output[mine], answers[number], local)
                    written[number].output_id = int(here[number])
            yield from (written[number] for number in range(here.numel()))

    def groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, Scm]]]]:
        for row, classes in self._blocks(rows):
            yield len(row), self.source.scms(row, torch.arange(len(row), device=row.device), classes)

    def _blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Explained rows and their classes, as many at once as are cut in one go."""
        rows = rows.to(self.inputs.x.device)
        classes = self.source.targets(self._target(self.data), rows)
        each = self.source.members(rows[:16]) * self._bytes_per_member
        size = max(1, min(MOST_AT_ONCE, int(self.budget / each)))
        for start in range(0, len(rows), size):
            yield rows[start : start + size], classes[start : start + size]

    @cached_property
    def _bytes_per_member(self) -> float:
        return bytes_per_member(self.model, self.inputs, self.config)

    def _answers(
        self, row: Tensor, classes: Tensor, target: Tensor | None
    ) -> tuple[list[Explanation | tuple[Answer, int]], Tensor]:
        """What the algorithm says of each row, and how many hops around it that concerns.

        It is a place in a batched answer, or an explanation on the whole graph.
        """
        hops = torch.full_like(row, self.source.hops)
        if not isinstance(self.algorithm, BatchedAlgorithm):
            return [self._call(self.inputs, int(r), target) for r in row], hops
        found: dict[int, tuple[Answer, int]] = {}
        for which, scm in self.source.scms(row, torch.arange(row.numel(), device=row.device), classes):
            hops[which] = WHOLE if scm.way.hops is None else scm.way.hops
            for part, answer in self._solve(scm):
                found.update({number: (answer, place) for place, number in enumerate(which[part].tolist())})
        return [found[number] for number in range(row.numel())], hops


class _Pack(NamedTuple):
    """B graphs, the caller's classes of each, the model's output and the explained classes."""

    inputs: list[Inputs]
    targets: list[Tensor | None]
    output: Tensor
    classes: Tensor


class ManyGraphs(Work):
    """Graphs as wholes."""

    def number(self) -> int:
        if self.kwargs:
            raise InputError(
                f"Arguments of graphs belong on the graphs (got {', '.join(self.kwargs)}). Set them as attributes."
            )
        if len(self.data) == 0:
            raise InputError("explain_many needs at least one graph (got an empty sequence).")
        return len(self.data)

    def prepare(self) -> None:
        pass

    def groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, Scm]]]]:
        for numbers in self._graph_blocks(rows):
            pack = self._pack(numbers)
            yield len(pack.inputs), self._graph_scms(pack)

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        for numbers in self._graph_blocks(rows):
            pack = self._pack(numbers)
            answers: dict[int, Explanation | tuple[Answer, int]] = {}
            if isinstance(self.algorithm, BatchedAlgorithm):
                for which, scm in self._graph_scms(pack):
                    for part, answer in self._solve(scm):
                        answers.update({n: (answer, place) for place, n in enumerate(which[part].tolist())})
            else:
                answers = {n: self._call(one, None, pack.targets[n]) for n, one in enumerate(pack.inputs)}
            for n, one in enumerate(pack.inputs):
                mine = slice(n, n + 1)
                alone = whole([one], Role.GRAPH, [torch.zeros_like(pack.classes[mine])], [pack.classes[mine]])
                found = self._write(alone, 0, pack.output[mine], answers[n], pack.targets[n])
                found.output_id = numbers[n]
                yield found

    def _graph_blocks(self, rows: Tensor) -> Iterator[list[int]]:
        """Numbers of explained graphs, as many at once as are packed in one go."""
        numbers, data = rows.tolist(), self.data
        first = self._inputs(data[numbers[0]], {})
        sizes = torch.tensor([(one := self._inputs(data[n], {})).num_nodes + one.num_edges for n in numbers])
        each = bytes_per_member(self.model, first, self.config)
        for block in chunks(sizes * each, self.budget, MOST_AT_ONCE):
            yield [numbers[b] for b in block.tolist()]

    def _pack(self, numbers: list[int]) -> _Pack:
        inputs = [self._inputs(self.data[n], {}) for n in numbers]
        _check_alike(inputs, numbers)
        targets = [self._target(self.data[n], n) for n in numbers]
        outputs = [prediction(self.model, one, self.config) for one in inputs]
        for one, said in zip(inputs, outputs, strict=True):
            checked_rows(said, one, self.config.task_level)
        output = torch.cat(outputs)
        target = None if targets[0] is None else torch.cat([t for t in targets if t is not None]).to(output.device)
        return _Pack(inputs, targets, output, checked_classes(output, target, self.config))

    def _graph_scms(self, pack: _Pack) -> Iterator[tuple[Tensor, Scm]]:
        return graph_scms(self.model, self.config, pack.inputs, pack.output, pack.classes, *self.masks)


class LargeParts(Work):
    """Nodes of a large graph, or links between them, each on a part of it that is wide enough for the model."""

    def number(self) -> int:
        sizes = (self.data.num_nodes, self.data.num_edges)
        for name, value in self.kwargs.items():
            if isinstance(value, Tensor) and value.dim() and value.size(0) in sizes:
                raise InputError(
                    f"Arguments of nodes and edges belong on the large graph (got {name}). Set them on the Data object, or "
                    "give them to LargeGraph.write."
                )
        if self.config.task_level is ModelTaskLevel.edge and self._pairs is None:
            raise InputError("Links of a large graph are named by pairs of nodes (got none). Give edge_label_index=...")
        return sizes[0] if self._pairs is None else self._pairs.size(1)

    def prepare(self) -> None:
        _ = self._probe

    def groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, Scm]]]]:
        raise InputError(
            "A method that learns from many instances needs a graph in memory (got a large graph). Use a Data object."
        )

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        """Explanations on parts that are wide enough for the model not to miss the rest."""
        hops = self._width(rows)
        for some, part in self._fitting(rows, hops, self._room):
            small = self._small(part, some)
            local = torch.arange(len(some)) if self._pairs is not None else part.place(some)
            for one, row in zip(small.explanations(local), some.tolist(), strict=True):
                one.left_out = int(part.left_out[one.node_id[one.edge_index[1]].unique()].sum())
                one.edge_id, one.node_id, one.output_id = part.edge[one.edge_id], part.node[one.node_id], row
                yield one

    @cached_property
    def _pairs(self) -> Tensor | None:
        """The pairs of nodes that a link model scores, [2, P]."""
        if self.config.task_level is ModelTaskLevel.node:
            return None
        return checked_pairs(self.kwargs, self.data.num_nodes)[1]

    def _seeds(self, rows: Tensor) -> Tensor:
        return rows if self._pairs is None else self._pairs[:, rows].flatten()

    def _small(self, part: Part, rows: Tensor) -> OneGraph:
        """The work on a part of the graph."""
        kwargs, target = dict(self.kwargs), self.target
        if self._pairs is not None:
            name, _ = checked_pairs(self.kwargs, self.data.num_nodes)
            kwargs[str(name)] = part.place(self._pairs[:, rows])
        if target is not None:
            target = torch.as_tensor(target).flatten()[rows if self._pairs is not None else part.node]
        small = OneGraph(self.explainer, part.data, target, self.budget, kwargs)
        small.part_of, small.advance = (self.data.num_edges, self.data.num_nodes), self.advance
        return small

    def _fitting(self, rows: Tensor, hops: int, room: float) -> Iterator[tuple[Tensor, Part]]:
        """Rows, and the part around them, as many at once as there is room for."""
        try:
            part = self.data.part(self._seeds(rows), hops, room)
        except TooLargeError:
            if len(rows) == 1:
                raise
            half = len(rows) // 2
            yield from self._fitting(rows[:half], hops, room)
            yield from self._fitting(rows[half:], hops, room)
        else:
            yield rows, part

    @cached_property
    def _probe(self) -> tuple[int, float]:
        """How often the model passes messages, and the bytes that it needs per node and edge, seen on a small part."""
        number = self.number()
        some = torch.arange(0, number, -(-number // 256))
        ((some, part), *_) = self._fitting(some, 1, 1e5)
        inputs = self._small(part, some).inputs
        with in_words():
            passings = trace(self.model, inputs, self.config)[1]
        if any(one.receiver != 1 for one in passings):
            raise ModelError(
                "On a large graph messages must go from source to target (got a layer with flow='target_to_source'). Write "
                "the graph with edge_index.flip(0), and let the layers have the usual flow."
            )
        return len(passings), bytes_per_member(self.model, inputs, self.config)

    @property
    def _room(self) -> float:
        """Nodes and edges that the model can be run on within the budget."""
        return self.budget / self._probe[1]

    def _width(self, rows: Tensor) -> int:
        """Hops around a target beyond which the model does not look, as one hop more shows; GCN needs one more than layers.

        Of the rows as many are looked at as have room one hop further.
        """
        least = self._probe[0] + 1
        for hops in range(least, least + WIDEST):
            few, narrow, wide = rows, None, None
            while wide is None and len(few):
                try:
                    narrow, wide = (self.data.part(self._seeds(few), h, self._room) for h in (hops, hops + 1))
                except TooLargeError:
                    few = few[: len(few) // 2]
            if narrow is None or wide is None:
                return hops  # no room to look further
            if bool(close(self._output(narrow, few), self._output(wide, few), self.config).all()):
                return hops
        raise ModelError(
            f"On a large graph the model's output must depend on few hops around a target (got one that changes still when "
            f"hop {least + WIDEST} is added, as a model that looks at all nodes does). Explain it on a Data object instead."
        )

    @torch.no_grad()
    def _output(self, part: Part, rows: Tensor) -> Tensor:
        """What the model says of some rows, shown a part of the graph."""
        with in_words():
            output = call(self.model, self._small(part, rows).inputs, self.config)
        return output if self._pairs is not None else output[part.place(rows)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Reckon on one thread: sums then come out the same bit for bit, however many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _ignore(amount: float) -> None:
    """Progress that nobody looks at."""


def _local(target: Tensor, instances: Instances, b: int, row: Tensor) -> Tensor:
    """The caller's classes of the outputs of one instance."""
    ids = {Role.NODE: instances.node_id, Role.EDGE: instances.edge_id}
    role = instances.outputs
    return target[ids[role][instances.members(role, b)]] if role in ids else target[row]


def _restricted(mask: Tensor, ids: Tensor, size: int) -> Tensor:
    return mask[ids] if mask.size(0) == size else mask


def chunks(need: Tensor, budget: float, most: int) -> Iterator[Tensor]:
    """Consecutive runs whose needs add up to at most the budget, each at least one and at most ``most`` long.

    >>> [part.tolist() for part in chunks(torch.tensor([3, 3, 3, 9, 1]), 6, 2)]
    [[0, 1], [2], [3], [4]]
    """
    part: list[int] = []
    total = 0.0
    for number, cost in enumerate(need.tolist()):
        if part and (total + cost > budget or len(part) == most):
            yield torch.tensor(part)
            part, total = [], 0.0
        part.append(number)
        total += cost
    yield torch.tensor(part)


def _bytes_kept(algorithm: BatchedAlgorithm, scm: Scm) -> int:
    """Bytes that one world keeps for its backward pass."""
    space = algorithm.space(scm.instances)

    def ones(*shape: int) -> Tensor:
        return torch.ones(1, *shape, dtype=scm.dtype, device=scm.instances.x.device, requires_grad=True)

    edge = ones(space.edge_owner.numel()) if space.edges else None
    node = ones(space.node_owner.numel(), space.node_width) if space.nodes else None
    with counted() as kept:
        scm.do(*space.weights(Masks(edge, node)))
    return kept()


def _check_alike(graphs: Sequence[Inputs], numbers: Sequence[int]) -> None:
    """Raise unless all graphs have the features and arguments that the first has."""
    first = graphs[0]
    for one, number in zip(graphs, numbers, strict=True):
        if one.x.shape[1:] != first.x.shape[1:] or one.x.dtype is not first.x.dtype:
            raise InputError(
                f"All graphs must have features of one shape (got {tuple(first.x.shape[1:])} in graph {numbers[0]} and "
                f"{tuple(one.x.shape[1:])} in graph {number})."
            )
        for name in first.kwargs.keys() | one.kwargs.keys():
            if (first.kwargs.get(name) is None) != (one.kwargs.get(name) is None):
                raise InputError(
                    f"All graphs must have the same model arguments (got {name} in only one of graphs {numbers[0]} and "
                    f"{number}). Give it to all of them or to none."
                )
