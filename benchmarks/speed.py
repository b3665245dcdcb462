"""Speed and quality of the default, compared with PyG's GNNExplainer in the same run: processor seconds on one thread.

    NSEG_DATA=... python benchmarks/speed.py --out benchmarks/results/speed.csv

For each dataset, network and mask (e: edges, ef: edges and nodes): milliseconds per instance of PyG's GNNExplainer (100
epochs, one call per instance), of ``explain_many`` for every level of effort, how many times faster that is, and mean PNS
(hard, mask) and mean size of the explanations. Run it alone on the machine. ``--memory``: the peak memory of
``explain_many`` against its budget instead.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table
from rich.console import Console
from rich.table import Table
from torch_geometric.explain import GNNExplainer

from nseg import NSEG, Explainer, NsegWarning, datasets, explain_many, models
from nseg.search.settings import EFFORTS

NAMES = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motif", "mutagenicity", "msrc-21")
MIB = 2**20
Row = dict[str, str | int | float]


def make_explainer(name: str, arch: str, masks: str, algorithm: Any) -> Explainer:
    return Explainer(
        models.pretrained(name, arch),
        algorithm,
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type="object" if masks == "ef" else None,
        model_config=datasets.load(name).model_config,
    )


def seconds(run: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of a call, and its result."""
    began = time.process_time()
    found = run()
    return time.process_time() - began, found


def mean(values: Iterator[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def measure(name: str, arch: str, masks: str, efforts: list[str], calls: int, every: int) -> Iterator[Row]:
    """One row per level of effort."""
    bench = datasets.load(name)
    data = bench.graphs[0] if bench.level == "node" else bench.graphs
    index = bench.instances[::every].tolist()
    few = index[:: max(1, len(index) // calls)][:calls]
    rival = make_explainer(name, arch, masks, GNNExplainer(epochs=100))
    explain_many(rival, data, few[:1], progress=False)  # warm up
    pyg = seconds(lambda: explain_many(rival, data, few, progress=False))[0] / len(few)
    for effort in efforts:
        explain = make_explainer(name, arch, masks, NSEG(effort=effort))
        explain_many(explain, data, few[:2], progress=False)
        used, found = seconds(partial(explain_many, explain, data, index, progress=False))
        ours = used / len(index)
        size = mean(float(sum(one[k].sum() for k in ("hard_edge_mask", "hard_node_mask") if k in one)) for one in found)
        yield {
            "dataset": name,
            "network": arch,
            "masks": masks,
            "effort": effort,
            "instances": len(index),
            "pyg_ms": round(1000 * pyg, 2),
            "ms": round(1000 * ours, 3),
            "times_faster": round(pyg / ours, 1),
            "pns": round(mean(one.pns for one in found), 4),
            "size": round(size, 3),
        }


def peak_memory(name: str, budget: int) -> float:
    """Peak memory of explaining a dataset in this process, in MiB above the start (Linux)."""
    bench = datasets.load(name)
    data = bench.graphs[0] if bench.level == "node" else bench.graphs
    explain = make_explainer(name, "gcn", "e", NSEG())
    explain_many(explain, data, bench.instances[:2].tolist(), progress=False)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = memory("VmRSS")
    explain_many(explain, data, bench.instances.tolist(), budget=budget, progress=False)
    return (memory("VmHWM") - before) / MIB


def peak_row(name: str, budget: int) -> Row:
    """Budget and peak memory of a dataset, in MiB, measured in a process of its own."""
    command = [sys.executable, __file__, "--measure", name, str(budget)]
    peak = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {"dataset": name, "budget_mib": budget // MIB, "peak_mib": round(peak)}


def memory(field: str) -> float:
    """A memory field of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def show(rows: list[Row], out: Path | None) -> None:
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=140).print(table)
    write_table(out, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--networks", nargs="+", default=["gcn", "gin"], choices=["gcn", "gin"])
    parser.add_argument("--masks", nargs="+", default=["e", "ef"], choices=["e", "ef"])
    parser.add_argument("--effort", nargs="+", default=["balanced"], choices=list(EFFORTS))
    parser.add_argument("--calls", type=int, default=8, help="instances explained by GNNExplainer")
    parser.add_argument("--every", type=int, default=1, help="explain every n-th instance")
    parser.add_argument("--out", type=Path, default=None, help="CSV to write")
    parser.add_argument("--memory", action="store_true", help="peak memory for two budgets instead")
    parser.add_argument("--measure", nargs=2, default=None, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NsegWarning)
    if asked.measure:
        print(peak_memory(asked.measure[0], int(asked.measure[1])))
        return
    if asked.memory:
        show([peak_row(name, budget) for name in asked.datasets for budget in (32 * MIB, 256 * MIB)], asked.out)
        return
    cases = [(name, arch, masks) for masks in asked.masks for arch in asked.networks for name in asked.datasets]
    rows = []
    for case in cases:
        for row in measure(*case, asked.effort, asked.calls, asked.every):
            rows.append(row)
            print(row, flush=True)
    show(rows, asked.out)


if __name__ == "__main__":
    main()
