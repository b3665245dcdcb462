"""Mutagenicity and MSRC_21, by PyG's ``TUDataset``."""

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

ATOMS = ("C", "O", "Cl", "H", "N", "F", "Br", "S", "P", "I", "Na", "K", "Li", "Ca")

# The labels of the MSRC image database in its own order, and its twenty scenes by what sets each apart in the data.
REGIONS = (
    "void building grass tree cow horse sheep sky mountain aeroplane water face car bicycle flower sign bird book chair "
    "road cat dog body boat"
)
SCENES = (
    "pasture trees building aeroplane cow face car bicycle sheep flower sign bird book chair cat dog street water people "
    "boat"
)


def data_folder() -> Path | None:
    """The folder that NSEG_DATA names, for machines without network."""
    named = os.environ.get("NSEG_DATA")
    return Path(named) if named else None


def cache_folder() -> Path:
    """Where prepared datasets are kept: NSEG_CACHE, else ~/.cache/nseg."""
    return Path(os.environ.get("NSEG_CACHE") or Path.home() / ".cache" / "nseg")


def tu_graphs(name: str, root: Path | None = None) -> list[Data]:
    """The graphs of a TU dataset, from the cache, from NSEG_DATA or by download.

    Args:
        name: its name there.
        root: cache to use instead of the usual one.
    """
    root = root or cache_folder()
    raw, given = root / name / "raw", data_folder()
    if not (raw / f"{name}_A.txt").exists() and given is not None and (given / name / "raw").is_dir():
        shutil.copytree(given / name / "raw", raw, dirs_exist_ok=True)
    try:
        return list(TUDataset(str(root), name))
    except OSError as error:
        raise InputError(
            f"{name} must be downloaded once or given as files (no network, and nothing under {raw}). Put {name}_A.txt and "
            f"its companions into FOLDER/{name}/raw and set NSEG_DATA=FOLDER."
        ) from error


def amine_and_nitro(atom: Tensor, edge_index: Tensor) -> Tensor:
    """Bonds of NO2 and NH2 groups, the known cause of mutagenicity, [E].

    NO2: an N with exactly two O of degree 1 and a third neighbour that is not O; NH2: an N with exactly two H and a third
    neighbour that is not O. Only the two N-O or N-H bonds belong to the group.

    Args:
        atom: index into ``ATOMS`` of each node, [N].
        edge_index: bonds in both directions, [2, E].
    """
    source, end = edge_index
    degree = torch.bincount(end, minlength=atom.numel())
    nitrogen, oxygen, hydrogen = (atom == ATOMS.index(name) for name in ("N", "O", "H"))

    def neighbours(kind: Tensor) -> Tensor:
        """How many neighbours of a kind each node has."""
        return torch.zeros_like(atom).index_add(0, end, kind[source].long())

    three = nitrogen & (degree == 3)
    lone_oxygen = oxygen & (degree == 1)
    nitro = three & (neighbours(lone_oxygen) == 2) & (neighbours(oxygen) == 2)
    amine = three & (neighbours(hydrogen) == 2) & (neighbours(oxygen) == 0)
    forward = (nitro[end] & lone_oxygen[source]) | (amine[end] & hydrogen[source])
    backward = (nitro[source] & lone_oxygen[end]) | (amine[source] & hydrogen[end])
    return forward | backward


def mutagenicity(root: Path | None = None) -> Benchmark:
    """4337 molecules, mutagenic or not; ground truth is NO2 and NH2. Class 0 is mutagen."""
    graphs = tu_graphs("Mutagenicity", root)
    for data in graphs:
        data.edge_truth = amine_and_nitro(data.x.argmax(-1), data.edge_index)
    known = [n for n, data in enumerate(graphs) if int(data.y) == 0 and bool(data.edge_truth.any())]
    names = ("mutagen", "non-mutagen")
    return Benchmark(
        "mutagenicity", "graph", graphs, 2, torch.tensor(known[:250]), 15, 10, names, ATOMS, bonds=(1.0, 2.0, 3.0)
    )


def msrc_21(root: Path | None = None) -> Benchmark:
    """563 images as graphs of regions, 20 scenes; no ground truth."""
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
