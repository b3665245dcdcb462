"""Explanations and data, checked, as explained predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explanation, HeteroExplanation
from torch_geometric.explain.config import ModelMode
from torch_geometric.utils import is_undirected

from nseg.datasets import Benchmark
from nseg.errors import InputError, UnsupportedError
from nseg.explanation import on_cpu, task_level, with_ids
from nseg.graphs.separate import separate_graphs
from nseg.names import NO_NAMES, Names, resolve_names
from nseg.pattern.node_types import flatten_explanations, individual_names, relations
from nseg.pattern.predictions import ExplainedPrediction
from nseg.pattern.vocabulary import Vocabulary
from nseg.runs.stored import attach


class PredictionReader:
    """Reads explanations of one dataset.

    Args:
        data: a dataset, one graph, or several graphs, as they were explained.
        kind_names, bonds: what kinds of nodes are called, and the order of kinds of bonds; by default as in the dataset.
        **names: ``feature_names``, ``class_names`` and ``units``; by default as the explanations or the data say.
    """

    def __init__(
        self,
        data: Any,
        *,
        kind_names: Sequence[str] | None = None,
        bonds: Sequence[float] | None = None,
        **names: Any,
    ) -> None:
        self.dataset = data if isinstance(data, Benchmark) else None
        self.graphs = self.given_graphs = _graphs(data)
        usual = self.dataset or Benchmark("", "", [], 0, torch.zeros(0))
        several = [self.graphs] if isinstance(self.graphs, Data | HeteroData) else self.graphs
        x = [torch.zeros(0, 1) if isinstance(one, HeteroData) else one.x for one in several]
        if kind_names is not None and (isinstance(kind_names, str) or not all(isinstance(one, str) for one in kind_names)):
            raise InputError(f"kind_names must be a list of names (got {kind_names!r}). Try kind_names=['a', 'b'].")
        if not x:
            raise InputError("data must be what was explained (got no graph). Pass the graphs that explain_many was given.")
        if len({one.shape[1:] for one in x}) > 1:
            raise InputError("All graphs of data must have features of one shape (got several). Give one dataset.")
        self.vocabulary = Vocabulary(
            torch.cat(x).cpu(),
            tuple(usual.node_names if kind_names is None else kind_names),
            (resolve_names(self.graphs, **names) if self.dataset is None else self.dataset.names(**names)).graph(),
            tuple(usual.bonds if bonds is None else bonds),
        )

    def read(self, explanations: Any) -> list[ExplainedPrediction]:
        """One prediction per explanation that holds masks; failed targets are left out."""
        if isinstance(explanations, Explanation | HeteroExplanation) or not isinstance(explanations, Sequence):
            raise InputError(
                f"explanations must be a list of explanations (got {type(explanations).__name__}). Pass what "
                "explain_many or nseg.read returns."
            )
        for one in explanations:
            if not isinstance(one, Explanation | HeteroExplanation):
                raise InputError(f"explanations must hold PyG explanations (got {type(one).__name__}).")
        given: Sequence[Any] = [one for one in explanations if one.get("reason") is None]
        by_type = given if any(isinstance(one, HeteroExplanation) for one in given) else [None] * len(given)
        good = [self._complete(one) for one in (self._flatten(given) if by_type is given else given)]
        if not good:
            what = "none" if not len(explanations) else f"{len(explanations)} targets that could not be explained"
            raise InputError(f"explanations must hold at least one explanation (got {what}). Explain something first.")
        masks = {(one.get("edge_mask") is None, one.get("node_mask") is None) for one in good}
        levels = {self._level(one) for one in good}
        if len(masks) > 1 or len(levels) > 1:
            raise InputError(
                "explanations must be of one kind: the same masks and the same task level (got several kinds). Find the "
                "patterns of each kind by itself."
            )
        if masks == {(True, True)}:
            raise InputError("explanations must have an edge mask or a node mask (got neither). Explain edges or nodes.")
        events = {one.get("outcome") for one in good} - {None}
        modes = {config.mode for one in good if (config := getattr(one, "_model_config", None)) is not None}
        if events or ModelMode.regression in modes:
            got = ", ".join(sorted(map(repr, events))) or "a regression"
            raise UnsupportedError(f"Patterns are of predicted classes (got explanations of another outcome: {got}).")
        self._name_by(good[0].get("names") or NO_NAMES)
        directed = not all(is_undirected(graph.edge_index) for graph in self._explained_graphs(good))
        return [replace(self._prediction(one, directed), by_type=typed) for one, typed in zip(good, by_type, strict=True)]

    def _flatten(self, explanations: Sequence[Any]) -> list[Explanation]:
        """Explanations by type, as explanations of flat graphs; from now on the data is flat too."""
        several = [self.given_graphs] if isinstance(self.given_graphs, Data | HeteroData) else list(self.given_graphs)
        if not all(isinstance(one, HeteroExplanation) for one in explanations) or isinstance(several[0], Data):
            raise InputError(
                "explanations and data must all be of heterogeneous graphs, or none (got both kinds). Do not mix "
                "explanations of different datasets."
            )
        bare = [all(store.get("edge_index") is None for store in one.edge_stores) for one in explanations]
        whole = [attach(one, self.given_graphs) if stored else one for one, stored in zip(explanations, bare, strict=True)]
        flat, self.graphs, types = flatten_explanations(whole, self.given_graphs)
        self.vocabulary = replace(self.vocabulary, kind_names=types.node_types, relations=relations(types))
        return flat

    def _name_by(self, known: Names) -> None:
        """Use the names of the explanations for what has no name."""
        own = self.vocabulary.names
        chosen = {part: getattr(own, part) or getattr(known, part) for part in ("features", "classes", "units")}
        self.vocabulary = replace(self.vocabulary, names=replace(own, **chosen))

    def _level(self, one: Explanation) -> str:
        known = getattr(one, "_model_config", None) is not None
        return self.dataset.level if self.dataset is not None and not known else task_level(one)

    def _graph(self, one: Explanation) -> Data:
        number = int(one.output_id)
        if isinstance(self.graphs, Data):
            return self.graphs
        if number >= len(self.graphs):
            raise InputError(
                f"data must be what was explained (got {len(self.graphs)} graphs, and an explanation of graph {number}). "
                "Do not mix explanations of different datasets."
            )
        found: Data = self.graphs[number]
        return found

    def _explained_graphs(self, explanations: Sequence[Explanation]) -> list[Data]:
        return [self.graphs] if isinstance(self.graphs, Data) else [self._graph(one) for one in explanations]

    def _complete(self, one: Explanation) -> Explanation:
        """An explanation with its graph, on the CPU, checked against the data."""
        if one.get("edge_index") is None:
            self._graph(one)
            one = attach(one, self.graphs)
        one = on_cpu(with_ids(one))
        if one.get("target") is None:
            raise InputError("Each explanation must know the explained class (got one without target).")
        graph = self._graph(one)
        inside = one.edge_id.numel() == 0 or int(one.edge_id.max()) < graph.num_edges
        inside = inside and int(one.node_id.max()) < graph.num_nodes and one.x.shape[1:] == graph.x.shape[1:]
        if not inside or not torch.equal(one.node_id[one.edge_index], graph.edge_index.cpu()[:, one.edge_id]):
            raise InputError(
                f"data must be what was explained (its graph for output {one.output_id} has other edges or features). Do "
                "not mix explanations of different datasets."
            )
        return one

    def _prediction(self, one: Explanation, directed: bool) -> ExplainedPrediction:
        graph, level = self._graph(one), self._level(one)

        def per(name: str, ids: Tensor, size: int) -> Tensor | None:
            value = graph.get(name)
            return value.cpu()[ids] if isinstance(value, Tensor) and value.size(0) == size else None

        return ExplainedPrediction(
            one,
            level,
            self.vocabulary,
            directed,
            per("edge_attr", one.edge_id, graph.num_edges),
            per("edge_type", one.edge_id, graph.num_edges),
            per("node_type", one.node_id, graph.num_nodes),
            _true_class(graph, level, int(one.output_id)),
            individual_names(one) if self.vocabulary.relations else (),
        )


def _graphs(data: Any) -> Any:
    """One graph, or a sequence of graphs."""
    if data is None:
        raise InputError("Patterns need the graphs of the explanations (got data=None). Pass what was explained: data=...")
    if isinstance(data, Benchmark):
        return data.graphs[0] if data.level == "node" else data.graphs
    if type(data) in (Data, HeteroData):
        return data
    return separate_graphs(data)


def _true_class(graph: Data, level: str, number: int) -> int | None:
    """The true class of an output, if known."""
    y, row = graph.get("y"), number if level == "node" else 0
    if level == "edge" or not isinstance(y, Tensor) or y.is_floating_point() or row >= y.numel():
        return None
    found = int(y.flatten()[row])
    return found if found >= 0 else None
