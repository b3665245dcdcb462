"""Patterns of all classes, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from nseg.errors import MissingError
from nseg.pattern.pictures import draw_patterns
from nseg.pattern.results import COLUMNS, ClassPatterns, Pattern, as_record
from nseg.pattern.vocabulary import Vocabulary
from nseg.wording import plural


class Patterns(Sequence[Pattern]):
    """Patterns of all classes, in the order of the classes.

    Args:
        classes: the patterns of each class.
        vocabulary: names of what they consist of.
        tested: whether they were tested on the model.
    """

    def __init__(self, classes: Sequence[ClassPatterns], vocabulary: Vocabulary, tested: bool) -> None:
        self.classes, self.vocabulary, self.tested = tuple(classes), vocabulary, tested
        self._all = [pattern for one in classes for pattern in one.patterns]

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> Pattern: ...
    @overload
    def __getitem__(self, index: slice) -> list[Pattern]: ...
    def __getitem__(self, index: int | slice) -> Pattern | list[Pattern]:
        return self._all[index]

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self._all)

    def records(self) -> list[dict[str, Any]]:
        """One dictionary of plain values per pattern."""
        return [as_record(pattern) for pattern in self]

    def to_frame(self) -> Any:
        """A pandas data frame with one row per pattern."""
        try:
            import pandas
        except ImportError as error:
            raise MissingError(
                'Data frames need pandas (it is not installed). Install it: pip install "nseg[frames]", or use records().'
            ) from error
        return pandas.DataFrame.from_records(self.records(), columns=list(COLUMNS))

    def plot(self, *, columns: int | None = None) -> Any:
        """A matplotlib figure of all patterns.

        Args:
            columns: number of pictures per row.
        """
        return draw_patterns(self, self.vocabulary, columns)

    def __repr__(self) -> str:
        lines = []
        for one in self.classes:
            left = f"{100 * one.unexplained:.0f} % of {'held-out ' if one.held_out else ''}predictions left unexplained"
            lines.append(f"{one.name}: {plural(len(one.patterns), 'pattern')}, {left}")
            lines += [f"  {pattern.sentence()}" for pattern in one.patterns]
        return "\n".join(lines)
