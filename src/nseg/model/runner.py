"""Forward passes over many worlds at once.

Two shortcuts make them fast. Both are exact for most models, and verified before use:

- all worlds of all instances are one disjoint union, so one forward pass serves all of them;
- message passing step c of C only matters where the receiver is within C - 1 - c hops of an explained output, so other
  messages are not computed; and per-edge values that a layer derives from the graph alone (a degree normalisation) are
  read off once instead of being recomputed in every pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from nseg.errors import ModelError
from nseg.graphs.batch import InstanceBatch, WorldBatch, repeat_rows
from nseg.graphs.inputs import ModelInputs
from nseg.model.hooks import call_model, hook_layers, message_passing_layers
from nseg.model.outcomes import Outcome
from nseg.model.strategy import RunStrategy
from nseg.model.tracing import PropagateCall, match_edges, trace_model

CACHED_PLANS = 3
"""Plans for several worlds that are kept besides the latest."""


@dataclass
class PlannedCall:
    """One ``propagate`` call in the worlds: its messages, and the position of their weights.

    Args:
        edge_index: edges of the messages that are computed, [2, M].
        weight: position of each message's weight, [M].
        keep: positions of these messages among all the layer would pass; None if all are kept.
        cut: arguments of the call that are reduced to these messages.
        constant: cached arguments that replace those of the call.
    """

    edge_index: Tensor
    weight: Tensor
    keep: Tensor | None
    cut: tuple[str, ...]
    constant: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What the model is called with for K worlds, and what each of its layers then passes on; None if it is exempt."""

    batch: WorldBatch
    calls: list[PlannedCall | None]


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
        self._plans: dict[tuple[int, bool], Plan] = {}

    def run(self, edge: Tensor | None, node: Tensor | None, worlds: int) -> Tensor:
        """The model's output for the explained rows in K worlds, [K, R, ...].

        Args:
            edge: weight of each edge's messages, [K, E]; None leaves them.
            node: factor of each node's features, [K, N, 1] or [K, N, F]; None leaves them.
            worlds: K.
        """
        share = node is None and self.strategy.hops is not None and self.instances.nodes_can_be_shared
        plan = self.plan(worlds, share)
        inputs = plan.batch.inputs
        if node is not None:
            inputs = replace(inputs, x=(self.instances.x * node).flatten(0, 1))
        weights = None if edge is None else torch.cat([edge.flatten(), edge.new_ones(1)])
        return self.forward(inputs, plan.calls, weights)[plan.batch.rows]

    def plan(self, worlds: int, share: bool) -> Plan:
        """The plan for K worlds; without knowledge of messages it has no calls.

        Args:
            worlds: K.
            share: whether worlds share one copy of the boundary nodes.
        """
        if not self.strategy.planned:
            return Plan(self.instances.repeat_worlds(worlds), [])
        if (worlds, share) not in self._plans:
            one = self.plan(1, share) if worlds > 1 else None
            if one is not None and one.calls and one.batch.edges_removed:
                plan = self._repeat(one.calls, worlds, share)
            else:
                plan = self._trace(worlds, share)
            recent = [key for key in self._plans if key[0] > 1][-CACHED_PLANS:]
            self._plans = {key: kept for key, kept in self._plans.items() if key[0] == 1 or key in recent}
            self._plans[worlds, share] = plan
        return self._plans[worlds, share]

    def forward(self, inputs: ModelInputs, calls: list[PlannedCall | None], weights: Tensor | None) -> Tensor:
        """One forward pass; ``weights`` are those of all edges in all worlds, and a last 1 for added self-loops."""
        if self.strategy.planned:
            return self._forward_planned(inputs, calls, weights)
        return self._forward_plain(inputs, weights)

    def _forward_planned(self, inputs: ModelInputs, calls: list[PlannedCall | None], weights: Tensor | None) -> Tensor:
        """A forward pass in which every layer passes the messages that were planned for it."""
        number, current = 0, calls[0] if calls else None

        def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> tuple[Any, ...]:
            nonlocal number, current
            if number >= len(calls):
                raise _branching_error(len(calls), number + 1)
            current, number = calls[number], number + 1
            if current is None:
                return args
            _, size, kwargs = args
            cut = {k: kwargs[k][current.keep] for k in current.cut}
            return current.edge_index, size, {**kwargs, **cut, **current.constant}

        def on_message(layer: MessagePassing, _: Any, message: Tensor) -> Tensor | None:
            if weights is None or current is None:
                return None
            return _weigh(layer, message, weights.index_select(0, current.weight))

        with hook_layers(self.model, on_propagate, on_message):
            output = call_model(self.model, inputs, self.outcome)
        if number < len(calls):
            raise _branching_error(len(calls), number)
        return output

    def _forward_plain(self, inputs: ModelInputs, weights: Tensor | None) -> Tensor:
        """A forward pass in which messages are matched to edges and weighed as they come."""
        if weights is None:
            return call_model(self.model, inputs, self.outcome)
        edge_of_message = torch.empty(0)
        names = {id(layer): name for name, layer in message_passing_layers(self.model).items()}

        def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
            nonlocal edge_of_message
            if layer.explain is not False:
                edge_of_message = match_edges(args[0], inputs, layer, args[2], names[id(layer)])

        def on_message(layer: MessagePassing, _: Any, message: Tensor) -> Tensor | None:
            if layer.explain is False:
                return None
            return _weigh(layer, message, weights[torch.where(edge_of_message < 0, len(weights) - 1, edge_of_message)])

        with hook_layers(self.model, on_propagate, on_message):
            return call_model(self.model, inputs, self.outcome)

    # --- plans -----------------------------------------------------------------------------------------------------------

    def _world_batch(self, worlds: int, share: bool) -> WorldBatch:
        return self.instances.repeat_worlds(worlds, boundary=self.strategy.hops if share else None)

    def _trace(self, worlds: int, share: bool) -> Plan:
        """A plan from a traced forward pass."""
        batch = self._world_batch(worlds, share)
        _, traced = trace_model(self.model, batch.inputs, self.outcome)
        calls = [self._planned_call(c, call, batch, worlds, len(traced)) for c, call in enumerate(traced)]
        # an exempt layer may need the edges for something else
        cached = all(p is not None and set(c.per_edge) <= set(p.constant) for c, p in zip(traced, calls, strict=True))
        if self.strategy.drop_edges and cached:
            batch = replace(batch, inputs=self.instances.without_edges(batch.inputs), edges_removed=True)
        return Plan(batch, calls)

    def _repeat(self, calls: list[PlannedCall | None], worlds: int, share: bool) -> Plan:
        """The plan of one world, repeated; exact because the model itself sees no edges."""
        batch = self._world_batch(worlds, share)
        edges, world = self.instances.num_edges, torch.arange(worlds, device=batch.rows.device).unsqueeze(1)
        own = batch.nodes_per_world

        def repeat(one: PlannedCall | None) -> PlannedCall:
            assert one is not None  # an exempt layer needs the edges, so that such plans are not repeated
            shared = one.edge_index >= own  # boundary nodes come after those of the world
            position = one.edge_index.unsqueeze(1) + torch.where(shared.unsqueeze(1), (worlds - 1) * own, world * own)
            weight = torch.where(one.weight == edges, worlds * edges, one.weight + world * edges).flatten()
            constant = {name: repeat_rows(value, worlds) for name, value in one.constant.items()}
            return replace(one, edge_index=position.flatten(1), weight=weight, constant=constant)

        batch = replace(batch, inputs=self.instances.without_edges(batch.inputs), edges_removed=True)
        return Plan(batch, [repeat(one) for one in calls])

    def _planned_call(
        self, number: int, call: PropagateCall, batch: WorldBatch, worlds: int, total: int
    ) -> PlannedCall | None:
        """Keep the messages of step ``number`` of ``total`` that can still reach an explained output; None if exempt."""
        if not call.weighted:
            return None
        reaches = batch.hops[call.edge_index[call.receiver]] <= total - 1 - number
        keep = None if bool(reaches.all()) else reaches.nonzero().flatten()
        edge = call.edge if keep is None else call.edge[keep]
        edge_index = call.edge_index if keep is None else call.edge_index[:, keep]
        if not self.strategy.constants:
            constant = {}
        elif self.strategy.hops is not None:
            constant = self._whole_graph_constants(self.whole_calls[number], edge, batch.node_id[edge_index[0]])
        else:
            constant = {k: v if keep is None else v[keep] for k, v in call.constant.items()}
        own_loop = worlds * self.instances.num_edges  # position of the last weight, 1, for self-loops of the layer
        return PlannedCall(
            edge_index=edge_index,
            weight=torch.where(edge < 0, own_loop, edge),
            keep=keep,
            cut=() if keep is None else tuple(k for k in call.per_edge if k not in constant),
            constant=constant,
        )

    def _whole_graph_constants(self, whole: PropagateCall, edge: Tensor, sender: Tensor) -> dict[str, Tensor]:
        """Per-edge values that a layer derived from the whole graph, for the messages of a subgraph.

        Args:
            whole: the layer's call on the whole graph.
            edge: edge of each message, -1 for self-loops that the layer added, [M].
            sender: the caller's number of each message's sender, [M].
        """
        instances = self.instances
        loop_position = _positions(torch.where(whole.edge < 0, whole.edge_index[0], -1), sender)
        position = loop_position[sender]
        if instances.num_edges:
            edge_id = instances.edge_id[edge % instances.num_edges]
            position = torch.where(edge < 0, position, _positions(whole.edge, edge_id)[edge_id])
        return {name: value[position] for name, value in whole.constant.items()}


def _positions(items: Tensor, asked: Tensor) -> Tensor:
    """Position of each number in ``items``, for all numbers up to the largest in either tensor; -1 if absent."""
    size = max((int(some.max()) + 1 for some in (items, asked) if some.numel()), default=0)
    position = torch.full((size,), -1, dtype=torch.long, device=items.device)
    present = (items >= 0).nonzero().flatten()
    position[items[present]] = present
    return position


def _branching_error(planned: int, got: int) -> ModelError:
    return ModelError(
        f"The model must pass messages equally often in every world (got {got} steps instead of {planned}), but the number "
        "of its steps depends on the values in its input. Remove the branch from forward()."
    )


def _weigh(layer: MessagePassing, message: Tensor, weight: Tensor) -> Tensor:
    """Messages times their weights."""
    axis = layer.node_dim % message.dim()
    return message * weight.view([-1 if d == axis else 1 for d in range(message.dim())])
