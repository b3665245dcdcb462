"""Speed with several processes, and the overhead of the search over the model, on BA-Shapes' 400 motif nodes.

    python benchmarks/cores.py --out benchmarks/results/cores.csv

First part: seconds of ``explain_many`` in this process ("here"), in one worker process and in one per core; medians of
alternating runs. "started" includes the start of the workers, as a call with ``backend="processes"`` does; "there" uses
workers that are already running (one ``Processes`` object for several calls).
Second part, on one thread: a profile of explaining, and the time of a search step against a bare pass, which only sends the
same worlds forward and backward through the model. One bare pass follows each step, because the speed of a machine drifts.
Needs a quiet machine.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from csv_table import write_table
from rich.console import Console
from rich.table import Table

from nseg import NSEG, Explainer, explain_many
from nseg.backends import Processes
from nseg.backends.base import usable_cores
from nseg.datasets import load
from nseg.explain.many import open_causal_models
from nseg.models import pretrained
from nseg.search.climb import climb_bound
from nseg.search.parts import EDGES, Masks

STEPS = 300


def time_backends(explain: Explainer, data: Any, index: list[int], workers: int, repeats: int) -> dict[str, float]:
    """Median seconds in this process, in one worker and in several, with and without their start."""
    found: dict[str, list[float]] = {}

    def timed(name: str, **options: Any) -> Any:
        start = time.perf_counter()
        explanations = explain_many(explain, data, index, **options)
        found.setdefault(name, []).append(time.perf_counter() - start)
        return explanations

    here = timed("first", backend="local")  # warm up
    with Processes(1) as one, Processes(workers) as several:
        for pool in (one, several):
            there = timed("first", backend=pool)
            for a, b in zip(
                here, there, strict=True
            ):  # soft masks but for the last bits: batches are multiplied differently
                assert torch.equal(a.hard_edge_mask, b.hard_edge_mask)
                assert a.pns == b.pns
                assert torch.allclose(a.edge_mask, b.edge_mask, rtol=0, atol=1e-6)
        for _ in range(repeats):
            timed("here", backend="local")
            for count, pool in ((1, one), (workers, several)):
                timed(f"{count} there", backend=pool)
                timed(f"{count} started", backend="processes", workers=count)
    return {name: median(seconds) for name, seconds in found.items() if name != "first"}


def time_steps(explain: Explainer, data: Any, index: list[int]) -> dict[str, float]:
    """Median seconds of a search step, and of a bare pass of the same worlds."""
    algorithm = explain.algorithm
    settings = replace(algorithm.settings, steps=STEPS, patience=None)
    found: dict[str, list[float]] = {"step": [], "bare": []}
    with open_causal_models(explain, data, index) as models:
        ((_, causal),) = models
        parts = algorithm.parts(causal.instances)
        weight = torch.rand(algorithm.worlds(parts), parts.edges.owner.numel(), requires_grad=True)
        clock = time.perf_counter
        start = clock()

        def bare_pass() -> None:
            """Called by the search after each step: note the time of the step, then time a bare pass."""
            nonlocal start
            step_end = clock()
            weight.grad = None
            torch.autograd.backward(causal.log_odds(parts.to_weights(Masks({EDGES: weight}))).sum())
            found["step"].append(step_end - start)
            start = clock()
            found["bare"].append(start - step_end)

        climb_bound(causal, parts, settings, bare_pass)
    return {name: median(seconds[10:]) for name, seconds in found.items()}


def profile(explain: Explainer, data: Any, index: list[int]) -> list[tuple[str, float]]:
    """Cumulative seconds of the main functions of the search."""
    watched = {
        "climb_bound": "climb.py",
        "harden": "harden.py",
        "blend_to_hard": "harden.py",
        "evaluate": "worlds.py",
        "causal_models": "traced_graph.py",
        "standalone_graphs": "traced_graph.py",
        "_find_strategy": "traced_graph.py",
        "_finish": "base.py",
        "log_odds": "causal.py",
        "do_and_agree": "causal.py",
        "update": "descent.py",
        "plan": "runner.py",
        "threshold": "explanation.py",
    }
    run = cProfile.Profile()
    run.runcall(explain_many, explain, data, index)
    stats: Any = pstats.Stats(run)
    total = dict.fromkeys(watched, 0.0)
    for (path, _, name), (_, _, _, cumulative, _) in stats.stats.items():
        if name in watched and path.endswith(watched[name]):
            total[name] = max(total[name], cumulative)
    return [("all", stats.total_tt), *sorted(total.items(), key=lambda pair: -pair[1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=usable_cores())
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
    data, index = bench.graphs[0], bench.instances[: args.instances].tolist()
    found: dict[str, float] = {}
    if args.only != "steps":
        found |= time_backends(explain, data, index, args.workers, args.times)
        found["ratio, there"] = found["here"] / found[f"{args.workers} there"]
        found["ratio, started"] = found["here"] / found[f"{args.workers} started"]
    if args.only != "cores":
        found |= time_steps(explain, data, index[: len(index) // 2])
        found["overhead"] = found["step"] / found["bare"]
        found |= {f"within {name}": value for name, value in profile(explain, data, index[: len(index) // 2])}
    table = Table("what", "seconds or ratio")
    for name, value in found.items():
        table.add_row(name, f"{value:.4g}")
    Console().print(table)
    write_table(args.out, [{"what": name, "value": value} for name, value in found.items()])


if __name__ == "__main__":
    main()
