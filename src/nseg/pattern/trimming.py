"""Patterns without what they do not need: edges that can go while the model reacts to the rest as before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nseg.pattern.cores import one_edge_less
from nseg.pattern.selection import ChosenPattern, Form, PatternIndex
from nseg.pattern.trials import PatternTester

ENOUGH = 0.5
"""Share of other predictions that must become the class with a pattern, for it to be made smaller."""


@dataclass
class PatternTrimmer:
    """Makes the patterns of a class smaller, by tests on predictions that they were found in.

    Explanations often keep an edge or two beside their cause. An edge is taken out of a pattern that is mostly enough, if
    that lowers neither share, the explanations that it explains do not become fewer, and it does not occur elsewhere more
    often. A pattern that is not enough by itself stays: less of it is no better an answer.

    Args:
        tester: asks the model about some of the predictions that patterns were found in.
        target: the class.
        mine, others: positions of the predictions of the class, and of other classes.
    """

    tester: PatternTester
    target: int
    mine: Sequence[int]
    others: Sequence[int]
    _explained: dict[Form, tuple[int, ...]] = field(default_factory=dict)
    _elsewhere: dict[Form, tuple[int, ...]] = field(default_factory=dict)
    _shares: dict[tuple[Form, str], float] = field(default_factory=dict)

    @property
    def index(self) -> PatternIndex:
        """All predictions."""
        return self.tester.index

    def trim(self, chosen: Sequence[ChosenPattern]) -> list[ChosenPattern]:
        """The patterns, made smaller where that costs nothing; of equal ones the first."""
        found = {one.form: one for one in map(self._smallest, chosen)}
        return list(found.values())

    def _smallest(self, pattern: ChosenPattern) -> ChosenPattern:
        best = pattern.form
        while len(best) == 1 and self._share(best, "into") > ENOUGH:
            (graph,) = self.index.graphs(best)
            smaller = {frozenset({self.index.forms.number(one)}) for one in one_edge_less(graph)}
            good = [form for form in sorted(smaller, key=sorted) if self._is_no_worse(form, best)]
            if not good:
                break
            best = max(good, key=lambda form: self._share(form, "into") + self._share(form, "out"))
        return self._chosen(best)

    def _is_no_worse(self, new: Form, old: Form) -> bool:
        """Whether a pattern may take the place of another; what costs most is asked last."""
        return (
            len(self._explains(new)) >= len(self._explains(old))
            and len(self._occurs_in(new)) <= len(self._occurs_in(old))
            and self._share(new, "into") >= self._share(old, "into")
            and self._share(new, "out") >= self._share(old, "out")
        )

    def _chosen(self, form: Form) -> ChosenPattern:
        return ChosenPattern(form, self._explains(form), self._occurs_in(form))

    def _explains(self, form: Form) -> tuple[int, ...]:
        if form not in self._explained:
            self._explained[form] = tuple(p for p in self.mine if self.index.share(form, p))
        return self._explained[form]

    def _occurs_in(self, form: Form) -> tuple[int, ...]:
        if form not in self._elsewhere:
            self._elsewhere[form] = tuple(p for p in self.others if self.index.occurs(form, p))
        return self._elsewhere[form]

    def _share(self, form: Form, test: str) -> float:
        """Share of predictions that change without a pattern, or become its class with it; 0 if none could be tested."""
        if (form, test) not in self._shares:
            ask = self.tester.sufficiency if test == "into" else self.tester.necessity
            trial = ask(self._chosen(form), self.target)
            self._shares[form, test] = 0.0 if trial is None else trial.share
        return self._shares[form, test]
