"""DBLP: authors, their papers, and the conferences of these; an author's area is the class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.datasets import DBLP

from nseg.datasets.base import Benchmark
from nseg.datasets.tu import data_folder
from nseg.errors import InputError
from nseg.storage.files import cache_folder

FILE = "DBLP.npz"
TYPES = ("author", "paper", "conference")
PARTS = ("train", "val", "test")
AREAS = 4


def dblp(root: Path | None = None) -> Benchmark:
    """The DBLP graph, with the test authors as explained instances; it has no ground truth.

    Edges are ``("author", "wrote", "paper")`` and ``("paper", "presented_at", "conference")``, and the reverse of both.

    Args:
        root: not used: this graph is not downloaded.
    """
    folder = data_folder()
    if folder is None or not (folder / FILE).is_file():
        raise InputError(
            f"dblp must be provided as the file {FILE} in the folder NSEG_DATA (got NSEG_DATA={folder}). Put it there, or "
            "load PyG's own graph with public=True; the networks that ship need the file."
        )
    with np.load(folder / FILE) as arrays:
        return _benchmark(read_graph({name: torch.from_numpy(arrays[name]) for name in arrays}))


def dblp_public(root: Path | None = None) -> Benchmark:
    """PyG's own DBLP graph, larger and with terms; the networks that ship are not made for it.

    Args:
        root: cache folder; :func:`nseg.storage.files.cache_folder` by default.
    """
    root = root or cache_folder()
    try:
        (data,) = DBLP(str(root / "DBLP"))
    except OSError as error:
        raise InputError(
            f"PyG's DBLP must be downloaded once (got no network and no files in {root / 'DBLP'}). Put its files there, "
            f"into raw/, or load the smaller graph from {FILE}: leave public out."
        ) from error
    return _benchmark(data)


def _benchmark(data: HeteroData) -> Benchmark:
    test = data["author"].test_mask.nonzero().flatten()
    return Benchmark("dblp", "node", [data], AREAS, test, class_names=tuple(f"area {n}" for n in range(AREAS)))


def read_graph(arrays: dict[str, Tensor]) -> HeteroData:
    """The graph from the arrays of the file."""
    data = HeteroData()
    for name, number in zip(TYPES, arrays["num_nodes"].tolist(), strict=True):
        data[name].x = torch.zeros(number, int(arrays["num_features"]))
        row, column = arrays[f"x_{name}_row"].long(), arrays[f"x_{name}_col"].long()
        data[name].x[row, column] = arrays[f"x_{name}_val"]
    paper, author = arrays["paper_author"].long()
    here, conference = arrays["paper_conference"].long()
    data["author", "wrote", "paper"].edge_index = torch.stack([author, paper])
    data["paper", "rev_wrote", "author"].edge_index = torch.stack([paper, author])
    data["paper", "presented_at", "conference"].edge_index = torch.stack([here, conference])
    data["conference", "rev_presented_at", "paper"].edge_index = torch.stack([conference, here])
    data["author"].y = torch.full((len(data["author"].x),), -1)
    for part in PARTS:
        members = arrays[f"{part}_author"].long()
        data["author"].y[members] = arrays[f"{part}_class"].long()
        data["author"][f"{part}_mask"] = torch.zeros(len(data["author"].x), dtype=torch.bool)
        data["author"][f"{part}_mask"][members] = True
    return data
