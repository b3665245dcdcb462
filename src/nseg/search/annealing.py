"""Simulated annealing over subsets, for explanations that are hardly beaten: none better, none smaller and as good.

Moves climb to the top that is near; annealing also crosses what lies between tops. First chains of single flips and pairs
of flips cool down, from known subsets and from random ones, each with its own price of an element. Then the best subset of
every size met so far is flipped further, and whatever is better than all of its size takes that place (Pareto optimisation
for subset selection; Qian, Yu and Zhou, 2015).
"""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.candidates import Candidates
from nseg.search.deadline import time_is_up
from nseg.search.formulas import size
from nseg.search.front import Front
from nseg.search.noise import instance_keys, uniform
from nseg.search.parts import MaskParts
from nseg.search.restarts import draw_all
from nseg.search.settings import BaseSettings
from nseg.search.subsets import SubsetScorer

CHAINS = 24
"""Subsets of each instance that are changed side by side."""

PRICES = (0.0, 0.005, 0.015)
"""Prices of an element, one chain after the other; the first looks for the best subset, the others for small ones."""

HOT, COLD = 0.03, 0.002
"""Loss of merit that is accepted with probability 1 / e, in the first step and in the last."""

PAIRS = 0.4
"""Share of the steps that flip two elements, and so may exchange them; the others flip one."""

BAND = 0.2
"""The best subsets of a size are changed further if their merit is this close to that of the best of all."""

NO_SEED = 2
"""In place of a seed: like restarts, annealing draws the same for every seed, so that seeds agree."""


@torch.no_grad()
def anneal(causal: CausalModel, parts: MaskParts, settings: BaseSettings, known: Tensor) -> Candidates:
    """The best subset of every size that annealing meets, and the best valid one.

    Its course does not depend on the tolerance, so that a smaller one never gives a worse explanation.

    Args:
        causal, parts: B instances and the parts of their masks.
        settings: how subsets are compared, and the number of steps.
        known: subsets to begin with besides random ones, [P, n].
    """
    chains = _Chains(causal, parts, settings)
    share = torch.linspace(0, 1, CHAINS, dtype=torch.double, device=known.device).unsqueeze(1)
    random = draw_all(parts, NO_SEED, range(CHAINS)) < share
    chains.cool(torch.cat([known, random])[: max(CHAINS, len(known))], settings.anneal)
    chains.push(settings.anneal)
    return chains.candidates


class _Chains:
    """Subsets that are changed at random, and the best of each size among all that were asked about."""

    def __init__(self, causal: CausalModel, parts: MaskParts, settings: BaseSettings) -> None:
        self.parts, self.scorer = parts, SubsetScorer(causal, parts, settings)
        self.keys = instance_keys(parts.instances, NO_SEED)
        nothing, _ = self.scorer.measure(1, lambda p: torch.zeros_like(parts.owner, dtype=torch.bool).repeat(len(p), 1))
        self.front, self.valid = Front(parts, nothing.dtype), Front(parts, nothing.dtype)

    def cool(self, kept: Tensor, steps: int) -> None:
        """Change P subsets [P, n]; losses are accepted with a probability that falls step by step."""
        price = torch.tensor(PRICES, device=kept.device).repeat(len(kept))[: len(kept)].unsqueeze(1)
        owner, now = self.parts.owner, self._ask(kept, price)
        for step in range(steps):
            if time_is_up("annealing"):
                return
            heat = HOT * (COLD / HOT) ** (step / steps)
            u = self._draw(len(kept), 0, step)
            changed = kept ^ self._flips(u)
            value = self._ask(changed, price)
            take = u[3] < ((value - now) / heat).exp()
            now, kept = torch.where(take, value, now), torch.where(take[:, owner], changed, kept)

    def push(self, steps: int) -> None:
        """Change subsets that are the best of their size and better than all smaller ones; every second one is valid."""
        for step in range(steps):
            if time_is_up("annealing"):
                return
            u = self._draw(CHAINS, 1, step)
            any_of_them, valid = self.front.draw(u[3], BAND), self.valid.draw(u[3], BAND)
            some = (self.valid.merit > -torch.inf).any(0) & (torch.arange(CHAINS, device=u.device) % 2 == 1).unsqueeze(1)
            self._ask(torch.where(some[:, self.parts.owner], valid, any_of_them) ^ self._flips(u))

    @property
    def candidates(self) -> Candidates:
        """The best subset of every size, and the best valid one; only those of the second kind are said to be valid."""
        known = self.valid.merit > -torch.inf
        return Candidates(
            self.parts,
            torch.cat([self.front.kept, self.valid.kept]),
            torch.cat([self.front.merit, self.valid.merit]),
            torch.cat([torch.zeros_like(known), known]),
        )

    def _ask(self, kept: Tensor, price: Tensor | float = 0.0) -> Tensor:
        """Merits of P subsets [P, n] less the price of their elements, [P, B]; the best are remembered."""
        merit, valid = self.scorer.measure(len(kept), lambda p: kept[p])
        count = size(kept.double(), self.parts.owner, len(self.parts.instances)).long()
        self.front.add(kept, merit, count)
        self.valid.add(kept, torch.where(valid, merit, -torch.inf), count)
        return merit - price * count

    def _draw(self, number: int, stage: int, step: int) -> Tensor:
        """Four uniform numbers for each of some subsets, [4, number, B]."""
        return uniform(self.keys, 4 * number, (stage, step), torch.double).t().view(4, number, -1)

    def _flips(self, u: Tensor) -> Tensor:
        """One or two elements of each subset that uniform numbers choose, [P, n]."""
        owner, position = self.parts.owner, (u[:2] * self.parts.count).long()  # [2, P, B]
        flips = position[:, :, owner] == self.parts.position
        return flips[0] ^ (flips[1] & (u[2] < PAIRS)[:, owner])
