"""What a dataset is: graphs, explained instances and ground truth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from nseg.names import NamedData, resolve_names


@dataclass(frozen=True)
class Truth:
    """Ground truth of one instance, as masks over its graph.

    Args:
        edge: whether each edge is in the motif that causes the label, [E].
        node: whether each node is in that motif, [N].
    """

    edge: Tensor
    node: Tensor


@dataclass(frozen=True)
class Benchmark:
    """A dataset with the instances that the paper explains and their ground truth.

    Args:
        name: name in the catalogue.
        level: ``"node"`` (nodes of one graph are explained) or ``"graph"`` (graphs are explained).
        graphs: the graphs; ``y`` holds the classes. At node level, ``motif`` holds the number of each node's motif, or -1;
            at graph level, ``edge_truth`` holds the ground truth where it is known.
        num_classes: number of classes; of a regression, 1: the number of predicted values.
        instances: numbers of the nodes or graphs that the paper explains, [B].
        k_edges: K of Recall@K for edges; None if there is no ground truth.
        k_nodes: K of Recall@K for nodes; None if there is no ground truth.
        class_names: name of each class.
        node_names: name of each feature column, if node features are one-hot.
        bonds: for molecules, the bond order of each column of the one-hot ``edge_attr``.
        mode: kind of the model, as PyG names it; ``y`` holds values if it is ``"regression"``.
    """

    name: str
    level: str
    graphs: list[Data] | list[HeteroData]
    num_classes: int
    instances: Tensor
    k_edges: int | None = None
    k_nodes: int | None = None
    class_names: tuple[str, ...] = ()
    node_names: tuple[str, ...] = field(default=())
    bonds: tuple[float, ...] = ()
    mode: str = "multiclass_classification"

    @property
    def model_config(self) -> dict[str, str]:
        """The ``model_config`` of PyG's ``Explainer`` for a network of this dataset."""
        return {"mode": self.mode, "task_level": self.level, "return_type": "raw"}

    @property
    def num_features(self) -> int:
        """Number of features per node; the largest of all types in a heterogeneous graph."""
        number = self.graphs[0].num_features
        return max(number.values()) if isinstance(number, dict) else int(number)

    def names(self, **given: Any) -> NamedData:
        """Names of its nodes (their kinds), features and classes.

        Args:
            **given: names that replace the dataset's own, as :func:`nseg.names.resolve_names` takes them.
        """
        own = {
            "class_names": self.class_names or None,
            "feature_names": self.node_names or None,
            "node_names": self._kinds if self.node_names else None,
        }
        graphs = self.graphs if self.level == "graph" else self.graphs[0]
        return resolve_names(graphs, **(own | {name: value for name, value in given.items() if value is not None}))

    def _kinds(self, graph: Data) -> list[str]:
        """The kind of each node of a graph, such as the chemical element of an atom."""
        return [self.node_names[kind] for kind in graph.x.argmax(-1).tolist()]

    def copy(self) -> Benchmark:
        """A copy that shares no tensor with this one."""
        return replace(self, graphs=[data.clone() for data in self.graphs], instances=self.instances.clone())

    def graph(self, instance: int) -> Data | HeteroData:
        """The graph that contains an instance."""
        return self.graphs[0] if self.level == "node" else self.graphs[instance]

    def truth(self, instance: int) -> Truth | None:
        """The instance's own motif, not all motifs of its graph; None if ground truth is unknown."""
        data = self.graph(instance)
        if isinstance(data, HeteroData):
            return None
        if self.level == "node":
            motif = data.motif
            node = (motif == motif[instance]) & (motif >= 0)
            source, target = data.edge_index
            return Truth(node[source] & node[target], node)
        if "edge_truth" not in data:
            return None
        node = torch.zeros(data.num_nodes, dtype=torch.bool, device=data.edge_index.device)
        node[data.edge_index[:, data.edge_truth].flatten()] = True
        return Truth(data.edge_truth, node)
