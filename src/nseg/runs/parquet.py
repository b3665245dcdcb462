"""Explanations as Parquet, with documented columns.

Columns, a row per explanation (:data:`SCHEMA`):

- ``output_id``: the output of the caller's graph (node, link or graph), ``target``: its explained class,
  ``reason``: why it could not be explained, null if it was;
- ``p_factual``, ``p_complement``, ``pns``, ``pn``, ``ps``, ``soft_p_factual``, ``soft_p_complement``, ``exact``,
  ``left_out``: as on an explanation; null where its algorithm does not provide them;
- ``edge_id``, ``node_id``: the caller's numbers of the edges and nodes of the computation graph;
- ``edge_mask``, ``hard_edge_mask``, ``reached``: a value for each of those edges; ``node_mask``, ``hard_node_mask``: row by
  row, ``node_mask_width`` values for each of those nodes.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch_geometric
from torch import Tensor

from nseg.errors import StoreError
from nseg.explanation import Explanation, with_ids
from nseg.storage import files

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
OPTIONAL = ("exact", "left_out")  # not on every explanation
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


def encode(explanations: Sequence[Explanation]) -> bytes:
    """Explanations as the content of a Parquet file; equal explanations give equal bytes."""
    rows = [one if one.get("reason") is not None else with_ids(one) for one in explanations]
    columns: dict[str, list[Any]] = {"output_id": [int(one.output_id) for one in rows]}
    columns["target"] = [_target(one) for one in rows]
    for name in ("reason", *NUMBERS, *OPTIONAL):
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
            f"{name} must be a Parquet file of explanations written by nseg (got {type(error).__name__}: {error}). If it is "
            "part of a run, start the run again, which replaces damaged files."
        ) from error


def write(folder: str | Path, explanations: Sequence[Explanation], manifest: dict[str, Any]) -> None:
    """Write explanations to one file, with a manifest.

    Args:
        folder: created if needed; ``explanations.parquet`` and ``manifest.json`` in it are replaced.
        explanations: from ``explain_many``.
        manifest: plain data; versions are added.
    """
    folder = files.prepare_folder(folder)
    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
    }
    files.write_bytes(folder / "explanations.parquet", encode(explanations))
    files.write_json(folder / "manifest.json", {**manifest, "versions": versions})


def read_file(path: Path) -> list[Explanation]:
    """The explanations in a Parquet file, without their graphs."""
    return decode(path.read_bytes(), str(path))


def _value(scalar: Any) -> Any:
    """A plain value, or an array for a list."""
    if not pa.types.is_list(scalar.type):
        return scalar.as_py()
    return None if not scalar.is_valid else scalar.values.to_numpy(zero_copy_only=False)


def _explanation(row: dict[str, Any]) -> Explanation:
    found = Explanation(output_id=row["output_id"])
    if row.get("reason") is not None:
        found.reason = row["reason"]
        return found
    found.target = torch.tensor([row["target"]])
    for name in NUMBERS:
        found[name] = row[name]
    for name in OPTIONAL:
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
