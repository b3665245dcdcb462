"""What the studio shows: the neighbourhood of an output, placed once, with names and types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.nn import HANConv

from nseg.datasets import Benchmark
from nseg.errors import InputError, ModelError
from nseg.explain.jobs import BUDGET, make_job
from nseg.graph_types import relation_words
from nseg.graphs.large import LargeGraph
from nseg.graphs.separate import separate_graphs
from nseg.live.edits import GraphEdits, Pair, as_pair, edge_pairs
from nseg.live.neighbourhood import MOST_EDGES, MOST_TYPED_EDGES, Neighbourhoods
from nseg.live.plain_questions import GraphQuestions
from nseg.live.questions import MOST_FEATURES, Questions
from nseg.live.typed_questions import TypedQuestions
from nseg.names import NamedData, Names, resolve_names
from nseg.plot.atoms import find_atoms
from nseg.plot.explained_graph import ExplainedGraph
from nseg.plot.layout import positions

MAX_NODES = 150
"""Maximum number of nodes that are drawn."""

MOST_NEW_EDGES = 500
"""Largest number of edges that the smallest change may choose new ones from."""

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
    _ready: dict[int, Questions] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names.graph(0)  # names that do not fit are said at once

    @classmethod
    def of(cls, explainer: Explainer, data: Any, **names: Any) -> StudioSubject:
        """The subject of some data, checked."""
        if not isinstance(explainer, Explainer):
            raise InputError(f"studio(explainer, data) must get an Explainer (got {type(explainer).__name__}).")
        if isinstance(data, Benchmark):
            graphs: Any = data.graphs[0] if data.level == "node" else data.graphs
            return cls(explainer, graphs, data.names(**names), _large(explainer, graphs), data)
        one = type(data) in (Data, HeteroData) or isinstance(data, LargeGraph)
        graphs = data if one else list(separate_graphs(data))
        level = explainer.model_config.task_level.value
        if isinstance(graphs, Data | HeteroData) and level == "graph":
            graphs, one = [graphs], False
        if (level == "node") != one:
            raise InputError(f"A model of {level}s must get {'one graph' if level == 'node' else 'graphs'} (got the other).")
        if not one and not graphs:
            raise InputError("The studio needs a graph (got none). Pass the graphs of the model.")
        return cls(explainer, graphs, resolve_names(graphs, **names), _large(explainer, graphs))

    @property
    def one_graph(self) -> bool:
        """Whether outputs are nodes of one graph, and not several graphs."""
        return isinstance(self.data, Data | HeteroData | LargeGraph)

    @property
    def typed(self) -> bool:
        """Whether graphs are heterogeneous."""
        graph = self.data if self.one_graph else self.data[0]
        return isinstance(graph, HeteroData) or (isinstance(graph, LargeGraph) and graph.types is not None)

    @cached_property
    def number(self) -> int:
        """Number of outputs."""
        if not self.one_graph:
            return len(self.data)
        if not self.typed:
            return int(self.data.num_nodes)
        job: Any = make_job(self.explainer, self.data, None, BUDGET, {}) if self.large is None else self.large.job
        return int(job.number_of_outputs())

    def questions(self, output: int) -> Questions:
        """What can be asked about an output."""
        if not 0 <= output < self.number:
            raise InputError(f"The output must be between 0 and {self.number - 1} (got {output}).")
        if output not in self._ready:
            graph, row = (self.data, output) if self.one_graph else (self.data[output], 0)
            kind: Any = TypedQuestions if self.typed else GraphQuestions
            made = kind(self.explainer, self.large or graph, row, self.names.graph(output), output)
            self._ready = dict(list(self._ready.items())[1 - CACHED :]) | {output: made}
        return self._ready[output]

    def view(self, output: int) -> dict[str, Any]:
        """The drawn neighbourhood, the names of all classes, and what the model says."""
        asked = self.questions(output)
        names, shown = asked.names, drawn_nodes(asked)
        place = {node: n for n, node in enumerate(shown)}
        every = sorted({one for one in self._pairs(asked) if one[0] != one[1]})
        pairs = [one for one in every if one[0] in place and one[1] in place]
        focus = [place[asked.output]] if self.one_graph else []
        atoms, orders = self._atoms(output, shown, pairs)
        lines = sorted({(place[one[0]], place[one[1]]) for one in pairs})
        points = positions(len(shown), lines, focus=focus, symbols=atoms or None, orders=orders)
        says = asked.predict(GraphEdits())
        return {
            "output": output,
            "outputs": self.number,
            "subject": names.node(asked.output) if self.one_graph else f"{'molecule' if atoms else 'graph'} {output}",
            "target": asked.output if focus else None,
            "nodes": [
                [n, round(x, 4), round(1 - y, 4), names.node_label(n), _short(names, n)]
                for n, (x, y) in zip(shown, points, strict=True)
            ],
            "edges": pairs,
            "orders": orders,
            "molecule": bool(atoms),
            "hidden_nodes": asked.num_nodes - len(shown),
            "complete": _is_complete(asked, shown, len(every) - len(pairs)),
            "cut": _cut_sizes(asked) if self.large is not None and not self.typed else None,
            "features": max((asked.width(n) for n in shown), default=0),
            "feature_names": _feature_names(asked),
            **_types_view(asked, shown),
            "classes": [names.class_name(n) for n in range(len(says.probabilities))],
            "true_class": asked.true_class(),
            "predicted": says.predicted,
            "probabilities": list(says.probabilities),
        }

    def _pairs(self, asked: Questions) -> list[Pair]:
        """The caller's pairs of nodes that are joined."""
        number = asked.part.node.tolist()
        return [as_pair(number[a], number[b], *kind) for a, b, *kind in edge_pairs(asked.inputs)]

    def new_edges(self, output: int, edits: GraphEdits) -> list[Pair]:
        """Edges between drawn nodes that are not there and could be: at the explained node, if there is one and no types.

        Hydrogen has no bond to spare; whether others make a valid molecule is for the person to judge.
        """
        asked = self.questions(output)
        shown, there = drawn_nodes(asked), {*self._pairs(asked), *edits.added}
        symbols = self._atoms(output, shown, [])[0]
        shown = [n for n, symbol in zip(shown, symbols, strict=True) if symbol != "H"] if symbols else shown
        starts = [asked.output] if self.one_graph and not self.typed else shown  # few types can be joined anyhow
        ends = [(a, b) for a in starts for b in shown if a != b]
        found = [as_pair(a, b, kind) for a, b in ends for kind in _kinds_between(asked, a, b)]
        return [one for one in dict.fromkeys(found) if one not in there][:MOST_NEW_EDGES]

    def _atoms(self, output: int, shown: Sequence[int], pairs: Sequence[Pair]) -> tuple[list[str], list[float]]:
        """Chemical elements of the nodes and orders of the bonds; nothing if the graph is no molecule."""
        graph = None if self.one_graph else self.data[output]
        if not isinstance(graph, Data):
            return [], []
        everything = torch.arange(graph.num_edges), torch.arange(graph.num_nodes)
        own = ExplainedGraph(Explanation(), self.dataset, graph, graph.edge_index.cpu(), *everything, output, "graph")
        atoms, _ = find_atoms(own, self.names.graph(output))
        if atoms is None:
            return [], []
        if not pairs:
            return [atoms.symbols[n] for n in shown], []
        ends = graph.edge_index.sort(0).values.T.tolist()
        order_of = {tuple(pair): order for pair, order in zip(ends, atoms.orders.tolist(), strict=True)}
        return [atoms.symbols[n] for n in shown], [order_of[pair] for pair in pairs]


def _short(names: Names, node: int) -> str:
    """What is written at a node: its name, else its number, among those of its type if there are types."""
    text = names.shown(node)
    return text if names.types is None or text != names.types.node_label(node) else str(names.types.node(node)[1])


def _cut_sizes(asked: Questions) -> list[int]:
    """Nodes and edges of the part that is asked about, and edges that were left out of it."""
    return [asked.inputs.num_nodes, asked.inputs.num_edges, asked.part.left_out]


def _is_complete(asked: Questions, shown: Sequence[int], hidden: int) -> bool:
    """Whether all edges that can matter are drawn."""
    if isinstance(asked, TypedQuestions):
        return set(asked.near) <= set(shown)
    return not hidden and asked.part.node.numel() == asked.num_nodes


def _feature_names(asked: Questions) -> list[list[str]]:
    """Names of the features, by type if there are types; none of those that are too many to list."""
    types = asked.names.types
    if types is None:
        some = [(asked.names, asked.width(0) if asked.num_nodes else 0)]
    else:
        some = [(asked.names.of_type(kind), width) for kind, width in zip(types.node_types, types.widths, strict=True)]
    return [[names.feature(n) for n in range(width)] if width <= MOST_FEATURES else [] for names, width in some]


def _types_view(asked: Questions, shown: Sequence[int]) -> dict[str, Any]:
    """Types of the nodes, and kinds of edges with the types that they join; nothing if there are none."""
    types, kinds = asked.names.types, dict[int, dict[str, Any]]()
    if types is None:
        return {"types": [], "widths": [], "node_types": [], "kinds": []}
    for number, key in enumerate(types.edge_types):
        ends = [types.node_types.index(end) for end in (key[0], key[2])]
        one = {"kind": types.kinds[number], "name": relation_words(key[1]), "ends": ends}
        kinds.setdefault(types.kinds[number], one)
    return {
        "types": list(types.node_types),
        "widths": list(types.widths),
        "node_types": [types.type_of_node(n) for n in shown],
        "kinds": list(kinds.values()),
    }


def _kinds_between(asked: Questions, a: int, b: int) -> list[int]:
    """Kinds of edges that could join two nodes."""
    types = asked.names.types
    if types is None:
        return [0]
    ends = {types.node(a)[0], types.node(b)[0]}
    return sorted({types.kinds[n] for n, key in enumerate(types.edge_types) if {key[0], key[2]} == ends})


def _large(explainer: Explainer, graph: Any) -> Neighbourhoods | None:
    """What cuts parts out of the graph, if it is large and the model looks at parts only."""
    if isinstance(graph, LargeGraph):
        return Neighbourhoods(explainer, graph)
    if not isinstance(graph, Data | HeteroData) or explainer.model_config.task_level.value != "node":
        return None
    typed = isinstance(graph, HeteroData)
    averages = any(isinstance(layer, HANConv) for layer in explainer.model.modules())  # over all nodes of a type
    if averages or graph.num_edges <= (MOST_TYPED_EDGES if typed else MOST_EDGES):
        return None
    cutter = Neighbourhoods(explainer, LargeGraph(graph))
    try:
        cutter.part(int(cutter.job.rows([0])))
    except ModelError:  # a model that uses all nodes is asked about all of them
        return None
    return cutter


def drawn_nodes(asked: Questions) -> Sequence[int]:
    """Nodes to draw, by the caller's numbers: all of a small graph, otherwise the nearest to the explained node.

    Of a heterogeneous graph, only nodes whose messages can reach it: all others are near through nodes that all share.
    """
    number, edge_index = asked.inputs.num_nodes, asked.inputs.edge_index.cpu()
    if isinstance(asked, TypedQuestions):
        reach = torch.isin(asked.part.node, torch.tensor(list(asked.near)))
        edge_index = edge_index[:, reach[edge_index].all(0)]
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
