"""What a dataset is here."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch_geometric.data import Data


@dataclass(frozen=True)
class Truth:
    """Ground truth of one instance, on the edges and nodes of its graph.

    Args:
        edge: edges of the motif that causes the label, [E].
        node: nodes of that motif, [N].
    """

    edge: Tensor
    node: Tensor


@dataclass(frozen=True)
class Benchmark:
    """Graphs with a task, the instances that the paper explains, and what a good explanation should find.

    Args:
        name: its name in the catalogue.
        level: ``"node"`` (one graph, nodes are explained) or ``"graph"`` (graphs are explained).
        graphs: the graphs; ``y`` holds the classes. A node graph has ``motif``, the motif that each node belongs to or -1;
            a graph has ``edge_truth``, if ground truth is known.
        num_classes: number of classes.
        instances: nodes or graphs that the paper explains.
        k_edges: K of Recall@K for edges; None if there is no ground truth.
        k_nodes: K of Recall@K for nodes.
        class_names: what the classes are.
        node_names: what the columns of one-hot features are, where they are.
        bonds: where graphs are molecules, the bond orders that the columns of one-hot ``edge_attr`` stand for.
    """

    name: str
    level: str
    graphs: list[Data]
    num_classes: int
    instances: Tensor
    k_edges: int | None = None
    k_nodes: int | None = None
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = field(default=())
    bonds: tuple[float, ...] = ()

    @property
    def model_config(self) -> dict[str, str]:
        """What PyG's ``Explainer`` wants to know of a model of this task."""
        return {"mode": "multiclass_classification", "task_level": self.level, "return_type": "raw"}

    @property
    def num_features(self) -> int:
        """Features per node."""
        return int(self.graphs[0].num_features)

    def graph(self, instance: int) -> Data:
        """The graph that an instance is in."""
        return self.graphs[0] if self.level == "node" else self.graphs[instance]

    def truth(self, instance: int) -> Truth | None:
        """The instance's own motif, not all motifs of its graph; None where ground truth is not known."""
        data = self.graph(instance)
        if self.level == "node":
            motif = data.motif
            node = (motif == motif[instance]) & (motif >= 0)
            source, end = data.edge_index
            return Truth(node[source] & node[end], node)
        if "edge_truth" not in data:
            return None
        node = torch.zeros(data.num_nodes, dtype=torch.bool)
        node[data.edge_index[:, data.edge_truth].flatten()] = True
        return Truth(data.edge_truth, node)
