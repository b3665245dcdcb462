"""The compiled passes of a batch of instances, verified against torch before use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.model.compiled import compile_program
from nseg.model.compiled_batch import CompiledBatch
from nseg.model.deletion_rules import DeletionRules
from nseg.model.kernel_steps import NotCompilableError
from nseg.model.plan import Messages
from nseg.model.programs import close
from nseg.model.replay import Program
from nseg.model.subset_worlds import EDGES, NODES, random_weights, random_worlds
from nseg.model.weighed_batch import WeighedBatch, same_slopes


class Compilable(Protocol):
    """A runner of worlds whose passes can be compiled (:class:`nseg.model.runner.WorldRunner`)."""

    instances: InstanceBatch

    def select(self, which: Tensor, instances: InstanceBatch) -> Any: ...
    def messages(self) -> Sequence[Messages]: ...
    def pass_arguments(self, program: Program) -> dict[str, Any]: ...
    def run(self, edge: Tensor | None, node: Tensor | None, worlds: int) -> Tensor: ...


class Deletes(DeletionRules, Protocol):
    """Runs worlds without edges by weighing messages (:class:`nseg.model.rescaling.RescaledMessages`)."""

    runner: Any

    @property
    def origin(self) -> Deletes: ...
    def select(self, which: Tensor, instances: InstanceBatch, runner: Any) -> Deletes: ...
    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor: ...


CompiledKey = tuple[Program, Deletes | None]
"""What a compiled pass is made of: a recorded one, and how messages change where edges are deleted."""


class CompiledPasses:
    """The compiled passes of a runner, each made when it is asked for first."""

    def __init__(self) -> None:
        self._found: dict[CompiledKey, CompiledBatch | None] = {}
        self._weighed: dict[CompiledKey, WeighedBatch | None] = {}

    def find(self, runner: Compilable, program: Program, deletes: Deletes | None) -> CompiledBatch | None:
        """The pass in worlds of subsets; None if it cannot be compiled, or gives something else than torch."""
        key = program, deletes
        if key not in self._found:
            with torch.no_grad():
                self._found[key] = _compile(runner, *key)
        return self._found[key]

    def find_weighed(self, runner: Compilable, program: Program, deletes: Deletes | None) -> WeighedBatch | None:
        """The pass in weighed worlds, with gradients; None likewise."""
        key = program, deletes
        if key not in self._weighed:
            compiled = self.find(runner, *key)
            self._weighed[key] = None if compiled is None else _with_slopes(compiled, runner, *key)
        return self._weighed[key]


def _compile(runner: Compilable, program: Program, deletes: Deletes | None) -> CompiledBatch | None:
    instances, steps = runner.instances, runner.messages()
    if not steps or instances.baseline is not None or instances.x.device.type != "cpu":
        return None
    try:
        compiled = CompiledBatch(compile_program(program), instances, steps, runner.pass_arguments(program), deletes)
    except NotCompilableError:
        return None
    which, few, run = _few(runner, deletes)
    worlds = random_worlds(few, program.weighed, program.masked, deletes is not None)
    return compiled if close(compiled.run(worlds, which, few), run(worlds.weights(compiled.dtype))) else None


def _with_slopes(
    compiled: CompiledBatch, runner: Compilable, program: Program, deletes: Deletes | None
) -> WeighedBatch | None:
    try:
        weighed = WeighedBatch(compiled, program.weighed, program.masked, deletes is not None)
    except NotCompilableError:
        return None
    which, few, run = _few(runner, deletes)
    weights = random_weights(few, program.weighed, program.masked, compiled.dtype)
    return weighed if same_slopes(lambda given: weighed.run(given, which, few), run, weights) else None


def _few(
    runner: Compilable, deletes: Deletes | None
) -> tuple[Tensor, InstanceBatch, Callable[[Mapping[str, Tensor]], Tensor]]:
    """A few instances to verify compiled passes with: their numbers, they themselves, and how torch runs their worlds."""
    which = torch.unique(torch.tensor([0, len(runner.instances) - 1, int(runner.instances.sizes.argmax())]))
    few = runner.instances.select(which)
    some = runner.select(which, few)

    def run(weights: Mapping[str, Tensor]) -> Tensor:
        worlds = len(next(iter(weights.values())))
        if deletes is not None:
            return deletes.select(which, few, some).run(weights, worlds)
        found: Tensor = some.run(weights.get(EDGES), weights.get(NODES), worlds)
        return found

    return which, few, run
