"""What a picture shows, as plain data: numbers first, ink second.

Every picture of an explanation, by matplotlib, RDKit or the report page, is a drawing of one :class:`Scene`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.datasets import Benchmark
from nseg.plot import explained_graph as facts
from nseg.plot import layout
from nseg.plot.explained_graph import ExplainedGraph
from nseg.plot.node_labels import NodeLabels, node_labels
from nseg.wording import PartSize, hard_mask, kept_parts, node_mask_type, reached_nodes

MAX_EDGES = 5000
"""Default for the maximum number of drawn edges."""


@dataclass(frozen=True)
class Node:
    """One drawn node.

    Args:
        id: id of the node in the caller's graph.
        x, y: position in [0, 1]; y points up.
        name: name of the node (an atom, an image region, a name from the caller), or ``""``.
        group: what colours the node, a position in :attr:`Scene.groups`; -1 for none.
        weight: soft mask, the mean over features; None if nodes are not masked.
        kept: whether the explanation keeps the node or any of its features; None if nodes are not masked.
        share: share of the node's features that the explanation keeps, 1 for a whole node; None if nodes are not masked.
        features: numbers of the kept features, if features of nodes are masked; ``()`` otherwise.
        target: whether the explained output belongs to this node, or to a link that ends here.
        truth: whether the node belongs to the ground truth.
        hydrogens: number of hydrogen atoms at this atom that are not drawn.
    """

    id: int
    x: float
    y: float
    name: str
    group: int
    weight: float | None
    kept: bool | None
    target: bool
    truth: bool
    hydrogens: int = 0
    share: float | None = None
    features: tuple[int, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether some, but not all, features of the node are kept."""
        return self.share is not None and 0 < self.share < 1


@dataclass(frozen=True)
class Edge:
    """One drawn edge: a pair of nodes, joined by edges in either direction.

    Args:
        source, end: positions in :attr:`Scene.nodes`, the smaller first; equal for a self-loop.
        weight: soft mask, the larger of both directions; None if edges are not masked.
        kept: whether the explanation keeps either direction; None if edges are not masked.
        truth: whether the edge belongs to the ground truth.
        order: bond order; 1 outside molecules.
    """

    source: int
    end: int
    weight: float | None
    kept: bool | None
    truth: bool
    order: float


@dataclass(frozen=True)
class Scene:
    """Everything that a picture of one explanation shows.

    Args:
        title: what is explained and, if known, whether the prediction is correct, e.g. ``"graph 10: mutagen (correct)"``.
        level: ``"node"``, ``"edge"`` (a link) or ``"graph"``: the kind of output.
        nodes, edges: what is drawn.
        groups: what the colours stand for.
        target: the explained class, -1 if unknown or if a value is explained.
        target_name: name of the explained class, or its number; or the explained event.
        label: the true class; None if unknown, or if a given class and not the prediction is explained.
        molecule: whether nodes are atoms and edges are bonds.
        left_out: reached edges that are not drawn: above ``max_edges``, or bonds of hidden hydrogen atoms.
        hidden: nodes that are not drawn: hydrogen atoms, or nodes whose edges are all left out.
        size: how much the explanation keeps, counted as everywhere (:mod:`nseg.wording`); what is not drawn counts too.
        features: numbers of the kept features, if the mask is of features of all nodes; None otherwise.
    """

    title: str
    level: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    groups: tuple[str, ...]
    target: int
    target_name: str
    label: int | None
    molecule: bool
    left_out: int
    hidden: int
    size: tuple[PartSize, ...] = ()
    features: tuple[int, ...] | None = None

    @property
    def node_features(self) -> bool:
        """Whether single features of nodes are masked, so that a node can be kept in part."""
        return any(part.unit == "node features" for part in self.size)


def scene(
    explanation: Explanation,
    data: Benchmark | None = None,
    *,
    names: Sequence[str] | None = None,
    classes: Tensor | Sequence[int] | None = None,
    class_names: Sequence[str] | None = None,
    reached: Tensor | None = None,
    hydrogens: bool = True,
    max_edges: int = MAX_EDGES,
) -> Scene:
    """What a picture of one explanation shows.

    Positions depend only on the graph that can reach the output: two explanations of one prediction have every node in
    the same place. Edges that no message to the output uses are not shown.

    Args:
        explanation: explanation of one output, by ``nseg`` or any PyG algorithm. One read from disk needs ``data``.
        data: the dataset of the explanation, for names, classes, bonds and ground truth.
        names: names of the nodes of the caller's graph, instead of the dataset's names; a molecule is then drawn like
            any other graph.
        classes: classes of the nodes of the caller's graph, used as colours.
        class_names: names of the classes.
        reached: ids of the edges that can reach the output, for an explanation that does not know them; all if None.
        hydrogens: whether to show the hydrogen atoms of a molecule; those with a kept or true bond are always shown.
        max_edges: maximum number of edges: kept edges first, then those with the largest weight.
    """
    graph = facts.explained_graph(explanation, data)
    labels = node_labels(graph, names, classes, class_names)
    molecule = bool(data is not None and data.bonds and data.node_names and names is None)
    counted = facts.reached_edges(graph, reached)
    nodes, edges = _all_elements(graph, counted, labels, molecule)
    hidden = set() if hydrogens or not molecule else _plain_hydrogens(nodes, edges)
    drawn_nodes, drawn_edges = _limit(nodes, edges, hidden, max_edges)
    target, label = facts.explained_class(graph), facts.true_class(graph)
    event = graph.explanation.get("outcome")
    name = labels.class_name(target) if event is None else event.title(facts.explained_value(graph), labels.class_name)
    verdict = "" if label is None else "correct" if label == target else f"wrong, true class: {labels.class_name(label)}"
    return Scene(
        title=facts.title(graph, name, verdict),
        level=graph.level,
        nodes=tuple(drawn_nodes),
        edges=tuple(drawn_edges),
        groups=labels.group_names,
        target=target,
        target_name=name,
        label=label,
        molecule=molecule,
        left_out=len(edges) - len(drawn_edges),
        hidden=len(nodes) - len(drawn_nodes),
        size=kept_parts(graph.explanation, counted, graph.level),
        features=_common_features(graph.explanation),
    )


def typical_edge_length(shown: Scene) -> float:
    """Median length of the edges of a scene; 0 without edges."""
    ends = [(shown.nodes[e.source], shown.nodes[e.end]) for e in shown.edges if e.source != e.end]
    lengths = sorted(math.hypot(a.x - b.x, a.y - b.y) for a, b in ends)
    return lengths[len(lengths) // 2] if lengths else 0.0


# --- nodes and edges -----------------------------------------------------------------------------------------------------


def _common_features(explanation: Explanation) -> tuple[int, ...] | None:
    """Numbers of the kept features of all nodes; None if the mask is another."""
    hard = hard_mask(explanation, "node_mask")
    if hard is None or node_mask_type(explanation) is not MaskType.common_attributes:
        return None
    return tuple(hard[0].nonzero().flatten().tolist())


def _all_elements(
    graph: ExplainedGraph, reached: Tensor, labels: NodeLabels, molecule: bool
) -> tuple[list[Node], list[Edge]]:
    """All nodes and edges that can be drawn, with positions, before anything is hidden."""
    pairs, targets = facts.node_pairs(graph, reached), facts.target_nodes(graph)
    present = reached_nodes(graph.explanation, reached, graph.level)
    position_of = torch.full((graph.num_nodes,), -1)
    position_of[present] = torch.arange(present.numel())
    ends = position_of[pairs.ends].T.tolist()
    points = layout.positions(
        present.numel(),
        ends,
        focus=position_of[targets].tolist(),
        symbols=[labels.names[n] for n in present.tolist()] if molecule else None,
        orders=pairs.order,
    )
    nodes = _place_nodes(graph, labels, present.tolist(), points, set(targets))
    edges = [Edge(*pair, *values) for pair, *values in zip(ends, *pairs[1:], strict=True)]
    return nodes, edges


def _place_nodes(
    graph: ExplainedGraph, labels: NodeLabels, present: list[int], points: Sequence[layout.Point], targets: set[int]
) -> list[Node]:
    soft, kind = facts.soft_mask(graph.explanation, "node_mask", graph.num_nodes), node_mask_type(graph.explanation)
    hard = None if kind is MaskType.common_attributes else hard_mask(graph.explanation, "node_mask")
    weight = [None] * graph.num_nodes if soft is None else soft.tolist()
    ids, truth = graph.node_id.tolist(), facts.ground_truth(graph)[1].tolist()
    return [
        Node(
            id=ids[n],
            x=x,
            y=y,
            name=labels.names[n],
            group=labels.group[n],
            weight=weight[n],
            kept=None if hard is None else bool(hard[n].any()),
            target=n in targets,
            truth=truth[n],
            share=None if hard is None else float(hard[n].float().mean()),
            features=() if hard is None or kind is MaskType.object else tuple(hard[n].nonzero().flatten().tolist()),
        )
        for n, (x, y) in zip(present, points, strict=True)
    ]


def _plain_hydrogens(nodes: list[Node], edges: list[Edge]) -> set[int]:
    """Positions of hydrogen atoms that have a bond, but none that is kept or true."""
    bound = {n for edge in edges for n in (edge.source, edge.end) if nodes[n].name == "H" and not nodes[n].kept}
    return bound - {n for edge in edges if edge.kept or edge.truth for n in (edge.source, edge.end)}


def _limit(nodes: list[Node], edges: list[Edge], hidden: set[int], max_edges: int) -> tuple[list[Node], list[Edge]]:
    """Nodes and edges without the hidden nodes and with at most ``max_edges`` edges, renumbered.

    Nodes that lose all their edges to the limit are left out too, unless they are kept or explained.
    """
    drawn = [edge for edge in edges if edge.source not in hidden and edge.end not in hidden]
    stay = [n for n in range(len(nodes)) if n not in hidden]
    hydrogens = Counter(n for e in edges for n, other in ((e.source, e.end), (e.end, e.source)) if other in hidden)
    if len(drawn) > max_edges:
        strongest = sorted(drawn, key=lambda e: (not e.kept, -(e.weight or 0.0)))[:max_edges]  # stable: ties stay in order
        drawn = sorted(strongest, key=lambda e: (e.source, e.end))
        joined = {n for edge in drawn for n in (edge.source, edge.end)}
        stay = [n for n in stay if n in joined or nodes[n].kept or nodes[n].target]
    position_of = {n: new for new, n in enumerate(stay)}
    drawn_nodes = [replace(nodes[n], hydrogens=hydrogens[n]) if hydrogens[n] else nodes[n] for n in stay]
    return drawn_nodes, [replace(e, source=position_of[e.source], end=position_of[e.end]) for e in drawn]
