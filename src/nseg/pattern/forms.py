"""Canonical forms: graphs that differ only in the numbers of their nodes get one number."""

from __future__ import annotations

from typing import Any

from nseg.pattern.typed_graph import TypedGraph

Signature = tuple[object, ...]


class FormCatalogue:
    """Numbers of graphs up to isomorphism, in the order in which they are first seen.

    Weisfeiler-Leman colours tell most graphs apart; graphs with equal colours are compared exactly by networkx.

    >>> from nseg.pattern.typed_graph import NodeLabel
    >>> forms = FormCatalogue()
    >>> a, b = NodeLabel("C"), NodeLabel("N")
    >>> forms.number(TypedGraph((a, b), {(0, 1): ""})), forms.number(TypedGraph((b, a), {(0, 1): ""}))
    (0, 0)
    """

    def __init__(self) -> None:
        self.graphs: list[TypedGraph] = []
        self._colours: dict[Signature, int] = {}
        self._numbers: dict[Signature, list[int]] = {}

    def __len__(self) -> int:
        return len(self.graphs)

    def number(self, graph: TypedGraph) -> int:
        """Number of a graph; a new one if no isomorphic graph was seen before."""
        same_colours = self._numbers.setdefault((graph.directed, len(graph.edges), *sorted(self.colours(graph))), [])
        for known in same_colours:
            if are_isomorphic(self.graphs[known], graph):
                return known
        self.graphs.append(graph)
        same_colours.append(len(self.graphs) - 1)
        return same_colours[-1]

    def colours(self, graph: TypedGraph) -> list[int]:
        """Weisfeiler-Leman colour of each node: equal for nodes with equal labels and equally coloured neighbours."""
        colours = [self._colour(("node", label)) for label in graph.nodes]
        around: list[list[tuple[int, str, int]]] = [[] for _ in graph.nodes]
        for (a, b), label in graph.edges.items():
            around[a].append((int(graph.directed), label, b))
            around[b].append((2 * int(graph.directed), label, a))
        for _ in graph.nodes:
            seen = len(set(colours))
            colours = [
                self._colour((own, *sorted((way, label, colours[n]) for way, label, n in around[node])))
                for node, own in enumerate(colours)
            ]
            if len(set(colours)) == seen:
                break
        return colours

    def _colour(self, signature: Signature) -> int:
        return self._colours.setdefault(signature, len(self._colours))


def are_isomorphic(a: TypedGraph, b: TypedGraph) -> bool:
    """Whether two graphs differ only in the numbers of their nodes."""
    if (a.nodes, a.edges) == (b.nodes, b.edges):
        return True
    from networkx.algorithms.isomorphism import DiGraphMatcher, GraphMatcher

    matcher = DiGraphMatcher if a.directed else GraphMatcher
    same = matcher(as_networkx(a), as_networkx(b), node_match=_equal_labels, edge_match=_equal_labels)
    return bool(same.is_isomorphic())


def _equal_labels(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return bool(a["label"] == b["label"])


def as_networkx(graph: TypedGraph) -> Any:
    """A networkx graph whose nodes and edges have an attribute ``label``."""
    import networkx as nx

    found = nx.DiGraph() if graph.directed else nx.Graph()
    found.add_nodes_from((n, {"label": label}) for n, label in enumerate(graph.nodes))
    found.add_edges_from((a, b, {"label": label}) for (a, b), label in graph.edges.items())
    return found
