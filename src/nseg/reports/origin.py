"""Where explanations come from: the graphs, the names in them and the true classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.explanation import placed
from nseg.plot.scene import Scene, scene
from nseg.reports.cuts import HALF
from nseg.store import attach


@dataclass(frozen=True)
class Origin:
    """What explanations are of.

    Args:
        data: a dataset, one graph, several graphs, or nothing.
        names: of the nodes of one graph.
        class_names: of the classes.
    """

    data: Benchmark | Data | Sequence[Data] | None
    names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None

    @property
    def bench(self) -> Benchmark | None:
        """The dataset, if it is one."""
        return self.data if isinstance(self.data, Benchmark) else None

    @property
    def graphs(self) -> Data | Sequence[Data] | None:
        """The graph or graphs, as they were given to ``explain_many``."""
        if isinstance(self.data, Benchmark):
            return self.data.graphs[0] if self.data.level == "node" else self.data.graphs
        return self.data

    def graph(self, number: int) -> Data | None:
        """The graph that an output is in."""
        graphs = self.graphs
        return graphs if graphs is None or isinstance(graphs, Data) else graphs[number]

    def name(self, number: int) -> str:
        """What a class is called."""
        names = self.class_names or (self.bench.class_names if self.bench is not None else ())
        return str(names[number]) if number < len(names) else f"class {number}"

    def scene(self, one: Explanation, reached: Tensor) -> Scene:
        """What a picture of an explanation shows, given the edges within reach of the output, [E]."""
        graph, classes = self.graph(int(one.output_id)), None
        if self.bench is None and isinstance(self.data, Data) and graph is not None:
            y = graph.get("y")
            per_node = y is not None and y.dim() == 1 and y.numel() == graph.num_nodes and not y.is_floating_point()
            classes = y if per_node else None
        return scene(
            one,
            self.bench,
            names=self.names,
            classes=classes,
            class_names=self.class_names,
            reached=one.edge_id[reached],
            most=max(int(reached.sum()), 1),
        )

    def label(self, level: str, number: int) -> int | None:
        """The true class of an output, where it is known."""
        graph = self.graph(number)
        y = None if graph is None else graph.get("y")
        place = number if level == "node" else 0
        if level == "edge" or y is None or y.is_floating_point() or not place < y.numel():
            return None
        return int(y.flatten()[place])

    def true_lines(self, number: int) -> int:
        """How many pairs of nodes the ground truth of an output joins; 0 where none is known."""
        graph = self.graph(number)
        if self.bench is None or graph is None or not {"motif", "edge_truth"} & set(graph.keys()):
            return 0
        truth = self.bench.truth(number)
        return 0 if truth is None else int(truth.edge.sum()) // 2

    def complete(self, one: Explanation) -> Explanation:
        """An explanation that says what it explains and what it keeps, and holds its graph.

        One read from disk is given its graph; one without hard masks, as PyG's algorithms give, is cut in the middle.
        """
        one = placed(one)
        if one.get("edge_index") is None:
            if self.graphs is None:
                raise InputError(
                    "Explanations are shown on their graphs (got some without, as nseg.store.read gives). "
                    "Give what was explained as well: data=..."
                )
            one = attach(one, self.graphs)
        made: Explanation = one.clone()
        made._model_config, made._model_args = getattr(one, "_model_config", None), getattr(one, "_model_args", [])
        for name in ("edge_mask", "node_mask"):
            if one.get(name) is not None and one.get(f"hard_{name}") is None:
                made[f"hard_{name}"] = one[name] > HALF
        return made
