"""What a certificate says about one explanation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from nseg.events import Event, plain_class_name
from nseg.wording import PartSize, bound_text, probability_text, share_words, upper_bound_text


@dataclass(frozen=True)
class Certificate:
    r"""What one hard explanation is worth under a law of its complement.

    An interval is ``(low, high)``. Those of ``p_complement``, ``pns``, ``pn`` and ``ps`` hold together with probability
    ``confidence`` or more, whatever the model and the number of samples. They have no width if all worlds of the law were
    evaluated.

    Monotonicity says that no world of the complement gives the class where the explanation does not. If one exogenous
    number decides all worlds of an instance, :math:`Y_\xi = \mathbb{1}[U \le p_\xi]`, it is violated by exactly those
    worlds that make the class likelier than the explanation does. Without such worlds, the bound *is* the PNS (Lemma 2).

    The ceilings are of the literal complement, which has one value for each subset: the highest bound of any subset of the
    instance's elements. If not all subsets were tried, they are the best found, and there may be better.

    Args:
        law: of the complement.
        target: the explained class, or the value of a regression.
        p_factual: probability of the class with the explanation alone.
        p_complement: its mean probability in the complement.
        p_complement_interval: interval of that mean.
        pns, pn, ps: lower bounds of the probabilities of necessity and sufficiency, and of each alone.
        pns_interval, pn_interval, ps_interval: intervals of these bounds.
        exact: whether all worlds of the law were evaluated.
        samples: worlds sampled for each sub-event of the complement; 0 if exact.
        confidence: of the intervals.
        violations: observed share of the complement in which the class is likelier than with the explanation.
        monotone: whether no such world was seen.
        ceiling, ceiling_pn, ceiling_ps: the best bounds, each maximised separately.
        ceiling_exact: whether all subsets were tried.
        kept, elements: number of elements in the explanation, and in the instance.
        unit: what the elements are.
        size: how many elements of each kind are kept, and of how many.
        class_name: name of the explained class, if it has one.
        intervention: whether messages over edges that are left out were masked or these edges deleted.
        outcome: the explained event, if it is not simply the class.
        molecule: whether the graph is a molecule.
    """

    law: str
    target: int | float
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
    size: tuple[PartSize, ...] = ()
    class_name: str | None = None
    intervention: str = "mask"
    outcome: Event | None = None
    molecule: bool = False

    def words(self, class_name: str | None = None, molecule: bool | None = None) -> str:
        """The certificate in plain words.

        Args:
            class_name: name of the class; by default the certificate's own.
            molecule: whether edges are bonds and nodes are atoms; by default as the names say.
        """
        name = self.class_name if class_name is None else class_name
        molecule = self.molecule if molecule is None else molecule
        sentences = [self._explanation(self._statement(name), molecule), self._complement(), self._bounds()]
        return " ".join([*sentences, self._monotonicity(), self._ceiling()])

    def as_plain_data(self) -> dict[str, Any]:
        """The certificate as plain data that JSON can hold."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(replace(self, outcome=None)).items()}
        return {**plain, "outcome": None if self.outcome is None else self.outcome.as_plain_data()}

    def _statement(self, class_name: str | None) -> str:
        """What the model does if the explained event happens."""

        def name(number: int) -> str:
            return plain_class_name(number) if class_name is None or number != self.target else f"“{class_name}”"

        return (
            f"the model gives {name(int(self.target))}"
            if self.outcome is None
            else self.outcome.statement(self.target, name)
        )

    @property
    def _what(self) -> str:
        return "class" if self.outcome is None else "outcome"

    def _explanation(self, statement: str, molecule: bool) -> str:
        what = share_words(self.size, molecule) or f"{self.kept} of {self.elements} {self.unit}"
        how = f" and all other {'bonds' if molecule else 'edges'} deleted" if self.intervention == "remove" else ""
        return f"With only {what}{how}, {statement} with p = {probability_text(self.p_factual)}."

    def _complement(self) -> str:
        p = probability_text(self.p_complement)
        if self.law == "literal":
            return f"Without one or both of them, p = {p} on average." if len(self.size) > 1 else f"Without them, p = {p}."
        if self.exact:
            return f"Over all other subsets under the {self.law} law, p = {p} on average."
        low, high = self.p_complement_interval
        return (
            f"Over {self.samples} samples of the {self.law} law, p = {p} on average "
            f"({bound_text(low)} to {upper_bound_text(high)} with {100 * self.confidence:g} % confidence)."
        )

    def _bounds(self) -> str:
        low = [bound_text(i[0]) for i in (self.pns_interval, self.pn_interval, self.ps_interval)]
        estimates = [bound_text(value) for value in (self.pns, self.pn, self.ps)]
        if not self.kept:  # with the class certain anyway, a ratio of two tiny numbers
            more = "" if self.exact else f" (estimates {estimates[0]} and {estimates[1]})"
            return f"Hence PNS >= {low[0]} and PN >= {low[1]}{more}; of an explanation that keeps nothing, PS says nothing."
        more = "" if self.exact else f" (estimates {estimates[0]}, {estimates[1]} and {estimates[2]})"
        return f"Hence PNS >= {low[0]}, PN >= {low[1]} and PS >= {low[2]}{more}."

    def _monotonicity(self) -> str:
        if not self.monotone:
            return (
                f"In {100 * self.violations:.2g} % of the complement the {self._what} is likelier than with the "
                "explanation: monotonicity is violated, so the PNS may be higher than its bound."
            )
        limit = ", as far as one world can show" if self.law == "literal" else "" if self.exact else ", as far as sampled"
        return f"No violation of monotonicity was seen, so the bound is the PNS itself{limit}."

    def _ceiling(self) -> str:
        how = f"all {2**self.elements} subsets tried" if self.ceiling_exact else "best found; there may be better"
        best = bound_text(self.ceiling)
        return f"With the literal complement, the best PNS bound of any explanation is {best} ({how})."
