"""Occurrences of a pattern in a graph."""

from __future__ import annotations

from collections.abc import Iterator

from nseg.pattern.typed_graph import Edge, TypedGraph

Occurrence = tuple[int, ...]
"""Node of the graph that each node of the pattern is found at."""


class OccurrenceSearch:
    """Finds a connected pattern in a graph: different nodes for different nodes, labels that match, all edges there.

    The graph may have further edges between the nodes (a monomorphism, not an induced subgraph).

    Args:
        pattern, graph: what is searched, and where.
        effort: number of candidates after which the search gives up.

    Attributes:
        complete: whether the search ended before it gave up, so that what it has not found is not there.
    """

    def __init__(self, pattern: TypedGraph, graph: TypedGraph, effort: int) -> None:
        self.pattern, self.graph, self.steps_left = pattern, graph, effort
        self.candidates = [graph.compatible(label) for label in pattern.nodes]
        self.order = self._order()
        self.complete = True

    def __iter__(self) -> Iterator[Occurrence]:
        possible = len(self.graph.edges) >= len(self.pattern.edges) and all(self.candidates)
        if possible:
            yield from self._extend({}, set())

    def _order(self) -> list[int]:
        """Nodes of the pattern: first the one with the fewest candidates, then always one next to an earlier one."""

        def rarity(node: int) -> tuple[int, int]:
            return len(self.candidates[node]), -len(self.pattern.neighbours[node])

        order = [min(range(len(self.pattern.nodes)), key=rarity)]
        while len(order) < len(self.pattern.nodes):
            reached = set(order)
            front = {n for node in order for n in self.pattern.neighbours[node]} - reached
            # the node with most edges to earlier ones leaves the fewest candidates
            order.append(min(front, key=lambda n: (-len(self.pattern.neighbours[n] & reached), *rarity(n), n)))
        return order

    def _extend(self, found: dict[int, int], used: set[int]) -> Iterator[Occurrence]:
        if len(found) == len(self.order):
            yield tuple(found[n] for n in range(len(found)))
            return
        node = self.order[len(found)]
        for place in self._places(node, found):
            if self.steps_left <= 0:
                self.complete = False
                return
            self.steps_left -= 1
            if place not in used and self._joined(node, place, found):
                yield from self._extend({**found, node: place}, used | {place})

    def _places(self, node: int, found: dict[int, int]) -> list[int]:
        """Nodes of the graph that may be this node of the pattern."""
        places = self.candidates[node]
        for other in self.pattern.neighbours[node]:
            if other in found:
                places = places & self.graph.neighbours[found[other]]
        needed = len(self.pattern.neighbours[node])
        return sorted(place for place in places if len(self.graph.neighbours[place]) >= needed)

    def _joined(self, node: int, place: int, found: dict[int, int]) -> bool:
        """Whether all edges between this node and earlier ones are in the graph, with equal labels."""
        for other in (*(self.pattern.neighbours[node] & found.keys()), node):
            at = place if other == node else found[other]
            for key, mapped in (((node, other), (place, at)), ((other, node), (at, place))):
                label = self.pattern.edges.get(key)
                if label is not None and self.graph.edges.get(self.graph.key(*mapped)) != label:
                    return False
        return True


def first_occurrence(pattern: TypedGraph, graph: TypedGraph, effort: int) -> Occurrence | None:
    """One occurrence; None if there is none, or none was found within the effort."""
    return next(iter(OccurrenceSearch(pattern, graph, effort)), None)


def occurrence_edges(pattern: TypedGraph, graph: TypedGraph, places: Occurrence) -> set[Edge]:
    """Edges of the graph that an occurrence consists of."""
    return {graph.key(places[a], places[b]) for a, b in pattern.edges}
