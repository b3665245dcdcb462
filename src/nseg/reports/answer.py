"""One method's explanation of one output, on the lines and nodes of its drawing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.events import HAPPENS
from nseg.metrics.evaluator import MASK_NAMES
from nseg.names import number_text
from nseg.plot.scene import Scene
from nseg.reports.json_values import JsonObject, rounded
from nseg.reports.lines import Flags, LineIndex, Numbers, Weights
from nseg.reports.method import Method
from nseg.reports.ranking import ranking_thresholds, reachable_weights
from nseg.search import formulas
from nseg.search.parts import Masks
from nseg.wording import PartSize, bound_text, deletion_text, element_values, explanation_sentences, kept_parts, mask_cells

MAX_CELLS = 600
"""Maximum number of features of nodes that the page lists for one explanation; all of them count."""

PER_NODE = (MaskType.object, MaskType.attributes)
EDGE_MASKS = ("edge_mask", "hard_edge_mask")


@dataclass(frozen=True, eq=False)
class MaskEntries:
    """Mask values of n lines, nodes or features.

    Args:
        weight: soft mask, -1 where there is no element, [D, n]; D is 2 (directions) for lines, the number of features for
            features of nodes, and 1 otherwise.
        kept: hard mask, [D, n].
    """

    weight: Weights
    kept: Flags
    thresholds: Sequence[float]

    @cached_property
    def first_kept(self) -> Numbers:
        """Position of the first threshold that keeps each element, the number of thresholds for never, [D, n]."""
        first = (self.weight[..., None] < np.array(self.thresholds, dtype=np.float32)).sum(-1)
        return np.where(self.weight < 0, len(self.thresholds), first)

    @property
    def is_symmetric(self) -> bool:
        """Whether both directions of all lines are equal."""
        return bool((self.weight[0] == self.weight[1]).all() and (self.kept[0] == self.kept[1]).all())

    def sizes(self) -> list[int]:
        """Number of elements that each threshold keeps."""
        number = len(self.thresholds)
        sizes: list[int] = np.bincount(self.first_kept.ravel(), minlength=number).cumsum()[:number].tolist()
        return sizes

    @cached_property
    def thousandths(self) -> Numbers:
        """Weights in thousandths, -1 where there is no element, [D, n]."""
        return np.where(self.weight < 0, -1, np.rint(1000 * self.weight)).astype(np.int64)

    def to_json(self, direction: int, selected: Numbers) -> JsonObject:
        """Values of the selected elements in one direction."""
        return {
            "weight": self.thousandths[direction, selected].tolist(),
            "kept": self.kept[direction, selected].nonzero()[0].tolist(),
            "stay": _digits(self.first_kept[direction, selected]),
        }


class MethodAnswer:
    """One method's explanation of one output.

    Args:
        method: the method.
        position: position of the explanation in the method's explanations.
        index: the lines of the output's drawing.
        first: whether the drawing was made from this explanation.
    """

    def __init__(self, method: Method, position: int, index: LineIndex, first: bool) -> None:
        self.method, self.position, self.explanation = method, position, method.explanations[position]
        self.first = first
        self.reached = reached = method.reached(position)
        self.ranking = None if method.rankings is None else method.rankings[position]
        if self.ranking is None:
            masks = Masks({part: self.explanation[name] for part, name in MASK_NAMES.items() if name in self.explanation})
            self.thresholds = ranking_thresholds(reachable_weights(masks, reached))
        else:
            self.thresholds = self.ranking.thresholds
        self.lines = self._line_entries(index, reached) if method.edges else None
        self.edges = self._edge_entries() if method.edges else None
        self.cells = self._cell_entries(index.node_id) if method.node_mask in PER_NODE else None
        self.features = None
        if method.node_mask is MaskType.common_attributes:
            soft, hard, cells = self.explanation.node_mask, self.explanation.hard_node_mask, mask_cells(self.explanation)
            soft, hard = (mask.detach().view(cells.shape)[cells].unsqueeze(0) for mask in (soft, hard))
            self.features = self._entries(soft.numpy(), hard.bool().numpy())

    def _entries(self, weight: Weights, kept: Flags) -> MaskEntries:
        return MaskEntries(weight, kept, self.thresholds)

    def _line_entries(self, index: LineIndex, reached: Tensor) -> MaskEntries:
        edges = index.locate(self.explanation, reached)
        return self._entries(edges.maximum(self.explanation.edge_mask), edges.maximum(self.explanation.hard_edge_mask) > 0)

    def _edge_entries(self) -> MaskEntries:
        """Mask values of the edges as they are counted, also of those that are not drawn."""
        soft, hard = (element_values(self.explanation, self.explanation[name], self.reached) for name in EDGE_MASKS)
        return self._entries(soft.numpy()[None], hard.numpy()[None] > 0)

    def _cell_entries(self, node_id: Numbers) -> MaskEntries:
        """Mask values of each feature [F, n] of the drawn nodes, of which some may not be in the explanation's subgraph."""
        own_id, one = self.explanation.node_id.numpy(), self.explanation
        row = np.minimum(own_id.searchsorted(node_id), len(own_id) - 1)
        present = own_id[row] == node_id
        weight = np.where(present & mask_cells(one).numpy()[row].T, one.node_mask.detach().numpy()[row].T, -1)
        return self._entries(weight, present & one.hard_node_mask.bool().numpy()[row].T)

    @property
    def nodes(self) -> MaskEntries | None:
        """Largest mask value of each drawn node, and whether any of its features is kept."""
        if self.cells is None:
            return None
        return self._entries(self.cells.weight.max(0)[None], self.cells.kept.max(0)[None])

    @property
    def per_feature(self) -> MaskEntries | None:
        """Mask values of single features: of nodes, or of all nodes."""
        return self.cells if self.method.node_mask is MaskType.attributes else self.features

    def to_json(self, drawn: Numbers, scene: Scene) -> JsonObject:
        """The explanation as JSON.

        Args:
            drawn: numbers of the lines that are drawn.
            scene: the scene of the explained output.
        """
        shown = {"lines": self.lines, "nodes": self.nodes, "features": self.features}
        forward = {name: None if m is None else m.to_json(0, self._selected(m, drawn)) for name, m in shown.items()}
        backward, certificates = None, self.method.certificates
        if self.lines is not None and not self.lines.is_symmetric:
            backward = self.lines.to_json(1, drawn)
        counted = (self.edges, self.nodes, self.per_feature)
        class_name, molecule = scene.names.class_name(scene.target) or None, scene.molecule
        parts = scene.size if self.first else kept_parts(self.explanation, self.reached, scene.level)
        return {
            **forward,
            **self._sentences(scene, parts),
            "back": backward,
            "directed": any(part.unit == "directed edges" for part in parts),
            "size": [0 if m is None else int(m.kept.sum()) for m in counted],
            "of": [0 if m is None else self._total(m) for m in counted],
            "exact": bool(self.explanation.get("exact") or False),
            **({"cells": self._cells_json(scene)} if self.method.node_mask is MaskType.attributes else {}),
            **self._numbers(),
            "deletion": deletion_text(self.explanation, molecule) or None,
            "stops": self._stops(counted),
            "words": None if certificates is None else certificates[self.position].words(class_name, molecule),
        }

    def _total(self, entries: MaskEntries) -> int:
        """Number of elements; types of nodes with fewer features than others have fewer."""
        typed = getattr(self.explanation.get("names"), "types", None)
        return entries.kept.size if typed is None else int((entries.weight >= 0).sum())

    def _sentences(self, scene: Scene, parts: Sequence[PartSize]) -> JsonObject:
        """The answer in plain words, and its verdict; ``parts`` are what it keeps."""
        event = self.method.event
        found = self.method.findings(self.position, scene.target if event is None else HAPPENS)
        names = scene.names if event is None else replace(scene.names, classes=event.sides)
        reason, proof = explanation_sentences(
            self.explanation,
            found,
            names,
            reached=self.reached,
            level=scene.level,
            molecule=scene.molecule,
            parts=parts,
        )
        return {"verdict": found.verdict, "reason": reason, "proof": proof}

    def _selected(self, entries: MaskEntries, drawn: Numbers) -> Numbers:
        return drawn if entries is self.lines else np.arange(entries.kept.shape[1])

    def _cells_json(self, scene: Scene) -> JsonObject:
        """Features of nodes: how many are kept of each node, and the most important ones by node and number."""
        assert self.cells is not None
        stay = self.cells.first_kept
        order = np.argsort(-(self.cells.weight + 2.0 * self.cells.kept).ravel(), kind="stable")
        listed = np.sort(order[:MAX_CELLS])
        feature, node = listed // stay.shape[1], listed % stay.shape[1]
        return {
            "node": node.tolist(),
            "feature": feature.tolist(),
            "value": self._values(scene, node.tolist(), feature.tolist()),
            **self._typed_cells(scene, node.tolist(), feature.tolist()),
            "weight": self.cells.thousandths.ravel()[listed].tolist(),
            "kept": self.cells.kept.ravel()[listed].nonzero()[0].tolist(),
            "stay": _digits(stay.ravel()[listed]),
            "number": self.cells.kept.sum(0).tolist(),
            "number_at": [(stay <= stop).sum(0).tolist() for stop in range(len(self.thresholds))],
        }

    def _typed_cells(self, scene: Scene, node: list[int], feature: list[int]) -> JsonObject:
        """For a heterogeneous graph, names of features by their node's type, and the number of features of each node."""
        if scene.names.types is None:
            return {}
        assert self.cells is not None
        own = [scene.names.of_node(scene.nodes[n].id) for n in node]
        return {
            "name": [names.feature(f) for names, f in zip(own, feature, strict=True)],
            "unit": [names.unit(f) for names, f in zip(own, feature, strict=True)],
            "width": (self.cells.weight >= 0).sum(0).tolist(),
        }

    def _values(self, scene: Scene, node: list[int], feature: list[int]) -> list[str] | None:
        """Values of features of drawn nodes as text; None if they are unknown."""
        x = self.explanation.get("x")
        if x is None or x.dim() != 2:
            return None
        row_of = {number: row for row, number in enumerate(self.explanation.node_id.tolist())}
        rows = [row_of.get(scene.nodes[n].id, -1) for n in node]
        return ["" if row < 0 else number_text(float(x[row, f])) for row, f in zip(rows, feature, strict=True)]

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
        here = (
            None
            if worlds is None
            else _worlds_json(worlds.p[:, self.position].tolist(), worlds.label[:, self.position].tolist())
        )
        return {**{name: rounded(value) for name, value in values.items()}, "worlds": here}

    def _stops(self, counted: Sequence[MaskEntries | None]) -> JsonObject:
        """Stops of the slider: thresholds, the sizes they keep, and the model's answers there."""
        nothing = [0] * len(self.thresholds)
        sizes = list(map(list, zip(*(nothing if m is None else m.sizes() for m in counted), strict=True)))
        worlds = None
        if self.ranking is not None:
            pairs = zip(self.ranking.p.tolist(), self.ranking.label.tolist(), strict=True)
            worlds = [_worlds_json(p, label) for p, label in pairs]
        least = [float(bound_text(t)) if math.isfinite(t) else None for t in self.thresholds]  # "at least": rounded down
        return {"least": least, "size": sizes, "worlds": worlds}


def _worlds_json(p: list[float], label: list[int]) -> JsonObject:
    return {"p": list(map(rounded, p)), "label": label}


def _digits(stops: Numbers) -> str:
    """Numbers of stops, one character each, in base 36: a page holds many of them."""
    return "".join("0123456789abcdefghijklmnopqrstuvwxyz"[stop] for stop in stops.tolist())
