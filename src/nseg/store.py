"""Explanations on disk: Parquet files with documented columns and a JSON manifest, each written whole or not at all.

Columns, a row per explanation (:data:`SCHEMA`):

- ``output_id``: which output of the caller's graph (node, link or graph), ``target``: its explained class,
  ``reason``: why it could not be explained, null if it was;
- ``p_factual``, ``p_complement``, ``pns``, ``pn``, ``ps``, ``soft_p_factual``, ``soft_p_complement``, ``exact``,
  ``left_out``: as on an explanation; null where its algorithm does not give them;
- ``edge_id``, ``node_id``: the caller's numbers of the edges and nodes of the computation graph;
- ``edge_mask``, ``hard_edge_mask``, ``reached``: a value for each of those edges; ``node_mask``, ``hard_node_mask``: row by
  row, ``node_mask_width`` values for each of those nodes.

A folder holds either one file, ``explanations.parquet``, or many, ``explanations/NUMBER-CHECKSUM.parquet``
(:mod:`nseg.shards`), so that ``pandas.read_parquet``, DuckDB and Polars open either.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data, Dataset

from nseg.errors import InputError, StoreError
from nseg.explanation import Explanation, placed
from nseg.instances import Inputs, Role, roles_in

NUMBERS = ("p_factual", "p_complement", "pns", "pn", "ps", "soft_p_factual", "soft_p_complement")
TENSORS = {
    "edge_id": torch.long,
    "node_id": torch.long,
    "edge_mask": torch.float,
    "hard_edge_mask": torch.bool,
    "reached": torch.bool,
    "node_mask": torch.float,
    "hard_node_mask": torch.bool,
}
DEALT = 4  # shards among which neighbouring targets are dealt
EXTRAS = ("exact", "left_out")  # that not every explanation has
_ARROW = {torch.long: pa.int64(), torch.float: pa.float32(), torch.bool: pa.bool_()}
SCHEMA = pa.schema(
    {
        "output_id": pa.int64(),
        "target": pa.int64(),
        "reason": pa.string(),
        **dict.fromkeys(NUMBERS, pa.float64()),
        "exact": pa.bool_(),
        "left_out": pa.int64(),
        **{name: pa.list_(_ARROW[dtype]) for name, dtype in TENSORS.items()},
        "node_mask_width": pa.int64(),
    }
)


def write(folder: str | Path, explanations: Sequence[Explanation], manifest: dict[str, Any]) -> None:
    """Write explanations and what made them.

    Args:
        folder: made if need be; ``explanations.parquet`` and ``manifest.json`` in it are replaced.
        explanations: from ``explain_many``.
        manifest: plain data; versions are added.
    """
    folder = prepared(folder)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }
    write_explanations(folder / "explanations.parquet", explanations)
    write_json(folder / "manifest.json", {**manifest, "versions": versions})


def write_explanations(path: Path, explanations: Sequence[Explanation]) -> None:
    """Write explanations as Parquet, a row each."""
    write_bytes(path, encode(explanations))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    replace_file(path, lambda place: place.write_bytes(content))


def encode(explanations: Sequence[Explanation]) -> bytes:
    """Explanations as the content of a Parquet file; equal explanations give equal bytes."""
    rows = [one if one.get("reason") is not None else placed(one) for one in explanations]
    columns: dict[str, list[Any]] = {"output_id": [int(one.output_id) for one in rows]}
    columns["target"] = [_target(one) for one in rows]
    for name in ("reason", *NUMBERS, *EXTRAS):
        columns[name] = [one.get(name) for one in rows]
    for name, dtype in TENSORS.items():
        columns[name] = [None if one.get(name) is None else one[name].flatten().to("cpu", dtype).numpy() for one in rows]
    columns["node_mask_width"] = [None if one.get("node_mask") is None else one.node_mask.size(1) for one in rows]
    content = BytesIO()
    pq.write_table(pa.table(columns, schema=SCHEMA), content, compression="zstd")
    return content.getvalue()


def decode(content: bytes, name: str = "The file") -> list[Explanation]:
    """The explanations in the content of a Parquet file, without their graphs."""
    try:
        table = pq.read_table(BytesIO(content))
        columns = {field: table.column(field).combine_chunks() for field in SCHEMA.names if field in table.column_names}
        return [_explanation({field: _value(column[n]) for field, column in columns.items()}) for n in range(len(table))]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RuntimeError, OverflowError) as error:
        raise StoreError(
            f"{name} must be a Parquet file of explanations that nseg wrote (got {type(error).__name__}: {error}). If it is "
            "part of a run, start the run again, which redoes what is damaged."
        ) from error


def _value(scalar: Any) -> Any:
    """A plain value, or an array for a list."""
    if not pa.types.is_list(scalar.type):
        return scalar.as_py()
    return None if not scalar.is_valid else scalar.values.to_numpy(zero_copy_only=False)


def prepared(folder: str | Path) -> Path:
    """A folder to write into, made if need be."""
    if not isinstance(folder, str | Path) or not str(folder):
        raise InputError(f"The output must be the name of a folder (got {folder!r}).")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The output must be a folder that can be made (got {folder}: {error.strerror}). Give another folder."
        ) from error
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data; what is not a number becomes null."""
    text = json_text(content)
    replace_file(path, lambda place: place.write_text(text))


def json_text(content: dict[str, Any]) -> str:
    """Plain data as JSON; what is not a number becomes null."""
    return json.dumps(_without_nan(content), indent=1, sort_keys=True, allow_nan=False) + "\n"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(folder: str | Path) -> tuple[list[Explanation], dict[str, Any]]:
    """All explanations (without their graphs) and the manifest."""
    found = Explanations(folder)
    return list(found), found.manifest


def read_explanations(path: Path) -> list[Explanation]:
    """Explanations, without their graphs."""
    return decode(path.read_bytes(), str(path))


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a folder says of itself."""
    try:
        found = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        raise InputError(
            f"{folder} must hold manifest.json (it does not). Write it with explain_many(..., out=...)."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{folder / 'manifest.json'} must be JSON (got {type(error).__name__}), so what the folder holds cannot be "
            "told. Give another folder, or delete this one."
        ) from error
    if not isinstance(found, dict):
        raise StoreError(f"{folder / 'manifest.json'} must be a JSON object (got {type(found).__name__}).")
    return found


@dataclass(frozen=True)
class Layout:
    """How targets are laid out in shards: each four hold so many targets in a row, dealt to them in turn.

    Targets that follow each other are often alike, and so the four take equally long.

    Args:
        total: how many targets there are.
        size: how many a shard holds at the most.

    >>> layout = Layout(10, 2)
    >>> [list(layout.targets(number)) for number in range(layout.shards)]
    [[0, 4], [1, 5], [2, 6], [3, 7], [8, 9]]
    >>> layout.place(6)
    (2, 1)
    """

    total: int
    size: int

    @property
    def shards(self) -> int:
        """How many there are."""
        return -(-self.total // self.size)

    def _table(self, shard: int) -> tuple[int, int]:
        """The first shard among which the targets of a shard were dealt, and how many shards they are."""
        first = shard - shard % DEALT
        return first, min(DEALT, self.shards - first)

    def targets(self, shard: int) -> range:
        """The targets of a shard."""
        first, shards = self._table(shard)
        end = min((first + shards) * self.size, self.total)
        return range(first * self.size + shard - first, end, shards)

    def place(self, target: int) -> tuple[int, int]:
        """The shard that holds a target, and where in it."""
        first, shards = self._table(target // self.size)
        turn, seat = divmod(target - first * self.size, shards)
        return first + seat, turn


class Explanations(Sequence[Explanation]):
    """The explanations in a folder, in the order of the targets, read when they are asked for, without their graphs.

    :func:`attach` gives an explanation its graph again. Of a run that is not finished there are those that it has stored,
    in the order of their shards. A target that could not be explained has a ``reason`` and no masks.

    Args:
        folder: written by ``explain_many(..., out=folder)`` or :func:`write`.
    """

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | Path) or not Path(folder).is_dir():
            raise InputError(f"The folder of a run must be there (got {folder}, which is no folder). Check the path.")
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self._kept: dict[int, list[Explanation]] = {}

    @cached_property
    def _files(self) -> list[tuple[Path, int]]:
        """The files and how many explanations each holds."""
        single = self.folder / "explanations.parquet"
        if single.is_file():
            return [(single, len(read_explanations(single)))]
        files, layout = stored_shards(self.folder), self._layout
        if any(number >= layout.shards for number in files):
            raise StoreError(
                f"{self.folder} must hold no more shards than its manifest says (it does). Delete those behind."
            )
        return [(files[n], len(layout.targets(n))) for n in sorted(files)]

    @cached_property
    def _layout(self) -> Layout:
        try:
            found = Layout(int(self.manifest["targets"]["number"]), int(self.manifest["shard"]))
            if min(found.total, found.size) > 0:
                return found
        except (KeyError, TypeError, ValueError, OverflowError):
            pass
        raise InputError(f"{self.folder} must hold explanations (it does not). Write them with explain_many.")

    @property
    def complete(self) -> bool:
        """Whether there is one for every target; whether a file is damaged is seen when it is read."""
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
        file, place = self._place(number)
        found: Explanation = self._content(file)[place].clone()
        return found

    def _place(self, number: int) -> tuple[int, int]:
        """The file that holds an explanation, and where in it."""
        if len(self._files) > 1 and len(self._files) == self._layout.shards:
            return self._layout.place(number)
        file = 0
        while number >= self._files[file][1]:
            number -= self._files[file][1]
            file += 1
        return file, number

    def _content(self, file: int) -> list[Explanation]:
        if file not in self._kept:
            path, count = self._files[file]
            content = intact(path) if path.parent != self.folder else path.read_bytes()
            if content is None:
                raise StoreError(
                    f"{path} must be as it was written (its checksum is another). Start the run again, which redoes it."
                )
            found = decode(content, str(path))
            if len(found) != count:
                raise StoreError(
                    f"{path} must hold {count} explanations (got {len(found)}). Delete it and start the run again."
                )
            self._kept = {n: self._kept[n] for n in list(self._kept)[1 - DEALT :]} | {file: found}
        return self._kept[file]

    def __repr__(self) -> str:
        return f"Explanations({str(self.folder)!r}, {len(self)} stored)"


def shard_name(number: int, content: bytes) -> str:
    """The name of a shard, which holds its checksum."""
    return f"{number:06d}-{hashlib.sha256(content).hexdigest()[:32]}.parquet"


def stored_shards(folder: Path) -> dict[int, Path]:
    """The shards in a run's folder by number, whether they are intact or not."""
    names = {path: path.stem.partition("-")[0] for path in (folder / "explanations").glob("*-*.parquet")}
    return {int(number): path for path, number in names.items() if number.isdecimal()}


def intact(path: Path) -> bytes | None:
    """The content of a shard if it is what was written, else None."""
    try:
        content = path.read_bytes()
    except OSError:  # a medium that cannot be read
        return None
    return content if path.name == shard_name(int(path.stem.partition("-")[0]), content) else None


def attach(one: Explanation, data: Any, names: Sequence[str] = ()) -> Explanation:
    """A stored explanation with its graph again, so that it can be judged and drawn.

    Args:
        one: from :func:`read` or :func:`read_explanations`.
        data: the graph, or the graphs, that were explained.
        names: of the model's arguments besides ``x`` and ``edge_index``, which are attributes of ``data``; for links those
            that say which pairs are explained are not covered.
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
    large = hasattr(graph, "cut")
    small = graph.cut(one.node_id, one.edge_id) if large else _cut(graph, one, names)
    found.x, found.edge_index = small.x, small.edge_index
    for name in names:
        found[name] = small[name]
    found._model_args, found._model_config = list(names), None
    if single:
        found.index = torch.searchsorted(one.node_id, torch.tensor([number]))
        found.target = torch.full((one.node_id.numel(),), -1).index_copy(0, found.index, one.target)
    return found


def _cut(graph: Data, one: Explanation, names: Sequence[str]) -> Data:
    """The nodes and edges of an explanation, with some of the graph's further attributes."""
    ends = graph.edge_index[:, one.edge_id]
    place = torch.searchsorted(one.node_id, ends.contiguous()).clamp(max=max(one.node_id.numel() - 1, 0))
    if not torch.equal(one.node_id[place], ends):
        raise InputError(f"data must be what was explained (got other edges around output {one.output_id}).")
    small = Data(x=graph.x[one.node_id], edge_index=place)
    inputs = Inputs(graph.x, graph.edge_index, {name: graph[name] for name in names})
    for name, role in roles_in([inputs]).items():
        ids = {Role.NODE: one.node_id, Role.EDGE: one.edge_id}.get(role)
        small[name] = graph[name] if ids is None else graph[name][ids]
    return small


def _explanation(row: dict[str, Any]) -> Explanation:
    found = Explanation(output_id=row["output_id"])
    if row.get("reason") is not None:
        found.reason = row["reason"]
        return found
    found.target = torch.tensor([row["target"]])
    for name in NUMBERS:
        found[name] = row[name]
    for name in EXTRAS:
        if row.get(name) is not None:
            found[name] = row[name]
    for name, dtype in TENSORS.items():
        if row[name] is not None:
            value: Tensor = torch.from_numpy(np.array(row[name])).to(dtype)
            found[name] = value.view(-1, row["node_mask_width"]) if name.endswith("node_mask") else value
    return found


def _target(one: Explanation) -> int | None:
    index = one.get("index")
    if one.get("target") is None:
        return None
    return int(one.target if index is None else one.target[index])


def replace_file(path: Path, make: Callable[[Path], object]) -> None:
    """Make a file beside its place and move it there, so that none is ever half written, also if the power fails."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make(beside)
        _to_disk(beside)
        os.replace(beside, path)
        _to_disk(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} must be written (got: {error.strerror or error}). Make room or mend the disk, then start again; what "
            "is stored already is whole."
        ) from error
    finally:
        beside.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk itself."""
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
