"""Other explanations that are about as good: subsets within tolerance of the best that differ from the explanation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nseg.model.causal import CausalModel
from nseg.search.candidates import Candidates
from nseg.search.formulas import pns_bound, size
from nseg.search.harden import SearchResult, SubsetSearch
from nseg.search.moves import Limit, exchanges, shrink
from nseg.search.parts import EDGES, MaskParts, Masks
from nseg.search.pieces import is_connected
from nseg.search.restarts import common_subsets
from nseg.search.settings import BaseSettings
from nseg.search.subsets import acceptable, canonical_choice, pick
from nseg.search.worlds import evaluate


@dataclass(frozen=True)
class Alternatives:
    """Up to k other explanations of B instances.

    Args:
        pns: PNS bound of each, [k, B].
        there: whether there is one, [k, B]; those that are there come first.
        member: for each element, in which of them it is: bit j for the j-th; by part.
    """

    pns: Tensor
    there: Tensor
    member: Masks


@torch.no_grad()
def find_alternatives(
    causal: CausalModel, parts: MaskParts, result: SearchResult, hard: Masks, settings: BaseSettings
) -> Alternatives:
    """Up to ``settings.alternatives`` explanations within tolerance of the best that was met, each unlike those before it.

    They are searched from all elements outside the explanation, from the rankings of the search, from all elements and
    random halves, and by exchanging one element of the explanation for another.
    """
    kept = parts.flatten(hard).bool()
    search = SubsetSearch(causal, parts, replace(settings, connected=False))
    rankings = parts.flatten(result.soft).unsqueeze(0) if result.rankings is None else parts.flatten(result.rankings)
    starts = torch.cat([(~kept).unsqueeze(0), search.prefixes(rankings).kept, *(common_subsets(parts, k) for k in range(2))])
    found = search.measure(kept.unsqueeze(0)) + search.measure(search.climbed(starts, search.settings))
    limit = Limit.of_candidates(found.merit, found.valid, settings.tolerance)
    good = acceptable(found.merit, found.valid, settings.tolerance)
    small = [shrink(causal, parts, one, settings, limit, who) for one, who in zip(found.kept[1:], good[1:], strict=True)]
    more = torch.cat([torch.stack(small), exchanges(causal, parts, kept, settings)])
    return _choose(causal, search, found, search.measure(more), kept, settings)


def _choose(
    causal: CausalModel, search: SubsetSearch, found: Candidates, more: Candidates, kept: Tensor, settings: BaseSettings
) -> Alternatives:
    """The alternatives among some subsets: one after the other the one that shares least with all before; the smallest."""
    parts, every = search.parts, found + more
    good = acceptable(every.merit, every.valid, settings.tolerance)[len(found.kept) :]
    if settings.connected and EDGES in parts:
        good &= is_connected(parts.edges, parts.unflatten(more.kept)[EDGES])
    shared, chosen, there = _overlap(more.kept, kept, parts), [], []
    for _ in range(settings.alternatives):
        left = good & (shared < 1)
        left &= shared == torch.where(left, shared, torch.inf).amin(0)
        one = pick(more.kept, canonical_choice(more.kept, more.merit, left, parts), parts)
        there.append(left.any(0))
        chosen.append(one & there[-1][parts.owner])
        shared = torch.maximum(shared, _overlap(more.kept, one, parts))
    subsets = torch.stack(chosen)
    answer = evaluate(causal, parts, subsets, parts.split(settings), settings.intervention)
    bits = torch.arange(len(subsets), device=kept.device).unsqueeze(1)
    member = parts.unflatten((subsets.long() << bits).sum(0))
    return Alternatives(pns_bound(answer.p_factual, answer.p_complement), torch.stack(there), member)


def _overlap(subsets: Tensor, other: Tensor, parts: MaskParts) -> Tensor:
    """Jaccard index of P subsets [P, n] with another one [n], [P, B]; 1 for two empty ones."""
    number = len(parts.instances)
    both, any_ = (size(some.double(), parts.owner, number) for some in (subsets & other, subsets | other))
    return torch.where(any_ > 0, both / any_.clamp_min(1), 1)
