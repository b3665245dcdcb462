"""What a certificate says about one explanation."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


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
        target: the explained class.
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
        """The certificate in plain words; ``class_name`` names the class."""
        target = f"class {self.target}" if class_name is None else f"“{class_name}”"
        return " ".join(
            [self._explanation(target), self._complement(), self._bounds(), self._monotonicity(), self._ceiling()]
        )

    def as_plain_data(self) -> dict[str, Any]:
        """The certificate as plain data that JSON can hold."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    def _explanation(self, target: str) -> str:
        what = f"these {self.kept} of {self.elements} {self.unit}"
        return f"With only {what}, the model gives {target} with p = {self.p_factual:.2f}."

    def _complement(self) -> str:
        if self.law == "literal":
            return f"With only the others, p = {self.p_complement:.2f}."
        if self.exact:
            return f"Over all other subsets under the {self.law} law, p = {self.p_complement:.2f} on average."
        low, high = self.p_complement_interval
        return (
            f"Over {self.samples} samples of the {self.law} law, p = {self.p_complement:.2f} on average "
            f"({low:.2f} to {high:.2f} with {100 * self.confidence:g} % confidence)."
        )

    def _bounds(self) -> str:
        low = [_rounded_down(i[0]) for i in (self.pns_interval, self.pn_interval, self.ps_interval)]
        estimates = "" if self.exact else f" (estimates {self.pns:.2f}, {self.pn:.2f} and {self.ps:.2f})"
        return f"Hence PNS >= {low[0]}, PN >= {low[1]} and PS >= {low[2]}{estimates}."

    def _monotonicity(self) -> str:
        if not self.monotone:
            return (
                f"In {100 * self.violations:.2g} % of the complement the class is likelier than with the explanation: "
                "monotonicity is violated, so the PNS may be higher than its bound."
            )
        limit = ", as far as one world can show" if self.law == "literal" else "" if self.exact else ", as far as sampled"
        return f"No violation of monotonicity was seen, so the bound is the PNS itself{limit}."

    def _ceiling(self) -> str:
        how = f"all {2**self.elements} subsets tried" if self.ceiling_exact else "best found; there may be better"
        return f"With the literal complement, the best PNS bound of any explanation is {self.ceiling:.2f} ({how})."


def _rounded_down(value: float) -> str:
    """A lower bound with two digits, rounded down so that it stays a lower bound.

    >>> _rounded_down(0.8375), _rounded_down(0.84)
    ('0.83', '0.84')
    """
    return f"{math.floor(100 * value + 1e-6) / 100:.2f}"
