"""Scores of a study: one per dataset, network, method and column, with the paper's number for comparison."""

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
import torch

from nseg.metrics import charact
from nseg.study.folder import StudyFolder
from nseg.study.plan import Trial

RESAMPLES = 2000  # of the bootstrap
CONFIDENCE = 0.95
LOWER_IS_BETTER = ("fid_minus", "seconds")
FORM_COLUMNS = (
    *("form", "judged", "instances", "pns", "fid_plus", "fid_minus", "charact"),
    *("sparsity", "precision", "f1", "kept", "cpu_ms"),
)
"""Columns of the table of forms; a record, which is JSON, has them in the order of the alphabet."""

NOT_RANKED = ("sparsity", "kept", "seconds")
"""Columns without a best method: the empty explanation would always be the smallest and fastest."""


@dataclass(frozen=True)
class Score:
    """The score of one method in one column, on one dataset and network.

    Args:
        dataset, architecture, label, column: what the score is about.
        mean: mean over seeds and instances; shares in percent, ``kept`` in elements, ``seconds`` per instance.
        std: standard deviation of the means of the seeds; None with one seed.
        low, high: bootstrap interval over instances.
        seeds, instances: number of seeds and instances.
        best: whether its interval overlaps that of the best method.
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
        """Our mean minus the paper's number, in percentage points."""
        return None if self.paper is None else self.mean - self.paper


@cache
def paper_scores() -> dict[tuple[str, str, str, str], float]:
    """All numbers of the paper's four result tables, in percent, by architecture, dataset, row and column."""
    rows = list(csv.DictReader((files("nseg.study") / "paper.csv").read_text().splitlines()))
    return {(r["architecture"], r["dataset"], r["row"], r["column"]): float(r["mean"]) for r in rows}


def summary(folder: StudyFolder, name: str) -> list[Score]:
    """All scores of a study, from the trials that are done."""
    study, trials = folder.study(name)
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for key, trial in trials.items():
        record = folder.record(key)
        if record is not None and record["status"] == "done" and record.get("means"):
            groups[trial.dataset, trial.architecture, trial.label].append(key)
    paper_rows = {label: method.paper for method in study.methods for label, _ in study.variants(method)}
    scores = []
    for (dataset, architecture, label), keys in groups.items():
        for column in study.columns:
            score = _score(folder, trials[keys[0]], keys, column)
            if score is not None:
                paper = paper_scores().get((architecture, dataset, paper_rows.get(label) or "", column))
                scores.append(replace(score, paper=paper))
    return mark_best(scores)


def _score(folder: StudyFolder, trial: Trial, keys: Sequence[str], column: str) -> Score | None:
    """One score from the records of all seeds; None if a record has no value in the column."""
    records = folder.records(keys)
    means = [record["means"].get(column) for record in records]
    if any(mean is None for mean in means):
        return None
    scale = 1.0 if column in ("kept", "seconds") else 100.0
    low, high = (scale * end for end in bootstrap_interval(_instance_values(folder, keys, column), column))
    if column == "seconds":
        low = high = float(np.mean(means))
    return Score(
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


def _instance_values(folder: StudyFolder, keys: Sequence[str], column: str) -> np.ndarray[Any, Any]:
    """The value of each instance in a column, mean over seeds, [B, 1]; for charact its Fid+ and Fid-, [B, 2]."""
    kind = column.partition(".")[0]
    names = [f"{kind}.fid_plus", f"{kind}.fid_minus"] if column.endswith("charact") else [column]
    if column == "seconds":
        return np.zeros((1, 1))
    tables = [pq.read_table(folder.path / "values" / f"{key}.parquet", columns=names) for key in keys]
    values = [np.stack([table[name].to_numpy() for name in names], -1) for table in tables]
    each: np.ndarray[Any, Any] = np.mean(values, 0)
    known: np.ndarray[Any, Any] = each[~np.isnan(each).any(-1)]
    return known


def bootstrap_interval(values: np.ndarray[Any, Any], column: str) -> tuple[float, float]:
    """Percentile interval of the mean of a column, by resampling instances.

    Every method gets the same resamples, so that the intervals of two methods can be compared.

    >>> bootstrap_interval(np.array([[1.0], [1.0]]), "soft.pns")
    (1.0, 1.0)
    """
    if not len(values):
        return math.nan, math.nan
    resamples = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
    means = values[resamples].mean(1)  # [RESAMPLES, 1 or 2]
    found = _charact(means[:, 0], means[:, 1]) if column.endswith("charact") else means[:, 0]
    low, high = np.quantile(found, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _charact(plus: np.ndarray[Any, Any], minus: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = charact(torch.from_numpy(plus), torch.from_numpy(minus)).numpy()
    return found


def mark_best(scores: list[Score]) -> list[Score]:
    """The scores, with ``best`` set for the best of each column and for those whose interval overlaps it.

    Methods that explain only some of the instances do not compete.
    """
    groups: dict[tuple[str, str, str], list[Score]] = defaultdict(list)
    for score in scores:
        groups[score.dataset, score.architecture, score.column].append(score)
    best = set()
    for (_, _, column), group in groups.items():
        if any(name in column for name in NOT_RANKED):
            continue
        complete = [score for score in group if score.instances == max(one.instances for one in group)]
        sign = -1 if any(name in column for name in LOWER_IS_BETTER) else 1
        top = max(complete, key=lambda score: sign * score.mean)
        bar = top.low if sign == 1 else -top.high  # the worse end of the best method's interval
        best |= {id(score) for score in complete if sign * (score.high if sign == 1 else score.low) >= bar}
    return [replace(score, best=id(score) in best) for score in scores]


def cost(folder: StudyFolder, name: str) -> list[dict[str, Any]]:
    """Number of trials and explanations of each method, and the seconds that they took."""
    _, trials = folder.study(name)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for key, trial in trials.items():
        record = folder.record(key)
        if record is not None and record["status"] == "done":
            groups[trial.label].append(record)
    rows = []
    for label, records in groups.items():
        total = {what: sum(record[f"{what}_seconds"] for record in records) for what in ("wall", "cpu", "measure")}
        explained = sum(record["instances"] for record in records)
        rows.append({"method": label, "trials": len(records), "explanations": explained, **total})
    return rows


def form_rows(folder: StudyFolder, name: str) -> list[dict[str, Any]]:
    """Each method as published, hardened and at NSEG's size: a row per dataset, method, form and intervention."""
    _, trials = folder.study(name)
    rows = []
    for key, trial in trials.items():
        head = {"dataset": trial.dataset, "architecture": trial.architecture, "label": trial.label}
        rows += [
            {**head, **{name: row[name] for name in FORM_COLUMNS}} for row in (folder.record(key) or {}).get("forms", [])
        ]
    return rows


def failures(folder: StudyFolder, name: str) -> list[dict[str, Any]]:
    """Records of the failed trials of a study."""
    _, trials = folder.study(name)
    return [record for record in folder.records(trials) if record["status"] == "failed"]


COLUMN_TITLES = {
    "fid_plus": "Fid+",
    "fid_minus": "Fid-",
    "charact": "charact",
    "sparsity": "sparsity",
    "pns": "PNS",
    "recall_at_k": "Recall@K",
    "roc_auc": "ROC-AUC",
    "kept": "kept",
    "holds": "holds",
    "seconds": "s each",
}


def column_title(column: str) -> str:
    """Title of a column in tables.

    >>> column_title("soft.fid_plus"), column_title("cut_removed.pns"), column_title("seconds")
    ('soft Fid+', 'cut, removed PNS', 's each')
    """
    kind, dot, score = column.rpartition(".")
    return f"{kind.replace('_', ', ')} {COLUMN_TITLES[score]}" if dot else COLUMN_TITLES[score]


def manifest(folder: StudyFolder, name: str) -> dict[str, Any]:
    """How a study was run, what its trials took, and the hashes of data and weights, as plain data."""
    _, trials = folder.study(name)
    records = folder.records(trials)
    done = [record for record in records if record["status"] == "done"]
    networks = {f"{t.dataset}/{t.architecture} ({t.network})": folder.record(k) for k, t in trials.items()}
    return {
        **folder.manifest(name),
        "trials": {"all": len(trials), **{s: sum(r["status"] == s for r in records) for s in ("done", "skipped", "failed")}},
        "weights": {name: record["weights"] for name, record in networks.items() if record and "weights" in record},
        "data": {name: record["data"] for name, record in networks.items() if record and "data" in record},
        "first_started": min((record["started"] for record in records), default=None),
        "last_finished": max((record["finished"] for record in records), default=None),
        "wall_seconds_of_trials": round(sum(record["wall_seconds"] for record in done), 1),
        "cpu_seconds_of_trials": round(sum(record["cpu_seconds"] + record["measure_seconds"] for record in done), 1),
    }
