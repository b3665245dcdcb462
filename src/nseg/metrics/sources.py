"""Causal models in which explanations are evaluated, from the fastest strategy to the plain one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nseg.graphs.inputs import ModelInputs, Role
from nseg.graphs.subgraph import TargetCuts
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome
from nseg.model.packed_graphs import causal_models_of_graphs, pack_causal_model
from nseg.model.strategy import GRAPH_STRATEGIES, PLAIN, UNTRACED
from nseg.model.traced_graph import TracedGraph

CausalModels = Iterator[tuple[Tensor, CausalModel]]


class ModelSource(ABC):
    """Makes causal models of explained outputs."""

    @abstractmethod
    def candidates(self) -> Iterator[CausalModels]:
        """Causal models of all outputs, with the numbers of their instances: fastest strategy first, plain last."""

    @abstractmethod
    def reference(self, numbers: Tensor) -> CausalModel | None:
        """Causal model of some outputs without shortcuts that depend on the output; None if there is none."""

    @abstractmethod
    def plain(self, number: int) -> CausalModel:
        """Causal model of one output on the caller's whole graph, with the plain strategy."""

    @property
    @abstractmethod
    def members(self) -> int:
        """Nodes and edges that a plain pass runs over."""

    @property
    @abstractmethod
    def obstacle(self) -> str:
        """Why outputs are run slowly, if they are."""

    @abstractmethod
    def is_slow(self, causal: CausalModel) -> bool:
        """Whether a causal model runs the whole graph where a subgraph would do for other models, or one graph at a time."""


@dataclass(frozen=True)
class OneGraphSource(ModelSource):
    """Outputs of one graph.

    Args:
        graph: the graph.
        cuts: subgraphs around the outputs, one instance each.
    """

    graph: TracedGraph
    cuts: TargetCuts

    def candidates(self) -> Iterator[CausalModels]:
        yield self.graph.causal_models(self.cuts)
        if self.graph.strategy.hops is not None:
            yield self.graph.causal_models(self.cuts, self.graph.cautious_strategy)
        if self.graph.strategy != PLAIN:
            yield self.graph.causal_models(self.cuts, PLAIN)

    def reference(self, numbers: Tensor) -> CausalModel | None:
        return self.graph.reference_model(self.cuts, numbers)

    def plain(self, number: int) -> CausalModel:
        mine = slice(number, number + 1)
        return self.graph.plain_model(self.cuts.row[mine], self.cuts.target[mine])

    @property
    def members(self) -> int:
        return self.graph.inputs.num_nodes + self.graph.inputs.num_edges

    @property
    def obstacle(self) -> str:
        return self.graph.obstacle if self.graph.strategy.hops is None else self.graph.row_obstacle

    def is_slow(self, causal: CausalModel) -> bool:
        return causal.strategy == PLAIN or (causal.strategy.hops is None and self.graph.outputs is not Role.GRAPH)


@dataclass(frozen=True)
class ManyGraphsSource(ModelSource):
    """Graphs, each explained as a whole.

    Args:
        model, outcome: the model, borrowed, and how its output is read.
        graphs: the graphs.
        output, target: the model's output for each, and the explained class.
        edges, nodes: what is masked.
    """

    model: nn.Module
    outcome: Outcome
    graphs: Sequence[ModelInputs]
    output: Tensor
    target: Tensor
    edges: bool
    nodes: bool

    def candidates(self) -> Iterator[CausalModels]:
        for first in range(len(GRAPH_STRATEGIES)):
            yield causal_models_of_graphs(
                self.model,
                self.outcome,
                self.graphs,
                self.output,
                self.target,
                self.edges,
                self.nodes,
                GRAPH_STRATEGIES[first:],
            )
        yield iter((torch.tensor([n], device=self.output.device), self.plain(n)) for n in range(len(self.graphs)))

    def reference(self, numbers: Tensor) -> CausalModel | None:
        graphs = [self.graphs[n] for n in numbers.tolist()]
        return pack_causal_model(self.model, self.outcome, graphs, self.target[numbers], UNTRACED)

    def plain(self, number: int) -> CausalModel:
        mine = slice(number, number + 1)
        return pack_causal_model(self.model, self.outcome, self.graphs[mine], self.target[mine], PLAIN)

    @property
    def members(self) -> int:
        return max(graph.num_nodes + graph.num_edges for graph in self.graphs)

    @property
    def obstacle(self) -> str:
        return "several graphs together give other outputs than each alone, or it raises on them"

    def is_slow(self, causal: CausalModel) -> bool:
        return causal.strategy == PLAIN or len(causal.instances) < min(len(self.graphs), 2)
