"""Questions about one graph and its changes: what the model says, why, and the smallest change to another class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import ModelMode

from nseg.errors import InputError
from nseg.explain.many import explain_many
from nseg.graphs.checks import argument_names, check_inputs
from nseg.graphs.inputs import ModelInputs
from nseg.live.edits import GraphEdits, Pair, changed_inputs
from nseg.metrics.removal import outputs_of_graphs
from nseg.model.borrow import borrow, unwrap_compiled, wrap_model_errors
from nseg.model.hooks import call_model
from nseg.model.outcomes import outcome_of

MAX_CHANGES = 5
"""Maximum number of edges that the smallest change takes away."""

BLOCK = 64
"""Graphs per forward pass in the search for the smallest change."""


class Stopped(Exception):  # noqa: N818 - not an error: the person has moved on
    """The person no longer waits for the answer."""


@dataclass(frozen=True)
class ModelSays:
    """What the model says about a graph.

    Args:
        predicted: the predicted class.
        probabilities: probability of each class.
    """

    predicted: int
    probabilities: tuple[float, ...]


class GraphQuestions:
    """Asks a model about one output of a graph, with changes.

    Args:
        explainer: the model, and how its predictions are explained.
        data: the graph.
        output: the explained node; 0 for the whole graph.

    Every answer is that of the untouched model on the changed graph.
    """

    def __init__(self, explainer: Explainer, data: Data, output: int) -> None:
        self.explainer, self.data, self.output = explainer, data, output
        self.model, self.outcome = unwrap_compiled(explainer.model), outcome_of(explainer.model_config)
        self.level = self.outcome.level
        if self.level.value == "edge" or explainer.model_config.mode is ModelMode.regression:
            raise InputError("The studio shows classes of nodes and graphs (got a model of links, or a regression).")
        kwargs = {name: data[name] for name in argument_names(self.model, data)}
        self.inputs = check_inputs(self.model, data.x, data.edge_index, kwargs, self.level)
        rows = self.inputs.num_nodes if self.level.value == "node" else 1
        if not 0 <= output < rows:
            raise InputError(f"The output must be between 0 and {rows - 1} (got {output}).")

    @torch.no_grad()
    def predict(self, edits: GraphEdits) -> ModelSays:
        """What the model says about the changed graph."""
        with borrow(self.model), wrap_model_errors():
            output = call_model(self.model, changed_inputs(self.inputs, edits), self.outcome)[[self.output]]
        return self._says(output)

    def _says(self, output: Tensor) -> ModelSays:
        target = self.outcome.check_target(output, None)  # raises if the output is not finite
        distribution = self.outcome.distribution(output, target)[0].tolist()
        return ModelSays(int(self.outcome.predicted(output)[0]), tuple(distribution))

    def explain(self, edits: GraphEdits) -> Explanation:
        """The explanation of the changed graph's prediction."""
        changed = changed_inputs(self.inputs, edits)
        own = {name: value for name, value in changed.kwargs.items() if name != "batch"}
        graph = Data(x=changed.x, edge_index=changed.edge_index, **own)
        given = graph if self.level.value == "node" else [graph]
        (found,) = explain_many(self.explainer, given, [self.output], progress=False)
        return found

    @torch.no_grad()
    def smallest_change(
        self, edits: GraphEdits, target: int | None = None, stopped: Callable[[], bool] = lambda: False
    ) -> tuple[GraphEdits, ModelSays] | None:
        """Few edges without which the model predicts another class, found by always taking the best next edge.

        Args:
            edits: changes that were made already.
            target: the class to reach; any other than the present one if None.
            stopped: asked now and then; if true, :class:`Stopped` is raised.

        Returns:
            the changes with these edges removed too, and what the model says then; None if no few edges were found.
        """
        now = self.predict(edits)
        if target is not None and not 0 <= target < len(now.probabilities):
            raise InputError(f"The class must be between 0 and {len(now.probabilities) - 1} (got {target}).")
        if target == now.predicted:
            return edits, now
        for _ in range(MAX_CHANGES):
            pairs = self._pairs(changed_inputs(self.inputs, edits))
            tried = [replace(edits, removed=edits.removed | {pair}, added=edits.added - {pair}) for pair in pairs]
            scores = self._scores(tried, now.predicted, target, stopped)
            if not len(scores):
                return None
            edits = tried[int(scores.argmax())]
            says = self.predict(edits)
            if says.predicted == target or (target is None and says.predicted != now.predicted):
                return edits, says
        return None

    def _pairs(self, inputs: ModelInputs) -> list[Pair]:
        """Pairs of nodes that are joined within reach of the explained node."""
        ends = inputs.edge_index.sort(0).values
        if self.level.value == "node":
            near = torch.zeros(inputs.num_nodes, dtype=torch.bool, device=ends.device)
            near[self.output] = True
            for _ in range(2):  # edges further away seldom matter most, and a person reads a small neighbourhood
                near[inputs.edge_index[0][near[inputs.edge_index[1]]]] = True
            ends = ends[:, near[ends].all(0)]
        return [(a, b) for a, b in torch.unique(ends, dim=1).T.tolist()]

    def _scores(self, tried: Sequence[GraphEdits], present: int, target: int | None, stopped: Callable[[], bool]) -> Tensor:
        """How much each change speaks for the target, or against the present class, [n]."""
        found = [torch.zeros(0, dtype=self.inputs.x.dtype)]
        row = torch.tensor([self.output], device=self.inputs.x.device)
        for first in range(0, len(tried), BLOCK):
            if stopped():
                raise Stopped
            graphs = [changed_inputs(self.inputs, one) for one in tried[first : first + BLOCK]]
            with borrow(self.model), wrap_model_errors():
                output = outputs_of_graphs(self.model, self.outcome, graphs, [row] * len(graphs))
            wanted = torch.full((len(graphs),), present if target is None else target, device=output.device)
            odds = self.outcome.log_odds(output, wanted).cpu()
            found.append(-odds if target is None else odds)
        return torch.cat(found)


def kept_pairs(explanation: Explanation) -> list[list[int]]:
    """Pairs of nodes of the caller's graph that an explanation keeps an edge between."""
    hard: Any = explanation.get("hard_edge_mask")
    if hard is None:
        return []
    ends = explanation.node_id[explanation.edge_index[:, hard.bool() & explanation.reached]].sort(0).values
    pairs: list[list[int]] = torch.unique(ends, dim=1).T.tolist()
    return pairs
