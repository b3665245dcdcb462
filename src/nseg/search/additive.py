"""Which flips to make together, if their effects on the log-odds simply add up.

Far from each other in the graph, edges act on a model's output independently, so that log-odds after several flips are
nearly the sum of what single flips change. Probabilities are not: near 0 and 1 single flips seem to do nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.model.kernel import load_kernel
from nseg.search.objective import PNS, Objective
from nseg.search.subsets import ordered_bits

DIRECTIONS = ((1, 1), (3, 1), (1, 3))
"""Worth of log-odds gained with the explanation alone, and of log-odds lost without it, by which flips are ordered."""

DECIMALS = 4
"""Rounding of predicted log-odds and merits."""


@dataclass(frozen=True)
class AdditiveFlips:
    """What single flips change, for B instances.

    Args:
        objective, split: what subsets are compared by, and the probability of each sub-event of the complement.
        odds: log-odds of the present subset in the factual world and each sub-event, [1 + A, B].
        change: what each flip adds to them, [F, 1 + A, B]; 0 where there is no such flip.
        exists: which flips there are, [F, B].
    """

    objective: Objective
    split: Sequence[float]
    odds: Tensor
    change: Tensor
    exists: Tensor

    def promising(self, single: Tensor) -> Tensor:
        """Sets of flips that should be the best of their size: of 2, 3 to 4, 5 to 8, ... flips, [J, F, B].

        An instance with fewer flips has an empty set there. Values are rounded, or rounding errors of a batch would decide
        between sets of equal worth.

        Args:
            single: merit after each flip alone, [F, B].
        """
        compiled = self._compiled(single)
        if compiled is not None:
            return compiled
        weight, number = self.odds.new_tensor(self.split).view(-1, 1), len(self.exists)
        gain, loss = self.change[:, 0], (self.change[:, 1:] * weight).sum(1)  # [F, B]
        score = torch.stack([single.to(gain.dtype), *(a * gain - b * loss for a, b in DIRECTIONS)]).round(decimals=DECIMALS)
        order = _from_highest(torch.where(self.exists, score, -torch.inf))  # [D, F, B]
        change = self.change.expand(len(order), -1, -1, -1)
        p = (self.odds + change.gather(1, order.unsqueeze(2).expand_as(change)).cumsum(1)).sigmoid()  # [D, F, 1 + A, B]
        merit = self.objective.merit(p[:, :, 0], (p[:, :, 1:] * weight).sum(2)).round(decimals=DECIMALS)  # [D, F, B]
        count = self.exists.sum(0)
        merit = torch.where(torch.arange(number, device=count.device).unsqueeze(1) < count, merit, -torch.inf)
        every = torch.arange(number, device=count.device).view(-1, 1).expand_as(order)
        place, found, first = torch.empty_like(order).scatter_(1, order, every), [], 1  # of each flip in the order
        while first < number:
            last = min(2 * first, number)
            best = merit[:, first:last].flatten(0, 1).argmax(0)  # [B]
            direction, length = best // (last - first), best % (last - first) + first + 1
            found.append((place.gather(0, direction.expand(1, number, -1)).squeeze(0) < length) & (first < count))
            first = last
        return torch.stack(found) & self.exists if found else self.exists.new_zeros(0, *self.exists.shape)

    def _compiled(self, single: Tensor) -> Tensor | None:
        """The same by the kernel; None if it cannot."""
        dtype, plain = self.odds.dtype, isinstance(self.objective, PNS) and self.odds.device.type == "cpu"
        kernel = load_kernel(dtype) if plain else None
        if kernel is None:
            return None
        (flips, worlds, instances), sets = self.change.shape, max(len(self.exists) - 1, 0).bit_length()
        found = self.exists.new_zeros(sets, flips, instances)
        numbers = self.odds, self.change, self.exists.sum(0), single.to(dtype), self.odds.new_tensor(self.split)
        given = [one.contiguous() for one in numbers]
        if kernel.choose_flips(*(one.data_ptr() for one in given), flips, worlds, instances, found.data_ptr()):
            raise MemoryError
        return found


def _from_highest(score: Tensor) -> Tensor:
    """Numbers of the flips from the highest score on, of equals the first one first, [D, F, B].

    A stable argsort gives the same, but takes three times as long as NumPy's sort of scores and numbers in one.

    >>> _from_highest(torch.tensor([[[0.5], [2.0], [-torch.inf], [2.0]]])).flatten()
    tensor([1, 3, 0, 2])
    """
    if score.dtype != torch.float32 or score.device.type != "cpu":
        return score.argsort(dim=1, descending=True, stable=True)
    number = torch.arange(score.size(1), device=score.device)
    key = number - (ordered_bits(score.transpose(1, 2).contiguous()) << 32)  # [D, B, F]
    key.numpy().sort(-1)
    return (key & 0xFFFFFFFF).transpose(1, 2)
