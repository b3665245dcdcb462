"""Where the time goes: share of each stage, cost of a step, and how cost grows; see docs/time.md.

    python benchmarks/time_profile.py --out benchmarks/results/time_profile.csv
    python benchmarks/time_profile.py --growth --times 2 --out benchmarks/results/time_growth.csv

The first form profiles three datasets. With ``--growth``, random graphs and untrained GCNs of a given size are explained at
graph level by edges, with a fixed number of steps, so that only the size changes. Seconds are CPU seconds of one thread, the
least of some repeats. A slope is that of log cost against log size by least squares, over all sizes and over the largest
two: 1 means that twice the size costs twice as much. Stages come from ``cProfile``, which makes Python calls look somewhat
more expensive than they are.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import pstats
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool

from nseg import NSEG, Explainer, explain_many
from nseg.datasets import load
from nseg.explain.many import open_causal_models
from nseg.models import pretrained
from nseg.search.climb import climb_bound
from nseg.search.parts import EDGES, Masks

USUAL = {"edges": 60, "layers": 3, "width": 32, "instances": 32}
GROWTH = {"edges": (30, 120, 480), "layers": (1, 2, 4), "width": (16, 64, 256), "instances": (16, 64, 256)}
FEATURES, CLASSES = 8, 3
CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
STAGES = {
    "soft masks": ("climb_bound", "climb.py"),
    "hard masks": ("harden", "harden.py"),
    "soft masks no worse than hard": ("blend_to_hard", "harden.py"),
    "verification": ("find_wrong", "verification.py"),
    "explanation objects": ("_finish", "base.py"),
}


class GCN(nn.Module):
    """Some GCN layers of one width and a mean read-out."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        sizes = [FEATURES] + [width] * layers
        self.layers = nn.ModuleList(GCNConv(a, b) for a, b in pairwise(sizes))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        scores: Tensor = self.head(global_mean_pool(x, batch))
        return scores


def make_explainer(model: nn.Module, config: Any, **settings: Any) -> Explainer:
    """An explainer by edges."""
    return Explainer(model, NSEG(**settings), explanation_type="model", edge_mask_type="object", model_config=config)


def random_graphs(number: int, edges: int) -> list[Data]:
    """Graphs with random features and edges, three edges per node."""
    draw, nodes = torch.Generator().manual_seed(0), max(edges // 3, 2)
    return [
        Data(x=torch.randn(nodes, FEATURES, generator=draw), edge_index=torch.randint(nodes, (2, edges), generator=draw))
        for _ in range(number)
    ]


def cpu_seconds(explainer: Explainer, data: Any, index: Any, repeats: int) -> float:
    """The least CPU seconds of some calls."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        explain_many(explainer, data, index, progress=False)
        found.append(time.process_time() - began)
    return min(found)


def slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Slope of log cost against log size, by least squares.

    >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def measure_growth(repeats: int) -> list[tuple[str, str, float]]:
    """CPU seconds as one size grows and the others stay, and the slopes."""
    rows = []
    for name, sizes in GROWTH.items():
        costs = []
        for size in sizes:
            now = USUAL | {name: size}
            torch.manual_seed(0)
            explainer = make_explainer(GCN(now["layers"], now["width"]).eval(), CONFIG, patience=None, kicks=0, exact=0)
            costs.append(cpu_seconds(explainer, random_graphs(now["instances"], now["edges"]), None, repeats))
            rows.append((f"growth with {name}", str(size), costs[-1]))
        rows.append((f"growth with {name}", "slope", slope(sizes, costs)))
        rows.append((f"growth with {name}", "slope at the end", slope(sizes[-2:], costs[-2:])))
    return rows


def measure_stages(explainer: Explainer, data: Any, index: Any) -> list[tuple[str, float]]:
    """Share of the time of a call that each stage takes."""
    run = cProfile.Profile(time.process_time)
    run.runcall(explain_many, explainer, data, index, progress=False)
    stats: Any = pstats.Stats(run)
    total = max(cumulative for (_, _, name), (_, _, _, cumulative, _) in stats.stats.items() if name == "explain_many")
    shares = []
    for stage, (function, file) in STAGES.items():
        seconds = [
            cumulative
            for (path, _, name), (_, _, _, cumulative, _) in stats.stats.items()
            if name == function and path.endswith(f"/{file}")
        ]
        shares.append((stage, max(seconds, default=0.0) / total))
    return [*shares, ("all else", 1 - sum(share for _, share in shares))]


def step_overhead(explainer: Explainer, data: Any, index: Any) -> float:
    """CPU seconds of a search step, divided by those of a bare forward and backward pass of the same worlds."""
    algorithm: Any = explainer.algorithm
    clock, step, bare = time.process_time, list[float](), list[float]()
    with open_causal_models(explainer, data, index) as models:
        _, causal = next(iter(models))
        parts = algorithm.parts(causal.instances)
        weight = torch.rand(2 * len(algorithm.settings.starts), parts.edges.owner.numel(), requires_grad=True)
        start = clock()

        def pass_after_step() -> None:
            nonlocal start
            end = clock()
            weight.grad = None
            torch.autograd.backward(causal.log_odds(parts.to_weights(Masks({EDGES: weight}))).sum())
            step.append(end - start)
            start = clock()
            bare.append(start - end)

        climb_bound(causal, parts, algorithm.settings, pass_after_step)
    middle = len(step) // 2
    return sorted(step)[middle] / sorted(bare)[middle]


def measure_dataset(name: str, instances: int, repeats: int) -> list[tuple[str, str, float]]:
    """CPU seconds per 1,000 predictions of a dataset, shares of stages, and the overhead of a step."""
    bench = load(name)
    explainer = make_explainer(pretrained(name, "gcn"), bench.model_config)
    data, index = bench.graphs if len(bench.graphs) > 1 else bench.graphs[0], bench.instances[:instances].tolist()
    cost = 1000 * cpu_seconds(explainer, data, index, repeats) / len(index)
    stages = measure_stages(explainer, data, index)
    slow = make_explainer(explainer.model, bench.model_config, steps=60, patience=None)
    return [
        (name, "CPU seconds per 1,000", cost),
        (name, "step over bare pass", step_overhead(slow, data, index)),
        *((name, stage, share) for stage, share in stages),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--datasets", nargs="*", default=["ba-shapes", "tree-cycles", "mutagenicity"])
    parser.add_argument("--instances", type=int, default=250)
    parser.add_argument("--times", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.growth:
        rows = measure_growth(args.times)
    else:
        rows = [row for name in args.datasets for row in measure_dataset(name, args.instances, args.times)]
    for subject, what, value in rows:
        print(f"{subject:24} {what:32} {value:.4g}")
    write_table(args.out, [{"subject": subject, "what": what, "value": value} for subject, what, value in rows])


if __name__ == "__main__":
    main()
