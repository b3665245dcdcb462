"""What a run folder holds, read on demand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import torch
from torch_geometric.data import Data, Dataset

from nseg.errors import InputError, StoreError
from nseg.explanation import Explanation
from nseg.graphs.inputs import ModelInputs, Role, common_roles
from nseg.runs.folder import read_if_intact, read_manifest, stored_shards
from nseg.runs.layout import INTERLEAVED, ShardLayout
from nseg.runs.parquet import decode, read_file


class Explanations(Sequence[Explanation]):
    """The explanations in a folder, in the order of the targets, read on demand, without their graphs.

    :func:`attach` adds the graph to an explanation. Of an unfinished run there are those stored so far, in the order of
    their shards. A target that could not be explained has a ``reason`` and no masks.

    Args:
        folder: written by ``explain_many(..., out=folder)`` or :func:`nseg.runs.parquet.write`.
    """

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | Path) or not Path(folder).is_dir():
            raise InputError(f"The run folder must exist (got {folder}, which is not a folder). Check the path.")
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self._cache: dict[int, list[Explanation]] = {}

    @cached_property
    def _files(self) -> list[tuple[Path, int]]:
        """The files, and the number of explanations in each."""
        single = self.folder / "explanations.parquet"
        if single.is_file():
            return [(single, len(read_file(single)))]
        found, layout = stored_shards(self.folder), self._layout
        if any(number >= layout.shards for number in found):
            raise StoreError(f"{self.folder}: found more shards than the manifest lists. Delete those with higher numbers.")
        return [(found[n], len(layout.targets(n))) for n in sorted(found)]

    @cached_property
    def _layout(self) -> ShardLayout:
        try:
            found = ShardLayout(int(self.manifest["targets"]["number"]), int(self.manifest["shard"]))
            if min(found.total, found.size) > 0:
                return found
        except (KeyError, TypeError, ValueError, OverflowError):
            pass
        raise InputError(f"{self.folder} must hold explanations (it does not). Write them with explain_many.")

    @property
    def complete(self) -> bool:
        """Whether every target has an explanation; damaged files are only noticed when they are read."""
        targets = self.manifest.get("targets", {})
        return bool(len(self) == targets.get("number", len(self)))

    def __len__(self) -> int:
        return self._number

    @cached_property
    def _number(self) -> int:
        return sum(count for _, count in self._files)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Explanation]: ...
    def __getitem__(self, index: int | slice) -> Explanation | list[Explanation]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"There are {len(self)} explanations (got index {index}).")
        file, position = self._position(number)
        found: Explanation = self._content(file)[position].clone()
        return found

    def _position(self, number: int) -> tuple[int, int]:
        """The file that holds an explanation, and its position there."""
        if len(self._files) > 1 and len(self._files) == self._layout.shards:
            return self._layout.position(number)
        file = 0
        while number >= self._files[file][1]:
            number -= self._files[file][1]
            file += 1
        return file, number

    def _content(self, file: int) -> list[Explanation]:
        if file not in self._cache:
            path, count = self._files[file]
            content = read_if_intact(path) if path.parent != self.folder else path.read_bytes()
            if content is None:
                raise StoreError(f"{path} is damaged: its checksum differs. Start the run again, which replaces it.")
            found = decode(content, str(path))
            if len(found) != count:
                raise StoreError(
                    f"{path} must hold {count} explanations (got {len(found)}). Delete it and start the run again."
                )
            # interleaved targets are read from several shards in turn, so these stay in memory
            self._cache = {n: self._cache[n] for n in list(self._cache)[1 - INTERLEAVED :]} | {file: found}
        return self._cache[file]

    def __repr__(self) -> str:
        return f"Explanations({str(self.folder)!r}, {len(self)} stored)"


def read(folder: str | Path) -> Explanations:
    """The explanations in a folder, in the order of the targets, read on demand, without their graphs.

    Args:
        folder: written by ``explain_many(..., out=folder)``, by ``nseg explain --out`` or by
            :func:`nseg.runs.parquet.write`.
    """
    return Explanations(folder)


def attach(one: Explanation, data: Any, names: Sequence[str] = ()) -> Explanation:
    """A stored explanation together with its graph, so that it can be measured and drawn.

    Args:
        one: from :func:`nseg.read`.
        data: the graph, or the graphs, that were explained.
        names: the model's arguments besides ``x`` and ``edge_index``, which are attributes of ``data``; those that list the
            pairs of links are not supported.
    """
    number, single = int(one.output_id), not isinstance(data, Sequence | Dataset)
    if one.get("reason") is not None:
        raise InputError(f"Output {number} has no explanation to attach a graph to (it has a reason: {one.reason}).")
    if number >= (int(data.num_nodes) if single else len(data)):
        raise InputError(f"data must be what was explained (got one without output {number}).")
    found: Explanation = one.clone()
    graph = data if single else data[number]
    if one.node_id.numel() and int(one.node_id.max()) >= graph.num_nodes:
        raise InputError(f"data must be what was explained (got {graph.num_nodes} nodes, too few for output {number}).")
    large = hasattr(graph, "induced")
    small = graph.induced(one.node_id, one.edge_id) if large else _induced(graph, one, names)
    found.x, found.edge_index = small.x, small.edge_index
    for name in names:
        found[name] = small[name]
    found._model_args, found._model_config = list(names), None
    if single:
        found.index = torch.searchsorted(one.node_id, torch.tensor([number]))
        found.target = torch.full((one.node_id.numel(),), -1).index_copy(0, found.index, one.target)
    return found


def _induced(graph: Data, one: Explanation, names: Sequence[str]) -> Data:
    """The nodes and edges of an explanation, with some of the graph's further attributes."""
    ends = graph.edge_index[:, one.edge_id]
    position = torch.searchsorted(one.node_id, ends.contiguous()).clamp(max=max(one.node_id.numel() - 1, 0))
    if not torch.equal(one.node_id[position], ends):
        raise InputError(f"data must be what was explained (got other edges around output {one.output_id}).")
    small = Data(x=graph.x[one.node_id], edge_index=position)
    inputs = ModelInputs(graph.x, graph.edge_index, {name: graph[name] for name in names})
    for name, role in common_roles([inputs]).items():
        ids = {Role.NODE: one.node_id, Role.EDGE: one.edge_id}.get(role)
        small[name] = graph[name] if ids is None else graph[name][ids]
    return small
