"""Graphs that are too large to run the model on as a whole, in memory or on disk.

Incoming edges of each node stand together (CSR), so that cutting out what a target's output is computed from costs what is
cut out, not what the graph holds. On disk a graph is a folder of NumPy arrays, which are mapped into memory, so that it may
be larger than memory::

    FOLDER/graph.json      sizes, names, and a fingerprint of the content
    FOLDER/ptr.npy         where the incoming edges of each node begin, [N + 1]
    FOLDER/sender.npy      the other end of each, [E]
    FOLDER/edge.npy        the caller's number of each, [E]
    FOLDER/node.NAME.npy   features and further arrays with a row per node: node.x.npy, node.y.npy
    FOLDER/edge.NAME.npy   arrays with a row per edge, by the caller's number
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from nseg import fingerprint, store
from nseg.errors import BudgetError, InputError, StoreError

NEIGHBOURS = 1000
"""Most incoming edges of a node that are looked at by default."""

AT_ONCE = 1 << 22  # edges that are sorted in memory at once when a graph is written

Array = NDArray[Any]


class TooLargeError(BudgetError):
    """A part that would hold more nodes and edges than there is room for."""


@dataclass(frozen=True)
class Part:
    """A part of a large graph, in a numbering of its own.

    Args:
        data: the part as PyG has it.
        node, edge: the caller's numbers of its nodes and edges, sorted.
        left_out: how many incoming edges of each node were left out, because it has too many.
    """

    data: Data
    node: Tensor
    edge: Tensor
    left_out: Tensor

    def place(self, node: Tensor) -> Tensor:
        """Where some of the caller's nodes stand."""
        return torch.searchsorted(self.node, node.contiguous())


class LargeGraph:
    """One graph, of which the model is only ever shown the parts around explained targets.

    What a target's explanation is about is the model's output on the part around it, so many hops wide that one hop more
    changes nothing; that is checked for the targets of each shard, as many as the memory budget has room for.

    Args:
        source: a folder that :meth:`write` made, or a PyG ``Data`` object, which stays in memory.
        neighbours: of a node with more incoming edges than this, only so many, evenly spread, are looked at. Explanations
            say how many were left out (``left_out``), and a warning is given; their ``prediction`` is that without them.
            None looks at all.
    """

    def __init__(self, source: str | Path | Data, neighbours: int | None = NEIGHBOURS) -> None:
        whole = isinstance(neighbours, Integral) and not isinstance(neighbours, bool)
        if neighbours is not None and not (whole and neighbours > 0):
            raise InputError(f"neighbours must be a positive whole number or None (got {neighbours!r}). Try {NEIGHBOURS}.")
        self.neighbours = neighbours
        self.folder = None if isinstance(source, Data) else Path(source).absolute()
        if self.folder is None:
            self._note, self._arrays = _in_memory(source)
        else:
            self._note, self._arrays = _opened(self.folder)
        self.num_nodes, self.num_edges = int(self._note["nodes"]), int(self._note["edges"])

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if self.folder is not None:  # whoever gets it maps the files by itself
            del state["_arrays"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.folder is not None:
            self._note, self._arrays = _opened(self.folder)

    def __repr__(self) -> str:
        return f"LargeGraph({self.num_nodes} nodes, {self.num_edges} edges, neighbours={self.neighbours})"

    @classmethod
    def write(
        cls,
        folder: str | Path,
        edge_index: Any,
        x: Any,
        node: Mapping[str, Any] | None = None,
        edge: Mapping[str, Any] | None = None,
    ) -> LargeGraph:
        """Write a graph to disk; arrays that are mapped into memory themselves are never taken in as a whole.

        Args:
            folder: made if need be; must be empty.
            edge_index: NumPy array or tensor, [2, E].
            x: features, [N, F].
            node, edge: further arrays by name with a row per node (such as ``y``), and with a row per edge.
        """
        rows = {f"node.{name}": _array(value) for name, value in {"x": x, **(node or {})}.items()}
        rows |= {f"edge.{name}": _array(value) for name, value in (edge or {}).items()}
        ends = _checked(_array(edge_index), rows)
        nodes, edges = len(rows["node.x"]), ends.shape[1]
        root = store.prepared(folder)
        if any(root.iterdir()):
            raise StoreError(f"{root} must be empty (it is not). Give another folder.")
        try:
            _write_csr(root, ends, nodes)
            for name, value in rows.items():
                np.save(root / f"{name}.npy", value)
        except OSError as error:
            raise StoreError(f"{root} must be written (got: {error.strerror or error}). Make room and try again.") from error
        names = ["ptr", "sender", "edge", *rows]
        content = fingerprint.digest({name: fingerprint.of_file(root / f"{name}.npy") for name in names})
        store.write_json(
            root / "graph.json", {"format": 1, "nodes": nodes, "edges": edges, "arrays": names, "content": content}
        )
        return cls(root)

    def fingerprint(self) -> str:
        """A hash of the content and of what is left out."""
        content = self._note.get("content") or fingerprint.digest({k: torch.from_numpy(v) for k, v in self._arrays.items()})
        return f"{content} {self.neighbours}"

    # --- parts -----------------------------------------------------------------------------------------------------------

    def part(self, seeds: Tensor, hops: int, most: float = float("inf")) -> Part:
        """All that can reach the seeds in ``hops`` steps.

        Args:
            seeds: nodes.
            hops: how many steps.
            most: nodes and edges that it may hold; :class:`TooLargeError` is raised before there are more.
        """
        node, entry, receiver = self._reach(np.unique(seeds.numpy()), hops, most)
        edge = self._arrays["edge"][entry]
        order = np.argsort(edge, kind="stable")
        edge, ends = edge[order], np.stack([self._senders(entry), receiver])[:, order]
        ptr = self._arrays["ptr"]
        left_out = (ptr[node + 1] - ptr[node] - (self.neighbours or self.num_edges)).clip(min=0)
        return Part(self._data(node, edge, np.searchsorted(node, ends)), *map(_tensor, (node, edge, left_out)))

    def _data(self, node: Array, edge: Array, ends: Array) -> Data:
        """Some nodes and edges as PyG has them."""
        data = Data(edge_index=_tensor(ends))
        for name, value in self._arrays.items():
            kind, _, attribute = name.partition(".")
            if attribute:
                data[attribute] = _tensor(value[node if kind == "node" else edge])
        return data

    def cut(self, node: Tensor, edge: Tensor) -> Data:
        """Some nodes, sorted, and edges among them, by the caller's numbers."""
        entry, owner = self._entries(node.numpy(), limit=None)
        number = self._arrays["edge"][entry]
        order = np.argsort(number, kind="stable")
        at = order[np.searchsorted(number, edge.numpy(), sorter=order).clip(max=max(len(order) - 1, 0))]
        sender = self._senders(entry[at])
        place = np.searchsorted(node.numpy(), sender).clip(max=len(node) - 1)
        if not (np.array_equal(number[at], edge.numpy()) and np.array_equal(node.numpy()[place], sender)):
            raise InputError("data must be what was explained (got a graph with other edges there).")
        return self._data(node.numpy(), edge.numpy(), np.stack([place, owner[at]]))

    def _reach(self, seen: Array, hops: int, most: float) -> tuple[Array, Array, Array]:
        """Nodes, sorted, that can reach the seeds, and the places and the receivers of the edges over which they do."""
        ptr, frontier, size = self._arrays["ptr"], seen, len(seen)
        found, receiver = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for _ in range(hops):
            count = ptr[frontier + 1] - ptr[frontier]
            size += int(count.sum() if self.neighbours is None else np.minimum(count, self.neighbours).sum())
            if size > most:
                raise TooLargeError(
                    f"The memory budget must hold the computation graph of a target (got one of more than {int(most)} nodes "
                    f"and edges within {hops} hops). Raise budget=..., or look at fewer neighbours: "
                    f"LargeGraph(..., neighbours={max((self.neighbours or NEIGHBOURS) // 10, 1)})."
                )
            entry, owner = self._entries(frontier, self.neighbours)
            found.append(entry)
            receiver.append(frontier[owner])
            frontier = np.setdiff1d(self._senders(entry), seen)
            seen = np.union1d(seen, frontier)
            size += len(frontier)
        return seen, np.concatenate(found), np.concatenate(receiver)

    def _entries(self, node: Array, limit: int | None) -> tuple[Array, Array]:
        """Places of the incoming edges of some nodes, at most ``limit`` of each, evenly spread, and whose each is."""
        begin, end = (np.asarray(self._arrays["ptr"][node + side]) for side in (0, 1))
        degree = end - begin
        if len(node) and not (begin.min() >= 0 and end.max() <= self.num_edges and degree.min() >= 0):
            raise StoreError(f"{self.folder} must hold pointers into its edges (got others; it is damaged). Write it again.")
        count = degree if limit is None else np.minimum(degree, limit)
        owner = np.repeat(np.arange(len(node)), count)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        return begin[owner] + within * degree[owner] // np.maximum(count[owner], 1), owner

    def _senders(self, entry: Array) -> Array:
        found = np.asarray(self._arrays["sender"][entry], np.int64)
        if len(found) and not 0 <= found.min() <= found.max() < self.num_nodes:
            raise StoreError(f"{self.folder} must hold edges between its nodes (got others; it is damaged). Write it again.")
        return found


# --- in memory -----------------------------------------------------------------------------------------------------------


def _in_memory(data: Data) -> tuple[dict[str, Any], dict[str, Array]]:
    """Sizes and arrays of a PyG graph."""
    if not isinstance(data.x, Tensor) or not isinstance(data.edge_index, Tensor):
        raise InputError("A large graph needs x and edge_index as tensors (got none). Set them on the Data object.")
    if (
        not data.x.dim()
        or data.edge_index.dim() != 2
        or data.x.layout != torch.strided
        or data.edge_index.layout != torch.strided
    ):
        raise InputError(
            f"A large graph needs dense x [N, ...] and edge_index [2, E] (got {data.x.layout}, shape {tuple(data.x.shape)}, "
            f"and {data.edge_index.layout}, shape {tuple(data.edge_index.shape)}). Use to_dense(), or PyG's to_edge_index."
        )
    arrays, edges = {"node.x": _array(data.x)}, data.edge_index.size(1)
    for name, value in data.to_dict().items():
        if name in ("x", "edge_index") or not isinstance(value, Tensor) or not value.dim() or value.layout != torch.strided:
            continue
        if "edge" in name and len(value) == edges:
            arrays[f"edge.{name}"] = _array(value)
        elif len(value) == len(data.x):
            arrays[f"node.{name}"] = _array(value)
    ends = _checked(_array(data.edge_index), arrays)
    edge = np.argsort(ends[1], kind="stable")
    arrays |= {"ptr": _pointers(np.bincount(ends[1], minlength=len(data.x))), "sender": ends[0][edge], "edge": edge}
    return {"nodes": len(data.x), "edges": edges}, arrays


def _array(value: Any) -> Array:
    if isinstance(value, Tensor) and value.dtype is torch.bfloat16:
        raise InputError("A large graph holds types that NumPy knows (got torch.bfloat16). Use float().")
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asanyarray(value)


def _tensor(value: Any) -> Tensor:
    """A copy, which may be written to, of what may be mapped read-only."""
    return torch.from_numpy(np.array(value))


def _pointers(count: Array) -> Array:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(count, dtype=np.int64)])


def _checked(ends: Array, rows: Mapping[str, Array]) -> Array:
    """The edges, or a sentence on what is wrong with them."""
    x = rows["node.x"]
    if x.ndim == 0 or len(x) == 0:
        raise InputError(f"x must have at least one node (got shape {x.shape}).")
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise InputError(f"edge_index must be whole numbers, [2, E] (got {ends.dtype} of shape {ends.shape}).")
    if ends.size and not 0 <= ends.min() <= ends.max() < len(x):
        raise InputError(
            f"edge_index must hold node numbers from 0 to {len(x) - 1}, as x has {len(x)} rows "
            f"(got {ends.min()} to {ends.max()})."
        )
    for name, value in rows.items():
        kind, _, attribute = name.partition(".")
        expected = len(x) if kind == "node" else ends.shape[1]
        if value.ndim == 0 or len(value) != expected or value.dtype.kind not in "biuf":
            raise InputError(f"{attribute} must hold numbers, {expected} rows (got {value.dtype} of shape {value.shape}).")
    return ends


# --- on disk -------------------------------------------------------------------------------------------------------------


def _write_csr(root: Path, ends: Array, nodes: int) -> None:
    """Sort edges by their receivers, a bounded number in memory at once."""
    edges = ends.shape[1]
    pieces = [slice(start, start + AT_ONCE) for start in range(0, edges, AT_ONCE)]
    count = sum((np.bincount(ends[1, piece], minlength=nodes) for piece in pieces), np.zeros(nodes, np.int64))
    ptr = _pointers(count)
    np.save(root / "ptr.npy", ptr)
    if not edges:  # nothing can be mapped
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


def _opened(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Sizes and mapped arrays of a graph on disk."""
    try:
        note = json.loads((folder / "graph.json").read_text())
        arrays = {name: np.load(folder / f"{name}.npy", "r", allow_pickle=False) for name in map(_safe, note["arrays"])}
        nodes, edges = int(note["nodes"]), int(note["edges"])
        good = arrays["ptr"].shape == (nodes + 1,) and int(arrays["ptr"][-1]) == edges and nodes > 0
        good = good and all(len(arrays[name]) == edges and arrays[name].ndim == 1 for name in ("sender", "edge"))
        good = good and all(arrays[name].dtype == np.int64 for name in ("ptr", "sender", "edge")) and "node.x" in arrays
        sizes = {"node": nodes, "edge": edges}
        good = good and all(len(value) == sizes[name.partition(".")[0]] for name, value in arrays.items() if "." in name)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} must hold a graph (it has no {Path(str(error.filename)).name}). Write it with LargeGraph.write."
        ) from None
    except Exception as error:  # whatever a damaged file makes NumPy's reader do
        raise StoreError(f"{folder} must hold a graph that nseg wrote (got {type(error).__name__}: {error}).") from error
    if not good:
        raise StoreError(f"{folder} must hold a graph that nseg wrote (its arrays do not fit together). Write it again.")
    return note, arrays


def _safe(name: Any) -> str:
    """A name of an array, which must not lead out of the folder."""
    if not isinstance(name, str) or "/" in name or "\\" in name or "\0" in name:
        raise ValueError(f"{name!r} is no name")
    return name
