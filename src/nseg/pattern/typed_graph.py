"""Small graphs with labels: what explanations keep, what patterns are, and where they are searched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

ANY = "*"
"""Kind of a node of which the explanation keeps the place, but not the kind."""

NO_HOPS = -1
"""Distance to the target of nodes for which it does not matter."""

Edge = tuple[int, int]


class Condition(NamedTuple):
    """What a pattern asks of a feature of a node.

    Args:
        feature: number of the feature.
        relation: ``"="``, ``">"``, ``"<="`` or ``"!="``.
        value: what the feature is compared with.
    """

    feature: int
    relation: str
    value: float


class NodeLabel(NamedTuple):
    """What is known of a node, or asked of it.

    Args:
        kind: type of the node, a one-hot feature or a chemical element; ``ANY`` in a pattern asks nothing.
        conditions: conditions that its features meet.
        hops: number of edges to the explained node; ``NO_HOPS`` in a pattern asks nothing.
        target: whether the node is explained; None in a pattern asks nothing.
        name: name of a node that is told apart from others of its kind; ``""`` in a pattern asks nothing.
    """

    kind: str = ANY
    conditions: frozenset[Condition] = frozenset()
    hops: int = NO_HOPS
    target: bool | None = False
    name: str = ""

    def matches(self, node: NodeLabel) -> bool:
        """Whether a node is what this label asks for.

        >>> NodeLabel("N").matches(NodeLabel("N", hops=2)), NodeLabel("N").matches(NodeLabel("O"))
        (True, False)
        """
        return (
            self.kind in (ANY, node.kind)
            and self.conditions <= node.conditions
            and self.hops in (NO_HOPS, node.hops)
            and self.target in (None, node.target)
            and self.name in ("", node.name)
        )


@dataclass(frozen=True)
class TypedGraph:
    """A graph whose nodes and edges have labels.

    The types of a heterogeneous graph fit in here: node types are kinds, edge types are edge labels.

    Args:
        nodes: label of each node.
        edges: label of each edge, ``""`` for none. The smaller node comes first unless the graph is directed.
        directed: whether the direction of edges matters.
    """

    nodes: tuple[NodeLabel, ...]
    edges: Mapping[Edge, str]
    directed: bool = False
    _compatible: dict[NodeLabel, frozenset[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def neighbours(self) -> tuple[frozenset[int], ...]:
        """Neighbours of each node, whatever the direction of the edge."""
        found: list[set[int]] = [set() for _ in self.nodes]
        for a, b in self.edges:
            found[a].add(b)
            found[b].add(a)
        return tuple(frozenset(one) for one in found)

    @cached_property
    def size(self) -> int:
        """Number of edges and conditions; a node alone without conditions counts as one."""
        conditions = sum(len(node.conditions) for node in self.nodes)
        alone = sum(not near and not node.conditions for near, node in zip(self.neighbours, self.nodes, strict=True))
        return len(self.edges) + conditions + alone

    def key(self, a: int, b: int) -> Edge:
        """The edge between two nodes, as it is numbered in :attr:`edges`."""
        return (a, b) if self.directed or a <= b else (b, a)

    def compatible(self, label: NodeLabel) -> frozenset[int]:
        """Nodes that are what a label asks for; remembered, because patterns share labels."""
        if label not in self._compatible:
            self._compatible[label] = frozenset(n for n, node in enumerate(self.nodes) if label.matches(node))
        return self._compatible[label]

    def part(self, chosen: Iterable[int], edges: Iterable[Edge] | None = None) -> TypedGraph:
        """The graph of some nodes, in their order, with all edges between them or with given ones."""
        position = {node: n for n, node in enumerate(chosen)}
        kept = [e for e in self.edges if e[0] in position and e[1] in position] if edges is None else edges
        renamed = {(position[a], position[b]): self.edges[a, b] for a, b in kept}
        if not self.directed:
            renamed = {(min(e), max(e)): label for e, label in renamed.items()}
        return TypedGraph(tuple(self.nodes[n] for n in position), renamed, self.directed)

    def components(self) -> list[list[int]]:
        """Nodes of each connected component, in ascending order."""
        seen: set[int] = set()
        found = []
        for start in range(len(self.nodes)):
            if start not in seen:
                members, front = {start}, [start]
                while front:
                    new = self.neighbours[front.pop()] - members
                    members |= new
                    front += new
                seen |= members
                found.append(sorted(members))
        return found

    def distances(self, sources: Iterable[int]) -> list[int]:
        """Number of edges from the nearest source to each node; ``NO_HOPS`` if there is no path."""
        found = [NO_HOPS] * len(self.nodes)
        front = sorted(set(sources))
        for node in front:
            found[node] = 0
        while front:
            new = sorted({n for node in front for n in self.neighbours[node] if found[n] == NO_HOPS})
            for node in new:
                found[node] = 1 + min(found[n] for n in self.neighbours[node] if found[n] != NO_HOPS)
            front = new
        return found
