"""Datasets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from nseg.datasets.base import Benchmark
from nseg.datasets.names import check_name
from nseg.datasets.synthetic import ba_2motif, ba_2motif_public, ba_shapes, tree_cycles, tree_grid
from nseg.datasets.tu import data_folder, msrc_21, mutagenicity
from nseg.errors import InputError

_SEEDED: dict[str, Callable[[int], Benchmark]] = {
    "ba-shapes": ba_shapes,
    "tree-cycles": tree_cycles,
    "tree-grid": tree_grid,
    "ba-2motif": ba_2motif,
}
_FIXED: dict[str, Callable[[Path | None], Benchmark]] = {"mutagenicity": mutagenicity, "msrc-21": msrc_21}


@cache
def load(name: str, seed: int = 0, public: bool = False, root: Path | None = None) -> Benchmark:
    """A dataset of the paper.

    Args:
        name: ba-shapes, tree-cycles, tree-grid, ba-2motif, mutagenicity or msrc-21.
        seed: of the generated ones; the same seed gives the same graphs.
        public: for ba-2motif, the published graphs (``BA-2motifs.npz`` below NSEG_DATA) instead of generated ones.
        root: folder to keep downloaded data in.
    """
    check_name(name)
    if public:
        folder = data_folder()
        if name != "ba-2motif" or folder is None or not (folder / "BA-2motifs.npz").exists():
            raise InputError(
                "public=True needs ba-2motif and BA-2motifs.npz below the folder that NSEG_DATA names "
                f"(got {name!r}, NSEG_DATA={folder}). Leave it out to generate the graphs."
            )
        return ba_2motif_public(str(folder / "BA-2motifs.npz"))
    return _SEEDED[name](seed) if name in _SEEDED else _FIXED[name](root)
