"""One trial: explain, encode the explanations, measure them, and return a record of plain data."""

from __future__ import annotations

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

from nseg.baselines import find as find_method
from nseg.baselines import make as make_method
from nseg.errors import InputError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.explainer import Explainer
from nseg.explain.many import explain_many
from nseg.metrics import Evaluator, accuracy, charact
from nseg.runs.parquet import decode, encode
from nseg.runs.stored import attach
from nseg.storage.hashing import digest, hash_file
from nseg.study.forms import measure_cost, measure_forms, spread
from nseg.study.plan import AS_IN_THE_PAPER, Trial
from nseg.study.task import ExplanationTask, load_task

Record = dict[str, Any]
MASK_KINDS: dict[str, tuple[Any, str]] = {
    "soft": ("soft", "mask"),
    "hard": ("hard", "mask"),
    "cut": (0.5, "mask"),
    "removed": ("hard", "remove"),
    "cut_removed": (0.5, "remove"),
}
"""Masks whose fidelity is measured, and how: soft masks, the method's own hard masks, soft masks cut at 0.5, and the last
two again with edges really deleted."""

PACKAGE = Path(__file__).parents[1]
MEASURING = tuple(PACKAGE / "study" / name for name in ("trial.py", "forms.py"))
ROOMS_WITHOUT_EFFECT = (
    "study", "reports", "plot", "metrics",  # use finished explanations
    "backends", "storage", "store", "cli",  # run, store or start the search, but do not take part in it
    "datasets",  # the graphs themselves are part of a trial's key
    "version", "__init__",
)  # fmt: skip
"""Rooms (packages or modules of nseg) that cannot change an explanation.

All others count as code that determines explanations: graphs, model, search, explain, baselines, runs (how instances are
batched), models (the weights are part of the key, the layers are not) and errors. A new room counts until it is listed
here, so that forgetting it costs time, not correctness.
"""


@cache
def hash_source(purpose: str) -> str:
    """Hash of the source files that determine ``"explanations"`` or ``"measures"``.

    Measures also depend on the model and search rooms. These are part of the hash for explanations, so a change there gives
    a trial another key, and the trial is explained and measured again in any case.
    """
    sources = sorted(PACKAGE.rglob("*.py"))
    rooms = {path: Path(path.relative_to(PACKAGE).parts[0]).stem for path in sources}  # cli.py and cli/x.py are both "cli"
    if purpose == "measures":
        chosen = [path for path in sources if rooms[path] == "metrics" or path in MEASURING]
    else:
        chosen = [path for path in sources if rooms[path] not in ROOMS_WITHOUT_EFFECT]
    return digest({path.relative_to(PACKAGE).as_posix(): hash_file(path) for path in chosen})


def make_algorithm(trial: Trial) -> BatchedAlgorithm:
    """The method of a trial with all its settings.

    Studies compare methods as the paper does: messages are masked and edges directed unless the study says otherwise.
    """
    preset = trial.dataset if trial.preset == "paper" else None
    usual = AS_IN_THE_PAPER if trial.method == "nseg" and not preset else {}
    joint = {"masks": trial.masks} if trial.method == "nseg" and preset else {}
    settings = {name: tuple(v) if isinstance(v, list) else v for name, v in trial.settings.items()}
    try:
        return make_method(trial.method, preset, **{**joint, **usual, **settings}, seed=trial.seed)
    except TypeError as error:
        known = ", ".join(find_method(trial.method).Settings.__dataclass_fields__)
        raise InputError(
            f"{trial.method} has the settings {known} (got {', '.join(settings)}). Check the spelling."
        ) from error


def trial_key(trial: Trial) -> str:
    """Hash of everything that determines the explanations of a trial."""
    task = load_task(trial.dataset, trial.architecture, trial.network)
    facts = {
        "method": trial.method,
        "masks": trial.masks,
        "settings": make_algorithm(trial).settings.as_plain_data(),
        "every": trial.every,
        "weights": task.weights,
        "data": task.data,
        "code": hash_source("explanations"),
        "versions": [torch.__version__, torch_geometric.__version__],
    }
    return digest(facts)[:32]


class TrialJob(NamedTuple):
    """A trial to run, as it is sent to a worker.

    Attributes:
        trial: the trial.
        key: its key.
        measures: the measures that its record must have.
        record: the record of an earlier run, if its explanations are stored.
        explanations: these explanations, as the content of a Parquet file.
    """

    trial: Trial
    key: str
    measures: tuple[str, ...]
    record: Record | None = None
    explanations: bytes | None = None


class TrialResult(NamedTuple):
    """The record of a trial and the content of its files.

    Attributes:
        record: plain data.
        explanations: Parquet file of the explanations; None if nothing was explained.
        values: Parquet file of the scores of each instance; None if nothing was measured.
    """

    record: Record
    explanations: bytes | None = None
    values: bytes | None = None


def run_trial(job: TrialJob | None) -> TrialResult | None:
    """Explain and measure, or only measure if the explanations are stored.

    An exception becomes a record with its traceback. A job of None, which stands for a trial that another process has
    locked, returns None.
    """
    if job is None:
        return None
    header = {"key": job.key, "trial": asdict(job.trial), "started": _now()}
    record, explanations, values = job.record, None, None
    try:
        if record is None or record["status"] != "done":
            facts, explanations = _explain(job.trial)
            record = {**header, **facts}
        if record["status"] == "done":
            stored = explanations or job.explanations
            assert stored is not None
            facts, values = _measure(job.trial, record, stored, job.measures)
            record |= facts
        return TrialResult({**record, "finished": _now()}, explanations, values)
    except Exception:  # a failed trial must not stop the others
        return TrialResult({**header, "status": "failed", "traceback": traceback.format_exc(), "finished": _now()})


def _explain(trial: Trial) -> tuple[Record, bytes | None]:
    """Explain the instances of a trial; returns fields of the record, and the encoded explanations."""
    task, algorithm = load_task(trial.dataset, trial.architecture, trial.network), make_algorithm(trial)
    index = task.instances(trial.every, getattr(algorithm.settings, "most", None))
    facts = {
        "settings": algorithm.settings.as_plain_data(),
        "weights": task.weights,
        "data": task.data,
        "code": hash_source("explanations"),
        "instances": len(index),
    }
    if not index:
        return {**facts, "status": "skipped", "reason": "no instance is small enough for this method"}, None
    explainer = task.explainer(algorithm, trial.masks)
    wall, cpu = time.perf_counter(), time.process_time()
    if hasattr(algorithm, "fit"):
        algorithm.fit(explainer, task.graphs, index, progress=False)
    fitted = time.perf_counter()
    found = explain_many(explainer, task.graphs, index, progress=False)
    facts |= {
        "fit_seconds": fitted - wall,
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
    }
    return {**facts, "status": "done"}, encode(found)


# --- measures ----------------------------------------------------------------------------------------------------------


def _measure(trial: Trial, record: Record, stored: bytes, measures: tuple[str, ...]) -> tuple[Record, bytes | None]:
    """Measure stored explanations; returns fields of the record, and the scores of each instance as Parquet.

    What this code measured before is not measured again; the scores are None then.
    """
    start, task = time.process_time(), load_task(trial.dataset, trial.architecture, trial.network)
    explainer = task.explainer(make_algorithm(trial), trial.masks)
    found = [attach(one, task.graphs) for one in decode(stored)]
    same = record.get("measured_by") == hash_source("measures")
    known: set[str] = {*record["measures"]} if same else set()
    facts: Record = {name: record[name] for name in ("means", "curves", "forms")} if known else {"curves": {}, "forms": []}
    values = None
    if not known:
        scores = instance_scores(task, explainer, found, trial.masks)
        facts["means"] = mean_scores(scores) | {"seconds": record["wall_seconds"] / len(found)}
        values = _as_parquet({"output_id": [int(one.output_id) for one in found]}, scores)
    if "thresholds" in measures and "thresholds" not in known:
        facts["curves"] = {"thresholds": threshold_curves(Evaluator(explainer, task.graphs, found), trial.masks)}
    if "forms" in measures and "forms" not in known and trial.masks == "e":
        facts["forms"] = _forms(trial, task, explainer, found)
    facts |= {
        "measures": sorted(known | {*measures}),
        "measured_by": hash_source("measures"),
        "measure_seconds": time.process_time() - start + (record["measure_seconds"] if known else 0),
    }
    return facts, values


def _forms(trial: Trial, task: ExplanationTask, explainer: Explainer, found: list[Explanation]) -> list[Record]:
    """Scores of the method as published, hardened and at NSEG's size."""
    index = [int(one.output_id) for one in found]
    cost = measure_cost(explainer, task.graphs, index, spread(index))
    ours = explainer.algorithm.settings.intervention if trial.method == "nseg" and trial.preset == "default" else None
    return measure_forms((trial.dataset, trial.architecture, trial.network), explainer, spread(found), cost, ours)


def _as_parquet(first: dict[str, Any], scores: dict[str, Tensor]) -> bytes:
    content = BytesIO()
    pq.write_table(pa.table({**first, **{name: value.numpy() for name, value in scores.items()}}), content)
    return content.getvalue()


def instance_scores(task: ExplanationTask, explainer: Explainer, found: list[Explanation], masks: str) -> dict[str, Tensor]:
    """The scores of each instance, by column, [B] each."""
    evaluator = Evaluator(explainer, task.graphs, found)
    scores: dict[str, Tensor] = {}
    for kind, (cut, intervention) in MASK_KINDS.items():
        if intervention == "remove" and masks == "f":  # only edges can be deleted
            each = [torch.full((len(found),), math.nan)] * 4
        else:
            judged = evaluator.each(cut, intervention)
            each = [judged.changed_without, judged.changed_with, judged.sparsity, judged.pns]
        scores |= zip((f"{kind}.{name}" for name in ("fid_plus", "fid_minus", "sparsity", "pns")), each, strict=True)
    scores["kept"] = torch.tensor([float(_hard_mask(one).sum()) for one in found])
    holds = [one.get("holds_removed") for one in found]  # measured when explained
    scores["removed.holds"] = torch.tensor([math.nan if value is None else float(value) for value in holds])
    truth = accuracy(task.bench, found, "node" if masks == "f" else "edge")
    scores |= {"recall_at_k": truth.recall_at_k, "roc_auc": truth.roc_auc}
    return {name: value.double() for name, value in scores.items()}


def threshold_curves(evaluator: Evaluator, masks: str) -> dict[str, list[float]]:
    """Fidelity of masks cut at each threshold, under masks and, if they have edges, with edges deleted (``removed_...``)."""
    by_mask = evaluator.thresholds(intervention="mask")
    found = {name: getattr(by_mask, name) for name in ("at", "fid_plus", "fid_minus", "charact", "sparsity")}
    if masks != "f":
        by_deletion = evaluator.thresholds(intervention="remove")
        found |= {f"removed_{name}": getattr(by_deletion, name) for name in ("fid_plus", "fid_minus", "charact")}
    return {name: [float(value) for value in values] for name, values in found.items()}


def _hard_mask(one: Explanation) -> Tensor:
    """The hard edge mask, or the hard node mask if only nodes are explained."""
    mask: Tensor = one.hard_node_mask if one.get("hard_edge_mask") is None else one.hard_edge_mask
    return mask


def mean_scores(scores: dict[str, Tensor]) -> dict[str, float | None]:
    """The mean of each column, and charact of the mean fidelities; None where no instance has a score."""
    found = {name: float(value.nanmean()) for name, value in scores.items()}
    for kind in MASK_KINDS:
        plus, minus = (torch.tensor(found[f"{kind}.{sign}"]) for sign in ("fid_plus", "fid_minus"))
        found[f"{kind}.charact"] = float(charact(plus, minus))
    return {name: None if math.isnan(value) else value for name, value in found.items()}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
