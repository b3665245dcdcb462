"""What a trial explains: a trained network, its graphs and the paper's instances of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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

from nseg import Explainer, baselines, datasets, explain_many, models
from nseg.datasets.tu import data_folder
from nseg.errors import InputError
from nseg.explainer import BatchedAlgorithm

_AUTHORS = {"ba-shapes": ("BA-Shapes", 300, 5), "tree-cycles": ("Tree-Cycles", 511, 6), "tree-grid": ("Tree-Grid", 511, 9)}
"""The paper's name of a dataset, its first motif node, nodes of a motif."""


@dataclass(frozen=True)
class Task:
    """A trained network and what it was trained on.

    Args:
        model: the network.
        bench: graphs, instances and ground truth.
        weights, data: their hashes.
    """

    model: nn.Module
    bench: datasets.Benchmark
    weights: str
    data: str

    @property
    def graphs(self) -> Any:
        """What ``explain_many`` takes."""
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

    def instances(self, every: int, most: int | None = None) -> list[int]:
        """Every n-th of the paper's instances; with ``most``, those with at most so many undirected edges within reach."""
        index: list[int] = self.bench.instances[::every].tolist()
        if most is None:
            return index
        found = explain_many(self.explainer(baselines.make("none"), "e"), self.graphs, index, progress=False)
        return [int(one.output_id) for one in found if _ties(one) <= most]


def _ties(one: Explanation) -> int:
    return int(one.edge_index[:, one.reached].sort(0).values.unique(dim=1).size(1))


@cache
def load(dataset: str, architecture: str, network: str) -> Task:
    """A network of this project (``"ours"``) or of the paper's authors (``"authors"``), with its data."""
    if network == "authors":
        return _authors(dataset)
    bench = datasets.load(dataset)
    weights = models.manifest()[f"{dataset}/{architecture}"]["sha256"]
    return Task(models.pretrained(dataset, architecture), bench, weights, fingerprint(bench))


def fingerprint(bench: datasets.Benchmark) -> str:
    """Hash of graphs, classes, ground truth and instances."""
    parts = (graph[key] for graph in bench.graphs for key in sorted(graph.keys()))
    return _hash([*parts, bench.instances])


def _hash(tensors: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for one in tensors:
        if isinstance(one, Tensor):
            digest.update(f"{one.dtype}{tuple(one.shape)}".encode() + one.contiguous().numpy().tobytes())
    return digest.hexdigest()


# --- the authors' own networks -----------------------------------------------------------------------------------------


class AuthorsGCN(nn.Module):
    """The network of the paper: three GCN layers without self-loops, one linear layer."""

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
        """Class scores of all nodes."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        scores: Tensor = self.classify(x)
        return scores


def _authors(dataset: str) -> Task:
    name, first, block = _AUTHORS[dataset]
    path = (data_folder() or Path()) / "authors" / f"GCN_{name}.npz"
    if data_folder() is None or not path.is_file():
        raise InputError(
            f"The authors' networks must lie below the folder that NSEG_DATA names, as authors/GCN_{name}.npz (it is not "
            f'there). Set NSEG_DATA, or use this project\'s networks: networks = "ours", or --networks ours.'
        )
    file = np.load(path, allow_pickle=False)
    data = Data(**{key: torch.tensor(file[key]) for key in ("x", "edge_index", "y")})
    nodes = torch.arange(int(data.num_nodes))
    data.motif = torch.where(nodes < first, -1, (nodes - first) // block)
    ours = datasets.load(dataset)  # the same task on another graph
    bench = datasets.Benchmark(
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
    return Task(model, bench, _hash(model.state_dict().values()), fingerprint(bench))
