"""Patterns as text: SMARTS for molecules, rules for features, words for graphs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from nseg.pattern.typed_graph import ANY, NO_HOPS, NodeLabel, TypedGraph
from nseg.pattern.vocabulary import ATOMIC_NUMBERS, Vocabulary
from nseg.wording import plural

BONDS = {"1": "-,:", "1.5": ":", "2": "=,:", "3": "#", "": "~"}
"""Bonds in SMARTS. Other tools may see an aromatic bond where a dataset has single and double ones."""


def pattern_text(graphs: Sequence[TypedGraph], vocabulary: Vocabulary) -> str:
    """A pattern as text, its parts joined by "and"."""
    return " and ".join(sorted(part_text(graph, vocabulary) for graph in graphs))


def part_text(graph: TypedGraph, vocabulary: Vocabulary) -> str:
    """A connected part of a pattern as text."""
    if not graph.edges:
        return _node_text(graph.nodes[0], vocabulary)
    if vocabulary.molecule:
        return smarts(graph)
    return structure_text(graph, vocabulary)


# --- rules ---------------------------------------------------------------------------------------------------------------


def _node_text(label: NodeLabel, vocabulary: Vocabulary) -> str:
    """One node: its conditions or its kind, and where it is."""
    if label.target is None:  # features of all nodes
        return ", ".join(f"{vocabulary.names.feature(one.feature)} (of all nodes)" for one in sorted(label.conditions))
    asked = [vocabulary.condition_text(one) for one in sorted(label.conditions)]
    asked = ([label.name or label.kind] if label.kind != ANY else []) + asked
    return f"{' and '.join(asked) or 'a node'} {_place(label)}".strip()


def _place(label: NodeLabel) -> str:
    if label.target:
        return "at the target"
    if label.hops == NO_HOPS:
        return "at a node" if label.conditions else ""
    return "at a neighbour" if label.hops == 1 else f"{plural(label.hops, 'step')} away"


# --- structure -----------------------------------------------------------------------------------------------------------


def structure_text(graph: TypedGraph, vocabulary: Vocabulary) -> str:
    """A graph in words: its shape if it has a name, kinds along a path, where the target is, and conditions."""
    kinds = {node.kind for node in graph.nodes}
    order = _path_order(graph)
    if kinds != {ANY} and order is not None:
        text = _typed_path(graph, order)
    else:
        text = shape_name(graph) + (f" of {_kinds_text(graph)}" if kinds != {ANY} else "")
        degrees = [len(graph.neighbours[n]) for n, node in enumerate(graph.nodes) if node.target]
        text += f", target with {plural(degrees[0], 'edge')}" if degrees else ""
        hops = sorted({node.hops for node in graph.nodes} - {NO_HOPS})
        if hops:
            text += f" {' and '.join(map(str, hops))} {'step' if hops == [1] else 'steps'} from the target"
    rules = [
        f"{vocabulary.condition_text(one)}{' at the target' if node.target else ''}"
        for node in graph.nodes
        for one in sorted(node.conditions)
    ]
    return text + (f" with {', '.join(sorted(rules))}" if rules else "")


def shape_name(graph: TypedGraph) -> str:
    """Name of a graph's shape.

    >>> a = NodeLabel()
    >>> shape_name(TypedGraph((a, a, a), {(0, 1): "", (1, 2): "", (0, 2): ""}))
    'triangle'
    """
    nodes, edges = len(graph.nodes), len(graph.edges)
    degrees = sorted(map(len, graph.neighbours))
    if edges == 1:
        return "edge"
    if edges == nodes - 1:
        kind = "path" if degrees[-1] == 2 else "star" if degrees[-1] == edges else "tree"
        return f"{kind} of {edges} edges"
    if edges == nodes and degrees[0] == degrees[-1] == 2:
        return "triangle" if nodes == 3 else f"cycle of {nodes} nodes"
    if degrees == [2, 2, 2, 3, 3] and _triangles(graph) == 1:
        return "house"
    return f"graph of {nodes} nodes and {edges} edges"


def _triangles(graph: TypedGraph) -> int:
    near = graph.neighbours
    return sum(len([n for n in near[a] & near[b] if n > max(a, b)]) for a, b in graph.edges)


def _kinds_text(graph: TypedGraph) -> str:
    counts: dict[str, int] = {}
    for node in graph.nodes:
        counts[node.name or node.kind] = counts.get(node.name or node.kind, 0) + 1
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))


def _path_order(graph: TypedGraph) -> list[int] | None:
    """Nodes along a path, from the target if it is an end; None if the graph is no path."""
    ends = [n for n in range(len(graph.nodes)) if len(graph.neighbours[n]) == 1]
    if len(ends) != 2 or len(graph.edges) != len(graph.nodes) - 1:
        return None
    order = [min(ends, key=lambda n: (not graph.nodes[n].target, graph.nodes[n].kind, n))]
    while len(order) < len(graph.nodes):
        (following,) = graph.neighbours[order[-1]] - set(order)
        order.append(following)
    return order


def _typed_path(graph: TypedGraph, order: Sequence[int]) -> str:
    """A path of typed nodes, such as ``author* - paper - conference``; the star marks the target."""
    words = [_marked_kind(graph.nodes[order[0]])]
    for a, b in pairwise(order):
        forward, label = (a, b) in graph.edges, graph.edges.get((a, b), graph.edges.get((b, a), ""))
        arrow = "-" if not graph.directed else ">" if forward else "<"
        words.append(f"{arrow}[{label}]{arrow}" if label else {"-": "-", ">": "->", "<": "<-"}[arrow])
        words.append(_marked_kind(graph.nodes[b]))
    return " ".join(words)


def _marked_kind(label: NodeLabel) -> str:
    return (label.name or ("any" if label.kind == ANY else label.kind)) + ("*" if label.target else "")


# --- molecules -----------------------------------------------------------------------------------------------------------


def smarts(graph: TypedGraph) -> str:
    """A molecule's pattern as SMARTS.

    Atoms match aromatic and other atoms alike. Hydrogens at the end of a bond become a condition on the number of
    hydrogens of their neighbour, so that the pattern is found with and without explicit hydrogens.

    >>> nitro = TypedGraph((NodeLabel("N"), NodeLabel("O"), NodeLabel("O")), {(0, 1): "2", (0, 2): "2"})
    >>> smarts(nitro)
    '[#8]=,:[#7]=,:[#8]'
    """
    heavy = [n for n in range(len(graph.nodes)) if not _folded(graph, n)]
    return min((_walk(graph, start) for start in heavy), key=lambda text: (len(text), text))


def _folded(graph: TypedGraph, node: int) -> bool:
    """Whether a node is a hydrogen that is written as a property of its neighbour."""
    near = graph.neighbours[node]
    return graph.nodes[node].kind == "H" and len(near) == 1 and all(graph.nodes[n].kind not in ("H", ANY) for n in near)


def _walk(graph: TypedGraph, start: int) -> str:
    """SMARTS from a depth-first walk that begins at a node; edges that close a ring get a number."""
    seen: set[int] = set()
    tree: dict[int, list[int]] = {}
    rings: dict[int, list[tuple[int, str]]] = {}
    closed: set[tuple[int, int]] = set()

    def visit(node: int, parent: int) -> None:
        seen.add(node)
        tree[node] = []
        for other in sorted(_near(graph, node), key=lambda n: (-len(graph.neighbours[n]), graph.nodes[n].kind, n)):
            if other not in seen:
                tree[node].append(other)
                visit(other, node)
            elif other != parent and graph.key(node, other) not in closed:
                closed.add(graph.key(node, other))
                number, bond = len(closed), BONDS.get(graph.edges[graph.key(node, other)], "~")
                rings.setdefault(other, []).append((number, bond))
                rings.setdefault(node, []).append((number, bond))

    visit(start, -1)

    @cache
    def write(node: int) -> str:
        ring = "".join(f"{bond}{n if n < 10 else f'%{n}'}" for n, bond in rings.get(node, []))
        tails = [f"{BONDS.get(graph.edges[graph.key(node, n)], '~')}{write(n)}" for n in tree[node]]
        tails.sort(key=lambda text: (len(text), text))
        return _atom(graph, node) + ring + "".join(f"({tail})" for tail in tails[:-1]) + "".join(tails[-1:])

    return write(start)


def _near(graph: TypedGraph, node: int) -> list[int]:
    return [n for n in graph.neighbours[node] if n != node and not _folded(graph, n)]


def _atom(graph: TypedGraph, node: int) -> str:
    """An atom in SMARTS, with the least number of its hydrogens."""
    kind = graph.nodes[node].kind
    name = "*" if kind == ANY else f"#{ATOMIC_NUMBERS[kind]}"
    hydrogens = sum(_folded(graph, n) for n in graph.neighbours[node])
    return f"[{name}{''.join(f';!H{n}' for n in range(hydrogens))}]"
