"""Records to numbers: one line per dataset, network, method and column, with the paper's number beside ours."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from nseg import metrics
from nseg.study.plan import Trial
from nseg.study.runs import Run

DRAWS = 2000  # of the bootstrap
CONFIDENCE = 0.95
LOWER_IS_BETTER = ("fid_minus", "seconds")
NOT_RANKED = ("sparsity", "kept", "seconds")
"""Columns in which the trivial wins: nothing is smaller and faster than nothing."""


@dataclass(frozen=True)
class Line:
    """One number of a table.

    Args:
        dataset, architecture, label, column: which number.
        mean: over seeds and instances; shares in percent, ``kept`` in elements, ``seconds`` per instance.
        std: standard deviation of the seeds' means; None with one seed.
        low, high: bootstrap interval over instances.
        seeds, instances: how many.
        best: whether no other method's interval lies wholly above it.
        paper: the paper's number, if it has one.
    """

    dataset: str
    architecture: str
    label: str
    column: str
    mean: float
    std: float | None
    low: float
    high: float
    seeds: int
    instances: int
    best: bool = False
    paper: float | None = None

    @property
    def difference(self) -> float | None:
        """How far ours is from the paper's, in points."""
        return None if self.paper is None else self.mean - self.paper


@cache
def papers_numbers() -> dict[tuple[str, str, str, str], float]:
    """All numbers of the paper's four result tables in percent, by architecture, dataset, row and column."""
    rows = list(csv.DictReader((files("nseg.study") / "paper.csv").read_text().splitlines()))
    return {(r["architecture"], r["dataset"], r["row"], r["column"]): float(r["mean"]) for r in rows}


def summary(run: Run, name: str) -> list[Line]:
    """The lines of a study, as far as it has run."""
    study, trials = run.study(name)
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key, trial in trials.items():
        record = run.record(key)
        if record is not None and record["status"] == "done" and record.get("means"):
            groups[trial.dataset, trial.architecture, trial.label].append(key)
    rows = {label: method.paper for method in study.methods for label, _ in study.variants(method)}
    lines = []
    for (dataset, architecture, label), keys in groups.items():
        for column in study.columns:
            line = _line(run, trials[keys[0]], keys, column)
            if line is not None:
                paper = papers_numbers().get((architecture, dataset, rows.get(label) or "", column))
                lines.append(replace(line, paper=paper))
    return marked(lines)


def _line(run: Run, trial: Trial, keys: Sequence[str], column: str) -> Line | None:
    """One number from the records of all seeds."""
    records = run.records(keys)
    means = [record["means"].get(column) for record in records]
    if any(mean is None for mean in means):
        return None
    scale = 1.0 if column in ("kept", "seconds") else 100.0
    low, high = (scale * end for end in interval(_values(run, keys, column), column))
    if column == "seconds":
        low = high = float(np.mean(means))
    return Line(
        trial.dataset,
        trial.architecture,
        trial.label,
        column,
        scale * float(np.mean(means)),
        scale * float(np.std(means, ddof=1)) if len(means) > 1 else None,
        low,
        high,
        len(means),
        records[0]["instances"],
    )


def _values(run: Run, keys: Sequence[str], column: str) -> np.ndarray[Any, Any]:
    """What each instance contributes to a column, mean over seeds, [B] or, for charact, [B, 2]."""
    kind = column.partition(".")[0]
    names = [f"{kind}.fid_plus", f"{kind}.fid_minus"] if column.endswith("charact") else [column]
    if column == "seconds":
        return np.zeros((1, 1))
    tables = [pq.read_table(run.folder / "values" / f"{key}.parquet", columns=names) for key in keys]
    values = [np.stack([table[name].to_numpy() for name in names], -1) for table in tables]
    each: np.ndarray[Any, Any] = np.mean(values, 0)
    known: np.ndarray[Any, Any] = each[~np.isnan(each).any(-1)]
    return known


def interval(values: np.ndarray[Any, Any], column: str) -> tuple[float, float]:
    """Percentile interval of a column by drawing instances again; the same draws for every method.

    >>> interval(np.array([[1.0], [1.0]]), "soft.pns")
    (1.0, 1.0)
    """
    if not len(values):
        return math.nan, math.nan
    draws = np.random.default_rng(0).integers(0, len(values), (DRAWS, len(values)))
    means = values[draws].mean(1)  # [DRAWS, 1 or 2]
    found = _charact(means[:, 0], means[:, 1]) if column.endswith("charact") else means[:, 0]
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _charact(plus: np.ndarray[Any, Any], minus: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import torch

    found: np.ndarray[Any, Any] = metrics.charact(torch.from_numpy(plus), torch.from_numpy(minus)).numpy()
    return found


def marked(lines: list[Line]) -> list[Line]:
    """Mark the best of each column, and those whose interval reaches that of the best; only methods on all instances."""
    groups: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.dataset, line.architecture, line.column].append(line)
    best = set()
    for (_, _, column), some in groups.items():
        if any(name in column for name in NOT_RANKED):
            continue
        full = [line for line in some if line.instances == max(one.instances for one in some)]
        sign = -1 if any(name in column for name in LOWER_IS_BETTER) else 1
        top = max(full, key=lambda line: sign * line.mean)
        worst = top.low if sign == 1 else -top.high
        best |= {id(line) for line in full if sign * (line.high if sign == 1 else line.low) >= worst}
    return [replace(line, best=id(line) in best) for line in lines]


def cost(run: Run, name: str) -> list[dict[str, Any]]:
    """What each method of a study took: trials, instances, wall and processor seconds, time to measure."""
    _, trials = run.study(name)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key, trial in trials.items():
        record = run.record(key)
        if record is not None and record["status"] == "done":
            groups[trial.label].append(record)
    rows = []
    for label, records in groups.items():
        total = {what: sum(record[f"{what}_seconds"] for record in records) for what in ("wall", "cpu", "measure")}
        explained = sum(record["instances"] for record in records)
        rows.append({"method": label, "trials": len(records), "explanations": explained, **total})
    return rows


def failures(run: Run, name: str) -> list[dict[str, Any]]:
    """Records of a study that failed."""
    _, trials = run.study(name)
    return [record for record in run.records(trials) if record["status"] == "failed"]


HEADS = {
    "fid_plus": "Fid+",
    "fid_minus": "Fid-",
    "charact": "charact",
    "sparsity": "sparsity",
    "pns": "PNS",
    "recall_at_k": "Recall@K",
    "roc_auc": "ROC-AUC",
    "kept": "kept",
    "seconds": "s each",
}


def head(column: str) -> str:
    """How a column is called in tables.

    >>> head("soft.fid_plus"), head("seconds")
    ('soft Fid+', 's each')
    """
    kind, dot, score = column.rpartition(".")
    return f"{kind} {HEADS[score]}" if dot else HEADS[score]


def manifest(run: Run, name: str) -> dict[str, Any]:
    """What a study was run with and what that took, as plain data."""
    _, trials = run.study(name)
    records = run.records(trials)
    done = [record for record in records if record["status"] == "done"]
    networks = {f"{t.dataset}/{t.architecture} ({t.network})": run.record(k) for k, t in trials.items()}
    return {
        **run.manifest(name),
        "trials": {"all": len(trials), **{s: sum(r["status"] == s for r in records) for s in ("done", "skipped", "failed")}},
        "weights": {name: record["weights"] for name, record in networks.items() if record and "weights" in record},
        "data": {name: record["data"] for name, record in networks.items() if record and "data" in record},
        "first_started": min((record["started"] for record in records), default=None),
        "last_finished": max((record["finished"] for record in records), default=None),
        "wall_seconds_of_trials": round(sum(record["wall_seconds"] for record in done), 1),
        "cpu_seconds_of_trials": round(sum(record["cpu_seconds"] + record["measure_seconds"] for record in done), 1),
    }
