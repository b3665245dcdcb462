"""Time of all metrics for 400 explanations on BA-Shapes, compared with the time to explain, on one thread.

python benchmarks/metrics.py --out benchmarks/results/metrics.csv
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from csv_table import write_table
from rich.console import Console
from rich.table import Table
from torch_geometric.explain import Explainer

from nseg import NSEG, explain_many, metrics
from nseg.datasets import load
from nseg.models import pretrained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="CSV to write")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load("ba-shapes")
    explain = Explainer(
        pretrained("ba-shapes", "gcn"),
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config=data.model_config,
    )
    graph = data.graphs[0]
    few = explain_many(explain, graph, data.instances[:8])  # warm up
    metrics.accuracy(data, few)
    metrics.Evaluator(explain, graph, few).fidelity("hard", "remove")
    rows: list[tuple[str, float]] = []

    def timed(name: str, run: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = run()
        rows.append((name, time.perf_counter() - start))
        return result

    found = timed("explaining 400 nodes", lambda: explain_many(explain, graph, data.instances))
    assert isinstance(found, list)
    evaluator = timed("setting up the evaluator", lambda: metrics.Evaluator(explain, graph, found))
    assert isinstance(evaluator, metrics.Evaluator)
    timed("fidelity, soft and hard, mask", lambda: [evaluator.fidelity(m) for m in ("soft", "hard")])
    timed("fidelity, hard, remove", lambda: evaluator.fidelity("hard", "remove"))
    timed("nine thresholds", evaluator.thresholds)
    timed("ten sparsities", evaluator.sparsities)
    timed("robust fidelity, 20 samples", evaluator.robust_fidelity)
    timed("unfaithfulness", evaluator.unfaithfulness)
    timed("accuracy against ground truth", lambda: metrics.accuracy(data, found))
    total = sum(seconds for name, seconds in rows[1:])
    rows.append(("all metrics", total))
    rows.append(("all metrics, as a share of explaining", total / rows[0][1]))
    table = Table("what", "seconds")
    for name, value in rows:
        table.add_row(name, f"{value:.3f}")
    Console().print(table)
    write_table(args.out, [{"what": name, "seconds": f"{value:.4f}"} for name, value in rows])


if __name__ == "__main__":
    main()
