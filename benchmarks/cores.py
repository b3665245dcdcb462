"""All cores, and how far the engine is from the model itself, on BA-Shapes' 400 motif nodes.

    python benchmarks/cores.py --out benchmarks/results/cores.csv

First: seconds of ``explain_many`` here, in one process and in as many as there are cores, measured in turn, medians; with
workers that have to be started, which takes a few seconds, and with workers that are there already (one ``Processes`` object
for several calls).
Second, on one thread: where the time of explaining goes, and a step of the search against bare passes, which send the same
worlds forward and back through the model and do nothing else; one bare pass is made after each step, because the speed of a
machine drifts. Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import cProfile
import csv
import os
import pstats
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from nseg import NSEG, Explainer, explain_many
from nseg.backends import Processes
from nseg.datasets import load
from nseg.many import causal_models
from nseg.models import pretrained
from nseg.search import search
from nseg.space import Masks

STEPS = 300


def on_cores(explain: Explainer, data: Any, rows: list[int], workers: int, times: int) -> dict[str, float]:
    """Seconds here, in one process and in several, measured in turn: the median of some runs, and the first start."""
    found: dict[str, list[float]] = {}

    def explained(name: str, **how: Any) -> Any:
        began = time.perf_counter()
        some = explain_many(explain, data, rows, **how)
        found.setdefault(name, []).append(time.perf_counter() - began)
        return some

    with Processes(1) as one, Processes(workers) as several:
        crews = {"here": "local", "1": one, f"{workers}": several}
        starts = {f"{name} started": crew for name, crew in crews.items() if crew != "local"}
        here = explained("first", backend="local")
        for name, crew in starts.items():
            there = explained(name, backend=crew)
            assert all(torch.equal(a.edge_mask, b.edge_mask) and a.pns == b.pns for a, b in zip(here, there, strict=True))
        for _ in range(times):
            for name, crew in crews.items():
                explained(name if name == "here" else f"{name} there", backend=crew)
    return {name: median(some) for name, some in found.items() if name != "first"}


def steps(explain: Explainer, data: Any, rows: list[int]) -> dict[str, float]:
    """Seconds of a step of the search, and of bare passes of the same worlds, one after each step; medians."""
    algorithm = explain.algorithm
    settings = replace(algorithm.settings, steps=STEPS, patience=None)
    found: dict[str, list[float]] = {"step": [], "bare": []}
    with causal_models(explain, data, rows) as parts:
        ((_, scm),) = parts
        space = algorithm.space(scm.instances)
        weight = torch.rand(algorithm.worlds(space), space.edge_owner.numel(), requires_grad=True)
        clock = time.perf_counter
        began = clock()

        def bare() -> None:
            nonlocal began
            passed = clock()
            weight.grad = None
            torch.autograd.backward(scm.log_odds(*space.weights(Masks(weight, None))).sum())
            found["step"].append(passed - began)
            began = clock()
            found["bare"].append(began - passed)

        search(scm, space, settings, bare)
    return {name: median(times[10:]) for name, times in found.items()}


def profile(explain: Explainer, data: Any, rows: list[int]) -> list[tuple[str, float]]:
    """Seconds within the parts of the engine, each with all that it calls."""
    watched = {"search": "search.py", "harden": "extract.py", "towards": "extract.py", "evaluate": "space.py"}
    watched |= {"scms": "source.py", "standalone": "source.py", "_find_way": "source.py", "_write": "work.py"}
    watched |= {
        "log_odds": "scm.py",
        "verdict": "scm.py",
        "meet": "search.py",
        "_plan": "scm.py",
        "threshold": "explanation.py",
    }
    run = cProfile.Profile()
    run.runcall(explain_many, explain, data, rows)
    stats: Any = pstats.Stats(run)
    total = dict.fromkeys(watched, 0.0)
    for (path, _, name), (_, _, _, cumulative, _) in stats.stats.items():
        if name in watched and path.endswith(watched[name]):
            total[name] = max(total[name], cumulative)
    return [("all", stats.total_tt), *sorted(total.items(), key=lambda pair: -pair[1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--instances", type=int, default=400)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", choices=["cores", "steps"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    bench = load("ba-shapes")
    explain = Explainer(
        pretrained("ba-shapes", "gcn"),
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config=bench.model_config,
    )
    data, rows = bench.graphs[0], bench.instances[: args.instances].tolist()
    found: dict[str, float] = {}
    if args.only != "steps":
        found |= on_cores(explain, data, rows, args.workers, args.times)
        found["ratio, there"] = found["here"] / found[f"{args.workers} there"]
        found["ratio, started"] = found["here"] / found[f"{args.workers} started"]
    if args.only != "cores":
        found |= steps(explain, data, rows[: len(rows) // 2])
        found["overhead"] = found["step"] / found["bare"]
        found |= {f"within {name}": value for name, value in profile(explain, data, rows[: len(rows) // 2])}
    table = Table("what", "seconds or ratio")
    for name, value in found.items():
        table.add_row(name, f"{value:.4g}")
    Console().print(table)
    if args.out is not None:
        with args.out.open("w", newline="") as file:
            csv.writer(file).writerows([("what", "value"), *found.items()])


if __name__ == "__main__":
    main()
