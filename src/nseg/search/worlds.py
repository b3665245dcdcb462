"""The worlds that masks stand for, and the model's answer in them.

This is the only place that turns masks and a law of the complement into worlds. Search, certificates, metrics, reports
and plots all use it, so PNS, PN and PS mean the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.model.subset_worlds import OUTSIDE, SubsetWorlds
from nseg.search.complement import Law, literal
from nseg.search.formulas import mix
from nseg.search.noise import Noise
from nseg.search.parts import EDGES, NODES, MaskParts, Masks, Part

OUTSIDE_NODES = "outside nodes"
"""Name of the weight of all nodes outside the instances, where nodes are deleted."""


@dataclass(frozen=True)
class ComplementDraw:
    """How complement worlds are drawn.

    Args:
        law: turns a mask and uniform numbers into the mask of a world without the explanation.
        samples: worlds per sub-event.
        noise: the uniform numbers of each part; empty if the law needs none.
        step: identifies the draw.
    """

    law: Law = literal
    samples: int = 1
    noise: Noise = field(default_factory=dict)
    step: int = 0


LITERAL = ComplementDraw()
"""The complement 1 - M, in which all reported numbers are measured."""


class Evaluation(NamedTuple):
    """The model's answer to P masks, [P, B] each.

    Attributes:
        p_factual: probability of the class with the explanation alone.
        p_complement: its probability in the complement, sub-events mixed by the split.
        keeps: share of the rows that have their class with the explanation alone.
        remains: share of the rows that still have it if everything explained is taken away (sub-event 00).
        log_odds: log-odds of the class with the explanation alone, and in each sub-event of the complement, [P, 1 + A, B];
            None if they were not asked for.
    """

    p_factual: Tensor
    p_complement: Tensor
    keeps: Tensor
    remains: Tensor
    log_odds: Tensor | None = None

    def smaller(self, other: Evaluation) -> Evaluation:
        """Of two answers the one with the smaller bound; an explanation does only what it does in both."""
        mine = self.p_factual - self.p_complement <= other.p_factual - other.p_complement
        p_factual = torch.where(mine, self.p_factual, other.p_factual)
        p_complement = torch.where(mine, self.p_complement, other.p_complement)
        keeps, remains = torch.minimum(self.keeps, other.keeps), torch.maximum(self.remains, other.remains)
        log_odds = None
        if self.log_odds is not None and other.log_odds is not None:
            log_odds = torch.where(mine.unsqueeze(1), self.log_odds, other.log_odds)
        return Evaluation(p_factual, p_complement, keeps, remains, log_odds)


def build_worlds(parts: MaskParts, masks: Masks, draw: ComplementDraw = LITERAL) -> Masks:
    """The factual world of each of P masks, followed by its complement worlds, event by event, sample by sample.

    Args:
        parts: the parts of the masks.
        masks: values of the elements, [P, ...] per part.
        draw: how complements are drawn.

    Returns:
        weights of K = P * (1 + A * S) worlds, [K, ...] per part; and whether edges outside the instances stay, which are
        not explained, [K].
    """
    events = parts.events

    def stack(number: int, part: Part) -> Tensor:
        mask = masks[part.name]
        worlds = [mask]
        if not draw.noise and not mask.requires_grad:  # without random numbers all complements of a mask are equal
            without = draw.law(mask, mask[0])
            worlds += [mask if stays[number] else without for stays in events for _ in range(draw.samples)]
            return torch.stack(worlds, 1).flatten(0, 1)
        for event, stays in enumerate(events):
            for sample in range(draw.samples):
                u = draw.noise[part.name].draw(draw.step, event, sample) if draw.noise else mask[0]
                worlds.append(mask if stays[number] else draw.law(mask, u))
        return torch.stack(worlds, 1).flatten(0, 1)

    worlds = parts.to_weights(Masks({part.name: stack(number, part) for number, part in enumerate(parts)}))
    for name, stays in outside_stays(parts).items():
        outside = [0.0, *(float(stay) for stay in stays for _ in range(draw.samples))]
        weight = worlds.tensors[0]
        worlds[name] = weight.new_tensor(outside).repeat(len(weight) // len(outside))
    return worlds


def subset_worlds(parts: MaskParts, kept: Tensor) -> SubsetWorlds:
    """The worlds of :func:`build_worlds` for P subsets of the elements [P, n], with literal complements."""
    keeps = [[True] * len(parts.parts), *parts.events]
    return SubsetWorlds(kept, parts.covered, keeps, {name: [False, *stays] for name, stays in outside_stays(parts).items()})


def outside_stays(parts: MaskParts) -> dict[str, list[bool]]:
    """Whether edges, and nodes, outside the instances are there in each sub-event: not where their part is as explained."""
    kinds = {OUTSIDE: EDGES if EDGES in parts else None, OUTSIDE_NODES: NODES if parts.nodes_vanish else None}
    names = [part.name for part in parts]
    return {
        kind: [not stays[names.index(name)] for stays in parts.events] for kind, name in kinds.items() if name is not None
    }


def world_log_odds(
    causal: CausalModel, parts: MaskParts, masks: Masks, draw: ComplementDraw = LITERAL
) -> tuple[Tensor, Tensor]:
    """Log-odds of the class in the factual world [P, B] and in each complement world [P, A, S, B] of P masks."""
    return split_worlds(causal.log_odds(build_worlds(parts, masks, draw)), parts, draw)


@torch.no_grad()
def evaluate(
    causal: CausalModel,
    parts: MaskParts,
    masks: Masks | Tensor,
    split: tuple[float, ...],
    intervention: str = "mask",
    odds: bool = False,
) -> Evaluation:
    """The model's answer to P masks, whose literal complements are mixed by ``split``.

    Args:
        causal, parts: B instances and the parts of their masks.
        masks: subsets of the elements, [P, n], bool; or their values, [P, ...] per part, where messages are weighed.
        split: probability of each sub-event of the complement.
        intervention: what taking edges away means, see :class:`nseg.search.settings.BaseSettings`.
        odds: whether log-odds are asked for.
    """
    if intervention == "both" and parts.deletable:
        masked, removed = (evaluate(causal, parts, masks, split, one, odds) for one in ("mask", "remove"))
        return masked.smaller(removed)
    if intervention == "remove" and parts.deletable:
        causal = causal.removing(parts.tied)
    worlds = subset_worlds(parts, masks) if isinstance(masks, Tensor) else build_worlds(parts, masks)
    p, holds, z = causal.answer(worlds, odds)
    factual, complement = split_worlds(p, parts)
    keeps, remains = split_worlds(holds, parts)
    log_odds = None if z is None else z.view(len(factual), -1, *z.shape[1:])
    return Evaluation(factual, mix(complement, split), keeps, remains[:, 0, 0], log_odds)


def split_worlds(values: Tensor, parts: MaskParts, draw: ComplementDraw = LITERAL) -> tuple[Tensor, Tensor]:
    """Values of the worlds of P masks [K, ...] as factual [P, ...] and complement [P, A, S, ...]."""
    events = len(parts.events)
    values = values.view(-1, 1 + events * draw.samples, *values.shape[1:])
    return values[:, 0], values[:, 1:].reshape(len(values), events, draw.samples, *values.shape[2:])
