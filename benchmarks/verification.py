"""What verifying every answer costs: processor seconds spent on it, and of the whole call of explain_many, on one thread.

Run it alone on the machine: ``python benchmarks/verification.py``. Results: ``results/verification.csv``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from nseg import NSEG, Explainer, LargeGraph, datasets, explain_many, models
from nseg.explain import verification
from nseg.explain.jobs import base

RESULTS = Path(__file__).parent / "results" / "verification.csv"
FIND_WRONG = verification.find_wrong


class Gcn(nn.Module):
    """Three GCN layers for the random graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(8, 16), GCNConv(16, 16), GCNConv(16, 4)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        scores: Tensor = self.convs[-1](x, edge_index)
        return scores


def explainer(model: nn.Module, config: dict[str, str], joint: bool = False) -> Explainer:
    return Explainer(
        model,
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type="object" if joint else None,
        model_config=config,
    )


def cases(million: bool) -> Iterator[tuple[str, Explainer, Any, list[int]]]:
    """Name, explainer, data and index."""
    for name, step in (("ba-shapes", 1), ("tree-grid", 2), ("mutagenicity", 2), ("msrc-21", 5)):
        bench = datasets.load(name)
        data = bench.graphs[0] if bench.level == "node" else bench.graphs
        for joint in (False, True):
            explain = explainer(models.pretrained(name, "gcn"), bench.model_config, joint)
            yield f"{name} {'ef' if joint else 'e'}", explain, data, bench.instances[::step].tolist()
    if not million:
        return
    rng = torch.Generator().manual_seed(0)
    nodes, edges = 200_000, 1_000_000
    ends = torch.randint(0, nodes, (2, edges), generator=rng)
    data = Data(x=torch.randn(nodes, 8, generator=rng), edge_index=ends)
    torch.manual_seed(0)
    explain = explainer(Gcn().eval(), {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"})
    index = torch.randperm(nodes, generator=rng)[:1000].tolist()
    yield "a million edges, in memory", explain, data, index
    yield "a million edges, LargeGraph", explain, LargeGraph(data), index


def seconds(explain: Explainer, data: Any, index: list[int]) -> tuple[float, float]:
    """Processor seconds of a call, and those of them that verification takes."""
    checking = 0.0

    def timed(*args: Any) -> tuple[list[int], bool]:
        nonlocal checking
        began = time.process_time()
        found = FIND_WRONG(*args)
        checking += time.process_time() - began
        return found

    vars(base)["find_wrong"] = timed
    began = time.process_time()
    explain_many(explain, data, index, progress=False)
    return time.process_time() - began, checking


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--no-million", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, explain, data, index in cases(not asked.no_million):
        seconds(explain, data, index[:2])  # warm up
        times = 1 if "million" in name else asked.times
        found = [seconds(explain, data, index) for _ in range(times)]
        total, checking = (statistics.median(column) for column in zip(*found, strict=True))
        row = {
            "case": name,
            "instances": len(index),
            "seconds": f"{total:.2f}",
            "verification": f"{checking:.2f}",
            "share": f"{checking / total:.3f}",
        }
        print(row, flush=True)
        rows.append(row)
    write_table(RESULTS, rows)


if __name__ == "__main__":
    main()
