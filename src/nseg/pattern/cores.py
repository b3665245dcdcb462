"""Common cores: smaller patterns that explanations share, although few of them keep exactly the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from nseg.pattern.typed_graph import TypedGraph

BEAM = 4
"""Patterns of each size that are made smaller."""

LEAST_EDGES = 2
"""Cores have at least this many edges: a single edge is seldom more than a part of a better core."""


def common_cores(
    seeds: Iterable[int], smaller: Callable[[int], Iterable[int]], worth: Callable[[int], float]
) -> list[tuple[int, float]]:
    """Patterns that are found by taking one edge after the other out of others, the most valuable first.

    Args:
        seeds: numbers of the patterns to begin with.
        smaller: numbers of the patterns with one edge less.
        worth: what a pattern is worth; asked once each.

    Returns:
        numbers of all patterns that were met, seeds included, with their worth.

    >>> divisors = {12: [6, 4], 6: [3, 2], 4: [2], 3: [], 2: []}
    >>> common_cores([12], divisors.__getitem__, lambda n: -abs(n - 3.5))
    [(4, -0.5), (3, -0.5), (2, -1.5), (6, -2.5), (12, -8.5)]
    """
    known = {seed: worth(seed) for seed in seeds}
    front = list(known)
    while front:
        best = sorted(front, key=known.__getitem__, reverse=True)[:BEAM]
        front = list(dict.fromkeys(less for one in best for less in smaller(one) if less not in known))
        known |= {one: worth(one) for one in front}
    return sorted(known.items(), key=lambda one: -one[1])


def one_edge_less(graph: TypedGraph) -> Iterator[TypedGraph]:
    """The connected graphs with one edge less; a node that loses its only edge goes with it."""
    if len(graph.edges) <= LEAST_EDGES:
        return
    for edge in graph.edges:
        left = [other for other in graph.edges if other != edge]
        nodes = sorted({n for other in left for n in other})
        part = graph.part(nodes, left)
        if len(part.components()) == 1 and _keeps_target(graph, part):
            yield part


def _keeps_target(graph: TypedGraph, part: TypedGraph) -> bool:
    """Whether the target is still there, if there was one: distances to it were dropped when it was found inside."""
    return not any(node.target for node in graph.nodes) or any(node.target for node in part.nodes)


def spread(items: Sequence[int], most: int) -> list[int]:
    """At most so many items, evenly spread.

    >>> spread(range(10), 3)
    [0, 3, 6]
    """
    step = max(len(items) / most, 1.0)
    return [items[int(n * step)] for n in range(min(len(items), most))]
