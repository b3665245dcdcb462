"""The smallest set of changes that changes an outcome: all sets by size where they are few, else greedy and shrunk."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

GREEDY_ROUNDS = 12
"""Rounds that try every further change; after them, changes are added in the order of the last round."""

Merit = Callable[[Tensor], Tensor]
"""How near each set [K, n] brings the model to another outcome, [K]; above 0 if it is there."""


@dataclass(frozen=True)
class SmallestChange:
    """The result of a search.

    Args:
        on: the chosen changes, [n].
        found: whether they change the outcome.
        tried_size: all sets of up to this many changes were tried.
        exact: whether no smaller set does it; if none was found, whether all sets were tried.
    """

    on: Tensor
    found: bool
    tried_size: int
    exact: bool


def find_smallest(merit: Merit, number: int, most: int, worlds: int, device: torch.device) -> SmallestChange:
    """The smallest set of changes with positive merit; among the smallest, the one with the highest.

    Args:
        merit: what each set is worth.
        number: number of possible changes, n.
        most: largest set to look for.
        worlds: sets of one size that may be enumerated.
        device: where sets are made.
    """
    tried = 0
    while tried < min(number, most) and math.comb(number, tried + 1) <= worlds:
        tried += 1
        sets = _all_sets(number, tried, device)
        value = merit(sets)
        if bool((value > 0).any()):
            return SmallestChange(sets[int(value.argmax())], True, tried - 1, True)
    nothing = torch.zeros(number, dtype=torch.bool, device=device)
    if tried == min(number, most):
        return SmallestChange(nothing, False, tried, True)
    on = _grow(merit, nothing, most)
    if on is None:
        return SmallestChange(nothing, False, tried, False)
    on = _shrink(merit, on)
    size = int(on.sum())
    if size > most:
        return SmallestChange(nothing, False, tried, False)
    return SmallestChange(on, True, tried, size == tried + 1)


def _all_sets(number: int, size: int, device: torch.device) -> Tensor:
    """All sets of ``size`` of ``number`` changes, [K, n]."""
    # torch.combinations makes a grid of number ** size entries first
    chosen = torch.tensor(list(combinations(range(number), size)), dtype=torch.long, device=device).view(-1, size)
    return torch.zeros(len(chosen), number, dtype=torch.bool, device=device).scatter_(1, chosen, True)


def _grow(merit: Merit, on: Tensor, most: int) -> Tensor | None:
    """A set with positive merit: the best further change, again and again, then the others in order; None if none is."""
    order = on.nonzero().flatten()
    for _ in range(min(GREEDY_ROUNDS, most)):
        off = (~on).nonzero().flatten()
        if not off.numel():
            break
        trials = on.repeat(len(off), 1).scatter_(1, off.unsqueeze(1), True)
        value = merit(trials)
        order = off[value.argsort(descending=True, stable=True)]
        on = trials[int(value.argmax())]
        if float(value.max()) > 0:
            return on
    rest = order[~on[order]]
    if not rest.numel():
        return None
    prefixes = on | (torch.arange(len(rest), device=on.device).unsqueeze(1) >= _rank(rest, on.numel()))
    good = (merit(prefixes) > 0).nonzero().flatten()
    return prefixes[int(good[0])] if good.numel() else None


def _rank(order: Tensor, number: int) -> Tensor:
    """Position of each change in an order; beyond its end for those that are not in it, [n]."""
    rank = torch.full((number,), number, device=order.device)
    rank[order] = torch.arange(len(order), device=order.device)
    return rank


def _shrink(merit: Merit, on: Tensor) -> Tensor:
    """The set without changes that it does not need: while any can go, the one whose loss costs least."""
    while int(on.sum()) > 1:
        inside = on.nonzero().flatten()
        trials = on.repeat(len(inside), 1).scatter_(1, inside.unsqueeze(1), False)
        value = merit(trials)
        if float(value.max()) <= 0:
            break
        on = trials[int(value.argmax())]
    return on
