"""Positions of nodes: a deterministic function of the graph alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial.distance import cdist

from nseg.plot import chemistry

MAX_SMALL_NODES = 60
"""Up to this size, all edges have the same length and distances are computed densely."""

MAX_ORDERED_NODES = 20
"""Up to this size, graphs that differ only in the numbers of their nodes are drawn alike, and placed once."""

MAX_STRESS_NODES = 600
"""Up to this size, all graph distances are fitted (stress); larger graphs only fit the distances to some pivots."""

MIN_EDGE_LENGTH = 0.3
"""Length of edges far from the focus; an edge at the focus has length 1."""

PIVOTS = 50
STRESS_ROUNDS = 100

Point = tuple[float, float]
Array = NDArray[np.float64]


def positions(
    nodes: int,
    pairs: Sequence[Sequence[int]],
    *,
    focus: Sequence[int] = (),
    symbols: Sequence[str] | None = None,
    orders: Sequence[float] = (),
) -> list[Point]:
    """Position of each node in the unit square.

    Args:
        nodes: number of nodes.
        pairs: pairs of nodes that edges join.
        focus: explained nodes; a large graph is drawn larger near them.
        symbols: chemical element of each node, for molecules; RDKit then gives the positions, if it is installed.
        orders: bond order of each pair.
    """
    if symbols is None and nodes <= MAX_ORDERED_NODES:  # a report holds thousands of them, and few that differ
        order = _canonical_order(nodes, pairs)
        rank = {node: position for position, node in enumerate(order)}
        same = sorted(tuple(sorted((rank[a], rank[b]))) for a, b in pairs if a != b)
        points = _positions(nodes, tuple(zip(*same, strict=True)) if same else ((), ()), (), None, ())
        return [points[rank[node]] for node in range(nodes)]
    small = nodes <= MAX_SMALL_NODES  # needs no focus
    ends = tuple(zip(*pairs, strict=True)) if pairs else ((), ())
    return list(
        _positions(nodes, ends, () if small else tuple(focus), None if symbols is None else tuple(symbols), tuple(orders))
    )


@lru_cache(maxsize=4096)
def _positions(
    nodes: int,
    both_ends: tuple[tuple[int, ...], ...],
    focus: tuple[int, ...],
    symbols: tuple[str, ...] | None,
    orders: tuple[float, ...],
) -> tuple[Point, ...]:
    """Positions, computed once for graphs that are equal: reports hold thousands of small ones."""
    pairs = list(zip(*both_ends, strict=True))
    joined = [pair for pair in pairs if pair[0] != pair[1]]
    ends = np.array(joined, dtype=np.int32).reshape(-1, 2)  # 32 bits, because SciPy 1.11 takes no others
    graph = _SmallGraph(ends, nodes) if nodes <= MAX_SMALL_NODES else _LargeGraph(ends, nodes)
    components = graph.components()
    points = _atom_positions(symbols, pairs, orders) if symbols else None
    if points is None:
        points = np.zeros((nodes, 2))
        for members in components:
            placed = _fill_unit_square(graph.place(members, focus))
            points[members] = math.sqrt(len(members)) * placed
    corners = _box_corners([np.ptp(points[members], 0) for members in components])
    for members, corner in zip(components, corners, strict=True):
        points[members] += corner - points[members].min(0)
    return tuple((x, y) for x, y in _fill_unit_square(points).tolist())


def _canonical_order(nodes: int, pairs: Sequence[Sequence[int]]) -> list[int]:
    """An order of the nodes that follows from the graph alone, for trees and most other small graphs.

    Nodes are told apart by what surrounds them (Weisfeiler and Leman); of nodes that look alike, one is set apart, which
    tells others apart, and so on.
    """
    neighbours: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in pairs:
        if a != b:
            neighbours[a].append(b)
            neighbours[b].append(a)
    kind, kinds = [len(near) for near in neighbours], 0
    while True:
        seen = [(kind[n], *sorted(kind[m] for m in neighbours[n])) for n in range(nodes)]
        rank = {one: number for number, one in enumerate(sorted(set(seen)))}
        kind = [2 * rank[one] for one in seen]
        if len(rank) == nodes:
            return sorted(range(nodes), key=kind.__getitem__)
        if len(rank) == kinds:  # nothing new: the first node of a kind that several share is set apart
            kind[next(n for n in range(nodes) if kind.count(kind[n]) > 1)] += 1
        kinds = len(rank)


def _atom_positions(symbols: Sequence[str], pairs: Sequence[Sequence[int]], orders: Sequence[float]) -> Array | None:
    """Positions of atoms, scaled to bonds of length 1; None if RDKit has none."""
    found = chemistry.coordinates(symbols, pairs, orders)
    return None if found is None else np.array(found) / chemistry.BOND_LENGTH


# --- one connected graph -------------------------------------------------------------------------------------------------


class _SmallGraph:
    """A graph whose distances are all known at once; dense, because most drawn graphs have a dozen nodes."""

    def __init__(self, ends: NDArray[np.int32], nodes: int) -> None:
        distance = np.full((nodes, nodes), np.inf)
        distance[ends[:, 0], ends[:, 1]] = distance[ends[:, 1], ends[:, 0]] = 1.0
        distance[range(nodes), range(nodes)] = 0.0
        for via in range(nodes):  # Floyd and Warshall
            np.minimum(distance, distance[:, via, None] + distance[via], out=distance)
        self.distance = distance

    def components(self) -> list[NDArray[np.int64]]:
        """Nodes of each connected component, the largest first."""
        if not len(self.distance):
            return []
        first = np.isfinite(self.distance).argmax(1)  # the smallest node of each node's component
        found = [np.flatnonzero(first == number) for number in dict.fromkeys(first.tolist())]
        return sorted(found, key=lambda members: (-len(members), members[0]))

    def place(self, members: NDArray[np.int64], focus: Sequence[int]) -> Array:
        """Positions of the nodes of a component, [n, 2]; a small graph needs no focus."""
        if len(members) <= 2:
            return _on_a_line(len(members))
        distance = self.distance if len(members) == len(self.distance) else self.distance[np.ix_(members, members)]
        return _rotate_wide(_minimise_stress(distance, _separate(_pivot_scaling(distance))))


class _LargeGraph:
    """A sparse graph; distances are computed for each component."""

    def __init__(self, ends: NDArray[np.int32], nodes: int) -> None:
        both = np.r_[ends[:, 0], ends[:, 1]], np.r_[ends[:, 1], ends[:, 0]]
        self.graph = csr_array((np.ones(2 * len(ends)), both), (nodes, nodes))

    def components(self) -> list[NDArray[np.int64]]:
        """Nodes of each connected component, the largest first."""
        _, component_of = connected_components(self.graph, directed=False)
        found = [np.flatnonzero(component_of == number) for number in np.unique(component_of)]
        return sorted(found, key=lambda members: (-len(members), members[0]))

    def place(self, members: NDArray[np.int64], focus: Sequence[int]) -> Array:
        """Positions of the nodes of a component, [n, 2]; nodes near the focus get more room."""
        if len(members) <= 2:
            return _on_a_line(len(members))
        part = self.graph[members][:, members]
        lengths = _edge_lengths(part, np.flatnonzero(np.isin(members, focus)))
        # Lengths are symmetric, so that the faster search along directed edges is right.
        distance = dijkstra(lengths) if len(members) <= MAX_STRESS_NODES else None
        points = _separate(_pivot_scaling(_pivot_distances(lengths, len(members))))
        return _rotate_wide(points if distance is None else _minimise_stress(distance, points))


def _on_a_line(nodes: int) -> Array:
    return np.array([[float(n), 0.0] for n in range(nodes)])


def _separate(points: Array) -> Array:
    """The same points with a little noise: nodes with the same distances to all pivots would coincide."""
    noise = np.random.default_rng(0).standard_normal(points.shape)
    separate: Array = points + 1e-3 * np.abs(points).max() * noise
    return separate


def _edge_lengths(graph: csr_array, focus: NDArray[np.int64]) -> csr_array:
    """Edge lengths that shrink with the distance to the focus of a large graph, so that the focus has room."""
    shrink = min(max((MAX_SMALL_NODES / graph.shape[0]) ** 0.3, 0.6), 1.0)
    if not len(focus) or shrink == 1:
        return graph
    hops = dijkstra(graph, unweighted=True, indices=focus, min_only=True)
    edges = graph.tocoo()
    length = np.maximum(shrink ** np.minimum(hops[edges.row], hops[edges.col]), MIN_EDGE_LENGTH)
    return csr_array((length, (edges.row, edges.col)), graph.shape)


def _pivot_distances(graph: csr_array, nodes: int) -> Array:
    """Distances of all nodes to pivots that are far apart, [n, PIVOTS]."""
    pivots, nearest = [0], dijkstra(graph, indices=0)
    distance = [nearest]
    while len(pivots) < min(PIVOTS, nodes):
        pivots.append(int(nearest.argmax()))  # the node farthest from all pivots so far
        distance.append(dijkstra(graph, indices=pivots[-1]))
        nearest = np.minimum(nearest, distance[-1])
    return np.stack(distance, 1)


def _pivot_scaling(distance: Array) -> Array:
    """Classical scaling of the distances to pivots (Brandes and Pich, 2006), [n, 2].

    Args:
        distance: distance of each node to each pivot, [n, pivots]; in a small graph, all nodes are pivots.
    """
    square = distance**2
    centred = square.mean(0) + square.mean(1, keepdims=True) - square - square.mean()
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    points = centred @ axes[:2].T
    padded = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    return padded / max(float(np.abs(points).max()), 1e-12) * float(distance.min(1).max() + 1)


def _minimise_stress(distance: Array, points: Array) -> Array:
    r"""Points that minimise :math:`\sum (\|x_i - x_j\| - d_{ij})^2 / d_{ij}^2` (Gansner et al., 2004), [n, 2].

    Args:
        distance: graph distances d, [n, n].
        points: the start of the minimisation, [n, 2].
    """
    nodes = len(points)
    weight = 1 / np.where(distance > 0, distance, np.inf) ** 2
    inverse = np.linalg.inv(np.diag(weight.sum(1)) - weight + 1 / nodes) - 1 / nodes
    target = weight * distance  # 0 on the diagonal
    for _ in range(STRESS_ROUNDS):
        ratio = target / np.maximum(cdist(points, points), 1e-9)
        before, points = points, inverse @ (ratio.sum(1, keepdims=True) * points - ratio @ points)
        if np.abs(points - before).max() < 1e-3:
            break
    return points


def _rotate_wide(points: Array) -> Array:
    """The same points, rotated to be wider than high and mirrored to a fixed orientation."""
    centred = points - points.mean(0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    rotated: Array = centred @ axes.T
    return rotated * np.where((rotated**3).sum(0) < 0, -1, 1)


# --- the whole picture ---------------------------------------------------------------------------------------------------


def in_unit_square(points: Sequence[Sequence[float]]) -> list[Point]:
    """The same points, centred in the unit square and scaled to fill it.

    >>> in_unit_square([(0, 0), (4, 2)])
    [(0.0, 0.25), (1.0, 0.75)]
    """
    return [(x, y) for x, y in _fill_unit_square(np.array(points, dtype=float).reshape(-1, 2)).tolist()]


def _fill_unit_square(points: Array) -> Array:
    if not len(points):
        return points
    low, size = points.min(0), np.ptp(points, 0)
    scaled: Array = 0.5 + (points - low - size / 2) / (size.max() or 1.0)
    return scaled.clip(0.0, 1.0).round(5)


def _box_corners(sizes: Sequence[Array]) -> list[Array]:
    """Lower left corners of boxes that are placed in rows, one unit apart."""
    width = 1.3 * math.sqrt(sum(float((size + 1).prod()) for size in sizes))
    corners = []
    x = y = height = 0.0
    for wide, high in sizes:
        if x and x + wide > width:
            x, y, height = 0.0, y + height + 1, 0.0
        corners.append(np.array([x, y]))
        x, height = x + wide + 1, max(height, high)
    return corners
