"""Datasets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from nseg.datasets.base import Benchmark
from nseg.datasets.dblp import dblp, dblp_public
from nseg.datasets.esol import esol
from nseg.datasets.names import check_name
from nseg.datasets.synthetic import ba_2motif, ba_2motif_public, ba_shapes, tree_cycles, tree_grid
from nseg.datasets.tu import data_folder, msrc_21, mutagenicity
from nseg.errors import InputError

_GENERATED: dict[str, Callable[[int], Benchmark]] = {
    "ba-shapes": ba_shapes,
    "tree-cycles": tree_cycles,
    "tree-grid": tree_grid,
    "ba-2motif": ba_2motif,
}
_FROM_FILES: dict[str, Callable[[Path | None], Benchmark]] = {
    "mutagenicity": mutagenicity,
    "msrc-21": msrc_21,
    "dblp": dblp,
    "esol": esol,
}


def load(name: str, seed: int = 0, public: bool = False, root: Path | None = None) -> Benchmark:
    """A dataset by name; every call returns its own copy, which may be changed.

    Args:
        name: ba-shapes, tree-cycles, tree-grid, ba-2motif, mutagenicity or msrc-21, the paper's; esol, a regression; or
            dblp, a heterogeneous graph.
        seed: seed of generated datasets; the same seed gives the same graphs. Ignored by the others.
        public: for ba-2motif, load the published graphs (``BA-2motifs.npz`` in the folder NSEG_DATA) instead of generating
            graphs; for dblp, PyG's own graph, which it downloads.
        root: cache folder for downloaded files; NSEG_CACHE or ~/.cache/nseg by default.
    """
    check_name(name)
    return _load(name, seed, public, root).copy()


@cache
def _load(name: str, seed: int, public: bool, root: Path | None) -> Benchmark:
    """The dataset that all copies are made of, read or generated once per process."""
    if public and name == "dblp":
        return dblp_public(root)
    if public:
        folder = data_folder()
        if name != "ba-2motif" or folder is None or not (folder / "BA-2motifs.npz").exists():
            raise InputError(
                "public=True needs the dataset dblp, or ba-2motif and the file BA-2motifs.npz in the folder NSEG_DATA "
                f"(got {name!r}, NSEG_DATA={folder}). Leave public out to generate the graphs."
            )
        return ba_2motif_public(str(folder / "BA-2motifs.npz"))
    return _GENERATED[name](seed) if name in _GENERATED else _FROM_FILES[name](root)
