"""What is known of a pattern, and of the patterns of a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nseg.pattern.trials import Trial
from nseg.pattern.typed_graph import TypedGraph
from nseg.wording import bound_text, plural, probability_text, upper_bound_text


@dataclass(frozen=True)
class Pattern:
    """One pattern of a class.

    Counts are of the predictions that patterns were found in, tests of those that were held out.

    Args:
        target, class_name: the class.
        text: SMARTS of a molecule, a rule, or a graph in words.
        graphs: the connected parts of the pattern.
        size: number of edges and conditions.
        explained: number of predictions of the class that the pattern explains.
        predictions: number of predictions of the class.
        right, wrong: number of the explained predictions that are correct, and wrong; both 0 if the truth is unknown.
        elsewhere: number of predictions of other classes in whose graph the pattern occurs.
        others: number of predictions of other classes.
        pns: mean bound of PNS of the explanations; None if unknown.
        examples: numbers of some explained outputs.
        necessity: predictions of the class that change when every occurrence is taken out; None if not tested.
        sufficiency: predictions of other classes that become the class when the pattern is put in; None if not tested, or
            if that makes no valid graph.
    """

    target: int
    class_name: str
    text: str
    graphs: tuple[TypedGraph, ...]
    size: int
    explained: int
    predictions: int
    right: int
    wrong: int
    elsewhere: int
    others: int
    pns: float | None
    examples: tuple[int, ...]
    necessity: Trial | None = None
    sufficiency: Trial | None = None

    @property
    def coverage(self) -> float:
        """Share of the predictions of the class that the pattern explains."""
        return self.explained / self.predictions

    def sentence(self, name: str | None = None) -> str:
        """What is known of the pattern; it is called by its text if no name is given."""
        parts = [
            f"{name or self.text} explains {self.explained} of {plural(self.predictions, 'prediction')} of {self.class_name}"
        ]
        if self.others:
            parts.append(f"occurs in {self.elsewhere} of {plural(self.others, 'prediction')} of other classes")
        if self.necessity is not None:
            parts.append(f"taken out, it changes {self.necessity.changed} of {self.necessity.number}")
        if self.sufficiency is not None:
            parts.append(f"put in, it makes {self.sufficiency.changed} of {self.sufficiency.number} others this class")
        return "; ".join(parts) + "."


@dataclass(frozen=True)
class ClassPatterns:
    """The patterns of one class.

    Args:
        target, name: the class.
        patterns: the patterns, those that explain most first.
        predictions, explained: predictions that patterns were found in, and how many of these are explained.
        held_out, held_out_explained: likewise of the predictions that were held out.
    """

    target: int
    name: str
    patterns: tuple[Pattern, ...]
    predictions: int
    explained: int
    held_out: int
    held_out_explained: int

    @property
    def unexplained(self) -> float:
        """Share of the predictions that no pattern explains; of the held-out ones, if there are any."""
        if self.held_out:
            return 1 - self.held_out_explained / self.held_out
        return 1 - self.explained / self.predictions


COLUMNS = (
    "class",
    "class_name",
    "pattern",
    "size",
    "explained",
    "predictions",
    "coverage",
    "right",
    "wrong",
    "elsewhere",
    "others",
    "pns",
    *(f"{test}{end}" for test in ("necessity", "sufficiency") for end in ("", "_low", "_high", "_n")),
    "examples",
)
"""Columns of a data frame."""


def as_record(pattern: Pattern) -> dict[str, Any]:
    """A pattern as plain values, one per column."""
    trials: dict[str, Any] = {}
    for name, trial in (("necessity", pattern.necessity), ("sufficiency", pattern.sufficiency)):
        trials[name] = None if trial is None else trial.share
        trials[f"{name}_low"] = None if trial is None else trial.low
        trials[f"{name}_high"] = None if trial is None else trial.high
        trials[f"{name}_n"] = 0 if trial is None else trial.number
    same = ("class_name", "size", "explained", "predictions", "coverage", "right", "wrong", "elsewhere", "others", "pns")
    known = {name: getattr(pattern, name) for name in same}
    return {"class": pattern.target, "pattern": pattern.text, **known, **trials, "examples": list(pattern.examples)}


def trial_text(trial: Trial | None) -> str:
    """A test in few words, with its interval.

    >>> trial_text(Trial(45, 50, 0.751, 1.0))
    '45 of 50 = 0.900 (0.751 to 1.000)'
    """
    if trial is None:
        return ""
    low, high = bound_text(trial.low), upper_bound_text(trial.high)
    return f"{trial.changed} of {trial.number} = {probability_text(trial.share)} ({low} to {high})"
