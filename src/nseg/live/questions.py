"""Questions about one graph and its changes: what the model says, why, and the smallest change to another class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import MaskType, ModelMode

from nseg.errors import InputError
from nseg.explain.counterfactuals import counterfactual
from nseg.explain.many import explain_many
from nseg.graphs.checks import argument_names, check_inputs, model_device
from nseg.graphs.inputs import ModelInputs
from nseg.live.edits import GraphEdits, changed_inputs, check_edits
from nseg.live.neighbourhood import GraphPart, Neighbourhoods
from nseg.model.borrow import borrow, unwrap_compiled, watch, wrap_model_errors
from nseg.model.hooks import call_model, keep_needed_batch
from nseg.model.outcomes import outcome_of
from nseg.names import NO_NAMES, Names
from nseg.wording import explanation_sentences, hard_mask, node_mask_type

MOST_CHANGES = 10
"""Largest number of changes that the smallest change may have."""

MOST_SETS = 2000
"""Sets of changes of one size up to which all of them are tried: a person waits for the answer."""

MOST_FEATURES = 200
"""Largest number of features of a node that are shown."""


class Stopped(BaseException):  # not an error, and no ``except Exception`` on the way may take it for one
    """The person no longer waits for the answer."""


@dataclass
class Work:
    """How far an answer is, and whether anybody still waits for it.

    Args:
        stop: set when the person has moved on.
        share: share of the search that is done.
        asked: how often the model was asked.
    """

    stop: Event = field(default_factory=Event)
    share: float = 0.0
    asked: int = 0

    def ask(self) -> None:
        """The model is asked once more; raises :class:`Stopped` if nobody waits."""
        self.asked += 1
        if self.stop.is_set():
            raise Stopped

    def advance(self, share: float) -> None:
        """A share of the search is done."""
        self.share = share


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
        data: the graph; of a large one, :class:`Neighbourhoods`.
        output: the explained node; 0 for the whole graph.
        names: names of the graph.
        number: the caller's number of the output, for sentences.

    Every answer is that of the untouched model on the changed graph. Changes name the caller's nodes.
    """

    def __init__(
        self,
        explainer: Explainer,
        data: Data | Neighbourhoods,
        output: int,
        names: Names = NO_NAMES,
        number: int | None = None,
    ) -> None:
        self.explainer, self.output, self.names = explainer, output, names
        self.number = output if number is None else number
        self.model, self.outcome = unwrap_compiled(explainer.model), outcome_of(explainer.model_config)
        self.level = self.outcome.level
        if self.level.value == "edge" or explainer.model_config.mode is ModelMode.regression:
            raise InputError("The studio shows classes of nodes and graphs (got a model of links, or a regression).")
        self.large = data if isinstance(data, Neighbourhoods) else None
        self.num_nodes = int(data.graph.num_nodes if isinstance(data, Neighbourhoods) else data.num_nodes)
        rows = self.num_nodes if self.level.value == "node" else 1
        if not 0 <= output < rows:
            raise InputError(f"The output must be between 0 and {rows - 1} (got {output}).")
        self.part = data.part(output) if isinstance(data, Neighbourhoods) else GraphPart.whole(data)
        self.inputs = self._inputs_of(self.part)

    def _inputs_of(self, part: GraphPart) -> ModelInputs:
        data, device = part.data, model_device(self.model)
        kwargs = {name: data[name] for name in argument_names(self.model, data)}
        if self.large is not None:  # a large graph stays on the CPU
            kwargs = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in kwargs.items()}
            return check_inputs(self.model, data.x.to(device), data.edge_index.to(device), kwargs, self.level)
        inputs = check_inputs(self.model, data.x, data.edge_index, kwargs, self.level)
        return keep_needed_batch(self.model, inputs, self.outcome)

    def _changed(self, edits: GraphEdits) -> tuple[GraphPart, ModelInputs, int]:
        """The part of the graph that matters, that part after the changes, and the row of the output in it."""
        check_edits(edits, self.num_nodes, self.inputs.x)
        part, inputs = self.part, self.inputs
        if self.large is not None and edits.added:  # what is joined brings its surroundings
            part = self.large.part(self.output, frozenset(n for pair in edits.added for n in pair))
            inputs = self._inputs_of(part)
        row = part.position[self.output] if self.level.value == "node" else 0
        return part, changed_inputs(inputs, edits.renumbered(part.position)), row

    @torch.no_grad()
    def predict(self, edits: GraphEdits) -> ModelSays:
        """What the model says about the changed graph."""
        _, inputs, row = self._changed(edits)
        with borrow(self.model), wrap_model_errors():
            output = call_model(self.model, inputs, self.outcome)[[row]]
        target = self.outcome.check_target(output, None)  # raises if the output is not finite
        distribution = self.outcome.distribution(output, target)[0].tolist()
        return ModelSays(int(self.outcome.predicted(output)[0]), tuple(distribution))

    # --- why, and what else ----------------------------------------------------------------------------------------------

    def _as_data(self, edits: GraphEdits) -> tuple[GraphPart, Any, int, dict[str, Any]]:
        """The changed graph as the doors of the library take it, with its names."""
        part, inputs, row = self._changed(edits)
        own = {name: value for name, value in inputs.kwargs.items() if name != "batch"}
        graph = Data(x=inputs.x, edge_index=inputs.edge_index, **own)
        nodes = None
        if self.names.has_nodes or self.large is not None:
            nodes = [self.names.node(number) for number in part.node.tolist()]
        names = {"feature_names": self.names.features, "class_names": self.names.classes, "units": self.names.units}
        return part, graph, row, {"node_names": nodes, **{key: value or None for key, value in names.items()}}

    def explain(self, edits: GraphEdits, work: Work | None = None) -> Explanation:
        """The explanation of the changed graph's prediction; ``node_id`` are the caller's numbers.

        Args:
            edits: the changes.
            work: told how far it is.
        """
        work = work or Work()
        part, graph, row, names = self._as_data(edits)
        given = graph if self.level.value == "node" else [graph]
        with borrow(self.model), watch(self.model, work.ask):
            (found,) = explain_many(self.explainer, given, [row], progress=work.advance, **names)
        found.node_id, found.output_id = part.node[found.node_id.cpu()], self.number
        found.names = self.names
        return found

    def smallest_change(
        self, edits: GraphEdits, target: int | None = None, features: bool = False, work: Work | None = None
    ) -> tuple[GraphEdits | None, str]:
        """The smallest further change after which the model says another class, and a sentence on it.

        Edges may be removed, and those that were removed before put back.

        Args:
            edits: changes that were made already.
            target: the class to reach; any other than the present one if None.
            features: whether features may be set to 0 too, besides removing edges.
            work: told how far it is.

        Returns:
            all changes together, or None if none was found; and the sentence of :func:`nseg.counterfactual`.
        """
        work = work or Work()
        part, graph, row, names = self._as_data(edits)
        columns = range(graph.x.size(1)) if features and graph.x.dim() == 2 else ()
        inside = edits.renumbered(part.position).removed
        allowed: dict[int | str, float | Sequence[float]] = {n: 0.0 for n in columns if bool((graph.x[:, n] != 0).any())}
        with borrow(self.model), watch(self.model, work.ask), wrap_model_errors():
            found = counterfactual(
                self.explainer,
                graph,
                row,
                to=target,
                additions=self._gone(part, inside) if inside else None,
                features=allowed or None,
                undirected=True,
                most=MOST_CHANGES,
                worlds=MOST_SETS,
                **names,
            )
        if not found.changed:
            return None, found.words()
        number = part.node.tolist()
        gone, back = (
            frozenset((min(pair), max(pair)) for a, b in pairs for pair in [(number[a], number[b])])
            for pairs in (found.removed, found.added)
        )
        removed = (edits.removed - back) | (gone - edits.added)
        values = dict(edits.values) | {(number[one.node], one.feature): one.after for one in found.features}
        words = found.words().replace("Add the", "Put back the").replace("add the", "put back the")
        return replace(edits, removed=removed, added=edits.added - gone, values=values), words

    def _gone(self, part: GraphPart, removed: frozenset[tuple[int, int]]) -> Data:
        """Edges of the graph that were removed, in both directions, with the model's arguments of each."""
        inputs = self.inputs if part is self.part else self._inputs_of(part)
        pairs = inputs.edge_index.sort(0).values.T.tolist()
        chosen = torch.tensor([tuple(pair) in removed for pair in pairs], device=inputs.edge_index.device)
        own = {
            name: value[chosen]
            for name, value in inputs.kwargs.items()
            if name.startswith("edge") and torch.is_tensor(value)
        }
        return Data(edge_index=inputs.edge_index[:, chosen], **own)

    @property
    def num_features(self) -> int:
        """Number of features of a node; 0 if they are not a row of numbers."""
        return self.inputs.x.size(1) if self.inputs.x.dim() == 2 else 0

    @property
    def feature_names(self) -> list[str]:
        """Names of the features; none if there are too many to list."""
        return [self.names.feature(n) for n in range(self.num_features)] if self.num_features <= MOST_FEATURES else []

    def features(self, node: int, edits: GraphEdits) -> list[tuple[int, str, float, float]]:
        """Features of a node: number, name, value now and before the changes. Of many, those that are not 0."""
        if not self.num_features or node not in self.part.position:
            return []
        before = self.inputs.x[self.part.position[node]].tolist()
        now = [0.0] * len(before) if node in edits.hidden else list(before)
        for (other, feature), value in edits.values.items():
            if other == node:
                now[feature] = value
        chosen = [n for n in range(len(before)) if len(before) <= MOST_FEATURES or before[n] or now[n]][:MOST_FEATURES]
        return [(n, self.names.feature(n), now[n], before[n]) for n in chosen]


def explanation_view(found: Explanation) -> dict[str, Any]:
    """An explanation as JSON data: what it keeps, by the caller's numbers, its numbers and its sentence."""
    numbers = {name: float(found[name]) for name in ("pns", "p_factual", "p_complement") if found.get(name) is not None}
    return {"kept": kept_pairs(found), **kept_features(found), **numbers, "words": " ".join(explanation_sentences(found))}


def kept_pairs(explanation: Explanation) -> list[list[int]]:
    """Pairs of nodes of the caller's graph that an explanation keeps an edge between."""
    hard = hard_mask(explanation, "edge_mask")
    if hard is None:
        return []
    ends = explanation.node_id[explanation.edge_index[:, hard & explanation.reached].cpu()].sort(0).values
    pairs: list[list[int]] = torch.unique(ends, dim=1).T.tolist()
    return pairs


def kept_features(explanation: Explanation) -> dict[str, Any]:
    """Nodes of the caller's graph that an explanation keeps, and single features [node, feature]; None if not masked."""
    hard, kind = hard_mask(explanation, "node_mask"), node_mask_type(explanation)
    if hard is None:
        return {"kept_nodes": None, "kept_features": None}
    if kind is MaskType.object:
        return {"kept_nodes": explanation.node_id[hard.any(1).cpu()].tolist(), "kept_features": None}
    if hard.size(0) != explanation.node_id.numel():
        hard = hard.expand(explanation.node_id.numel(), -1)
    chosen = (hard.cpu() & (explanation.x.cpu() != 0)).nonzero()
    places = torch.stack([explanation.node_id[chosen[:, 0]], chosen[:, 1]], 1)
    return {"kept_nodes": sorted(set(places[:, 0].tolist())), "kept_features": places.tolist()}
