"""Interactive pages of a study: one per dataset and network, with methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nseg.errors import InputError
from nseg.reports import report
from nseg.runs.parquet import read_file
from nseg.storage.files import prepare_folder
from nseg.study.folder import StudyFolder
from nseg.study.plan import Trial, format_setting
from nseg.study.summary import LOWER_IS_BETTER, NOT_RANKED, Score, column_title, summary
from nseg.study.task import load_task
from nseg.study.trial import Record, make_algorithm

NOTE = (
    "Shares in percent, with 95 % bootstrap intervals over instances, and the paper's number where it has one. soft: soft "
    "masks; hard: the method's own hard explanation. Never read charact without sparsity: the whole graph scores high."
)
DEFAULT_METHODS = 3  # number of methods side by side, if the caller names none


def write_pages(
    folder: StudyFolder, name: str, out: str | Path, methods: Sequence[str] = (), only: str | None = None
) -> list[Path]:
    """Write a page for each dataset and network of a study, with the explanations of the first seed.

    Args:
        folder: the run folder of the study.
        name: name of the study.
        out: folder to write into.
        methods: labels of the methods to show; if empty, the first three that explain all instances.
        only: write only the pages of this dataset.
    """
    study, trials = folder.study(name)
    labels = [label for method in study.methods for label, _ in study.variants(method)]
    for label in methods:
        if label not in labels:
            raise InputError(f"The study has the methods {'; '.join(labels)} (got {label!r}). Check the spelling.")
    scores, written = summary(folder, name), []
    for network in dict.fromkeys((trial.dataset, trial.architecture) for trial in trials.values()):
        records = _first_seeds(folder, trials, network)
        total = max((record["instances"] for record in records.values()), default=0)
        complete = [label for label in labels if records.get(label, {}).get("instances") == total]
        chosen = [label for label in methods or complete[:DEFAULT_METHODS] if label in records]
        if not chosen or (only is not None and network[0] != only):
            continue
        path = prepare_folder(out) / f"{name}-{'-'.join(network)}.html"
        table = summary_table(study.columns, [score for score in scores if (score.dataset, score.architecture) == network])
        written.append(_write_page(folder, name, {label: records[label] for label in chosen}, table, path))
    return written


def _first_seeds(folder: StudyFolder, trials: dict[str, Trial], network: tuple[str, str]) -> dict[str, Record]:
    """For one dataset and architecture, the record of each method's first seed that is done, by label."""
    found: dict[str, Record] = {}
    for key, trial in trials.items():
        record = folder.record(key)
        if (trial.dataset, trial.architecture) == network and record is not None and record["status"] == "done":
            found.setdefault(trial.label, record)
    return found


def _write_page(folder: StudyFolder, name: str, records: dict[str, Record], table: dict[str, Any], path: Path) -> Path:
    first = Trial(**next(iter(records.values()))["trial"])
    task = load_task(first.dataset, first.architecture, first.network)
    explanations = {
        label: read_file(folder.path / "explanations" / f"{record['key']}.parquet") for label, record in records.items()
    }
    facts = {
        "explained": f"the classes of {len(next(iter(explanations.values())))} {task.bench.level}s",
        "network": f"{first.architecture.upper()}, {'by the authors' if first.network == 'authors' else 'by this project'}",
        "seed": first.seed,
        **{f"settings of {label}": _settings_text(record) for label, record in records.items()},
        "made by": folder.manifest(name)["command"],
        "nseg": folder.manifest(name)["nseg"],
    }
    title = f"{first.dataset}, {first.architecture.upper()}: {folder.study(name)[0].title}"
    explainer = task.explainer(make_algorithm(first), first.masks)
    return report(explanations, path, data=task.bench, explainer=explainer, title=title, summary=table, facts=facts)


def _settings_text(record: Record) -> str:
    return ", ".join(f"{key}={format_setting(value)}" for key, value in record["settings"].items() if value is not None)


def summary_table(columns: Sequence[str], scores: Sequence[Score]) -> dict[str, Any]:
    """The scores of one dataset and network, in the form of the page's summary table."""
    cells = {(score.label, score.column): score for score in scores}
    known = [column for column in columns if any(score.column == column for score in scores)]
    headers: list[dict[str, Any]] = [{"name": "method"}]
    for column in known:
        lower = any(column.endswith(one) for one in LOWER_IS_BETTER)
        ranked = not any(one in column for one in NOT_RANKED)
        headers.append(
            {
                "name": column_title(column),
                "digits": 4 if column == "seconds" else 1,
                **({"better": "lower" if lower else "higher"} if ranked else {}),
            }
        )
    rows = [
        [label, *(_cell(cells.get((label, column))) for column in known)]
        for label in dict.fromkeys(score.label for score in scores)
    ]
    return {"title": "All methods of the study", "columns": headers, "rows": rows, "notes": [NOTE]}


def _cell(score: Score | None) -> Any:
    if score is None:
        return None
    found: dict[str, Any] = {"value": score.mean}
    if score.column != "seconds":
        found |= {"low": score.low, "high": score.high}
    return found if score.paper is None else {**found, "paper": score.paper}
