"""Why switch from GNNExplainer: both on the same molecules, judged with bonds really deleted. The README's figures.

    python benchmarks/switch.py

Explains the 250 molecules of Mutagenicity that the paper explains, with the project's GCN: by NSEG as it is, and by
GNNExplainer (100 epochs, all at once) with the part of its ranking that has the best bound. Writes results/switch.csv: mean
bound of PNS and mean number of kept bonds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from csv_table import write_table

from nseg import NSEG, Explainer, explain_many
from nseg.baselines import make
from nseg.datasets import load
from nseg.models import pretrained

HERE = Path(__file__).parent


def measure(name: str, algorithm: Any) -> dict[str, Any]:
    """One method's line of the table."""
    data, model = load("mutagenicity"), pretrained("mutagenicity", "gcn")
    explainer = Explainer(
        model, algorithm, explanation_type="model", edge_mask_type="object", model_config=dict(data.model_config)
    )
    found = explain_many(explainer, data.graphs, data.instances)
    bonds = [len({tuple(sorted(ends)) for ends in one.edge_index[:, one.hard_edge_mask].T.tolist()}) for one in found]
    return {
        "method": name,
        "instances": len(found),
        "pns": round(sum(float(one.pns) for one in found) / len(found), 4),
        "bonds": round(sum(bonds) / len(bonds), 2),
    }


def main() -> None:
    torch.set_num_threads(1)
    rows = [measure("nseg", NSEG()), measure("gnnexplainer", make("gnnexplainer", intervention="remove"))]
    for row in rows:
        print(row)
    write_table(HERE / "results" / "switch.csv", rows)


if __name__ == "__main__":
    main()
