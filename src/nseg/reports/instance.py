"""One explained output as the page shows it: its graph and each method's explanation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from nseg.events import HAPPENS
from nseg.explain.change import Counterfactual
from nseg.plot.draw import atom_text
from nseg.plot.scene import Edge, Node, Scene
from nseg.reports.answer import MethodAnswer
from nseg.reports.changes import change_json
from nseg.reports.explained_data import ExplainedData
from nseg.reports.json_values import JsonObject, rounded
from nseg.reports.lines import LineIndex, Numbers
from nseg.reports.method import Method
from nseg.wording import subject_name

MAX_LINES = 600
"""Maximum number of lines drawn of one graph; with more, nothing can be recognised."""


class TextPool:
    """Texts that many nodes share, each stored once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._position: dict[str, int] = {}

    def position(self, text: str) -> int:
        """Position of a text in ``texts``; a new text is added."""
        if text not in self._position:
            self._position[text] = len(self.texts)
            self.texts.append(text)
        return self._position[text]


class ExplainedInstance:
    """One output, its graph, and each method's explanation.

    Args:
        output_id: id of the output.
        methods: all methods of the report; not every one has to explain this output.
        explained: the explained data.
    """

    def __init__(self, output_id: int, methods: Sequence[Method], explained: ExplainedData) -> None:
        self.output_id, self.explained = output_id, explained
        first = next(method for method in methods if output_id in method.position_of)
        position = first.position_of[output_id]
        self.scene: Scene = explained.scene(first.explanations[position], first.reached(position), first.node_predictions)
        self.target = self.scene.target if first.event is None else HAPPENS
        self.label = explained.true_class(self.scene.level, output_id) if first.event is None else None
        self.predicted, self.p = first.prediction(position, self.target)
        self.name = subject_name(
            first.explanations[position], self.scene.names, level=self.scene.level, molecule=self.scene.molecule
        )
        self.edge_id = first.explanations[position].edge_id
        index = LineIndex(self.scene)
        self.answers = [
            MethodAnswer(method, method.position_of[output_id], index, method is first)
            if output_id in method.position_of
            else None
            for method in methods
        ]

    def to_json(self, texts: TextPool, change: Counterfactual | None = None) -> JsonObject:
        """The instance as JSON, with its smallest change if that is known; names of nodes are positions in ``texts``."""
        drawn, types = self._drawn_lines(), self.scene.names.types
        edges = [self.scene.edges[n] for n in drawn.tolist()]
        return {
            "id": self.output_id if types is None or types.output is None else types.node(self.output_id)[1],
            "name": self.name,
            "target": self.target,
            "predicted": self.predicted,
            "label": self.label,
            "p": rounded(self.p),
            "graph": self._graph(edges, texts),
            "change": None if change is None else change_json(change, self.scene, edges),
            "answers": [None if answer is None else answer.to_json(drawn, self.scene) for answer in self.answers],
        }

    def _drawn_lines(self) -> Numbers:
        """Numbers of the drawn lines: ground truth first, then lines that a method keeps, then the largest weights."""
        # Weights are at most 1, so that 10 and 5 put ground truth and kept lines first.
        if len(self.scene.edges) <= MAX_LINES:
            return np.arange(len(self.scene.edges))
        priority = np.array([10.0 * edge.truth for edge in self.scene.edges], dtype=np.float32)
        for answer in self.answers:
            if answer is not None and answer.lines is not None:
                own = answer.lines.weight.max(0) + 5.0 * answer.lines.kept.any(0)
                priority = np.maximum(priority, own)
        return np.sort(np.argsort(-priority, kind="stable")[:MAX_LINES])

    def _graph(self, edges: Sequence[Edge], texts: TextPool) -> JsonObject:
        nodes = self.scene.nodes
        num_true, molecule = self.explained.num_true_edges(self.output_id), self.scene.molecule
        truth = self.explained.node_classes(self.scene.level, self.output_id)
        return {
            "node": [n.id for n in nodes],
            "x": [round(1000 * n.x) for n in nodes],
            "y": [round(1000 * (1 - n.y)) for n in nodes],
            "name": [texts.position(n.label) for n in nodes] if any(n.label != str(n.id) for n in nodes) else None,
            "atom": [texts.position(atom_text(n)) for n in nodes] if molecule else None,
            "group": [n.group for n in nodes] if any(n.group >= 0 for n in nodes) else None,
            "mistaken": _mistaken(nodes, truth) if truth is not None and self.scene.grouping == "predicted" else None,
            "target": [position for position, n in enumerate(nodes) if n.target],
            "source": [e.source for e in edges],
            "end": [e.end for e in edges],
            "edge": self._edge_names(edges, texts),
            "order": [e.order for e in edges] if molecule else None,
            "truth": [position for position, e in enumerate(edges) if e.truth] if num_true else None,
            "truth_nodes": [position for position, n in enumerate(nodes) if n.truth],
            "truth_outside": num_true - sum(e.truth for e in self.scene.edges),
            "left_out": len(self.scene.edges) - len(edges),
            "hint": self.scene.hint or None,
        }

    def _edge_names(self, edges: Sequence[Edge], texts: TextPool) -> list[int] | None:
        """The name of each drawn line, of either direction; None if edges have no names."""
        names, graph = self.scene.names, self.explained.graph(self.output_id)
        if names.types is not None:
            return [texts.position(edge.relation) for edge in edges]
        if not names.edges:
            return None
        number_of: dict[tuple[int, int], int] = {}
        if graph is not None:
            own = self.edge_id
            ends = graph.edge_index.cpu()[:, own].T.tolist()
            number_of = {(source, end): number for number, (source, end) in zip(own.tolist(), ends, strict=True)}
        found = []
        for edge in edges:
            ends_of = self.scene.nodes[edge.source].id, self.scene.nodes[edge.end].id
            both = (names.edge_name(number_of.get(pair, -1), *pair) for pair in (ends_of, ends_of[::-1]))
            found.append(texts.position(", ".join(dict.fromkeys(filter(None, both)))))
        return found


def _mistaken(nodes: Sequence[Node], truth: Tensor) -> list[tuple[int, int]]:
    """Position and true class of each node whose predicted class, its group, is another."""
    true_class = truth.numpy()[[n.id for n in nodes]].tolist()
    return [(at, true) for at, (node, true) in enumerate(zip(nodes, true_class, strict=True)) if node.group != true]
