"""What the model says along an explanation's ranking: the numbers behind the page's slider."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.metrics import Judge
from nseg.metrics.worlds import Pair
from nseg.scm import predicted_class, probability

MOST_CUTS = 20
"""Cuts of one ranking at the most."""

HALF = 0.5
"""Where masks are usually cut."""


@dataclass(frozen=True)
class Worlds:
    """The worlds of one mask of each of B explanations.

    The first world keeps the mask alone. The others are the sub-events of the complement: 00; or 00, 01 and 10 where both
    edges and nodes are masked.

    Args:
        p: probability of the explained class, [1 + A, B].
        label: predicted class, [1 + A, B].
    """

    p: Tensor
    label: Tensor


def worlds(judge: Judge, masks: list[Pair]) -> Worlds:
    """Ask the model what it says with each mask alone, and in each sub-event without it."""
    found = judge.outcome(masks)  # [2, B, C]: with both, with neither
    if judge.edges and judge.nodes:
        without_edges: list[Pair] = [(None if e is None else 1 - e, n) for e, n in masks]
        found = torch.cat([found, judge.outcome(without_edges)])  # nodes only, edges only
    p = torch.stack([probability(output, judge.target, judge.config) for output in found])
    return Worlds(p, predicted_class(found, judge.config))


def cuts(weights: Tensor, most: int = MOST_CUTS) -> list[float]:
    """Lowest weights to keep, from one that keeps nothing to one that keeps everything.

    Every way to cut the ranking is there, or where there are too many the first ones, the one at a half (which masks are
    usually cut at), and ever fewer of the rest.

    >>> cuts(torch.tensor([0.5, 0.25, 0.25, 1.0]))
    [inf, 1.0, 0.5, 0.25]
    >>> len(cuts(torch.linspace(0, 1, 1001))) <= MOST_CUTS
    True
    """
    levels = torch.unique(weights).flip(0).tolist()
    every = [float("inf"), *levels]
    if len(every) <= most:
        return every
    last = len(levels)
    half = sum(level > HALF for level in levels)
    steps = torch.logspace(0, torch.log10(torch.tensor(float(last))).item(), most - 2).round().long().tolist()
    chosen = sorted({0, half, *steps, last})
    return [every[place] for place in chosen]


@dataclass(frozen=True)
class Ranking:
    """The cuts of one explanation, and what the model says at each.

    Args:
        least: lowest weight that is kept at each of T cuts.
        p, label: of its worlds there, [T, 1 + A].
    """

    least: list[float]
    p: Tensor
    label: Tensor


def rankings(judge: Judge, most: int = MOST_CUTS) -> list[Ranking]:
    """The cuts of each explanation's soft masks, all explanations in the same forward passes."""
    soft = judge.masks("soft")
    least = [cuts(considered(pair, near), most) for pair, near in zip(soft, judge.reached, strict=True)]
    rounds = []
    for place in range(max(map(len, least))):
        at = [cut[min(place, len(cut) - 1)] for cut in least]
        rounds.append(worlds(judge, [_above(pair, t) for pair, t in zip(soft, at, strict=True)]))
    p, label = (torch.stack([getattr(r, name) for r in rounds]) for name in ("p", "label"))  # [T, 1 + A, B]
    return [Ranking(cut, p[: len(cut), :, b], label[: len(cut), :, b]) for b, cut in enumerate(least)]


def considered(pair: Pair, reached: Tensor) -> Tensor:
    """The weights of what can matter: edges within reach, and nodes."""
    edge, node = pair
    parts = [] if edge is None else [edge[reached]]
    return torch.cat([*parts, *([] if node is None else [node.flatten()])])


def _above(pair: Pair, least: float) -> Pair:
    edge, node = (None if mask is None else (mask >= least).to(mask.dtype) for mask in pair)
    return edge, node
