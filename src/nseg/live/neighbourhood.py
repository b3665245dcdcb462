"""The part of a graph that the studio asks the model about: all of a small graph, what matters of a large one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explainer

from nseg.explain.jobs import BUDGET, make_job
from nseg.explain.jobs.large_graph import LargeGraphJob
from nseg.graphs.large import LargeGraph

MOST_EDGES = 50_000
"""Graphs with more edges are cut around the explained node."""

MOST_TYPED_EDGES = 2_000
"""The same for heterogeneous graphs, of which a pass takes longer."""


@dataclass(frozen=True)
class GraphPart:
    """A part of a graph.

    Args:
        data: the part.
        node: the caller's number of each of its nodes, ascending, [n].
        left_out: number of edges that were not followed, because a node has too many.
    """

    data: Any
    node: Tensor
    left_out: int = 0

    @cached_property
    def position(self) -> dict[int, int]:
        """Position of each node by the caller's number."""
        return {number: n for n, number in enumerate(self.node.tolist())}

    @classmethod
    def whole(cls, data: Any) -> GraphPart:
        """All of a graph, ``Data`` or ``HeteroData``."""
        return cls(data, torch.arange(int(data.num_nodes)))


@dataclass
class Neighbourhoods:
    """Cuts what matters for nodes of a large graph out of it; the cost is that of the part, not of the graph.

    A part is so wide that one more hop does not change what the model says about the explained node.

    Args:
        explainer: the model.
        graph: the large graph.
    """

    explainer: Explainer
    graph: LargeGraph
    _parts: dict[frozenset[int], GraphPart] = field(default_factory=dict)

    @cached_property
    def job(self) -> LargeGraphJob:
        """What knows how far the model looks; of a heterogeneous graph also the type of its outputs."""
        job = make_job(self.explainer, self.graph, None, BUDGET, {})
        assert isinstance(job, LargeGraphJob)
        return job

    def part(self, output: int, others: frozenset[int] = frozenset()) -> GraphPart:
        """The part around a node, and around others that may be joined to it; types are numbered through."""
        seeds = others | {output}
        if seeds not in self._parts:
            with self.job.ready():
                hops = self.job.sufficient_hops(torch.tensor([output]))
            cut = self.graph.subgraph(torch.tensor(sorted(seeds)), hops)
            if len(self._parts) > 16:
                self._parts.clear()
            self._parts[seeds] = GraphPart(cut.data, cut.node, int(cut.left_out.sum()))
        return self._parts[seeds]
