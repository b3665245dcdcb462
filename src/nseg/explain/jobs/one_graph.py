"""Nodes or links of one graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.explain.algorithm import BatchAnswer, BatchedAlgorithm
from nseg.explain.jobs.base import MOST_INSTANCES, Answer, ExplainJob
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.checks import output_role
from nseg.graphs.inputs import ModelInputs, Role
from nseg.graphs.subgraph import TargetCuts
from nseg.model.causal import CausalModel
from nseg.model.hooks import bytes_per_member
from nseg.model.traced_graph import TracedGraph

WHOLE_GRAPH = 1 << 30  # more hops than any cut has


class OneGraphJob(ExplainJob):
    """Nodes or links of one graph."""

    def number_of_outputs(self) -> int:
        return output_role(self.inputs, self.outcome.level)[1]

    def prepare(self) -> None:
        if isinstance(self.algorithm, BatchedAlgorithm):
            _ = self.graph.strategy

    @cached_property
    def inputs(self) -> ModelInputs:
        """The whole graph."""
        return self._inputs(self.data, self.kwargs)

    @cached_property
    def graph(self) -> TracedGraph:
        """The whole graph, traced."""
        return TracedGraph(self.model, self.outcome, self.inputs, *self.masks)

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        target = self._given_classes(self.data)
        for cuts in self._blocks(rows):
            answers, hops = self._answer_rows(cuts, target)
            finished: dict[int, Explanation] = {}
            for which, instances, output in self.graph.standalone_graphs(cuts, hops):
                outputs = instances.ptr[instances.outputs]
                for b, number in enumerate(which.tolist()):
                    mine = slice(*outputs[b : b + 2].tolist())
                    local = None if target is None else _local_classes(target, instances, b, cuts.row[number : number + 1])
                    finished[number] = self._finish(instances, b, output[mine], answers[number], local)
                    finished[number].output_id = int(cuts.row[number])
            yield from (finished[number] for number in range(cuts.row.numel()))

    def causal_model_groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, CausalModel]]]]:
        for cuts in self._blocks(rows):
            yield cuts.row.numel(), self.graph.causal_models(cuts)

    def _blocks(self, rows: Tensor) -> Iterator[TargetCuts]:
        """Subgraphs around explained rows, one instance per row, as many at once as fit into memory."""
        rows = rows.to(self.inputs.x.device)
        classes = self.graph.check_targets(self._given_classes(self.data), rows)
        need = self.graph.mean_members(rows[:16]) * self._bytes_per_member
        size = max(1, min(MOST_INSTANCES, int(self.budget / need)))
        for start in range(0, len(rows), size):
            row = rows[start : start + size]
            owner = torch.arange(row.numel(), device=row.device)
            yield self.graph.cuts(row, owner, classes[start : start + size])

    @cached_property
    def _bytes_per_member(self) -> float:
        return bytes_per_member(self.model, self.inputs, self.outcome)

    def _answer_rows(self, cuts: TargetCuts, target: Tensor | None) -> tuple[list[Answer], Tensor]:
        """The algorithm's answer for each row, and the number of hops around the row that it covers."""
        row = cuts.row
        hops = torch.full_like(row, self.graph.hops)
        if not isinstance(self.algorithm, BatchedAlgorithm):
            return [self._call_once(self.inputs, int(r), target) for r in row], hops
        found: dict[int, tuple[BatchAnswer, int]] = {}
        for which, causal in self.graph.causal_models(cuts):
            hops[which] = WHOLE_GRAPH if causal.strategy.hops is None else causal.strategy.hops
            for part, answer in self._answers(causal):
                found.update({number: (answer, position) for position, number in enumerate(which[part].tolist())})
        return [found[number] for number in range(row.numel())], hops


def _local_classes(target: Tensor, instances: InstanceBatch, b: int, row: Tensor) -> Tensor:
    """The caller's classes of the outputs of one instance."""
    ids = {Role.NODE: instances.node_id, Role.EDGE: instances.edge_id}
    role = instances.outputs
    return target[ids[role][instances.members(role, b)]] if role in ids else target[row]
