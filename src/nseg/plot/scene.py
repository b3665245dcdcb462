"""What a picture shows, as plain data: numbers first, ink second.

Every picture of an explanation, by matplotlib, RDKit or the report page, is a drawing of one :class:`Scene`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.hetero_explanation import kept_paths
from nseg.names import NO_NAMES, Names
from nseg.plot import explained_graph as facts
from nseg.plot import layout
from nseg.plot.atoms import Atoms, find_atoms
from nseg.plot.explained_graph import ExplainedGraph
from nseg.plot.node_labels import NodeLabels, names_of, node_labels
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
        target: whether the explained output belongs to this node, or to a link that ends here.
        truth: whether the node belongs to the ground truth.
        hydrogens: number of hydrogen atoms at this atom that are not drawn.
        share: share of the node's features that the explanation keeps, 1 for a whole node; None if nodes are not masked.
        features: numbers of the kept features, if features of nodes are masked; ``()`` otherwise.
        label: name of this node alone, for texts: ``"N7"`` for an atom, the number of a node without a name.
        symbol: chemical element of an atom; ``""`` outside molecules.
        charge: formal charge of an atom.
        shape: number of the node's type in a heterogeneous graph, which gives it a shape; 0 in others.
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
    label: str = ""
    symbol: str = ""
    charge: int = 0
    shape: int = 0

    def with_hydrogens(self, number: int) -> Node:
        """The same atom with some more hydrogen atoms that are not drawn."""
        return replace(self, hydrogens=self.hydrogens + number)

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
        relation: what the edge says in a heterogeneous graph, such as ``"presented at"``; ``""`` in others.
    """

    source: int
    end: int
    weight: float | None
    kept: bool | None
    truth: bool
    order: float
    relation: str = ""


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
        features: numbers of the kept features, if the mask is of features of all nodes; None otherwise, and if each type of
            a heterogeneous graph has its own.
        names: names of the caller's graph, each node's own.
        grouping: what the colours stand for: ``"kind"`` or ``"type"`` of node, ``"true"``, ``"predicted"`` or ``"given"``
            class.
        paths: kept edges of a heterogeneous graph as text, path by path.
        hint: why a molecule is not drawn as one, and what to do; ``""`` if there is nothing to say.
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
    names: Names = NO_NAMES
    grouping: str = "given"
    hint: str = ""
    paths: tuple[str, ...] = ()

    @property
    def node_features(self) -> bool:
        """Whether single features of nodes are masked, so that a node can be kept in part."""
        return any(part.unit == "node features" for part in self.size)


def scene(
    explanation: Explanation,
    data: facts.GraphData = None,
    *,
    names: Any = None,
    node_names: Any = None,
    feature_names: Any = None,
    class_names: Any = None,
    edge_names: Any = None,
    units: Any = None,
    classes: Tensor | Sequence[int] | None = None,
    reached: Tensor | None = None,
    hydrogens: bool = True,
    max_edges: int = MAX_EDGES,
) -> Scene:
    """What a picture of one explanation shows.

    Positions depend only on the graph that can reach the output: two explanations of one prediction have every node in
    the same place. Edges that no message to the output uses are not shown. A graph is drawn as a molecule if it has
    ``smiles`` or ``rdmol``, or if its nodes are named by chemical elements.

    Args:
        explanation: explanation of one output, by ``nseg`` or any PyG algorithm. One read from disk needs ``data``.
        data: what was explained, for names, classes, bonds and ground truth: a dataset of :mod:`nseg.datasets`, a graph, or
            the graphs.
        names: another word for ``node_names``.
        node_names, feature_names, class_names, edge_names, units: names, as :func:`nseg.explain_many` takes them; by default
            those of the data or of the explanation.
        classes: classes of the nodes of the caller's graph, used as colours.
        reached: ids of the edges that can reach the output, for an explanation that does not know them; all if None.
        hydrogens: whether to show the hydrogen atoms of a molecule; those with a kept or true bond are always shown.
        max_edges: maximum number of edges: kept edges first, then those with the largest weight.
    """
    graph = facts.explained_graph(explanation, data)
    given = {"node_names": names if node_names is None else node_names, "feature_names": feature_names}
    given |= {"class_names": class_names, "edge_names": edge_names, "units": units}
    return build_scene(graph, names_of(graph, given), classes, reached=reached, hydrogens=hydrogens, max_edges=max_edges)


def build_scene(
    graph: ExplainedGraph,
    names: Names,
    classes: Tensor | Sequence[int] | None = None,
    grouping: str = "given",
    *,
    reached: Tensor | None = None,
    hydrogens: bool = True,
    max_edges: int = MAX_EDGES,
) -> Scene:
    """What a picture of an explained graph with known names shows.

    Args:
        graph: the explained graph.
        names: names of the caller's graph.
        classes, reached, hydrogens, max_edges: as in :func:`scene`.
        grouping: what the given classes are, as in :class:`Scene`.
    """
    atoms, hint = find_atoms(graph, names)
    labels = node_labels(graph, names, classes, atoms, grouping)
    counted = facts.reached_edges(graph, reached)
    nodes, edges = _all_elements(graph, counted, labels, atoms)
    hidden = set() if hydrogens or atoms is None else _plain_hydrogens(nodes, edges)
    drawn_nodes, drawn_edges = _limit(nodes, edges, hidden, max_edges)
    target, label = facts.explained_class(graph), facts.true_class(graph)
    event = graph.explanation.get("outcome")
    name = labels.class_name(target) if event is None else event.title(facts.explained_value(graph), labels.class_name)
    verdict = "" if label is None else "correct" if label == target else f"wrong, true class: {labels.class_name(label)}"
    return Scene(
        title=facts.title(graph, names, name, verdict, atoms is not None),
        level=graph.level,
        nodes=tuple(drawn_nodes),
        edges=tuple(drawn_edges),
        groups=labels.group_names,
        target=target,
        target_name=name,
        label=label,
        molecule=atoms is not None,
        left_out=len(edges) - len(drawn_edges),
        hidden=len(nodes) - len(drawn_nodes),
        size=kept_parts(graph.explanation, counted, graph.level),
        features=_common_features(graph.explanation),
        names=labels.names,
        grouping=labels.kind,
        hint=hint,
        paths=tuple(kept_paths(graph.explanation, names=labels.names)),
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
    if hard is None or len(hard) != 1 or node_mask_type(explanation) is not MaskType.common_attributes:
        return None
    return tuple(hard[0].nonzero().flatten().tolist())


def _all_elements(
    graph: ExplainedGraph, reached: Tensor, labels: NodeLabels, atoms: Atoms | None
) -> tuple[list[Node], list[Edge]]:
    """All nodes and edges that can be drawn, with positions, before anything is hidden."""
    pairs = facts.node_pairs(graph, reached, None if atoms is None else atoms.orders)
    targets = facts.target_nodes(graph)
    present = reached_nodes(graph.explanation, reached, graph.level)
    position_of = torch.full((graph.num_nodes,), -1)
    position_of[present] = torch.arange(present.numel())
    ends = position_of[pairs.ends].T.tolist()
    points = layout.positions(
        present.numel(),
        ends,
        focus=position_of[targets].tolist(),
        symbols=None if atoms is None else [atoms.symbols[n] for n in present.tolist()],
        orders=pairs.order,
    )
    nodes = _place_nodes(graph, labels, present.tolist(), points, set(targets))
    if atoms is not None:
        nodes = [
            replace(node, symbol=atoms.symbols[n], charge=atoms.charges[n], hydrogens=atoms.hydrogens[n])
            for n, node in zip(present.tolist(), nodes, strict=True)
        ]
    relations = _relations(graph, labels.names, reached)
    said = [relations.get((a, b), "") for a, b in pairs.ends.T.tolist()] if relations else [""] * len(ends)
    edges = [Edge(*pair, *values) for pair, *values in zip(ends, *pairs[1:], said, strict=True)]
    return nodes, edges


def _relations(graph: ExplainedGraph, names: Names, reached: Tensor) -> dict[tuple[int, int], str]:
    """What the edges between two nodes of a heterogeneous graph say, the smaller position first."""
    if names.types is None:
        return {}
    found: dict[tuple[int, int], dict[str, None]] = {}
    for number, (a, b) in zip(graph.edge_id[reached].tolist(), graph.edge_index[:, reached].T.tolist(), strict=True):
        found.setdefault((min(a, b), max(a, b)), {})[names.relation(number)] = None
    return {pair: ", ".join(relations) for pair, relations in found.items()}


def _place_nodes(
    graph: ExplainedGraph, labels: NodeLabels, present: list[int], points: Sequence[layout.Point], targets: set[int]
) -> list[Node]:
    soft, kind = facts.soft_mask(graph.explanation, "node_mask", graph.num_nodes), node_mask_type(graph.explanation)
    hard = None if kind is MaskType.common_attributes else hard_mask(graph.explanation, "node_mask")
    weight = [None] * graph.num_nodes if soft is None else soft.tolist()
    ids, known = graph.node_id.tolist(), facts.ground_truth(graph)
    truth = [False] * len(ids) if known is None else known[1].tolist()
    return [
        Node(
            id=ids[n],
            x=x,
            y=y,
            name=labels.shown[n],
            group=labels.group[n],
            weight=weight[n],
            kept=None if hard is None else bool(hard[n].any()),
            target=n in targets,
            truth=truth[n],
            share=None if hard is None else float(hard[n].float().mean()),
            features=() if hard is None or kind is MaskType.object else tuple(hard[n].nonzero().flatten().tolist()),
            label=labels.names.node_label(ids[n]),
            shape=0 if labels.names.types is None else labels.names.types.type_of_node(ids[n]),
        )
        for n, (x, y) in zip(present, points, strict=True)
    ]


def _plain_hydrogens(nodes: list[Node], edges: list[Edge]) -> set[int]:
    """Positions of hydrogen atoms that have a bond, but none that is kept or true."""
    bound = {n for edge in edges for n in (edge.source, edge.end) if nodes[n].symbol == "H" and not nodes[n].kept}
    return bound - {n for edge in edges if edge.kept or edge.truth for n in (edge.source, edge.end)}


def _limit(nodes: list[Node], edges: list[Edge], hidden: set[int], max_edges: int) -> tuple[list[Node], list[Edge]]:
    """Nodes and edges without the hidden nodes and with at most ``max_edges`` edges, renumbered.

    Nodes that lose all their edges to the limit are left out too, unless they are kept or explained.
    """
    if not hidden and len(edges) <= max_edges:
        return nodes, edges
    drawn = [edge for edge in edges if edge.source not in hidden and edge.end not in hidden]
    stay = [n for n in range(len(nodes)) if n not in hidden]
    hydrogens = Counter(n for e in edges for n, other in ((e.source, e.end), (e.end, e.source)) if other in hidden)
    if len(drawn) > max_edges:
        strongest = sorted(drawn, key=lambda e: (not e.kept, -(e.weight or 0.0)))[:max_edges]  # stable: ties stay in order
        drawn = sorted(strongest, key=lambda e: (e.source, e.end))
        joined = {n for edge in drawn for n in (edge.source, edge.end)}
        stay = [n for n in stay if n in joined or nodes[n].kept or nodes[n].target]
    position_of = {n: new for new, n in enumerate(stay)}
    drawn_nodes = [
        replace(nodes[n], hydrogens=nodes[n].hydrogens + hydrogens[n]) if hydrogens[n] else nodes[n] for n in stay
    ]
    return drawn_nodes, [replace(e, source=position_of[e.source], end=position_of[e.end]) for e in drawn]
