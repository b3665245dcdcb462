"""Explain many predictions at once: cut, chunk by memory, run, show progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, HeteroData
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import ExplanationType, ModelTaskLevel

from nseg.errors import BudgetError, InputError
from nseg.explainer import Answer, BatchedAlgorithm, explanation
from nseg.explanation import Explanation as OwnExplanation
from nseg.instances import Inputs, Instances, Role, whole
from nseg.scm import Scm, accepts, borrowed, counted, uncompiled
from nseg.source import Source, bytes_per_member, checked_classes, checked_index, checked_inputs, graph_scms, prediction
from nseg.space import Masks

BUDGET = 256 * 2**20
"""Bytes of memory that a search uses at once by default."""

MOST_AT_ONCE = 512  # instances cut out of a graph in one go
OVERHEAD = 4.5  # bytes at the peak per byte kept for the backward pass; measured on a GCN 512 wide

WHOLE = 1 << 30  # hops that only the whole graph holds

Advance = Callable[[float], object]
Bar = Callable[[int], Advance]
"""Given a total, the function that advances a progress bar towards it."""


def explain_many(
    explainer: Explainer,
    data: Data | Sequence[Data],
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    progress: bool | None = None,
    **kwargs: Any,
) -> list[Explanation]:
    """Explain many predictions in one optimisation; each answer equals the one that the instance gets alone.

    Args:
        explainer: a PyG ``Explainer``. Algorithms that can batch do; any other is called once per instance.
        data: one graph (node and link level) or a sequence of graphs (graph level). Model arguments besides ``x`` and
            ``edge_index`` are taken from it by the names in the model's ``forward`` (not for a bare ``**kwargs``).
        index: which nodes, links or graphs to explain, one explanation each; all if None.
        target: for ``explanation_type="phenomenon"``, the class of every output; ``data.y`` if None.
        budget: bytes of memory that the search may use at once.
        progress: show a progress bar; by default only on a terminal.
        **kwargs: further model arguments (node and link level).

    Returns:
        An ``Explanation`` per instance on its computation graph: the smallest graph on which the model alone gives the
        whole graph's output. ``edge_id`` and ``node_id`` point into the caller's graph, ``output_id`` names the output,
        ``reached`` marks the edges over which messages can reach it (the others are there for normalisation only).
    """
    with progress_bar(progress) as bar, _opened(explainer, data, target, budget, bar) as (run, checked):
        return [one.threshold(explainer.threshold_config) for one in run.explanations(checked, index, kwargs)]


@contextmanager
def causal_models(
    explainer: Explainer,
    data: Data | Sequence[Data],
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    **kwargs: Any,
) -> Iterator[Iterator[tuple[Tensor, Scm]]]:
    """What :func:`explain_many` would explain, for methods that first learn from many instances.

    Yields:
        causal models that together hold all instances, each as large as the budget allows, with the numbers of the
        instances that each holds. The model is borrowed until the end of the ``with`` block.
    """
    with _opened(explainer, data, target, budget) as (run, checked):
        yield run.scms(checked, index, kwargs)


@contextmanager
def _opened(
    explainer: Explainer, data: Data | Sequence[Data], target: Any, budget: int, bar: Bar | None = None
) -> Iterator[tuple[_Run, Data | Sequence[Data]]]:
    """A run over checked data, with the model borrowed."""
    level = explainer.model_config.task_level
    if isinstance(data, Batch) and level is ModelTaskLevel.graph:
        data = data.to_data_list()
    if isinstance(data, HeteroData):
        raise InputError("Heterogeneous graphs are not supported (got HeteroData). Use data.to_homogeneous().")
    if not isinstance(data, Data | Sequence | Dataset):
        data = list(data)
    if isinstance(data, Data) == (level is ModelTaskLevel.graph):
        raise InputError(
            "explain_many at graph level needs a sequence of graphs (got one graph). Put it in a list."
            if isinstance(data, Data)
            else f"explain_many at {level.value} level needs one graph (got a sequence). Call it once per graph."
        )
    if isinstance(budget, bool) or not isinstance(budget, Real) or not budget > 0:
        raise BudgetError(f"budget must be a positive number of bytes (got {budget!r}). Try {BUDGET}.")
    with torch.inference_mode(False), torch.enable_grad(), borrowed(uncompiled(explainer.model)):
        yield _Run(explainer, target, budget, bar or (lambda total: lambda amount: None)), data


@contextmanager
def progress_bar(progress: bool | None, doing: str = "explaining") -> Iterator[Bar]:
    """A progress bar in instances, by default only on a terminal."""
    terminal = sys.stderr.isatty()
    shown = terminal if progress is None else progress
    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=terminal) as bar:

        def start(total: int) -> Advance:
            task = bar.add_task(doing, total=total)
            return lambda amount: bar.advance(task, amount)

        yield start


class _Pack(NamedTuple):
    """B graphs, the caller's classes of each, the model's output and the explained classes."""

    inputs: list[Inputs]
    targets: list[Tensor | None]
    output: Tensor
    classes: Tensor


class _Run:
    """One call of :func:`explain_many`."""

    def __init__(self, explainer: Explainer, target: Any, budget: int, bar: Bar) -> None:
        self.explainer, self.budget, self.bar = explainer, budget, bar
        self.model, self.config, self.algorithm = uncompiled(explainer.model), explainer.model_config, explainer.algorithm
        self.target = target
        self.advance: Advance = lambda amount: None
        self.phenomenon = explainer.explanation_type is ExplanationType.phenomenon
        self.checked = False
        if target is not None and not self.phenomenon:
            raise InputError(
                "target must be None for explanation_type='model', which explains the model's prediction (got a target). "
                "Use explanation_type='phenomenon' to explain given classes."
            )

    @property
    def masks(self) -> tuple[bool, bool]:
        """Whether edges and whether nodes are intervened on."""
        if isinstance(self.algorithm, BatchedAlgorithm):
            return self.algorithm.masks
        return self.explainer.edge_mask_type is not None, self.explainer.node_mask_type is not None

    def explanations(self, data: Data | Sequence[Data], index: Any, kwargs: dict[str, Any]) -> Iterator[Explanation]:
        return self.parts(data, index, kwargs) if isinstance(data, Data) else self.graphs(data, index, kwargs)

    def scms(self, data: Data | Sequence[Data], index: Any, kwargs: dict[str, Any]) -> Iterator[tuple[Tensor, Scm]]:
        """The causal models that explanations are searched in, with the numbers of the instances that each holds."""
        found: Iterator[tuple[int, Iterator[tuple[Tensor, Scm]]]]
        if isinstance(data, Data):
            found = (
                (len(row), source.scms(row, torch.arange(len(row), device=row.device), classes))
                for source, row, classes in self._blocks(data, index, kwargs)
            )
        else:
            packs = (self._pack(data, numbers) for numbers in self._graph_blocks(data, index, kwargs))
            found = ((len(pack.inputs), self._graph_scms(pack)) for pack in packs)
        before = 0
        for number, scms in found:
            for which, scm in scms:
                yield from ((before + which[part], small) for part, small in self._pieces(scm))
            before += number

    # --- nodes and links of one graph ------------------------------------------------------------------------------------

    def parts(self, data: Data, index: Any, kwargs: dict[str, Any]) -> Iterator[Explanation]:
        target = self._target(data)
        for source, here, classes in self._blocks(data, index, kwargs):
            answers, hops = self._answers(source, here, classes, target)
            written: dict[int, Explanation] = {}
            for which, (instances, output) in source.standalone(here, classes, hops):
                outputs = instances.ptr[instances.outputs]
                for b, number in enumerate(which.tolist()):
                    mine = slice(*outputs[b : b + 2].tolist())
                    local = None if target is None else _local(target, instances, b, here[number : number + 1])
                    written[number] = self._write(instances, b, output[mine], answers[number], local)
                    written[number].output_id = int(here[number])
            yield from (written[number] for number in range(here.numel()))

    def _blocks(self, data: Data, index: Any, kwargs: dict[str, Any]) -> Iterator[tuple[Source, Tensor, Tensor]]:
        """Explained rows and their classes, as many at once as are cut in one go."""
        inputs = self._inputs(data, kwargs)
        source = Source(self.model, self.config, inputs, *self.masks)
        row = source.rows(index)
        classes = source.targets(self._target(data), row)
        self.advance = self.bar(row.numel())
        each = source.members(row[:16]) * bytes_per_member(self.model, inputs, self.config)
        size = max(1, min(MOST_AT_ONCE, int(self.budget / each)))
        for start in range(0, row.numel(), size):
            yield source, row[start : start + size], classes[start : start + size]

    def _answers(
        self, source: Source, row: Tensor, classes: Tensor, target: Tensor | None
    ) -> tuple[list[Explanation | tuple[Answer, int]], Tensor]:
        """What the algorithm says of each row, and how many hops around it that concerns.

        It is a place in a batched answer, or an explanation on the whole graph.
        """
        hops = torch.full_like(row, source.hops)
        if not isinstance(self.algorithm, BatchedAlgorithm):
            return [self._call(source.inputs, int(r), target) for r in row], hops
        found: dict[int, tuple[Answer, int]] = {}
        for which, scm in source.scms(row, torch.arange(row.numel(), device=row.device), classes):
            hops[which] = WHOLE if scm.way.hops is None else scm.way.hops
            for part, answer in self._solve(scm):
                found.update({number: (answer, place) for place, number in enumerate(which[part].tolist())})
        return [found[number] for number in range(row.numel())], hops

    # --- many graphs -----------------------------------------------------------------------------------------------------

    def _graph_blocks(self, data: Sequence[Data], index: Any, kwargs: dict[str, Any]) -> Iterator[list[int]]:
        """Numbers of explained graphs, as many at once as are packed in one go."""
        if kwargs:
            raise InputError(f"Arguments of graphs belong on the graphs (got {', '.join(kwargs)}). Set them as attributes.")
        if len(data) == 0:
            raise InputError("explain_many needs at least one graph (got an empty sequence).")
        numbers = checked_index(index, len(data)).tolist()
        self.advance = self.bar(len(numbers))
        sizes = torch.tensor([data[n].num_nodes + data[n].num_edges for n in numbers])
        each = bytes_per_member(self.model, self._inputs(data[numbers[0]], {}), self.config)
        for block in chunks(sizes * each, self.budget, MOST_AT_ONCE):
            yield [numbers[b] for b in block.tolist()]

    def _pack(self, data: Sequence[Data], numbers: list[int]) -> _Pack:
        inputs = [self._inputs(data[n], {}) for n in numbers]
        _check_alike(inputs, numbers)
        targets = [self._target(data[n], n) for n in numbers]
        output = torch.cat([prediction(self.model, one, self.config)[:1] for one in inputs])
        target = None if targets[0] is None else torch.cat([t for t in targets if t is not None]).to(output.device)
        return _Pack(inputs, targets, output, checked_classes(output, target, self.config))

    def _graph_scms(self, pack: _Pack) -> Iterator[tuple[Tensor, Scm]]:
        return graph_scms(self.model, self.config, pack.inputs, pack.output, pack.classes, *self.masks)

    def graphs(self, data: Sequence[Data], index: Any, kwargs: dict[str, Any]) -> Iterator[Explanation]:
        for numbers in self._graph_blocks(data, index, kwargs):
            pack = self._pack(data, numbers)
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
        names = [k for k in data.keys() if k not in ("x", "edge_index", "y") and accepts(self.model, k)]  # noqa: SIM118
        found = {name: data[name] for name in names} | kwargs
        return checked_inputs(self.model, data.x, data.edge_index, found, self.config.task_level)

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


def _local(target: Tensor, instances: Instances, b: int, row: Tensor) -> Tensor:
    """The caller's classes of the outputs of one instance."""
    ids = {Role.NODE: instances.node_id, Role.EDGE: instances.edge_id}
    role = instances.outputs
    return target[ids[role][instances.members(role, b)]] if role in ids else target[row]


def _restricted(mask: Tensor, ids: Tensor, size: int) -> Tensor:
    return mask[ids] if mask.size(0) == size else mask


def placed(one: Explanation) -> Explanation:
    """An explanation that says what it explains; one on the whole graph, as PyG's ``Explainer`` gives, is told so."""
    if "output_id" in one:
        return one
    index = one.get("index")
    if index is not None and torch.as_tensor(index).numel() != 1:
        raise InputError(
            f"Explanations must be of one output each (got one of {torch.as_tensor(index).numel()}). "
            "Explain them one by one with explain_many."
        )
    made = one.clone()
    made._model_args, made._model_config = one._model_args, one._model_config
    made.output_id = 0 if index is None else int(index)
    made.edge_id, made.node_id = torch.arange(one.edge_index.size(1)), torch.arange(one.x.size(0))
    return made


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
