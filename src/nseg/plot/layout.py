"""Positions of nodes: a deterministic function of the graph alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial.distance import cdist

from nseg.plot import chemistry

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
    joined = [pair for pair in pairs if pair[0] != pair[1]]
    ends = np.array(joined, dtype=np.int32).reshape(-1, 2)  # 32 bits, because SciPy 1.11 takes no others
    both = np.r_[ends[:, 0], ends[:, 1]], np.r_[ends[:, 1], ends[:, 0]]
    graph = csr_array((np.ones(2 * len(ends)), both), (nodes, nodes))
    _, component_of = connected_components(graph, directed=False) if nodes else (0, np.zeros(0))
    components = [np.flatnonzero(component_of == number) for number in np.unique(component_of)]
    components.sort(key=lambda members: (-len(members), members[0]))
    points = _atom_positions(symbols, pairs, orders) if symbols else None
    if points is None:
        points = np.zeros((nodes, 2))
        for members in components:
            near = np.flatnonzero(np.isin(members, focus))
            placed = in_unit_square(_place_connected(graph[members][:, members], near).tolist())
            points[members] = math.sqrt(len(members)) * np.array(placed)
    corners = _box_corners([np.ptp(points[members], 0) for members in components])
    for members, corner in zip(components, corners, strict=True):
        points[members] += corner - points[members].min(0)
    return in_unit_square(points.tolist())


def _atom_positions(symbols: Sequence[str], pairs: Sequence[Sequence[int]], orders: Sequence[float]) -> Array | None:
    """Positions of atoms, scaled to bonds of length 1; None if RDKit has none."""
    found = chemistry.coordinates(symbols, pairs, orders)
    return None if found is None else np.array(found) / chemistry.BOND_LENGTH


# --- one connected graph -------------------------------------------------------------------------------------------------


def _place_connected(graph: csr_array, focus: NDArray[np.int64]) -> Array:
    """Positions of the nodes of a connected graph, [n, 2]."""
    nodes = graph.shape[0]
    if nodes <= 2:
        return np.array([[float(n), 0.0] for n in range(nodes)])
    lengths = _edge_lengths(graph, focus)
    points = _pivot_scaling(lengths, nodes)
    # Nodes with the same distances to all pivots coincide; a little noise separates them.
    points = points + 1e-3 * np.abs(points).max() * np.random.default_rng(0).standard_normal(points.shape)
    if nodes <= MAX_STRESS_NODES:
        points = _minimise_stress(dijkstra(lengths, directed=False), points)
    return _rotate_wide(points)


def _edge_lengths(graph: csr_array, focus: NDArray[np.int64]) -> csr_array:
    """Edge lengths that shrink with the distance to the focus of a large graph, so that the focus has room."""
    shrink = min(max((60 / graph.shape[0]) ** 0.3, 0.6), 1.0)
    if not len(focus) or shrink == 1:
        return graph
    hops = dijkstra(graph, directed=False, unweighted=True, indices=focus, min_only=True)
    edges = graph.tocoo()
    length = np.maximum(shrink ** np.minimum(hops[edges.row], hops[edges.col]), MIN_EDGE_LENGTH)
    return csr_array((length, (edges.row, edges.col)), graph.shape)


def _pivot_scaling(graph: csr_array, nodes: int) -> Array:
    """Classical scaling of the distances to pivots (Brandes and Pich, 2006), [n, 2].

    In a graph with at most ``PIVOTS`` nodes, all nodes are pivots.
    """
    pivots, nearest = [0], dijkstra(graph, directed=False, indices=0)
    distance = [nearest]
    while len(pivots) < min(PIVOTS, nodes):
        pivots.append(int(nearest.argmax()))  # the node farthest from all pivots so far
        distance.append(dijkstra(graph, directed=False, indices=pivots[-1]))
        nearest = np.minimum(nearest, distance[-1])
    square = np.stack(distance, 1) ** 2  # [n, pivots]
    centred = square.mean(0) + square.mean(1, keepdims=True) - square - square.mean()
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    points = centred @ axes[:2].T
    padded = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    return padded / max(float(np.abs(points).max()), 1e-12) * float(nearest.max() + 1)


def _minimise_stress(distance: Array, points: Array) -> Array:
    r"""Points that minimise :math:`\sum (\|x_i - x_j\| - d_{ij})^2 / d_{ij}^2` (Gansner et al., 2004), [n, 2].

    Args:
        distance: graph distances d, [n, n].
        points: the start of the minimisation, [n, 2].
    """
    nodes = len(points)
    weight = 1 / np.where(distance > 0, distance, np.inf) ** 2
    inverse = np.linalg.inv(np.diag(weight.sum(1)) - weight + 1 / nodes) - 1 / nodes
    for _ in range(STRESS_ROUNDS):
        ratio = -weight * distance / np.maximum(cdist(points, points), 1e-9)
        np.fill_diagonal(ratio, 0)
        np.fill_diagonal(ratio, -ratio.sum(1))
        before, points = points, inverse @ (ratio @ points)
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
    if not points:
        return []
    low = [min(p[axis] for p in points) for axis in (0, 1)]
    size = [max(p[axis] for p in points) - low[axis] for axis in (0, 1)]
    scale = max(size) or 1.0

    def rescale(value: float, axis: int) -> float:
        return round(min(max(0.5 + (value - low[axis] - size[axis] / 2) / scale, 0.0), 1.0), 5)

    return [(rescale(x, 0), rescale(y, 1)) for x, y in points]


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
