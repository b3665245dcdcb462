"""Forward passes over many worlds at once.

Two shortcuts make them fast. Both are exact for most models, and verified before use:

- all worlds of all instances are one disjoint union, so one forward pass serves all of them;
- message passing step c of C only matters where the receiver is within C - 1 - c hops of an explained output, so other
  messages are not computed; and per-edge values that a layer derives from the graph alone (a degree normalisation) are
  read off once instead of being recomputed in every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nseg.errors import ModelError
from nseg.graphs.baseline import attribute_columns
from nseg.graphs.batch import InstanceBatch, WorldBatch
from nseg.graphs.inputs import EDGE_BASELINE, MASKED_ATTRIBUTES, ModelInputs, Role
from nseg.model.compiled_passes import CompiledKey, CompiledPasses, Deletes
from nseg.model.hetero import HeteroModel
from nseg.model.hooks import call_model, hook_layers, message_passing_layers
from nseg.model.matching import KnownMatches
from nseg.model.outcomes import Outcome
from nseg.model.plan import Messages, MessageSteps, Plan, PlannedCall, plan_call
from nseg.model.programs import EDGE_INDEX, GRAPHS, MessageWeights, Programs, weight_names
from nseg.model.recording import Recorder
from nseg.model.replay import INDEX, PATTERN, Program, X
from nseg.model.slow_runs import raise_own_fault
from nseg.model.strategy import RunStrategy
from nseg.model.subset_worlds import EDGES, NODES, OUTSIDE, SubsetWorlds
from nseg.model.tracing import PropagateCall, trace_model
from nseg.model.weighing import multiply_messages, weigh_messages

CACHED_PLANS = 3
"""Plans for several worlds that are kept besides the latest."""


class WorldRunner:
    """Runs a model on K worlds of a batch of instances.

    Args:
        model: the network, borrowed.
        outcome: how its output is read.
        instances: B instances.
        strategy: how worlds are run.
        whole_calls: message passing steps on the whole graph that the instances were cut from, if they were.
    """

    def __init__(
        self,
        model: nn.Module,
        outcome: Outcome,
        instances: InstanceBatch,
        strategy: RunStrategy,
        whole_calls: Sequence[PropagateCall] = (),
    ) -> None:
        self.model, self.outcome, self.instances, self.strategy = model, outcome, instances, strategy
        self.whole_calls = whole_calls
        self._layers = message_passing_layers(model)
        self._matches = KnownMatches(model)
        self._plans: dict[tuple[int, bool], Plan] = {}
        self._programs = Programs()
        self._prepared: dict[Program, tuple[Any, ...]] = {}
        self._find_own_messages: Callable[[], MessageSteps] | None = None
        self._own_messages: MessageSteps | None = None
        self._compiled = CompiledPasses()
        self._origin: tuple[WorldRunner, Tensor] | None = None

    @property
    def _messages(self) -> MessageSteps | None:
        """Those of one world, if the model need not see the edges; made when they are needed."""
        if self._own_messages is None and self._find_own_messages is not None:
            self._own_messages, self._find_own_messages = self._find_own_messages(), None
        return self._own_messages

    @property
    def origin(self) -> tuple[WorldRunner, Tensor]:
        """The runner that this one was first selected from, and the number there of each instance, [B]."""
        return self._origin or (self, torch.arange(len(self.instances), device=self.instances.x.device))

    def select(self, which: Tensor, instances: InstanceBatch) -> WorldRunner:
        """A runner of the instances ``which``, which are also given; what is known of messages is kept."""
        root, numbers = self.origin
        return self._with(lambda known: known.select(which, self.instances), instances, (root, numbers[which]))

    def repeat(self, times: int, instances: InstanceBatch) -> WorldRunner:
        """A runner of all instances ``times`` times, which are also given; what is known of messages is kept."""
        root, numbers = self.origin
        return self._with(lambda known: known.repeat(times, self.instances), instances, (root, numbers.repeat(times)))

    def _with(
        self,
        change: Callable[[MessageSteps], MessageSteps],
        instances: InstanceBatch,
        origin: tuple[WorldRunner, Tensor],
    ) -> WorldRunner:
        other = WorldRunner(self.model, self.outcome, instances, self.strategy, self.whole_calls)
        other._programs, other._origin = self._programs, origin
        if self.knows_messages:

            def find() -> MessageSteps:
                known = self._messages
                assert known is not None
                return change(known)

            other._find_own_messages = find
        return other

    def run(
        self,
        edge: Tensor | None,
        node: Tensor | None,
        worlds: int,
        scaled: Sequence[Tensor] | None = None,
        attribute: Tensor | None = None,
    ) -> Tensor:
        """The model's output for the explained rows in K worlds, [K, R, ...].

        Args:
            edge: weight of each edge's messages, [K, E]; None leaves them.
            node: factor of each node's features, [K, N, 1] or [K, N, F]; None leaves them.
            worlds: K.
            scaled: weight of every single message of each step (:meth:`messages`), [K * M] each, in place of ``edge``.
            attribute: factor of each edge's attributes, [K, E, 1] or [K, E, D]; None leaves them.
        """
        plan, inputs = self.planned_inputs(node, worlds, attribute)
        flat = None if edge is None else torch.cat([edge.flatten(), edge.new_ones(1)])  # the last one: added self-loops
        if not self.strategy.planned:
            return self._forward_plain(inputs, flat)[plan.batch.rows]
        weights = scaled if flat is None else plan.message_weights(flat)
        program = None
        if attribute is None and not isinstance(self.model, HeteroModel):  # neither was tried
            program = self._programs.find(self, weights is not None, node is not None)
        if program is not None:
            try:
                return self.replay(program, plan, inputs, weights)
            except Exception as error:  # what a recording does not foresee is left to the model, which may raise the same
                raise_own_fault(error)
                self._programs.forget(program)
        return self.forward(inputs, plan.calls, weights)[plan.batch.rows]

    # --- compiled passes -------------------------------------------------------------------------------------------------

    def expect_many_passes(self) -> None:
        """Record the next pass: many follow."""
        self._programs.many_follow = True

    def run_compiled(self, worlds: SubsetWorlds, deletes: Deletes | None) -> Tensor | None:
        """The model's output for the explained rows in K worlds, [K, R, ...]; None if no compiled pass gives it.

        Args:
            worlds: the K worlds.
            deletes: how messages change where edges are deleted; None weighs messages.
        """
        key = self._compiled_key(worlds.parts, deletes)
        root, numbers = self.origin
        compiled = None if key is None else root._compiled.find(root, *key)
        return None if compiled is None else compiled.run(worlds, numbers, self.instances)

    def run_weighed(self, weights: Mapping[str, Tensor], deletes: Deletes | None, odds: bool = False) -> Tensor | None:
        """The same in worlds with real weights, [K, ...] per part; torch can differentiate the output.

        With ``odds`` the log-odds of the classes in its place, [K, R], as :meth:`WeighedBatch.log_odds` gives them.
        """
        parts = set(weights) - {OUTSIDE}
        if not parts or not self._programs.is_due(EDGES in parts, NODES in parts):
            return None
        key = self._compiled_key(parts, deletes)
        root, numbers = self.origin
        weighed = None if key is None else root._compiled.find_weighed(root, *key)
        if weighed is None:
            return None
        return (weighed.log_odds if odds else weighed.run)(weights, numbers, self.instances)

    def _compiled_key(self, parts: Collection[str], deletes: Deletes | None) -> CompiledKey | None:
        """What a compiled pass is made of that changes some parts; None if there cannot be one."""
        if not self.strategy.planned or isinstance(self.model, HeteroModel) or set(parts) - {EDGES, NODES}:
            return None
        program = self._programs.find_now(self, EDGES in parts, NODES in parts)
        if program is None or not program.shared:
            return None
        if deletes is not None and deletes.origin.runner is not self.origin[0]:
            return None  # made for a few of the instances, to try it out
        return program, None if deletes is None else deletes.origin

    def pass_arguments(self, program: Program) -> dict[str, Any]:
        """What a recorded pass is given in one world, by name."""
        plan = self.plan(1, share=False)
        given = self.pass_inputs(plan, plan.batch.inputs, None)
        return dict(zip(program.names, program.bind(plan, given, given, program.prepare(given)), strict=True))

    def planned_inputs(self, node: Tensor | None, worlds: int, attribute: Tensor | None = None) -> tuple[Plan, ModelInputs]:
        """The plan for K worlds, and the arguments of the model."""
        share = node is None and attribute is None and self.strategy.hops is not None and self.instances.nodes_can_be_shared
        plan = self.plan(worlds, share)
        inputs = plan.batch.inputs
        if node is not None:
            inputs = replace(inputs, x=self.instances.masked_features(node).flatten(0, 1))
        if attribute is not None:
            inputs = replace(inputs, kwargs={**inputs.kwargs, **_masked_attributes(self.instances, attribute)})
        return plan, inputs

    def replay(self, program: Program, plan: Plan, inputs: ModelInputs, weights: MessageWeights) -> Tensor:
        """The model's output for the explained rows in the worlds of a plan, from a recorded pass."""
        if program not in plan.bound:
            base = self.plan(1, share=False) if program.shared else plan
            given, named = (self.pass_inputs(one, one.batch.inputs, None) for one in (base, plan))
            if program not in self._prepared or not program.shared:
                self._prepared[program] = program.prepare(given)
            bound = program.bind(plan, named, given, self._prepared[program])
            plan.bound[program] = bound, plan.output_rows(program.level)
        bound, rows = plan.bound[program]
        return program.run(bound, {X: inputs.x, **weight_names(weights)})[rows]

    def pass_inputs(self, plan: Plan, inputs: ModelInputs, weights: MessageWeights) -> dict[str, Any]:
        """All that a pass starts from, by name."""
        named: dict[str, Any] = {
            X: inputs.x,
            EDGE_INDEX: inputs.edge_index,
            GRAPHS: plan.worlds * self.instances.count(Role.GRAPH),
        }
        for name, value in inputs.kwargs.items():
            if isinstance(value, Tensor):
                counts = self.instances.roles[name] in (Role.BATCH, Role.PAIR_INDEX)
                named[f"{INDEX if counts else ''}arg_{name}"] = value
        for number, call in enumerate(plan.calls):
            if call is not None:
                named |= {f"{INDEX}{name}_{number}": value for name, value in call.indices.items()}
                named |= {f"value_{name}_{number}": value for name, value in call.values.items()}
                named |= {} if call.linear is None else {f"{PATTERN}{number}": call.pattern}
        return named | weight_names(weights)

    @property
    def knows_messages(self) -> bool:
        """Whether the messages of one world are all there is to know of the edges."""
        return self._own_messages is not None or self._find_own_messages is not None

    def messages(self) -> Sequence[Messages]:
        """The messages of each step in one world, if the model need not see the edges; else none."""
        if self.strategy.planned and self.strategy.drop_edges and self._messages is None:
            self._find_messages()
        return self._messages or ()

    def plan(self, worlds: int, share: bool) -> Plan:
        """The plan for K worlds; without knowledge of messages it has no calls.

        Args:
            worlds: K.
            share: whether worlds share one copy of the boundary nodes.
        """
        if not self.strategy.planned:
            if (worlds, share) not in self._plans:
                self._plans = {(worlds, share): Plan(self._world_batch(worlds, share), [])}
            return self._plans[worlds, share]
        if (worlds, share) not in self._plans:
            if self._messages is None and self.strategy.drop_edges and not isinstance(self.model, HeteroModel):
                self._find_messages()
            plan = self._trace(worlds, share) if self._messages is None else self._lay_out(worlds, share)
            recent = [key for key in self._plans if key[0] > 1][-CACHED_PLANS:]
            self._plans = {key: kept for key, kept in self._plans.items() if key[0] == 1 or key in recent}
            self._plans[worlds, share] = plan
        return self._plans[worlds, share]

    def forward(
        self,
        inputs: ModelInputs,
        calls: list[PlannedCall | None],
        weights: MessageWeights,
        recorder: Recorder | None = None,
    ) -> Tensor:
        """One forward pass; if the strategy is planned, every layer passes the messages that were planned for it."""
        if not self.strategy.planned:
            return self._forward_plain(inputs, None)
        number, current = 0, calls[0] if calls else None
        received: Tensor | None = None

        def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> tuple[Any, ...]:
            nonlocal number, current, received
            if number >= len(calls):
                raise _branching_error(len(calls), number + 1)
            current, number = calls[number], number + 1
            if current is None:
                return args
            _, size, kwargs = args
            if current.linear is not None:
                weight = None if weights is None else weights[number - 1]
                received = multiply_messages(current, current.linear, kwargs, weight, recorder)
                empty = {name: current.constant.get(name, kwargs[name])[:0] for name in current.per_edge}
                return current.edge_index[:, :0], size, {**kwargs, **empty}
            cut = {} if current.keep is None else {k: kwargs[k][current.keep] for k in current.per_edge}
            return current.edge_index, size, {**kwargs, **cut, **current.constant}

        def on_message(layer: MessagePassing, _: Any, message: Tensor) -> Tensor | None:
            if weights is None or current is None or current.linear is not None:
                return None
            return weigh_messages(layer, message, weights[number - 1])

        def on_aggregate(layer: MessagePassing, *_: Any) -> Tensor | None:
            return None if current is None or current.linear is None else received

        with hook_layers(list(self._layers.values()), on_propagate, on_message, on_aggregate):
            output = call_model(self.model, inputs, self.outcome)
        if number < len(calls):
            raise _branching_error(len(calls), number)
        return output

    def _forward_plain(self, inputs: ModelInputs, weights: Tensor | None) -> Tensor:
        """A forward pass in which messages are matched to edges and weighed as they come."""
        if weights is None:
            return call_model(self.model, inputs, self.outcome)
        position = torch.empty(0)  # of each message's weight
        names = {id(layer): name for name, layer in self._layers.items()}

        def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
            nonlocal position
            if layer.explain is not False:
                position = self._matches.find(layer, names[id(layer)], args, inputs)

        def on_message(layer: MessagePassing, _: Any, message: Tensor) -> Tensor | None:
            return None if layer.explain is False else weigh_messages(layer, message, weights.index_select(0, position))

        with hook_layers(list(self._layers.values()), on_propagate, on_message):
            return call_model(self.model, inputs, self.outcome)

    # --- plans -----------------------------------------------------------------------------------------------------------

    def _world_batch(self, worlds: int, share: bool, edges: bool = True) -> WorldBatch:
        return self.instances.repeat_worlds(worlds, self.strategy.hops if share else None, edges)

    @cached_property
    def one_world(self) -> tuple[WorldBatch, list[PropagateCall]]:
        """All instances where nothing is masked, and the model's message passing steps there."""
        return self._run_traced(1, share=False)

    def _run_traced(self, worlds: int, share: bool) -> tuple[WorldBatch, list[PropagateCall]]:
        batch = self._world_batch(worlds, share)
        return batch, trace_model(self.model, batch.inputs, self.outcome)[1]

    def _trace(self, worlds: int, share: bool) -> Plan:
        """A plan from a traced forward pass."""
        batch, traced = self.one_world if (worlds, share) == (1, False) else self._run_traced(worlds, share)
        known = self.instances, self.strategy, self.whole_calls
        return Plan(batch, [plan_call(number, traced, batch, worlds, *known) for number in range(len(traced))])

    def _find_messages(self) -> None:
        """Trace one world; its messages are all there is to know if no layer computes anything else from the edges."""
        plan = self._plans.get((1, False)) or self._trace(1, share=False)
        self._plans[1, False] = plan
        calls = [call for call in plan.calls if call is not None]
        # an exempt layer may need the edges for something else
        if len(calls) == len(plan.calls) and all(set(call.per_edge) <= set(call.constant) for call in calls):
            self._own_messages = MessageSteps(Messages.of(calls, self.instances))
            self._plans = {}

    def _lay_out(self, worlds: int, share: bool) -> Plan:
        """A plan from known messages; the model itself sees no edges."""
        assert self._messages is not None
        batch = self._world_batch(worlds, share, edges=False)
        return Plan(batch, [*self._messages.in_worlds(batch, self.instances)])


def _masked_attributes(instances: InstanceBatch, factor: Tensor) -> dict[str, Tensor]:
    """The argument that holds edge attributes in K worlds: times their factors, plus the baseline times the rest."""
    name = instances.args[MASKED_ATTRIBUTES]
    value, baseline = instances.args[name], instances.args.get(EDGE_BASELINE)
    masked = attribute_columns(value) * factor
    if baseline is not None:
        masked = masked + baseline * (1 - factor)
    return {name: masked.reshape(-1, *value.shape[1:])}


def _branching_error(planned: int, got: int) -> ModelError:
    return ModelError(
        f"The model must pass messages equally often in every world (got {got} steps instead of {planned}), but the number "
        "of its steps depends on the values in its input. Remove the branch from forward()."
    )
