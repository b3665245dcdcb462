"""What verifying every answer costs: processor seconds of explain_many with and without it, in turn, on one thread.

Run it alone on the machine: ``python benchmarks/verification.py``. Results: ``results/verification.csv``.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
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
    for name, step in (("ba-shapes", 2), ("tree-cycles", 2), ("mutagenicity", 5), ("msrc-21", 10)):
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


def seconds(explain: Explainer, data: Any, index: list[int], verify: bool) -> float:
    """Processor seconds of a call."""
    vars(base)["find_wrong"] = FIND_WRONG if verify else lambda *args: ([], False)
    began = time.process_time()
    explain_many(explain, data, index, progress=False)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--no-million", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    rows = []
    for name, explain, data, index in cases(not asked.no_million):
        seconds(explain, data, index[:2], True)  # warm up
        times = 1 if "million" in name else asked.times
        found = [(seconds(explain, data, index, True), seconds(explain, data, index, False)) for _ in range(times)]
        with_it, without = (min(column) for column in zip(*found, strict=True))
        row = {
            "case": name,
            "instances": len(index),
            "verified": f"{with_it:.2f}",
            "unverified": f"{without:.2f}",
            "share": f"{(with_it - without) / with_it:.3f}",
            "commit": git.stdout.strip(),
        }
        print(row, flush=True)
        rows.append(row)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
