"""One instance of which edges are removed or added, and features changed, for real: the model sees the changed graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import Role
from nseg.model.causal import CausalModel
from nseg.model.hooks import call_model
from nseg.model.outcomes import Outcome
from nseg.model.slow_runs import raise_own_fault, raised

MEMBERS_AT_ONCE = 1 << 17
"""Nodes and edges of all worlds in one forward pass."""

WEIGHTS_AT_ONCE = 1 << 22
"""Weights of edges in all worlds that are made at once."""

SAMPLED = 16
"""Worlds in which deleted edges are compared with the changed graph."""


@dataclass(frozen=True)
class Switches:
    """What n changes do to a graph; each change is on or off.

    Args:
        number: n.
        edge: change that removes or adds each edge, -1 for none, [E].
        added: whether each edge is there only if its change is on, [E].
        cell: node and feature that are set, [2, m].
        value: what they are set to, [m].
        cell_change: change that sets each of them, [m].
    """

    number: int
    edge: Tensor
    added: Tensor
    cell: Tensor
    value: Tensor
    cell_change: Tensor

    def edges(self, on: Tensor) -> Tensor:
        """Whether each edge is there, from changes [K, n], [K, E]."""
        switched = on[:, self.edge.clamp(min=0)] & (self.edge >= 0) if self.number else on.new_zeros(len(on), len(self.edge))
        return switched == self.added

    def features(self, x: Tensor, on: Tensor) -> Tensor:
        """Features of K worlds, [K, N, F]."""
        found = x.expand(len(on), *x.shape)
        if not self.value.numel():
            return found
        found = found.clone()
        world, which = on[:, self.cell_change].nonzero(as_tuple=True)
        node, feature = self.cell[:, which]
        found[world, node, feature] = self.value[which]
        return found


class ChangedGraph:
    """What the model says about one output when its graph is changed.

    Args:
        model, outcome: the model, borrowed, and how its output is read.
        instance: one instance.
        switches: what each change does to its edges and nodes.
    """

    def __init__(self, model: nn.Module, outcome: Outcome, instance: InstanceBatch, switches: Switches) -> None:
        self.model, self.outcome, self.instance, self.switches = model, outcome, instance, switches
        self.why = ""  # why several worlds cannot share a pass

    @torch.no_grad()
    def output(self, on: Tensor) -> Tensor:
        """The model's output for the explained row, from changes [K, n], [K, ...]."""
        return torch.cat([self._run(block) for block in self._blocks(on)])

    def _blocks(self, on: Tensor) -> Iterator[Tensor]:
        members = self.instance.num_nodes + self.instance.num_edges
        size = max(1, MEMBERS_AT_ONCE // max(members, 1)) if len(on) > 1 and self._batched else 1
        yield from torch.split(on, size)

    def _run(self, on: Tensor) -> Tensor:
        """All worlds in one forward pass, as one disjoint union."""
        worlds = self.instance.repeat_worlds(len(on))
        keep = self.switches.edges(on).flatten()
        inputs, roles = worlds.inputs, self.instance.roles
        kwargs = {name: value[keep] if roles[name] is Role.EDGE else value for name, value in inputs.kwargs.items()}
        x = self.switches.features(self.instance.x, on).flatten(0, 1)
        changed = replace(inputs, x=x, edge_index=inputs.edge_index[:, keep], kwargs=kwargs)
        return call_model(self.model, changed, self.outcome)[worlds.rows.flatten()]

    @cached_property
    def _batched(self) -> bool:
        """Whether several worlds in one pass give what each gives alone: tried with nothing, half and all changed."""
        number, device = self.switches.number, self.instance.x.device
        half = torch.arange(number, device=device) % 2 == 0
        trial = torch.stack([torch.zeros_like(half), half, torch.ones_like(half)])
        try:
            together, alone = self._run(trial), torch.cat([self._run(one) for one in torch.split(trial, 1)])
            same = bool(self.outcome.agree(together, alone).all())
            self.why = "" if same else "several changed graphs together give other outputs than each alone"
            return same
        except Exception as error:  # a model may raise anything on graphs that it does not expect together
            raise_own_fault(error)
            self.why = raised(error, "on several changed graphs together")
            return False


class DeletedEdges:
    """The same for removals alone, by the search's own fast runs of worlds without edges; to be compared before use.

    Args:
        causal: the causal model of the one instance.
        edge: change that removes each of its edges, -1 for none, [E].
        tied: whether an edge outside the instance goes with its reverse.
    """

    def __init__(self, causal: CausalModel, edge: Tensor, tied: bool) -> None:
        self.causal, self.edge = causal.removing(tied), edge
        self._guide = causal.guiding(removal=True, tied=tied)

    @torch.no_grad()
    def output(self, on: Tensor) -> Tensor:
        """The model's output for the explained row, from changes [K, n], [K, ...]."""
        size = max(1, WEIGHTS_AT_ONCE // max(len(self.edge), 1))
        return torch.cat([self.causal.output({"edges": self._kept(some)})[:, 0] for some in torch.split(on, size)])

    def _kept(self, on: Tensor) -> Tensor:
        return (~(on[:, self.edge.clamp(min=0)] & (self.edge >= 0))).to(self.causal.dtype)

    def agrees(self, reference: ChangedGraph, number: int) -> bool:
        """Whether a sample of worlds gives what the changed graph gives: nothing, half, all and single changes."""
        single = torch.linspace(0, number - 1, min(number, SAMPLED - 3), device=self.edge.device).long()
        trial = torch.zeros(3 + len(single), number, dtype=torch.bool, device=self.edge.device)
        trial[1, ::2], trial[2] = True, True
        trial[torch.arange(len(single), device=trial.device) + 3, single] = True
        return bool(reference.outcome.agree(self.output(trial), reference.output(trial)).all())

    def guess(self, number: int) -> Tensor:
        """Estimates how much each removal lowers the log-odds of the instance's class, by a gradient, [n]."""
        weight = torch.ones(1, len(self.edge), dtype=self.causal.dtype, device=self.edge.device, requires_grad=True)
        with torch.enable_grad():
            odds = self._guide.log_odds({"edges": weight}).sum()
        slope = torch.autograd.grad(odds, weight, allow_unused=True, materialize_grads=True)[0][0]
        own = self.edge >= 0
        return slope.new_zeros(number).index_add_(0, self.edge[own], slope[own])
