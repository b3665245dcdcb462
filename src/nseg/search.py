"""The search: Algorithm 1 of the paper, for all instances at once, and the loop that other methods share with it.

Instances share a forward pass and nothing else: the loss is a *sum* over instances and Adam works coordinate by
coordinate, so every instance walks the path that it would walk alone, also when others have left the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg import objective as obj
from nseg.complement import Law, Shifted
from nseg.errors import SettingsError
from nseg.instances import Role
from nseg.scm import Scm
from nseg.settings import Common, number, one_of, whole, yes_or_no
from nseg.space import Draw, Masks, Noise, Space, log_odds

Tick = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Settings(Common):
    """All that determines an explanation of NSEG besides model and data; see also :class:`nseg.settings.Common`.

    Args:
        objective: what is sought: ``"pns"`` (Eq. 18), ``"pn"`` or ``"ps"`` (appendix C).
        surrogate: how it is climbed: ``"log"``, logarithms whose gradient does not die; ``"gap"``, probabilities as in the
            paper; ``"ratio"``, the ratios of Prop. 3 (for ``"pn"`` and ``"ps"``).
        steps: steps of Adam at the most.
        lr: its step size.
        alpha_e: price of one kept edge.
        beta_e: price of the edge mask's mean entropy.
        alpha_f: price of one kept node (or feature).
        beta_f: price of the node mask's mean entropy.
        samples: worlds drawn per sub-event and step.
        noise: half-width of the uniform noise in the complement (Eqs. 13, 14).
        law: another law of the complement instead of the paper's noise: a function of (mask, uniform numbers).
        starts: logits that the search starts from, each a search of its own in the same batch; the best is kept.
        spread: how far a start is spread around them, in units of 1 / sqrt(m) for m edges (or nodes).
        keep: which masks of a search are kept: the ``"best"``, or the ``"last"`` as in the published code.
        patience: steps without progress after which an instance leaves; None: never.
        rounds, exact: as in :class:`Common`, but on.
        whole_graph: scale start and mean entropy by the edges and nodes of the whole graph, as the published code does,
            instead of those of the computation graph.
    """

    objective: str = one_of("pns", ("pns", "pn", "ps"))
    surrogate: str = one_of("log", ("log", "gap", "ratio"))
    steps: int = whole(100)
    lr: float = number(0.1)
    alpha_e: float = number(0.05)
    beta_e: float = number(0.1)
    alpha_f: float = number(0.05)
    beta_f: float = number(0.1)
    samples: int = whole(1, 1)
    noise: float = number(0.025)
    law: Law | None = None
    starts: tuple[float, ...] = (0.0, 1.0, 2.0)
    spread: float = number(1.0)
    keep: str = one_of("best", ("best", "last"))
    patience: int | None = whole(20, 1, optional=True)
    rounds: int = whole(10)
    exact: int = whole(10)
    whole_graph: bool = yes_or_no(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.objective, self.surrogate) not in obj.CLIMBED:
            raise SettingsError(
                f"surrogate must be 'log' or 'gap' for objective {self.objective!r} (got {self.surrogate!r}). Try 'log'."
            )
        starts = tuple(self.starts) if isinstance(self.starts, tuple | list) else ()
        if not starts or not all(isinstance(s, int | float) and abs(s) < 100 for s in starts):
            raise SettingsError(f"starts must be one or more finite logits (got {self.starts!r}). Try (0.0, 1.0, 2.0).")
        object.__setattr__(self, "starts", starts)
        if self.keep == "last" and (len(starts) > 1 or self.patience is not None):
            raise SettingsError(
                f"keep='last' needs one start and no patience (got starts={starts}, patience={self.patience}), because only "
                "the best of several can be told. Try keep='best'."
            )
        if self.law is not None and not callable(self.law):
            raise SettingsError(f"law must be a function of a mask and uniform numbers (got {self.law!r}). Try None.")

    def merit(self, p_factual: Tensor, p_complement: Tensor) -> Tensor:
        """The objective itself, of which the surrogate is climbed."""
        surrogate = "ratio" if self.surrogate == "ratio" else "gap"
        return obj.MERITS[self.objective, surrogate](p_factual, p_complement)

    def valid(self, factual: Tensor, complement: Tensor) -> Tensor:
        """As in :class:`Common`; what is not sought does not count."""
        both = super().valid(factual, complement)
        return both if self.objective == "pns" else complement == 0 if self.objective == "pn" else factual == 1


# --- the loop, which knows no method -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """What a method sees in one step.

    Args:
        scm, space: the instances that are still in the batch, and their elements.
        logits: the searched logits, [P, n_e] and [P, n_n, w].
        step: which step this is.
        memory: a place for what a method works out once per batch.
    """

    scm: Scm
    space: Space
    logits: Masks
    step: int
    memory: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def soft(self) -> Masks:
        """Their sigmoids."""
        return self.logits.map(torch.sigmoid)


Method = Callable[[Look], tuple[Tensor, Tensor]]
"""Loss, which is descended, and merit, by which masks are compared, of each start and instance, each [P, B]."""


@dataclass(frozen=True)
class Descent:
    """How a loop descends.

    Args:
        steps: at the most.
        lr: step size of Adam.
        patience: steps without progress of the merit after which an instance leaves the batch; None: never.
        tolerance: how much merit may be given up for a smaller mask.
    """

    steps: int
    lr: float
    patience: int | None = None
    tolerance: float = 0.0


@dataclass(frozen=True)
class Walk:
    """Where a loop came by.

    Args:
        best: the smallest masks within tolerance of the highest merit met, over steps and starts, [n_e] and [n_n, w].
        chosen: the same of each start, [P, n_e] and [P, n_n, w].
        seen: the masks that were evaluated last, [P, n_e] and [P, n_n, w]; only if no instance left.
        logits: the logits after the last step, likewise.
        trace: the highest merit met, step by step, [steps, B].
        steps: how many steps each instance made, [B].
    """

    best: Masks
    chosen: Masks
    seen: Masks
    logits: Masks
    trace: Tensor
    steps: Tensor


def descend(scm: Scm, space: Space, start: Masks, method: Method, how: Descent, tick: Tick = lambda: None) -> Walk:
    """Minimise a method's loss by Adam, instance by instance, and keep the best masks met."""
    number, device = len(scm.instances), scm.instances.x.device
    active = torch.arange(number, device=device)
    look = Look(scm, space, start.map(lambda s: s.detach().clone().requires_grad_()), 0)
    optimiser: torch.optim.Optimizer = torch.optim.Adam(look.logits.tensors, lr=how.lr)
    record = _Record.empty(space, start, how)
    seen, trace = look.soft.map(torch.detach), []
    for step in range(how.steps):
        look = Look(look.scm, look.space, look.logits, step, look.memory)
        loss, merit = method(look)
        seen = look.soft.map(torch.detach)
        record.meet(active, merit.detach(), look.space.size(seen), seen, look.space)
        if loss.requires_grad:
            optimiser.zero_grad()
            torch.autograd.backward(loss.sum())  # a sum, so that instances stay independent
            optimiser.step()
        trace.append(record.highest.amax(0))
        tick()
        live = record.live[active]
        if not bool(live.any()):
            break
        if int(live.sum()) <= STAY * live.numel():
            active = active[live]
            record.places = [torch.isin(owner, active).nonzero().flatten() for owner in space.owners.tensors]
            look, optimiser = _without(look, optimiser, live.nonzero().flatten(), how.lr)
    for _ in range(how.steps - len(trace)):
        tick()
    history = torch.stack(trace) if trace else record.highest.new_zeros(0, number)
    return Walk(record.best(space), record.chosen, seen, look.logits.map(torch.detach), history, record.steps)


@dataclass
class _Record:
    """The best that each start of each instance has met.

    Args:
        chosen: its masks, [P, n_e] and [P, n_n, w].
        highest: the highest merit, [P, B].
        merit, size: of what is chosen, [P, B].
        idle: steps since the highest merit last rose noticeably, [P, B].
        mark: where it stood then, [P, B].
        steps: steps made, [B].
        how: when an instance has settled, and how much merit may be given up for size.
        places: where the elements of active instances stand in ``chosen``, edges and nodes; None if all are active.
    """

    chosen: Masks
    highest: Tensor
    merit: Tensor
    size: Tensor
    idle: Tensor
    mark: Tensor
    steps: Tensor
    how: Descent
    places: list[Tensor] | None = None

    @classmethod
    def empty(cls, space: Space, start: Masks, how: Descent) -> _Record:
        some = start.tensors[0]
        low = torch.full((len(some), len(space.instances)), -torch.inf, dtype=some.dtype, device=some.device)
        none = torch.zeros_like(low, dtype=torch.long)
        return cls(
            start.map(lambda s: s.detach().sigmoid()), low, low.clone(), -low, none, low.clone(), none[0].clone(), how
        )

    @property
    def live(self) -> Tensor:
        """Whether each instance still gets on from some start, [B]."""
        if self.how.patience is None:
            return torch.ones_like(self.steps, dtype=torch.bool)
        return (self.idle < self.how.patience).any(0)

    def meet(self, active: Tensor, merit: Tensor, size: Tensor, soft: Masks, space: Space) -> None:
        """Take note of the masks of the instances ``active``, whose space is given; those that have settled are done."""
        live = self.live[active]
        old = self.highest[:, active]
        highest = torch.where(live, torch.maximum(old, merit), old)
        good = merit >= highest - self.how.tolerance
        worse = self.merit[:, active] < highest - self.how.tolerance
        better = live & good & (worse | (size < self.size[:, active]))
        rose = highest > self.mark[:, active] + PROGRESS
        self.highest[:, active] = highest
        self.merit[:, active] = torch.where(better, merit, self.merit[:, active])
        self.size[:, active] = torch.where(better, size, self.size[:, active])
        self.mark[:, active] = torch.where(rose, highest, self.mark[:, active])
        self.idle[:, active] = torch.where(rose, 0, self.idle[:, active] + 1)
        self.steps[active] += live.long()
        if not bool(better.any()):
            return
        for n, (chosen, now, owner) in enumerate(zip(self.chosen.tensors, soft.tensors, space.owners.tensors, strict=True)):
            take = better[:, owner].view(len(better), -1, *[1] * (now.dim() - 2))
            here = slice(None) if self.places is None else self.places[n]
            chosen[:, here] = torch.where(take, now, chosen[:, here])

    def best(self, space: Space) -> Masks:
        """Of all starts the smallest masks within tolerance of the highest merit, [n_e] and [n_n, w]."""
        good = self.merit >= self.merit.amax(0) - self.how.tolerance
        row = torch.where(good, self.size, torch.inf).argmin(0)
        owners = iter(space.owners.tensors)
        return self.chosen.map(
            lambda mask: mask[row[owner := next(owners)], torch.arange(owner.numel(), device=owner.device)]
        )


STAY = 0.75
"""The batch is packed anew when no more than this share of it still gets on."""

PROGRESS = 1e-3
"""How much the merit must rise to count."""


def _without(look: Look, optimiser: torch.optim.Optimizer, stay: Tensor, lr: float) -> tuple[Look, torch.optim.Optimizer]:
    """The batch without the instances that have left, their paths cut out of the optimiser's memory."""
    kept = [torch.isin(owner, stay).nonzero().flatten() for owner in look.space.owners.tensors]
    scm = look.scm.select(stay)
    old = look.logits.tensors
    new = iter([o.detach()[:, k].clone().requires_grad_() for o, k in zip(old, kept, strict=True)])
    logits = look.logits.map(lambda _: next(new))
    small = Look(scm, look.space.of(scm.instances), logits, look.step)
    following = torch.optim.Adam(logits.tensors, lr=lr)
    for before, after, k in zip(old, logits.tensors, kept, strict=True):
        state = optimiser.state[before]
        following.state[after] = {
            name: value[:, k].clone() if value.shape == before.shape else value.clone() for name, value in state.items()
        }
    return small, following


# --- the method of the paper -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Solution:
    """What a method found: soft masks, and its own hard ones if it makes them itself.

    Args:
        soft: values of the elements, [n_e] and [n_n, w].
        rankings: further masks that a hard explanation may be made of, [P, n_e] and [P, n_n, w].
        hard: hard masks that need no extraction.
        exact: whether each instance's hard mask is the best there is, [B].
        steps: how many steps each instance made, [B].
    """

    soft: Masks
    rankings: Masks | None = None
    hard: Masks | None = None
    exact: Tensor | None = None
    steps: Tensor | None = None


def search(scm: Scm, space: Space, settings: Settings, tick: Tick = lambda: None) -> Solution:
    """Climb the bound (Algorithm 1)."""
    split, climb = space.split(settings), obj.CLIMBED[settings.objective, settings.surrogate]
    law = settings.law or Shifted(settings.noise)

    def method(look: Look) -> tuple[Tensor, Tensor]:
        if not look.memory:
            look.memory.update(noise=Noise.of(look.space, settings.seed, scm.dtype), scale=scale(look.space, settings))
        draw = Draw(law, settings.samples, look.memory["noise"], look.step)
        factual, complement = log_odds(look.scm, look.space, look.soft, draw)
        value = climb(factual, complement, split, look.step)
        with torch.no_grad():
            merit = settings.merit(factual.sigmoid(), obj.mix(complement.sigmoid(), split))
        return price(look, settings) - value, merit  # Eq. 19

    how = Descent(settings.steps, settings.lr, settings.patience, settings.tolerance)
    walk = descend(scm, space, start(scm, space, settings), method, how, tick)
    soft = walk.best if settings.keep == "best" else walk.seen.map(lambda mask: mask[0])
    rankings = walk.chosen if settings.keep == "best" and len(settings.starts) > 1 else None
    return Solution(soft, rankings, steps=walk.steps)


def scale(space: Space, settings: Settings) -> tuple[Tensor, Tensor]:
    """How many edges and mask entries of nodes the start and the mean entropy are scaled by, [B]."""
    instances, width = space.instances, space.node_width if space.nodes else 1
    if settings.whole_graph:
        edge, node = instances.total.unbind(1)
    else:
        edge, node = instances.ptr[Role.EDGE].diff(), instances.ptr[Role.NODE].diff()
    if space.nodes is MaskType.common_attributes:
        node = torch.ones_like(node)
    return edge.clamp_min(1), (node * width).clamp_min(1)


def start(scm: Scm, space: Space, settings: Settings) -> Masks:
    """Logits uniform in each start +- ``spread`` / sqrt(m), [P, n_e] and [P, n_n, w]."""
    noise = Noise.of(space, settings.seed, scm.dtype)
    edges, nodes = scale(space, settings)

    def around(count: Tensor, owner: Tensor, u: list[Tensor]) -> Tensor:
        reach = settings.spread * count[owner].to(noise.dtype).rsqrt().view(-1, *[1] * (u[0].dim() - 1))
        return torch.stack([at + reach * (2 * one - 1) for at, one in zip(settings.starts, u, strict=True)])

    draws = range(-1, -1 - len(settings.starts), -1)
    return Masks(
        around(edges, space.edge_owner, [noise.for_edges(d) for d in draws]) if space.edges else None,
        around(nodes, space.node_owner, [noise.for_nodes(d) for d in draws]) if space.nodes else None,
    )


def price(look: Look, settings: Settings) -> Tensor:
    """Size and mean entropy of each instance's masks (Eq. 19), [P, B]."""
    sizes, uncertainty = look.space.sums(look.soft), look.space.sums(look.logits.map(obj.entropy))
    prices = (settings.alpha_e, settings.beta_e), (settings.alpha_f, settings.beta_f)
    rows = zip(sizes, uncertainty, look.memory["scale"], prices, strict=True)
    parts = [alpha * s + beta * h / count for s, h, count, (alpha, beta) in rows if s is not None and h is not None]
    total: Tensor = sum(parts[1:], parts[0])
    return total
