"""What fewer or more elements are worth: for several sizes, the best subset of that size that is met."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.formulas import pns_bound
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts, Masks
from nseg.search.settings import BaseSettings
from nseg.search.subsets import DECIMALS, SubsetScorer, ranks, size_bucket
from nseg.search.worlds import evaluate

ONE_BY_ONE = 8
"""Sizes up to this are all measured; beyond it four per doubling."""

MOST_SIZES = 62
"""Largest number of sizes: a number of 64 bits says in which of them an element is."""

DROPS = 12
"""Elements of the explanation that are left out one at a time, to see which are needed least."""

RANKINGS = 1
"""Rankings of the search whose prefixes are measured, besides orders that begin with the explanation."""


@dataclass(frozen=True)
class SizePath:
    """The best subset of each of several sizes that was met.

    Args:
        sizes: numbers of elements, ascending; one of them is that of the explanation, [T, B].
        pns: PNS bound of the best subset of each size, [T, B].
        member: for each element, in which of these subsets it is: bit j for the j-th different size; by part.
    """

    sizes: Tensor
    pns: Tensor
    member: Masks

    def bit(self, number: Tensor) -> Tensor:
        """Bit that stands for one size of each instance, given by its number among all sizes, [B]."""
        return bits_of(first_of_equals(self.sizes)).gather(0, number.unsqueeze(0)).squeeze(0)

    @cached_property
    def points(self) -> list[tuple[Tensor, Tensor]]:
        """Different sizes of each instance, and their bounds, [t] each."""
        first = first_of_equals(self.sizes).T
        number = first.sum(1).tolist()
        sizes, pns = (torch.split(value.T[first], number) for value in (self.sizes, self.pns))
        return [(own.clone(), bounds.clone()) for own, bounds in zip(sizes, pns, strict=True)]


@torch.no_grad()
def measure_path(
    causal: CausalModel, parts: MaskParts, result: SearchResult, hard: Masks, settings: BaseSettings
) -> SizePath:
    """The best of a few subsets of each size: prefixes of several orders of the elements.

    The orders: the explanation first, by weight, or by what is lost without each of its elements, and then the others; and
    those of the search. The explanation itself stands for its size.
    """
    kept, weight = parts.flatten(hard).bool(), _rounded(parts.flatten(result.soft))
    rankings = None if result.rankings is None else _rounded(parts.flatten(result.rankings)[:RANKINGS])
    number = len(size_grid(int(parts.count.max()))) + 1
    sizes = torch.zeros(number, len(parts.count), dtype=torch.long, device=kept.device)
    best, member = torch.zeros_like(sizes, dtype=causal.dtype), torch.zeros_like(parts.owner)
    # instances of similar size together: the number of sizes is that of the largest in the batch
    for group, members, some, its in parts.grouped(causal, size_bucket(parts.count)):
        given = None if rankings is None else rankings[:, members]
        found = _measure_alike(some, its, kept[members], weight[members], given, settings)
        last = [len(found[0]) - 1] * (number - len(found[0]))  # repeat the largest size: equal ones count once
        rows = torch.tensor([*range(len(found[0])), *last], device=kept.device)
        sizes[:, group], best[:, group], member[members] = found[0][rows], found[1][rows], found[2]
    return SizePath(sizes, pns_bound(best, torch.zeros_like(best)), parts.unflatten(member))


def _measure_alike(
    causal: CausalModel, parts: MaskParts, kept: Tensor, weight: Tensor, rankings: Tensor | None, settings: BaseSettings
) -> tuple[Tensor, Tensor, Tensor]:
    """Sizes and gaps of the best subset of each, [T, B] each, and in which subsets each element is, [n]."""
    owner = parts.owner
    own = torch.zeros_like(parts.count).index_add(0, owner, kept.long())
    grid = torch.tensor(size_grid(int(parts.count.max())), device=owner.device).unsqueeze(1)
    sizes = torch.cat([torch.minimum(grid, parts.count), own.unsqueeze(0)]).sort(0).values  # [T, B]
    best = torch.full(sizes.shape, -torch.inf, dtype=causal.dtype, device=owner.device)
    limit = sizes[:, owner]  # [T, n]
    subsets = torch.zeros(len(sizes), len(owner), dtype=torch.bool, device=owner.device)
    for inner, outer in _orders(causal, parts, kept, weight, rankings, settings):
        some = torch.where(limit < own[owner], inner < limit, outer < limit)
        found = evaluate(causal, parts, some, parts.split(settings), settings.intervention)
        gap = found.p_factual - found.p_complement
        # the first order begins with the explanation
        better = (_rounded(gap) > _rounded(best)) & ((sizes != own) | torch.isinf(best))
        best = torch.where(better, gap, best)
        subsets = torch.where(better[:, owner], some, subsets)
    first, member = first_of_equals(sizes), torch.zeros_like(owner)
    for subset, new, bit in zip(subsets, first, bits_of(first), strict=True):
        member |= (subset & new[owner]).long() << bit[owner]
    return sizes, best, member


def first_of_equals(sizes: Tensor) -> Tensor:
    """Whether each size is the first of those that are equal to it; sizes are sorted, [T, B].

    >>> first_of_equals(torch.tensor([[0, 0], [1, 1], [2, 1]])).tolist()
    [[True, True], [True, True], [True, False]]
    """
    return torch.cat([torch.ones_like(sizes[:1], dtype=torch.bool), sizes[1:] != sizes[:-1]])


def bits_of(first: Tensor) -> Tensor:
    """Number of each size among the different ones of its instance, [T, B]."""
    return first.cumsum(0) - 1


def _orders(
    causal: CausalModel, parts: MaskParts, kept: Tensor, weight: Tensor, rankings: Tensor | None, settings: BaseSettings
) -> Iterator[tuple[Tensor, Tensor]]:
    """Ranks of the elements in several pairs of orders, for sizes below that of the explanation and for others, [n] each.

    The first begins with the explanation. So does the second below its size; above, it is that of the search.
    """
    owner, inside = parts.owner, kept.to(causal.dtype)
    by_weight = ranks(inside, owner, late=-weight)
    yield by_weight, by_weight
    if not settings.rounds:  # a quick search is not followed by a slower one
        return
    by_loss = ranks(inside, owner, late=-_loss(causal, parts, kept, weight, settings))
    for one in weight.unsqueeze(0) if rankings is None else rankings:
        yield by_loss, ranks(one, owner)


def _rounded(value: Tensor) -> Tensor:
    """Values up to rounding errors, which must not decide between equals."""
    return value.round(decimals=DECIMALS)


def _loss(causal: CausalModel, parts: MaskParts, kept: Tensor, weight: Tensor, settings: BaseSettings) -> Tensor:
    """What is lost of the merit without each of the lightest kept elements; heavier ones lose more, [n]."""
    owner, number = parts.owner, min(int(parts.count.max()), DROPS)
    if not number:
        return weight
    rank = ranks(torch.where(kept, -weight, -torch.inf), owner)  # the lightest first
    tried = kept & (rank < DROPS)
    value = SubsetScorer(causal, parts, settings).score(number, lambda k: kept & (rank != k.unsqueeze(1)))  # [number, B]
    lost = -value[rank.clamp(max=number - 1), owner].to(weight.dtype)
    return torch.where(tried, lost, weight.abs() + 2)  # merits lie between -1 and 1, with a bonus below 1


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
    return sizes if len(sizes) < MOST_SIZES else [*sizes[: MOST_SIZES - 2], most]
