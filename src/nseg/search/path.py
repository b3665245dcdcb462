"""What fewer or more elements are worth: the bound along one order of each instance's elements."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.formulas import pns_bound
from nseg.search.parts import MaskParts, Masks
from nseg.search.settings import BaseSettings
from nseg.search.subsets import ranks
from nseg.search.worlds import evaluate

ONE_BY_ONE = 8
"""Sizes up to this are all measured; beyond it four per doubling."""


@dataclass(frozen=True)
class SizePath:
    """The bound of the first elements of an order, for several sizes.

    Args:
        order: place of each element in the order of its instance, 1 for the first; by part.
        sizes: numbers of elements, ascending; one of them is that of the explanation, [T, B].
        pns: PNS bound of that many first elements, [T, B].
    """

    order: Masks
    sizes: Tensor
    pns: Tensor


@torch.no_grad()
def measure_path(causal: CausalModel, parts: MaskParts, soft: Masks, hard: Masks, settings: BaseSettings) -> SizePath:
    """The bound for several sizes: elements of the explanation come first, then the others, each by their weight."""
    weight, kept = parts.flatten(soft), parts.flatten(hard).to(causal.dtype)
    rank = ranks(kept, parts.owner, late=-weight)
    own = torch.zeros_like(parts.count).index_add(0, parts.owner, kept.long())
    grid = torch.tensor(size_grid(int(parts.count.max())), device=rank.device).unsqueeze(1)
    sizes = torch.cat([torch.minimum(grid, parts.count), own.unsqueeze(0)]).sort(0).values  # [T, B]
    masks = parts.unflatten((rank < sizes[:, parts.owner]).to(causal.dtype))
    found = evaluate(causal, parts, masks, parts.split(settings), settings.intervention)
    return SizePath(parts.unflatten(rank + 1), sizes, pns_bound(found.p_factual, found.p_complement))


def size_grid(most: int) -> list[int]:
    """Sizes from 0 to ``most``: the first ones one by one, then four per doubling.

    >>> size_grid(20)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20]
    """
    sizes = list(range(min(most, ONE_BY_ONE) + 1))
    step = ONE_BY_ONE // 4
    while sizes[-1] < most:
        sizes.append(min(sizes[-1] + step, most))
        step = 2 * step if sizes[-1] >= 8 * step else step
    return sizes
