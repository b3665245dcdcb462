"""What a picture shows, as plain data: numbers first, ink second.

Every picture of an explanation, whoever draws it, is a drawing of one :class:`Scene`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.plot import layout

MOST_EDGES = 5000
"""Edges that are drawn at most, unless said otherwise."""

HALF = 0.5
"""Where a soft mask is cut if there is no hard one."""


@dataclass(frozen=True)
class Node:
    """One node as it is drawn.

    Args:
        id: the caller's number of it.
        x, y: where it is, in [0, 1]; y points up.
        name: what it is (an atom, the object in a region, what the caller says), or nothing.
        group: what colours it, a place in :attr:`Scene.groups`; -1 for none.
        weight: its soft mask, the mean over features; None where nodes are not masked.
        kept: whether the explanation keeps it, or any of its features; None where nodes are not masked.
        target: whether the explained output is that of this node (or of a link at it).
        truth: whether it belongs to the ground truth.
        hydrogens: atoms at it that are not drawn.
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


@dataclass(frozen=True)
class Edge:
    """A pair of nodes that edges join, whichever way these run.

    Args:
        source, end: places in :attr:`Scene.nodes`, the smaller first; equal for a self-loop.
        weight: soft mask, the larger of both directions; None where edges are not masked.
        kept: whether the explanation keeps either direction; None where edges are not masked.
        truth: whether it belongs to the ground truth.
        order: of a bond, 1 where there is none.
    """

    source: int
    end: int
    weight: float | None
    kept: bool | None
    truth: bool
    order: float


@dataclass(frozen=True)
class Scene:
    """All that a picture of one explanation shows.

    Args:
        title: what is explained, and whether the model is right where that is known, e.g. ``"graph 10: mutagen (correct)"``.
        level: ``"node"``, ``"edge"`` (a link) or ``"graph"``: what the output is of.
        nodes, edges: what is drawn.
        groups: what the colours stand for.
        target: the explained class, -1 where it is not known.
        target_name: its name, or its number.
        label: the true class; None where it is not known, or not the prediction but a given class is explained.
        molecule: whether nodes are atoms and edges bonds.
        left_out: edges within reach that are not drawn: beyond ``most``, or bonds of hidden hydrogen atoms.
        hidden: nodes that are not drawn: hydrogen atoms, or ends of none but left out edges.
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


def scene(
    explanation: Explanation,
    data: Benchmark | None = None,
    *,
    names: Sequence[str] | None = None,
    classes: Tensor | Sequence[int] | None = None,
    class_names: Sequence[str] | None = None,
    reached: Tensor | None = None,
    hydrogens: bool = True,
    most: int = MOST_EDGES,
) -> Scene:
    """What a picture of an explanation shows.

    Positions depend on the graph within reach of the output and on nothing else: two explanations of one prediction have
    every node in the same place. Edges that no message to the output takes are not shown.

    Args:
        explanation: of one output, by ``nseg`` or by any algorithm of PyG. One read from disk needs ``data``.
        data: the dataset that it is of, for names, classes, bonds and ground truth.
        names: the names of the nodes of the caller's graph, instead of those that the dataset has; a molecule is then
            drawn like any other graph.
        classes: the classes of the nodes of the caller's graph, to colour them by.
        class_names: the names of the classes.
        reached: the caller's numbers of the edges within reach, for an explanation that does not say; all if None.
        hydrogens: whether the hydrogen atoms of a molecule are shown; if not, those with a kept or true bond still are.
        most: how many edges are shown at most: kept ones first, then those of the largest weight.
    """
    graph = _graph(explanation, data)
    pairs = _pairs(graph, _within(graph, reached))
    targets, target = _targets(graph), _explained_class(graph)
    shown = _names_and_groups(graph, names, classes, class_names, targets, target)
    present = _present(graph, pairs.ends, targets)
    place = torch.full((graph.nodes,), -1)
    place[present] = torch.arange(present.numel())
    ends = place[pairs.ends].T.tolist()
    molecule = bool(data is not None and data.bonds and data.node_names and names is None)
    at = layout.positions(
        present.numel(),
        ends,
        focus=place[targets].tolist(),
        symbols=[shown.names[n] for n in present.tolist()] if molecule else None,
        orders=pairs.order,
    )
    nodes = _nodes(graph, shown, present.tolist(), at, set(targets))
    edges = [Edge(*both, *other) for both, *other in zip(ends, *pairs[1:], strict=True)]
    gone = set() if hydrogens or not molecule else _hydrogens(nodes, edges)
    drawn_nodes, drawn_edges = _cut(nodes, edges, gone, most)
    label = _label(graph)
    return Scene(
        title=_title(graph, shown.class_name(target), None if label is None else (label == target, shown.class_name(label))),
        level=graph.level,
        nodes=tuple(drawn_nodes),
        edges=tuple(drawn_edges),
        groups=shown.groups,
        target=target,
        target_name=shown.class_name(target),
        label=label,
        molecule=molecule,
        left_out=len(edges) - len(drawn_edges),
        hidden=len(nodes) - len(drawn_nodes),
    )


def bond_length(shown: Scene) -> float:
    """Length of a usual edge of a scene; 0 where there is none."""
    ends = [(shown.nodes[e.source], shown.nodes[e.end]) for e in shown.edges if e.source != e.end]
    lengths = sorted(math.hypot(a.x - b.x, a.y - b.y) for a, b in ends)
    return lengths[len(lengths) // 2] if lengths else 0.0


# --- the graph of an explanation -----------------------------------------------------------------------------------------


class _Graph(NamedTuple):
    """An explanation on its graph.

    Args:
        one: the explanation; its masks are of the edges [E] and nodes [N] of ``edge_index``.
        data: its dataset, and there ``whole``, the caller's graph.
        edge_index: the graph, [2, E].
        edge_id, node_id: the caller's numbers of edges and nodes.
        number: the caller's number of the output.
        level: what the output is of.
    """

    one: Explanation
    data: Benchmark | None
    whole: Data | None
    edge_index: Tensor
    edge_id: Tensor
    node_id: Tensor
    number: int
    level: str

    @property
    def nodes(self) -> int:
        return self.node_id.numel()


def _graph(one: Explanation, data: Benchmark | None) -> _Graph:
    if not isinstance(one, Explanation):
        raise InputError(f"A scene is of one homogeneous Explanation (got {type(one).__name__}).")
    if data is not None and not isinstance(data, Benchmark):
        raise InputError(
            f"data must be a dataset of nseg.datasets (got {type(data).__name__}). Leave it out for a graph of your own: an "
            "explanation from explain_many has its graph; names=... and class_names=... say what things are called."
        )
    index, edge_index = one.get("index"), one.get("edge_index")
    number = int(one.get("output_id", 0 if index is None else _numbers(index)[0]))
    edge_id, node_id = one.get("edge_id"), one.get("node_id")
    whole = None if data is None else data.graph(number)
    if edge_index is None:
        if whole is None or edge_id is None or node_id is None:
            raise InputError(
                "An explanation is drawn on its graph (got one without edge_index, as nseg.store.read gives). "
                "Give its dataset as well: data=nseg.datasets.load(...)."
            )
        edge_index = torch.searchsorted(node_id, whole.edge_index[:, edge_id])
    edge_id = torch.arange(edge_index.size(1)) if edge_id is None else edge_id.cpu()
    node_id = torch.arange(int(one.num_nodes or 0)) if node_id is None else node_id.cpu()
    graph = _Graph(one, data, whole, edge_index.cpu(), edge_id, node_id, number, _level(one, data))
    if whole is not None and not _inside(graph, whole):
        raise InputError(
            f"data must be the dataset that was explained (its graph of output {number} is another one). Give the right "
            "dataset, or set explanation.output_id to the number of the graph in it."
        )
    return graph


def _level(one: Explanation, data: Benchmark | None) -> str:
    config = getattr(one, "_model_config", None)
    if config is not None:
        return str(config.task_level.value)
    if data is not None:
        return data.level
    return "graph" if one.get("index") is None else "node"


def _inside(graph: _Graph, whole: Data) -> bool:
    """Whether the edges of an explanation are those of the caller's graph that they say they are."""
    if graph.edge_id.numel() and int(graph.edge_id.max()) >= whole.num_edges:
        return False
    if graph.nodes and int(graph.node_id.max()) >= whole.num_nodes:
        return False
    return torch.equal(graph.node_id[graph.edge_index], whole.edge_index.cpu()[:, graph.edge_id])


def _within(graph: _Graph, reached: Tensor | None) -> Tensor:
    """Which edges are within reach of the output, [E]."""
    mine: Tensor | None = graph.one.get("reached")
    if mine is not None:
        return mine.cpu()
    return (
        torch.ones(graph.edge_id.numel(), dtype=torch.bool) if reached is None else torch.isin(graph.edge_id, reached.cpu())
    )


def _targets(graph: _Graph) -> list[int]:
    """Places of the explained nodes, or of both ends of the explained links."""
    index, found = graph.one.get("index"), torch.zeros(0, dtype=torch.long)
    if graph.level == "node":
        found = (graph.node_id == graph.number).nonzero().flatten() if index is None else _numbers(index)
    elif graph.level == "edge" and index is not None:
        found = torch.unique(_links(graph)[:, _numbers(index)])
    places: list[int] = found.tolist()
    return places


def _links(graph: _Graph) -> Tensor:
    """The pairs that a model of links was asked for, [2, R]: an argument of it, else the edges themselves."""
    for name in getattr(graph.one, "_model_args", None) or ("edge_label_index",):
        ends = graph.one.get(name)
        if isinstance(ends, Tensor) and ends.dim() == 2 and ends.size(0) == 2 and not ends.is_floating_point():
            return ends.cpu()
    return graph.edge_index


def _numbers(index: Any) -> Tensor:
    """Row numbers from a number, numbers, or a mask."""
    places = torch.as_tensor(index).flatten().cpu()
    return places.nonzero().flatten() if places.dtype is torch.bool else places


def _explained_class(graph: _Graph) -> int:
    """The explained class, -1 where it is not known."""
    given, index = graph.one.get("target"), graph.one.get("index")
    target = torch.as_tensor(-1 if given is None else given).flatten()
    place = 0 if index is None or graph.level == "graph" else int(_numbers(index)[0])
    return int(target[place]) if place < target.numel() else -1


def _label(graph: _Graph) -> int | None:
    stored = getattr(graph.one, "_model_config", None) is None  # only explanations of predictions are
    asked = stored or graph.one.get("prediction") is not None
    if graph.whole is None or graph.whole.get("y") is None or graph.level == "edge" or not asked:
        return None
    return int(graph.whole.y.flatten()[graph.number if graph.level == "node" else 0])


def _title(graph: _Graph, name: str, right: tuple[bool, str] | None) -> str:
    """What is explained, and whether that is right and else what is."""
    index, word = graph.one.get("index"), "link" if graph.level == "edge" else graph.level
    if index is not None and _numbers(index).numel() > 1:
        return f"{_numbers(index).numel()} {word}s"
    what = f"{word} {graph.number}: {name}" if name else f"{word} {graph.number}"
    if right is None:
        return what
    return f"{what} (correct)" if right[0] else f"{what} (wrong, it is {right[1]})"


# --- what nodes are ------------------------------------------------------------------------------------------------------


class _Words(NamedTuple):
    """Names and groups of nodes [N], what groups are called, and what classes are."""

    names: list[str]
    group: list[int]
    groups: tuple[str, ...]
    class_names: tuple[str, ...]

    def class_name(self, number: int) -> str:
        if number < 0:
            return ""
        return str(self.class_names[number]) if number < len(self.class_names) else f"class {number}"


def _names_and_groups(
    graph: _Graph,
    names: Sequence[str] | None,
    classes: Tensor | Sequence[int] | None,
    class_names: Sequence[str] | None,
    targets: list[int],
    target: int,
) -> _Words:
    """What nodes are called and coloured by: what they are, else their class."""
    ids, data = graph.node_id.tolist(), graph.data
    for what, given in (("names", names), ("classes", classes)):
        if given is not None and ids and max(ids) >= len(given):
            raise InputError(f"{what} must have an entry for every node (got {len(given)} of them, and a node {max(ids)}).")
    called = tuple(class_names if class_names is not None else () if data is None else data.class_names)
    kinds: list[int] | None = None
    if graph.whole is not None and data is not None and data.node_names:
        kinds = graph.whole.x[graph.node_id].argmax(-1).tolist()
    mine = [""] * len(ids)
    if names is not None:
        mine = [str(names[n]) for n in ids]
    elif kinds is not None and data is not None:
        mine = [data.node_names[kind] for kind in kinds]
    if kinds is not None and classes is None and data is not None:
        return _Words(mine, kinds, data.node_names, called)
    group = _classes(graph, classes, targets, target)
    words = _Words(mine, group, (), called)
    return words._replace(groups=tuple(words.class_name(n) for n in range(max([len(called) - 1, *group]) + 1)))


def _classes(graph: _Graph, given: Tensor | Sequence[int] | None, targets: list[int], target: int) -> list[int]:
    """Class of each node as the caller says, else the true one, else what is known of predictions; -1 for none.

    On a computation graph that was cut out, the model's output is right for the explained node only.
    """
    if given is not None:
        known = torch.as_tensor(given)[graph.node_id]
    elif graph.level == "node" and graph.whole is not None and graph.whole.get("y") is not None:
        known = graph.whole.y[graph.node_id]
    elif graph.level == "node" and graph.one.get("node_id") is None and graph.one.get("target") is not None:
        known = graph.one.target.cpu().flatten()
    else:
        known = torch.full((graph.nodes,), -1)
        if graph.level == "node":
            known[targets] = target
    found: list[int] = known.tolist()
    return found


# --- nodes and edges as they are drawn -----------------------------------------------------------------------------------


class _Pairs(NamedTuple):
    """Pairs of nodes that edges join, [2, P], and then P values each for an :class:`Edge`."""

    ends: Tensor
    weight: Sequence[float | None]
    kept: Sequence[bool | None]
    truth: Sequence[bool]
    order: Sequence[float]


def _pairs(graph: _Graph, within: Tensor) -> _Pairs:
    low, high = graph.edge_index[:, within].sort(0).values
    base = max(graph.nodes, 1)
    number, pair_of = torch.unique(low * base + high, return_inverse=True)
    none = [None] * number.numel()

    def largest(value: Tensor) -> Tensor:
        """The larger value of the edges of each pair."""
        return torch.zeros(number.numel()).scatter_reduce(0, pair_of, value[within].float(), "amax", include_self=False)

    soft, hard = _soft(graph.one, "edge_mask", -1), _hard(graph.one, "edge_mask", -1)
    return _Pairs(
        torch.stack([number // base, number % base]),
        none if soft is None else largest(soft).tolist(),
        none if hard is None else largest(hard).bool().tolist(),
        largest(_truth(graph)[0]).bool().tolist(),
        largest(_order(graph)).tolist(),
    )


def _soft(one: Explanation, name: str, size: int) -> Tensor | None:
    """A soft mask as one number each; None where there is none, or one for all nodes."""
    mask: Tensor | None = one.get(name)
    if mask is None or (mask.dim() == 2 and mask.size(0) != size):
        return None
    mask = mask.detach().cpu().float().nan_to_num()
    return mask.mean(-1) if mask.dim() == 2 else mask


def _hard(one: Explanation, name: str, size: int) -> Tensor | None:
    soft = _soft(one, name, size)
    given: Tensor | None = one.get(f"hard_{name}")
    if soft is None or given is None:
        return None if soft is None else soft > HALF
    hard = given.detach().cpu() > HALF
    return hard.any(-1) if hard.dim() == 2 else hard


def _truth(graph: _Graph) -> tuple[Tensor, Tensor]:
    """Which edges [E] and nodes [N] are ground truth; none where it is not known."""
    known = graph.whole is not None and ("motif" in graph.whole or "edge_truth" in graph.whole)
    truth = graph.data.truth(graph.number) if graph.data is not None and known else None
    if truth is None:
        return torch.zeros(graph.edge_id.numel(), dtype=torch.bool), torch.zeros(graph.nodes, dtype=torch.bool)
    return truth.edge[graph.edge_id], truth.node[graph.node_id]


def _order(graph: _Graph) -> Tensor:
    """Bond order of each edge, [E]."""
    attributes = None if graph.whole is None else graph.whole.get("edge_attr")
    if graph.data is None or not graph.data.bonds or attributes is None:
        return torch.ones(graph.edge_id.numel())
    return torch.tensor(graph.data.bonds)[attributes[graph.edge_id].argmax(-1)]


def _present(graph: _Graph, ends: Tensor, targets: list[int]) -> Tensor:
    """Nodes that are shown, [n]: all of a graph, or those that messages to the output come from."""
    if graph.level == "graph":
        return torch.arange(graph.nodes)
    found: Tensor = torch.unique(torch.cat([ends.flatten(), torch.tensor(targets, dtype=torch.long)]))
    return found


def _nodes(graph: _Graph, words: _Words, present: list[int], at: Sequence[layout.Point], targets: set[int]) -> list[Node]:
    soft, hard = _soft(graph.one, "node_mask", graph.nodes), _hard(graph.one, "node_mask", graph.nodes)
    weight, kept = [None] * graph.nodes if soft is None else soft.tolist(), None if hard is None else hard.tolist()
    ids, truth = graph.node_id.tolist(), _truth(graph)[1].tolist()
    return [
        Node(
            id=ids[n],
            x=x,
            y=y,
            name=words.names[n],
            group=words.group[n],
            weight=weight[n],
            kept=None if kept is None else kept[n],
            target=n in targets,
            truth=truth[n],
        )
        for n, (x, y) in zip(present, at, strict=True)
    ]


def _hydrogens(nodes: list[Node], edges: list[Edge]) -> set[int]:
    """Places of the hydrogen atoms that have a bond, but none that is kept or true."""
    bound = {n for edge in edges for n in (edge.source, edge.end) if nodes[n].name == "H" and not nodes[n].kept}
    return bound - {n for edge in edges if edge.kept or edge.truth for n in (edge.source, edge.end)}


def _cut(nodes: list[Node], edges: list[Edge], gone: set[int], most: int) -> tuple[list[Node], list[Edge]]:
    """All but the nodes that go, and at most so many of the edges between them; nodes that lose all their edges go too."""
    found = [edge for edge in edges if edge.source not in gone and edge.end not in gone]
    stay = [n for n in range(len(nodes)) if n not in gone]
    lost = Counter(n for e in edges for n, other in ((e.source, e.end), (e.end, e.source)) if other in gone)
    if len(found) > most:
        strongest = sorted(found, key=lambda e: (not e.kept, -(e.weight or 0.0)))[:most]  # stable: ties stay in order
        found = sorted(strongest, key=lambda e: (e.source, e.end))
        joined = {n for edge in found for n in (edge.source, edge.end)}
        stay = [n for n in stay if n in joined or nodes[n].kept or nodes[n].target]
    place = {n: new for new, n in enumerate(stay)}
    drawn = [replace(nodes[n], hydrogens=lost[n]) if lost[n] else nodes[n] for n in stay]
    return drawn, [replace(e, source=place[e.source], end=place[e.end]) for e in found]
