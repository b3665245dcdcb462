"""One trial: explain, keep the explanations, measure, and give a record that is plain data."""

from __future__ import annotations

import hashlib
import json
import math
import time
import traceback
from dataclasses import asdict
from datetime import datetime, timezone
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch_geometric
from torch import Tensor
from torch_geometric.explain import Explanation

import nseg
from nseg import Explainer, baselines, explain_many, metrics, store
from nseg.errors import InputError
from nseg.explainer import BatchedAlgorithm
from nseg.study.plan import Trial
from nseg.study.task import Task, load

Record = dict[str, Any]
KINDS: dict[str, Any] = {"soft": "soft", "hard": "hard", "cut": 0.5}
"""Masks that fidelity is measured on: as they are, the method's own hard ones, what is above 0.5 in the soft ones."""

_NOT_ENGINE = ("study", "report", "reports", "plot", "metrics", "backends", "cli.py", "store.py", "__init__.py")
"""What does not change an explanation."""


@cache
def code(what: str) -> str:
    """Hash of the source that determines ``explanations``, or ``measures`` of them."""
    root = Path(nseg.__file__).parent
    if what == "measures":
        files = [*sorted((root / "metrics").rglob("*.py")), Path(__file__)]
    else:
        files = [path for path in sorted(root.rglob("*.py")) if path.relative_to(root).parts[0] not in _NOT_ENGINE]
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def algorithm(trial: Trial) -> BatchedAlgorithm:
    """The method of a trial, with all its settings."""
    preset = trial.dataset if trial.preset == "paper" else None
    joint = {"masks": trial.masks} if trial.method == "nseg" and preset else {}
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in trial.settings.items()}
    try:
        return baselines.make(trial.method, preset, **joint, **settings, seed=trial.seed)
    except TypeError as error:
        known = ", ".join(baselines.find(trial.method).Settings.__dataclass_fields__)
        raise InputError(f"{trial.method} has the settings {known} (got {', '.join(settings)}). Check them.") from error


def key(trial: Trial) -> str:
    """Hash of everything that determines the explanations of a trial."""
    task = load(trial.dataset, trial.architecture, trial.network)
    facts = {
        "method": trial.method,
        "masks": trial.masks,
        "settings": algorithm(trial).settings.as_plain_data(),
        "every": trial.every,
        "weights": task.weights,
        "data": task.data,
        "code": code("explanations"),
        "versions": [torch.__version__, torch_geometric.__version__],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


class Job(NamedTuple):
    """A trial to be done.

    Attributes:
        trial: what to do.
        key: its key.
        measures: what its record must hold.
        record: what there is of it so far.
        explanations: what an earlier run has explained, as the content of a Parquet file.
    """

    trial: Trial
    key: str
    measures: tuple[str, ...]
    record: Record | None = None
    explanations: bytes | None = None


class Outcome(NamedTuple):
    """The record of a trial, and the contents of the files that belong to it; None where nothing is to be written."""

    record: Record
    explanations: bytes | None = None
    values: bytes | None = None


def execute(job: Job | None) -> Outcome | None:
    """Do a trial, or measure again what an earlier run has explained; a failure is a record with its traceback."""
    if job is None:  # another process is at it
        return None
    began = {"key": job.key, "trial": asdict(job.trial), "started": _now()}
    record, content, values = job.record, None, None
    try:
        if record is None or record["status"] != "done":
            facts, content = _explained(job.trial)
            record = {**began, **facts}
        if record["status"] == "done":
            stored = content or job.explanations
            assert stored is not None
            facts, values = _measured(job.trial, record, stored, job.measures)
            record |= facts
        return Outcome({**record, "finished": _now()}, content, values)
    except Exception:  # whatever it is, the other trials go on
        return Outcome({**began, "status": "failed", "traceback": traceback.format_exc(), "finished": _now()})


def _explained(trial: Trial) -> tuple[Record, bytes | None]:
    """Explain; the record so far, and the explanations."""
    task, made = load(trial.dataset, trial.architecture, trial.network), algorithm(trial)
    index = task.instances(trial.every, getattr(made.settings, "most", None))
    facts = {
        "settings": made.settings.as_plain_data(),
        "weights": task.weights,
        "data": task.data,
        "code": code("explanations"),
        "instances": len(index),
    }
    if not index:
        return {**facts, "status": "skipped", "reason": "no instance is small enough for this method"}, None
    explain = task.explainer(made, trial.masks)
    wall, cpu = time.perf_counter(), time.process_time()
    if hasattr(made, "fit"):
        made.fit(explain, task.graphs, index, progress=False)
    fitted = time.perf_counter()
    found = explain_many(explain, task.graphs, index, progress=False)
    facts |= {
        "fit_seconds": fitted - wall,
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
    }
    return {**facts, "status": "done"}, store.encode(found)


# --- measures ----------------------------------------------------------------------------------------------------------


def _measured(trial: Trial, record: Record, stored: bytes, measures: tuple[str, ...]) -> tuple[Record, bytes]:
    """Measure stored explanations: means for the record, and the values of each instance as Parquet."""
    began, task = time.process_time(), load(trial.dataset, trial.architecture, trial.network)
    explain = task.explainer(algorithm(trial), trial.masks)
    found = [store.attach(one, task.graphs) for one in store.decode(stored)]
    values, curves = values_of(task, explain, found, trial.masks), {}
    if "thresholds" in measures:
        curve = metrics.Judge(explain, task.graphs, found).thresholds()
        curves["thresholds"] = {
            k: [float(v) for v in getattr(curve, k)] for k in ("at", "fid_plus", "fid_minus", "charact", "sparsity")
        }
    table = pa.table({"output_id": [int(one.output_id) for one in found], **{k: v.numpy() for k, v in values.items()}})
    content = BytesIO()
    pq.write_table(table, content)
    facts = {
        "means": means(values) | {"seconds": record["wall_seconds"] / len(found)},
        "curves": curves,
        "measures": sorted(measures),
        "measured_by": code("measures"),
        "measure_seconds": time.process_time() - began,
    }
    return facts, content.getvalue()


def values_of(task: Task, explain: Explainer, found: list[Explanation], masks: str) -> dict[str, Tensor]:
    """What each instance contributes to each metric, [B] each."""
    judge = metrics.Judge(explain, task.graphs, found)
    values: dict[str, Tensor] = {}
    for kind, which in KINDS.items():
        each = judge.outcomes(which)
        values |= {
            f"{kind}.fid_plus": each.changed_without,
            f"{kind}.fid_minus": each.changed_with,
            f"{kind}.sparsity": each.sparsity,
            f"{kind}.pns": each.pns,
        }
    values["kept"] = torch.tensor([float(_kept(one).sum()) for one in found])
    truth = metrics.accuracy(task.bench, found, "node" if masks == "f" else "edge")
    values |= {"recall_at_k": truth.recall_at_k, "roc_auc": truth.roc_auc}
    return {name: value.double() for name, value in values.items()}


def _kept(one: Explanation) -> Tensor:
    found: Tensor = one.hard_node_mask if one.get("hard_edge_mask") is None else one.hard_edge_mask
    return found


def means(values: dict[str, Tensor]) -> dict[str, float | None]:
    """The metrics of all instances; None where no instance has a value."""
    found = {name: float(value.nanmean()) for name, value in values.items()}
    for kind in KINDS:
        plus, minus = (torch.tensor(found[f"{kind}.{sign}"]) for sign in ("fid_plus", "fid_minus"))
        found[f"{kind}.charact"] = float(metrics.charact(plus, minus))
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
