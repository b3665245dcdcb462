"""Explanations as Parquet, with documented columns.

Columns, a row per explanation (:data:`SCHEMA`):

- ``output_id``: the output of the caller's graph (node, link or graph), ``target``: its explained class (a whole number), or
  the value of a regression, ``outcome``: JSON, the explained event if it is not simply the class, ``reason``: why it could
  not be explained, null if it was;
- ``p_factual``, ``p_complement``, ``pns``, ``pn``, ``ps``, ``soft_p_factual``, ``soft_p_complement``, ``exact``,
  ``left_out``, ``seed``: as on an explanation; null where its algorithm does not provide them;
- ``intervention``, ``pns_masked``, ``pns_removed``, ``p_empty``, ``keeps``, ``changes``, ``keeps_empty``, ``holds_masked``,
  ``holds_removed``, ``verdict``: likewise; ``path_sizes``, ``path_pns`` (sizes, and the PNS bound of the best
  subset of each size that was met), ``edge_path``, ``node_path`` (for each edge and node a number whose bit t says whether
  it is in the subset of size ``path_sizes[t]``); ``edge_alternatives``, ``node_alternatives`` (bit j: whether it is in the
  j-th other explanation that is about as good), ``alternative_pns`` (the PNS bound of each); all of them absent in files of
  earlier versions;
- ``edge_id``, ``node_id``: the caller's numbers of the edges and nodes of the computation graph;
- ``edge_mask``, ``hard_edge_mask``, ``reached``: a value for each of those edges; ``node_mask``, ``hard_node_mask``: row by
  row, ``node_mask_width`` values for each of those nodes (or once, for features common to all nodes);
- ``edge_attr_mask``, ``hard_edge_attr_mask``: row by row, ``edge_attr_mask_width`` values for each of those edges (or once,
  for columns of all edges), where attributes of edges are masked; absent in files of earlier versions;
- ``targets``, ``prediction``: class and model output of each output of the computation graph, the latter row by row with
  ``prediction_width`` values each (null: one number each); ``index``: positions of the explained output in them;
- ``settings``, ``model_config``: JSON; ``arguments``: names of the model's arguments besides ``x`` and ``edge_index``;
  ``dtypes``: JSON, types of those tensors that have others than their columns;
- ``kept_source``, ``kept_target``: the caller's numbers of the ends of each kept edge; ``kept_value``: value of each kept
  feature of a node, row by row; null where no edges, or no such features, are masked. ``size``: JSON, for each mask how
  many elements are kept, of how many, their unit, and of how many nodes. With these, an export needs no graph;
- ``types``: JSON, types of a heterogeneous graph with the numbers of their nodes and edges; null for other graphs. Nodes and
  edges of all types are then numbered through in this order, and masks are padded to the widest type; ``output_id``,
  ``targets``, ``prediction`` and ``index`` are of the type that the model's outputs stand for.

Files of earlier versions lack the last nine lines of columns. Names are in ``names.json`` beside them.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.explain.config import MaskType, ModelConfig

from nseg.errors import StoreError
from nseg.events import event_from
from nseg.explanation import ATTRIBUTE_MASK, FLAGS, HARD, NUMBERS, TEXTS, Explanation, explained_targets, with_ids
from nseg.graph_types import GraphTypes
from nseg.hetero_explanation import HeteroExplanation, from_flat, graph_types, node_kind
from nseg.storage import files
from nseg.wording import PartSize, hard_mask, kept_parts, node_mask_type, reached_edges

TENSORS = {
    "edge_id": torch.long,
    "node_id": torch.long,
    "edge_mask": torch.float,
    "hard_edge_mask": torch.bool,
    "reached": torch.bool,
    "node_mask": torch.float,
    "hard_node_mask": torch.bool,
    ATTRIBUTE_MASK: torch.float,
    HARD + ATTRIBUTE_MASK: torch.bool,
    "edge_path": torch.long,
    "node_path": torch.long,
    "path_sizes": torch.long,
    "path_pns": torch.float,
    "edge_alternatives": torch.long,
    "node_alternatives": torch.long,
    "alternative_pns": torch.float,
}
ATTRIBUTE_WIDTH = f"{ATTRIBUTE_MASK}_width"
OUTPUTS = {"index": torch.long, "targets": torch.long, "prediction": torch.float}
ATTRIBUTES = {"targets": "target"}  # where the attribute of an explanation is not called like the column
OPTIONAL = ("exact", "left_out", "seed")  # not on every explanation
CONFIG = ("mode", "task_level", "return_type")
_ARROW = {torch.long: pa.int64(), torch.float: pa.float32(), torch.bool: pa.bool_(), torch.double: pa.float64()}
SCHEMA = pa.schema(
    {
        "output_id": pa.int64(),
        "target": pa.int64(),
        "outcome": pa.string(),
        "reason": pa.string(),
        **dict.fromkeys(NUMBERS, pa.float64()),
        **dict.fromkeys(FLAGS, pa.bool_()),
        **dict.fromkeys(TEXTS, pa.string()),
        "exact": pa.bool_(),
        "left_out": pa.int64(),
        "seed": pa.int64(),
        **{name: pa.list_(_ARROW[dtype]) for name, dtype in {**TENSORS, **OUTPUTS}.items()},
        "node_mask_width": pa.int64(),
        ATTRIBUTE_WIDTH: pa.int64(),
        "prediction_width": pa.int64(),
        "settings": pa.string(),
        "model_config": pa.string(),
        "arguments": pa.list_(pa.string()),
        "dtypes": pa.string(),
        **dict.fromkeys(("kept_source", "kept_target"), pa.list_(pa.int64())),
        "kept_value": pa.list_(pa.float64()),
        "size": pa.string(),
        "types": pa.string(),
    }
)

Result = TypeVar("Result")


def encode(explanations: Sequence[Explanation]) -> bytes:
    """Explanations as the content of a Parquet file; equal explanations give equal bytes."""
    rows = [_any_row(one) for one in explanations]
    schema = SCHEMA
    for name in (
        "edge_mask",
        "node_mask",
        ATTRIBUTE_MASK,
        "prediction",
        "path_pns",
        "alternative_pns",
    ):  # numbers of a model in double precision keep all their digits
        if any(row[name] is not None and row[name].dtype == np.float64 for row in rows):
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.list_(pa.float64())))
    if any(isinstance(row["target"], float) for row in rows):
        for name, kind in (("target", pa.float64()), ("targets", pa.list_(pa.float64()))):
            schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    content = BytesIO()
    table = pa.table({name: [row[name] for row in rows] for name in SCHEMA.names}, schema=schema)
    pq.write_table(table, content, compression="zstd")
    return content.getvalue()


def decode(content: bytes, name: str = "The file") -> list[Explanation]:
    """The explanations in the content of a Parquet file, without their graphs."""

    def explanations() -> list[Explanation]:
        table = pq.read_table(BytesIO(content))
        columns = {field: table.column(field).combine_chunks() for field in SCHEMA.names if field in table.column_names}
        rows = ({field: _value(column[n]) for field, column in columns.items()} for n in range(len(table)))
        return [_by_type(row, _explanation(row)) for row in rows]

    return _parse(explanations, name)


def count_failed(content: bytes, name: str = "The file") -> int:
    """The number of targets in the content of a Parquet file that could not be explained."""

    def count() -> int:
        reasons = pq.read_table(BytesIO(content), columns=["reason"]).column("reason")
        return len(reasons) - int(reasons.null_count)

    return _parse(count, name)


def _parse(read: Callable[[], Result], name: str) -> Result:
    try:
        return read()
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RuntimeError,
        OverflowError,
    ) as error:
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
    return decode(files.read_bytes(path), str(path))


# --- one explanation as a row --------------------------------------------------------------------------------------------


def _any_row(one: Any) -> dict[str, Any]:
    """A row of an explanation of any kind of graph."""
    if not isinstance(one, HeteroExplanation):
        return _row(one if one.get("reason") is not None else with_ids(one))
    flat = one.flat()
    row = _row(flat)
    own = Explanation(**{name: one.get(name) for name in ("index", "target", "prediction", "outcome")})
    _add_tensors(row, own, OUTPUTS, json.loads(row["dtypes"] or "{}"))
    plain = {**graph_types(one).as_plain_data(), "common": node_kind(flat) is MaskType.common_attributes}
    row["output_id"], row["types"] = int(one.get("output_id", flat.output_id)), json.dumps(plain)
    return row


def _row(one: Explanation) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row |= {name: one.get(name) for name in ("reason", *NUMBERS, *FLAGS, *TEXTS, *OPTIONAL)}
    event = one.get("outcome")
    row |= {"output_id": int(one.output_id), "target": _explained_class(one)}
    row["outcome"] = event and json.dumps(event.as_plain_data())
    if row["seed"] is not None and not -(1 << 63) <= row["seed"] < 1 << 63:
        row["seed"] = None  # only the settings hold a number of any size
    _add_tensors(row, one, {**TENSORS, **OUTPUTS}, {})
    config, names = getattr(one, "_model_config", None), getattr(one, "_model_args", getattr(one, "_stored_args", None))
    row["model_config"] = config and json.dumps({name: getattr(config, name).value for name in CONFIG})
    row["arguments"] = names if names is None else list(names)
    row["settings"] = None if one.get("settings") is None else json.dumps(one.settings)
    ends, values = _kept_ends(one), _kept_values(one)
    row["kept_source"], row["kept_target"] = (None, None) if ends is None else ends.numpy()
    row["kept_value"] = None if values is None else values.numpy()
    if one.get("reason") is None:
        row["size"] = json.dumps([list(vars(part).values()) for part in kept_parts(one)])
    return row


def _add_tensors(row: dict[str, Any], one: Explanation, names: Mapping[str, torch.dtype], dtypes: dict[str, str]) -> None:
    """Put tensors into a row, flattened, with their widths, and with their types where these are unusual."""
    for name, usual in names.items():
        value = one.get(ATTRIBUTES.get(name, name))
        if value is not None:
            value = explained_targets(one).detach() if name == "targets" else torch.as_tensor(value).detach()
            wide = value.dtype is torch.double or (name == "targets" and value.is_floating_point())
            row[name] = value.flatten().to("cpu", torch.double if wide else usual).numpy()
            dtypes |= {} if value.dtype is usual else {name: str(value.dtype).removeprefix("torch.")}
            if value.dim() > 1:
                row[_width_of(name)] = value.size(1)
    row["dtypes"] = json.dumps(dtypes) if dtypes else None


def _width_of(name: str) -> str:
    """The column that holds the width of a tensor with two dimensions."""
    return "prediction_width" if name == "prediction" else ATTRIBUTE_WIDTH if ATTRIBUTE_MASK in name else "node_mask_width"


def _kept_ends(one: Explanation) -> Tensor | None:
    """Source and target of each kept edge within reach, by the caller's numbers, [2, k]."""
    hard, edges = hard_mask(one, "edge_mask"), one.get("edge_index")
    if hard is None or edges is None:
        return getattr(one, "_kept_ends", None)
    found: Tensor = one.node_id.cpu()[edges.cpu()[:, hard & reached_edges(one)]]
    return found


def _kept_values(one: Explanation) -> Tensor | None:
    """Value of each kept feature of a node, [k]."""
    hard, x = hard_mask(one, "node_mask"), one.get("x")
    if hard is None or node_mask_type(one) is not MaskType.attributes or x is None:
        return getattr(one, "_kept_values", None)
    values: Tensor = x.detach().cpu().double().view(hard.shape)[hard]
    return values


def _explained_class(one: Explanation) -> int | float | None:
    """The explained class, or the explained value of a regression."""
    index = one.get("index")
    if one.get("target") is None:
        return None
    targets = explained_targets(one)
    value = (targets if index is None else targets[index]).flatten()[0].item()
    return float(value) if targets.is_floating_point() else int(value)


def _value(scalar: Any) -> Any:
    """A plain value, or an array for a list of numbers."""
    if not pa.types.is_list(scalar.type) or pa.types.is_string(scalar.type.value_type):
        return scalar.as_py()
    return None if not scalar.is_valid else scalar.values.to_numpy(zero_copy_only=False)


def _by_type(row: dict[str, Any], found: Explanation) -> Any:
    """An explanation by type, if it is one of a heterogeneous graph."""
    if row.get("types") is None:
        return found
    plain = json.loads(row["types"])
    common = plain.pop("common", False)
    return from_flat(found, GraphTypes.from_plain_data(plain), common)


def _explanation(row: dict[str, Any]) -> Explanation:
    found = Explanation(output_id=row["output_id"])
    if row.get("reason") is not None:
        found.reason = row["reason"]
        return found
    if row["target"] is not None:
        found.target = torch.tensor([row["target"]])
    found.outcome = None if row.get("outcome") is None else event_from(json.loads(row["outcome"]))
    for name in (*NUMBERS, *FLAGS, *TEXTS, *OPTIONAL):
        if row.get(name) is not None:
            found[name] = row[name]
    dtypes = json.loads(row.get("dtypes") or "{}")
    for name, usual in {**TENSORS, **OUTPUTS}.items():
        if row.get(name) is not None:
            value: Tensor = torch.from_numpy(np.array(row[name]))
            value = value.to(getattr(torch, dtypes[name]) if name in dtypes else usual)
            found[ATTRIBUTES.get(name, name)] = _reshape(name, value, row)
    if row.get("settings") is not None:
        found.settings = json.loads(row["settings"])
        if "seed" not in found and "seed" in found.settings:
            found.seed = found.settings["seed"]
    if row.get("model_config") is not None:
        found._model_config = ModelConfig(**json.loads(row["model_config"]))
    if row.get("kept_source") is not None:
        found._kept_ends = torch.from_numpy(np.stack([row["kept_source"], row["kept_target"]]))
    if row.get("kept_value") is not None:
        found._kept_values = torch.from_numpy(np.array(row["kept_value"]))
    if row.get("size") is not None:
        found._size = tuple(PartSize(*part) for part in json.loads(row["size"]))
    found._stored_args = row.get("arguments")  # not _model_args: these name attributes, which the graph will bring
    return found


def _reshape(name: str, value: Tensor, row: dict[str, Any]) -> Tensor:
    """The shape that a flattened tensor had."""
    if name.endswith("node_mask") or name == "node_path":
        width = row["node_mask_width"]
        return value.view(-1, width) if width else value.view(len(row["node_id"]), 0)
    if name.endswith(ATTRIBUTE_MASK):
        return value.view(-1, row[ATTRIBUTE_WIDTH])
    if name == "prediction" and row.get("prediction_width") is not None:
        return value.view(-1, row["prediction_width"])
    return value
