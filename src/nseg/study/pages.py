"""A study as interactive pages: one per dataset and network, methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nseg import store
from nseg.errors import InputError
from nseg.reports import report
from nseg.study import summary, task, trial
from nseg.study.plan import Trial, short
from nseg.study.runs import Run

NOTE = (
    "Shares in percent, with their 95 % bootstrap intervals over instances and the paper's number where it has one. soft: "
    "masks as they are; hard: the method's own hard explanation. Never read charact without sparsity: the whole graph "
    "scores high."
)
SHOWN = 3  # methods side by side, if none are named


def write_pages(run: Run, name: str, folder: str | Path, methods: Sequence[str] = (), only: str | None = None) -> list[Path]:
    """Write a page for each dataset and network of a study; the explanations are those of the first seed.

    Args:
        run: where the study was run.
        name: of the study.
        folder: to write into.
        methods: labels to show; the first three that explain all instances if none.
        only: one dataset.
    """
    study, trials = run.study(name)
    labels = [label for method in study.methods for label, _ in study.variants(method)]
    for label in methods:
        if label not in labels:
            raise InputError(f"The study has the methods {'; '.join(labels)} (got {label!r}).")
    lines, written = summary.summary(run, name), []
    for place in dict.fromkeys((one.dataset, one.architecture) for one in trials.values()):
        found = _first_seeds(run, trials, place)
        full = max((record["instances"] for record in found.values()), default=0)
        chosen = methods or [label for label in labels if found.get(label, {}).get("instances") == full][:SHOWN]
        chosen = [label for label in chosen if label in found]
        if not chosen or (only is not None and place[0] != only):
            continue
        path = store.prepared(folder) / f"{name}-{'-'.join(place)}.html"
        table = summary_table(study.columns, [line for line in lines if (line.dataset, line.architecture) == place])
        written.append(_page(run, name, {label: found[label] for label in chosen}, table, path))
    return written


def _first_seeds(run: Run, trials: dict[str, Trial], place: tuple[str, str]) -> dict[str, dict[str, Any]]:
    """The record of the first seed of each method on one dataset and network."""
    found: dict[str, dict[str, Any]] = {}
    for key, one in trials.items():
        record = run.record(key)
        if (one.dataset, one.architecture) == place and record is not None and record["status"] == "done":
            found.setdefault(one.label, record)
    return found


def _page(run: Run, name: str, records: dict[str, dict[str, Any]], table: dict[str, Any], path: Path) -> Path:
    first = Trial(**next(iter(records.values()))["trial"])
    here = task.load(first.dataset, first.architecture, first.network)
    explanations = {
        label: store.read_explanations(run.folder / "explanations" / f"{record['key']}.parquet")
        for label, record in records.items()
    }
    facts = {
        "explained": f"the classes of {len(next(iter(explanations.values())))} {here.bench.level}s",
        "network": f"{first.architecture.upper()}, {'by the authors' if first.network == 'authors' else 'by this project'}",
        "seed": first.seed,
        **{f"settings of {label}": _settings(record) for label, record in records.items()},
        "made by": run.manifest(name)["command"],
        "nseg": run.manifest(name)["nseg"],
    }
    title = f"{first.dataset}, {first.architecture.upper()}: {run.study(name)[0].title}"
    explainer = here.explainer(trial.algorithm(first), first.masks)
    return report(explanations, path, data=here.bench, explainer=explainer, title=title, summary=table, facts=facts)


def _settings(record: dict[str, Any]) -> str:
    return ", ".join(f"{key}={short(value)}" for key, value in record["settings"].items() if value is not None)


def summary_table(columns: Sequence[str], lines: Sequence[summary.Line]) -> dict[str, Any]:
    """The lines of one dataset and network as the page's summary."""
    cells = {(line.label, line.column): line for line in lines}
    known = [column for column in columns if any(line.column == column for line in lines)]
    heads: list[dict[str, Any]] = [{"name": "method"}]
    for column in known:
        lower = any(column.endswith(one) for one in summary.LOWER_IS_BETTER)
        ranked = not any(one in column for one in summary.NOT_RANKED)
        heads.append(
            {
                "name": summary.head(column),
                "digits": 4 if column == "seconds" else 1,
                **({"better": "lower" if lower else "higher"} if ranked else {}),
            }
        )
    rows = [
        [label, *(_cell(cells.get((label, column))) for column in known)]
        for label in dict.fromkeys(line.label for line in lines)
    ]
    return {"title": "All methods of the study", "columns": heads, "rows": rows, "notes": [NOTE]}


def _cell(line: summary.Line | None) -> Any:
    if line is None:
        return None
    found: dict[str, Any] = {"value": line.mean}
    if line.column != "seconds":
        found |= {"low": line.low, "high": line.high}
    return found if line.paper is None else {**found, "paper": line.paper}
