"""PGExplainer with the authors' training, with the settings of this package, and in the paper.

    NSEG_DATA=... python benchmarks/pgexplainer.py --paper results.csv

For every dataset and the shipped GCNs: soft Fid+, Fid- and charact, charact and sparsity of masks cut at 0.5, the share of
explanations that keep nothing, and accuracy; the paper's numbers beside, all in percent. Half of the instances (a quarter of
BA2Motif), which are those it is trained on.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import torch
from authors import paper_numbers
from csv_table import write_table
from race import ROOT, Row, Run, Task

from nseg import NsegWarning, datasets
from nseg.baselines.pgexplainer import AUTHORS, PGExplainer
from nseg.datasets.names import NAMES
from nseg.metrics import Evaluator, accuracy

PAPER_NAMES = dict(zip(NAMES, ("BA-Shapes", "Tree-Cycles", "Tree-Grid", "BA2Motif", "Mutagenicity", "MSRC_21"), strict=True))


def percent(value: Any) -> float:
    return round(100 * float(value), 1)


def measure(task: Task, algorithm: PGExplainer) -> Row:
    run = Run.of(task, algorithm)
    evaluator, right = Evaluator(run.explainer, task.data, run.found), accuracy(datasets.load(task.dataset), run.found)
    soft, hard = evaluator.fidelity("soft"), evaluator.fidelity("hard", "mask")
    return {
        "instances": len(run.found),
        **{f"soft_{name}": percent(getattr(soft, name)) for name in ("fid_plus", "fid_minus", "charact")},
        "hard_charact": percent(hard.charact),
        "hard_sparsity": percent(hard.sparsity),
        "empty": percent(sum(not bool(one.hard_edge_mask.any()) for one in run.found) / len(run.found)),
        "recall_at_k": percent(right.recall_at_k.nanmean()),
        "roc_auc": percent(right.roc_auc.nanmean()),
        "cpu_ms": round(1000 * run.seconds / len(run.found), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--paper", type=Path, default=None, help="the paper's numbers")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "pgexplainer.csv")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NsegWarning)
    published, rows = paper_numbers(asked.paper), list[Row]()
    for name in asked.datasets:
        task = Task.load(name, "gcn", 4 if name == "ba-2motif" else 2)
        price = 0.01 if task.config["task_level"] == "node" else 0.05
        for training, changes in (("the authors'", {**AUTHORS, "size": price}), ("ours", {})):
            row = {"dataset": name, "training": training} | measure(task, PGExplainer.paper(name, **changes))
            rows.append(row)
        theirs = {
            key: published.get((PAPER_NAMES[name], "pgexplainer", metric), "")
            for key, metric in (
                *((f"soft_{one}", f"{one}_c") for one in ("fid_plus", "fid_minus", "charact")),
                *((one, one) for one in ("recall_at_k", "roc_auc")),
            )
        }
        rows.append({"dataset": name, "training": "the paper's", **theirs})
        print(*rows[-3:], sep="\n", flush=True)
        write_table(asked.out, rows)


if __name__ == "__main__":
    main()
