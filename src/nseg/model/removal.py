"""Worlds in which edges are deleted, not weighed: degrees, attention and means are those of the smaller graph.

A *remover* runs such worlds. :class:`SmallerGraphs` does what the word says, for any model: the kept edges of all worlds of
all instances are one disjoint union. :class:`~nseg.model.rescaling.RescaledMessages` needs no smaller graphs, where all that
a layer derives from the edges are degrees: a message is then weighed by what its coefficient becomes. Either is verified
before use against deleting edges from the whole graph, one world at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from nseg.graphs.baseline import nodes_vanish
from nseg.graphs.batch import InstanceBatch, WorldBatch
from nseg.graphs.inputs import Role
from nseg.graphs.subgraph import reverse_edges
from nseg.model.hooks import call_model
from nseg.model.node_removal import kept_nodes, without_nodes
from nseg.model.outcomes import Outcome
from nseg.model.runner import WorldRunner
from nseg.model.slow_runs import slow_note

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
    def only_weighs(self) -> bool:
        """Whether a deleted edge is no more than messages of weight 0, as where layers add messages up."""
        return False

    @property
    def slow_note(self) -> str | None:
        """Why worlds are run slowly and what that costs; None if they are not."""
        return None

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
        boundary: nodes this many hops away only send messages, so that all worlds may share one copy of each; None if not.

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
        boundary: int | None = None,
    ) -> None:
        self.model, self.outcome, self.instances, self.tied, self.batched = model, outcome, instances, tied, batched
        self.wide = instances if wide is None else wide
        self.boundary = boundary if self.wide.nodes_can_be_shared else None
        self._latest: tuple[tuple[int, int | None], WorldBatch] | None = None

    @property
    def sizes(self) -> Tensor:
        return self.wide.sizes

    def select(self, which: Tensor, instances: InstanceBatch, runner: WorldRunner) -> SmallerGraphs:
        wide = None if self.wide is self.instances else self.wide.select(which)
        return SmallerGraphs(self.model, self.outcome, instances, wide, self.tied, self.batched, self.boundary)

    def repeat(self, times: int, instances: InstanceBatch, runner: WorldRunner) -> SmallerGraphs:
        wide = None if self.wide is self.instances else self.wide.repeat(times)
        return SmallerGraphs(self.model, self.outcome, instances, wide, self.tied, self.batched, self.boundary)

    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor:
        batch, roles = self._world_batch(worlds, None if "nodes" in weights else self.boundary), self.wide.roles
        inputs, rows = batch.inputs, batch.rows
        vanish, factor = nodes_vanish(self.wide.baseline), None
        if "nodes" in weights:
            factor = self._on_wide_nodes(weights["nodes"], weights.get("outside nodes") if vanish else None)
            inputs = replace(inputs, x=self.wide.masked_features(factor).flatten(0, 1))
        if "edges" in weights:
            keep = self._kept(weights["edges"], weights.get("outside")).flatten()  # [K * E]
            position = keep.nonzero().flatten()
            kwargs = {k: v[position] if roles[k] is Role.EDGE else v for k, v in inputs.kwargs.items()}
            inputs = replace(inputs, edge_index=inputs.edge_index[:, position], kwargs=kwargs)
            if self.wide.outputs is Role.EDGE:
                rows = (torch.cumsum(keep, 0) - 1)[rows]
        if vanish and factor is not None:
            stay = kept_nodes(self.wide, factor).flatten()
            inputs, rows = without_nodes(inputs, rows, stay, roles, self.wide.outputs)
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
        at = positions_of((own.edge_owner, own.edge_id), (wide.edge_owner, wide.edge_id))
        if self.tied:
            at = torch.where(at < 0, at[reverse_edges(wide.edge_index, wide.num_nodes)], at)
        return torch.where(at < 0, own.num_edges, at)

    def _on_wide_nodes(self, factor: Tensor, outside: Tensor | None) -> Tensor:
        """Factors of the nodes of the wider subgraphs; those outside the instances have 1, or the given factor [K]."""
        if self.wide is self.instances:
            return factor
        own, wide = self.instances, self.wide
        at = positions_of((own.node_owner, own.node_id), (wide.node_owner, wide.node_id))
        last = torch.ones_like(factor[:, :1])
        last = last if outside is None else last * outside.to(factor.dtype).view(-1, 1, 1)
        return torch.cat([factor, last], 1)[:, at]  # the last one at position -1

    def _world_batch(self, worlds: int, boundary: int | None) -> WorldBatch:
        if self._latest is None or self._latest[0] != (worlds, boundary):
            self._latest = (worlds, boundary), self.wide.repeat_worlds(worlds, boundary)
        return self._latest[1]


class OneAtATime(Remover):
    """Runs every world of every instance alone, on the whole graph: slow, and right for every model.

    Args:
        model, outcome, instances, tied: as for :class:`SmallerGraphs`.
        whole: returns an instance on the whole graph, by its number among all that there ever were.
        numbers: these numbers of the B instances.
        why: why no other remover is exact.
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
        why: str = "",
    ) -> None:
        self.model, self.outcome, self.instances, self.tied = model, outcome, instances, tied
        self.whole, self.numbers, self.why = whole, numbers, why

    @property
    def slow_note(self) -> str:
        cost = "Each explanation therefore deletes edges of the whole graph, one world at a time, often thousands of times."
        return slow_note(self.model, self.why, cost)

    @property
    def sizes(self) -> Tensor:
        return self.instances.sizes

    def select(self, which: Tensor, instances: InstanceBatch, runner: WorldRunner) -> OneAtATime:
        return OneAtATime(self.model, self.outcome, instances, self.tied, self.whole, self.numbers[which], self.why)

    def repeat(self, times: int, instances: InstanceBatch, runner: WorldRunner) -> OneAtATime:
        numbers = self.numbers.repeat(times)
        return OneAtATime(self.model, self.outcome, instances, self.tied, self.whole, numbers, self.why)

    def run(self, weights: Mapping[str, Tensor], worlds: int) -> Tensor:
        found = []
        for b, number in enumerate(self.numbers.tolist()):
            here = self.instances.select(self.numbers.new_tensor([b]))
            alone = SmallerGraphs(self.model, self.outcome, here, self.whole(number), self.tied)
            owners = {"edges": self.instances.edge_owner, "nodes": self.instances.node_owner}
            own = {k: w[:, owners[k] == b] if k in owners else w for k, w in weights.items()}
            each = [alone.run({k: w[n : n + 1] for k, w in own.items()}, 1) for n in range(worlds)]
            found.append(torch.cat(each))
        return torch.cat(found, 1)


def positions_of(own: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor]) -> Tensor:
    """Position of each (instance, number) among sorted ones; -1 if it is not there."""
    (owner, ids), (other_owner, other_ids) = own, asked
    if not ids.numel():
        return torch.full_like(other_ids, -1)
    most = int(max(ids.max(), other_ids.max() if other_ids.numel() else 0)) + 1
    known, key = owner * most + ids, other_owner * most + other_ids
    position = torch.searchsorted(known, key).clamp(max=len(known) - 1)
    return torch.where(known[position] == key, position, -1)
