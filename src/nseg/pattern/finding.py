"""What typically makes a model predict a class: patterns in explanations, counted, chosen and tested on the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch_geometric.explain import Explainer

from nseg.errors import InputError, SettingsError
from nseg.pattern.collection import Patterns
from nseg.pattern.cores import spread
from nseg.pattern.reading import PredictionReader
from nseg.pattern.results import ClassPatterns, Pattern
from nseg.pattern.selection import ChosenPattern, PatternIndex, by_class, choose_patterns
from nseg.pattern.settings import PatternSettings
from nseg.pattern.text import pattern_text
from nseg.pattern.trials import PatternTester
from nseg.pattern.trimming import PatternTrimmer

TRIED = 40
"""Predictions of a class, and of others, by which patterns are made smaller."""

EXAMPLES = 10
"""Number of explained outputs that a pattern names."""


def patterns(
    explanations: Any,
    data: Any,
    *,
    explainer: Explainer | None = None,
    settings: PatternSettings | None = None,
    kind_names: Sequence[str] | None = None,
    feature_names: Any = None,
    class_names: Any = None,
    units: Any = None,
    bonds: Sequence[float] | None = None,
    **changes: Any,
) -> Patterns:
    """The patterns that typically make a model predict each class.

    Args:
        explanations: from :func:`nseg.explain_many` or :func:`nseg.read`, with hard masks; soft masks are cut at 0.5.
        data: what was explained: a dataset of :mod:`nseg.datasets`, one graph, or several graphs.
        explainer: tests the patterns on its model; without one they are only found and counted.
        settings: how patterns are found, chosen and tested.
        kind_names: names of the kinds of nodes, one per one-hot feature or number in ``node_type``.
        feature_names, class_names, units: names of features and classes, units of features; by default those that the
            explanations or the data know.
        bonds: for molecules, the bond order of each column of ``edge_attr``.
        **changes: single settings, such as ``most=3``.

    Returns:
        few patterns per class, with counts from the predictions that they were found in, and with tests on others.
    """
    try:
        chosen_settings = replace(settings or PatternSettings(), **changes)
    except TypeError as error:
        known = ", ".join(PatternSettings.__dataclass_fields__)
        raise SettingsError(f"Settings of patterns must be among {known} (got: {error}).") from error
    if explainer is not None and not isinstance(explainer, Explainer):
        raise InputError(f"explainer must be an Explainer (got {type(explainer).__name__}). Try nseg.Explainer(model, ...).")
    names = {"feature_names": feature_names, "class_names": class_names, "units": units}
    reader = PredictionReader(data, kind_names=kind_names, bonds=bonds, **names)
    index = PatternIndex(reader.read(explanations), chosen_settings)
    finding, held_out = _split(index)
    tester = None if explainer is None else PatternTester(explainer, index, held_out, reader.given_graphs)
    work = _ClassWork(index, by_class(index.predictions, finding), by_class(index.predictions, held_out), tester)
    classes = [work.patterns(target) for target in work.finding]
    return Patterns(classes, reader.vocabulary, tested=tester is not None)


def _split(index: PatternIndex) -> tuple[list[int], list[int]]:
    """Positions of the predictions that patterns are found in, and of those that they are tested on.

    Each class is divided by itself; a class always keeps at least one prediction to find patterns in.
    """
    generator = torch.Generator().manual_seed(index.settings.seed)
    finding, held_out = list[int](), list[int]()
    for positions in by_class(index.predictions, range(len(index.predictions))).values():
        order = torch.randperm(len(positions), generator=generator).tolist()
        tested = min(round(index.settings.held_out * len(positions)), len(positions) - 1)
        held_out += [positions[n] for n in order[:tested]]
        finding += [positions[n] for n in order[tested:]]
    return sorted(finding), sorted(held_out)


@dataclass(frozen=True)
class _ClassWork:
    """Finds and tests the patterns of one class after the other.

    Args:
        index: all predictions.
        finding, held_out: positions of the predictions of each class.
        tester: asks the model about predictions that are held out, if there is one.
    """

    index: PatternIndex
    finding: Any
    held_out: Any
    tester: PatternTester | None

    def patterns(self, target: int) -> ClassPatterns:
        """The patterns of a class."""
        mine, held_out = self.finding[target], self.held_out.get(target, [])
        others = [p for other, positions in self.finding.items() if other != target for p in positions]
        chosen = choose_patterns(self.index, mine, others)
        if self.tester is not None and chosen:
            some = self.tester.on([*spread(mine, TRIED), *spread(others, TRIED)])
            chosen = PatternTrimmer(some, target, mine, others).trim(chosen)
        explained = {p for one in chosen for p in one.explained}
        again = {p for p in held_out if any(self.index.share(one.form, p) for one in chosen)}
        return ClassPatterns(
            target=target,
            name=self.index.predictions[mine[0]].vocabulary.names.class_name(target),
            patterns=tuple(self._pattern(one, target, mine, others) for one in chosen),
            predictions=len(mine),
            explained=len(explained),
            held_out=len(held_out),
            held_out_explained=len(again),
        )

    def _pattern(self, chosen: ChosenPattern, target: int, mine: Sequence[int], others: Sequence[int]) -> Pattern:
        """A chosen pattern with its counts and tests."""
        explained = [self.index.predictions[p] for p in chosen.explained]
        pns = [one.pns for one in explained if one.pns is not None]
        vocabulary, graphs = explained[0].vocabulary, self.index.graphs(chosen.form)
        return Pattern(
            target=target,
            class_name=vocabulary.names.class_name(target),
            text=pattern_text(graphs, vocabulary),
            graphs=tuple(graphs),
            size=self.index.size(chosen.form),
            explained=len(explained),
            predictions=len(mine),
            right=sum(one.right is True for one in explained),
            wrong=sum(one.right is False for one in explained),
            elsewhere=len(chosen.elsewhere),
            others=len(others),
            pns=sum(pns) / len(pns) if pns else None,
            examples=tuple(one.number for one in explained[:EXAMPLES]),
            necessity=None if self.tester is None else self.tester.necessity(chosen, target),
            sufficiency=None if self.tester is None else self.tester.sufficiency(chosen, target),
        )
