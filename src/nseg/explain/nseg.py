"""NSEG: necessary and sufficient explanations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nseg.errors import SettingsError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.presets import PAPER
from nseg.model.causal import CausalModel
from nseg.search.climb import climb_bound
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult, blend_to_hard, harden
from nseg.search.parts import MaskParts
from nseg.search.settings import EFFORTS, Settings


class NSEG(BatchedAlgorithm):
    r"""Necessary and sufficient explanations: masks that maximise a lower bound of the PNS (Eq. 18).

    .. math::
        \max_{M}\; p_\xi(M) - p_{\xi^c}(M) - \alpha \|M\|_1 - \beta\, \overline{H}(M)

    A mask near 1 says: keep this edge (or node) and the prediction stays; mask it and the prediction changes. The
    ``Explainer`` chooses what is masked: edges (e), nodes (f), or both jointly (e,f).

    Args:
        objective: ``"pns"``, ``"pn"`` (necessity only) or ``"ps"`` (sufficiency only).
        effort: ``"fast"``, ``"balanced"`` or ``"thorough"``: how much time to spend on better explanations.
        **settings: any field of :class:`nseg.Settings`; a misspelt one is a ``TypeError``.

    Reference: Cai et al., *On the Probability of Necessity and Sufficiency of Explaining Graph Neural Networks: A Lower
    Bound Optimization Approach*. Cost: per step a forward and backward pass over 2 worlds (edges or nodes) or 4 (both) of
    the computation graph, times ``starts``; then forward passes for the hard explanation, about as much again and more for
    large graphs.

    Deviations from the paper, all of them settings (:meth:`paper` has none of them): logarithms of probabilities are
    climbed, whose gradient does not vanish for confident models; the search has several starts, keeps the best masks seen,
    and stops for an instance that makes no more progress; size is a preference among masks within ``tolerance`` of the best
    bound; and the hard explanation is not cut at 0.5, but is the best prefix of the ranking, improved by single moves, or
    the best of all subsets where there are few.

    >>> NSEG(objective="ps", steps=200)
    NSEG(objective='ps', steps=200)
    """

    Settings = Settings

    def __init__(self, objective: str = "pns", effort: str = "balanced", **settings: Any) -> None:
        chosen = EFFORTS.get(effort, {}) if isinstance(effort, str) else {}
        super().__init__(objective=objective, effort=effort, **{**chosen, **settings})

    @classmethod
    def paper(cls, dataset: str, masks: str = "e", **changes: Any) -> NSEG:
        """The paper's settings for a dataset and mask, e.g. ``NSEG.paper("tree-grid", "ef")``.

        Args:
            dataset: ba-shapes, tree-cycles, tree-grid, ba-2motif, mutagenicity or msrc-21.
            masks: ``"e"`` for edges, ``"ef"`` for edges and nodes jointly.
            **changes: settings to change, such as ``objective="pn"`` or ``seed=3``.
        """
        if (dataset, masks) not in PAPER:
            known = ", ".join(sorted({f"{d} ({m})" for d, m in PAPER}))
            raise SettingsError(f"The paper has no settings for {dataset!r} with masks {masks!r}. Known: {known}.")
        return cls(**{**PAPER[dataset, masks], **changes})

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        found = climb_bound(causal, parts, self.settings, tick)
        if self.settings.keep == "last" or self.settings.extract != "prefix":
            return found
        hard, exact = harden(causal, parts, found, self.settings)
        return replace(found, soft=blend_to_hard(causal, parts, found.soft, hard, self.settings), hard=hard, exact=exact)

    def worlds(self, parts: MaskParts) -> int:
        climbed = len(self.settings.starts) * (1 + len(parts.events) * int(self.settings.samples))
        return max(climbed, int(self.settings.path_points))
