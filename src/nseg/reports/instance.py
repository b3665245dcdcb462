"""One explained output as the page shows it: its graph and each method's explanation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nseg.plot.scene import Scene
from nseg.reports.answer import MethodAnswer
from nseg.reports.explained_data import ExplainedData
from nseg.reports.json_values import JsonObject, rounded
from nseg.reports.lines import LineIndex
from nseg.reports.method import Method

MAX_LINES = 600
"""Maximum number of lines drawn of one graph; with more, nothing can be recognised."""


HAPPENS = 1
"""The explained event as one of two classes: it does not happen, it happens."""


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
        self.scene: Scene = explained.scene(first.explanations[position], first.reached(position))
        self.target = self.scene.target if first.event is None else HAPPENS
        self.label = explained.true_class(self.scene.level, output_id) if first.event is None else None
        self.predicted, self.p = first.prediction(position, self.target)
        index = LineIndex(self.scene)
        self.answers = [
            MethodAnswer(method, method.position_of[output_id], index) if output_id in method.position_of else None
            for method in methods
        ]

    def to_json(self, texts: TextPool) -> JsonObject:
        """The instance as JSON; names of nodes are positions in ``texts``."""
        drawn = self._drawn_lines()
        class_name = None if self.scene.target < 0 else self.explained.class_name(self.scene.target)
        return {
            "id": self.output_id,
            "target": self.target,
            "predicted": self.predicted,
            "label": self.label,
            "p": rounded(self.p),
            "graph": self._graph(drawn, texts),
            "answers": [
                None if answer is None else answer.to_json(drawn, class_name, self.scene.molecule) for answer in self.answers
            ],
        }

    def _drawn_lines(self) -> Tensor:
        """Numbers of the drawn lines: ground truth first, then lines that a method keeps, then the largest weights."""
        # Weights are at most 1, so that 10 and 5 put ground truth and kept lines first.
        priority = torch.tensor([10.0 * edge.truth for edge in self.scene.edges])
        for answer in self.answers:
            if answer is not None and answer.lines is not None:
                own = answer.lines.weight.amax(0) + 5.0 * answer.lines.kept.any(0)
                priority = torch.maximum(priority, own)
        return torch.argsort(priority, descending=True, stable=True)[:MAX_LINES].sort().values

    def _graph(self, drawn: Tensor, texts: TextPool) -> JsonObject:
        nodes, edges = self.scene.nodes, [self.scene.edges[n] for n in drawn.tolist()]
        num_true = self.explained.num_true_edges(self.output_id)
        return {
            "node": [n.id for n in nodes],
            "x": [round(1000 * n.x) for n in nodes],
            "y": [round(1000 * (1 - n.y)) for n in nodes],
            "name": [texts.position(n.name) for n in nodes] if any(n.name for n in nodes) else None,
            "group": [n.group for n in nodes] if any(n.group >= 0 for n in nodes) else None,
            "target": [position for position, n in enumerate(nodes) if n.target],
            "source": [e.source for e in edges],
            "end": [e.end for e in edges],
            "order": [e.order for e in edges] if self.scene.molecule else None,
            "truth": [position for position, e in enumerate(edges) if e.truth] if num_true else None,
            "truth_nodes": [position for position, n in enumerate(nodes) if n.truth],
            "truth_outside": num_true - sum(e.truth for e in self.scene.edges),
            "left_out": len(self.scene.edges) - len(edges),
        }
