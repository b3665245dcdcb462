"""The smallest set of changes that changes an outcome: all sets by size where they are few, else greedy and shrunk."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

GREEDY_ROUNDS = 12
"""Rounds that look for the best further change; after them, changes are added in the order of the last round."""

GREEDY_TRIALS = 128
"""Further changes that a round tries: those that looked best before."""

FIRST_TRIALS = 2000
"""Changes that the first round tries if there are too many to try all."""

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


def find_smallest(
    merit: Merit, number: int, most: int, worlds: int, device: torch.device, guess: Callable[[], Tensor] | None = None
) -> SmallestChange:
    """The smallest set of changes with positive merit; among the smallest, the one with the highest.

    Args:
        merit: what each set is worth.
        number: number of possible changes, n.
        most: largest set to look for.
        worlds: sets of one size that may be enumerated.
        device: where sets are made.
        guess: estimates what each change is worth, [n]; says which are tried if there are too many to try all.
    """
    tried, alone = 0, None
    while tried < min(number, most) and math.comb(number, tried + 1) <= worlds:
        tried += 1
        sets = _all_sets(number, tried, device)
        value = merit(sets)
        if bool((value > 0).any()):
            return SmallestChange(sets[int(value.argmax())], True, tried - 1, True)
        alone = value if tried == 1 else alone
    nothing = torch.zeros(number, dtype=torch.bool, device=device)
    if tried == min(number, most):
        return SmallestChange(nothing, False, tried, True)
    if alone is None:
        estimate = -torch.arange(number, device=device) if guess is None or number <= FIRST_TRIALS else guess()
        order, size = estimate.argsort(descending=True, stable=True), FIRST_TRIALS
    else:
        order, size = alone.argsort(descending=True, stable=True), 1  # all were tried: the best one is known
    on = _grow(merit, nothing, order, size, most)
    on = None if on is None else _shrink(merit, on)
    if on is None or int(on.sum()) > most:
        return SmallestChange(nothing, False, tried, False)
    return SmallestChange(on, True, tried, int(on.sum()) == tried + 1)


def _all_sets(number: int, size: int, device: torch.device) -> Tensor:
    """All sets of ``size`` of ``number`` changes, [K, n]."""
    # torch.combinations makes a grid of number ** size entries first
    chosen = torch.tensor(list(combinations(range(number), size)), dtype=torch.long, device=device).view(-1, size)
    return torch.zeros(len(chosen), number, dtype=torch.bool, device=device).scatter_(1, chosen, True)


def _grow(merit: Merit, on: Tensor, order: Tensor, first: int, most: int) -> Tensor | None:
    """A set with positive merit: the best further change, again and again, then the others in order; None if none is.

    Args:
        merit: what each set is worth.
        on: the empty set, [n].
        order: all changes, those first that look best.
        first: number of changes that the first round tries.
        most: largest set to look for.
    """
    for size in (first, *[GREEDY_TRIALS] * (min(GREEDY_ROUNDS, most) - 1)):
        if not order.numel():
            break
        some = order[:size]
        trials = on.repeat(len(some), 1).scatter_(1, some.unsqueeze(1), True)
        value = merit(trials)
        on = trials[int(value.argmax())]
        if float(value.max()) > 0:
            return on
        order = torch.cat([some[value.argsort(descending=True, stable=True)][1:], order[size:]])
    if not order.numel():
        return None
    sizes = _prefix_sizes(len(order), on.device).unsqueeze(1)
    prefixes = on | (sizes > _rank(order, on.numel()))
    good = (merit(prefixes) > 0).nonzero().flatten()
    return prefixes[int(good[0])] if good.numel() else None


def _prefix_sizes(number: int, device: torch.device) -> Tensor:
    """Lengths of the prefixes that are tried: the first ones all, then ever fewer, and the whole.

    >>> _prefix_sizes(3, torch.device("cpu")).tolist()
    [1, 2, 3]
    """
    spaced = torch.logspace(0, math.log10(number), 2 * GREEDY_TRIALS, dtype=torch.double, device=device).round().long()
    sizes: Tensor = torch.unique(spaced.clamp(max=number))
    return sizes


def _rank(order: Tensor, number: int) -> Tensor:
    """Position of each change in an order; beyond its end for those that are not in it, [n]."""
    rank = torch.full((number,), number, device=order.device)
    rank[order] = torch.arange(len(order), device=order.device)
    return rank


def _shrink(merit: Merit, on: Tensor) -> Tensor:
    """The set without changes that it does not need: large parts first, then one by one until none can go.

    Of the parts that can go, the one whose loss costs least goes.
    """
    part = max(1, int(on.sum()) // 4)
    while int(on.sum()) > 1:
        inside = on.nonzero().flatten()
        parts = torch.split(inside, part)
        trials = torch.stack([on.scatter(0, some, False) for some in parts])
        value = merit(trials)
        best = int(value.argmax())
        if float(value[best]) > 0 and bool(trials[best].any()):
            on = trials[best]
        elif part == 1:
            break
        part = max(1, min(part // 2 if float(value[best]) <= 0 else part, int(on.sum()) // 2))
    return on
