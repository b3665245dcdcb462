"""Worlds without edges by weighing messages, for layers that derive nothing but degrees from the edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch, group_members
from nseg.graphs.inputs import Role
from nseg.graphs.subgraph import reverse_edges
from nseg.model.deletion_rules import DegreeData, Deletion
from nseg.model.plan import MessageLayout, Messages, Once
from nseg.model.removal import Remover, positions_of
from nseg.model.runner import WorldRunner
from nseg.model.tracing import PropagateCall

SMALL = 1e-3
"""Degrees below this are none: between 0 and 1 edges a degree is only a guide."""


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
    return torch.threshold(degree, SMALL, torch.inf).rsqrt()


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

    @cached_property
    def any_loose(self) -> bool:
        """Whether any edge has such a reverse."""
        return bool(self.loose.any())

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
        degrees: returns what the degrees consist of, by rule; asked when they are needed.
        origin: what this one was first selected from; None if it was not.
    """

    differentiable = True

    def __init__(
        self,
        runner: WorldRunner,
        rules: Sequence[DegreeRule],
        degrees: Callable[[], Mapping[DegreeRule, OutsideDegrees]],
        origin: RescaledMessages | None = None,
    ) -> None:
        self.runner, self.rules, self._make_degrees, self._origin = runner, rules, degrees, origin

    @cached_property
    def degrees(self) -> Mapping[DegreeRule, OutsideDegrees]:
        """What the degrees consist of, by rule."""
        return self._make_degrees()

    @property
    def origin(self) -> RescaledMessages:
        """What this one was first selected from."""
        return self._origin or self

    @property
    def only_weighs(self) -> bool:
        return not any(rule.symmetric or rule.mean for rule in self.rules)

    @property
    def sizes(self) -> Tensor:
        return self.runner.instances.sizes

    def select(self, which: Tensor, instances: InstanceBatch, runner: WorldRunner) -> RescaledMessages:
        def some() -> Mapping[DegreeRule, OutsideDegrees]:
            return {rule: one.select(which, self.runner.instances) for rule, one in self.degrees.items()}

        return RescaledMessages(runner, self.rules, some, self.origin)

    def repeat(self, times: int, instances: InstanceBatch, runner: WorldRunner) -> RescaledMessages:
        def more() -> Mapping[DegreeRule, OutsideDegrees]:
            return {rule: one.repeat(times) for rule, one in self.degrees.items()}

        return RescaledMessages(runner, self.rules, more, self.origin)

    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor:
        if "edges" not in weights:
            return self.runner.run(None, weights.get("nodes"), worlds)
        edge = weights["edges"].clamp(0, 1)
        outside = weights["outside"].to(edge.dtype) if "outside" in weights else edge.new_ones(len(edge))
        degree = {rule: self._degree(rule, edge, outside.unsqueeze(1)) for rule in set(self.rules)}
        weigh = Once(lambda scale: scale(edge, degree[scale.rule]).flatten())
        scaled = [weigh(scale) for scale in self._scales]
        return self.runner.run(None, weights.get("nodes"), worlds, scaled)

    def degree_data(self) -> list[DegreeData]:
        """What the degrees consist of, for the compiled kernel."""
        args, found = self.runner.instances.args, []
        for rule in self._symmetric:
            rest, weight = self.degrees[rule], None if rule.weight is None else args[rule.weight].flatten()
            loose = rest.loose if rest.any_loose else None
            found.append(DegreeData(rule.receiver, weight, rest.loops, rest.outside, loose))
        return found

    def deletions(self) -> list[Deletion]:
        """How the messages of each step change, for the compiled kernel."""
        known = self._symmetric
        return [
            Deletion(known.index(one.rule) if one.rule in known else -1, one.factor, one.rule.mean) for one in self._scales
        ]

    @property
    def _symmetric(self) -> list[DegreeRule]:
        """The rules that divide by degrees, each once."""
        return [rule for rule in dict.fromkeys(self.rules) if rule.symmetric]

    def _degree(self, rule: DegreeRule, edge: Tensor, outside: Tensor) -> Tensor:
        """Degree of each node in each world, [K, N]."""
        instances, rest = self.runner.instances, self.degrees[rule]
        of_edge = edge if rule.weight is None else edge * instances.args[rule.weight].flatten().to(edge.dtype)
        ends = instances.edge_index
        degree = (rest.loops + rest.outside * outside).index_add(1, ends[rule.receiver], of_edge)
        if rest.any_loose:
            degree = degree.index_add(1, ends[1 - rule.receiver], edge * rest.loose)
        return degree

    @cached_property
    def _scales(self) -> list[_Scale]:
        """What makes the weights of the messages of each step; one object for steps that have the same."""
        args, edges = self.runner.instances.args, self.runner.instances.num_edges
        known = Once(lambda rule, layout, coefficient: _Scale.of(rule, layout, coefficient, args, edges))
        steps = zip(self.rules, self.runner.messages(), strict=True)
        return [known(rule, step.layout, _coefficient(step) if rule.symmetric else None) for rule, step in steps]


@dataclass(frozen=True, eq=False)
class _Scale:
    """Makes the weights of the messages of a step from the weights of edges and the degrees of nodes.

    Args:
        rule: how messages depend on degrees.
        edge: edge of each message; for self-loops that the layer added the number of edges, [M].
        ends: sender and receiver of each, [2, M].
        factor: what each is multiplied by besides, [M]; None for 1.
    """

    rule: DegreeRule
    edge: Tensor
    ends: Tensor
    factor: Tensor | None

    @classmethod
    def of(
        cls, rule: DegreeRule, layout: MessageLayout, coefficient: Tensor | None, args: Mapping[str, Any], edges: int
    ) -> _Scale:
        """Weights of a step.

        Args:
            rule: how its messages depend on degrees.
            layout: where they go.
            coefficient: what the layer multiplies each with, [M]; None for 1.
            args: arguments of the model, of which one may hold weights of edges.
            edges: number of edges.
        """
        edge, factor = torch.where(layout.edge < 0, edges, layout.edge), None
        if coefficient is not None:  # the layer multiplies by what the coefficient was
            coefficient = coefficient.flatten()
            factor = torch.where(coefficient == 0, 0, 1 / torch.where(coefficient == 0, 1, coefficient))
        if rule.symmetric and rule.weight is not None:
            own = args[rule.weight].flatten()
            own = torch.cat([own, own.new_ones(1)])[edge]
            factor = own if factor is None else factor * own
        return cls(rule, edge, layout.edge_index, factor)

    def __call__(self, edge: Tensor, degree: Tensor) -> Tensor:
        """Weight of each message in each world, [K, M], from those of edges [K, E] and degrees [K, N]."""
        rule, to = self.rule, self.ends[self.rule.receiver]
        given = torch.cat([edge, edge.new_ones(len(edge), 1)], 1) if rule.loops else edge
        weight = given.index_select(1, self.edge)
        if rule.symmetric:
            root = _inverse_root(degree)
            weight = weight * root.index_select(1, self.ends[0]) * root.index_select(1, self.ends[1])
            if self.factor is not None:
                weight = weight * self.factor.to(edge.dtype)
        if rule.mean:
            number = torch.zeros_like(degree[:1]).index_add(1, to, torch.ones_like(weight[:1]))
            now = torch.zeros_like(degree).index_add(1, to, weight)
            weight = weight * (number / now.clamp_min(SMALL)).index_select(1, to)
        return weight


def _coefficient(step: Messages) -> Tensor | None:
    """The coefficient that the layer gives each message, [M]; None if all of them are 1 here."""
    linear, constant = step.call.linear, step.call.constant
    if linear is not None and linear.coefficient is None:
        return None
    return constant[next(iter(constant)) if linear is None else str(linear.coefficient)]


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
    same: dict[DegreeRule, DegreeRule] = {}
    rules = [same.setdefault(rule, rule) for rule in rules]  # equal rules are one object, so that steps can share weights
    degrees = {}
    for rule, step in dict(zip(rules, steps, strict=True)).items():
        call = next((c for r, c in zip(rules, whole, strict=False) if r == rule), None) if edge_index is not None else None
        degrees[rule] = _outside_degrees(rule, step, call, edge_index, instances, tied)
    return RescaledMessages(runner, rules, lambda: degrees)


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
        here = positions_of((instances.edge_owner, instances.edge_id), (instances.edge_owner, partner))
        loose = ((here < 0) & torch.isin(partner, whole.edge)).to(dtype)
        outside = outside.index_add(0, instances.edge_index[1 - rule.receiver], -loose)
    return OutsideDegrees(loops, outside, loose)
