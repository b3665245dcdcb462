"""Subsets from which searches that are stuck, alternatives and certificates climb."""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.graphs.inputs import Role
from nseg.search.formulas import size
from nseg.search.noise import mask_noise
from nseg.search.parts import EDGES, MaskParts, Masks

MANY_ELEMENTS = 128
"""Of larger instances only the best ranking's prefix and all elements are improved by moves, which try few of them."""

KICK_SHARE = 0.25
"""Share of the elements that are flipped to get away from a subset that no move improves."""

KICKS_OF_TIED = 6
"""How many times as many kicks there are where nodes are explained by edges in both directions. Without one of its bonds a
node's own degree changes, so single moves rarely help."""

HALVES = 2
"""Random halves of the elements in every batch but the first."""

NEAR_HOPS = 2
"""Numbers of hops, from 0 on, within which the edges are such a subset where nodes or links are explained."""


def restart_subsets(parts: MaskParts, best: Tensor, kicks: int, batch: int) -> tuple[Tensor, Tensor]:
    """Subsets to climb from, [P, n], and which instances should, [P, B]: those of a batch, and some around the best.

    An instance with many elements climbs from all of them only.

    Args:
        parts: the parts of the masks of B instances.
        best: the best subsets known, [n].
        kicks: number of subsets around them.
        batch: number of the batch; each has other subsets.
    """
    local = parts.tied and parts.instances.outputs is not Role.GRAPH
    number = kicks * (KICKS_OF_TIED if local else 1)
    around = best ^ (draw_all(parts, 0, range(batch * number, (batch + 1) * number)) < KICK_SHARE)
    starts = torch.cat([common_subsets(parts, batch), around])
    who = _first_of_equals(starts, parts) & (parts.count <= MANY_ELEMENTS)
    who[0] = True
    return starts, who


def common_subsets(parts: MaskParts, batch: int = 0) -> Tensor:
    """Subsets that do not depend on a search, [P, n]. First all elements and what is near; then random halves.

    Near are, where nodes or links are explained, the edges at these nodes, and those at their neighbours.
    """
    everything = torch.ones_like(parts.owner, dtype=torch.bool)
    if batch == 0:
        near = [_near(parts, hops) for hops in range(NEAR_HOPS)] if parts.instances.outputs is not Role.GRAPH else []
        return torch.stack([everything, *near]) | (parts.count > MANY_ELEMENTS)[parts.owner]
    return draw_all(parts, 1, range((batch - 1) * HALVES, batch * HALVES)) < 0.5


def draw_all(parts: MaskParts, seed: int, numbers: range) -> Tensor:
    """Uniform numbers of some draws, [P, n]."""
    noise = mask_noise(parts, seed, torch.double)
    return torch.stack([parts.flatten(Masks({name: one.draw(k) for name, one in noise.items()})) for k in numbers])


def _first_of_equals(kept: Tensor, parts: MaskParts) -> Tensor:
    """Which of P subsets [P, n] of an instance differ from all before them, [P, B]."""
    new = torch.ones(len(kept), len(parts.instances), dtype=torch.bool, device=kept.device)
    for later in range(1, len(kept)):
        other = (kept[:later] != kept[later]).double()
        new[later] = (size(other, parts.owner, new.size(1)) > 0).all(0)
    return new


def _near(parts: MaskParts, hops: int) -> Tensor:
    """Edges with an end within so many hops of what is explained; all nodes and features, [n]."""
    found = parts.full(1.0, torch.double).map(lambda mask: mask.bool())
    if EDGES in parts:
        part = parts.edges
        close = part.instances.hops[part.instances.edge_index].amin(0) <= hops
        none = torch.zeros_like(found[EDGES])
        found[EDGES] = none.scatter_reduce(0, part.element, close, "amax", include_self=True)
    return parts.flatten(found)
