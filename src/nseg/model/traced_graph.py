"""One caller's graph, traced once; finds the fastest exact strategy and makes causal models of instances."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from nseg.errors import InputError, ModelError
from nseg.graphs.batch import InstanceBatch, group_members, pack_graphs
from nseg.graphs.checks import check_index, output_role
from nseg.graphs.inputs import ModelInputs, Role
from nseg.graphs.subgraph import IncomingEdges, TargetCuts
from nseg.model.causal import CausalModel, Weights
from nseg.model.edge_values import watch_edge_values
from nseg.model.hetero import HeteroModel
from nseg.model.hooks import call_model, node_embeddings, predict
from nseg.model.outcomes import Outcome
from nseg.model.removal import Remover
from nseg.model.removal_choice import Kind, Surroundings, choose_kind, remover_of_graphs
from nseg.model.runner import WorldRunner
from nseg.model.slow_runs import raise_own_fault, raised, slow_note
from nseg.model.strategy import GRAPH_STRATEGIES, PLAIN, UNTRACED, RunStrategy, random_weights, subgraph_strategies
from nseg.model.tracing import PropagateCall, require_edge_identity, trace_model

CausalModels = Iterator[tuple[Tensor, CausalModel]]
"""Causal models that together hold all instances, each with the numbers of its instances."""

CHANGED = "its output changes when only the subgraph around a target is run, or several together"
"""Why most models that are run slowly are."""


def check_output_rows(output: Tensor, inputs: ModelInputs, outcome: Outcome) -> Role:
    """What a row of the output stands for; raises if the number of rows is wrong."""
    role, expected = output_role(inputs, outcome.level)
    if output.size(0) != expected:
        raise ModelError(
            f"A model of task level '{outcome.level.value}' must return {expected} rows here, {role.value} "
            f"(got {output.size(0)}). Check task_level in model_config"
            + (" and that the pairs are given as edge_label_index." if outcome.level.value == "edge" else ".")
        )
    return role


class TracedGraph:
    """One graph (or batch of graphs) as the caller gave it, the model's output on it, and how its worlds can be run.

    Args:
        model: the model, borrowed.
        outcome: how its output is read.
        inputs: the whole graph.
        edges, nodes: whether edges, and whether features will be masked.
    """

    def __init__(self, model: nn.Module, outcome: Outcome, inputs: ModelInputs, edges: bool, nodes: bool) -> None:
        self.model, self.outcome, self.inputs = model, outcome, inputs
        self.edges, self.nodes = edges, nodes
        self.calls: list[PropagateCall] = []
        self._removal_kinds: dict[RunStrategy, Kind] = {}
        self.obstacle, self.row_obstacle = "", CHANGED
        self.output = predict(model, inputs, outcome)
        self.traced = True
        try:
            self.calls = trace_model(model, inputs, outcome)[1]
            if edges:
                require_edge_identity(model, inputs, outcome, self.calls, inputs.kwargs.get("batch"))
        except ModelError:
            if edges:
                raise
            self.traced = False  # a layer out of reach of edge masks does not matter where edges are not masked
        of_nodes = isinstance(model, HeteroModel) and model.schema.output is not None
        self.outputs = Role.NODE if of_nodes else check_output_rows(self.output, inputs, outcome)
        self.hops = max((call.after + 1 for call in self.calls), default=0)
        self.receivers = tuple(sorted({call.receiver for call in self.calls})) or (1,)

    @cached_property
    def incoming(self) -> IncomingEdges:
        """The graph's incoming edges."""
        return IncomingEdges.from_edge_index(self.inputs.edge_index, self.inputs.num_nodes, self.receivers)

    @cached_property
    def embeddings(self) -> Tensor:
        """Embedding of each node of the whole graph, [N, D]."""
        return node_embeddings(self.model, self.inputs, self.outcome)

    def mean_members(self, row: Tensor) -> float:
        """Mean number of nodes and edges that the explanations of some rows may need."""
        owner = torch.arange(row.numel(), device=row.device)
        return float(self.cuts(row, owner, owner).at(self.hops + 1).sizes.double().mean())

    @cached_property
    def explainable(self) -> Tensor:
        """Rows of the output that stand for something: at node level, those of nodes that the model has an output for."""
        if isinstance(self.model, HeteroModel):
            return self.model.output_rows(self.inputs, self.output)
        return torch.arange(self.output.size(0), device=self.inputs.x.device)

    def check_rows(self, index: Any) -> Tensor:
        """Explained rows from an index."""
        return self.explainable[check_index(index, len(self.explainable)).to(self.inputs.x.device)]

    def check_targets(self, target: Any, row: Tensor) -> Tensor:
        """Class (or value) of each explained row: the given one, or the predicted one if None."""
        number, output = len(self.explainable), self.output[row]
        if target is None:
            predicted = self.outcome.check_target(output, None)
            self.outcome.require_event(output, predicted)
            return predicted
        target = self.outcome.target_rows(torch.as_tensor(target, device=row.device))
        if target.numel() != number:
            raise InputError(
                f"target must hold a class for each of the model's {number} rows (got {target.numel()} entries)."
            )
        placed = target.new_zeros(self.output.size(0)).index_copy(0, self.explainable, target)
        return self.outcome.check_target(output, placed[row])

    def cuts(self, row: Tensor, owner: Tensor, target: Tensor) -> TargetCuts:
        """Subgraphs around explained rows.

        Args:
            row: explained rows, [R].
            owner: instance of each, sorted, [R].
            target: class of each, [R].
        """
        return TargetCuts(self.inputs, self.outputs, row, owner, target, self.incoming)

    # --- strategies ------------------------------------------------------------------------------------------------------

    @cached_property
    def strategy(self) -> RunStrategy:
        """The fastest strategy that is exact in random worlds of a few outputs, compared with :data:`PLAIN`."""
        with torch.no_grad():
            return self._find_strategy()

    def _find_strategy(self) -> RunStrategy:
        pilots = self._pilot_rows()
        whole = pack_graphs([self.inputs], self.outputs, [pilots], [torch.zeros_like(pilots)]).keep_explained_graphs()
        weights = random_weights(whole, self.edges, self.nodes)
        with watch_edge_values(self.model, self.calls) as constant:
            expected = CausalModel(self.model, self.outcome, whole).output(weights)
        for strategy in self._strategies():
            if strategy.constants and not constant():
                continue
            try:
                if strategy.hops is None:
                    found = CausalModel(self.model, self.outcome, whole, strategy).output(weights)
                else:
                    found = self._output_together_and_alone(pilots, strategy, weights)
                if bool(self.outcome.agree(found, expected).all()):
                    return strategy
                self.obstacle = CHANGED
            except Exception as error:  # a model may raise anything on a graph that is not its own
                raise_own_fault(error)
                self.obstacle = raised(error, "on a subgraph or on several together")
        return PLAIN

    def _strategies(self) -> Sequence[RunStrategy]:
        if not self.traced:
            return (UNTRACED,)
        return GRAPH_STRATEGIES if self.outputs is Role.GRAPH else (*subgraph_strategies(self.hops), UNTRACED)

    def _pilot_rows(self) -> Tensor:
        """A few rows to verify strategies on: the node with most incoming edges, and two more."""
        number = len(self.explainable)
        rows = self.explainable[[0, number // 2, number - 1]]
        if self.outputs is Role.NODE:
            degree = torch.zeros_like(self.incoming.degree)
            degree[self.explainable] = self.incoming.degree[self.explainable]
            busy = (degree > 0).nonzero().flatten()
            if busy.numel():
                rows = torch.stack([degree.argmax(), busy[busy.numel() // 2], busy[-1]])
        pilots: Tensor = torch.unique(rows)
        return pilots

    @torch.no_grad()
    def _output_together_and_alone(self, pilots: Tensor, strategy: RunStrategy, weights: Weights) -> Tensor:
        """Outputs of the pilots in worlds of the whole graph; NaN where batch and alone differ."""

        def output(row: Tensor) -> Tensor:
            cuts = self.cuts(row, torch.arange(row.numel(), device=row.device), torch.zeros_like(row))
            causal = self._causal_model_of_cuts(cuts, strategy)
            here = causal.instances
            return causal.output({k: w[:, here.node_id if k == "nodes" else here.edge_id] for k, w in weights.items()})

        together = output(pilots)
        alone = torch.cat([output(pilots[n : n + 1]) for n in range(pilots.numel())], 1)
        same = self.outcome.agree(alone, together)
        return together.masked_fill(~same.view(1, -1, *[1] * (together.dim() - 2)), float("nan"))

    # --- instances -------------------------------------------------------------------------------------------------------

    def causal_models(self, cuts: TargetCuts, strategy: RunStrategy | None = None) -> CausalModels:
        """Causal models that together hold all instances, and their numbers; unmasked, each gives the whole graph's output.

        Args:
            cuts: subgraphs around the explained rows.
            strategy: how worlds are run; the fastest that is exact for a few outputs if None.
        """
        strategy = strategy or self.strategy
        row, owner, target = cuts.row, cuts.owner, cuts.target
        remaining = torch.unique(owner)
        if strategy.hops is not None:
            causal = self._causal_model_of_cuts(cuts, strategy)
            try:
                with torch.no_grad():
                    same = self.outcome.agree(causal.output()[0], self.output[row])
            except Exception as error:  # a model may raise anything on a graph that is not its own
                raise_own_fault(error)
                same, self.row_obstacle = torch.zeros_like(row, dtype=torch.bool), raised(error, "on subgraphs")
            bad = torch.unique(owner[~same])
            good = remaining[~torch.isin(remaining, bad)]
            if good.numel():
                yield good, causal.select(good)
            remaining = bad
            strategy = PLAIN
        for number in remaining.tolist():
            mine = owner == number
            causal = self._causal_model(self._whole_graph(row[mine], target[mine]), strategy)
            if strategy.batched and self.outputs is Role.GRAPH:  # as for a list of graphs (pack_causal_model)
                causal.make_remover = remover_of_graphs(self.model, self.outcome)
            yield remaining.new_tensor([number]), causal

    def _whole_graph(self, row: Tensor, target: Tensor) -> InstanceBatch:
        """One instance on the whole graph."""
        return pack_graphs([self.inputs], self.outputs, [row], [target]).keep_explained_graphs()

    def plain_model(self, row: Tensor, target: Tensor) -> CausalModel:
        """The causal model of one instance on the whole graph, with the plain strategy."""
        return self._causal_model(self._whole_graph(row, target), PLAIN)

    def shared_model(self, row: Tensor, target: Tensor, batched: bool) -> CausalModel:
        """The causal model of the whole graph without shortcuts, which answers for each row by itself.

        Args:
            row, target: some rows, and the class of each.
            batched: whether worlds may share a forward pass, if they do so in the search.
        """
        strategy = UNTRACED if batched and self.strategy.batched else PLAIN
        causal = self._causal_model(self._whole_graph(row, target), strategy)
        causal.each_row = True
        return causal

    def reference_model(self, cuts: TargetCuts, which: Tensor, share: bool = False) -> CausalModel | None:
        """The causal model of some instances without shortcuts that depend on the instance; None if they are not cut.

        Subgraphs are wider than any layer needs, all messages are passed, nothing is carried over from the whole graph.

        Args:
            cuts: subgraphs around the explained rows.
            which: the instances.
            share: whether worlds and instances share one copy of each outermost node, which only sends messages.
        """
        if self.strategy.hops is None:
            return None
        hops = max(self.hops, self.strategy.hops) + 1
        strategy, wide = replace(UNTRACED, hops=hops) if share else UNTRACED, cuts.at(hops)
        return self._causal_model(wide if len(which) == len(wide) else wide.select(which), strategy)

    @property
    def slow_note(self) -> str | None:
        """Why worlds are run slowly and what that costs; None if they are not."""
        strategy = self.strategy
        if strategy.batched and (strategy.hops is not None or self.outputs is Role.GRAPH):
            return None
        how = "the whole graph" + ("" if strategy.batched else ", one world at a time")
        return slow_note(self.model, self.obstacle, f"Each explanation therefore runs {how}, often thousands of times.")

    def slow_rows_note(self, number: int, rows: int) -> str:
        """Why some rows are run on the whole graph although most are not, and what that costs."""
        cost = (
            f"{number} of {rows} explanations therefore run the whole graph, one world at a time, often thousands of times."
        )
        return slow_note(self.model, self.row_obstacle, cost)

    @property
    def cautious_strategy(self) -> RunStrategy:
        """A strategy that carries nothing over from the whole graph."""
        return RunStrategy(self.hops + 1, drop_edges=False, constants=False, products=False)

    def _causal_model(
        self, instances: InstanceBatch, strategy: RunStrategy, calls: Sequence[PropagateCall] = ()
    ) -> CausalModel:
        return CausalModel(self.model, self.outcome, instances, strategy, calls, lambda: self.embeddings)

    def _causal_model_of_cuts(self, cuts: TargetCuts, strategy: RunStrategy) -> CausalModel:
        assert strategy.hops is not None

        def make_remover(tied: bool, runner: WorldRunner) -> Remover:
            found = self._removal_kind(strategy)(self.model, self.outcome, runner, self._surroundings(cuts, strategy), tied)
            assert found is not None
            return found

        causal = self._causal_model(cuts.at(strategy.hops), strategy, self.calls)
        causal.make_remover = make_remover
        return causal

    # --- removal ---------------------------------------------------------------------------------------------------------

    def _removal_kind(self, strategy: RunStrategy) -> Kind:
        """The fastest way to delete edges that is exact for a few outputs."""
        if strategy not in self._removal_kinds:
            row = self._pilot_rows()
            cuts = self.cuts(row, torch.arange(row.numel(), device=row.device), torch.zeros_like(row))
            runner = WorldRunner(self.model, self.outcome, cuts.at(strategy.hops or 0), strategy, self.calls)
            around = self._surroundings(cuts, strategy)
            self._removal_kinds[strategy] = choose_kind(self.model, self.outcome, runner, around)
        return self._removal_kinds[strategy]

    def _surroundings(self, cuts: TargetCuts, strategy: RunStrategy) -> Surroundings:
        """What lies around instances that were cut."""

        def whole(number: int) -> InstanceBatch:
            mine = cuts.owner == number
            return self._whole_graph(cuts.row[mine], cuts.target[mine])

        return Surroundings(self.inputs.edge_index, lambda: cuts.at((strategy.hops or 0) + 1), whole)

    def standalone_graphs(self, cuts: TargetCuts, least: Tensor) -> Iterator[tuple[Tensor, InstanceBatch, Tensor]]:
        """The smallest subgraphs on which the model alone gives the whole graph's output, one instance per row.

        Args:
            cuts: subgraphs around the explained rows.
            least: hops that the subgraph of each must hold at least.

        Yields:
            numbers of instances, the instances, and the model's output on them.
        """
        row, target = cuts.row, cuts.target
        pending = torch.arange(row.numel(), device=row.device)
        for hops in (self.hops, self.hops + 1) if self.traced else ():
            some = pending[least[pending] <= hops]
            if not some.numel():
                continue
            instances = cuts.at(hops)
            if some.numel() < row.numel():
                instances = instances.select(some)
            try:
                with torch.no_grad():
                    output = call_model(self.model, instances.repeat_worlds(1).inputs, self.outcome)
                good = self.outcome.agree(output[instances.row], self.output[row[some]]).nonzero().flatten()
            except Exception as error:  # a model may raise anything on a graph that is not its own
                raise_own_fault(error)
                continue
            if good.numel():
                rows, _ = group_members(instances.ptr[self.outputs], good)
                yield some[good], instances.select(good), output[rows]
            pending = pending[~torch.isin(pending, some[good])]
        for number in pending.tolist():
            one = pack_graphs([self.inputs], self.outputs, [row[number : number + 1]], [target[number : number + 1]])
            yield pending.new_tensor([number]), one, self.output
