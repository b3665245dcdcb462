"""Settings of the search for patterns."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nseg.errors import SettingsError


@dataclass(frozen=True)
class PatternSettings:
    """How patterns are found, chosen and tested.

    Args:
        most: maximum number of patterns per class.
        share: share of what an explanation keeps that a pattern in it must be at least, for the pattern to explain it.
        support: share of the predictions of a class that must keep exactly this pattern for it to be a candidate. It is
            never less than two predictions, if the class has as many.
        size_price: what a pattern must add for each of its edges and conditions, as a share of all that explanations of the
            class keep.
        elsewhere_price: what a pattern must add if it occurs in all predictions of other classes; proportionally less if it
            occurs in fewer.
        held_out: share of the predictions that are not used to find patterns, but to test them.
        trials: maximum number of predictions that a test changes.
        confidence: confidence level of the intervals.
        effort: maximum number of steps in the search for occurrences of a pattern in one graph.
        seed: equal seeds give equal patterns.
    """

    most: int = 5
    share: float = 0.15
    support: float = 0.01
    size_price: float = 0.002
    elsewhere_price: float = 0.5
    held_out: float = 0.3
    trials: int = 300
    confidence: float = 0.95
    effort: int = 20_000
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise SettingsError(f"{field.name} must be a number (got {value!r}).")
        for name in ("most", "trials", "effort"):
            if getattr(self, name) < 1 or getattr(self, name) != int(getattr(self, name)):
                raise SettingsError(f"{name} must be a whole number of at least 1 (got {getattr(self, name)}).")
        for name in ("support", "size_price", "elsewhere_price"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingsError(f"{name} must be between 0 and 1 (got {getattr(self, name)}).")
        if not 0 < self.share <= 1:
            raise SettingsError(f"share must be above 0 and at most 1 (got {self.share}).")
        if not 0 < self.confidence < 1:
            raise SettingsError(f"confidence must be between 0 and 1 (got {self.confidence}). 0.95 is usual.")
        if not 0 <= self.held_out < 1:
            raise SettingsError(f"held_out must be at least 0 and below 1 (got {self.held_out}). 0.3 tests on 30 %.")
