"""One method's explanation of one output, on the lines and nodes of its drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nseg.metrics.evaluator import MASK_NAMES
from nseg.reports.json_values import JsonObject, rounded
from nseg.reports.lines import LineIndex
from nseg.reports.method import Method
from nseg.reports.ranking import ranking_thresholds, reachable_weights
from nseg.search import formulas
from nseg.search.parts import Masks


class MaskEntries(NamedTuple):
    """Mask values of n lines, nodes or features.

    Args:
        weight: soft mask, -1 where there is no element, [D, n]; D is 2 (directions) for lines and 1 otherwise.
        kept: hard mask, [D, n].
    """

    weight: Tensor
    kept: Tensor

    def first_kept(self, thresholds: Sequence[float]) -> Tensor:
        """Position of the first threshold that keeps each element, the number of thresholds for never, [D, n]."""
        first = (self.weight.unsqueeze(-1) < torch.tensor(thresholds)).sum(-1)
        return torch.where(self.weight < 0, len(thresholds), first)

    def to_json(self, direction: int, selected: Tensor, thresholds: Sequence[float]) -> JsonObject:
        """Values of the selected elements in one direction."""
        weight = self.weight[direction, selected]
        return {
            "weight": torch.where(weight < 0, -1, (1000 * weight).round().long()).tolist(),
            "kept": self.kept[direction, selected].nonzero().flatten().tolist(),
            "stay": self.first_kept(thresholds)[direction, selected].tolist(),
        }


class MethodAnswer:
    """One method's explanation of one output.

    Args:
        method: the method.
        position: position of the explanation in the method's explanations.
        index: the lines of the output's drawing.
    """

    def __init__(self, method: Method, position: int, index: LineIndex) -> None:
        self.method, self.position, self.explanation = method, position, method.explanations[position]
        reached = method.reached(position)
        self.lines = self._line_entries(index, reached) if method.edges else None
        self.nodes = self._node_entries(index.node_id) if method.nodes and not method.features else None
        self.features = None
        if method.features:
            self.features = MaskEntries(self.explanation.node_mask, self.explanation.hard_node_mask)
        self.ranking = None if method.rankings is None else method.rankings[position]
        if self.ranking is None:
            masks = Masks({part: self.explanation[name] for part, name in MASK_NAMES.items() if name in self.explanation})
            self.thresholds = ranking_thresholds(reachable_weights(masks, reached))
        else:
            self.thresholds = self.ranking.thresholds

    def _line_entries(self, index: LineIndex, reached: Tensor) -> MaskEntries:
        edges = index.locate(self.explanation, reached)
        return MaskEntries(edges.maximum(self.explanation.edge_mask), edges.maximum(self.explanation.hard_edge_mask) > 0)

    def _node_entries(self, node_id: Tensor) -> MaskEntries:
        """Mask values of the drawn nodes, some of which may not be in the explanation's subgraph."""
        own_id = self.explanation.node_id
        row = torch.searchsorted(own_id, node_id).clamp(max=own_id.numel() - 1)
        present = own_id[row] == node_id
        weight = torch.where(present, self.explanation.node_mask[row].amax(-1), -1)
        kept = present & self.explanation.hard_node_mask[row].any(-1)
        return MaskEntries(weight.unsqueeze(0), kept.unsqueeze(0))

    @property
    def entries(self) -> tuple[MaskEntries | None, MaskEntries | None, MaskEntries | None]:
        """Mask values of lines, nodes and features."""
        return self.lines, self.nodes, self.features

    def to_json(self, drawn: Tensor, class_name: str) -> JsonObject:
        """The explanation as JSON.

        Args:
            drawn: numbers of the lines that are drawn.
            class_name: name of the explained class.
        """
        forward = [None if m is None else m.to_json(0, self._selected(m, drawn), self.thresholds) for m in self.entries]
        backward, certificates = None, self.method.certificates
        if self.lines is not None and not all(torch.equal(value[0], value[1]) for value in self.lines):
            backward = self.lines.to_json(1, drawn, self.thresholds)
        return {
            **dict(zip(("lines", "nodes", "features"), forward, strict=True)),
            "back": backward,
            "size": [0 if m is None else int(m.kept.any(0).sum()) for m in self.entries],
            "of": [0 if m is None else m.kept.size(1) for m in self.entries],
            "exact": bool(self.explanation.get("exact") or False),
            **self._numbers(),
            "stops": self._stops(),
            "words": None if certificates is None else certificates[self.position].words(class_name),
        }

    def _selected(self, entries: MaskEntries, drawn: Tensor) -> Tensor:
        return drawn if entries is self.lines else torch.arange(entries.kept.size(1))

    def _numbers(self) -> JsonObject:
        """Probabilities and bounds: those of the explanation if it has them, otherwise from the model."""
        names = ("p_factual", "p_complement", "pns", "pn", "ps")
        values = {name: self.explanation.get(name) for name in names}
        worlds = self.method.worlds
        if worlds is not None and any(value is None for value in values.values()):
            p = worlds.p[0, self.position]
            q = (worlds.p[1:, self.position] * torch.tensor(self.method.split)).sum()
            computed = (p, q, formulas.pns_bound(p, q), formulas.pn_bound(p, q), formulas.ps_bound(p, q))
            values = {name: float(value) for name, value in zip(names, computed, strict=True)}
        here = None if worlds is None else _worlds_json(worlds.p[:, self.position], worlds.label[:, self.position])
        return {**{name: rounded(value) for name, value in values.items()}, "worlds": here}

    def _stops(self) -> JsonObject:
        """Stops of the slider: thresholds, the sizes they keep, and the model's answers there."""
        first = [None if m is None else m.first_kept(self.thresholds).amin(0) for m in self.entries]
        sizes = [
            [0 if kept is None else int((kept <= stop).sum()) for kept in first] for stop in range(len(self.thresholds))
        ]
        worlds = None
        if self.ranking is not None:
            worlds = [_worlds_json(p, label) for p, label in zip(self.ranking.p, self.ranking.label, strict=True)]
        return {"least": [rounded(threshold) for threshold in self.thresholds], "size": sizes, "worlds": worlds}


def _worlds_json(p: Tensor, label: Tensor) -> JsonObject:
    return {"p": [rounded(float(value)) for value in p], "label": label.tolist()}
