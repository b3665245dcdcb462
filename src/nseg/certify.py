r"""What a hard explanation is worth under a stated law of its complement, exactly or with an interval that holds.

The *law* says which worlds stand for "not the explanation" (:math:`\xi^c`); the bounds of PNS, PN and PS follow from
the probability of the class in the explanation's world and its mean over those worlds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import MaskType

from nseg import objective as obj
from nseg.complement import Bernoulli, Law, literal
from nseg.draws import Sampler, world_chances
from nseg.errors import InputError, SettingsError
from nseg.instances import Role
from nseg.metrics.worlds import Judge
from nseg.refine import climb
from nseg.scm import Scm, borrowed
from nseg.settings import Common
from nseg.space import Masks, Space, evaluate
from nseg.subsets import Row, tables

RANDOM = 2
"""Random subsets from which the ceiling of a large instance is climbed to, besides the explanation, everything, nothing."""

ROUNDS = 10
"""Moves made from each of them at the most."""

ROUNDING = 1e-5
"""How much likelier the class must be in a world than with the explanation to count against monotonicity."""

MOST = 20
"""Elements of which all subsets can be tried within a few seconds and a gigabyte."""

LAWS: dict[str, Law] = {"literal": literal, "uniform": Bernoulli(0.5)}
"""Laws by name."""


# --- what is certified -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificate:
    r"""What one hard explanation is worth under a law of its complement.

    An interval is ``(low, high)``; those of ``p_complement``, ``pns``, ``pn`` and ``ps`` hold together with probability
    ``confidence`` or more, whatever the model, for the number of samples that was used; they have no width where the
    worlds of the law were all looked at.

    Monotonicity says that no world of the complement gives the class where the explanation does not. If one exogenous
    number decides all worlds of an instance, :math:`Y_\xi = \mathbb{1}[U \le p_\xi]`, it is violated by just those worlds
    that make the class likelier than the explanation does. Where there is none, the bound *is* the PNS (Lemma 2).

    The ceilings are of the literal complement, which has a single value for each subset: the highest bound that any subset
    of the instance's elements reaches, or where not all were tried one that can be reached at least.

    Args:
        law: of the complement.
        target: the explained class.
        p_factual: probability of the class if just the explanation is kept.
        p_complement: its mean probability in the complement.
        p_complement_interval: where that lies.
        pns, pn, ps: lower bounds of the probabilities of necessity and sufficiency, of either alone.
        pns_interval, pn_interval, ps_interval: where these bounds lie.
        exact: whether all worlds of the law were looked at.
        samples: worlds drawn for each sub-event of the complement; 0 where exact.
        confidence: of the intervals.
        violations: share of the complement in which the class is likelier than with the explanation, as far as seen.
        monotone: whether there was no such world.
        ceiling, ceiling_pn, ceiling_ps: the best bounds, each for itself.
        ceiling_exact: whether all subsets were tried for them; else the ceilings are at least these.
        kept, elements: elements in the explanation, and in all.
        unit: what the elements are.
    """

    law: str
    target: int
    p_factual: float
    p_complement: float
    p_complement_interval: tuple[float, float]
    pns: float
    pns_interval: tuple[float, float]
    pn: float
    pn_interval: tuple[float, float]
    ps: float
    ps_interval: tuple[float, float]
    exact: bool
    samples: int
    confidence: float
    violations: float
    monotone: bool
    ceiling: float
    ceiling_pn: float
    ceiling_ps: float
    ceiling_exact: bool
    kept: int
    elements: int
    unit: str

    def words(self, class_name: str | None = None) -> str:
        """The certificate in plain words, in which the class has its name if one is given."""
        target = f"class {self.target}" if class_name is None else f"“{class_name}”"
        return " ".join(
            [self._explanation(target), self._complement(), self._bounds(), self._monotonicity(), self._ceiling()]
        )

    def as_plain_data(self) -> dict[str, Any]:
        """The certificate as JSON would keep it."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def _explanation(self, target: str) -> str:
        what = f"these {self.kept} of {self.elements} {self.unit}"
        return f"Keeping {what} gives {target} with p = {self.p_factual:.2f}."

    def _complement(self) -> str:
        if self.law == "literal":
            return f"Keeping the others instead gives p = {self.p_complement:.2f}."
        if self.exact:
            return f"Under the {self.law} law of all other subsets p = {self.p_complement:.2f} on average, by enumeration."
        low, high = self.p_complement_interval
        return (
            f"Under {self.samples} samples of the {self.law} law p = {self.p_complement:.2f} on average "
            f"({low:.2f} to {high:.2f} with {100 * self.confidence:g} % confidence)."
        )

    def _bounds(self) -> str:
        low = [_rounded_down(i[0]) for i in (self.pns_interval, self.pn_interval, self.ps_interval)]
        estimates = "" if self.exact else f" (estimates {self.pns:.2f}, {self.pn:.2f} and {self.ps:.2f})"
        return f"So PNS >= {low[0]}, PN >= {low[1]} and PS >= {low[2]}{estimates}."

    def _monotonicity(self) -> str:
        if not self.monotone:
            return (
                f"In {100 * self.violations:.2g} % of the complement the class is likelier than with the explanation: "
                "monotonicity is violated, and the PNS may be higher than its bound."
            )
        seen = ", as far as one world can show it" if self.law == "literal" else "" if self.exact else ", as far as seen"
        return f"No violation of monotonicity was seen, so that the bound is the PNS itself{seen}."

    def _ceiling(self) -> str:
        how = f"all {2**self.elements} subsets tried" if self.ceiling_exact else "the best found; there may be better"
        return f"With the literal complement the best PNS bound of any explanation is {self.ceiling:.2f} ({how})."


def _rounded_down(value: float) -> str:
    """Two digits that do not claim too much.

    >>> _rounded_down(0.8375), _rounded_down(0.84)
    ('0.83', '0.84')
    """
    return f"{math.floor(100 * value + 1e-6) / 100:.2f}"


# --- pure functions --------------------------------------------------------------------------------------------------------


def hoeffding(samples: int, error: float) -> float:
    r"""Half-width :math:`\sqrt{\ln(2/\delta) / 2n}` of a two-sided interval of a mean in [0, 1] (Hoeffding 1963).

    >>> round(hoeffding(1000, 0.05), 4)
    0.0429
    """
    return math.sqrt(math.log(2 / error) / (2 * samples))


def empirical_bernstein(variance: Tensor, samples: int, error: float) -> Tensor:
    r"""Half-width :math:`\sqrt{2 V \ln(4/\delta) / n} + 7 \ln(4/\delta) / 3(n-1)` of such an interval.

    Theorem 4 of Maurer and Pontil, *Empirical Bernstein Bounds and Sample Variance Penalization* (COLT 2009), for both
    sides. ``variance`` is the sample variance with n - 1.

    >>> empirical_bernstein(torch.tensor([0.0, 0.04]), 1000, 0.05)
    tensor([0.0102, 0.0290])
    """
    least = math.log(4 / error)
    return (2 * least / samples * variance).sqrt() + 7 * least / (3 * (samples - 1))


def mean_interval(values: Tensor, confidence: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean of independent numbers in [0, 1], and where their expectation lies with the confidence or more, [S, B] to [B].

    The tighter of both intervals above, each of which may err with half the probability.

    >>> mean_interval(torch.tensor([0.0, 1.0]).repeat(500).unsqueeze(1), 0.95)
    (tensor([0.5000]), tensor([0.4532]), tensor([0.5468]))
    """
    samples, error = len(values), (1 - confidence) / 2
    mean = values.mean(0)
    half = empirical_bernstein(values.var(0), samples, error).clamp(max=hoeffding(samples, error))
    return mean, (mean - half).clamp(0, 1), (mean + half).clamp(0, 1)


def bounds(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    """The bounds of PNS, PN and PS, [3, ...]; each falls as ``p_complement`` rises, so that ends of its interval are ends.

    >>> bounds(torch.tensor([0.8, 0.8]), torch.tensor([0.2, 0.5]))
    tensor([[0.6000, 0.3000],
            [0.7500, 0.3750],
            [0.7500, 0.6000]])
    """
    return torch.stack([bound(p_factual, p_complement) for bound in (obj.pns_bound, obj.pn_bound, obj.ps_bound)])


# --- one causal model's instances ------------------------------------------------------------------------------------------


class _Measured(NamedTuple):
    """What the worlds say of B explanations.

    Args:
        complement: probability of the class in the complement, and the ends of its interval, [3, B].
        violations: share of the complement in which the class is likelier than with the explanation, [B].
        exact: whether all worlds of the law were looked at, [B].
        ceilings: the best bounds of PNS, PN and PS, [3, B].
    """

    complement: Tensor
    violations: Tensor
    exact: Tensor
    ceilings: Tensor


@dataclass(frozen=True)
class _Asked:
    """What :func:`certify` is asked for, checked.

    Args:
        law, name: the law and what it is called.
        samples, confidence, exact, seed: as there.
        settings: split and direction of the elements, and how the ceiling is climbed to.
    """

    law: Law
    name: str
    samples: int
    confidence: float
    exact: int
    seed: int
    settings: Common

    @property
    def number(self) -> int:
        """Samples that say what there is to say."""
        return 1 if self.certain else self.samples

    @property
    def certain(self) -> bool:
        """Whether the law has one world only for each sub-event."""
        return self.law is literal or (isinstance(self.law, Bernoulli) and self.law.q in (0, 1))

    @property
    def q(self) -> float | None:
        """Probability of each element to be kept, where all worlds of the law can be looked at."""
        return self.law.q if isinstance(self.law, Bernoulli) and not self.certain else None


@dataclass(frozen=True)
class _Part:
    """B explanations that share a causal model.

    Args:
        scm, space: B instances and their elements.
        kept: the explanations, [n].
        asked: what of them.
    """

    scm: Scm
    space: Space
    kept: Tensor
    asked: _Asked

    def certificates(self) -> list[Certificate]:
        """One for each instance."""
        row, asked = Row(self.space), self.asked
        p = self._evaluate(self.kept.unsqueeze(0))[0].squeeze(0)
        found = self._measured(p)
        value, best, worst = (bounds(p, q) for q in found.complement)  # [3, B] each
        size = torch.zeros_like(row.count).index_add(0, row.owner, self.kept.long())
        return [
            Certificate(
                law=asked.name,
                target=int(self.scm.instances.target[b]),
                p_factual=float(p[b]),
                p_complement=float(found.complement[0, b]),
                p_complement_interval=(float(found.complement[1, b]), float(found.complement[2, b])),
                pns=float(value[0, b]),
                pns_interval=(float(worst[0, b]), float(best[0, b])),
                pn=float(value[1, b]),
                pn_interval=(float(worst[1, b]), float(best[1, b])),
                ps=float(value[2, b]),
                ps_interval=(float(worst[2, b]), float(best[2, b])),
                exact=bool(found.exact[b]),
                samples=0 if found.exact[b] else asked.samples,
                confidence=asked.confidence,
                violations=float(found.violations[b]),
                monotone=bool(found.violations[b] == 0),
                ceiling=float(found.ceilings[0, b]),
                ceiling_pn=float(found.ceilings[1, b]),
                ceiling_ps=float(found.ceilings[2, b]),
                ceiling_exact=bool(row.count[b] <= asked.exact),
                kept=int(size[b]),
                elements=int(row.count[b]),
                unit=_unit(self.space),
            )
            for b in range(len(self.scm.instances))
        ]

    def of(self, which: Tensor) -> _Part:
        """The same of some of the instances."""
        if which.numel() == len(self.scm.instances):
            return self
        scm = self.scm.select(which)
        return _Part(scm, self.space.of(scm.instances), self.kept[torch.isin(Row(self.space).owner, which)], self.asked)

    @property
    def split(self) -> tuple[float, ...]:
        """Probability of each sub-event of the complement."""
        return self.space.split(self.asked.settings)

    def _evaluate(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities of the class in P subsets [P, n] and their literal complements, [P, B] each."""
        masks = Row(self.space).part(kept.to(self.scm.dtype))
        p, complement = evaluate(self.scm, self.space, masks, self.split)
        return p.double().clamp(0, 1), complement.double().clamp(0, 1)

    def _measured(self, p_factual: Tensor) -> _Measured:
        """Look at all worlds of small instances, and at samples of large ones and of laws that cannot be enumerated."""
        asked = self.asked
        few = Row(self.space).count <= asked.exact
        tabled = few & (asked.q is not None)
        three = p_factual.expand(3, -1)
        found = _Measured(three.clone(), torch.zeros_like(p_factual), tabled | asked.certain, three.clone())
        for which, members, table in tables(self.scm, self.space, asked.exact):
            worlds = table.p.double().clamp(0, 1)
            found.ceilings[:, which] = bounds(worlds, table.complement(self.split).double().clamp(0, 1)).amax(1)
            if asked.q is not None:
                chance = world_chances(table, self.kept[members], asked.q, self.split)
                found.complement[:, which] = (chance * worlds).sum(0).clamp(0, 1)
                found.violations[which] = (chance * (worlds > p_factual[which] + ROUNDING)).sum(0)
        drawn, many = (~tabled).nonzero().flatten(), (~few).nonzero().flatten()
        if drawn.numel():
            found.complement[:, drawn], found.violations[drawn] = self.of(drawn)._sampled(p_factual[drawn])
        if many.numel():
            found.ceilings[:, many] = self.of(many)._climbed()
        return found

    def _sampled(self, p_factual: Tensor) -> tuple[Tensor, Tensor]:
        """Mean probability of the class in samples of the complement with its interval [3, B], and violations, [B].

        A sample is one world of each sub-event, mixed by the split: independent numbers in [0, 1] whose expectation is the
        probability in the complement, so that one interval serves a joint complement too.
        """
        values, above = [], []
        split = p_factual.new_tensor(self.split).view(-1, 1, 1)
        for masks in Sampler(self.space, self.kept, self.asked.law, self.asked.seed).blocks(self.asked.number):
            worlds = masks.map(lambda mask: mask.flatten(0, 1).to(self.scm.dtype))
            p = self.scm.do(*self.space.weights(worlds)).double().clamp(0, 1)
            p = p.view(len(split), -1, len(p_factual))  # [A, s, B]
            values.append((split * p).sum(0).clamp(0, 1))
            above.append((split * (p > p_factual + ROUNDING)).sum(0))
        value = torch.cat(values)
        spread = value.expand(3, -1) if self.asked.certain else torch.stack(mean_interval(value, self.asked.confidence))
        return spread, torch.cat(above).mean(0)

    def _climbed(self) -> Tensor:
        """The best bounds among several subsets and where local moves lead from them, [3, B]."""
        one, kept = self.asked.settings, self.kept
        half = Sampler(self.space, kept, Bernoulli(0.5), ~self.asked.seed).blocks(RANDOM)
        random = [Row(self.space).join(masks.map(lambda mask: mask[0].bool())) for masks in half]
        starts = torch.cat([torch.stack([kept, torch.ones_like(kept), torch.zeros_like(kept)]), *random])
        ends = torch.stack([climb(self.scm, self.space, start, one) for start in starts])
        return bounds(*self._evaluate(torch.cat([starts, ends]))).amax(1)


def _unit(space: Space) -> str:
    """What the elements are called."""
    nodes = {
        None: "",
        MaskType.object: "nodes",
        MaskType.attributes: "features of nodes",
        MaskType.common_attributes: "features",
    }[space.nodes]
    return " and ".join(["edges"] * space.edges + [nodes] * bool(nodes))


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
) -> list[Certificate]:
    r"""What hard explanations are worth under a law of their complement: bounds of PNS, PN and PS, and how sure they are.

    .. math:: \mathrm{PNS} \ge \max\{0,\; p_\xi - \mathbb{E}_{\xi^c \sim \text{law}}\, p_{\xi^c}\}

    The laws: ``"literal"``, keep what the explanation leaves out and nothing else; ``"uniform"``, all other subsets are
    equally likely (Eq. 7); ``Bernoulli(q)``, every element is kept with probability q, given that the result is not the
    explanation; or the user's own :math:`p(U)`. Of a joint explanation a part that is drawn differs from the explained
    part, and the three sub-events are mixed by the explanation's ``split``. Where the explanation is the only world that
    there can be (a part without elements; q of 0 or 1), it stands for its own complement, and nothing is certified.

    The literal law is exact. The worlds of a Bernoulli law are enumerated for instances of at most ``exact`` elements;
    otherwise they are drawn, and the interval is the tighter of Hoeffding's and Maurer and Pontil's, which hold for any
    number of samples, each certificate for itself. Cost: 2^n worlds of an instance of n elements, or the samples of each
    sub-event; and for the ceiling of a large instance about as many as 1000 samples.

    Args:
        explainer: the explainer that made them, or any for the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: with hard masks; one of a single output, or what :func:`nseg.explain_many` gave.
        law: of the complement: ``"literal"``, ``"uniform"``, a :class:`nseg.complement.Bernoulli`, or a function of a mask
            and uniform numbers, [S, n] each for some samples of the n edges or n node elements of one instance, that gives
            weights of that shape. Its worlds are taken as they are, also if one is the explanation.
        samples: worlds to draw for each sub-event of the complement.
        confidence: of the intervals.
        exact: up to how many elements all worlds are looked at, for the law and for the ceiling.
        seed: equal seeds give equal certificates, alone or in any company.

    Returns:
        A certificate for each explanation.
    """
    judge = Judge(explainer, data, explanations)
    _check_masks(judge)
    asked = _checked(law, samples, confidence, exact, seed, _settings(judge.found))
    masks = judge.masks("hard")
    found: dict[int, Certificate] = {}
    with torch.inference_mode(False), torch.no_grad(), borrowed(judge.model):
        for number, (which, scm) in enumerate(judge.parts):
            nodes = explainer.node_mask_type if judge.nodes else None
            space = Space(scm.instances, judge.edges, nodes, asked.settings.undirected)
            kept = Row(space).join(_elements(space, Masks(*judge.packed(masks, number)))) > 0.5
            found.update(zip(which.tolist(), _Part(scm, space, kept, asked).certificates(), strict=True))
    return [found[number] for number in range(len(found))]


def _check_masks(judge: Judge) -> None:
    """Raise unless all explanations say what is kept."""
    for one in judge.found:
        for name in ["edge_mask"] * judge.edges + ["node_mask"] * judge.nodes:
            hard = one.get("hard_" + name)
            if hard is None or hard.shape != one[name].shape:
                raise InputError(
                    "Certificates are of hard masks, which have the shape of the soft ones (got "
                    f"{'none' if hard is None else tuple(hard.shape)} for output {int(one.output_id)}). Explain with nseg, "
                    f"or say what is kept, e.g. explanation.hard_{name} = explanation.{name} > 0.5."
                )


def _elements(space: Space, weights: Masks) -> Masks:
    """Values of the elements from the weights of edges [E] and nodes [N, w]: the inverse of ``space.weights``."""
    edge, node = weights
    if edge is not None:
        element = space.element_of_edge
        value = edge.new_zeros(space.edge_owner.numel()).scatter(0, element, edge)
        if not torch.equal(value[element], edge):
            raise InputError(
                "Both directions of an edge must be kept or left out together where undirected=True (got a hard mask that "
                "parts them). Let hard_edge_mask be the same for both."
            )
        edge = value
    if node is not None and space.nodes is MaskType.common_attributes:
        node = node[space.instances.ptr[Role.NODE][:-1]]
    return Masks(edge, node)


def _settings(found: Sequence[Explanation]) -> Common:
    """What the explanations say about their elements and their complement, or what is usual."""
    said = [one.get("settings") or {} for one in found]
    undirected, split = ([one.get(name) for one in said] for name in ("undirected", "split"))
    if any(u != undirected[0] for u in undirected) or any(s != split[0] for s in split):
        raise InputError(
            "Explanations that are certified together must share the settings undirected and split (got several). "
            "Certify them one by one."
        )
    usual = Common(undirected=bool(undirected[0]), rounds=ROUNDS)
    return usual if split[0] is None else replace(usual, split=tuple(split[0]))


def _checked(law: Any, samples: Any, confidence: Any, exact: Any, seed: Any, settings: Common) -> _Asked:
    """What was asked for, or a sentence."""

    def whole(value: Any, least: float, most: float) -> bool:
        return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most

    if (law not in LAWS) if isinstance(law, str) else not callable(law):
        raise SettingsError(
            f"law must be {', '.join(map(repr, LAWS))}, Bernoulli(q) or a function of a mask and uniform numbers "
            f"(got {law!r}). Try 'literal'."
        )
    if not whole(samples, 2, math.inf):
        raise SettingsError(f"samples must be a whole number of at least 2 (got {samples!r}). Try 1000.")
    if not isinstance(confidence, Real) or isinstance(confidence, bool) or not 0 < float(confidence) < 1:
        raise SettingsError(f"confidence must be between 0 and 1, without these (got {confidence!r}). Try 0.95.")
    if not whole(exact, 0, MOST):
        raise SettingsError(f"exact must be a whole number from 0 to {MOST} (got {exact!r}). Try 12.")
    if not whole(seed, -math.inf, math.inf):
        raise SettingsError(f"seed must be a whole number (got {seed!r}). Try 0.")
    if isinstance(law, str):
        name, rule = law, LAWS[law]
    else:
        name, rule = getattr(law, "__name__", repr(law)), law
    return _Asked(rule, name, int(samples), float(confidence), int(exact), int(seed), settings)
