"""Explanations that are asked about together, on one causal model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.graphs.inputs import EDGE_KIND
from nseg.graphs.subgraph import reverse_edges
from nseg.metrics.masks import JoinedMasks
from nseg.model.causal import CausalModel
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.worlds import build_worlds


@dataclass(frozen=True)
class EvaluatedGroup:
    """Explanations that share a causal model.

    Args:
        numbers: positions of the explanations, [b].
        causal: their causal model.
        parts: their masks, one element per edge and per node (or feature of a node).
        edge_at, node_at: for each edge and node of the causal model, its position among those of all explanations
            (:class:`nseg.metrics.masks.JoinedIds`); -1 if its explanation does not have it.
    """

    numbers: Tensor
    causal: CausalModel
    parts: MaskParts
    edge_at: Tensor
    node_at: Tensor

    def pack(self, masks: JoinedMasks | Sequence[Masks]) -> Masks:
        """Masks of these explanations, in the order of the causal model's edges and nodes; 0 outside the explanations.

        Args:
            masks: masks of all explanations.
        """
        given, found = JoinedMasks.of(masks), Masks()
        if EDGES in self.parts:
            found[EDGES] = _take(given.joined[EDGES], self.edge_at)
        if NODES in self.parts:
            at = self.node_at
            if set(given.rows[NODES]) == {1}:  # features of all nodes are one row, which every node takes
                at = self.numbers[self.causal.instances.node_owner]
            found[NODES] = _take(given.joined[NODES], at)
        return found

    def worlds(self, masks: JoinedMasks) -> Masks:
        """The factual world of each of some masks, and the sub-events of its complement, [1 + A, ...]."""
        return build_worlds(self.parts, self.pack(masks).map(lambda mask: mask.unsqueeze(0)))

    def output_after_removal(self, masks: JoinedMasks, tied: bool) -> Tensor:
        """The model's output there with edges deleted, [1 + A, b, ...].

        Args:
            masks: hard masks of all explanations.
            tied: whether an edge goes with its reverse, which may be out of an explanation's own graph.
        """
        packed, here = self.pack(masks), self.causal.instances
        if tied and EDGES in packed:
            reverse = reverse_edges(here.edge_index, here.num_nodes, here.args.get(EDGE_KIND))
            packed[EDGES] = torch.maximum(packed[EDGES], packed[EDGES][reverse])
        worlds = build_worlds(self.parts, packed.map(lambda mask: mask.unsqueeze(0)))
        return self.causal.removing(tied).output(worlds)


def _take(joined: Tensor, at: Tensor) -> Tensor:
    """Values at some positions; 0 at position -1."""
    if not joined.numel():
        return joined.new_zeros(at.numel(), *joined.shape[1:])
    here = (at >= 0).to(joined.dtype).view(-1, *[1] * (joined.dim() - 1))
    return joined[at.clamp(min=0)] * here
