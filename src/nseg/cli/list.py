"""``nseg list``: tables of everything that has a name, one at a time."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from nseg.baselines.catalogue import CATALOGUE as METHODS
from nseg.cli.console import console, say
from nseg.datasets.names import ALL as DATASETS
from nseg.errors import InputError
from nseg.explain.presets import PAPER
from nseg.metrics.catalogue import CATALOGUE as METRICS
from nseg.models.catalogue import ARCHITECTURES, HETERO_ARCHITECTURES, manifest
from nseg.search.settings import Settings
from nseg.study import plan

EXPLAINED = {"node": "nodes", "graph": "graphs"}


def list_(
    what: Annotated[str | None, typer.Argument(help="datasets, methods, metrics, studies or settings.")] = None,
) -> None:
    """List datasets with their pre-trained models, methods, metrics, studies, or the paper's settings."""
    tables = {
        "datasets": datasets_table,
        "methods": methods_table,
        "metrics": metrics_table,
        "studies": studies_table,
        "settings": settings_table,
    }
    if what is None:
        say("Say what to list:")
        for name, table in tables.items():
            say(f"  nseg list {name:<10} {table().title}")
        return
    if what not in tables:
        raise InputError(f"nseg list shows {', '.join(tables)} (got {what!r}). Try nseg list datasets.")
    console().print(tables[what]())


def datasets_table() -> Table:
    """Return the datasets with the accuracy of the pre-trained models; of regressions, the root mean square error."""
    table = Table("dataset", "explains", "networks and their test accuracy", title="Datasets and pre-trained models")
    entries = manifest()
    for name in DATASETS:
        known = [one for one in (*ARCHITECTURES, *HETERO_ARCHITECTURES) if f"{name}/{one}" in entries]
        level = EXPLAINED[entries[f"{name}/{known[0]}"]["level"]]
        table.add_row(name, level, ", ".join(f"{one} {_score(entries[f'{name}/{one}'])}" for one in known))
    return table


def _score(entry: dict[str, Any]) -> str:
    error = entry.get("rmse")
    return f"{entry['accuracy']['test']:.3f}" if error is None else f"error {error['test']:.3f}"


def studies_table() -> Table:
    """Return the studies that ship with the package."""
    table = Table("study", "what it shows", title="Studies (nseg bench)")
    for name in plan.names():
        table.add_row(name, plan.find(name).title)
    return table


def methods_table() -> Table:
    """Return the explanation methods."""
    table = Table("method", "idea", title="Methods")
    for name, entry in METHODS.items():
        table.add_row(name, entry.idea)
    return table


def settings_table() -> Table:
    """Return how the paper's settings of NSEG differ from the defaults."""

    defaults = vars(Settings())
    table = Table("method", "settings that differ from the default", title="The paper's settings")
    for (dataset, masks), settings in PAPER.items():
        changed = (f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in settings.items() if v != defaults[k])
        table.add_row(f"nseg, paper, {dataset} ({masks})", ", ".join(changed))
    return table


def metrics_table() -> Table:
    """Return the metrics with their unit and direction."""
    table = Table("metric", "unit", "better", "what it is", title="Metrics")
    for name, metric in METRICS.items():
        table.add_row(name, *metric)
    return table
