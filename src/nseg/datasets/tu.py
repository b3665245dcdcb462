"""Mutagenicity and MSRC_21, read with PyG's ``TUDataset``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset

from nseg.datasets.base import Benchmark
from nseg.errors import InputError
from nseg.storage.files import cache_folder

ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")

# Region labels of the MSRC image database, in its order, and its twenty scenes, each named after what distinguishes it.
REGIONS = (
    "void building grass tree cow horse sheep sky mountain aeroplane water face car bicycle flower sign bird book chair "
    "road cat dog body boat"
)
SCENES = (
    "pasture trees building aeroplane cow face car bicycle sheep flower sign bird book chair cat dog street water people "
    "boat"
)


def data_folder() -> Path | None:
    """The folder NSEG_DATA, which holds dataset files for machines without network; None if not set."""
    folder = os.environ.get("NSEG_DATA")
    return Path(folder) if folder else None


def tu_graphs(name: str, root: Path | None = None) -> list[Data]:
    """The graphs of a TU dataset, from the cache, NSEG_DATA or a download.

    Args:
        name: name in the TU collection.
        root: cache folder; :func:`nseg.storage.files.cache_folder` by default.
    """
    root = root or cache_folder()
    raw, source = root / name / "raw", data_folder()
    if not (raw / f"{name}_A.txt").exists() and source is not None and (source / name / "raw").is_dir():
        shutil.copytree(source / name / "raw", raw, dirs_exist_ok=True)  # copied, because PyG writes beside raw/
    try:
        return list(TUDataset(str(root), name))
    except OSError as error:
        raise InputError(
            f"{name} must be downloaded once or provided as files (got no network and no files in {raw}). Put "
            f"{name}_A.txt and the other files of the dataset into FOLDER/{name}/raw and set NSEG_DATA=FOLDER."
        ) from error


def amine_and_nitro(atom: Tensor, edge_index: Tensor) -> Tensor:
    """Whether each bond is in an NO2 or NH2 group, the known cause of mutagenicity, [E].

    NO2: an N with exactly two O of degree 1 and a third neighbour that is not O. NH2: an N with exactly two H and a third
    neighbour that is not O. Only the two N-O or N-H bonds count as the group.

    Args:
        atom: element of each node, as an index into ``ATOMS``, [N].
        edge_index: bonds in both directions, [2, E].
    """
    source, target = edge_index
    degree = torch.bincount(target, minlength=atom.numel())
    nitrogen, oxygen, hydrogen = (atom == ATOMS.index(name) for name in ("N", "O", "H"))

    def count_neighbours(selected: Tensor) -> Tensor:
        """Number of selected neighbours of each node, [N]."""
        return torch.zeros_like(atom).index_add(0, target, selected[source].long())

    candidate = nitrogen & (degree == 3)
    terminal_oxygen = oxygen & (degree == 1)
    nitro = candidate & (count_neighbours(terminal_oxygen) == 2) & (count_neighbours(oxygen) == 2)
    amine = candidate & (count_neighbours(hydrogen) == 2) & (count_neighbours(oxygen) == 0)
    forward = (nitro[target] & terminal_oxygen[source]) | (amine[target] & hydrogen[source])
    backward = (nitro[source] & terminal_oxygen[target]) | (amine[source] & hydrogen[target])
    return forward | backward


def mutagenicity(root: Path | None = None) -> Benchmark:
    """4337 molecules, mutagenic (class 0) or not; ground truth is NO2 and NH2 groups."""
    graphs = tu_graphs("Mutagenicity", root)
    for data in graphs:
        data.edge_truth = amine_and_nitro(data.x.argmax(-1), data.edge_index)
    mutagens_with_truth = [n for n, data in enumerate(graphs) if int(data.y) == 0 and bool(data.edge_truth.any())]
    instances, names = torch.tensor(mutagens_with_truth[:250]), ("mutagen", "non-mutagen")
    return Benchmark("mutagenicity", "graph", graphs, 2, instances, 15, 10, names, ATOMS, bonds=(1.0, 2.0, 3.0))


def msrc_21(root: Path | None = None) -> Benchmark:
    """563 images as graphs of regions, of 20 scenes; no ground truth."""
    graphs = tu_graphs("MSRC_21", root)
    return Benchmark(
        "msrc-21",
        "graph",
        graphs,
        20,
        torch.arange(min(250, len(graphs))),
        class_names=tuple(SCENES.split()),
        node_names=tuple(REGIONS.split()),
    )
