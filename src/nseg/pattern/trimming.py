"""Patterns without what they do not need: edges that can go while the model reacts to the rest as before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nseg.pattern.cores import one_edge_less
from nseg.pattern.selection import ChosenPattern, Form, PatternIndex
from nseg.pattern.trials import PatternTester

ENOUGH = 0.5
"""Share of other predictions that must become the class with a pattern, for it to be made smaller."""

Shares = tuple[float, float]
"""Shares of predictions that change without a pattern, and that become its class with it."""


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
    _known: dict[Form, tuple[ChosenPattern, Shares]] = field(default_factory=dict)

    @property
    def index(self) -> PatternIndex:
        """All predictions."""
        return self.tester.index

    def trim(self, chosen: Sequence[ChosenPattern]) -> list[ChosenPattern]:
        """The patterns, made smaller where that costs nothing; of equal ones the first."""
        found = {one.form: one for one in map(self._smallest, chosen)}
        return list(found.values())

    def _smallest(self, pattern: ChosenPattern) -> ChosenPattern:
        best, shares = self._tested(pattern.form)
        while len(best.form) == 1 and shares[1] > ENOUGH:
            (graph,) = self.index.graphs(best.form)
            smaller = {frozenset({self.index.forms.number(one)}) for one in one_edge_less(graph)}
            tested = [self._tested(form) for form in sorted(smaller, key=sorted)]
            good = [one for one in tested if self._is_no_worse(one, (best, shares))]
            if not good:
                break
            best, shares = max(good, key=lambda one: sum(one[1]))
        return best

    def _is_no_worse(self, new: tuple[ChosenPattern, Shares], old: tuple[ChosenPattern, Shares]) -> bool:
        fewer = len(new[0].explained) < len(old[0].explained)
        more = len(new[0].elsewhere) > len(old[0].elsewhere)
        return not fewer and not more and all(a >= b for a, b in zip(new[1], old[1], strict=True))

    def _tested(self, form: Form) -> tuple[ChosenPattern, Shares]:
        """A pattern with what it explains, and the shares; 0 where nothing could be tested."""
        if form not in self._known:
            explained = tuple(p for p in self.mine if self.index.share(form, p))
            elsewhere = tuple(p for p in self.others if self.index.occurs(form, p))
            one = ChosenPattern(form, explained, elsewhere)
            trials = self.tester.necessity(one, self.target), self.tester.sufficiency(one, self.target)
            without, into = (0.0 if trial is None else trial.share for trial in trials)
            self._known[form] = one, (without, into)
        return self._known[form]
