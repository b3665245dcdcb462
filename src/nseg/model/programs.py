"""The recorded passes of a model: made when a model is asked often enough, verified against the model itself.

Recordings are kept as long as the model lives. Every call that uses an earlier one verifies it again: a model may have been
trained further, and what a recording took for constant may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import ModelInputs
from nseg.model.plan import Plan, PlannedCall
from nseg.model.recording import Recorder, merge, recording
from nseg.model.replay import INDEX, WEIGHTS, Program, X
from nseg.model.slow_runs import raise_own_fault
from nseg.model.strategy import RunStrategy

Calls = list[PlannedCall | None]

MessageWeights = Sequence[Tensor] | None
"""Weight of every message, step by step, [K * M] each; or none."""


class Recordable(Protocol):
    """A runner of worlds whose passes can be recorded (:class:`nseg.model.runner.WorldRunner`)."""

    model: nn.Module
    instances: InstanceBatch
    strategy: RunStrategy

    @property
    def knows_messages(self) -> bool: ...
    def select(self, which: Tensor, instances: InstanceBatch) -> Recordable: ...
    def planned_inputs(self, node: Tensor | None, worlds: int) -> tuple[Plan, ModelInputs]: ...
    def pass_inputs(self, plan: Plan, inputs: ModelInputs, weights: MessageWeights) -> dict[str, Any]: ...
    def forward(
        self, inputs: ModelInputs, calls: Calls, weights: MessageWeights, recorder: Recorder | None = None
    ) -> Tensor: ...
    def replay(self, program: Program, plan: Plan, inputs: ModelInputs, weights: MessageWeights) -> Tensor: ...


GRAPHS, EDGE_INDEX = f"{INDEX}graphs", f"{INDEX}edges"
"""Names of the inputs that hold the number of graphs, and the edges that the model sees."""

RECORD_AFTER = 12
"""Passes that the model itself runs before one is recorded: a recording takes about as long as ten passes."""

SIZES = ((2, 2), (3, 3))
"""Instances and worlds of the two recorded passes."""


def weight_names(weights: Sequence[Tensor] | None) -> dict[str, Tensor]:
    """Weights of the messages of all steps, by name."""
    return {f"{WEIGHTS}{number}": weight for number, weight in enumerate(weights or ())}


class Programs:
    """The recorded passes of a model, by whether messages are weighed and whether features are masked.

    Attributes:
        many_follow: whether so many passes follow that the next is recorded.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[bool, bool], Program | None] = {}
        self._asked: dict[tuple[bool, bool], int] = {}
        self.many_follow = False

    def find(self, runner: Recordable, weighed: bool, masked: bool) -> Program | None:
        """The recorded pass to replay, if there is one or if it is time to make one."""
        key = weighed, masked
        due = self.is_due(*key)
        self._asked[key] = self._asked.get(key, 0) + 1
        return self.find_now(runner, weighed, masked) if due else None

    def is_due(self, weighed: bool, masked: bool) -> bool:
        """Whether it is time to use a recorded pass: an earlier one, too, so that all calls agree to the last bit."""
        return self.many_follow or self._asked.get((weighed, masked), 0) >= RECORD_AFTER

    def find_now(self, runner: Recordable, weighed: bool, masked: bool) -> Program | None:
        """The recorded pass, which is made if there is none."""
        key = weighed, masked
        if key not in self._found:
            try:
                self._found[key] = _kept_program(runner, weighed, masked) or record(runner, weighed, masked)
            except Exception as error:  # whatever a model does that cannot be recorded: it is run instead
                raise_own_fault(error)
                self._found[key] = None
        return self._found[key]

    def forget(self, program: Program) -> None:
        """Run the model instead of a recorded pass from now on."""
        self._found = {key: None if found is program else found for key, found in self._found.items()}


_kept: WeakKeyDictionary[nn.Module, dict[tuple[Any, ...], Program]] = WeakKeyDictionary()
"""Recordings of earlier calls, by model and by what they depend on besides it."""


def _kept_program(runner: Recordable, weighed: bool, masked: bool) -> Program | None:
    """A recording of an earlier call, if there is one that is still the same as a pass of the model."""
    known = _kept.get(runner.model, {})
    samples = [_Sample(runner, *size, weighed, masked) for size in SIZES] if known else []
    program = known.get(samples[0].kind) if samples else None
    if program is None:
        return None
    try:
        if all(sample.agrees(program) for sample in samples):
            return program
    except Exception as error:  # the model may have changed in any way
        raise_own_fault(error)
    del known[samples[0].kind]
    return None


def record(runner: Recordable, weighed: bool, masked: bool) -> Program | None:
    """A recorded pass of a runner's model; None if it is not the same as a pass of the model.

    Args:
        runner: whose passes are recorded; a few of its instances are used.
        weighed: whether messages are weighed.
        masked: whether features are masked.
    """
    samples = [_Sample(runner, *size, weighed, masked) for size in SIZES]
    graph = _common_graph(samples)
    varied = [name for name in samples[0].named if name.startswith(WEIGHTS) or (masked and name == X)]
    program = Program(graph, varied, samples[0].reach, samples[0].runner.knows_messages)
    if not all(sample.agrees(program) for sample in samples):
        return None
    _kept.setdefault(runner.model, {})[samples[0].kind] = program
    return program


def _common_graph(samples: list[_Sample]) -> fx.Graph:
    symbols = {X: 0, GRAPHS: 0} | ({EDGE_INDEX: 1} if samples[0].inputs.num_edges else {})
    (one, first), (other, second) = (sample.record() for sample in samples)
    return merge(one, other, (first, second), symbols)


class _Sample:
    """A pass of a few instances in random worlds.

    Args:
        runner: whose instances.
        instances, worlds: how many of them.
        weighed, masked: whether messages are weighed, and features masked.

    Attributes:
        named: all that the pass starts from, by name.
        reach: for each step, most later steps in a row that what it computes passes through; empty if all rows matter.
        kind: what a recording depends on besides the model.
    """

    def __init__(self, runner: Recordable, instances: int, worlds: int, weighed: bool, masked: bool) -> None:
        which = torch.arange(min(instances, len(runner.instances)), device=runner.instances.x.device)
        self.runner = runner.select(which, runner.instances.select(which))
        self.masked, rng = masked, torch.Generator().manual_seed(worlds)
        some, device = self.runner.instances, which.device
        x = some.x
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        sizes = (some.num_edges, some.num_nodes)
        edge, node = (torch.rand(worlds, n, generator=rng, dtype=dtype, device="cpu").to(device) for n in sizes)
        plan, self.inputs = self.runner.planned_inputs(node.unsqueeze(2) if masked else None, worlds)
        self.plan = replace(plan, calls=[_with_own_tensors(call) for call in plan.calls])
        flat = torch.cat([edge.flatten(), edge.new_ones(1)])
        self.weights = [one.clone() for one in plan.message_weights(flat)] if weighed else None
        self.named = self.runner.pass_inputs(self.plan, self.inputs, self.weights)
        hops = self.runner.strategy.hops
        self.reach = [] if hops is None else [0 if call is None else call.after for call in plan.calls]
        steps = [call and (call.receiver, call.linear) for call in plan.calls]
        known = self.runner.strategy, self.runner.knows_messages, *steps, *self.reach
        self.kind = weighed, masked, x.dtype, x.device, x.size(-1), *self.named, *known

    def record(self) -> tuple[Recorder, Tensor]:
        """The operations of the pass, and its output."""
        with recording(self.named) as recorder:
            return recorder, self.runner.forward(self.inputs, self.plan.calls, self.weights, recorder)

    def agrees(self, program: Program) -> bool:
        """Whether a recorded pass gives the same output and the same gradients as the model."""
        ways: list[Any] = [
            lambda x, weights: self.runner.forward(x, self.plan.calls, weights)[self.plan.batch.rows],
            lambda x, weights: self.runner.replay(program, self.plan, x, weights),
        ]
        return all(close(*pair) for pair in zip(*(self._output_and_gradients(way) for way in ways), strict=True))

    def _output_and_gradients(self, way: Any) -> list[Tensor]:
        """Output of a way to run the sample without gradients and with them, and the gradients of its sum."""
        inputs, weights = self.inputs, self.weights
        with torch.no_grad():
            plain: Tensor = way(inputs, weights)
        free = [] if weights is None else [w.detach().requires_grad_() for w in weights]
        x = inputs.x.detach().requires_grad_() if self.masked else inputs.x
        with torch.enable_grad():
            output: Tensor = way(replace(inputs, x=x), None if weights is None else list(free))
            free += [x] if self.masked else []
            slopes = torch.autograd.grad(output.sum(), free, allow_unused=True, materialize_grads=True)
        return [plain, output.detach(), *slopes]


def _with_own_tensors(call: PlannedCall | None) -> PlannedCall | None:
    """A call that shares no tensor with other calls, because a recording tells inputs apart by their tensors."""
    if call is None:
        return None
    constant = {name: value.clone() for name, value in call.constant.items()}
    return replace(call, edge_index=call.edge_index.clone(), weight=call.weight.clone(), constant=constant)


def close(one: Tensor, other: Tensor) -> bool:
    """Whether two results are equal but for rounding."""
    largest = float(other.abs().max()) if other.numel() else 0.0
    same = one.shape == other.shape and one.dtype == other.dtype
    return same and torch.allclose(one, other, rtol=1e-4, atol=1e-5 * largest)
