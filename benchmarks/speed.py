"""Speed of explain_many, compared with PyG's GNNExplainer and with NSEG one at a time, on one thread.

    NSEG_DATA=... python benchmarks/speed.py --out benchmarks/results/speed.csv

Prints for each of the authors' three GCNs: seconds per instance of PyG's GNNExplainer (100 epochs, one call per instance),
of ``explain_many`` with default settings, and of NSEG called once per instance; the ratios; charact of soft masks with
default settings and with the paper's preset; peak memory above the start for two budgets; and seconds per instance as the
number of instances doubles from 16 to 512.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from authors import GRAPHS, explainer, fidelity, load
from rich.console import Console
from rich.table import Table
from torch_geometric.explain import GNNExplainer

from nseg import NSEG, explain_many

MIB = 2**20


def seconds(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def peak_memory(name: str, folder: Path, budget: int) -> float:
    """Peak memory of explaining all motif nodes in bytes above the start, measured in another process."""
    command = [sys.executable, __file__, "--data", str(folder), "--measure", name, "--budget", str(budget)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def measure_peak_memory(name: str, folder: Path, budget: int) -> float:
    """Peak memory of explaining all motif nodes in this process, in bytes above the start."""
    model, data = load(name, folder)
    explain = explainer(model, NSEG(), "e")
    explain_many(explain, data, [data.num_nodes - 1])  # warm up
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = memory("VmRSS")
    explain_many(explain, data, range(GRAPHS[name][0], data.num_nodes), budget=budget)
    return memory("VmHWM") - before


def memory(field: str) -> float:
    """A memory field of this process in bytes, from Linux's /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def measure_graph(name: str, folder: Path, calls: int) -> list[tuple[str, str, float]]:
    """All measurements of one graph: graph, what was measured, value."""
    first, *_ = GRAPHS[name]
    model, data = load(name, folder)
    motif = range(first, data.num_nodes)
    few = motif[:: len(motif) // calls][:calls]
    pyg, ours, preset = (explainer(model, a, "e") for a in (GNNExplainer(epochs=100), NSEG(), NSEG.paper(name.lower(), "e")))
    for explain in (pyg, ours):  # warm up
        explain(data.x, data.edge_index, index=first)
    slow = seconds(lambda: [pyg(data.x, data.edge_index, index=i) for i in few]) / len(few)
    loop = seconds(lambda: [ours(data.x, data.edge_index, index=i) for i in few]) / len(few)
    found = explain_many(ours, data, motif)
    fast = min(seconds(lambda: explain_many(ours, data, motif)) for _ in range(3)) / len(motif)
    by_preset = explain_many(preset, data, motif)
    result = [
        (name, "GNNExplainer, seconds per instance", slow),
        (name, "NSEG one at a time, seconds per instance", loop),
        (name, f"explain_many of {len(motif)}, seconds per instance", fast),
        (name, "times faster than GNNExplainer", slow / fast),
        (name, "times faster than one at a time", loop / fast),
        (name, "charact (soft, mask), default", fidelity(ours, data, found, hard=False)["charact_c"]),
        (name, "charact (soft, mask), paper's preset", fidelity(preset, data, by_preset, hard=False)["charact_c"]),
    ]
    for budget in (32 * MIB, 256 * MIB):
        result.append((name, f"peak MiB above start, budget {budget // MIB} MiB", peak_memory(name, folder, budget) / MIB))
    doubling = [16, 32, 64, 128, 256, 512]
    cycle = [motif[i % len(motif)] for i in range(0, 7 * doubling[-1], 7)]  # spread over all motifs
    for count in doubling:
        each = min(seconds(partial(explain_many, ours, data, cycle[:count])) for _ in range(2)) / count
        result.append((name, f"seconds per instance of {count}", each))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("NSEG_DATA"), help="folder that holds authors/")
    parser.add_argument("--calls", type=int, default=20, help="instances for the one-at-a-time loops")
    parser.add_argument("--out", type=Path, default=None, help="CSV to write")
    parser.add_argument("--measure", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=int, default=256 * MIB, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.data is None:
        parser.error("--data FOLDER or NSEG_DATA must name the folder with authors/GCN_*.npz")
    torch.set_num_threads(1)
    if args.measure:
        print(measure_peak_memory(args.measure, args.data, args.budget))
        return
    table = Table("graph", "what", "value")
    records = [record for name in GRAPHS for record in measure_graph(name, args.data, args.calls)]
    for name, what, value in records:
        table.add_row(name, what, f"{value:.4g}")
    Console(width=100).print(table)
    if args.out:
        with args.out.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["graph", "what", "value"])
            writer.writerows((name, what, f"{value:.6g}") for name, what, value in records)


if __name__ == "__main__":
    main()
