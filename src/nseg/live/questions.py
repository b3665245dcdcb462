"""Questions about one output of a graph and its changes: what the model says, why, and the smallest change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import ModelMode

from nseg.errors import InputError
from nseg.explain.change import Counterfactual
from nseg.explain.counterfactuals import counterfactual
from nseg.graph_types import GraphTypes
from nseg.graphs.inputs import EDGE_TYPE, ModelInputs
from nseg.live.edits import Cell, GraphEdits, Pair, changed_inputs, check_edits, edge_pairs
from nseg.live.neighbourhood import GraphPart
from nseg.live.work import Work
from nseg.model.borrow import borrow, unwrap_compiled, watch, wrap_model_errors
from nseg.model.hooks import call_model
from nseg.model.outcomes import outcome_of
from nseg.names import Names

MOST_CHANGES = 10
"""Largest number of changes that the smallest change may have."""

MOST_SETS = 2000
"""Sets of changes of one size up to which all of them are tried: a person waits for the answer."""

MOST_FEATURES = 200
"""Largest number of features of a node that are shown."""


@dataclass(frozen=True)
class ModelSays:
    """What the model says about a graph.

    Args:
        predicted: the predicted class.
        probabilities: probability of each class.
    """

    predicted: int
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class ChangedPart:
    """The part of a graph that matters for an output, after some changes.

    Args:
        part: that part before the changes.
        before, inputs: the model's arguments for it, before and after the changes.
        row: the output in it.
    """

    part: GraphPart
    before: ModelInputs
    inputs: ModelInputs
    row: int


class Questions(ABC):
    """Asks a model about one output of a graph, with changes.

    Every answer is that of the untouched model on the changed graph. Changes name the caller's nodes; those of a
    heterogeneous graph are numbered through.

    Args:
        explainer: the model, and how its predictions are explained.
        names: names of the graph.
        number: the caller's number of the output, for sentences.
    """

    network: nn.Module
    output: int
    part: GraphPart
    inputs: ModelInputs
    num_nodes: int

    def __init__(self, explainer: Explainer, names: Names, number: int) -> None:
        self.explainer, self.names, self.number = explainer, names, number
        self.model, self.outcome = unwrap_compiled(explainer.model), outcome_of(explainer.model_config)
        self.level = self.outcome.level
        if self.level.value == "edge" or explainer.model_config.mode is ModelMode.regression:
            raise InputError("The studio shows classes of nodes and graphs (got a model of links, or a regression).")

    # --- kinds of graphs -------------------------------------------------------------------------------------------------

    @abstractmethod
    def width(self, node: int) -> int:
        """Number of features of a node that can change; 0 if they are not a row of numbers."""

    @abstractmethod
    def explain(self, edits: GraphEdits, work: Work | None = None) -> Explanation:
        """The explanation of the changed graph's prediction; ``node_id`` are the caller's numbers.

        Args:
            edits: the changes.
            work: told how far it is.
        """

    @abstractmethod
    def _as_data(self, changed: ChangedPart) -> tuple[Data | HeteroData, int, dict[str, Any]]:
        """The changed graph as the doors of the library take it, the output's number in it, and its names."""

    @abstractmethod
    def _additions(self, inputs: ModelInputs, chosen: Tensor) -> Any:
        """Some edges of a graph, sorted by type, as :func:`nseg.counterfactual` takes edges that may be added."""

    @abstractmethod
    def _settable(self, changed: ChangedPart, zero: bool, back: Mapping[Cell, float]) -> Any:
        """Features that may change, as :func:`nseg.counterfactual` takes them: to 0, and some back to what they were."""

    @abstractmethod
    def _known_classes(self) -> tuple[Any, int]:
        """True classes of the part, if the data know them, and the row of the output among them."""

    def _types_of(self, inputs: ModelInputs) -> GraphTypes | None:
        """Types of a part of the graph, with its sizes; None if there are none."""
        return None

    def _said(self, changed: ChangedPart, found: Counterfactual) -> Counterfactual:
        """A change in the caller's numbers and names, for its sentence."""
        return found

    @abstractmethod
    def _pair(self, found: Counterfactual, edge: int, ends: tuple[int, int]) -> Pair:
        """A removed edge of the changed graph by its number and ends."""

    # --- what the model says ---------------------------------------------------------------------------------------------

    def _changed(self, edits: GraphEdits) -> ChangedPart:
        check_edits(edits, self.num_nodes, self.width)
        part, before = self._asked_part(edits)
        row = part.position[self.output] if self.level.value == "node" else 0
        after = changed_inputs(before, edits.renumbered(part.position), self._types_of(before))
        return ChangedPart(part, before, after, row)

    def _asked_part(self, edits: GraphEdits) -> tuple[GraphPart, ModelInputs]:
        """The part of the graph that matters for the output with these changes, and the model's arguments for it."""
        return self.part, self.inputs

    @torch.no_grad()
    def predict(self, edits: GraphEdits) -> ModelSays:
        """What the model says about the changed graph."""
        changed = self._changed(edits)
        with borrow(self.model), wrap_model_errors():
            output = call_model(self.network, changed.inputs, self.outcome)[[changed.row]]
        target = self.outcome.check_target(output, None)  # raises if the output is not finite
        distribution = self.outcome.distribution(output, target)[0].tolist()
        return ModelSays(int(self.outcome.predicted(output)[0]), tuple(distribution))

    def true_class(self) -> int | None:
        """The true class of the output, if the data know it."""
        y, row = self._known_classes()
        if not isinstance(y, Tensor) or y.is_floating_point() or y.numel() <= row or int(y.flatten()[row]) < 0:
            return None
        return int(y.flatten()[row])

    # --- the smallest change ---------------------------------------------------------------------------------------------

    def smallest_change(
        self,
        edits: GraphEdits,
        target: int | None = None,
        features: bool = False,
        new: Sequence[Pair] = (),
        work: Work | None = None,
    ) -> tuple[GraphEdits | None, str]:
        """The smallest further change after which the model says another class, and a sentence on it.

        Edges may be removed, and what was changed before may be put back: removed edges, and features.

        Args:
            edits: changes that were made already.
            target: the class to reach; any other than the present one if None.
            features: whether features may be set to 0 too.
            new: edges that may be added.
            work: told how far it is.

        Returns:
            all changes together, or None if none was found; and the sentence of :func:`nseg.counterfactual`.
        """
        work, changed = work or Work(), self._changed(edits)
        inside = edits.renumbered(changed.part.position)
        joinable = GraphEdits(added=frozenset(new)).renumbered(changed.part.position).added - inside.removed - inside.added
        additions, offered = self._offer(changed.before, inside.removed, joinable)
        graph, row, names = self._as_data(changed)
        with borrow(self.model), watch(self.model, work.ask), wrap_model_errors():
            found = counterfactual(
                self.explainer,
                graph,
                row,
                to=target,
                additions=additions,
                features=self._settable(changed, features, self._changed_values(changed, inside)),
                undirected=True,
                most=MOST_CHANGES,
                worlds=MOST_SETS,
                **names,
            )
        words = self._said(changed, found).words()
        if not found.changed:
            return None, words
        gone = frozenset(self._pair(found, *one) for one in zip(found.removed_edges, found.removed, strict=True))
        come = frozenset(offered[n] for n in found.added_edges)
        if come and come <= inside.removed:
            words = words.replace("Add the", "Put back the").replace("add the", "put back the")
        node = changed.part.node.tolist()
        own = GraphEdits(gone, come, frozenset(one.node for one in found.features)).renumbered(dict(enumerate(node)))
        after = replace(
            edits,
            removed=(edits.removed - own.added) | (own.removed - edits.added),
            added=(edits.added - own.removed) | (own.added - edits.removed),
            values=dict(edits.values) | {(node[one.node], one.feature): one.after for one in found.features},
        )
        return self._without_idle_values(after, own.hidden), words

    def _offer(self, before: ModelInputs, gone: frozenset[Pair], new: frozenset[Pair]) -> tuple[Any, list[Pair]]:
        """Edges that may come back or be added, and the pair that each of them joins."""
        wide = changed_inputs(before, GraphEdits(added=new), self._types_of(before))  # new edges are the last
        pairs = edge_pairs(wide)
        chosen = [n for n, pair in enumerate(pairs) if n >= before.num_edges or pair in gone] if gone or new else []
        kind = wide.kwargs.get(EDGE_TYPE)
        if kind is not None:
            chosen.sort(key=kind.tolist().__getitem__)
        additions = self._additions(wide, torch.tensor(chosen, device=wide.edge_index.device)) if chosen else None
        return additions, [pairs[n] for n in chosen]

    def _changed_values(self, changed: ChangedPart, inside: GraphEdits) -> dict[Cell, float]:
        """Features of the part that were changed, by node and feature of the part, and what they were."""
        found = dict[Cell, float]()
        for node in inside.hidden | {n for n, _ in inside.values}:
            was, now = changed.before.x[node].tolist(), changed.inputs.x[node].tolist()
            found |= {(node, f): a for f, (a, b) in enumerate(zip(was, now, strict=True)) if a != b}
        return found

    def _without_idle_values(self, edits: GraphEdits, nodes: Iterable[int]) -> GraphEdits:
        """The same changes, without values of some nodes that are those of the graph."""
        hidden, values = set(edits.hidden), dict(edits.values)
        for node in nodes:
            rows = self._all_features(node, edits)
            if rows and all(now == was for _, _, now, was in rows):
                hidden.discard(node)
            if node not in hidden:
                values = {
                    at: v for at, v in values.items() if at not in {(node, f) for f, _, now, was in rows if now == was}
                }
        return replace(edits, hidden=frozenset(hidden), values=values)

    # --- features --------------------------------------------------------------------------------------------------------

    def _all_features(self, node: int, edits: GraphEdits) -> list[tuple[int, str, float, float]]:
        width = self.width(node) if node in self.part.position else 0
        before = self.inputs.x[self.part.position[node]].tolist()[:width] if width else []
        now = [0.0] * len(before) if node in edits.hidden else list(before)
        for (other, feature), value in edits.values.items():
            if other == node and feature < len(now):
                now[feature] = value
        names = self.names.of_node(node)
        return [(n, names.feature(n), a, b) for n, (a, b) in enumerate(zip(now, before, strict=True))]

    def features(self, node: int, edits: GraphEdits) -> list[tuple[int, str, float, float]]:
        """Features of a node: number, name, value now and before the changes. Of many, those that are not 0."""
        found = self._all_features(node, edits)
        return [one for one in found if len(found) <= MOST_FEATURES or one[2] or one[3]][:MOST_FEATURES]
