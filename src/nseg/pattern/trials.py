"""Tests of patterns on the model: taken out of predictions of the class, put into predictions of other classes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.explain import Explainer

from nseg.explanation import row_numbers
from nseg.graphs.checks import check_inputs, model_device
from nseg.graphs.inputs import ModelInputs
from nseg.metrics.hetero import flatten_for_metrics
from nseg.metrics.intervals import share_interval
from nseg.metrics.removal import outputs_of_graphs
from nseg.metrics.trust import SAMPLE
from nseg.model.borrow import borrow, unwrap_compiled, wrap_model_errors
from nseg.model.outcomes import outcome_of
from nseg.pattern.edits import Graft, make_graft, plant, plant_rule, without_pattern
from nseg.pattern.matching import first_occurrence
from nseg.pattern.predictions import ExplainedPrediction
from nseg.pattern.selection import ChosenPattern, PatternIndex
from nseg.pattern.typed_graph import Condition, TypedGraph

EXEMPLARS = 5
"""Explained predictions whose occurrences of a pattern are copied into others, in turn."""

SAMPLE_AGAIN = 4
"""Graphs of each batch that are run alone too, after a first batch of which more were."""

MAX_ELEMENTS = 400_000
"""Maximum number of nodes and edges in one forward pass."""


@dataclass(frozen=True)
class Trial:
    """Result of a test.

    Args:
        changed: number of predictions that changed as the pattern says.
        number: number of predictions that were tested.
        low, high: exact binomial confidence interval of the share that changes.
    """

    changed: int
    number: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """Share of the predictions that changed."""
        return self.changed / self.number

    @classmethod
    def of(cls, changed: Tensor, confidence: float) -> Trial | None:
        """The result of some predictions, [n]; None without any.

        >>> trial = Trial.of(torch.ones(400, dtype=torch.bool), 0.95)
        >>> trial.changed, trial.number, round(trial.low, 3), trial.high
        (400, 400, 0.991, 1.0)
        """
        if changed.numel() == 0:
            return None
        times = int(changed.sum())
        return cls(times, changed.numel(), *share_interval(times, changed.numel(), confidence))


class PatternTester:
    """Asks the model what it says about graphs with and without a pattern.

    Args:
        explainer: the explainer that made the explanations, or any for the same model.
        index: the predictions.
        held_out: positions of the predictions that patterns are tested on.
        data: heterogeneous graphs as they were explained; other predictions hold all that is needed.
    """

    def __init__(self, explainer: Explainer, index: PatternIndex, held_out: Sequence[int], data: Any = None) -> None:
        self.model: nn.Module = unwrap_compiled(explainer.model)
        self.outcome = outcome_of(explainer.model_config)
        self.index, self.settings = index, index.settings
        by_type = [one.by_type for one in index.predictions if one.by_type is not None]
        self._explanations = [one.explanation for one in index.predictions]
        if by_type:
            self.model, _, self._explanations = flatten_for_metrics(explainer, data, by_type)
        self.device = model_device(self.model)
        self._sampled = SAMPLE
        self.held_out = self._predicted(held_out)

    def on(self, positions: Sequence[int]) -> PatternTester:
        """The same tests on other predictions."""
        other = copy.copy(self)
        other.held_out = self._predicted(positions)
        return other

    def _predicted(self, positions: Sequence[int]) -> list[int]:
        """Predictions whose explained class the model gives: a phenomenon may have another, and nothing can be tested."""
        graphs = [self.inputs(p) for p in positions]
        keeps = self.holds(graphs, positions, [self._prediction(p).target_class for p in positions])
        return [p for p, same in zip(positions, keeps.tolist(), strict=True) if same]

    def _prediction(self, position: int) -> ExplainedPrediction:
        return self.index.predictions[position]

    def inputs(self, position: int) -> ModelInputs:
        """The model's arguments for a prediction's graph, on the CPU."""
        one = self._explanations[position]
        kwargs = {name: _move(one[name], self.device) for name in getattr(one, "_model_args", None) or ()}
        level = self.outcome.level
        found = check_inputs(self.model, one.x.to(self.device), one.edge_index.to(self.device), kwargs, level)
        return _inputs_on(found, torch.device("cpu"))

    @torch.no_grad()
    def holds(self, graphs: Sequence[ModelInputs], positions: Sequence[int], classes: Sequence[int]) -> Tensor:
        """Whether the model gives each graph its class, [n].

        Args:
            graphs: graphs, perhaps changed.
            positions: predictions that they belong to.
            classes: a class for each.
        """
        found = [torch.zeros(0, dtype=torch.bool)]
        for some in _batches(graphs):
            rows = [self._row(p).to(self.device) for p in positions[some]]
            here = [_inputs_on(one, self.device) for one in graphs[some]]
            with borrow(self.model), wrap_model_errors():
                output = outputs_of_graphs(self.model, self.outcome, here, rows, self._sampled)
            self._sampled = SAMPLE_AGAIN
            found.append(self.outcome.holds(output, torch.tensor(classes[some], device=self.device)).cpu())
        return torch.cat(found)

    def _row(self, position: int) -> Tensor:
        index = self._explanations[position].get("index")
        return torch.zeros(1, dtype=torch.long) if index is None else row_numbers(index)[:1]

    # --- tests -----------------------------------------------------------------------------------------------------------

    def necessity(self, chosen: ChosenPattern, target_class: int) -> Trial | None:
        """Held-out predictions of the class with the pattern, whose class changes when all its occurrences are taken out."""
        mine = [p for p in self.held_out if self._prediction(p).target_class == target_class]
        mine = [p for p in mine if self.index.occurs(chosen.form, p)]
        patterns, graphs, positions = self.index.graphs(chosen.form), list[ModelInputs](), list[int]()
        for p in self._sample(mine):
            host = self.index.host(p)
            changed = without_pattern(self.inputs(p), self._prediction(p), host, patterns, self.settings.effort)
            if changed is not None:
                graphs.append(changed)
                positions.append(p)
        return Trial.of(~self.holds(graphs, positions, [target_class] * len(graphs)), self.settings.confidence)

    def sufficiency(self, chosen: ChosenPattern, target_class: int) -> Trial | None:
        """Held-out predictions of other classes without the pattern, which become the class when it is put in."""
        others = [p for p in self.held_out if self._prediction(p).target_class != target_class]
        others = [p for p in others if not self.index.occurs(chosen.form, p)]
        planted = list(self._planted(chosen, self._sample(others)))
        graphs, positions = [graph for _, graph in planted], [p for p, _ in planted]
        return Trial.of(self.holds(graphs, positions, [target_class] * len(graphs)), self.settings.confidence)

    def _sample(self, positions: Sequence[int]) -> list[int]:
        """Some of the predictions, in their order; all if there are not more than the settings allow."""
        order = torch.randperm(len(positions), generator=torch.Generator().manual_seed(self.settings.seed))
        return [positions[n] for n in sorted(order[: self.settings.trials].tolist())]

    def _planted(self, chosen: ChosenPattern, positions: Sequence[int]) -> Iterator[tuple[int, ModelInputs]]:
        """Predictions with their graphs after the pattern was put in, where that makes a valid graph."""
        parts = sorted(chosen.form)
        grafts = {number: list(self._grafts(number, chosen.explained)) for number in parts}
        several_groups = len(parts) > 1 and self._prediction(chosen.explained[0]).vocabulary.molecule
        if several_groups or not all(grafts.values()):  # a first group changes the numbers of a molecule's atoms
            return
        for turn, p in enumerate(positions):
            one, host, changed = self._prediction(p), self.index.host(p), self.inputs(p)
            generator = torch.Generator().manual_seed((self.settings.seed << 32) + one.number)
            for number in parts:
                pattern, graft = self.index.forms.graphs[number], grafts[number][turn % len(grafts[number])]
                if isinstance(graft, Graft):
                    found = plant(graft, changed, one, host, generator)
                else:
                    found = plant_rule(pattern, graft, changed, host, generator)
                if found is None:
                    break
                changed = found
            else:
                yield p, changed

    def _grafts(self, number: int, explained: Sequence[int]) -> Iterator[Graft | dict[Condition, float]]:
        """Pieces to copy, or values to set, from the first explained predictions that have some."""
        pattern, found = self.index.forms.graphs[number], 0
        for p in explained:
            if found == EXEMPLARS:
                return
            one, places = self._prediction(p), self._kept_places(pattern, p)
            if places is None:
                continue
            if not pattern.edges and pattern.nodes[0].conditions:
                (node,) = places
                yield {c: float(one.explanation.x[node, c.feature]) for c in pattern.nodes[0].conditions}
                found += 1
            else:
                graft = make_graft(one, self.inputs(p), self.index.host(p), pattern, places)
                if graft is not None:
                    yield graft
                    found += 1

    def _kept_places(self, pattern: TypedGraph, position: int) -> tuple[int, ...] | None:
        """Where a part of a pattern is in what an explanation keeps."""
        for part in self._prediction(position).kept:
            places = first_occurrence(pattern, part.graph, self.settings.effort)
            if places is not None and part.nodes:
                return tuple(part.nodes[n] for n in places)
        return None


def _batches(graphs: Sequence[ModelInputs]) -> Iterator[slice]:
    """Graphs that fit into one forward pass."""
    first = elements = 0
    for n, graph in enumerate(graphs):
        mine = graph.num_nodes + graph.num_edges
        if n > first and elements + mine > MAX_ELEMENTS:
            yield slice(first, n)
            first, elements = n, 0
        elements += mine
    if graphs:
        yield slice(first, len(graphs))


def _move(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, Tensor) else value


def _inputs_on(inputs: ModelInputs, device: torch.device) -> ModelInputs:
    """The same arguments on a device."""
    kwargs = {name: _move(value, device) for name, value in inputs.kwargs.items()}
    return replace(inputs, x=inputs.x.to(device), edge_index=inputs.edge_index.to(device), kwargs=kwargs)
