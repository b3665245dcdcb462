"""Fidelity: necessity and sufficiency of explanations, measured on the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.metrics import scores
from nseg.metrics.evaluator import WorldEvaluator
from nseg.metrics.masks import JoinedMasks, MaskKind, sums
from nseg.metrics.removal import outputs_after_removal
from nseg.search.formulas import bounds
from nseg.search.noise import uniform
from nseg.search.parts import EDGES, NODES, Masks
from nseg.search.settings import INTERVENTIONS

TENTHS = tuple(t / 10 for t in range(10))


@dataclass(frozen=True)
class Fidelity:
    """Necessity and sufficiency of explanations, and what they were measured on.

    Args:
        fid_plus, fid_minus, charact: by label.
        fid_plus_probability, fid_minus_probability: by probability.
        pns, pn, ps: mean lower bounds of the literal complement.
        sparsity: mean share of the reachable elements that is left out; never read charact without it.
        masks: ``"soft"``, ``"hard"`` or the threshold of the masks.
        intervention: ``"mask"`` weighs messages, ``"remove"`` deletes edges, ``"both"`` counts, for each explanation, what
            holds in either case, and the smaller bound.
        instances: number of explanations.
    """

    fid_plus: float
    fid_minus: float
    charact: float
    fid_plus_probability: float
    fid_minus_probability: float
    pns: float
    pn: float
    ps: float
    sparsity: float
    masks: str
    intervention: str
    instances: int


@dataclass(frozen=True)
class InstanceFidelity:
    """What happens to each prediction without its explanation and with it alone, [B] each.

    Args:
        changed_without, changed_with: 1 where the class changes; for a phenomenon, where right becomes wrong or back.
            Without means that everything explained is taken away (sub-event 00).
        p: probability of the explained class on the whole graph.
        p_factual: with the explanation alone.
        p_complement: in the complement; of joint masks the mixture of its sub-events, as on an explanation.
        p_without: if everything explained is taken away.
        sparsity: share of the reachable elements that is left out.
        nothing: whether nothing at all is kept.
    """

    changed_without: Tensor
    changed_with: Tensor
    p: Tensor
    p_factual: Tensor
    p_complement: Tensor
    p_without: Tensor
    sparsity: Tensor
    nothing: Tensor

    def smaller(self, other: InstanceFidelity) -> InstanceFidelity:
        """Of two kinds of worlds, for each instance the one with the smaller bound; only what happens in both counts."""
        mine = self.p_factual - self.p_complement <= other.p_factual - other.p_complement
        names = ("p_factual", "p_complement", "p_without")
        return replace(
            self,
            changed_without=torch.minimum(self.changed_without, other.changed_without),
            changed_with=torch.maximum(self.changed_with, other.changed_with),
            **{name: torch.where(mine, getattr(self, name), getattr(other, name)) for name in names},
        )

    @property
    def bounds(self) -> Tensor:
        """Lower bounds of PNS, PN and PS for the literal complement, [3, B]; 0 for what keeps nothing."""
        return bounds(self.p_factual, self.p_complement) * ~self.nothing

    @property
    def pns(self) -> Tensor:
        """Lower bounds of the PNS for the literal complement."""
        return self.bounds[0]


@dataclass(frozen=True)
class Curve:
    """Fidelity along a threshold or a sparsity.

    Args:
        along: ``"threshold"`` or ``"sparsity"``.
        at: its values, [T].
        fid_plus, fid_minus, charact, sparsity: by label at each value, [T].
        area: mean height of charact over the range.
        intervention: how worlds were made.
    """

    along: str
    at: Tensor
    fid_plus: Tensor
    fid_minus: Tensor
    charact: Tensor
    sparsity: Tensor
    area: float
    intervention: str


class Evaluator(WorldEvaluator):
    """Measures explanations of one model.

    Args:
        explainer: the explainer that made them, or any for the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: one of a single output, or the result of :func:`nseg.explain_many`.

    The target is the predicted class, or the given one if a phenomenon is explained. If no intervention is given, soft masks
    weigh messages, and hard ones are judged by what the explanations were searched under (:attr:`intervention`); to compare
    methods, give one.
    """

    def fidelity(self, masks: MaskKind = "soft", intervention: str | None = None) -> Fidelity:
        """Fid+, Fid- and charact, by label and by probability, with the bounds and the sparsity."""
        return self._fidelity(self.masks(masks), str(masks), self._judged_by(masks, intervention))

    def each(self, masks: MaskKind = "soft", intervention: str | None = None) -> InstanceFidelity:
        """The values of each instance, of which fidelity is the mean."""
        return self.each_of(self.masks(masks), self._judged_by(masks, intervention))

    def _judged_by(self, masks: MaskKind, intervention: str | None) -> str:
        return intervention or ("mask" if masks == "soft" else self.intervention)

    def thresholds(self, at: Sequence[float] = TENTHS[1:], intervention: str | None = None) -> Curve:
        """Fidelity of masks cut at each threshold (Fig. 4 of the paper)."""
        return self._curve("threshold", [self.masks(t) for t in at], at, self._judged_by("hard", intervention))

    def sparsities(self, at: Sequence[float] = TENTHS, intervention: str | None = None) -> Curve:
        """Fidelity of the highest elements of each mask, for each share of the reachable elements that is left out.

        So that explanations of different size can be compared. Reference: fidelity by sparsity as in Yuan et al.,
        *Explainability in Graph Neural Networks: A Taxonomic Survey*, IEEE TPAMI 2023; the area is ours.
        """
        ranked = []
        for reached, masks in zip(self.reached, self.masks("soft"), strict=True):
            counts = {EDGES: reached}
            ranked.append({name: _rank(mask, counts.get(name)) for name, mask in masks.items()})

        def top(rank: Tensor, counted: int, share: float) -> Tensor:
            return (rank < round((1 - share) * counted)).to(self.output.dtype)

        cut = [JoinedMasks.of([Masks({name: top(*r, share) for name, r in one.items()}) for one in ranked]) for share in at]
        return self._curve("sparsity", cut, at, self._judged_by("hard", intervention))

    def robust_fidelity(
        self, alpha1: float = 0.1, alpha2: float = 0.9, samples: int = 20, masks: MaskKind = "hard", seed: int = 0
    ) -> dict[str, float]:
        r"""Fid+ and Fid- of worlds near the data: some edges of the explanation go, or some of the others.

        .. math:: F_+ = 1[\hat y = y] - \mathbb{E}\,1[\hat y^{E \setminus r_1(S)} = y],\quad
                  F_- = 1[\hat y = y] - \mathbb{E}\,1[\hat y^{S \cup r_2(E \setminus S)} = y]

        with :math:`r_1` and :math:`r_2` each edge with probability alpha1 and alpha2. As usual if these are 1 and 0.

        Reference: Zheng et al., *Towards Robust Fidelity for Evaluating Explainability of Graph Neural Networks*, ICLR
        2024, with its probabilities.

        Args:
            alpha1: probability that an edge of the explanation goes, for Fid+.
            alpha2: probability that another edge stays, for Fid-.
            samples: worlds of each.
            masks, seed: which masks, cut at 0.5, and the seed of the worlds.
        """
        if not (0 <= alpha1 <= 1 and 0 <= alpha2 <= 1 and samples >= 1):
            raise InputError(
                f"alpha1 and alpha2 must be probabilities and samples at least 1 (got {alpha1}, {alpha2}, {samples})."
            )

        def worlds(mask: Tensor, keys: Tensor) -> Tensor:
            u = uniform(keys, 2 * samples, (seed,), mask.dtype).T  # [2 S, m]
            inside = mask > 0.5
            without = torch.where(inside, (u[:samples] >= alpha1).to(mask.dtype), torch.ones_like(u[:samples]))
            alone = torch.where(inside, torch.ones_like(u[samples:]), (u[samples:] < alpha2).to(mask.dtype))
            return torch.cat([without, alone])

        output = self.custom_worlds(self.masks(masks), worlds)
        changed = self._changed(output)  # [2 S, B]
        plus, minus = float(changed[:samples].mean()), float(changed[samples:].mean())
        return {
            "fid_plus": plus,
            "fid_minus": minus,
            "charact": float(scores.charact(torch.tensor(plus), torch.tensor(minus))),
            "alpha1": alpha1,
            "alpha2": alpha2,
            "samples": samples,
        }

    def unfaithfulness(self, masks: MaskKind = "soft") -> Tensor:
        """How far each explanation alone moves the whole predicted distribution, [B]."""
        factual = self.worlds(self.masks(masks))[0]
        before, after = (self.outcome.distribution(output, self.target) for output in (self.output, factual))
        return scores.unfaithfulness(before, after)

    # --- parts of the above ------------------------------------------------------------------------------------------------

    def worlds_under(self, masks: JoinedMasks, intervention: str) -> Tensor:
        """The model's output in the worlds of each mask, with messages masked or edges deleted, [1 + A, B, ...].

        With ``"both"``, for each explanation the one with the smaller bound.
        """
        if intervention != "both":
            return self.worlds(masks) if intervention == "mask" else outputs_after_removal(self, masks)
        masked, removed = self.worlds(masks), outputs_after_removal(self, masks)
        gaps = [p[0] - (self.split * p[1:]).sum(0) for p in map(self.probability, (masked, removed))]
        mine = (gaps[0] <= gaps[1]).view(1, -1, *[1] * (masked.dim() - 2))
        return torch.where(mine, masked, removed)

    @property
    def _explains_prediction(self) -> bool:
        return bool(self.explainer.explanation_type.value == "model")

    def each_of(self, masks: JoinedMasks, intervention: str) -> InstanceFidelity:
        """The scores of each explanation if its masks were these."""
        if intervention not in INTERVENTIONS:
            raise InputError(f"intervention must be {', '.join(map(repr, INTERVENTIONS))} (got {intervention!r}).")
        if intervention == "both":
            return self.each_of(masks, "mask").smaller(self.each_of(masks, "remove"))
        worlds = self.worlds_under(masks, intervention)
        p, in_worlds = self.probability(self.output), self.probability(worlds)
        complement = (self.split * in_worlds[1:]).sum(0)
        changed_with, changed_without = self._changed(worlds[0]), self._changed(worlds[1])
        sparsity = self._sparsity(masks)
        parts = masks.joined.items()
        kept = [sums((mask != 0).to(p.dtype), masks.owner(name), len(masks)) for name, mask in parts]
        nothing = torch.stack(kept).sum(0) == 0
        return InstanceFidelity(changed_without, changed_with, p, in_worlds[0], complement, in_worlds[1], sparsity, nothing)

    def _fidelity(self, masks: JoinedMasks, kind: str, intervention: str) -> Fidelity:
        each = self.each_of(masks, intervention)
        plus, minus = each.changed_without.mean(), each.changed_with.mean()
        pns, pn, ps = each.bounds.mean(1).tolist()
        return Fidelity(
            fid_plus=float(plus),
            fid_minus=float(minus),
            charact=float(scores.charact(plus, minus)),
            fid_plus_probability=float(scores.fid_plus_probability(each.p, each.p_without)),
            fid_minus_probability=float(scores.fid_minus_probability(each.p, each.p_factual)),
            pns=pns,
            pn=pn,
            ps=ps,
            sparsity=float(each.sparsity.mean()),
            masks=kind,
            intervention=intervention,
            instances=len(self.explanations),
        )

    def _changed(self, output: Tensor) -> Tensor:
        """1 where the class changes, or the event no longer happens; |right before - right after| for a phenomenon, [B]."""
        y = self.label if self._explains_prediction else self.target
        before, after = (self.outcome.holds(one, y).float() for one in (self.output, output))
        return (before - after).abs()

    def _sparsity(self, masks: JoinedMasks) -> Tensor:
        """Share of the reachable edges (or nodes, if only they are masked) that each explanation leaves out, [B]."""
        part = EDGES if EDGES in masks.joined else NODES
        mask, owner = masks.joined[part].float(), masks.owner(part)
        if part == EDGES:
            mask, owner = mask[self.reached_flat], owner[self.reached_flat]
        number = sums(torch.ones_like(mask), owner, len(masks))
        return 1 - sums(mask, owner, len(masks)) / number.clamp(min=1)

    def _curve(self, along: str, masks: list[JoinedMasks], at: Sequence[float], intervention: str) -> Curve:
        if not len(at) or list(at) != sorted(at):
            raise InputError(f"A curve needs values in ascending order (got {list(at)}).")
        found = [self._fidelity(m, along, intervention) for m in masks]
        x = torch.tensor(list(at), dtype=torch.double)
        columns = {k: torch.tensor([getattr(f, k) for f in found]) for k in ("fid_plus", "fid_minus", "charact", "sparsity")}
        return Curve(along, x, **columns, area=scores.area(x, columns["charact"]), intervention=intervention)


def _rank(mask: Tensor, counts: Tensor | None) -> tuple[Tensor, int]:
    """Rank of each element, those that count first, and how many count (all if None)."""
    flat = mask.flatten() if counts is None else torch.where(counts, mask.flatten(), -torch.inf)
    order = torch.argsort(flat, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return rank.view_as(mask), mask.numel() if counts is None else int(counts.sum())
