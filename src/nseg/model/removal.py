"""Worlds in which edges are deleted, not weighed: degrees, attention and means are those of the smaller graph.

A *remover* runs such worlds. :class:`SmallerGraphs` does what the word says, for any model: the kept edges of all worlds of
all instances are one disjoint union. :class:`RescaledMessages` needs no smaller graphs, where all that a layer derives from
the edges are degrees: a message is then weighed by what its coefficient becomes. Either is verified before use against
deleting edges from the whole graph, one world at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from nseg.graphs.batch import InstanceBatch, WorldBatch, group_members
from nseg.graphs.inputs import Role
from nseg.graphs.subgraph import reverse_edges
from nseg.model.hooks import call_model
from nseg.model.outcomes import Outcome
from nseg.model.plan import Messages
from nseg.model.runner import WorldRunner
from nseg.model.tracing import PropagateCall

SMALL = 1e-3
"""Degrees below this are none: between 0 and 1 edges a degree is only a guide."""

KEPT = 0.5
"""Weight above which an edge is kept."""


class Remover(ABC):
    """Runs worlds in which edges are deleted.

    Attributes:
        batched: whether worlds and instances may share a forward pass.
        differentiable: whether weights between 0 and 1 have a meaning and a gradient.
    """

    batched: bool = True
    differentiable: bool = False

    @property
    @abstractmethod
    def sizes(self) -> Tensor:
        """Nodes plus edges that one world of each instance needs, [B]."""

    @abstractmethod
    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor:
        """The model's output for the explained rows in K worlds, [K, R, ...]."""

    @abstractmethod
    def select(self, which: Tensor, instances: InstanceBatch, runner: WorldRunner) -> Remover:
        """The remover of the instances ``which``, given with the runner that weighs their messages."""

    @abstractmethod
    def repeat(self, times: int, instances: InstanceBatch, runner: WorldRunner) -> Remover:
        """The remover of all instances ``times`` times, given with the runner that weighs their messages."""


# --- smaller graphs ------------------------------------------------------------------------------------------------------


class SmallerGraphs(Remover):
    """Runs the model on graphs without the deleted edges; right for every model.

    Args:
        model, outcome: the network, borrowed, and how its output is read.
        instances: B instances, whose edges are kept or deleted one by one.
        wide: the same instances with more edges, all of which stay or go together; the instances themselves if None.
        tied: whether an edge of the wider subgraphs goes with its reverse, if that is one of the instance.
        batched: whether worlds may share a forward pass.

    An explained edge (of a model that scores the edges of the graph) is never deleted, or there would be no output.
    """

    def __init__(
        self,
        model: nn.Module,
        outcome: Outcome,
        instances: InstanceBatch,
        wide: InstanceBatch | None = None,
        tied: bool = False,
        batched: bool = True,
    ) -> None:
        self.model, self.outcome, self.instances, self.tied, self.batched = model, outcome, instances, tied, batched
        self.wide = instances if wide is None else wide
        self._latest: tuple[int, WorldBatch] | None = None

    @property
    def sizes(self) -> Tensor:
        return self.wide.sizes

    def select(self, which: Tensor, instances: InstanceBatch, runner: WorldRunner) -> SmallerGraphs:
        wide = None if self.wide is self.instances else self.wide.select(which)
        return SmallerGraphs(self.model, self.outcome, instances, wide, self.tied, self.batched)

    def repeat(self, times: int, instances: InstanceBatch, runner: WorldRunner) -> SmallerGraphs:
        wide = None if self.wide is self.instances else self.wide.repeat(times)
        return SmallerGraphs(self.model, self.outcome, instances, wide, self.tied, self.batched)

    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor:
        batch, roles = self._world_batch(worlds), self.wide.roles
        inputs, rows = batch.inputs, batch.rows
        if "nodes" in weights:
            inputs = replace(inputs, x=(self.wide.x * self._on_wide_nodes(weights["nodes"])).flatten(0, 1))
        if "edges" in weights:
            keep = self._kept(weights["edges"], weights.get("outside")).flatten()  # [K * E]
            position = keep.nonzero().flatten()
            kwargs = {k: v[position] if roles[k] is Role.EDGE else v for k, v in inputs.kwargs.items()}
            inputs = replace(inputs, edge_index=inputs.edge_index[:, position], kwargs=kwargs)
            if self.wide.outputs is Role.EDGE:
                rows = (torch.cumsum(keep, 0) - 1)[rows]
        return call_model(self.model, inputs, self.outcome)[rows]

    def _kept(self, edge: Tensor, outside: Tensor | None) -> Tensor:
        """Which edges of the wider subgraphs are kept in each world, [K, E]."""
        keep = edge > KEPT
        if self.wide is not self.instances:
            others = keep.new_ones(len(edge)) if outside is None else outside > KEPT
            keep = torch.cat([keep, others.unsqueeze(1)], 1)[:, self._follows]
        if self.wide.outputs is Role.EDGE:
            keep[:, self.wide.row] = True
        return keep

    @cached_property
    def _follows(self) -> Tensor:
        """The edge of the instances that each edge of the wider subgraphs is or follows; the number of edges if none."""
        own, wide = self.instances, self.wide
        at = _positions((own.edge_owner, own.edge_id), (wide.edge_owner, wide.edge_id))
        if self.tied:
            at = torch.where(at < 0, at[reverse_edges(wide.edge_index, wide.num_nodes)], at)
        return torch.where(at < 0, own.num_edges, at)

    def _on_wide_nodes(self, factor: Tensor) -> Tensor:
        """Factors of the nodes of the wider subgraphs; 1 for nodes outside the instances."""
        if self.wide is self.instances:
            return factor
        own, wide = self.instances, self.wide
        at = _positions((own.node_owner, own.node_id), (wide.node_owner, wide.node_id))
        return torch.cat([factor, torch.ones_like(factor[:, :1])], 1)[:, at]  # the last one at position -1

    def _world_batch(self, worlds: int) -> WorldBatch:
        if self._latest is None or self._latest[0] != worlds:
            self._latest = worlds, self.wide.repeat_worlds(worlds)
        return self._latest[1]


class OneAtATime(Remover):
    """Runs every world of every instance alone, on the whole graph: slow, and right for every model.

    Args:
        model, outcome, instances, tied: as for :class:`SmallerGraphs`.
        whole: returns an instance on the whole graph, by its number among all that there ever were.
        numbers: these numbers of the B instances.
    """

    batched = False

    def __init__(
        self,
        model: nn.Module,
        outcome: Outcome,
        instances: InstanceBatch,
        tied: bool,
        whole: Callable[[int], InstanceBatch],
        numbers: Tensor,
    ) -> None:
        self.model, self.outcome, self.instances, self.tied = model, outcome, instances, tied
        self.whole, self.numbers = whole, numbers

    @property
    def sizes(self) -> Tensor:
        return self.instances.sizes

    def select(self, which: Tensor, instances: InstanceBatch, runner: WorldRunner) -> OneAtATime:
        return OneAtATime(self.model, self.outcome, instances, self.tied, self.whole, self.numbers[which])

    def repeat(self, times: int, instances: InstanceBatch, runner: WorldRunner) -> OneAtATime:
        return OneAtATime(self.model, self.outcome, instances, self.tied, self.whole, self.numbers.repeat(times))

    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor:
        found = []
        for b, number in enumerate(self.numbers.tolist()):
            here = self.instances.select(self.numbers.new_tensor([b]))
            alone = SmallerGraphs(self.model, self.outcome, here, self.whole(number), self.tied)
            owners = {"edges": self.instances.edge_owner, "nodes": self.instances.node_owner}
            own = {k: w[:, owners[k] == b] if k in owners else w for k, w in weights.items()}
            found.append(alone.run(own, worlds))
        return torch.cat(found, 1)


def _positions(own: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor]) -> Tensor:
    """Position of each (instance, number) among sorted ones; -1 if it is not there."""
    (owner, ids), (other_owner, other_ids) = own, asked
    if not ids.numel():
        return torch.full_like(other_ids, -1)
    most = int(max(ids.max(), other_ids.max() if other_ids.numel() else 0)) + 1
    known, key = owner * most + ids, other_owner * most + other_ids
    position = torch.searchsorted(known, key).clamp(max=len(known) - 1)
    return torch.where(known[position] == key, position, -1)


# --- rescaled messages ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DegreeRule:
    """How the messages of a ``propagate`` call depend on degrees.

    Args:
        receiver: the row of ``edge_index`` that messages go to.
        symmetric: whether the coefficients are those of a GCN, :math:`w_e / \\sqrt{d_i d_j}`.
        weight: the argument that holds :math:`w_e`; None for 1.
        mean: whether messages are averaged.
        loops: whether the layer adds self-loops.
    """

    receiver: int
    symmetric: bool
    weight: str | None
    mean: bool
    loops: bool


def recognise_rule(call: PropagateCall | Messages, weights: Mapping[str, Tensor]) -> DegreeRule:
    """The rule of a call; whether it is right is verified later.

    Args:
        call: the messages of a layer.
        weights: arguments of the model with one number per edge, which may be weights.
    """
    planned = call if isinstance(call, PropagateCall) else call.call
    linear, receiver, loops = planned.linear, planned.receiver, call.edge < 0
    mean, has_loops = linear is not None and linear.mean, bool(loops.any())
    name = None if linear is None else linear.coefficient
    if name is None or name not in planned.constant:
        return DegreeRule(receiver, False, None, mean, has_loops)
    known = planned.constant[name].flatten()
    for weight, values in ((None, None), *weights.items()):
        of_message = torch.ones_like(known)
        if values is not None:
            of_message = torch.where(loops, 1.0, values.to(known.dtype)[call.edge])
        nodes = int(call.edge_index.max()) + 1
        degree = known.new_zeros(nodes).index_add(0, call.edge_index[receiver], of_message)
        root = _inverse_root(degree)
        if torch.allclose(known, of_message * root[call.edge_index[0]] * root[call.edge_index[1]], rtol=1e-4, atol=1e-6):
            return DegreeRule(receiver, True, weight, mean, has_loops)
    return DegreeRule(receiver, False, None, mean, has_loops)


def _inverse_root(degree: Tensor) -> Tensor:
    """One over the square root; 0 for a degree of 0."""
    return torch.where(degree > SMALL, degree.clamp_min(SMALL).rsqrt(), 0)


@dataclass(frozen=True)
class OutsideDegrees:
    """What the degrees of the nodes of B instances consist of, besides the edges of the instances.

    Args:
        loops: weight of the self-loops that a layer adds, [N].
        outside: weight of the edges outside the instances, which stay or go together, [N].
        loose: for each edge, the weight of its reverse if that is outside and goes with the edge, else 0, [E].
    """

    loops: Tensor
    outside: Tensor
    loose: Tensor

    def select(self, which: Tensor, instances: InstanceBatch) -> OutsideDegrees:
        """Those of the instances ``which`` of a batch."""
        node, edge = (group_members(instances.ptr[role], which)[0] for role in (Role.NODE, Role.EDGE))
        return OutsideDegrees(self.loops[node], self.outside[node], self.loose[edge])

    def repeat(self, times: int) -> OutsideDegrees:
        """Those of all instances ``times`` times."""
        return OutsideDegrees(self.loops.repeat(times), self.outside.repeat(times), self.loose.repeat(times))


class RescaledMessages(Remover):
    """Runs worlds without edges by weighing messages: each by what its coefficient is in the smaller graph.

    Args:
        runner: the runner that weighs messages; its layers need nothing of the edges but what it knows.
        rules: how the messages of each step depend on degrees.
        degrees: what the degrees consist of, by rule.
    """

    differentiable = True

    def __init__(
        self, runner: WorldRunner, rules: Sequence[DegreeRule], degrees: Mapping[DegreeRule, OutsideDegrees]
    ) -> None:
        self.runner, self.rules, self.degrees = runner, rules, degrees

    @property
    def sizes(self) -> Tensor:
        return self.runner.instances.sizes

    def select(self, which: Tensor, instances: InstanceBatch, runner: WorldRunner) -> RescaledMessages:
        some = {rule: one.select(which, self.runner.instances) for rule, one in self.degrees.items()}
        return RescaledMessages(runner, self.rules, some)

    def repeat(self, times: int, instances: InstanceBatch, runner: WorldRunner) -> RescaledMessages:
        return RescaledMessages(runner, self.rules, {rule: one.repeat(times) for rule, one in self.degrees.items()})

    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor:
        if "edges" not in weights:
            return self.runner.run(None, weights.get("nodes"), worlds)
        edge = weights["edges"].clamp(0, 1)
        outside = weights["outside"].to(edge.dtype) if "outside" in weights else edge.new_ones(len(edge))
        degree = {rule: self._degree(rule, edge, outside.unsqueeze(1)) for rule in set(self.rules)}
        steps = zip(self.rules, self.runner.messages(), strict=True)
        scaled = [self._scaled(rule, step, edge, degree[rule]).flatten() for rule, step in steps]
        return self.runner.run(None, weights.get("nodes"), worlds, scaled)

    def _degree(self, rule: DegreeRule, edge: Tensor, outside: Tensor) -> Tensor:
        """Degree of each node in each world, [K, N]."""
        instances, rest = self.runner.instances, self.degrees[rule]
        of_edge = edge if rule.weight is None else edge * instances.args[rule.weight].flatten().to(edge.dtype)
        ends = instances.edge_index
        degree = (rest.loops + rest.outside * outside).index_add(1, ends[rule.receiver], of_edge)
        if bool(rest.loose.any()):
            degree = degree.index_add(1, ends[1 - rule.receiver], edge * rest.loose)
        return degree

    def _scaled(self, rule: DegreeRule, step: Messages, edge: Tensor, degree: Tensor) -> Tensor:
        """Weight of each message of a step in each world, [K, M]."""
        weight = torch.cat([edge, edge.new_ones(len(edge), 1)], 1)[:, step.edge]  # the last one at position -1
        to = step.edge_index[rule.receiver]
        if rule.symmetric:
            assert step.call.linear is not None
            known = step.call.constant[str(step.call.linear.coefficient)].flatten().to(edge.dtype)
            root = _inverse_root(degree)
            if rule.weight is not None:
                own = self.runner.instances.args[rule.weight].flatten().to(edge.dtype)
                weight = weight * torch.cat([own, own.new_ones(1)])[step.edge]
            now = weight * root[:, step.edge_index[0]] * root[:, step.edge_index[1]]
            weight = torch.where(known == 0, 0, now / torch.where(known == 0, 1, known))
        if rule.mean:
            number = torch.zeros_like(degree[:1]).index_add(1, to, torch.ones_like(weight[:1]))
            now = torch.zeros_like(degree).index_add(1, to, weight)
            weight = weight * (number / now.clamp_min(SMALL))[:, to]
        return weight


def rescaled_messages(runner: WorldRunner, edge_index: Tensor | None, tied: bool) -> RescaledMessages | None:
    """The remover of a runner that only needs degrees of the edges; None if its layers need more.

    Args:
        runner: the runner that weighs messages.
        edge_index: the whole graph that its instances were cut from; None if they were not.
        tied: whether an edge outside an instance goes with its reverse, if that is one of the instance.
    """
    steps = runner.messages()
    if not steps:
        return None
    instances, whole = runner.instances, runner.whole_calls
    names = [k for k, role in instances.roles.items() if role is Role.EDGE and instances.args[k].is_floating_point()]
    given = {k: instances.args[k].flatten() for k in names if instances.args[k].numel() == instances.num_edges}
    if edge_index is None:
        rules = [recognise_rule(step, given) for step in steps]
    else:  # weights of edges outside the instances are not known here
        rules = [recognise_rule(call, {}) for call in whole]
    degrees = {}
    for rule, step in dict(zip(rules, steps, strict=True)).items():
        call = next((c for r, c in zip(rules, whole, strict=False) if r == rule), None) if edge_index is not None else None
        degrees[rule] = _outside_degrees(rule, step, call, edge_index, instances, tied)
    return RescaledMessages(runner, rules, degrees)


def _outside_degrees(
    rule: DegreeRule,
    step: Messages,
    whole: PropagateCall | None,
    edge_index: Tensor | None,
    instances: InstanceBatch,
    tied: bool,
) -> OutsideDegrees:
    """What the degrees of all nodes consist of besides the edges of the instances."""
    dtype, device = torch.get_default_dtype(), instances.x.device
    dtype = instances.x.dtype if instances.x.is_floating_point() else dtype
    none = torch.zeros(instances.num_nodes, dtype=dtype, device=device)
    loose = torch.zeros(instances.num_edges, dtype=dtype, device=device)
    if whole is None or edge_index is None:  # whole graphs: nothing is outside
        to, added = step.edge_index[rule.receiver], step.edge < 0
        return OutsideDegrees(none.index_add(0, to[added], torch.ones_like(to[added], dtype=dtype)), none, loose)
    to, added = whole.edge_index[rule.receiver], whole.edge < 0
    number = int(max(edge_index.max() if edge_index.numel() else 0, instances.node_id.max())) + 1
    loops, total = (to[some].bincount(minlength=number).to(dtype)[instances.node_id] for some in (added, ~added))
    real = torch.isin(instances.edge_id, whole.edge)  # a layer may have replaced self-loops
    inside = none.index_add(0, instances.edge_index[rule.receiver], real.to(dtype))
    outside = total - inside
    if tied:
        partner = reverse_edges(edge_index, number)[instances.edge_id]
        here = _positions((instances.edge_owner, instances.edge_id), (instances.edge_owner, partner))
        loose = ((here < 0) & torch.isin(partner, whole.edge)).to(dtype)
        outside = outside.index_add(0, instances.edge_index[1 - rule.receiver], -loose)
    return OutsideDegrees(loops, outside, loose)
