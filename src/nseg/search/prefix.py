"""The best prefix of a ranking, and rankings whose prefixes are connected."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.parts import EDGES, EdgePart, MaskParts, Masks
from nseg.search.settings import BaseSettings
from nseg.search.subsets import DECIMALS, NEVER, SubsetScorer, acceptable, ranks, size_bucket

FINE = 32
"""Every prefix up to this length is scored, and this many longer ones; then those around the winner."""


@torch.no_grad()
def best_prefix(
    causal: CausalModel, parts: MaskParts, soft: Masks, settings: BaseSettings, fine: int | None = None
) -> Masks:
    """The smallest prefix of each instance's ranking whose score is within ``tolerance`` of the best prefix.

    All parts are ranked together by weight. If explanations must be connected, edges are ranked by the weakest link on
    the best path to where they grow from (:func:`connected_ranking`). Up to 64 elements every prefix is scored; of a
    longer ranking the first 32 and 32 more, and then those between the winner and the next shorter one scored.

    Args:
        causal, parts: B instances and the parts of their masks.
        soft: weights of the elements.
        settings: how prefixes are compared.
        fine: another number in place of 32.
    """
    score, late = soft.map(lambda mask: mask.round(decimals=DECIMALS)), torch.zeros_like(parts.owner)
    if settings.connected and EDGES in parts:
        edge, links = connected_ranking(parts.edges, score[EDGES])
        score, late = Masks({**score, EDGES: edge}), torch.cat([links, late[links.numel() :]])
    flat = parts.flatten(score)
    rank, length = ranks(flat, parts.owner, late), torch.zeros_like(parts.count)
    for group, members, alone, its in parts.grouped(causal, size_bucket(parts.count)):
        length[group] = _PrefixScorer(alone, its, settings, rank[members], fine or FINE).best()
    return parts.unflatten((rank < length[parts.owner]) & (flat > -torch.inf))  # -inf: cannot be connected


def connected_ranking(part: EdgePart, score: Tensor) -> tuple[Tensor, Tensor]:
    """A ranking of edges in which every prefix is connected.

    Explanations grow from the explained nodes, at graph level from the strongest edge. Ranked by the first result,
    descending, then by the second, each edge touches an earlier one or the origin.

    Args:
        part: the edge elements.
        score: their weights, [n].

    Returns:
        the weakest link on the best path from each element to the origin, and the number of links of that path, [n].
    """
    instances = part.instances
    weight, (tail, head) = score[part.element], instances.edge_index
    explained, owner = instances.explained_nodes, instances.edge_owner
    width = score.new_full((instances.num_nodes,), -torch.inf)  # weakest link on the widest path to each node
    if explained is None:
        strongest = ranks(weight, owner) < 1
        width[tail[strongest]] = torch.inf
    else:
        width[explained.flatten()] = torch.inf
    links = torch.where(width > 0, 0, instances.num_nodes)
    for step in range(1, instances.num_nodes + 1):  # until no path gets wider
        reach = torch.minimum(torch.maximum(width[tail], width[head]), weight)
        wider = width.scatter_reduce(0, tail, reach, "amax").scatter_reduce(0, head, reach, "amax")
        changed = wider > width
        if not bool(changed.any()):
            break
        width, links = wider, torch.where(changed, step, links)
    reach = torch.minimum(torch.maximum(width[tail], width[head]), weight)
    near = torch.where(width[tail] >= reach, links[tail], instances.num_nodes)
    near = torch.minimum(near, torch.where(width[head] >= reach, links[head], instances.num_nodes))
    number = score.numel()
    lowest = score.new_full((number,), torch.inf).scatter_reduce(0, part.element, reach, "amin")
    return lowest, near.new_zeros(number).scatter_reduce(0, part.element, near, "amax")


@dataclass(frozen=True)
class _PrefixScorer(SubsetScorer):
    """The prefixes of each instance's ranking.

    Args:
        causal, parts, settings: as in :class:`SubsetScorer`.
        rank: rank of each element within its instance, [n].
        fine: how finely lengths are tried.
    """

    rank: Tensor
    fine: int

    def best(self) -> Tensor:
        """Length of the chosen prefix of each instance, [B]."""
        elements = self.parts.count
        lengths = _length_grid(torch.zeros_like(elements), elements, self.fine)  # [T, B]
        merit, valid = self._measure(lengths)
        while True:
            good = acceptable(merit, valid, self.settings.tolerance)
            upper = torch.where(good, lengths, NEVER).amin(0)
            below = torch.where(lengths < upper, lengths, -1).amax(0)  # no length up to this one is good enough
            if bool((upper - below <= 1).all()):
                return upper
            more = _length_grid(below + 1, upper, self.fine)
            found = self._measure(more)
            lengths, merit, valid = (torch.cat(pair) for pair in zip((lengths, merit, valid), (more, *found), strict=True))

    def _measure(self, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Merit of the prefixes of the given lengths, and whether each is valid, [T, B] each."""
        return self.measure(len(lengths), lambda t: self.rank < lengths[t][:, self.parts.owner])


def _length_grid(lower: Tensor, upper: Tensor, fine: int) -> Tensor:
    """Lengths from ``lower`` to ``upper``: the first ``fine + 1`` one by one, then ``fine`` evenly spaced, [T, B].

    >>> _length_grid(torch.tensor([0, 0]), torch.tensor([3, 128]), 32)[[0, 1, 2, 3, 32, 33, 64]]
    tensor([[  0,   0],
            [  1,   1],
            [  2,   2],
            [  3,   3],
            [  3,  32],
            [  3,  35],
            [  3, 128]])
    """
    span = upper - lower
    step = torch.arange(min(int(span.max()), 2 * fine) + 1, device=lower.device).unsqueeze(1)
    beyond = fine + ((step - fine) * (span - fine)) // fine
    return lower + torch.where((step <= fine) | (span <= 2 * fine), torch.minimum(step, span), beyond)
