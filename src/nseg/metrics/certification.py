r"""Certification: what a hard explanation is worth under a stated law of its complement, exactly or with an interval.

The *law* says which worlds stand for "not the explanation" (:math:`\xi^c`). The bounds of PNS, PN and PS follow from the
probability of the class in the explanation's world and its mean over those worlds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import MaskType

from nseg.errors import InputError, SettingsError
from nseg.graphs.batch import InstanceBatch
from nseg.metrics.certificate import Certificate
from nseg.metrics.certifier import Certifier, Request
from nseg.metrics.evaluator import MASK_NAMES, WorldEvaluator
from nseg.metrics.trust import warn_slow
from nseg.model.borrow import borrow
from nseg.model.removal import KEPT
from nseg.model.strategy import PLAIN
from nseg.names import NamedData, Names, resolve_names
from nseg.search.complement import Bernoulli, Law, literal
from nseg.search.harden import RESTART_ROUNDS
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.settings import MOST_ELEMENTS, BaseSettings
from nseg.wording import is_undirected, kept_parts

LAWS: dict[str, Law] = {"literal": literal, "uniform": Bernoulli(0.5)}
"""Laws by name."""


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
    given.graph(evaluator.explanations[0].output_id).check_classes(evaluator.outcome.num_classes(evaluator.output))
    chosen = [_smallest(found[number]) for number in range(len(sizes))]
    names = [_names(given, *pair) for pair in zip(evaluator.explanations, (c.target for c in chosen), strict=True)]
    return [replace(one, size=size, **named) for one, size, named in zip(chosen, sizes, names, strict=True)]


def _names(given: NamedData, one: Explanation, target: float) -> dict[str, Any]:
    """Name of the certified class: given, else on the explanation, else on the data; whether the graph is a molecule."""
    names: Names = ("class_names" not in given.given and one.get("names")) or given.graph(int(one.output_id))
    known = names.classes and isinstance(target, int)
    return {"class_name": names.class_name(int(target)) if known else None, "molecule": names.molecule}


def _smallest(certificates: Sequence[Certificate]) -> Certificate:
    """The certificate with the smallest bound, with the smallest ceilings."""
    names = ("ceiling", "ceiling_pn", "ceiling_ps", "ceiling_exact")
    least = {name: min(getattr(one, name) for one in certificates) for name in names}
    return replace(min(certificates, key=lambda one: one.pns), **least)


def _certificates(
    evaluator: WorldEvaluator, request: Request, settings: Sequence[BaseSettings]
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
                numbers = group.numbers[here.to(group.numbers.device)]
                for one in ("mask", "remove") if own.intervention == "both" else (own.intervention,):
                    asked = replace(request, settings=replace(own, intervention=one))
                    certificates = _verified(evaluator, Certifier(causal, parts, kept, asked), numbers, kind)
                    for number, certificate in zip(numbers.tolist(), certificates, strict=True):
                        found[number].append(certificate)
    return found


def _verified(evaluator: WorldEvaluator, certifier: Certifier, numbers: Tensor, kind: MaskType | None) -> list[Certificate]:
    """Certificates of some explanations; those that the model does not confirm without shortcuts are made without them."""
    found, source = certifier.certificates(), evaluator.source
    if certifier.causal.strategy == PLAIN:
        return found
    reference = source.reference(numbers)
    doubtful, why = torch.ones_like(numbers, dtype=torch.bool), ""
    if reference is not None:
        doubtful, why = certifier.disagreements(reference)
    again = 0
    for b in doubtful.nonzero().flatten().tolist():
        plain, one = source.plain(int(numbers[b])), certifier.select(numbers.new_tensor([b]))
        wrong, reason = one.disagreements(plain)
        if bool(wrong):
            why, again = reason, again + 1
            parts = MaskParts.of(plain.instances, evaluator.edges, kind, certifier.request.settings.undirected)
            packed = evaluator.group(numbers[b : b + 1], plain).pack(evaluator.masks("hard"))
            kept = parts.flatten(parts.from_weights(packed)) > KEPT
            found[b] = Certifier(plain, parts, kept, certifier.request).certificates()[0]
    if why and bool(doubtful.any()):
        number = int(doubtful.sum())
        cost = f"{number} certificates were therefore verified alone on the whole graph, and {again} made again there."
        warn_slow(evaluator.model, why, cost)
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


def _check_request(law: Any, samples: Any, confidence: Any, exact: Any, seed: Any, settings: BaseSettings) -> Request:
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
    return Request(rule, name, int(samples), float(confidence), int(exact), int(seed), settings)
