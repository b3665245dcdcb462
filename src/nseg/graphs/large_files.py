"""The files of a large graph on disk: edges sorted by receiver, and memory-mapped arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nseg.errors import InputError, StoreError
from nseg.graphs.large_types import LargeTypes

SORTED_AT_ONCE = 1 << 22  # edges that are sorted in memory at once when a graph is written

Array = NDArray[Any]


def offsets(count: Array) -> Array:
    """Where each node's edges begin, and the end of the last, [N + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(count, dtype=np.int64)])


def write_csr(root: Path, ends: Array, nodes: int) -> None:
    """Write the edges sorted by receiver; only a bounded number is in memory at once."""
    edges = ends.shape[1]
    pieces = [slice(start, start + SORTED_AT_ONCE) for start in range(0, edges, SORTED_AT_ONCE)]
    count = sum((np.bincount(ends[1, piece], minlength=nodes) for piece in pieces), np.zeros(nodes, np.int64))
    ptr = offsets(count)
    np.save(root / "ptr.npy", ptr)
    if not edges:  # an empty file cannot be memory-mapped
        np.save(root / "sender.npy", np.empty(0, np.int64))
        np.save(root / "edge.npy", np.empty(0, np.int64))
        return
    sender, edge = (np.lib.format.open_memmap(root / f"{name}.npy", "w+", np.int64, (edges,)) for name in ("sender", "edge"))
    following = ptr[:-1].copy()
    for piece in pieces:
        receiver = np.asarray(ends[1, piece])
        order = np.argsort(receiver, kind="stable")
        receiver = receiver[order]
        rank = np.arange(len(receiver)) - np.searchsorted(receiver, receiver)
        place = following[receiver] + rank
        sender[place], edge[place] = ends[0, piece][order], order + piece.start
        following += np.bincount(receiver, minlength=nodes)
    sender.flush()
    edge.flush()


def open_folder(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Sizes and memory-mapped arrays of a graph on disk."""
    try:
        note = json.loads((folder / "graph.json").read_text())
        # mode c: private pages that torch may call writable, although nothing is written
        arrays = {
            name: np.load(folder / f"{name}.npy", "c", allow_pickle=False) for name in map(_check_name, note["arrays"])
        }
        nodes, edges = int(note["nodes"]), int(note["edges"])
        good = arrays["ptr"].shape == (nodes + 1,) and int(arrays["ptr"][-1]) == edges and nodes > 0
        good = good and all(len(arrays[name]) == edges and arrays[name].ndim == 1 for name in ("sender", "edge"))
        good = good and all(arrays[name].dtype == np.int64 for name in ("ptr", "sender", "edge"))
        good = good and ("types" in note or "node.x" in arrays)
        sizes = {"node": nodes, "edge": edges}
        types = LargeTypes.from_plain_data(note["types"]) if "types" in note else None
        good = good and (types is None or (sum(types.nodes), sum(types.edges)) == (nodes, edges))
        for name, value in arrays.items():
            if "." in name:
                good = good and len(value) == (sizes[name.partition(".")[0]] if types is None else types.length(name))
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} must hold a graph (it has no {Path(str(error.filename)).name}). Write it with LargeGraph.write."
        ) from None
    except Exception as error:  # a damaged file can make NumPy raise almost anything
        raise StoreError(f"{folder} must hold a graph that nseg wrote (got {type(error).__name__}: {error}).") from error
    if not good:
        raise StoreError(f"{folder} must hold a graph that nseg wrote (its arrays do not fit together). Write it again.")
    return note, arrays


def _check_name(name: Any) -> str:
    """The name of an array, which must not lead out of the folder."""
    if not isinstance(name, str) or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a valid name")
    return name
