"""Types of a heterogeneous graph whose nodes and edges are numbered through, type after type."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate
from typing import Any

EdgeType = tuple[str, str, str]
"""Source, relation and target, as PyG names a type of edges."""

TypeKey = str | EdgeType
"""A type of nodes or of edges."""

REVERSE = "rev_"
"""Begins the relation of a type of edges that is another one turned round, as PyG's ``ToUndirected`` names it."""


def type_text(key: TypeKey) -> str:
    """A type as one word; the parts of an edge type are joined as PyG joins them.

    >>> type_text(("paper", "cites", "paper"))
    'paper__cites__paper'
    """
    return key if isinstance(key, str) else "__".join(key)


@dataclass(frozen=True)
class GraphTypes:
    """Which numbers of a flat graph belong to which type.

    Args:
        node_types, edge_types: names, in the order of their blocks.
        nodes, edges: number of nodes of each node type, and of edges of each edge type.
        widths: number of features of each node type that can be masked; 0 for none.
        kinds: a number for each edge type, which it shares with its reverse.
        output: node type that the model's rows stand for, at node level.
        pairs_name, pair_types: at link level, the argument with the scored pairs, and the types of their ends.
        edge_widths: number of attributes of each edge type that can be masked; 0 for none. Empty if none has any.

    >>> types = GraphTypes(("author", "paper"), (3, 5), (("author", "wrote", "paper"),), (7,), (4, 4), (0,))
    >>> types.node(4), types.edge(2), types.node_label(4), types.node_number("paper", 1)
    (('paper', 1), (('author', 'wrote', 'paper'), 2), 'paper 1', 4)
    """

    node_types: tuple[str, ...]
    nodes: tuple[int, ...]
    edge_types: tuple[EdgeType, ...]
    edges: tuple[int, ...]
    widths: tuple[int, ...]
    kinds: tuple[int, ...]
    output: str | None = None
    pairs_name: str | None = None
    pair_types: tuple[str, str] | None = None
    edge_widths: tuple[int, ...] = ()

    @cached_property
    def node_starts(self) -> list[int]:
        """First node of each type, and the number of all nodes."""
        return list(accumulate(self.nodes, initial=0))

    @cached_property
    def edge_starts(self) -> list[int]:
        """First edge of each type, and the number of all edges."""
        return list(accumulate(self.edges, initial=0))

    def type_of_node(self, number: int) -> int:
        """Position of a node's type."""
        return bisect_right(self.node_starts, number, hi=len(self.node_types)) - 1

    def node(self, number: int) -> tuple[str, int]:
        """Type of a node, and its number among the nodes of that type."""
        kind = self.type_of_node(number)
        return self.node_types[kind], number - self.node_starts[kind]

    def node_number(self, kind: str, local: int) -> int:
        """Number of a node in the flat graph."""
        return self.node_starts[self.node_types.index(kind)] + local

    def edge(self, number: int) -> tuple[EdgeType, int]:
        """Type of an edge, and its number among the edges of that type."""
        kind = bisect_right(self.edge_starts, number, hi=len(self.edge_types)) - 1
        return self.edge_types[kind], number - self.edge_starts[kind]

    def kind_of_edge(self, number: int) -> int:
        """The number that an edge's type shares with its reverse."""
        return self.kinds[bisect_right(self.edge_starts, number, hi=len(self.edge_types)) - 1]

    def node_label(self, number: int) -> str:
        """A node by its type and number, such as ``"author 17"``."""
        return "{} {}".format(*self.node(number))

    def as_plain_data(self) -> dict[str, Any]:
        """These types as data that JSON can hold; :meth:`from_plain_data` reads them."""
        return {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None}

    @classmethod
    def from_plain_data(cls, plain: Mapping[str, Any]) -> GraphTypes:
        """Types from the data of :meth:`as_plain_data`."""
        return cls(**{name: _as_tuple(value) for name, value in plain.items()})


def relation_words(relation: str) -> str:
    """A relation as people read it; a reverse is read like what it reverses.

    >>> relation_words("rev_presented_at")
    'presented at'
    """
    return relation.removeprefix(REVERSE).replace("_", " ")


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
