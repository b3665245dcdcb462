"""Explanations that are asked about together, on one causal model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.graphs.inputs import EDGE_KIND
from nseg.graphs.subgraph import reverse_edges
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
        edge_at, node_at: for each explanation, positions of the causal model's edges and nodes in it.
    """

    numbers: Tensor
    causal: CausalModel
    parts: MaskParts
    edge_at: list[Tensor]
    node_at: list[Tensor]

    def pack(self, masks: Sequence[Masks]) -> Masks:
        """Masks of these explanations, in the order of the causal model's edges and nodes; 0 outside the explanations."""
        chosen = [masks[number] for number in self.numbers.tolist()]
        found = Masks()
        if EDGES in self.parts:
            found[EDGES] = _take([one[EDGES] for one in chosen], self.edge_at)
        if NODES in self.parts:
            given = [one[NODES] for one in chosen]
            # Features of all nodes are one row, which every node takes.
            at = [torch.zeros_like(at) if mask.size(0) == 1 else at for mask, at in zip(given, self.node_at, strict=True)]
            found[NODES] = _take(given, at)
        return found

    def worlds(self, masks: Sequence[Masks]) -> Masks:
        """The factual world of each of some masks, and the sub-events of its complement, [1 + A, ...]."""
        return build_worlds(self.parts, self.pack(masks).map(lambda mask: mask.unsqueeze(0)))

    def output_after_removal(self, masks: Sequence[Masks], tied: bool) -> Tensor:
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


def _take(values: Sequence[Tensor], at: Sequence[Tensor]) -> Tensor:
    """Values at some positions of each tensor, one after another; 0 at position -1."""
    flat, lengths = torch.cat(list(values)), [len(one) for one in at]
    if not flat.numel():
        return flat.new_zeros(sum(lengths), *flat.shape[1:])
    position = torch.cat(list(at))
    here, device = position >= 0, position.device
    start = torch.tensor([0, *(one.size(0) for one in values)][:-1], device=device).cumsum(0)
    position = position + start.repeat_interleave(torch.tensor(lengths, device=device))
    return flat[position.clamp(0, len(flat) - 1)] * here.to(flat.dtype).view(-1, *[1] * (flat.dim() - 1))


def positions(known: Tensor, asked: Tensor) -> Tensor:
    """Position of each number among sorted ones; -1 if it is not there."""
    if not known.numel():
        return torch.full_like(asked, -1)
    position = torch.searchsorted(known, asked).clamp(max=len(known) - 1)
    return torch.where(known[position] == asked, position, -1)
