"""What each layer passes on in the worlds of a batch, known before the model is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch, WorldBatch, group_members, offsets, repeat_rows
from nseg.graphs.inputs import Role
from nseg.model.products import LinearMessages, SparsePattern
from nseg.model.strategy import RunStrategy
from nseg.model.tracing import PropagateCall

SHARED = -1
"""In place of hops: senders are the nodes of one world."""


@dataclass(frozen=True)
class PlannedCall:
    """One ``propagate`` call: its messages, and the position of their weights.

    Args:
        layer: name of the layer.
        edge_index: edges of the messages that are computed, [2, M].
        weight: position of each message's weight, [M].
        receiver: the row of ``edge_index`` that messages go to.
        nodes: number of nodes that may receive messages.
        keep: positions of these messages among all the layer would pass; None if all are kept.
        per_edge: arguments of the call with one entry per message.
        constant: cached ones, which replace those of the call.
        linear: what the messages are made of, if they are passed on as a sparse product; else None.
        after: most later steps in a row that what this step computes passes through.
    """

    layer: str
    edge_index: Tensor
    weight: Tensor
    receiver: int
    nodes: int
    keep: Tensor | None
    per_edge: tuple[str, ...]
    constant: dict[str, Tensor]
    linear: LinearMessages | None
    after: int

    @property
    def indices(self) -> dict[str, Tensor]:
        """All tensors of the call that count nodes or messages, by name."""
        found = {"edges": self.edge_index, "weight": self.weight}
        return found if self.keep is None else found | {"keep": self.keep}

    @property
    def values(self) -> dict[str, Tensor]:
        """All other tensors of the call, by name."""
        return self.constant | ({"shares": self.shares} if self.linear is not None and self.linear.mean else {})

    @cached_property
    def pattern(self) -> SparsePattern:
        """Where the messages stand in a sparse matrix."""
        return SparsePattern(self.senders, self.receivers, self.nodes)

    @property
    def senders(self) -> Tensor:
        """Sender of each message, [M]."""
        return self.edge_index[1 - self.receiver]

    @property
    def receivers(self) -> Tensor:
        """Receiver of each message, [M]."""
        return self.edge_index[self.receiver]

    @cached_property
    def shares(self) -> Tensor:
        """One over the number of messages that each message's receiver gets, [M]."""
        dtype = torch.get_default_dtype() if self.linear is None else self.linear.dtype
        return self.receivers.bincount(minlength=self.nodes).to(dtype).reciprocal()[self.receivers]


@dataclass(frozen=True)
class Plan:
    """What the model is called with for K worlds, and what each of its layers then passes on; None if it is exempt.

    Attributes:
        bound: arguments and explained rows of replayed passes in these worlds, by program.
    """

    batch: WorldBatch
    calls: list[PlannedCall | None]
    bound: dict[Any, tuple[list[Any], Tensor]] = field(default_factory=dict)
    _rows: dict[int, Tensor] = field(default_factory=dict)
    _patterns: dict[Any, SparsePattern] = field(default_factory=dict)

    @property
    def worlds(self) -> int:
        """K."""
        return len(self.batch.position)

    def message_weights(self, edge: Tensor) -> list[Tensor]:
        """Weight of every message of each step, from those of the edges of all worlds and a last 1, [K * E + 1]."""
        select = Once(lambda position: edge.index_select(0, position))
        return [edge[:0] if call is None else select(call.weight) for call in self.calls]

    def rows_within(self, hops: int) -> Tensor:
        """Nodes within some hops of an explained output."""
        if hops not in self._rows:
            self._rows[hops] = (self.batch.hops <= hops).nonzero().flatten()
        return self._rows[hops]

    def positions(self, hops: int, among: int | None) -> Tensor:
        """Where the nodes within ``hops`` hops stand among those within ``among``, or among all if None."""
        rows = self.rows_within(hops)
        return rows if among is None else self._new_position(among)[rows]

    def output_rows(self, hops: int | None) -> Tensor:
        """The explained rows, [K, R], in an output of nodes within some hops alone; of all if None."""
        return self.batch.rows if hops is None else self._new_position(hops)[self.batch.rows]

    def pattern(self, step: int, sent: int | None, received: int | None) -> SparsePattern:
        """Messages of a step between nodes within ``sent`` and within ``received`` hops; all nodes if None."""
        sender = self._call(step).senders
        return self._pattern(step, sender if sent is None else self._new_position(sent)[sender], (sent, received))

    def shared_pattern(self, step: int, received: int | None) -> SparsePattern:
        """Messages of a step from the nodes of one world, which all worlds share."""
        return self._pattern(step, self.batch.node[self._call(step).senders], (SHARED, received))

    def _pattern(self, step: int, sender: Tensor, between: tuple[int | None, int | None]) -> SparsePattern:
        call, received = self._call(step), between[1]
        key = id(call.edge_index), call.receiver, between  # steps over the same edges have one pattern
        if key not in self._patterns:
            to, nodes = call.receivers, call.nodes
            if received is not None:
                to, nodes = self._new_position(received)[to], len(self.rows_within(received))
            self._patterns[key] = SparsePattern(sender, to, nodes)
        return self._patterns[key]

    def _call(self, step: int) -> PlannedCall:
        call = self.calls[step]
        assert call is not None
        return call

    def _new_position(self, hops: int) -> Tensor:
        """Position of each node among those within some hops; of others, undefined."""
        rows = self.rows_within(hops)
        position = torch.zeros_like(self.batch.node)
        return position.index_copy(0, rows, torch.arange(len(rows), device=rows.device))


@dataclass(frozen=True, eq=False)
class MessageLayout:
    """Between which nodes messages go in one world of B instances. Steps whose messages go over the same edges share one.

    Args:
        edge_index: sender and receiver of each message in the numbering of the instances, ordered by receiver, [2, M].
        edge: edge of each, -1 for self-loops that the layer added, [M].
        ptr: offset of each instance among the messages, [B + 1].
    """

    edge_index: Tensor
    edge: Tensor
    ptr: Tensor

    def equals(self, other: MessageLayout) -> bool:
        """Whether messages go over the same edges in the same order."""
        return torch.equal(self.edge, other.edge) and torch.equal(self.edge_index, other.edge_index)

    def select(self, kept: Tensor, which: Tensor, instances: InstanceBatch) -> MessageLayout:
        """The messages ``kept``, which are those of the instances ``which`` of a batch."""
        node, edge = (_new_numbers(instances.ptr[role], which) for role in (Role.NODE, Role.EDGE))
        new_edge = self.edge[kept]
        if edge.numel():
            new_edge = torch.where(new_edge < 0, -1, edge[new_edge])
        return MessageLayout(node[self.edge_index[:, kept]], new_edge, offsets(self.ptr.diff()[which]))

    def repeat(self, times: int, instances: InstanceBatch) -> MessageLayout:
        """The messages of all instances of a batch, ``times`` times."""
        copy = torch.arange(times, device=self.edge.device).unsqueeze(1)
        edge_index = (self.edge_index.unsqueeze(1) + copy * instances.num_nodes).flatten(1)
        edge = torch.where(self.edge < 0, -1, self.edge + copy * instances.num_edges).flatten()
        return MessageLayout(edge_index, edge, offsets(self.ptr.diff().repeat(times)))

    def in_worlds(self, batch: WorldBatch, instances: InstanceBatch) -> tuple[Tensor, Tensor]:
        """Edges of the messages in K worlds, and positions of their weights."""
        worlds, edges = len(batch.position), instances.num_edges
        world = torch.arange(worlds, device=self.edge.device).unsqueeze(1)
        ends = torch.stack([batch.position.index_select(1, end).flatten() for end in self.edge_index])
        return ends, torch.where(self.edge < 0, worlds * edges, self.edge + world * edges).flatten()


@dataclass(frozen=True)
class Messages:
    """The messages of one ``propagate`` call in one world of B instances, of which the model need not see the edges.

    Args:
        layout: where they go.
        call: the planned call of this world, for everything else.
    """

    layout: MessageLayout
    call: PlannedCall

    @property
    def edge_index(self) -> Tensor:
        """Sender and receiver of each message, [2, M]."""
        return self.layout.edge_index

    @property
    def edge(self) -> Tensor:
        """Edge of each message, -1 for self-loops that the layer added, [M]."""
        return self.layout.edge

    @classmethod
    def of(cls, calls: Sequence[PlannedCall], instances: InstanceBatch) -> list[Messages]:
        """The messages of the calls that were planned for one world."""
        found: list[Messages] = []
        for call in calls:
            one = cls._of_call(call, instances)
            twin = next((other for other in found if one.layout.equals(other.layout)), one)
            same = {k: v for k, v in twin.call.constant.items() if _equal(v, one.call.constant.get(k))}
            found.append(cls(twin.layout, replace(one.call, constant=one.call.constant | same)))
        return found

    @classmethod
    def _of_call(cls, call: PlannedCall, instances: InstanceBatch) -> Messages:
        order = torch.argsort(call.edge_index[call.receiver], stable=True)
        edge_index, weight = call.edge_index[:, order], call.weight[order]
        owner = instances.node_owner[edge_index[call.receiver]]
        edge = torch.where(weight == instances.num_edges, -1, weight)
        call = replace(call, keep=None, constant={name: value[order] for name, value in call.constant.items()})
        return cls(MessageLayout(edge_index, edge, offsets(owner.bincount(minlength=len(instances)))), call)


class MessageSteps(list[Messages]):
    """The messages of all steps; what steps have in common is selected, repeated and laid out once."""

    def select(self, which: Tensor, instances: InstanceBatch) -> MessageSteps:
        """The messages of the instances ``which`` of a batch."""
        kept = Once(lambda layout: group_members(layout.ptr, which)[0])
        layout = Once(lambda layout: layout.select(kept(layout), which, instances))
        value = Once(lambda layout, value: value[kept(layout)])
        return self._changed(layout, value)

    def repeat(self, times: int, instances: InstanceBatch) -> MessageSteps:
        """The messages of all instances of a batch, ``times`` times."""
        layout = Once(lambda layout: layout.repeat(times, instances))
        return self._changed(layout, Once(lambda _, value: repeat_rows(value, times)))

    def in_worlds(self, batch: WorldBatch, instances: InstanceBatch) -> list[PlannedCall]:
        """The calls in K worlds."""
        place = Once(lambda layout: layout.in_worlds(batch, instances))
        value = Once(lambda value: repeat_rows(value, len(batch.position)))
        return [
            replace(
                step.call,
                edge_index=place(step.layout)[0],
                weight=place(step.layout)[1],
                nodes=batch.inputs.num_nodes,
                constant={name: value(one) for name, one in step.call.constant.items()},
            )
            for step in self
        ]

    def _changed(self, layout: Once, value: Once) -> MessageSteps:
        return MessageSteps(
            Messages(
                layout(step.layout),
                replace(step.call, constant={k: value(step.layout, one) for k, one in step.call.constant.items()}),
            )
            for step in self
        )


class Once:
    """A function that is computed once for the same objects."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function, self._known = function, dict[tuple[int, ...], Any]()

    def __call__(self, *args: Any) -> Any:
        key = tuple(map(id, args))
        if key not in self._known:
            self._known[key] = self._function(*args), args  # kept, so that no other object gets the same id
        return self._known[key][0]


def _equal(one: Tensor, other: Tensor | None) -> bool:
    return other is not None and one.dtype == other.dtype and torch.equal(one, other)


def plan_call(
    number: int,
    traced: Sequence[PropagateCall],
    batch: WorldBatch,
    worlds: int,
    instances: InstanceBatch,
    strategy: RunStrategy,
    whole_calls: Sequence[PropagateCall],
) -> PlannedCall | None:
    """Keep the messages of step ``number`` that can still reach an explained output; None if the layer is exempt.

    Args:
        number: number of the step.
        traced: all steps, as traced in the worlds.
        batch: the worlds.
        worlds: K.
        instances, strategy: whose worlds they are, and how they are run.
        whole_calls: steps on the whole graph that the instances were cut from, if they were.
    """
    call = traced[number]
    if not call.weighted:
        return None
    reaches = batch.hops[call.ends[call.receiver]] <= call.after
    keep = None if bool(reaches.all()) else reaches.nonzero().flatten()
    edge = call.edge if keep is None else call.edge[keep]
    edge_index, ends = (some if keep is None else some[:, keep] for some in (call.edge_index, call.ends))
    if not strategy.constants:
        constant = {}
    elif strategy.hops is not None:
        constant = _whole_graph_constants(whole_calls[number], edge, batch.node_id[ends[0]], instances)
    else:
        constant = {k: v if keep is None else v[keep] for k, v in call.constant.items()}
    return PlannedCall(
        layer=call.layer,
        edge_index=edge_index,
        weight=torch.where(edge < 0, worlds * instances.num_edges, edge),  # the last weight, 1, is for added self-loops
        receiver=call.receiver,
        nodes=call.received,
        keep=keep,
        per_edge=call.per_edge,
        constant=constant,
        linear=call.linear if strategy.products else None,
        after=call.after,
    )


def _whole_graph_constants(
    whole: PropagateCall, edge: Tensor, sender: Tensor, instances: InstanceBatch
) -> dict[str, Tensor]:
    """Per-edge values that a layer derived from the whole graph, for the messages of a subgraph.

    Args:
        whole: the layer's call on the whole graph.
        edge: edge of each message, -1 for self-loops that the layer added, [M].
        sender: the caller's number of each message's sender, [M].
        instances: B instances.
    """
    loop_position = _positions(torch.where(whole.edge < 0, whole.ends[0], -1), sender)
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


def _new_numbers(ptr: Tensor, which: Tensor) -> Tensor:
    """New number of each member of the groups ``which``, which are put one after the other; -1 for others."""
    members, _ = group_members(ptr, which)
    number = torch.full((int(ptr[-1]),), -1, dtype=torch.long, device=ptr.device)
    number[members] = torch.arange(members.numel(), device=ptr.device)
    return number
