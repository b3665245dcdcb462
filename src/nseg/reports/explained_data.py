"""The explained data: graphs, names of nodes and classes, and true classes."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explanation
from torch_geometric.explain import HeteroExplanation as PyGHeteroExplanation

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.explanation import with_ids
from nseg.graphs.flat_data import flat_data
from nseg.hetero_explanation import flat_view
from nseg.names import NamedData, Names, resolve_names
from nseg.plot.explained_graph import explained_graph
from nseg.plot.node_labels import fill_names
from nseg.plot.scene import Scene, build_scene
from nseg.runs.stored import attach
from nseg.wording import DEFAULT_THRESHOLD


@dataclass(frozen=True)
class ExplainedData:
    """What the explanations of a report explain.

    Args:
        data: a dataset, one graph, several graphs, or None.
        given: names by argument, as :func:`nseg.names.resolve_names` takes them.
    """

    data: Any
    given: Mapping[str, Any] = field(default_factory=dict)
    _flat: dict[int, Data] = field(default_factory=dict, repr=False, compare=False)

    @property
    def dataset(self) -> Benchmark | None:
        """The dataset, if the data is one."""
        return self.data if isinstance(self.data, Benchmark) else None

    @property
    def graphs(self) -> Any:
        """The graph or graphs, as they were given to ``explain_many``."""
        if isinstance(self.data, Benchmark):
            return self.data.graphs[0] if self.data.level == "node" else self.data.graphs
        return self.data

    def graph(self, output_id: int) -> Data | None:
        """The graph of an output, flat if it is heterogeneous."""
        found = self._given_graph(output_id)
        return self._flat.get(self._number(output_id)) if isinstance(found, HeteroData) else found

    def _given_graph(self, output_id: int) -> Any:
        graphs = self.graphs
        return graphs if graphs is None or isinstance(graphs, Data | HeteroData) else graphs[output_id]

    def _number(self, output_id: int) -> int:
        """Number of the graph of an output."""
        return 0 if isinstance(self.graphs, Data | HeteroData) else output_id

    @cached_property
    def _named(self) -> NamedData:
        given = {name: value for name, value in self.given.items() if value is not None}
        return resolve_names(self.graphs, **given) if self.dataset is None else self.dataset.names(**given)

    def names(self, explanation: Explanation) -> Names:
        """Names of an explanation's graph: given ones, else those of the data, else those that the explanation carries."""
        return fill_names(self._named.graph(int(explanation.output_id)), explanation)

    def scene(self, explanation: Explanation, reached: Tensor, predicted: Tensor | None = None) -> Scene:
        """The scene of an explanation.

        Args:
            explanation: the explanation.
            reached: mask of the edges that can reach the output, [E].
            predicted: predicted class of each node of the graph, if known; colours are then predicted classes.
        """
        graph, names = explained_graph(explanation, self.data), self.names(explanation)
        if names.types is not None:
            predicted = None  # colours are types
        per_node = graph.level == "node" and (self.dataset is None or not self.dataset.node_names)
        return build_scene(
            graph,
            names,
            predicted if per_node else None,
            "predicted",
            reached=explanation.edge_id[reached],
            max_edges=max(int(reached.sum()), 1),
        )

    def node_classes(self, level: str, output_id: int) -> Tensor | None:
        """True class of each node of the graph of an output, if nodes have classes."""
        graph = self.graph(output_id)
        y: Tensor | None = None if graph is None or level != "node" else graph.get("y")
        if graph is None or y is None or y.dim() != 1 or y.numel() != graph.num_nodes or y.is_floating_point():
            return None
        return y.cpu()

    def true_class(self, level: str, output_id: int) -> int | None:
        """The true class of an output, if known."""
        graph = self.graph(output_id)
        y = None if graph is None else graph.get("y")
        row = output_id if level == "node" else 0
        if level == "edge" or y is None or y.is_floating_point() or not row < y.numel():
            return None
        found = int(y.flatten()[row])
        return found if found >= 0 else None

    def num_true_edges(self, output_id: int) -> int:
        """Number of undirected edges in the ground truth of an output; 0 if there is none."""
        graph = self.graph(output_id)
        if self.dataset is None or graph is None or not {"motif", "edge_truth"} & set(graph.keys()):
            return 0
        truth = self.dataset.truth(output_id)
        return 0 if truth is None else int(truth.edge.sum()) // 2

    def complete(self, explanation: Explanation) -> Explanation:
        """A copy of an explanation with its output id, its graph and hard masks; flat if its graph is heterogeneous.

        An explanation read from disk gets its graph. One without hard masks, as PyG's algorithms return, gets hard masks
        by thresholding the soft ones.
        """
        typed = explanation if isinstance(explanation, PyGHeteroExplanation) else None
        explanation = flat_view(with_ids(explanation) if typed is None else explanation)
        if explanation.get("edge_index") is None:
            if self.graphs is None:
                raise InputError(
                    "A report needs the graphs of its explanations (got explanations without edge_index, as "
                    "nseg.read returns). Pass what was explained: data=..."
                )
            explanation = attach(explanation if typed is None else typed, self.graphs)
            typed, explanation = None if typed is None else explanation, flat_view(explanation)
        copied: Explanation = copy(explanation)  # the tensors are shared: nobody changes them
        if typed is not None:
            copied.__dict__["_by_type"] = typed  # what the evaluator takes
            number = self._number(int(explanation.output_id))
            given = self._given_graph(number)
            if given is not None and number not in self._flat:
                self._flat[number] = flat_data(given, explanation.names.types)
        # Explanations from disk may lack these attributes; with None and [] nothing after this needs to check.
        copied._model_config = getattr(explanation, "_model_config", None)
        copied._model_args = getattr(explanation, "_model_args", [])
        for name in ("edge_mask", "node_mask"):
            if explanation.get(name) is not None and explanation.get(f"hard_{name}") is None:
                copied[f"hard_{name}"] = explanation[name] > DEFAULT_THRESHOLD
        return copied
