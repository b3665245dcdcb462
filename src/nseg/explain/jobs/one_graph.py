"""Nodes or links of one graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.jobs.base import MOST_INSTANCES, Answer, ExplainJob
from nseg.explain.jobs.known_data import known_values
from nseg.explain.jobs.own_graph import OwnGraph
from nseg.explain.verification import REDONE, References
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.checks import output_role
from nseg.graphs.inputs import ModelInputs, Role
from nseg.graphs.subgraph import TargetCuts
from nseg.model.causal import CausalModel
from nseg.model.hooks import bytes_per_member, predict
from nseg.model.strategy import PLAIN, RunStrategy
from nseg.model.traced_graph import CausalModels, TracedGraph

WHOLE_GRAPH = 1 << 30  # more hops than any cut has


class OneGraphJob(ExplainJob):
    """Nodes or links of one graph."""

    def number_of_outputs(self) -> int:
        return output_role(self.inputs, self.outcome.level)[1]

    @property
    def whole_size(self) -> int:
        return self.inputs.num_nodes + self.inputs.num_edges

    def prepare(self) -> None:
        if isinstance(self.algorithm, BatchedAlgorithm):
            _ = self.graph.strategy

    def known_predictions(self) -> tuple[Tensor, Tensor | None]:
        return predict(self.network, self.inputs, self.outcome), known_values(self.data, self.outcome)

    @cached_property
    def inputs(self) -> ModelInputs:
        """The whole graph."""
        return self.model_inputs(self.data, self.kwargs)

    @cached_property
    def graph(self) -> TracedGraph:
        """The whole graph, traced."""
        return TracedGraph(self.network, self.outcome, self.inputs, *self.masks)

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        target = self._given_classes(self.data)
        for cuts in self._blocks(rows):
            self.note_output(self.graph.output)
            answers, hops = self._answer_rows(cuts, target)
            finished: dict[int, Explanation] = {}
            for which, instances, output in self.graph.standalone_graphs(cuts, hops):
                outputs = instances.ptr[instances.outputs]
                for b, number in enumerate(which.tolist()):
                    mine = slice(*outputs[b : b + 2].tolist())
                    local = (
                        None if target is None else self._local_classes(target, instances, b, cuts.row[number : number + 1])
                    )
                    graph = OwnGraph.of_instance(instances, b)
                    one = finished[number] = self._finish(graph, output[mine], answers[number], local)
                    one.output_id = self.output_id(int(cuts.row[number]))
                    self._measure_later(one, answers[number], self._references(cuts, number))
            yield from (finished[number] for number in range(cuts.row.numel()))

    def _local_classes(self, target: Tensor, instances: InstanceBatch, b: int, row: Tensor) -> Tensor:
        """The caller's classes of the outputs of one instance."""
        role = instances.outputs
        if role is Role.NODE:
            mine, known = instances.node_id[instances.members(role, b)], self.graph.explainable
            return target[torch.searchsorted(known, mine[torch.isin(mine, known)])]
        return target[instances.edge_id[instances.members(role, b)] if role is Role.EDGE else row]

    def _references(self, cuts: TargetCuts, number: int) -> Iterator[CausalModel]:
        """Causal models of one instance without shortcuts: on a wider subgraph, and for the sample on the whole graph."""
        mine = slice(number, number + 1)
        wide = None if self.plain else self.graph.reference_model(cuts, torch.tensor([number], device=cuts.row.device))
        if wide is not None:
            yield wide
        if wide is None or int(cuts.row[number]) in self.sample:
            yield self.graph.plain_model(cuts.row[mine], cuts.target[mine])

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
        return bytes_per_member(self.network, self.inputs, self.outcome)

    def _answer_rows(
        self, cuts: TargetCuts, target: Tensor | None, strategy: RunStrategy | None = None
    ) -> tuple[list[Answer], Tensor]:
        """The algorithm's verified answer for each row, and the number of hops around the row that it covers.

        Args:
            cuts: subgraphs around the rows.
            target: the caller's classes of all outputs, if a phenomenon is explained.
            strategy: how worlds are run; the fastest one if None.
        """
        row, graph = cuts.row, self.graph
        hops = torch.full_like(row, graph.hops)
        if not isinstance(self.algorithm, BatchedAlgorithm):
            return [self._call_once(self.inputs, int(r), target) for r in row], hops
        strategy = PLAIN if self.plain else strategy or graph.strategy
        if graph.slow_note is not None:
            self.notes.append(graph.slow_note)
        found: dict[int, Answer] = {}
        sample = [n for n, r in enumerate(row.tolist()) if r in self.sample]
        references = References(
            lambda which, share: graph.reference_model(cuts, which, share),
            lambda n: graph.plain_model(row[n : n + 1], cuts.target[n : n + 1]),
            lambda which, batched: graph.shared_model(row[which], cuts.target[which], batched),
        )
        models = graph.causal_models(cuts, strategy)
        wrong = self._answer_and_verify(_note_hops(models, hops), references, sample, found)
        slow = int((hops == WHOLE_GRAPH).sum()) if strategy.hops is not None else 0
        if slow:
            self.notes.append(graph.slow_rows_note(slow, row.numel()))
        if wrong and not self.plain:
            self.notes.append(REDONE.format(number=len(wrong)))
            some = torch.tensor(wrong, device=row.device)
            again = graph.cuts(row[some], torch.arange(len(some), device=row.device), cuts.target[some])
            slower = graph.cautious_strategy if strategy.constants and strategy.hops is not None else PLAIN
            answers, hops[some] = self._answer_rows(again, target, slower)
            found.update(zip(wrong, answers, strict=True))
        return [found[number] for number in range(row.numel())], hops


def _note_hops(models: CausalModels, hops: Tensor) -> CausalModels:
    """The same causal models; writes down how many hops each instance covers."""
    for which, causal in models:
        hops[which] = WHOLE_GRAPH if causal.strategy.hops is None else causal.strategy.hops
        yield which, causal
