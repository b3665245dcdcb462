"""What a trial explains: a trained network, its graphs, and the instances of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explanation
from torch_geometric.nn import GCNConv

from nseg.baselines import make as make_algorithm
from nseg.datasets import Benchmark
from nseg.datasets import load as load_dataset
from nseg.datasets.tu import data_folder
from nseg.errors import InputError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.explainer import Explainer
from nseg.explain.many import explain_many
from nseg.models import manifest, pretrained
from nseg.storage.hashing import digest

_AUTHORS_GRAPHS = {
    "ba-shapes": ("BA-Shapes", 300, 5),
    "tree-cycles": ("Tree-Cycles", 511, 6),
    "tree-grid": ("Tree-Grid", 511, 9),
}
"""For each dataset: the paper's name, the first motif node, the number of nodes per motif."""


@dataclass(frozen=True)
class ExplanationTask:
    """A trained network and its dataset.

    Args:
        model: the network.
        bench: graphs, instances and ground truth.
        weights: hash of the weights.
        data: hash of the dataset.
    """

    model: nn.Module
    bench: Benchmark
    weights: str
    data: str

    @property
    def graphs(self) -> Any:
        """The ``data`` argument of ``explain_many``: one graph at node level, a list at graph level."""
        return self.bench.graphs if self.bench.level == "graph" else self.bench.graphs[0]

    def explainer(self, algorithm: BatchedAlgorithm, masks: str) -> Explainer:
        """An explainer of the network's own predictions."""
        return Explainer(
            self.model,
            algorithm,
            explanation_type="model",
            edge_mask_type="object" if "e" in masks else None,
            node_mask_type="object" if "f" in masks else None,
            model_config=self.bench.model_config,
        )

    def instances(self, every: int, max_edges: int | None = None) -> list[int]:
        """Every n-th of the paper's instances.

        Args:
            every: the n.
            max_edges: leave out instances that are reached by more undirected edges than this; no limit if None.
        """
        index: list[int] = self.bench.instances[::every].tolist()
        if max_edges is None:
            return index
        found = explain_many(self.explainer(make_algorithm("none"), "e"), self.graphs, index, progress=False)
        return [int(one.output_id) for one in found if _count_undirected_edges(one) <= max_edges]


def _count_undirected_edges(one: Explanation) -> int:
    """Number of undirected edges over which messages reach the explained output."""
    return int(one.edge_index[:, one.reached].sort(0).values.unique(dim=1).size(1))


@cache
def load_task(dataset: str, architecture: str, network: str) -> ExplanationTask:
    """A network of this project (``"ours"``) or of the paper's authors (``"authors"``), with its dataset."""
    if network == "authors":
        return _load_authors_task(dataset)
    bench = load_dataset(dataset)
    weights = manifest()[f"{dataset}/{architecture}"]["sha256"]
    return ExplanationTask(pretrained(dataset, architecture), bench, weights, hash_dataset(bench))


def hash_dataset(bench: Benchmark) -> str:
    """Hash of graphs, classes, ground truth and instances."""
    return digest([bench.graphs, bench.instances])


# --- the authors' own networks -----------------------------------------------------------------------------------------


class AuthorsGCN(nn.Module):
    """The paper's network: three GCN layers without self-loops and a linear head.

    Args:
        file: the authors' checkpoint, an open ``.npz`` file.
    """

    def __init__(self, file: Any) -> None:
        super().__init__()
        sizes = [int(file["dim_input"]), *file["dim_hidden"].tolist()]
        self.convs = nn.ModuleList(GCNConv(a, b, add_self_loops=False) for a, b in pairwise(sizes))
        self.classify = nn.Linear(sizes[-1], int(file["num_classes"]))
        state = {f"convs.{i}.lin.weight": file[f"convs.{i}.weight"].T for i in range(len(self.convs))}
        state |= {f"convs.{i}.bias": file[f"convs.{i}.bias"] for i in range(len(self.convs))}
        state |= {name: file[name] for name in ("classify.weight", "classify.bias")}
        self.load_state_dict({name: torch.tensor(np.ascontiguousarray(value)) for name, value in state.items()})

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores of all nodes, [N, C]."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        scores: Tensor = self.classify(x)
        return scores


def _load_authors_task(dataset: str) -> ExplanationTask:
    name, first, motif_size = _AUTHORS_GRAPHS[dataset]
    path = (data_folder() or Path()) / "authors" / f"GCN_{name}.npz"
    if data_folder() is None or not path.is_file():
        raise InputError(
            f'networks = "authors" needs the file authors/GCN_{name}.npz in the folder NSEG_DATA (got NSEG_DATA='
            f'{data_folder()}). Set NSEG_DATA, or use this project\'s networks: networks = "ours", or --networks ours.'
        )
    file = np.load(path, allow_pickle=False)
    data = Data(**{key: torch.tensor(file[key]) for key in ("x", "edge_index", "y")})
    nodes = torch.arange(int(data.num_nodes))
    data.motif = torch.where(nodes < first, -1, (nodes - first) // motif_size)
    ours = load_dataset(dataset)  # another graph of the same kind: classes and K are equal
    bench = Benchmark(
        dataset,
        "node",
        [data],
        ours.num_classes,
        nodes[first:],
        ours.k_edges,
        ours.k_nodes,
        ours.class_names,
    )
    model = AuthorsGCN(file).eval()
    return ExplanationTask(model, bench, digest(dict(model.state_dict())), hash_dataset(bench))
