"""Explanations of a regression: solubilities of molecules (ESOL), by outcome and method.

    NSEG_DATA=... python benchmarks/outcomes.py [--molecules 113]

Both shipped networks, on the molecules of their test split. The noise of a prediction is the network's test error. Columns:
mean PNS bound, share of molecules whose outcome holds with the explanation alone (keeps) and fails without it (changes),
kept bonds and bonds, milliseconds per molecule on one thread. Writes results/outcomes.csv.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table

from nseg import Above, Explainer, Within, baselines, explain_many, metrics
from nseg.datasets import load
from nseg.events import Event
from nseg.models import ARCHITECTURES, manifest, pretrained
from nseg.models.training import random_split
from nseg.wording import kept_parts

METHODS = ("nseg", "occlusion", "integrated_gradients", "gnnexplainer", "random")
OUT = Path(__file__).parent / "results" / "outcomes.csv"
WARM_UP = 9  # molecules that are explained once before the clock starts


def measure(architecture: str, event: Event, method: str, most: int) -> dict[str, Any]:
    """One line of the table."""
    data, model = load("esol"), pretrained("esol", architecture)
    algorithm = baselines.make(method, outcome=event, undirected=True)
    explainer = Explainer(
        model, algorithm, explanation_type="model", edge_mask_type="object", model_config=data.model_config
    )
    index = random_split(len(data.graphs), 0)["test"].tolist()[:most]
    if isinstance(event, Above):
        index = [n for n in index if float(model(data.graphs[n].x, data.graphs[n].edge_index)) > event.threshold]
    explain_many(explainer, data.graphs, index[:WARM_UP])
    start = time.perf_counter()
    found = explain_many(explainer, data.graphs, index)
    seconds = time.perf_counter() - start
    fidelity = metrics.Evaluator(explainer, data.graphs, found).fidelity("hard")
    sizes = [kept_parts(one)[0] for one in found]
    return {
        "network": architecture,
        "outcome": repr(event),
        "method": method,
        "molecules": len(found),
        "pns": round(fidelity.pns, 3),
        "keeps": round(1 - fidelity.fid_minus, 3),
        "changes": round(fidelity.fid_plus, 3),
        "bonds_kept": round(sum(size.kept for size in sizes) / len(sizes), 1),
        "bonds": round(sum(size.total for size in sizes) / len(sizes), 1),
        "ms": round(1000 * seconds / len(found), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=113)
    most = parser.parse_args().molecules
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rows = []
    for architecture in ARCHITECTURES:
        scale = round(manifest()[f"esol/{architecture}"]["rmse"]["test"], 2)
        for event in (Within(0.5, scale=scale), Within(1.0, scale=scale), Above(-3.0, scale=scale)):
            for method in METHODS:
                rows.append(measure(architecture, event, method, most))
                print(*rows[-1].values(), flush=True)
                write_table(OUT, rows)


if __name__ == "__main__":
    main()
