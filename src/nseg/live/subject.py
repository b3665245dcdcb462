"""What the studio shows: the neighbourhood of an output, placed once, with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, Explanation

from nseg.datasets import Benchmark
from nseg.errors import InputError, ModelError, UnsupportedError
from nseg.graphs.large import LargeGraph
from nseg.graphs.separate import separate_graphs
from nseg.live.edits import GraphEdits
from nseg.live.neighbourhood import MOST_EDGES, Neighbourhoods
from nseg.live.questions import GraphQuestions
from nseg.names import NamedData, resolve_names
from nseg.plot.atoms import find_atoms
from nseg.plot.explained_graph import ExplainedGraph
from nseg.plot.layout import positions

MAX_NODES = 150
"""Maximum number of nodes that are drawn."""

CACHED = 8
"""Number of outputs that are kept ready."""


@dataclass
class StudioSubject:
    """The outputs that a person can ask about.

    Args:
        explainer: the model, and how it is explained.
        data: one graph, or several graphs.
        names: names of nodes, features and classes.
        dataset: where the data are from, if it is a dataset of this package.
        large: cuts parts out of a large graph; None for graphs that the model is asked about as a whole.
    """

    explainer: Explainer
    data: Any
    names: NamedData
    large: Neighbourhoods | None = None
    dataset: Benchmark | None = None
    _ready: dict[int, GraphQuestions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names.graph(0)  # names that do not fit are said at once

    @classmethod
    def of(cls, explainer: Explainer, data: Any, **names: Any) -> StudioSubject:
        """The subject of some data, checked."""
        if not isinstance(explainer, Explainer):
            raise InputError(f"studio(explainer, data) must get an Explainer (got {type(explainer).__name__}).")
        if isinstance(data, Benchmark):
            if isinstance(data.graphs[0], HeteroData):
                raise _no_types()
            graphs: Any = data.graphs[0] if data.level == "node" else data.graphs
            return cls(explainer, graphs, data.names(**names), _large(explainer, graphs), data)
        first = data[0] if isinstance(data, list | tuple) and data else data
        if isinstance(first, HeteroData):
            raise _no_types()
        one = type(data) is Data or isinstance(data, LargeGraph)
        graphs = data if one else list(separate_graphs(data))
        level = explainer.model_config.task_level.value
        if isinstance(graphs, Data) and level == "graph":
            graphs, one = [graphs], False
        if (level == "node") != one:
            raise InputError(f"A model of {level}s must get {'one graph' if level == 'node' else 'graphs'} (got the other).")
        if not one and not graphs:
            raise InputError("The studio needs a graph (got none). Pass the graphs of the model.")
        return cls(explainer, graphs, resolve_names(graphs, **names), _large(explainer, graphs))

    @property
    def one_graph(self) -> bool:
        """Whether outputs are nodes of one graph, and not several graphs."""
        return isinstance(self.data, Data | LargeGraph)

    @property
    def number(self) -> int:
        """Number of outputs."""
        return int(self.data.num_nodes) if self.one_graph else len(self.data)

    def questions(self, output: int) -> GraphQuestions:
        """What can be asked about an output."""
        if not 0 <= output < self.number:
            raise InputError(f"The output must be between 0 and {self.number - 1} (got {output}).")
        if output not in self._ready:
            graph, row = (self.data, output) if self.one_graph else (self.data[output], 0)
            made = GraphQuestions(self.explainer, self.large or graph, row, self.names.graph(output), output)
            self._ready = dict(list(self._ready.items())[1 - CACHED :]) | {output: made}
        return self._ready[output]

    def view(self, output: int) -> dict[str, Any]:
        """The drawn neighbourhood, the names of all classes, and what the model says."""
        asked, names = self.questions(output), self.names.graph(output)
        shown = _neighbourhood(asked)
        place = {node: n for n, node in enumerate(shown)}
        ends = torch.unique(asked.part.data.edge_index.cpu().sort(0).values, dim=1)
        pairs = [(a, b) for a, b in asked.part.node[ends].T.tolist() if a in place and b in place and a != b]
        focus = [place[asked.output]] if self.one_graph else []
        atoms, orders = self._atoms(output, shown, pairs)
        points = positions(
            len(shown), [(place[a], place[b]) for a, b in pairs], focus=focus, symbols=atoms or None, orders=orders
        )
        says = asked.predict(GraphEdits())
        return {
            "output": output,
            "outputs": self.number,
            "subject": names.node(output) if self.one_graph else f"{'molecule' if atoms else 'graph'} {output}",
            "target": asked.output if focus else None,
            "nodes": [
                [n, round(x, 4), round(1 - y, 4), names.node_label(n), names.shown(n)]
                for n, (x, y) in zip(shown, points, strict=True)
            ],
            "edges": pairs,
            "orders": orders,
            "molecule": bool(atoms),
            "hidden_nodes": asked.num_nodes - len(shown),
            "hidden_edges": int((ends[0] != ends[1]).sum()) - len(pairs),
            "cut": None if self.large is None else [asked.inputs.num_nodes, asked.inputs.num_edges, asked.part.left_out],
            "features": asked.num_features,
            "feature_names": asked.feature_names,
            "classes": [names.class_name(n) for n in range(len(says.probabilities))],
            "true_class": self._true_class(output),
            "predicted": says.predicted,
            "probabilities": list(says.probabilities),
        }

    def _atoms(self, output: int, shown: Sequence[int], pairs: Sequence[tuple[int, int]]) -> tuple[list[str], list[float]]:
        """Chemical elements of the nodes and orders of the bonds; nothing if the graph is no molecule."""
        graph = None if self.one_graph else self.data[output]
        if graph is None:
            return [], []
        everything = torch.arange(graph.num_edges), torch.arange(graph.num_nodes)
        own = ExplainedGraph(Explanation(), self.dataset, graph, graph.edge_index.cpu(), *everything, output, "graph")
        atoms, _ = find_atoms(own, self.names.graph(output))
        if atoms is None:
            return [], []
        ends = graph.edge_index.sort(0).values.T.tolist()
        order_of = {tuple(pair): order for pair, order in zip(ends, atoms.orders.tolist(), strict=True)}
        return [atoms.symbols[n] for n in shown], [order_of[pair] for pair in pairs]

    def _true_class(self, output: int) -> int | None:
        """The true class of an output, if the data know it."""
        graph, row = (self.data, output) if self.one_graph else (self.data[output], 0)
        y = graph.get("y") if isinstance(graph, Data) else None
        if not isinstance(y, torch.Tensor) or y.is_floating_point() or y.numel() <= row:
            return None
        return int(y.flatten()[row])


def _no_types() -> UnsupportedError:
    return UnsupportedError(
        "The studio draws graphs of one type of nodes and edges (got HeteroData). For heterogeneous graphs use "
        "nseg.explain_many and nseg.report, nseg.counterfactual for what-if questions, and nseg.patterns."
    )


def _large(explainer: Explainer, graph: Any) -> Neighbourhoods | None:
    """What cuts parts out of the graph, if it is large and the model looks at parts only."""
    if isinstance(graph, LargeGraph):
        return Neighbourhoods(explainer, graph)
    if not isinstance(graph, Data) or graph.num_edges <= MOST_EDGES:
        return None
    cutter = Neighbourhoods(explainer, LargeGraph(graph))
    try:
        cutter.part(0)
    except ModelError:  # a model that uses all nodes is asked about all of them
        return None
    return cutter


def _neighbourhood(asked: GraphQuestions) -> Sequence[int]:
    """Nodes to draw, by the caller's numbers: all of a small graph, otherwise the nearest to the explained node."""
    number, edge_index = asked.inputs.num_nodes, asked.part.data.edge_index.cpu()
    if asked.level.value == "graph" and number <= MAX_NODES:
        return range(number)
    start = asked.part.position[asked.output] if asked.level.value == "node" else _busiest(edge_index)
    near, front = [start], {start}
    while front and len(near) < MAX_NODES:
        touched = edge_index[:, torch.isin(edge_index, torch.tensor(sorted(front))).any(0)].flatten().tolist()
        front = set(touched) - set(near)
        near += sorted(front)[: MAX_NODES - len(near)]
    found: list[int] = asked.part.node[sorted(near)].tolist()
    return found


def _busiest(edge_index: torch.Tensor) -> int:
    """The node with most edges: where the drawing of a graph begins that is too large to be drawn."""
    return int(edge_index.flatten().bincount().argmax()) if edge_index.numel() else 0
