"""The model's outputs along an explanation's ranking: the numbers behind the page's slider."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.metrics.fidelity import Evaluator
from nseg.metrics.masks import JoinedMasks
from nseg.search.parts import EDGES, Masks
from nseg.wording import DEFAULT_THRESHOLD, ModelAnswer

MAX_THRESHOLDS = 20
"""Maximum number of thresholds of one ranking."""

SAME = 1e-5
"""Weights that differ by no more than this are equal but for rounding."""


@dataclass(frozen=True)
class WorldOutcomes:
    """The model's answer in the worlds of one mask of each of B explanations.

    The first world keeps only the mask. The other A worlds are the sub-events of the complement: 00; or 00, 01 and 10 if
    both edges and nodes are masked.

    Args:
        p: probability of the explained class or event, [1 + A, B].
        label: predicted class, or whether the event happens (0 or 1), [1 + A, B].
    """

    p: Tensor
    label: Tensor

    def answer(self, world: int, position: int) -> ModelAnswer:
        """The model's answer in one world of one explanation."""
        return ModelAnswer(float(self.p[world, position]), int(self.label[world, position]))


def evaluate_worlds(evaluator: Evaluator, masks: JoinedMasks) -> WorldOutcomes:
    """Run the model with only the mask of each explanation, and in each sub-event of its complement.

    Edges are masked or deleted as they were in the search.
    """
    outputs = evaluator.worlds_under(masks, evaluator.intervention)  # [1 + A, B, ...]
    return WorldOutcomes(evaluator.probability(outputs).cpu(), evaluator.answers(outputs).cpu())


def ranking_thresholds(weights: Tensor, limit: int = MAX_THRESHOLDS) -> list[float]:
    """Lowest weights to keep, from a threshold that keeps nothing to one that keeps everything.

    All distinct thresholds if they are few enough. Otherwise the thresholds of the highest weights, the usual one at a
    half, and ever fewer of the rest.

    >>> ranking_thresholds(torch.tensor([0.5, 0.25, 0.25, 1.0]))
    [inf, 1.0, 0.5, 0.25]
    >>> len(ranking_thresholds(torch.linspace(0, 1, 1001))) <= MAX_THRESHOLDS
    True
    """
    levels = torch.unique(weights)
    apart = levels.diff(prepend=levels[:1] - 1) > SAME  # of equal ones the lowest, which keeps them all
    levels = levels[apart].flip(0).tolist()
    every = [float("inf"), *levels]
    if len(every) <= limit:
        return every
    last = len(levels)
    half = sum(level > DEFAULT_THRESHOLD for level in levels)
    steps = torch.logspace(0, torch.log10(torch.tensor(float(last))).item(), limit - 2).round().long().tolist()
    chosen = sorted({0, half, *steps, last})
    return [every[n] for n in chosen]


@dataclass(frozen=True)
class Ranking:
    """The thresholds of one explanation, and the model's answers at each.

    Args:
        thresholds: lowest weight that is kept at each of T thresholds.
        p, label: as in :class:`WorldOutcomes`, [T, 1 + A].
    """

    thresholds: list[float]
    p: Tensor
    label: Tensor


def evaluate_rankings(evaluator: Evaluator, limit: int = MAX_THRESHOLDS) -> list[Ranking]:
    """Run the model at each threshold of each explanation's soft masks.

    All explanations share forward passes: pass t uses threshold t of each. An explanation with fewer thresholds repeats
    its last one, and the repeated results are dropped.
    """
    soft = evaluator.masks("soft")
    pairs = zip(soft, evaluator.reached, strict=True)
    thresholds = [ranking_thresholds(reachable_weights(masks, reached), limit) for masks, reached in pairs]
    rounds = []
    for t in range(max(map(len, thresholds))):
        current = [levels[min(t, len(levels) - 1)] for levels in thresholds]
        rounds.append(evaluate_worlds(evaluator, _keep_from(soft, current)))
    p, label = (torch.stack([getattr(r, name) for r in rounds]) for name in ("p", "label"))  # [T, 1 + A, B]
    return [Ranking(levels, p[: len(levels), :, b], label[: len(levels), :, b]) for b, levels in enumerate(thresholds)]


def reachable_weights(masks: Masks, reached: Tensor) -> Tensor:
    """Weights of all elements that can affect the output: edges that can reach it, and nodes."""
    return torch.cat([mask[reached] if name == EDGES else mask.flatten() for name, mask in masks.items()])


def _keep_from(soft: JoinedMasks, thresholds: list[float]) -> JoinedMasks:
    """Hard masks of the elements with a weight of at least the threshold of their explanation."""

    def kept(weight: Tensor, owner: Tensor) -> Tensor:
        level = weight.new_tensor(thresholds)[owner]
        return (weight >= level.view(-1, *[1] * (weight.dim() - 1))).to(weight.dtype)

    return soft.map(kept)
