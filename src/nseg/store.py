"""Explanations on disk: a Parquet file and a JSON manifest, written whole or not at all."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.data import Data

from nseg.errors import InputError
from nseg.explanation import Explanation
from nseg.many import placed

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
    explanations = [placed(one) for one in explanations]
    columns: dict[str, list[Any]] = {"output_id": [int(one.output_id) for one in explanations]}
    columns["target"] = [_target(one) for one in explanations]
    for name in NUMBERS:
        columns[name] = [one.get(name) for one in explanations]
    for name in TENSORS:
        columns[name] = [None if one.get(name) is None else one[name].flatten().tolist() for one in explanations]
    columns["node_mask_width"] = [None if one.get("node_mask") is None else one.node_mask.size(1) for one in explanations]
    replace_file(path, lambda place: pq.write_table(pa.table(columns), place, compression="zstd"))


def prepared(folder: str | Path) -> Path:
    """A folder to write into, made if need be."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The output must be a folder that can be made (got {folder}: {error.strerror}).") from error
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data; what is not a number becomes null."""
    text = json.dumps(_without_nan(content), indent=1, sort_keys=True, allow_nan=False) + "\n"
    replace_file(path, lambda place: place.write_text(text))


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read(folder: str | Path) -> tuple[list[Explanation], dict[str, Any]]:
    """Explanations (without their graphs) and manifest."""
    folder = Path(folder)
    for name in ("explanations.parquet", "manifest.json"):
        if not (folder / name).is_file():
            raise InputError(f"{folder} must hold {name} (it does not). Write it with nseg explain --out.")
    return read_explanations(folder / "explanations.parquet"), json.loads((folder / "manifest.json").read_text())


def read_explanations(path: Path) -> list[Explanation]:
    """Explanations, without their graphs."""
    return [_explanation(row) for row in pq.read_table(path).to_pylist()]


def attach(one: Explanation, data: Data | Sequence[Data]) -> Explanation:
    """A stored explanation with its graph again, so that it can be judged and drawn.

    Args:
        one: from :func:`read` or :func:`read_explanations`.
        data: the graph, or the graphs, that were explained; models that take more than ``x`` and ``edge_index`` are not
            covered.
    """
    number = int(one.output_id)
    if number >= (int(data.num_nodes) if isinstance(data, Data) else len(data)):
        raise InputError(f"data must be what was explained (got one without output {number}).")
    found: Explanation = one.clone()
    graph = data if isinstance(data, Data) else data[number]
    if one.node_id.numel() and int(one.node_id.max()) >= graph.num_nodes:
        raise InputError(f"data must be what was explained (got {graph.num_nodes} nodes, too few for output {number}).")
    place = torch.full((graph.num_nodes,), -1).index_copy(0, one.node_id, torch.arange(one.node_id.numel()))
    found.x, found.edge_index = graph.x[one.node_id], place[graph.edge_index[:, one.edge_id]]
    found._model_args, found._model_config = [], None
    if isinstance(data, Data):
        found.index = place[number].view(1)
        found.target = torch.full((one.node_id.numel(),), -1).index_copy(0, found.index, one.target)
    return found


def _explanation(row: dict[str, Any]) -> Explanation:
    found = Explanation(output_id=row["output_id"], target=torch.tensor([row["target"]]))
    for name in NUMBERS:
        found[name] = row[name]
    for name, dtype in TENSORS.items():
        if row[name] is not None:
            value: Tensor = torch.tensor(row[name], dtype=dtype)
            found[name] = value.view(-1, row["node_mask_width"]) if name.endswith("node_mask") else value
    return found


def _target(one: Explanation) -> int:
    index = one.get("index")
    return int(one.target if index is None else one.target[index])


def replace_file(path: Path, make: Callable[[Path], object]) -> None:
    """Make a file beside its place and move it there, so that none is ever half written."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
