"""Algorithm 1 of the paper: climb a lower bound of PNS, PN or PS."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nseg.graphs.inputs import Role
from nseg.model.causal import CausalModel
from nseg.search.complement import Shifted, literal
from nseg.search.deadline import time_is_up
from nseg.search.deletion import single_element_rankings
from nseg.search.descent import DescentSettings, StepState, Tick, descend
from nseg.search.formulas import entropy, mix
from nseg.search.harden import SEARCH_TOLERANCE, SearchResult
from nseg.search.noise import mask_noise
from nseg.search.objective import objective_of
from nseg.search.parts import EDGES, MaskParts, Masks
from nseg.search.settings import Settings
from nseg.search.worlds import ComplementDraw, world_log_odds

FEW_ELEMENTS, FEW_WEIGHED = 256, 128
"""Up to so many elements, each is tried alone for the second ranking; of more, gradients on a path are taken. Fewer are
tried where whole graphs are explained whose edges are only weighed: gradients are a better guide there than where degrees
change, and passes take longer than where a node is explained."""


def climb_bound(causal: CausalModel, parts: MaskParts, settings: Settings, tick: Tick = lambda: None) -> SearchResult:
    """Climb the bound (Algorithm 1)."""
    split, objective = parts.split(settings), objective_of(settings)
    law = settings.law or (Shifted(settings.noise) if settings.noise else literal)

    def method(state: StepState) -> tuple[Tensor, Tensor]:
        if not state.cache:
            random = {} if law is literal else mask_noise(state.parts, settings.seed, causal.dtype)
            state.cache.update(noise=random)
            state.cache.update(scale={part.name: part.scale(settings.whole_graph) for part in state.parts})
            state.cache.update(guide=_guide(state.causal, state.parts, settings))
        draw = ComplementDraw(law, settings.samples, state.cache["noise"], state.step)
        factual, complement = world_log_odds(state.cache["guide"], state.parts, state.soft, draw)
        value = objective.climb(factual, complement, split, state.step)
        with torch.no_grad():
            merit = objective.merit(factual.sigmoid(), mix(complement.sigmoid(), split))
        return price(state, settings) - value, merit  # Eq. 19

    loop = DescentSettings(settings.steps, settings.lr, settings.patience, SEARCH_TOLERANCE)
    found = descend(causal, parts, initial_logits(causal, parts, settings), method, loop, tick)
    if settings.keep == "last":
        return SearchResult(found.last.map(lambda mask: mask[0]), steps=found.steps)
    more = list(_more_rankings(causal, parts, settings))
    if not more and len(settings.starts) == 1:
        return SearchResult(found.best, steps=found.steps)
    rankings = found.best_of_starts
    for other in more:
        rankings = Masks({name: torch.cat([mask, other[name]]) for name, mask in rankings.items()})
    return SearchResult(found.best, rankings, steps=found.steps)


def _more_rankings(causal: CausalModel, parts: MaskParts, settings: Settings) -> Iterator[Masks]:
    """Rankings besides the climbed masks, [P, ...] per part."""
    if time_is_up("second ranking"):
        return
    remove = settings.intervention != "mask" and parts.deletable
    guided = not remove or not settings.rounds or _guide(causal, parts, settings) is not causal
    if not guided:  # gradients of masks may misguide
        yield single_element_rankings(causal, parts, remove)
    if settings.path_points:
        score = torch.zeros_like(parts.owner, dtype=causal.dtype)
        weighs = parts.instances.outputs is Role.GRAPH and (not remove or causal.deletion_weighs(parts.tied))
        few = FEW_WEIGHED if weighs else FEW_ELEMENTS
        for group, members, some, its in parts.grouped(causal, (parts.count <= few).long()):
            if bool(parts.count[group[0]] <= few):
                score[members] = its.flatten(single_element_rankings(some, its, remove).map(lambda three: three[2]))
            else:
                score[members] = its.flatten(path_gradient(_guide(some, its, settings), its, settings.path_points))
        yield parts.unflatten(score.unsqueeze(0))


def _guide(causal: CausalModel, parts: MaskParts, settings: Settings) -> CausalModel:
    """The causal model whose gradients are followed."""
    return causal.guiding(settings.intervention != "mask" and EDGES in parts, parts.tied)


def path_gradient(causal: CausalModel, parts: MaskParts, points: int) -> Masks:
    """Mean gradient of the log-odds while all elements are brought in together, from none to all: integrated gradients."""
    share = (torch.arange(points, dtype=causal.dtype, device=causal.instances.x.device) + 0.5) / points
    with torch.enable_grad():
        masks = parts.full(1.0, causal.dtype).map(lambda m: (share.view(-1, *[1] * m.dim()) * m).requires_grad_())
        z = causal.log_odds(parts.to_weights(masks)).sum()
        slopes = torch.autograd.grad(z, masks.tensors)
    return Masks({name: slope.mean(0) for name, slope in zip(masks, slopes, strict=True)})


def initial_logits(causal: CausalModel, parts: MaskParts, settings: Settings) -> Masks:
    """Logits uniform in each start +- ``spread`` / sqrt(m), [P, ...] per part."""
    noise = mask_noise(parts, settings.seed, causal.dtype)
    found = Masks()
    for part in parts:
        entries = part.scale(settings.whole_graph)[part.owner].to(causal.dtype)
        reach = settings.spread * entries.rsqrt().view(-1, *[1] * (len(part.shape) - 1))
        draws = [noise[part.name].draw(-1 - number) for number in range(len(settings.starts))]
        found[part.name] = torch.stack([at + reach * (2 * u - 1) for at, u in zip(settings.starts, draws, strict=True)])
    return found


def price(state: StepState, settings: Settings) -> Tensor:
    """Size and mean entropy of each instance's masks (Eq. 19), [P, B]."""
    sizes, entropies = state.parts.totals(state.soft), state.parts.totals(state.logits.map(entropy))
    prices = ((settings.alpha_e, settings.beta_e), (settings.alpha_f, settings.beta_f))  # of structure and features
    terms = []
    for part in state.parts:
        alpha, beta = prices[part.group]
        terms.append(alpha * sizes[part.name] + beta * entropies[part.name] / state.cache["scale"][part.name])
    total: Tensor = sum(terms[1:], terms[0])
    return total
