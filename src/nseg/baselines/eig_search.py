"""EiG-Search: rank edges by what each is worth in log-probability, then take the best prefix of the ranking."""

from __future__ import annotations

import torch
from torch import Tensor

from nseg.baselines.occlusion import probabilities_without_each, score_by_size
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts
from nseg.search.settings import BaseSettings


class EiGSearch(BatchedAlgorithm):
    r"""Drop of the log-probability when one element alone is removed, and the best prefix of that ranking.

    .. math::
        s_i = \sigma\bigl(\log p(\mathbf 1) - \log p(\mathbf 1 - e_i)\bigr)

    The sigmoid only brings scores into [0, 1]: 0.5 is an element without influence, and elements that speak against the
    class come last. Prefixes are compared by the PNS bound (``extract="prefix"``), where the paper compares them by
    fidelity. Only forward passes are needed.

    Reference: Lu et al., *EiG-Search: Generating Edge-Induced Subgraphs for GNN Explanation in Linear Time*, ICML 2024.
    Cost: one forward pass per element and one per prefix. Deviation: an element is left out one by one instead of by the
    authors' linear gradients, which approximate this.

    >>> EiGSearch()
    EiGSearch()
    """

    Settings = BaseSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        score = score_by_size(causal, parts, self.settings.intervention, log_probability_drops)
        tick()
        return SearchResult(parts.unflatten(score.sigmoid()))


def log_probability_drops(causal: CausalModel, parts: MaskParts) -> Tensor:
    """Drop of log p without each element, [n]; below the precision of p it is 0."""
    p, without = probabilities_without_each(causal, parts)
    tiny = torch.finfo(p.dtype).tiny
    drop = p.clamp_min(tiny).log() - without.clamp_min(tiny).log()
    return torch.where((p - without).abs() < 8 * torch.finfo(p.dtype).eps, 0, drop)  # rounding must not be ranked
