"""What writing a report of many instances costs: processor seconds of nseg.report on one thread.

Run it alone on the machine: ``OMP_NUM_THREADS=1 python benchmarks/report.py``. It prints one line.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
from csv_table import write_table
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explanation
from torch_geometric.nn import SAGEConv

from nseg import NSEG, Explainer, explain_many, report


class Sage(nn.Module):
    """Two SAGE layers for a random graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv(6, 32), SAGEConv(32, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        scores: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return scores


def many_instances(number: int) -> tuple[list[Explanation], Data, Explainer]:
    """Explanations of all nodes of a random graph with names, the graph and the explainer."""
    torch.manual_seed(0)
    data = Data(x=torch.randn(number, 6), edge_index=torch.randint(number, (2, 2 * number)), y=torch.randint(2, (number,)))
    data.node_names = [f"tx-{n:05d}" for n in range(number)]
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = Explainer(Sage().eval(), NSEG(), explanation_type="model", edge_mask_type="object", model_config=config)
    return explain_many(explainer, data, range(number)), data, explainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=5000)
    parser.add_argument("--out", type=Path, help="CSV to write")
    asked = parser.parse_args()
    number = asked.instances
    began = time.process_time()
    found, data, explainer = many_instances(number)
    explained = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        path = report(found, Path(folder) / "why.html", data=data, explainer=explainer)
        seconds = time.process_time() - began
        size = path.stat().st_size / 1e6
    row = {"instances": number, "seconds_explaining": explained, "seconds_report": seconds, "megabytes": size}
    write_table(asked.out, [{name: round(value, 1) for name, value in row.items()}])
    print(f"{number} instances: explained in {explained:.1f} s, report in {seconds:.1f} s of one processor, {size:.1f} MB")


if __name__ == "__main__":
    main()
