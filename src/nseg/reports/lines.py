"""Drawn lines of a graph, and which edges of an explanation belong to which line.

A line joins two nodes (or a node with itself). It stands for all edges between them: *forward* from its source to its end,
or *backward*. Direction 0 is forward, direction 1 is backward.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.plot.scene import Scene
from nseg.wording import is_undirected

MISSING = -1.0
"""Weight of a direction in which a line has no edge."""


class LineIndex:
    """Finds the line of an edge.

    Args:
        scene: the scene whose edges are the lines.
    """

    def __init__(self, scene: Scene) -> None:
        self.node_id = torch.tensor([node.id for node in scene.nodes])
        ends = torch.tensor([(edge.source, edge.end) for edge in scene.edges], dtype=torch.long).view(-1, 2).T
        self.source, end = self.node_id[ends]
        self.is_loop = self.source == end
        key, self._line_of_key = _pair_keys(self.source, end).sort()
        # A sentinel, so that searchsorted always returns a valid position.
        self._keys = torch.cat([key, torch.tensor([torch.iinfo(torch.long).max])])

    def locate(self, explanation: Explanation, reached: Tensor) -> EdgeLines:
        """The line and direction of each edge of an explanation.

        Args:
            explanation: the explanation.
            reached: mask of its edges that can reach the output, [E].
        """
        source, end = explanation.node_id[explanation.edge_index]
        key = _pair_keys(source, end)
        position = torch.searchsorted(self._keys, key)
        on_line = self._keys[position] == key
        line = self._line_of_key[position[on_line]]
        backward = source[on_line] != self.source[line]
        slot = line + self.is_loop.numel() * backward
        return EdgeLines(on_line, slot, reached[on_line], self.is_loop, is_undirected(explanation))


def _pair_keys(a: Tensor, b: Tensor) -> Tensor:
    """A key for each pair of node ids, independent of their order."""
    return (torch.minimum(a, b) << 31) + torch.maximum(a, b)


class EdgeLines(NamedTuple):
    """Where the E edges of one explanation lie on L lines.

    Args:
        on_line: whether an edge lies on a line, [E].
        slot: for edges on a line, the line's number if the edge runs forward, or L plus that number if backward.
        reached: for edges on a line, whether a message over the edge can reach the output.
        is_loop: whether a line joins a node with itself, [L].
        undirected: whether both directions of an edge are one.
    """

    on_line: Tensor
    slot: Tensor
    reached: Tensor
    is_loop: Tensor
    undirected: bool

    def maximum(self, value: Tensor) -> Tensor:
        """Maximum of a value over the edges of each line and direction, ``MISSING`` without an edge, [2, L].

        Args:
            value: one non-negative value for each edge, [E].
        """
        value = value[self.on_line].float()

        def over(edges: Tensor) -> Tensor:
            start = torch.full((2 * self.is_loop.numel(),), MISSING)
            return start.scatter_reduce(0, self.slot[edges], value[edges], "amax").view(2, -1)

        found = over(self.reached)
        if self.undirected:  # a direction without a reached edge is shown like the other direction: both are one edge
            every = over(torch.ones_like(self.reached))
            found = torch.where((found < 0) & (every == found.flip(0)), every, found)
        return torch.where(self.is_loop, found[0], found)
