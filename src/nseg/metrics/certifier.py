"""What worlds say about hard explanations under a law of their complement, and certificates made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import EDGE_KIND
from nseg.graphs.subgraph import reverse_edges
from nseg.metrics.certificate import Certificate
from nseg.metrics.intervals import mean_interval
from nseg.model.causal import CausalModel
from nseg.model.removal import KEPT, positions_of
from nseg.model.slow_runs import raise_own_fault, raised
from nseg.search.complement import Bernoulli, Law, literal
from nseg.search.enumeration import complement_probabilities, enumerate_worlds
from nseg.search.formulas import bounds
from nseg.search.moves import climb_merit
from nseg.search.parts import EDGES, EdgePart, MaskParts, Masks, Part
from nseg.search.restarts import common_subsets
from nseg.search.sampling import ComplementSampler
from nseg.search.settings import BaseSettings
from nseg.search.subsets import pick
from nseg.search.worlds import evaluate, outside_stays

ROUNDING = 1e-5
"""How much likelier the class must be in a world than with the explanation to count as a violation of monotonicity."""

AGREE = 1e-4
"""Difference of probabilities that rounding can explain."""


class _Measurement(NamedTuple):
    """What the worlds say about B explanations.

    Args:
        complement: probability of the class in the complement, and the ends of its interval, [3, B].
        violations: share of the complement in which the class is likelier than with the explanation, [B].
        exact: whether all worlds of the law were evaluated, [B].
        ceilings: the best bounds of PNS, PN and PS, [3, B].
        best: the subset with the best bound of PNS, [n].
    """

    complement: Tensor
    violations: Tensor
    exact: Tensor
    ceilings: Tensor
    best: Tensor


@dataclass(frozen=True)
class Request:
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
class Certifier:
    """Certifies B explanations that share a causal model.

    Args:
        causal, parts: B instances and the parts of their masks.
        kept: the explanations, [n].
        request: what is asked for.
    """

    causal: CausalModel
    parts: MaskParts
    kept: Tensor
    request: Request

    def certificates(self) -> list[Certificate]:
        """One certificate per instance."""
        parts, request = self.parts, self.request
        p, found = self._p_factual, self._measured
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

    def select(self, which: Tensor) -> Certifier:
        if which.numel() == len(self.causal.instances):
            return self
        causal = self.causal.select(which)
        kept = self.kept[torch.isin(self.parts.owner, which)]
        return Certifier(causal, self.parts.select(which, causal.instances), kept, self.request)

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
        found = evaluate(self.causal, self.parts, kept.bool(), self._split, self.request.settings.intervention)
        return found.p_factual.double().clamp(0, 1), found.p_complement.double().clamp(0, 1)

    def disagreements(self, reference: CausalModel) -> tuple[Tensor, str]:
        """Which certificates a causal model of the same instances, with more edges, does not confirm, and why, [B].

        None are confirmed if it raises.

        It is asked about the explanation, about the subset that the ceiling is from, and about two random subsets, with
        their complements: any world of a law is like one of them.
        """
        rng = torch.Generator().manual_seed(self.request.seed)
        random = (torch.rand(2, len(self.kept), generator=rng, device="cpu") < 0.5).to(self.kept.device)
        subsets = torch.cat([self.kept.unsqueeze(0), self._measured.best.unsqueeze(0), random])
        here, there = self.causal.instances, reference.instances
        try:
            values = self.parts.unflatten(subsets.double())
            if EDGES in values:
                values[EDGES] = self.parts.edges.to_weights(values[EDGES])
            parts = MaskParts(there, tuple(_directed(part, there) for part in self.parts))
            placed = parts.flatten(_placed(values, here, there, self.parts.ties)) > KEPT
            answers = replace(self, causal=reference, parts=parts, kept=placed[0])._evaluate(placed)
            pairs = zip(self._evaluate(subsets), answers, strict=True)
            right = torch.stack([(own - p).abs() <= AGREE for own, p in pairs]).flatten(0, 1).all(0)
            ceiling = bounds(*(p[1] for p in answers))[0]
        except Exception as error:  # a model may raise anything on graphs that it does not expect
            raise_own_fault(error)
            return torch.ones_like(self.parts.count, dtype=torch.bool), raised(error, "where certificates are verified")
        some = self.parts.size(self.parts.unflatten(self._measured.best.double())) > 0
        wrong = ~(right & ((ceiling * some - self._measured.ceilings[0]).abs() <= 2 * AGREE))
        return wrong, "probabilities without shortcuts are other than with them"

    @cached_property
    def _p_factual(self) -> Tensor:
        return self._evaluate(self.kept.unsqueeze(0))[0].squeeze(0)

    @cached_property
    def _measured(self) -> _Measurement:
        """Enumerate the worlds of small instances; sample those of large ones and of laws that cannot be enumerated."""
        p_factual = self._p_factual
        request, most = self.request, -1 if self.parts.nodes_vanish and self._removes else self.request.exact
        small = self.parts.count <= most
        enumerated = small & (request.q is not None)
        three = p_factual.expand(3, -1)
        exact = enumerated | request.deterministic
        found = _Measurement(three.clone(), torch.zeros_like(p_factual), exact, three.clone(), self.kept.clone())
        for which, members, table in enumerate_worlds(self.causal, self.parts, most, self._removes):
            complement = table.p_complement(self._split).double().clamp(0, 1)
            every = bounds(table.p.double().clamp(0, 1), complement)  # [3, 2^n, B]
            every[:, 0] = 0  # what keeps nothing shows nothing
            found.ceilings[:, which] = every.amax(1)
            found.best[members] = table.kept(every[0].argmax(0))
            if request.q is not None:
                worlds = table.p_around.double().clamp(0, 1)
                p = complement_probabilities(table, self.kept[members], request.q, self._split)
                found.complement[:, which] = (p * worlds).sum(0).clamp(0, 1)
                found.violations[which] = (p * (worlds > p_factual[which] + ROUNDING)).sum(0)
        sampled, large = (~enumerated).nonzero().flatten(), (~small).nonzero().flatten()
        if sampled.numel():
            found.complement[:, sampled], found.violations[sampled] = self.select(sampled)._sample(p_factual[sampled])
        if large.numel():
            mine = torch.isin(self.parts.owner, large)
            found.ceilings[:, large], found.best[mine] = self.select(large)._climb_ceiling()
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

    def _climb_ceiling(self) -> tuple[Tensor, Tensor]:
        """The best bounds of several subsets and of what local moves make of them [3, B], and that of the best PNS, [n]."""
        settings, kept = self.request.settings, self.kept
        starts = torch.cat([kept.unsqueeze(0), common_subsets(self.parts)])  # a search that is stuck tries them too
        ends = torch.stack([climb_merit(self.causal, self.parts, start, settings) for start in starts])
        subsets = torch.cat([starts, ends])
        some = self.parts.size(self.parts.unflatten(subsets.double())) > 0
        value = bounds(*self._evaluate(subsets)) * some  # [3, P, B]
        return value.amax(1), pick(subsets, value[0].argmax(0), self.parts)


def _directed(part: Part, instances: InstanceBatch) -> Part:
    """A part of other instances, whose values are placed there edge by edge."""
    return EdgePart(instances) if isinstance(part, EdgePart) else part.on(instances)


def _placed(masks: Masks, here: InstanceBatch, there: InstanceBatch, ties: Tensor) -> Masks:
    """Masks [P, ...] of instances, on the same instances with more edges and nodes; 0 for these.

    Args:
        masks: P masks, by edge and by node.
        here, there: the instances.
        ties: whether both directions of an edge are one in each instance, [B].
    """
    found = Masks()
    for name, mask in masks.items():
        of_edges = name == EDGES
        own, other = ((b.edge_owner, b.edge_id) if of_edges else (b.node_owner, b.node_id) for b in (here, there))
        if mask.size(1) != len(own[0]):  # features that all nodes of an instance have in common
            found[name] = mask
            continue
        empty = mask.new_zeros(len(mask), len(other[0]), *mask.shape[2:])
        found[name] = empty.index_copy(1, positions_of(other, own), mask)
        if of_edges and bool(ties.any()):
            reverse = reverse_edges(there.edge_index, there.num_nodes, there.args.get(EDGE_KIND))
            both = torch.maximum(found[name], found[name][:, reverse])
            found[name] = torch.where(ties[there.edge_owner], both, found[name])
    return found
