"""Drawn lines of a graph, and which edges of an explanation belong to which line.

A line joins two nodes (or a node with itself). It stands for all edges between them: *forward* from its source to its end,
or *backward*. Direction 0 is forward, direction 1 is backward. Arrays are of NumPy: a page has thousands of small ones, for
which torch takes several times as long.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.plot.scene import Scene
from nseg.wording import is_undirected

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Weights = NDArray[np.float32]

MISSING = -1.0
"""Weight of a direction in which a line has no edge."""


class LineIndex:
    """Finds the line of an edge.

    Args:
        scene: the scene whose edges are the lines.
    """

    def __init__(self, scene: Scene) -> None:
        self.node_id = np.array([node.id for node in scene.nodes], dtype=np.int64)
        self.source = self.node_id[[edge.source for edge in scene.edges]]
        end = self.node_id[[edge.end for edge in scene.edges]]
        self.is_loop = self.source == end
        key = _pair_keys(self.source, end)
        self._line_of_key = key.argsort(kind="stable")
        # A sentinel, so that searchsorted always returns a valid position.
        self._keys = np.append(key[self._line_of_key], np.iinfo(np.int64).max)

    def locate(self, explanation: Explanation, reached: Tensor) -> EdgeLines:
        """The line and direction of each edge of an explanation.

        Args:
            explanation: the explanation.
            reached: mask of its edges that can reach the output, [E].
        """
        source, end = explanation.node_id.numpy()[explanation.edge_index.numpy()]
        key = _pair_keys(source, end)
        position = self._keys.searchsorted(key)
        on_line = self._keys[position] == key
        line = self._line_of_key[position[on_line]]
        backward = source[on_line] != self.source[line]
        slot = line + len(self.is_loop) * backward
        return EdgeLines(on_line, slot, reached.numpy()[on_line], self.is_loop, is_undirected(explanation))


def _pair_keys(a: Numbers, b: Numbers) -> Numbers:
    """A key for each pair of node ids, independent of their order."""
    keys: Numbers = (np.minimum(a, b) << 31) + np.maximum(a, b)
    return keys


class EdgeLines(NamedTuple):
    """Where the E edges of one explanation lie on L lines.

    Args:
        on_line: whether an edge lies on a line, [E].
        slot: for edges on a line, the line's number if the edge runs forward, or L plus that number if backward.
        reached: for edges on a line, whether a message over the edge can reach the output.
        is_loop: whether a line joins a node with itself, [L].
        undirected: whether both directions of an edge are one.
    """

    on_line: Flags
    slot: Numbers
    reached: Flags
    is_loop: Flags
    undirected: bool

    def maximum(self, value: Tensor) -> Weights:
        """Maximum of a value over the edges of each line and direction, ``MISSING`` without an edge, [2, L].

        Args:
            value: one non-negative value for each edge, [E].
        """
        own = value.detach().numpy()[self.on_line].astype(np.float32)

        def over(edges: Flags) -> Weights:
            found = np.full(2 * len(self.is_loop), MISSING, dtype=np.float32)
            np.maximum.at(found, self.slot[edges], own[edges])
            return found.reshape(2, -1)

        found = over(self.reached)
        if self.undirected:  # a direction without a reached edge is shown like the other direction: both are one edge
            every = over(np.ones_like(self.reached))
            found = np.where((found < 0) & (every == found[::-1]), every, found)
        return np.where(self.is_loop, found[0], found)
