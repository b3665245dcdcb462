"""Every method on the same instances, in one table, compared with the paper's numbers.

    NSEG_DATA=... python benchmarks/methods.py --paper results.csv --out benchmarks/results/methods.csv
    NSEG_DATA=... python benchmarks/methods.py --same-epochs --out benchmarks/results/methods.csv
    NSEG_DATA=... python benchmarks/methods.py --why --paper results.csv --out benchmarks/results/methods.csv

The first command explains all motif nodes of the authors' three GCNs, and the paper's 250 graphs of Mutagenicity and MSRC_21
(with the GCNs of this project), by every method of the catalogue. Each row is written when it is done; a second run replaces
the rows that it computes again. ``--same-epochs`` compares the speed of the batched mask learners with PyG's GNNExplainer,
called once per instance for the same number of epochs (``methods_speed.csv``). ``--why`` repeats the checks that explain
differences to the paper's numbers (``methods_why.csv``). Each run writes ``methods.md`` from the CSV files. One thread.

Fidelity is by label; masks weight messages, no edge is deleted. *soft* uses the soft masks, *hard* the method's own hard
explanation, *cut* the soft masks cut at 0.5.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric
from authors import CONFIG, GRAPHS, METRICS, load, paper_numbers
from authors import accuracy as authors_accuracy
from methods_table import CsvTable, Row, write_page
from torch import nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, ExplainerAlgorithm, Explanation
from torch_geometric.explain import GNNExplainer as PyGGNNExplainer
from torch_geometric.utils import k_hop_subgraph
from why import NODES_IN_TRUTH, checks

import nseg
from nseg import NSEG, explain_many
from nseg.baselines import CATALOGUE, make
from nseg.baselines.pgexplainer import PGExplainer
from nseg.datasets import load as load_dataset
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.metrics import Evaluator, accuracy
from nseg.models import pretrained
from nseg.storage.commit import code_commit

OUR_DATASETS = {"Mutagenicity": "mutagenicity", "MSRC_21": "msrc-21"}
DATASETS = (*GRAPHS, *OUR_DATASETS)
PYG = "gnnexplainer (PyG, looped)"
ELSEWHERE = ("nseg", "attention", "captum", "graphmask", "subgraphx")  # needs other layers, or seconds: see race.py
METHODS = ("nseg", "nseg (paper)", *[name for name in CATALOGUE if name not in ELSEWHERE], PYG)
PAPER_NAMES = {"nseg (paper)": "nseg_pns_e", PYG: "gnnexplainer"}  # methods that the paper calls otherwise
MOTIF_SIZES = math.prod(block for _, block, _ in GRAPHS.values())
MASK_KINDS: dict[str, Any] = {"soft": "soft", "hard": "hard", "cut": 0.5}


# --- what is explained -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A trained network and the predictions to explain.

    Args:
        name: the paper's name of the dataset.
        model: the network.
        data: the graph, or the graphs.
        config: the ``model_config`` of PyG's ``Explainer``.
        instances: numbers of the nodes or graphs to explain.
        accuracy: computes Recall@K and ROC-AUC of explanations, as far as ground truth is known.
    """

    name: str
    model: nn.Module
    data: Data | list[Data]
    config: dict[str, str]
    instances: Sequence[int]
    accuracy: Callable[[list[Explanation]], dict[str, float]]

    @property
    def preset(self) -> str:
        """Name of the dataset in this project."""
        return OUR_DATASETS.get(self.name, self.name.lower())

    def explainer(self, algorithm: ExplainerAlgorithm, nodes: bool = False) -> Explainer:
        return Explainer(
            self.model,
            algorithm,
            explanation_type="model",
            edge_mask_type="object",
            node_mask_type="object" if nodes else None,
            model_config=self.config,
        )


def load_task(name: str, folder: Path, every: int) -> Task:
    """The task of a dataset, with every n-th instance."""
    if name in GRAPHS:
        first, block, k = GRAPHS[name]
        model, data = load(name, folder)
        nodes = range(first, int(data.num_nodes), every)
        return Task(name, model, data, CONFIG, nodes, lambda found: authors_accuracy(data, found, first, block, k))
    benchmark = load_dataset(OUR_DATASETS[name])

    def mean_accuracy(found: list[Explanation]) -> dict[str, float]:
        if benchmark.k_edges is None:
            return {}
        values = accuracy(benchmark, found)
        return {name: 100 * float(np.nanmean(getattr(values, name).numpy())) for name in ("recall_at_k", "roc_auc")}

    instances = benchmark.instances[::every].tolist()
    return Task(name, pretrained(OUR_DATASETS[name]), benchmark.graphs, benchmark.model_config, instances, mean_accuracy)


# --- one row -----------------------------------------------------------------------------------------------------------


def make_algorithm(method: str, preset: str, seed: int) -> ExplainerAlgorithm:
    """A method with the paper's settings if the paper has the method, else with its defaults."""
    if method == PYG:
        return PyGGNNExplainer(epochs=100, edge_size=make("gnnexplainer", preset).settings.edge_size)
    if method == "nseg":
        return NSEG(intervention="mask", undirected=False, tolerance=0.05, seed=seed)
    return make("nseg" if method == "nseg (paper)" else method, preset, seed=seed)


def spread(index: Sequence[int], number: int) -> Sequence[int]:
    """A few instances from the whole range, with a stride coprime to the motif sizes to reach all places in a motif."""
    stride = max(1, len(index) // number)
    while math.gcd(stride, MOTIF_SIZES) > 1:
        stride += 1
    return index[::stride][:number]


def small_enough(task: Task, most: int) -> list[int]:
    """Instances that are reached by at most ``most`` undirected edges."""
    found = explain_many(task.explainer(make("none")), task.data, task.instances)
    ends = [one.edge_index[:, one.reached].sort(0).values for one in found]
    return [int(one.output_id) for one, pair in zip(found, ends, strict=True) if pair.unique(dim=1).size(1) <= most]


def settings_of(algorithm: ExplainerAlgorithm) -> str:
    """The settings that differ from the defaults, as text."""
    if not isinstance(algorithm, BatchedAlgorithm):
        return f"epochs={algorithm.epochs}, lr={algorithm.lr}, edge_size={algorithm.coeffs['edge_size']}"
    defaults = {one.name: one.default for one in fields(algorithm.settings)}
    given = {name: getattr(algorithm.settings, name) for name in defaults if name != "seed"}
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    return ", ".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in changed.items()) or "defaults"


def measure_method(task: Task, method: str, seed: int, calls: int) -> Row | None:
    """Explain all instances with a method and compute all scores; None if it can explain no instance."""
    algorithm = make_algorithm(method, task.preset, seed)
    explain, index = task.explainer(algorithm), task.instances
    if method == "exhaustive":
        index = small_enough(task, algorithm.settings.most)
    elif method == PYG:
        index = spread(index, calls)
        torch.manual_seed(seed)
    if not len(index):
        return None
    start = time.perf_counter()
    if isinstance(algorithm, PGExplainer):
        algorithm.fit(explain, task.data, index)
    found = explain_many(explain, task.data, index)
    seconds = (time.perf_counter() - start) / len(found)
    scores = {**fidelity(explain, task, found), **task.accuracy(found)}
    if method == "pgm_explainer" and task.name in GRAPHS:
        scores["recall_at_k (nodes)"] = node_recall(task, algorithm)
    kept = [float(mask.sum()) for one in found if (mask := one.get("hard_edge_mask")) is not None]
    if kept:
        scores["kept_edges"] = float(np.mean(kept))
    header: Row = {
        "dataset": task.name,
        "method": method,
        "settings": settings_of(algorithm),
        "instances": len(found),
        "seed": seed,
    }
    return header | {name: round(value, 2) for name, value in scores.items()} | {"seconds": round(seconds, 5)}


def fidelity(explain: Explainer, task: Task, found: list[Explanation]) -> dict[str, float]:
    """Fid+, Fid-, charact and sparsity in percent, of soft, hard and cut masks, and the PNS bound of hard ones."""
    evaluator = Evaluator(explain, task.data, found)
    scores: dict[str, float] = {}
    for kind, masks in MASK_KINDS.items():
        if kind == "hard" and found[0].get("hard_edge_mask") is None:
            continue
        value = evaluator.fidelity(masks)
        names = ("fid_plus", "fid_minus", "charact", "sparsity") + (("pns",) if kind == "hard" else ())
        scores |= {f"{kind}_{name}": 100 * getattr(value, name) for name in names}
    return scores


def node_recall(task: Task, algorithm: ExplainerAlgorithm) -> float:
    """Recall@K over the nodes within three hops in percent: the paper's number for methods that score nodes."""
    (first, block, _), k = GRAPHS[task.name], NODES_IN_TRUTH[task.name]
    assert isinstance(task.data, Data)
    recalls = []
    for one in explain_many(task.explainer(algorithm, nodes=True), task.data, task.instances):
        near = k_hop_subgraph(one.output_id, 3, task.data.edge_index, num_nodes=task.data.num_nodes)[0]
        score = torch.zeros(int(task.data.num_nodes)).index_copy(0, one.node_id, one.node_mask[:, 0])[near]
        top = near[score.argsort(descending=True, stable=True)[:k]]
        recalls.append(float((top.sub(first) // block == (one.output_id - first) // block).sum()) / block)
    return 100 * float(np.mean(recalls))


def compare_with_paper(ours: Row, published: dict[tuple[str, str, str], float]) -> Row:
    """The paper's numbers for a row, and our differences to them."""
    name, method = str(ours["dataset"]), str(ours["method"])
    theirs = {m: published.get((name, PAPER_NAMES.get(method, method), m)) for m in METRICS} if method != "nseg" else {}
    found = {metric: value for metric, value in theirs.items() if value is not None}
    numbers: Row = {f"paper_{metric}": value for metric, value in found.items()}
    for metric, value in found.items():
        if (score := score_for_metric(ours, metric)) is not None:
            numbers[f"difference_{metric}"] = round(score - value, 2)
    return numbers


def score_for_metric(ours: Row, metric: str) -> float | None:
    """Our score for one of the paper's metrics, by the definition that reproduces the paper's numbers."""
    names = {
        "fid_plus_c": ["soft_fid_plus"],
        "fid_minus_c": ["soft_fid_minus"],
        "charact_c": ["soft_charact"],
        "recall_at_k": ["recall_at_k (nodes)", "recall_at_k (directed)", "recall_at_k"],
        "roc_auc": ["roc_auc (pooled)", "roc_auc"],
    }
    if ours["method"] == "pgm_explainer" and metric == "recall_at_k":
        names[metric] = names[metric][:1]  # the paper's number is over nodes
    return next((float(ours[name]) for name in names[metric] if ours.get(name, "") != ""), None)


# --- the three runs ----------------------------------------------------------------------------------------------------


def compare(tasks: Sequence[Task], methods: Sequence[str], args: argparse.Namespace) -> None:
    """Write a row per dataset and method as soon as it is measured."""
    published, table = paper_numbers(args.paper), CsvTable(csv_path(args.out, ""), ("dataset", "method", "seed"))
    for one in tasks:
        explain_many(one.explainer(NSEG()), one.data, one.instances[:2])  # warm up
        for method in methods:
            measured = measure_method(one, method, args.seed, args.calls)
            if measured is None:
                print(f"{one.name}: {method} can explain none of the instances", flush=True)
                continue
            table.put(measured | compare_with_paper(measured, published) | {"made_with": versions()})
            print(*(measured.get(key, "-") for key in PRINTED), flush=True)


PRINTED = ("dataset", "method", "instances", "soft_charact", "hard_charact", "hard_sparsity", "roc_auc", "seconds")


def compare_speed(tasks: Sequence[Task], args: argparse.Namespace) -> None:
    """Compare the batched mask learners with PyG's GNNExplainer for the same number of epochs."""
    table = CsvTable(csv_path(args.out, "_speed"), ("dataset", "method"))
    for one in tasks:
        few = spread(one.instances, args.calls)
        slow: dict[int, float] = {}
        for method in ("gnnexplainer", "cf_gnnexplainer", "cf2", "nseg"):
            epochs = int(make_algorithm(method, one.preset, args.seed).settings.steps)
            if epochs not in slow:
                slow[epochs] = seconds_one_by_one(one, PyGGNNExplainer(epochs=epochs), few)
            found: Row = {"dataset": one.name, "method": method, "epochs": epochs, "instances": len(one.instances)}
            found |= {"pyg_calls": len(few), "pyg_seconds": round(slow[epochs], 5)}
            for kind, settings in (("", {}), ("_soft", {"extract": "threshold"})):
                fast = seconds_batched(
                    one, make(method, None if method == "nseg" else one.preset, seed=args.seed, **settings)
                )
                found |= {f"seconds{kind}": round(fast, 5), f"times_faster{kind}": round(slow[epochs] / fast, 1)}
            table.put(found | {"made_with": versions()})
            print(*found.values(), flush=True)


def seconds_batched(task: Task, algorithm: ExplainerAlgorithm) -> float:
    """Seconds per instance, with all instances in one call."""
    explain = task.explainer(algorithm)
    explain_many(explain, task.data, task.instances[:2])  # warm up
    start = time.perf_counter()
    explain_many(explain, task.data, task.instances)
    return (time.perf_counter() - start) / len(task.instances)


def seconds_one_by_one(task: Task, algorithm: ExplainerAlgorithm, index: Sequence[int]) -> float:
    """Seconds per instance, with one call of PyG's ``Explainer`` each."""
    explain = task.explainer(algorithm)

    def call(number: int) -> None:
        graph = task.data if isinstance(task.data, Data) else task.data[number]
        explain(graph.x, graph.edge_index, **({"index": number} if graph is task.data else {}))

    call(index[0])  # warm up
    start = time.perf_counter()
    for number in index:
        call(number)
    return (time.perf_counter() - start) / len(index)


def run_checks(names: Sequence[str], args: argparse.Namespace) -> None:
    """Run the checks on the authors' graphs, and write each with the paper's number."""
    published, table = paper_numbers(args.paper), CsvTable(csv_path(args.out, "_why"), ("dataset", "key"))
    for name in names:
        for one in checks(name, args.data):
            paper = published.get((name, one.row, one.metric.split(" ")[0]))
            found: Row = {"dataset": name, **one._asdict(), "value": round(one.value, 2)}
            table.put(found | {"paper": "" if paper is None else paper, "made_with": versions()})
            print(name, one.what, one.metric, f"{one.value:.2f}", paper, flush=True)


def csv_path(out: Path | None, suffix: str) -> Path | None:
    """The CSV file next to ``out`` with a suffix in its name."""
    return None if out is None else out.with_name(f"{out.stem}{suffix}.csv")


def versions() -> str:
    """Versions of everything that a number depends on."""
    return (
        f"nseg {nseg.__version__} ({code_commit()}), PyG {torch_geometric.__version__}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("NSEG_DATA"), help="folder that holds authors/")
    parser.add_argument("--paper", type=Path, default=None, help="results.csv of the paper")
    parser.add_argument("--datasets", nargs="*", default=DATASETS, choices=DATASETS, metavar="DATASET")
    parser.add_argument("--methods", nargs="*", default=METHODS, choices=METHODS, metavar="METHOD")
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        help="explain every n-th instance; coprime to 5, 6 and 9 to reach all places in motifs",
    )
    parser.add_argument("--calls", type=int, default=10, help="instances for PyG's GNNExplainer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--same-epochs", action="store_true", help="compare speed instead")
    parser.add_argument("--why", action="store_true", help="run the checks that explain the paper's numbers instead")
    parser.add_argument("--out", type=Path, default=None, help="CSV to write; the other files go next to it")
    args = parser.parse_args()
    if args.data is None:
        parser.error("--data FOLDER or NSEG_DATA must name the folder with authors/GCN_*.npz")
    torch.set_num_threads(1)
    if args.why:
        run_checks([name for name in args.datasets if name in GRAPHS], args)
    else:
        tasks = [load_task(name, args.data, args.every) for name in args.datasets]
        compare_speed(tasks, args) if args.same_epochs else compare(tasks, args.methods, args)
    if args.out:
        write_page(args.out)


if __name__ == "__main__":
    main()
