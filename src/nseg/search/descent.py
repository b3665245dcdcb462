"""Gradient descent on a batch of instances: one loop that knows no method.

Instances share a forward pass and nothing else. The loss is a *sum* over instances and Adam works coordinate by
coordinate, so every instance takes the steps that it would take alone, also after others have left the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nseg.graphs.groups import is_in_groups
from nseg.model.causal import CausalModel
from nseg.search.deadline import CLIMB_SHARE, time_is_up
from nseg.search.parts import MaskParts, Masks

Tick = Callable[[], object]
"""Called once per step, for a progress bar."""

MANY_STEPS = 8
"""Steps from which on it pays to record the first pass."""

REPACK_SHARE = 0.9
"""The batch is packed again when no more than this share of it is still active."""

MIN_PROGRESS = 1e-3
"""How much the merit must rise to count as progress."""


@dataclass(frozen=True)
class StepState:
    """What a method sees in one step.

    Args:
        causal, parts: the instances that are still in the batch, and the parts of their masks.
        logits: the searched logits, [P, ...] per part.
        step: number of the step.
        cache: for what a method computes once per batch.
    """

    causal: CausalModel
    parts: MaskParts
    logits: Masks
    step: int
    cache: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def soft(self) -> Masks:
        """Sigmoids of the logits."""
        return self.logits.map(torch.sigmoid)


Method = Callable[[StepState], tuple[Tensor, Tensor]]
"""Returns the loss, which is descended, and the merit, by which masks are compared, of each start and instance, [P, B]."""


@dataclass(frozen=True)
class DescentSettings:
    """Settings of the loop.

    Args:
        steps: maximum number of steps.
        lr: learning rate of Adam.
        patience: steps without progress of the merit after which an instance leaves the batch; None: never.
        tolerance: loss of merit that is acceptable for a smaller mask.
    """

    steps: int
    lr: float
    patience: int | None = None
    tolerance: float = 0.0


@dataclass(frozen=True)
class DescentResult:
    """Result of the descent loop.

    Args:
        best: smallest masks within tolerance of the highest merit seen, over steps and starts.
        best_of_starts: the same for each start, [P, ...] per part.
        last: masks that were evaluated last, [P, ...] per part; only if no instance left.
        logits: logits after the last step, likewise.
        trace: highest merit so far, step by step, [steps, B].
        steps: number of steps that each instance made, [B].
    """

    best: Masks
    best_of_starts: Masks
    last: Masks
    logits: Masks
    trace: Tensor
    steps: Tensor


def descend(
    causal: CausalModel,
    parts: MaskParts,
    start: Masks,
    method: Method,
    settings: DescentSettings,
    tick: Tick = lambda: None,
) -> DescentResult:
    """Minimise a method's loss with Adam, instance by instance, and keep the best masks seen."""
    number, device = len(causal.instances), causal.instances.x.device
    active = torch.arange(number, device=device)
    state = StepState(causal, parts, start.map(lambda s: s.detach().clone().requires_grad_()), 0)
    optimiser: torch.optim.Optimizer = torch.optim.Adam(state.logits.tensors, lr=settings.lr)
    record = _BestMasks.empty(parts, start, settings)
    if settings.steps >= MANY_STEPS:
        causal.expect_many_passes()
    last, trace = state.soft.map(torch.detach), []
    for step in range(settings.steps):
        if step and time_is_up("climb", CLIMB_SHARE):
            break
        state = StepState(state.causal, state.parts, state.logits, step, state.cache)
        loss, merit = method(state)
        last = state.soft.map(torch.detach)
        record.update(active, merit.detach(), state.parts.size(last), last, state.parts)
        if loss.requires_grad:
            optimiser.zero_grad()
            torch.autograd.backward(loss.sum())  # a sum, so that instances stay independent
            optimiser.step()
        trace.append(record.highest.amax(0))
        tick()
        live = record.live[active]
        if not bool(live.any()):
            break
        if int(live.sum()) <= REPACK_SHARE * live.numel():
            active = active[live]
            record.positions = {part.name: is_in_groups(part.owner, active, number).nonzero().flatten() for part in parts}
            state, optimiser = _drop_settled(state, optimiser, live.nonzero().flatten(), settings.lr)
    for _ in range(settings.steps - len(trace)):
        tick()
    history = torch.stack(trace) if trace else record.highest.new_zeros(0, number)
    return DescentResult(record.best(parts), record.masks, last, state.logits.map(torch.detach), history, record.steps)


@dataclass
class _BestMasks:
    """The best masks that each start of each instance has seen.

    Args:
        masks: the masks, [P, ...] per part.
        highest: highest merit, [P, B].
        merit, size: of the kept masks, [P, B].
        idle: steps since the highest merit last rose noticeably, [P, B].
        mark: the highest merit at that step, [P, B].
        steps: number of steps made, [B].
        settings: when an instance has settled, and how much merit may be given up for size.
        positions: positions of the active instances' elements in ``masks``, by part; None if all are active.
    """

    masks: Masks
    highest: Tensor
    merit: Tensor
    size: Tensor
    idle: Tensor
    mark: Tensor
    steps: Tensor
    settings: DescentSettings
    positions: dict[str, Tensor] | None = None

    @classmethod
    def empty(cls, parts: MaskParts, start: Masks, settings: DescentSettings) -> _BestMasks:
        some = start.tensors[0]
        low = torch.full((len(some), len(parts.instances)), -torch.inf, dtype=some.dtype, device=some.device)
        none = torch.zeros_like(low, dtype=torch.long)
        masks = start.map(lambda s: s.detach().sigmoid())
        return cls(masks, low, low.clone(), -low, none, low.clone(), none[0].clone(), settings)

    @property
    def live(self) -> Tensor:
        """Whether each instance still makes progress from some start, [B]."""
        if self.settings.patience is None:
            return torch.ones_like(self.steps, dtype=torch.bool)
        return (self.idle < self.settings.patience).any(0)

    def update(self, active: Tensor, merit: Tensor, size: Tensor, soft: Masks, parts: MaskParts) -> None:
        """Record the masks of the instances ``active``, whose parts are given; settled instances do not change."""
        live = self.live[active]
        old = self.highest[:, active]
        highest = torch.where(live, torch.maximum(old, merit), old)
        good = merit >= highest - self.settings.tolerance
        worse = self.merit[:, active] < highest - self.settings.tolerance
        better = live & good & (worse | (size < self.size[:, active]))
        rose = highest > self.mark[:, active] + MIN_PROGRESS
        self.highest[:, active] = highest
        self.merit[:, active] = torch.where(better, merit, self.merit[:, active])
        self.size[:, active] = torch.where(better, size, self.size[:, active])
        self.mark[:, active] = torch.where(rose, highest, self.mark[:, active])
        self.idle[:, active] = torch.where(rose, 0, self.idle[:, active] + 1)
        self.steps[active] += live.long()
        if not bool(better.any()):
            return
        for part in parts:
            kept, now = self.masks[part.name], soft[part.name]
            take = better[:, part.owner].view(len(better), -1, *[1] * (now.dim() - 2))
            here = slice(None) if self.positions is None else self.positions[part.name]
            kept[:, here] = torch.where(take, now, kept[:, here])

    def best(self, parts: MaskParts) -> Masks:
        """Smallest masks of all starts within tolerance of the highest merit."""
        good = self.merit >= self.merit.amax(0) - self.settings.tolerance
        start = torch.where(good, self.size, torch.inf).argmin(0)
        found = Masks()
        for part in parts:
            row = torch.arange(part.owner.numel(), device=part.owner.device)
            found[part.name] = self.masks[part.name][start[part.owner], row]
        return found


def _drop_settled(
    state: StepState, optimiser: torch.optim.Optimizer, stay: Tensor, lr: float
) -> tuple[StepState, torch.optim.Optimizer]:
    """The batch and the optimiser's state without the instances that have settled."""
    number = len(state.parts.instances)
    kept = {part.name: is_in_groups(part.owner, stay, number).nonzero().flatten() for part in state.parts}
    causal = state.causal.select(stay)
    logits = Masks({name: old.detach()[:, kept[name]].clone().requires_grad_() for name, old in state.logits.items()})
    smaller = torch.optim.Adam(logits.tensors, lr=lr)
    for name, before in state.logits.items():
        smaller.state[logits[name]] = {
            key: value[:, kept[name]].clone() if value.shape == before.shape else value.clone()
            for key, value in optimiser.state[before].items()
        }
    return StepState(causal, state.parts.select(stay, causal.instances), logits, state.step), smaller
