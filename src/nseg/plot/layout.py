"""Where nodes are drawn: a function of the graph alone, the same every time."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.spatial.distance import cdist

LARGE = 600
"""Nodes up to which every distance in the graph is drawn as true as can be; beyond it, those to some pivots."""

SHORTEST = 0.3
"""Length of the shortest edge far from the focus; that of one at the focus is 1."""

PIVOTS = 50
ROUNDS = 100

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
    """A place in the unit square for each node.

    Args:
        nodes: how many.
        pairs: which of them edges join.
        focus: nodes that others are there for; a large graph is drawn larger near them.
        symbols: what atoms they are, if they are atoms; then the drawing is a chemist's, where RDKit is installed.
        orders: of the bonds, in the order of the pairs.
    """
    ends = np.array([pair for pair in pairs if pair[0] != pair[1]], dtype=np.int64).reshape(-1, 2)
    both = np.r_[ends[:, 0], ends[:, 1]], np.r_[ends[:, 1], ends[:, 0]]
    graph = csr_array((np.ones(2 * len(ends)), both), (nodes, nodes))
    _, part_of = connected_components(graph, directed=False) if nodes else (0, np.zeros(0))
    parts = sorted((np.flatnonzero(part_of == part) for part in np.unique(part_of)), key=lambda part: (-len(part), part[0]))
    at = _atoms(symbols, pairs, orders) if symbols else None
    if at is None:
        at = np.zeros((nodes, 2))
        for part in parts:
            near = np.flatnonzero(np.isin(part, focus))
            drawn = in_unit_square(_connected(graph[part][:, part], near).tolist())
            at[part] = math.sqrt(len(part)) * np.array(drawn)
    for part, corner in zip(parts, _corners([np.ptp(at[part], 0) for part in parts]), strict=True):
        at[part] += corner - at[part].min(0)
    return in_unit_square(at.tolist())


def _atoms(symbols: Sequence[str], pairs: Sequence[Sequence[int]], orders: Sequence[float]) -> Array | None:
    """Places of atoms, with bonds of length 1; None where RDKit has none."""
    from nseg.plot import molecules

    found = molecules.coordinates(symbols, pairs, orders)
    return None if found is None else np.array(found) / molecules.BOND


# --- one connected graph -------------------------------------------------------------------------------------------------


def _connected(graph: csr_array, focus: NDArray[np.int64]) -> Array:
    """Places of the nodes of a connected graph, [n, 2]."""
    nodes = graph.shape[0]
    if nodes <= 2:
        return np.array([[float(n), 0.0] for n in range(nodes)])
    lengths = _lengths(graph, focus)
    at = _scaled(lengths, nodes)
    at = at + 1e-3 * np.abs(at).max() * np.random.default_rng(0).standard_normal(at.shape)  # parts nodes that are alike
    return _oriented(at if nodes > LARGE else _stressed(dijkstra(lengths, directed=False), at))


def _lengths(graph: csr_array, focus: NDArray[np.int64]) -> csr_array:
    """Edges shorter and shorter away from the focus of a large graph, so that what is near it has room."""
    shrink = min(max((60 / graph.shape[0]) ** 0.3, 0.6), 1.0)
    if not len(focus) or shrink == 1:
        return graph
    hops = dijkstra(graph, directed=False, unweighted=True, indices=focus, min_only=True)
    edges = graph.tocoo()
    length = np.maximum(shrink ** np.minimum(hops[edges.row], hops[edges.col]), SHORTEST)
    return csr_array((length, (edges.row, edges.col)), graph.shape)


def _scaled(graph: csr_array, nodes: int) -> Array:
    """Classical scaling of the distances to some pivots, all nodes of a small graph (Brandes and Pich, 2006), [n, 2]."""
    pivots, nearest = [0], dijkstra(graph, directed=False, indices=0)
    distance = [nearest]
    while len(pivots) < min(PIVOTS, nodes):
        pivots.append(int(nearest.argmax()))  # the node that is farthest from all pivots so far
        distance.append(dijkstra(graph, directed=False, indices=pivots[-1]))
        nearest = np.minimum(nearest, distance[-1])
    square = np.stack(distance, 1) ** 2  # [n, pivots]
    centred = square.mean(0) + square.mean(1, keepdims=True) - square - square.mean()
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    at = centred @ axes[:2].T
    return np.pad(at, ((0, 0), (0, 2 - at.shape[1]))) / max(float(np.abs(at).max()), 1e-12) * float(nearest.max() + 1)


def _stressed(distance: Array, at: Array) -> Array:
    r"""Places that minimise :math:`\sum (\|x_i - x_j\| - d_{ij})^2 / d_{ij}^2` from a start (Gansner et al., 2004)."""
    nodes = len(at)
    weight = 1 / np.where(distance > 0, distance, np.inf) ** 2
    inverse = np.linalg.inv(np.diag(weight.sum(1)) - weight + 1 / nodes) - 1 / nodes
    for _ in range(ROUNDS):
        ratio = -weight * distance / np.maximum(cdist(at, at), 1e-9)
        np.fill_diagonal(ratio, 0)
        np.fill_diagonal(ratio, -ratio.sum(1))
        before, at = at, inverse @ (ratio @ at)
        if np.abs(at - before).max() < 1e-3:
            break
    return at


def _oriented(at: Array) -> Array:
    """The same picture turned so that it is wider than high."""
    middle = at - at.mean(0)
    _, _, axes = np.linalg.svd(middle, full_matrices=False)
    turned: Array = middle @ axes.T
    return turned * np.where((turned**3).sum(0) < 0, -1, 1)


# --- the page --------------------------------------------------------------------------------------------------------------


def in_unit_square(points: Sequence[Sequence[float]]) -> list[Point]:
    """The same picture moved into the unit square, in its middle and as large as it can be.

    >>> in_unit_square([(0, 0), (4, 2)])
    [(0.0, 0.25), (1.0, 0.75)]
    """
    if not points:
        return []
    low = [min(p[axis] for p in points) for axis in (0, 1)]
    size = [max(p[axis] for p in points) - low[axis] for axis in (0, 1)]
    scale = max(size) or 1.0

    def moved(value: float, axis: int) -> float:
        return round(min(max(0.5 + (value - low[axis] - size[axis] / 2) / scale, 0.0), 1.0), 5)

    return [(moved(x, 0), moved(y, 1)) for x, y in points]


def _corners(sizes: Sequence[Array]) -> list[Array]:
    """Lower left corners of boxes put side by side in rows, one unit apart."""
    width = 1.3 * math.sqrt(sum(float((size + 1).prod()) for size in sizes))
    corners = []
    x = y = height = 0.0
    for wide, high in sizes:
        if x and x + wide > width:
            x, y, height = 0.0, y + height + 1, 0.0
        corners.append(np.array([x, y]))
        x, height = x + wide + 1, max(height, high)
    return corners
