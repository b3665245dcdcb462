"""What the studio shows: the neighbourhood of an output, placed once, with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.graphs.separate import separate_graphs
from nseg.live.edits import GraphEdits
from nseg.live.questions import GraphQuestions
from nseg.names import NamedData, resolve_names
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
        data: a dataset, a graph or several graphs.
        names: names of nodes, features and classes.
    """

    explainer: Explainer
    data: Any
    names: NamedData
    _ready: dict[int, GraphQuestions] = field(default_factory=dict)

    @classmethod
    def of(cls, explainer: Explainer, data: Any, **names: Any) -> StudioSubject:
        """The subject of some data, checked."""
        if not isinstance(explainer, Explainer):
            raise InputError(f"studio(explainer, data) must get an Explainer (got {type(explainer).__name__}).")
        if isinstance(data, Benchmark):
            graphs: Any = data.graphs[0] if data.level == "node" else data.graphs
            return cls(explainer, graphs, data.names(**names))
        graphs = data if type(data) is Data else list(separate_graphs(data))
        level = explainer.model_config.task_level.value
        if isinstance(graphs, Data) and level == "graph":
            graphs = [graphs]
        if (level == "node") != isinstance(graphs, Data):
            raise InputError(f"A model of {level}s must get {'one graph' if level == 'node' else 'graphs'} (got the other).")
        return cls(explainer, graphs, resolve_names(graphs, **names))

    @property
    def number(self) -> int:
        """Number of outputs."""
        return int(self.data.num_nodes) if isinstance(self.data, Data) else len(self.data)

    def questions(self, output: int) -> GraphQuestions:
        """What can be asked about an output."""
        if not 0 <= output < self.number:
            raise InputError(f"The output must be between 0 and {self.number - 1} (got {output}).")
        if output not in self._ready:
            one_graph = isinstance(self.data, Data)
            made = GraphQuestions(self.explainer, self.data if one_graph else self.data[output], output if one_graph else 0)
            self._ready = dict(list(self._ready.items())[1 - CACHED :]) | {output: made}
        return self._ready[output]

    def view(self, output: int) -> dict[str, Any]:
        """The drawn neighbourhood, the names of all classes, and what the model says."""
        asked, names = self.questions(output), self.names.graph(output)
        shown = _neighbourhood(asked)
        place = {node: n for n, node in enumerate(shown)}
        ends = torch.unique(asked.inputs.edge_index.cpu().sort(0).values, dim=1).T.tolist()
        pairs = [(a, b) for a, b in ends if a in place and b in place and a != b]
        focus = [place[asked.output]] if isinstance(self.data, Data) else []
        points = positions(len(shown), [(place[a], place[b]) for a, b in pairs], focus=focus)
        says = asked.predict(GraphEdits())
        return {
            "output": output,
            "outputs": self.number,
            "target": asked.output if focus else None,
            "nodes": [
                [n, round(x, 4), round(1 - y, 4), names.node_label(n)] for n, (x, y) in zip(shown, points, strict=True)
            ],
            "edges": pairs,
            "hidden_nodes": asked.inputs.num_nodes - len(shown),
            "classes": [names.class_name(n) for n in range(len(says.probabilities))],
            "predicted": says.predicted,
            "probabilities": list(says.probabilities),
        }


def _neighbourhood(asked: GraphQuestions) -> Sequence[int]:
    """Nodes to draw: all of a small graph, otherwise the nearest to the explained node."""
    number, edge_index = asked.inputs.num_nodes, asked.inputs.edge_index.cpu()
    if asked.level.value == "graph" and number <= MAX_NODES:
        return range(number)
    near, front = [asked.output], {asked.output}
    while front and len(near) < MAX_NODES:
        touched = edge_index[:, torch.isin(edge_index, torch.tensor(sorted(front))).any(0)].flatten().tolist()
        front = set(touched) - set(near)
        near += sorted(front)[: MAX_NODES - len(near)]
    return sorted(near)
