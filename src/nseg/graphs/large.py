"""Graphs that are too large to run the model on as a whole, in memory or on disk.

Incoming edges are stored per node (CSR), so cutting a subgraph costs what it holds, not what the graph holds. On disk a
graph is a folder of NumPy arrays, which are memory-mapped, so a graph may be larger than memory::

    FOLDER/graph.json      sizes, names, and a hash of the content
    FOLDER/ptr.npy         offset of each node's incoming edges, [N + 1]
    FOLDER/sender.npy      sender of each, [E]
    FOLDER/edge.npy        the caller's number of each, [E]
    FOLDER/node.NAME.npy   features and further arrays with a row per node: node.x.npy, node.y.npy
    FOLDER/edge.NAME.npy   arrays with a row per edge, by the caller's number

Nodes and edges of a heterogeneous graph are numbered through, type after type; ``graph.json`` holds the types, and the
arrays of type n are ``node.NAME.n.npy`` and ``edge.NAME.n.npy``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from nseg.errors import BudgetError, InputError, StoreError
from nseg.graphs.checks import matrix_as_edges
from nseg.graphs.inputs import EDGE_VALUE
from nseg.graphs.large_files import offsets, open_folder, write_csr
from nseg.graphs.large_types import LargeTypes, arrays_of, joined_edges, typed_arrays
from nseg.graphs.subgraph import IncomingEdges, Neighbourhood
from nseg.storage import files, hashing

NEIGHBOURS = 1000
"""Default limit of the incoming edges of one node that are followed."""

Array = NDArray[Any]


class TooLargeError(BudgetError):
    """A subgraph that would hold more nodes and edges than allowed."""


@dataclass(frozen=True)
class Subgraph:
    """A subgraph of a large graph, with its own numbering.

    Args:
        data: the subgraph as a PyG object.
        node, edge: the caller's numbers of its nodes and edges, sorted.
        left_out: number of incoming edges of each node that were not followed, because it has too many.
    """

    data: Data | HeteroData
    node: Tensor
    edge: Tensor
    left_out: Tensor

    def position(self, node: Tensor) -> Tensor:
        """Positions of some of the caller's nodes."""
        return torch.searchsorted(self.node, node.contiguous())


class LargeGraph:
    """One graph, of which the model only sees the subgraphs around explained targets.

    An explanation is about the model's output on the subgraph around its target. The subgraph is so wide that one more hop
    does not change the output; this is verified for the targets of each shard, as far as the memory budget allows.

    Args:
        source: a folder written by :meth:`write`, or a PyG ``Data`` or ``HeteroData`` object, which stays in memory.
        neighbours: limit of the incoming edges of one node that are followed, evenly spread over them. Explanations say
            how many edges were left out (``left_out``), and a warning is issued; their ``prediction`` is the one without
            these edges. None follows all edges.
    """

    def __init__(self, source: str | Path | Data | HeteroData, neighbours: int | None = NEIGHBOURS) -> None:
        whole = isinstance(neighbours, Integral) and not isinstance(neighbours, bool)
        if neighbours is not None and not (whole and neighbours > 0):
            raise InputError(f"neighbours must be a positive whole number or None (got {neighbours!r}). Try {NEIGHBOURS}.")
        if not isinstance(source, Data | HeteroData | str | Path):
            raise InputError(
                f"A LargeGraph must be made of a folder or one graph, Data or HeteroData (got {type(source).__name__}). "
                "Write arrays with LargeGraph.write."
            )
        self.neighbours = neighbours
        self.folder = None if isinstance(source, Data | HeteroData) else Path(source).absolute()
        self._load(source if isinstance(source, Data | HeteroData) else None)

    def _load(self, data: Data | HeteroData | None) -> None:
        self._note, self._arrays = open_folder(Path(str(self.folder))) if data is None else _arrays_in_memory(data)
        known = self._note.get("types")
        self.types = None if known is None else LargeTypes.from_plain_data(known)
        self.num_nodes, self.num_edges = int(self._note["nodes"]), int(self._note["edges"])
        ptr, sender, edge = (torch.from_numpy(self._arrays[name]) for name in ("ptr", "sender", "edge"))
        self.incoming = _CheckedEdges(ptr, sender, edge, self.num_edges, self.neighbours, self.folder)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        if self.folder is not None:  # the receiving process maps the files itself
            del state["_arrays"], state["incoming"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.folder is not None:
            self._load(None)

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
        """Write a graph to disk; memory-mapped arrays are never read as a whole.

        Args:
            folder: created if needed; must be empty.
            edge_index: NumPy array or tensor, [2, E].
            x: features, [N, F].
            node, edge: further arrays by name, with a row per node (such as ``y``) or per edge.

        Of a heterogeneous graph, all of these are dictionaries by type, such as ``data.edge_index_dict``, ``data.x_dict``
        and ``{"y": {"author": y}}``.
        """
        types, given = None, {"x": x, **(node or {})}
        if isinstance(edge_index, Mapping):
            edges_of = {kind: _as_array(value) for kind, value in edge_index.items()}
            types, rows = typed_arrays(edges_of, _by_type(given), _by_type(edge or {}), {})
            nodes, edges = sum(types.nodes), sum(types.edges)
        else:
            rows = {f"node.{name}": _as_array(value) for name, value in given.items()}
            rows |= {f"edge.{name}": _as_array(value) for name, value in (edge or {}).items()}
            ends = _check_arrays(_as_array(edge_index), rows)
            nodes, edges = len(rows["node.x"]), ends.shape[1]
        root = files.prepare_folder(folder)
        if any(root.iterdir()):
            raise StoreError(f"{root} must be empty (it is not). Choose another folder.")
        try:
            if types is not None:
                ends = joined_edges(edges_of, types, root / "ends.npy")
            write_csr(root, ends, nodes)
            (root / "ends.npy").unlink(missing_ok=True)
            for name, value in rows.items():
                np.save(root / f"{name}.npy", value)
        except OSError as error:
            raise StoreError(
                f"{root} could not be written (got: {error.strerror or error}). Free some space and try again."
            ) from error
        names = ["ptr", "sender", "edge", *rows]
        content = hashing.digest({name: hashing.hash_file(root / f"{name}.npy") for name in names})
        note = {"format": 1, "nodes": nodes, "edges": edges, "arrays": names, "content": content}
        note |= {} if types is None else {"types": types.as_plain_data()}
        files.write_json(root / "graph.json", note)
        return cls(root)

    def fingerprint(self) -> str:
        """Hash of the content, with the limit of neighbours."""
        content = self._note.get("content") or hashing.digest({k: torch.from_numpy(v) for k, v in self._arrays.items()})
        further = [one for one in (self.types, self._note.get("matrix")) if one is not None]
        return " ".join(map(str, [content, self.neighbours, *further]))

    # --- subgraphs -------------------------------------------------------------------------------------------------------

    def subgraph(self, seeds: Tensor, hops: int, most: float = float("inf")) -> Subgraph:
        """Everything that reaches the seeds in ``hops`` steps.

        Args:
            seeds: nodes.
            hops: number of steps.
            most: limit of its nodes and edges; :class:`TooLargeError` is raised before they are read.
        """
        found = self._reach(seeds, hops, most)
        edge, order = self.incoming.edge[found.entry].sort(stable=True)
        ends = torch.stack([self.incoming.senders(found.entry), found.receiver])[:, order]
        begin, end = self.incoming.ranges(found.nodes)
        left_out = (end - begin - (self.neighbours or self.num_edges)).clamp(min=0)
        data = self._data(found.nodes, edge, torch.searchsorted(found.nodes, ends.contiguous()))
        form = self._note.get("matrix")
        if form is not None:  # nodes keep their order, and so do the entries of the matrix
            size = found.nodes.numel(), found.nodes.numel()
            data.adj_t = form.matrix(data.edge_index, data.get(EDGE_VALUE), size)
            del data.edge_index
        return Subgraph(data, found.nodes, edge, left_out)

    def _reach(self, seeds: Tensor, hops: int, most: float) -> Neighbourhood:
        """The neighbourhood of all seeds together, unless it is too large."""
        seeds = torch.unique(seeds)
        found = self.incoming.start(seeds, torch.zeros_like(seeds))
        for _ in range(hops):
            if found.nodes.numel() + found.entry.numel() + self.incoming.next_edges(found) > most:
                raise TooLargeError(
                    f"The memory budget must hold the computation graph of a target (got one of more than {int(most)} nodes "
                    f"and edges within {hops} hops). Raise budget=..., or follow fewer neighbours: "
                    f"LargeGraph(..., neighbours={max((self.neighbours or NEIGHBOURS) // 10, 1)})."
                )
            found = self.incoming.widen(found)
        return found

    def induced(self, node: Tensor, edge: Tensor) -> Data | HeteroData:
        """The subgraph of some nodes, sorted, and edges between them, by the caller's numbers."""
        entry, owner = self.incoming.entries(node, limit=None)
        number, order = self.incoming.edge[entry].sort(stable=True)
        at = torch.searchsorted(number, edge.contiguous()).clamp(max=max(order.numel() - 1, 0))
        sender = self.incoming.senders(entry[order][at])
        position = torch.searchsorted(node, sender).clamp(max=node.numel() - 1)
        if not (torch.equal(number[at], edge) and torch.equal(node[position], sender)):
            raise InputError("data must be the graph that was explained (got one with other edges there).")
        return self._data(node, edge, torch.stack([position, owner[order][at]]))

    def _data(self, node: Tensor, edge: Tensor, ends: Tensor) -> Data | HeteroData:
        """Some nodes and edges as a PyG object."""
        if self.types is not None:
            return self.types.data(self._arrays, node, edge, ends)
        data = Data(edge_index=ends)
        for name, value in self._arrays.items():
            kind, _, attribute = name.partition(".")
            if attribute:
                data[attribute] = torch.from_numpy(np.array(value[(node if kind == "node" else edge).numpy()]))
        return data


class _CheckedEdges(IncomingEdges):
    """Incoming edges from a file, which may be damaged."""

    def __init__(
        self, ptr: Tensor, sender: Tensor, edge: Tensor, num_edges: int, limit: int | None, folder: Path | None
    ) -> None:
        super().__init__(ptr, sender, edge, num_edges, limit)
        self.folder = folder

    def ranges(self, node: Tensor) -> tuple[Tensor, Tensor]:
        begin, end = super().ranges(node)
        if node.numel() and not (
            int(begin.min()) >= 0 and int(end.max()) <= self.edge.numel() and int((end - begin).min()) >= 0
        ):
            raise StoreError(f"{self.folder} is damaged: its pointers must point to its edges. Write the graph again.")
        return begin, end

    def senders(self, entry: Tensor) -> Tensor:
        found = super().senders(entry)
        if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < self.num_nodes:
            raise StoreError(f"{self.folder} is damaged: its edges must join its nodes. Write the graph again.")
        return found


# --- in memory -----------------------------------------------------------------------------------------------------------


def _arrays_in_memory(data: Data | HeteroData) -> tuple[dict[str, Any], dict[str, Array]]:
    """Sizes and arrays of a PyG graph."""
    if isinstance(data, HeteroData):
        edges_of, node, edge, counts = arrays_of(data)
        ends_of = {kind: _as_array(value) for kind, value in edges_of.items()}
        types, arrays = typed_arrays(ends_of, _by_type(node), _by_type(edge), counts)
        nodes = sum(types.nodes)
        if not nodes:
            raise InputError("A large graph must have at least one node (got none).")
        note = {"nodes": nodes, "edges": sum(types.edges), "types": types.as_plain_data()}
        return note, {**arrays, **_sorted_by_receiver(joined_edges(ends_of, types), nodes)}
    data, form = matrix_as_edges(data)
    if not isinstance(data.x, Tensor) or not isinstance(data.edge_index, Tensor):
        raise InputError(
            "A large graph needs x and edge_index as tensors, or adj_t as a sparse matrix (got none). Set them on the Data "
            "object."
        )
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
    arrays, edges = {"node.x": _as_array(data.x)}, data.edge_index.size(1)
    for name, value in data.to_dict().items():
        if name in ("x", "edge_index") or not isinstance(value, Tensor) or not value.dim() or value.layout != torch.strided:
            continue
        if "edge" in name and len(value) == edges:
            arrays[f"edge.{name}"] = _as_array(value)
        elif len(value) == len(data.x):
            arrays[f"node.{name}"] = _as_array(value)
    arrays |= _sorted_by_receiver(_check_arrays(_as_array(data.edge_index), arrays), len(data.x))
    return {"nodes": len(data.x), "edges": edges, "matrix": form}, arrays


def _sorted_by_receiver(ends: Array, nodes: int) -> dict[str, Array]:
    """Incoming edges per node: offsets, senders, and the caller's numbers."""
    edge = np.argsort(ends[1], kind="stable")
    ptr = offsets(np.bincount(ends[1], minlength=nodes))
    return {"ptr": ptr, "sender": ends[0][edge].astype(np.int64), "edge": edge}


def _by_type(values: Mapping[str, Any]) -> dict[str, dict[Any, Array]]:
    """Arrays by name and type."""
    for name, value in values.items():
        if not isinstance(value, Mapping):
            raise InputError(
                f"Arrays of a heterogeneous graph must be dictionaries by type (got {type(value).__name__} as {name}). Give "
                "data.x_dict, data.edge_index_dict and the like."
            )
    return {name: {kind: _as_array(v) for kind, v in value.items() if v is not None} for name, value in values.items()}


def _as_array(value: Any) -> Array:
    if isinstance(value, Tensor) and value.dtype is torch.bfloat16:
        raise InputError("A large graph must have dtypes that NumPy supports (got torch.bfloat16). Convert with float().")
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asanyarray(value)


def _check_arrays(ends: Array, rows: Mapping[str, Array]) -> Array:
    """The edges, checked together with the arrays of nodes and edges."""
    x = rows["node.x"]
    if x.ndim == 0 or len(x) == 0:
        raise InputError(f"x must have at least one node (got shape {x.shape}).")
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype.kind not in "iu":
        raise InputError(f"edge_index must be whole numbers, [2, E] (got {ends.dtype} of shape {ends.shape}).")
    if ends.size and not 0 <= ends.min() <= ends.max() < len(x):
        raise InputError(
            f"edge_index must hold node numbers from 0 to {len(x) - 1}, because x has {len(x)} rows "
            f"(got {ends.min()} to {ends.max()})."
        )
    for name, value in rows.items():
        kind, _, attribute = name.partition(".")
        expected = len(x) if kind == "node" else ends.shape[1]
        if value.ndim == 0 or len(value) != expected or value.dtype.kind not in "biuf":
            raise InputError(f"{attribute} must hold numbers, {expected} rows (got {value.dtype} of shape {value.shape}).")
    return ends
