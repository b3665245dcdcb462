"""Occurrences of a pattern in a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field

from nseg.pattern.typed_graph import Edge, TypedGraph

Occurrence = tuple[int, ...]
"""Node of the graph that each node of the pattern is found at."""


class OccurrenceSearch:
    """Finds a connected pattern in a graph: different nodes for different nodes, labels that match, all edges there.

    The graph may have further edges between the nodes (a monomorphism, not an induced subgraph).

    Args:
        pattern, graph: what is searched, and where.
        effort: number of candidates after which the search gives up.
        candidates: nodes of the graph that each node of the pattern may be; by default those whose labels match.

    Attributes:
        complete: whether the search ended before it gave up, so that what it has not found is not there.
    """

    def __init__(
        self, pattern: TypedGraph, graph: TypedGraph, effort: int, candidates: Sequence[Set[int]] | None = None
    ) -> None:
        self.pattern, self.graph, self.steps_left = pattern, graph, effort
        self.candidates = candidates or [graph.compatible(label) for label in pattern.nodes]
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


# --- all occurrences together --------------------------------------------------------------------------------------------


@dataclass
class OccurrenceCover:
    """What is in some occurrence of a pattern.

    Args:
        edges: edges of the graph.
        places: nodes of the pattern, and the nodes of the graph that they are found at. Not all of those that edges name.
        complete: whether the search ended before it gave up.
    """

    edges: set[Edge] = field(default_factory=set)
    places: set[tuple[int, int]] = field(default_factory=set)
    complete: bool = True


def cover_occurrences(pattern: TypedGraph, graph: TypedGraph, effort: int) -> OccurrenceCover:
    """All edges that are in some occurrence, and all places of nodes with conditions and of single nodes.

    Occurrences are not listed, of which there may be millions: one is searched for each edge that is in none so far.

    Args:
        pattern, graph: what is searched, and where.
        effort: number of candidates after which the search gives up.
    """
    found, candidates, left = OccurrenceCover(), consistent_candidates(pattern, graph), effort
    for pinned in _pins(pattern, graph, candidates, found):
        search = OccurrenceSearch(pattern, graph, left, [pinned.get(n, one) for n, one in enumerate(candidates)])
        places = next(iter(search), None)
        left = search.steps_left
        if places is not None:
            found.edges |= occurrence_edges(pattern, graph, places)
            found.places |= set(enumerate(places))
        elif not search.complete:
            found.complete = False
            break
    return found


def _pins(
    pattern: TypedGraph, graph: TypedGraph, candidates: Sequence[Set[int]], found: OccurrenceCover
) -> Iterator[dict[int, Set[int]]]:
    """Places of one or two nodes of the pattern, with which an occurrence would add to what was found until then."""
    for (u, v), label in pattern.edges.items():
        for a in sorted(candidates[u]):
            for b in sorted(candidates[v] & graph.neighbours[a]):
                key = graph.key(a, b)
                if key not in found.edges and graph.edges.get(key) == label:
                    yield {u: {a}, v: {b}}
    for n, node in enumerate(pattern.nodes):
        if node.conditions or not pattern.neighbours[n]:
            for a in sorted(candidates[n]):
                if (n, a) not in found.places:
                    yield {n: {a}}


def consistent_candidates(pattern: TypedGraph, graph: TypedGraph) -> list[Set[int]]:
    """Nodes of the graph that may be each node of the pattern: each has neighbours that may be its neighbours."""
    near = graph.neighbours
    found = [
        {a for a in graph.compatible(label) if len(near[a]) >= len(pattern.neighbours[n])}
        for n, label in enumerate(pattern.nodes)
    ]
    pending = set(range(len(found)))
    while pending:
        changed = pending.pop()
        for other in pattern.neighbours[changed] - {changed}:
            left = {a for a in found[other] if not near[a].isdisjoint(found[changed])}
            if len(left) < len(found[other]):
                found[other] = left
                pending.add(other)
    return list(found)
