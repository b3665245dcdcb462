r"""Certification: what a hard explanation is worth under a stated law of its complement, exactly or with an interval.

The *law* says which worlds stand for "not the explanation" (:math:`\xi^c`). The bounds of PNS, PN and PS follow from the
probability of the class in the explanation's world and its mean over those worlds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.errors import InputError, SettingsError
from nseg.graphs.batch import InstanceBatch
from nseg.metrics.certificate import Certificate
from nseg.metrics.evaluator import MASK_NAMES, WorldEvaluator
from nseg.metrics.intervals import mean_interval
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.names import NamedData, Names, resolve_names
from nseg.search.complement import Bernoulli, Law, literal
from nseg.search.enumeration import complement_probabilities, enumerate_worlds
from nseg.search.formulas import bounds
from nseg.search.harden import RESTART_ROUNDS, restart_subsets
from nseg.search.moves import climb_merit
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.sampling import ComplementSampler
from nseg.search.settings import MOST_ELEMENTS, BaseSettings
from nseg.search.worlds import evaluate, outside_stays
from nseg.wording import is_undirected, kept_parts

ROUNDING = 1e-5
"""How much likelier the class must be in a world than with the explanation to count as a violation of monotonicity."""

LAWS: dict[str, Law] = {"literal": literal, "uniform": Bernoulli(0.5)}
"""Laws by name."""


# --- certificates of a group of explanations ------------------------------------------------------------------------------


class _Measurement(NamedTuple):
    """What the worlds say about B explanations.

    Args:
        complement: probability of the class in the complement, and the ends of its interval, [3, B].
        violations: share of the complement in which the class is likelier than with the explanation, [B].
        exact: whether all worlds of the law were evaluated, [B].
        ceilings: the best bounds of PNS, PN and PS, [3, B].
    """

    complement: Tensor
    violations: Tensor
    exact: Tensor
    ceilings: Tensor


@dataclass(frozen=True)
class _Request:
    """The arguments of :func:`certify`, checked.

    Args:
        law, name: the law and its name.
        samples, confidence, exact, seed: as there.
        settings: split and direction of the elements, what taking edges away means, and how the ceiling is climbed.
    """

    law: Law
    name: str
    samples: int
    confidence: float
    exact: int
    seed: int
    settings: BaseSettings

    @property
    def needed_samples(self) -> int:
        """One sample is enough if the law has a single world."""
        return 1 if self.deterministic else self.samples

    @property
    def deterministic(self) -> bool:
        """Whether the law has one world only for each sub-event."""
        return self.law is literal or (isinstance(self.law, Bernoulli) and self.law.q in (0, 1))

    @property
    def q(self) -> float | None:
        """Probability of each element to be kept, if all worlds of the law can be enumerated."""
        return self.law.q if isinstance(self.law, Bernoulli) and not self.deterministic else None


@dataclass(frozen=True)
class _Certifier:
    """Certifies B explanations that share a causal model.

    Args:
        causal, parts: B instances and the parts of their masks.
        kept: the explanations, [n].
        request: what is asked for.
    """

    causal: CausalModel
    parts: MaskParts
    kept: Tensor
    request: _Request

    def certificates(self) -> list[Certificate]:
        """One certificate per instance."""
        parts, request = self.parts, self.request
        p = self._evaluate(self.kept.unsqueeze(0))[0].squeeze(0)
        found = self._measure(p)
        value, high, low = (bounds(p, q) for q in found.complement)  # [3, B] each; bounds fall as the complement rises
        size = torch.zeros_like(parts.count).index_add(0, parts.owner, self.kept.long())
        value, high, low = (one * (size > 0) for one in (value, high, low))  # what keeps nothing shows nothing
        return [
            Certificate(
                law=request.name,
                target=self.causal.instances.target[b].item(),
                p_factual=float(p[b]),
                p_complement=float(found.complement[0, b]),
                p_complement_interval=(float(found.complement[1, b]), float(found.complement[2, b])),
                pns=float(value[0, b]),
                pns_interval=(float(low[0, b]), float(high[0, b])),
                pn=float(value[1, b]),
                pn_interval=(float(low[1, b]), float(high[1, b])),
                ps=float(value[2, b]),
                ps_interval=(float(low[2, b]), float(high[2, b])),
                exact=bool(found.exact[b]),
                samples=0 if found.exact[b] else request.samples,
                confidence=request.confidence,
                violations=float(found.violations[b]),
                monotone=bool(found.violations[b] == 0),
                ceiling=float(found.ceilings[0, b]),
                ceiling_pn=float(found.ceilings[1, b]),
                ceiling_ps=float(found.ceilings[2, b]),
                ceiling_exact=bool(parts.count[b] <= request.exact),
                kept=int(size[b]),
                elements=int(parts.count[b]),
                unit=parts.unit,
                intervention=request.settings.intervention if parts.deletable else "mask",
                outcome=self.causal.outcome.event,
            )
            for b in range(len(self.causal.instances))
        ]

    def _select(self, which: Tensor) -> _Certifier:
        if which.numel() == len(self.causal.instances):
            return self
        causal = self.causal.select(which)
        kept = self.kept[torch.isin(self.parts.owner, which)]
        return _Certifier(causal, self.parts.on(causal.instances), kept, self.request)

    @property
    def _removes(self) -> bool:
        """Whether edges are deleted."""
        return self.request.settings.intervention == "remove" and self.parts.deletable

    @property
    def _split(self) -> tuple[float, ...]:
        """Probability of each sub-event of the complement."""
        return self.parts.split(self.request.settings)

    def _evaluate(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of the class in P subsets [P, n] and their literal complements, [P, B] each."""
        masks, intervention = self.parts.unflatten(kept.to(self.causal.dtype)), self.request.settings.intervention
        found = evaluate(self.causal, self.parts, masks, self._split, intervention)
        return found.p_factual.double().clamp(0, 1), found.p_complement.double().clamp(0, 1)

    def _measure(self, p_factual: Tensor) -> _Measurement:
        """Enumerate the worlds of small instances; sample those of large ones and of laws that cannot be enumerated."""
        request, most = self.request, -1 if self.parts.nodes_vanish and self._removes else self.request.exact
        small = self.parts.count <= most
        enumerated = small & (request.q is not None)
        three = p_factual.expand(3, -1)
        exact = enumerated | request.deterministic
        found = _Measurement(three.clone(), torch.zeros_like(p_factual), exact, three.clone())
        for which, members, table in enumerate_worlds(self.causal, self.parts, most, self._removes):
            complement = table.p_complement(self._split).double().clamp(0, 1)
            every = bounds(table.p.double().clamp(0, 1), complement)  # [3, 2^n, B]
            every[:, 0] = 0  # what keeps nothing shows nothing
            found.ceilings[:, which] = every.amax(1)
            if request.q is not None:
                worlds = table.p_around.double().clamp(0, 1)
                p = complement_probabilities(table, self.kept[members], request.q, self._split)
                found.complement[:, which] = (p * worlds).sum(0).clamp(0, 1)
                found.violations[which] = (p * (worlds > p_factual[which] + ROUNDING)).sum(0)
        sampled, large = (~enumerated).nonzero().flatten(), (~small).nonzero().flatten()
        if sampled.numel():
            found.complement[:, sampled], found.violations[sampled] = self._select(sampled)._sample(p_factual[sampled])
        if large.numel():
            found.ceilings[:, large] = self._select(large)._climb_ceiling()
        return found

    def _sample(self, p_factual: Tensor) -> tuple[Tensor, Tensor]:
        """Mean probability of the class in samples of the complement with its interval [3, B], and violations, [B].

        A sample is one world of each sub-event, mixed by the split: independent numbers in [0, 1] whose expectation is the
        probability in the complement, so one interval serves a joint complement too.
        """
        request, values, above = self.request, [], []
        split = p_factual.new_tensor(self._split).view(-1, 1, 1)
        for masks in ComplementSampler(self.parts, self.kept, request.law, request.seed).blocks(request.needed_samples):
            worlds = masks.map(lambda mask: mask.flatten(0, 1).to(self.causal.dtype))
            causal = self.causal.removing(self.parts.tied) if self._removes else self.causal
            weights = self.parts.to_weights(worlds)
            for name, stays in outside_stays(self.parts).items() if self._removes else ():
                number = len(worlds.tensors[0]) // len(stays)
                weights[name] = worlds.tensors[0].new_tensor(stays).repeat_interleave(number)
            p = causal.do(weights).double().clamp(0, 1)
            p = p.view(len(split), -1, len(p_factual))  # [A, s, B]
            values.append((split * p).sum(0).clamp(0, 1))
            above.append((split * (p > p_factual + ROUNDING)).sum(0))
        value = torch.cat(values)
        interval = value.expand(3, -1) if request.deterministic else torch.stack(mean_interval(value, request.confidence))
        return interval, torch.cat(above).mean(0)

    def _climb_ceiling(self) -> Tensor:
        """The best bounds of several subsets and of what local moves make of them, [3, B]."""
        settings, kept = self.request.settings, self.kept
        starts = torch.cat([kept.unsqueeze(0), restart_subsets(self.parts)])  # a search that is stuck tries them too
        ends = torch.stack([climb_merit(self.causal, self.parts, start, settings) for start in starts])
        subsets = torch.cat([starts, ends])
        return (bounds(*self._evaluate(subsets)) * (self.parts.size(self.parts.unflatten(subsets.double())) > 0)).amax(1)


# --- the front door --------------------------------------------------------------------------------------------------------


def certify(
    explainer: Explainer,
    data: Data | Sequence[Data],
    explanations: Explanation | Sequence[Explanation],
    law: str | Law = "literal",
    samples: int = 1000,
    confidence: float = 0.95,
    exact: int = 12,
    seed: int = 0,
    class_names: Any = None,
    intervention: str | None = None,
) -> list[Certificate]:
    r"""Certify hard explanations: bounds of PNS, PN and PS under a law of their complement, with intervals.

    .. math:: \mathrm{PNS} \ge \max\{0,\; p_\xi - \mathbb{E}_{\xi^c \sim \text{law}}\, p_{\xi^c}\}

    The laws: ``"literal"``, keep exactly what the explanation leaves out; ``"uniform"``, all other subsets are equally
    likely (Eq. 7); ``Bernoulli(q)``, every element is kept with probability q, given that the result is not the
    explanation; or your own :math:`p(U)`. Of a joint explanation, each part that is drawn differs from the explained part,
    and the three sub-events are mixed by the explanation's ``split``. If the explanation is the only possible world (a part
    without elements; q of 0 or 1), it stands for its own complement, and nothing is certified.

    The literal law is exact. The worlds of a Bernoulli law are enumerated for instances of at most ``exact`` elements.
    Otherwise they are sampled, and the interval is the tighter of Hoeffding's and Maurer and Pontil's, which hold for any
    number of samples, for each certificate separately. Cost: 2^n worlds of an instance of n elements, or the samples of
    each sub-event; the ceiling of a large instance costs about as much as 1000 samples.

    Args:
        explainer: the explainer that made them, or any for the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: with hard masks; one of a single output, or the result of :func:`nseg.explain_many`.
        law: of the complement: ``"literal"``, ``"uniform"``, a :class:`nseg.Bernoulli`, or a function of a mask and uniform
            numbers, [S, n] each for S samples of the n edges or n node elements of one instance, that returns weights of
            that shape. Its worlds are used as they are, even if one is the explanation.
        samples: worlds to sample for each sub-event of the complement.
        confidence: of the intervals.
        exact: enumerate all worlds of instances with at most this many elements, for the law and for the ceiling.
        seed: equal seeds give equal certificates, alone or in any batch.
        class_names: names of the classes; by default those that the explanations carry, or of the data.
        intervention: what taking edges away means: ``"mask"``, ``"remove"`` or ``"both"``, as in :class:`nseg.Settings`;
            what the explanations were searched under if None. With ``"both"`` each certificate is the one with the smaller
            PNS bound, and its ceilings are the smaller ones, which no one explanation may reach.

    Returns:
        A certificate for each explanation.
    """
    with torch.inference_mode(False), torch.no_grad():
        evaluator = WorldEvaluator(explainer, data, explanations, removes=_deletes(explanations, intervention))
        _check_masks(evaluator)
        settings = [_settings_of(one, intervention) for one in evaluator.explanations]
        request = _check_request(law, samples, confidence, exact, seed, settings[0])
        found = _certificates(evaluator, request, settings)
    sizes = [kept_parts(*pair) for pair in zip(evaluator.explanations, evaluator.reached, strict=True)]
    given = resolve_names(evaluator.data, class_names=class_names)
    chosen = [_smallest(found[number]) for number in range(len(sizes))]
    names = [_class_name(given, *pair) for pair in zip(evaluator.explanations, (c.target for c in chosen), strict=True)]
    return [replace(one, size=size, class_name=name) for one, size, name in zip(chosen, sizes, names, strict=True)]


def _class_name(given: NamedData, one: Explanation, target: float) -> str | None:
    """Name of the certified class: given, else on the explanation, else on the data; None if it has none."""
    own: Names | None = one.get("names")
    names = own if own is not None and "class_names" not in given.given else given.graph(int(one.output_id))
    return names.class_name(target) if names.classes and isinstance(target, int) else None


def _smallest(certificates: Sequence[Certificate]) -> Certificate:
    """The certificate with the smallest bound, with the smallest ceilings."""
    names = ("ceiling", "ceiling_pn", "ceiling_ps", "ceiling_exact")
    least = {name: min(getattr(one, name) for one in certificates) for name in names}
    return replace(min(certificates, key=lambda one: one.pns), **least)


def _certificates(
    evaluator: WorldEvaluator, request: _Request, settings: Sequence[BaseSettings]
) -> dict[int, list[Certificate]]:
    """The certificates of all explanations by their number: one, or one per intervention if both are asked for."""
    masks, kind = evaluator.masks("hard"), evaluator.explainer.node_mask_type if evaluator.nodes else None
    found: dict[int, list[Certificate]] = defaultdict(list)
    with borrow(evaluator.model):
        for group in evaluator.groups:
            packed = group.pack(masks)
            for own, which in _by_settings([settings[number] for number in group.numbers.tolist()]):
                here = torch.tensor(which, device=group.causal.instances.x.device)
                causal = group.causal if len(which) == len(group.numbers) else group.causal.select(here)
                weights = packed if causal is group.causal else _select(packed, group.causal.instances, here)
                parts = MaskParts.of(causal.instances, evaluator.edges, kind, own.undirected)
                kept = parts.flatten(parts.from_weights(weights)) > 0.5
                for one in ("mask", "remove") if own.intervention == "both" else (own.intervention,):
                    asked = replace(request, settings=replace(own, intervention=one))
                    certificates = _Certifier(causal, parts, kept, asked).certificates()
                    for number, certificate in zip(
                        group.numbers[here.to(group.numbers.device)].tolist(), certificates, strict=True
                    ):
                        found[number].append(certificate)
    return found


def _by_settings(settings: Sequence[BaseSettings]) -> Iterator[tuple[BaseSettings, list[int]]]:
    """Each of some settings, and the positions that have it."""
    for own in dict.fromkeys(settings):
        yield own, [position for position, one in enumerate(settings) if one == own]


def _select(packed: Masks, instances: InstanceBatch, which: Tensor) -> Masks:
    """The masks of some instances of a batch, one after the other."""
    owners = {EDGES: instances.edge_owner, NODES: instances.node_owner}
    return Masks({name: mask[torch.isin(owners[name], which)] for name, mask in packed.items()})


def _check_masks(evaluator: WorldEvaluator) -> None:
    """Raise unless all explanations have hard masks."""
    names = [name for name, on in zip(MASK_NAMES.values(), (evaluator.edges, evaluator.nodes), strict=True) if on]
    for one in evaluator.explanations:
        for name in names:
            hard = one.get(f"hard_{name}")
            if hard is None or hard.shape != one[name].shape:
                raise InputError(
                    "Certificates need hard masks of the same shape as the soft ones (got "
                    f"{'none' if hard is None else tuple(hard.shape)} for output {int(one.output_id)}). Explain with nseg, "
                    f"or set them, e.g. explanation.hard_{name} = explanation.{name} > 0.5."
                )


def _deletes(explanations: Explanation | Sequence[Explanation], intervention: str | None) -> bool:
    """Whether any certificate is about deleted edges."""
    some = explanations if isinstance(explanations, Sequence) else [explanations]
    asked = [intervention or (getattr(one, "settings", None) or {}).get("intervention") or "mask" for one in some]
    return any(one != "mask" for one in asked)


def _settings_of(one: Explanation, intervention: str | None) -> BaseSettings:
    """The settings of an explanation's elements and worlds, or the defaults."""
    given = one.get("settings") or {}
    by = intervention or given.get("intervention") or "mask"
    settings = BaseSettings(undirected=is_undirected(one), rounds=RESTART_ROUNDS, intervention=by)
    return settings if given.get("split") is None else replace(settings, split=tuple(given["split"]))


def _check_request(law: Any, samples: Any, confidence: Any, exact: Any, seed: Any, settings: BaseSettings) -> _Request:
    """The arguments of :func:`certify`, checked."""

    def is_integer(value: Any, least: float, most: float) -> bool:
        return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most

    if (law not in LAWS) if isinstance(law, str) else not callable(law):
        raise SettingsError(
            f"law must be {', '.join(map(repr, LAWS))}, Bernoulli(q) or a function of a mask and uniform numbers "
            f"(got {law!r}). Try 'literal'."
        )
    if not is_integer(samples, 2, math.inf):
        raise SettingsError(f"samples must be a whole number of at least 2 (got {samples!r}). Try 1000.")
    if not isinstance(confidence, Real) or isinstance(confidence, bool) or not 0 < float(confidence) < 1:
        raise SettingsError(f"confidence must be greater than 0 and less than 1 (got {confidence!r}). Try 0.95.")
    if not is_integer(exact, 0, MOST_ELEMENTS):
        raise SettingsError(f"exact must be a whole number from 0 to {MOST_ELEMENTS} (got {exact!r}). Try 12.")
    if not is_integer(seed, -math.inf, math.inf):
        raise SettingsError(f"seed must be a whole number (got {seed!r}). Try 0.")
    if isinstance(law, str):
        name, rule = law, LAWS[law]
    else:
        name, rule = getattr(law, "__name__", repr(law)), law
    return _Request(rule, name, int(samples), float(confidence), int(exact), int(seed), settings)
