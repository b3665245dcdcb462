"""One explained output as the page shows it: its graph, and what each method says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain import Explainer, Explanation

from nseg import objective as obj
from nseg.certify import Certificate
from nseg.metrics import Judge
from nseg.plot.scene import Scene
from nseg.reports.cuts import Ranking, Worlds, considered, cuts, rankings, worlds
from nseg.reports.origin import Origin
from nseg.scm import predicted_class, probability

MOST_LINES = 600
"""Lines that are drawn of one graph; of more no person sees anything."""

DIGITS = 4
"""Of probabilities."""

Plain = dict[str, Any]
"""What JSON can keep."""


def rounded(value: Any) -> float | None:
    """A number as the page keeps it; None where it is not known.

    >>> rounded(0.123456), rounded(float("nan")), rounded(None)
    (0.1235, None, None)
    """
    return None if value is None or not math.isfinite(value) else round(float(value), DIGITS)


# --- one method ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """The explanations of one method, and what the model says about them.

    Args:
        name: of the method.
        found: its explanations.
        place: which of them is of an output.
        certificates: of them, if there are any.
        judge: asks the model, if there is one.
        worlds: of the explanations themselves.
        rankings: what is kept at each cut, and what the model says there.
    """

    name: str
    found: list[Explanation]
    place: dict[int, int]
    certificates: Sequence[Certificate] | None = None
    judge: Judge | None = None
    worlds: Worlds | None = None
    rankings: list[Ranking] | None = None

    @property
    def edges(self) -> bool:
        """Whether edges are masked."""
        return self.found[0].get("edge_mask") is not None

    @property
    def nodes(self) -> bool:
        """Whether nodes or their features are masked."""
        return self.found[0].get("node_mask") is not None

    @property
    def features(self) -> bool:
        """Whether node masks are of features common to all nodes."""
        return self.nodes and all(one.node_mask.size(0) == 1 for one in self.found) and int(self.found[0].num_nodes) > 1

    @property
    def settings(self) -> dict[str, Any]:
        """What made the explanations."""
        return dict(self.found[0].get("settings") or {})

    @property
    def split(self) -> tuple[float, ...]:
        """Probability of each sub-event of the complement."""
        return tuple(self.settings.get("split", (1 / 3,) * 3)) if self.edges and self.nodes else (1.0,)

    def reached(self, number: int) -> Tensor:
        """Edges of an explanation over which a message can reach the output, [E]."""
        if self.judge is not None:
            return self.judge.reached[number]
        one = self.found[number]
        known: Tensor | None = one.get("reached")
        return torch.ones(one.edge_index.size(1), dtype=torch.bool) if known is None else known

    def prediction(self, number: int, target: int) -> tuple[int | None, float | None]:
        """The predicted class and the probability of the explained one, where they are known."""
        if self.judge is not None:
            p = probability(self.judge.output, self.judge.target, self.judge.config)
            return int(self.judge.label[number]), float(p[number])
        one = self.found[number]
        config, output = getattr(one, "_model_config", None), one.get("prediction")
        if config is None or output is None or target < 0:
            return None, None
        output = output[:1] if one.get("index") is None else output[one.index].view(1, *output.shape[1:])
        return int(predicted_class(output, config)), float(probability(output, torch.tensor([target]), config))


def asked(
    name: str,
    found: list[Explanation],
    origin: Origin,
    explainer: Explainer | None,
    certificates: Sequence[Certificate] | None = None,
) -> Method:
    """Ask the model about the explanations of one method, if there is a model to ask."""
    place = {int(one.output_id): b for b, one in enumerate(found)}
    if explainer is None or origin.graphs is None:
        return Method(name, found, place, certificates)
    judge = Judge(explainer, origin.graphs, found)
    return Method(name, found, place, certificates, judge, worlds(judge, judge.masks("hard")), rankings(judge))


# --- one output ------------------------------------------------------------------------------------------------------------


class Texts:
    """Texts that many nodes share, each kept once."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self._place: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Where a text is kept."""
        if text not in self._place:
            self._place[text] = len(self.known)
            self.known.append(text)
        return self._place[text]


class Picture:
    """One output, its graph, and what each method says of it.

    Args:
        number: of the output.
        methods: that may have explained it.
        origin: of the explanations.
    """

    def __init__(self, number: int, methods: Sequence[Method], origin: Origin) -> None:
        self.number, self.origin = number, origin
        first = next(method for method in methods if number in method.place)
        b = first.place[number]
        self.scene: Scene = origin.scene(first.found[b], first.reached(b))
        self.target = self.scene.target
        self.label = origin.label(self.scene.level, number)
        self.predicted, self.p = first.prediction(b, self.target)
        lines = _Lines(self.scene)
        self.answers = [
            _Answer(method, method.place[number], lines) if number in method.place else None for method in methods
        ]

    def plain(self, texts: Texts) -> Plain:
        """All of it as plain data."""
        drawn, class_name = self._drawn(), self.origin.name(self.target)
        return {
            "id": self.number,
            "target": self.target,
            "predicted": self.predicted,
            "label": self.label,
            "p": rounded(self.p),
            "graph": self._graph(drawn, texts),
            "answers": [None if answer is None else answer.plain(drawn, class_name) for answer in self.answers],
        }

    def _drawn(self) -> Tensor:
        """The lines that are drawn: all; or those of the ground truth and those that a method keeps, then the weightiest."""
        first = torch.tensor([10.0 * edge.truth for edge in self.scene.edges])
        for answer in self.answers:
            if answer is not None and answer.lines is not None:
                first = torch.maximum(first, answer.lines.weight.amax(0) + 5.0 * answer.lines.kept.any(0))
        return torch.argsort(first, descending=True, stable=True)[:MOST_LINES].sort().values

    def _graph(self, drawn: Tensor, texts: Texts) -> Plain:
        nodes, edges = self.scene.nodes, [self.scene.edges[n] for n in drawn.tolist()]
        total = self.origin.true_lines(self.number)
        return {
            "node": [n.id for n in nodes],
            "x": [round(1000 * n.x) for n in nodes],
            "y": [round(1000 * (1 - n.y)) for n in nodes],
            "name": [texts.place(n.name) for n in nodes] if any(n.name for n in nodes) else None,
            "group": [n.group for n in nodes] if any(n.group >= 0 for n in nodes) else None,
            "target": [place for place, n in enumerate(nodes) if n.target],
            "source": [e.source for e in edges],
            "end": [e.end for e in edges],
            "order": [e.order for e in edges] if self.scene.molecule else None,
            "truth": [place for place, e in enumerate(edges) if e.truth] if total else None,
            "truth_nodes": [place for place, n in enumerate(nodes) if n.truth],
            "truth_outside": total - sum(e.truth for e in self.scene.edges),
            "left_out": len(self.scene.edges) - len(edges),
        }


# --- lines: pairs of nodes that edges join ---------------------------------------------------------------------------------


class _Lines:
    """The lines of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.node_id = torch.tensor([node.id for node in scene.nodes])
        places = torch.tensor([(edge.source, edge.end) for edge in scene.edges], dtype=torch.long).view(-1, 2).T
        self.source, end = self.node_id[places]
        self.loop = self.source == end
        key, self._order = _pairs(self.source, end).sort()
        self._key = torch.cat([key, torch.tensor([torch.iinfo(torch.long).max])])  # so that there is one behind each pair

    def ways(self, one: Explanation, reached: Tensor) -> _Ways:
        """Where the edges of an explanation are."""
        source, end = one.node_id[one.edge_index]
        key = _pairs(source, end)
        place = torch.searchsorted(self._key, key)
        here = self._key[place] == key
        line = self._order[place[here]]
        return _Ways(here, line + self.loop.numel() * (source[here] != self.source[line]), reached[here], self.loop)


def _pairs(one: Tensor, other: Tensor) -> Tensor:
    """A number for each pair of nodes, whichever comes first."""
    return (torch.minimum(one, other) << 31) + torch.maximum(one, other)


class _Ways(NamedTuple):
    """Where the edges of one explanation are.

    Args:
        here: whether an edge is on a line, [E].
        way: the line of those that are, and for one that runs back along it the number of lines more.
        reached: whether a message over it can reach the output.
        loop: whether a line is from a node to itself, [L].
    """

    here: Tensor
    way: Tensor
    reached: Tensor
    loop: Tensor

    def largest(self, value: Tensor) -> Tensor:
        """The largest value on the way there and on the way back of each line, [2, L]; -1 where there is no edge."""
        value = value[self.here].float()

        def among(which: Tensor) -> Tensor:
            start = torch.full((2 * self.loop.numel(),), -1.0)
            return start.scatter_reduce(0, self.way[which], value[which], "amax").view(2, -1)

        found, everywhere = among(self.reached), among(torch.ones_like(self.reached))
        # a direction that no message takes is as the other one where a method treats both as one
        found = torch.where((found < 0) & (everywhere == found.flip(0)), everywhere, found)
        return torch.where(self.loop, found[0], found)


# --- one method's answer ---------------------------------------------------------------------------------------------------


class _Marks(NamedTuple):
    """What an explanation says of lines both ways, of nodes or of features.

    Args:
        weight: of each, [W, n]; -1 where there is none.
        kept: whether it is in the explanation, [W, n].
    """

    weight: Tensor
    kept: Tensor

    def stay(self, least: Sequence[float]) -> Tensor:
        """The first cut at which each is kept, [W, n]."""
        first = (self.weight.unsqueeze(-1) < torch.tensor(least)).sum(-1)
        return torch.where(self.weight < 0, len(least), first)

    def plain(self, way: int, which: Tensor, least: Sequence[float]) -> Plain:
        """Some of them, one way."""
        weight = self.weight[way, which]
        return {
            "weight": torch.where(weight < 0, -1, (1000 * weight).round().long()).tolist(),
            "kept": self.kept[way, which].nonzero().flatten().tolist(),
            "stay": self.stay(least)[way, which].tolist(),
        }


class _Answer:
    """What one method says of one output, on the lines and nodes of its picture."""

    def __init__(self, method: Method, number: int, lines: _Lines) -> None:
        self.method, self.b, self.one = method, number, method.found[number]
        near = method.reached(number)
        self.lines = self._on_lines(lines.ways(self.one, near)) if method.edges else None
        self.nodes = self._on_nodes(lines.node_id) if method.nodes and not method.features else None
        self.features = _Marks(self.one.node_mask, self.one.hard_node_mask) if method.features else None
        self.ranking = None if method.rankings is None else method.rankings[number]
        masks = (self.one.get("edge_mask"), self.one.get("node_mask"))
        self.least = cuts(considered(masks, near)) if self.ranking is None else self.ranking.least

    def _on_lines(self, ways: _Ways) -> _Marks:
        return _Marks(ways.largest(self.one.edge_mask), ways.largest(self.one.hard_edge_mask) > 0)

    def _on_nodes(self, node_id: Tensor) -> _Marks:
        place = torch.searchsorted(self.one.node_id, node_id).clamp(max=self.one.node_id.numel() - 1)
        here = self.one.node_id[place] == node_id
        weight = torch.where(here, self.one.node_mask[place].amax(-1), -1)
        return _Marks(weight.unsqueeze(0), (here & self.one.hard_node_mask[place].any(-1)).unsqueeze(0))

    @property
    def marks(self) -> tuple[_Marks | None, _Marks | None, _Marks | None]:
        """What it says of lines, nodes and features."""
        return self.lines, self.nodes, self.features

    def plain(self, drawn: Tensor, class_name: str) -> Plain:
        """All of it as plain data, on the lines that are drawn; the name is that of the explained class."""
        there = [None if m is None else m.plain(0, drawn if m is self.lines else _every(m), self.least) for m in self.marks]
        back, certificates = None, self.method.certificates
        if self.lines is not None and not all(torch.equal(value[0], value[1]) for value in self.lines):
            back = self.lines.plain(1, drawn, self.least)
        return {
            **dict(zip(("lines", "nodes", "features"), there, strict=True)),
            "back": back,
            "size": [0 if m is None else int(m.kept.any(0).sum()) for m in self.marks],
            "of": [0 if m is None else m.kept.size(1) for m in self.marks],
            "exact": bool(self.one.get("exact") or False),
            **self._numbers(),
            "stops": self._stops(),
            "words": None if certificates is None else certificates[self.b].words(class_name),
        }

    def _numbers(self) -> Plain:
        """The probabilities and bounds of the explanation itself: as it has them, else as the model says."""
        names = ("p_factual", "p_complement", "pns", "pn", "ps")
        values = {name: self.one.get(name) for name in names}
        asked = self.method.worlds
        if asked is not None and any(value is None for value in values.values()):
            p, q = asked.p[0, self.b], (asked.p[1:, self.b] * torch.tensor(self.method.split)).sum()
            found = (p, q, obj.pns_bound(p, q), obj.pn_bound(p, q), obj.ps_bound(p, q))
            values = {name: float(value) for name, value in zip(names, found, strict=True)}
        return {
            **{name: rounded(value) for name, value in values.items()},
            "worlds": None if asked is None else _worlds(asked.p[:, self.b], asked.label[:, self.b]),
        }

    def _stops(self) -> Plain:
        first = [None if m is None else m.stay(self.least).amin(0) for m in self.marks]
        sizes = [[0 if stay is None else int((stay <= cut).sum()) for stay in first] for cut in range(len(self.least))]
        found = None
        if self.ranking is not None:
            found = [_worlds(p, label) for p, label in zip(self.ranking.p, self.ranking.label, strict=True)]
        return {"least": [rounded(least) for least in self.least], "size": sizes, "worlds": found}


def _every(marks: _Marks) -> Tensor:
    return torch.arange(marks.kept.size(1))


def _worlds(p: Tensor, label: Tensor) -> Plain:
    return {"p": [rounded(float(value)) for value in p], "label": label.tolist()}
