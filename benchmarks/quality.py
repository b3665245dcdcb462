"""Quality of the default NSEG() on all datasets, compared with the ceiling, the optimum and the paper.

    NSEG_DATA=... python benchmarks/quality.py --out benchmarks/results            # all parts, three seeds
    NSEG_DATA=... python benchmarks/quality.py --every 10 --seeds 0                # a tenth of the instances
    NSEG_DATA=... python benchmarks/quality.py --parts interventions --every 10    # masks, deletion, both

The part *interventions* compares what taking edges away may mean (``intervention``), judged with messages masked and with
edges deleted: mean PNS bounds, the share that holds (keeps the class and changes it without), keeps and changes by the
intervention that was searched under, kept edges, the share of kept bonds of which one direction is missing, the share of
explanations in one piece, the Jaccard index of two seeds, and milliseconds of one core. Everything else is the default.

The other parts are as in the paper: messages and features are weighted, nothing is deleted, and edges are directed. All
rows use the same settings, ``NSEG(**PAPER)``. GCNs on node datasets are the authors' own (NSEG_DATA/authors), all others are
this project's. Instances are the paper's: all motif nodes, 250 graphs (of BA2Motif every fourth graph). Fid+, Fid- and
charact are by label. *ceiling* is the share of instances for which
a hard explanation is known that keeps the class and whose removal changes it: found with any seed, or by a longer search
where all seeds failed. It is a lower bound of the true ceiling. *ceiling_charact* is the charact of Fid+ at that share and
Fid- at 0.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import authors
import networkx as nx
import numpy as np
import torch
from csv_table import write_table
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explanation
from torch_geometric.explain import GNNExplainer as PyGGNNExplainer

from nseg import NSEG, Explainer, baselines, datasets, explain_many, metrics, models

PAPER: dict[str, Any] = {"intervention": "mask", "undirected": False, "tolerance": 0.05}
"""What taking away means in the paper; otherwise the default is measured."""

AUTHORS_NAMES = {"ba-shapes": "BA-Shapes", "tree-cycles": "Tree-Cycles", "tree-grid": "Tree-Grid"}
CASES = [*((d, "gcn", m) for m in ("e", "ef") for d in datasets.NAMES), *((d, "gin", "e") for d in datasets.NAMES)]
AUTHORS_SECONDS = {"ba-shapes": (15.8, 0.37), "tree-cycles": (8.1, 0.29), "tree-grid": (8.7, 0.34)}
"""Seconds per instance of the authors' published code, and of PyG's GNNExplainer in the same run, on one thread."""


def load_case(dataset: str, architecture: str, folder: Path, every: int) -> tuple[nn.Module, Any, list[int], dict[str, str]]:
    """A network, its data, the outputs to explain, and its ``model_config``."""
    if architecture == "gcn" and dataset in AUTHORS_NAMES:
        model, data = authors.load(AUTHORS_NAMES[dataset], folder)
        return model, data, list(range(authors.GRAPHS[AUTHORS_NAMES[dataset]][0], data.num_nodes))[::every], authors.CONFIG
    bench = datasets.load(dataset)
    graphs: Any = bench.graphs if bench.level == "graph" else bench.graphs[0]
    step = every * (4 if dataset == "ba-2motif" else 1)
    return models.pretrained(dataset, architecture), graphs, bench.instances.tolist()[::step], bench.model_config


def explainer(model: nn.Module, algorithm: Any, masks: str, config: dict[str, str]) -> Explainer:
    node = "object" if "f" in masks else None
    return Explainer(
        model, algorithm, explanation_type="model", edge_mask_type="object", node_mask_type=node, model_config=config
    )


def keeps_and_flips(evaluator: metrics.Evaluator) -> Tensor:
    """Whether each hard explanation keeps the class, and its removal changes it, [B]."""
    each = evaluator.each("hard")
    return (each.changed_with == 0) & (each.changed_without == 1)


def search_longer(model: nn.Module, data: Any, index: Sequence[int], masks: str, config: dict[str, str]) -> Tensor:
    """Whether a longer search finds a hard explanation that keeps the class and whose removal changes it, [B]."""
    found = torch.zeros(len(index), dtype=torch.bool)
    for seed in range(3):
        more = {"tolerance": 0.0, "starts": (-1.0, 0.0, 1.0, 2.0, 3.0), "steps": 200, "rounds": 40, "exact": 14}
        hard = NSEG(**{**PAPER, **more}, seed=100 + seed)
        explain = explainer(model, hard, masks, config)
        found |= keeps_and_flips(metrics.Evaluator(explain, data, explain_many(explain, data, index, progress=False)))
    return found


def compare_interventions(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The default under each intervention, judged with messages masked and with edges deleted."""
    lines: list[dict[str, Any]] = []
    cases = [(d, a, m) for m in ("e", "ef") for a in ("gcn", "gin") for d in datasets.NAMES]
    for dataset, architecture, masks in cases if args.rows is None else [tuple(r.split(",")) for r in args.rows]:
        case = load_case(dataset, architecture, args.data, args.every)
        for intervention in ("mask", "remove", "both"):
            line: dict[str, Any] = {"dataset": dataset, "architecture": architecture, "masks": masks}
            lines.append(
                line | {"intervention": intervention} | measure_intervention(case, masks, intervention, args.seeds[:2])
            )
        show("What taken away means", lines, None if args.out is None else args.out / "quality_interventions.csv")
    return lines


def measure_intervention(
    case: tuple[nn.Module, Any, list[int], dict[str, str]], masks: str, intervention: str, seeds: Sequence[int]
) -> dict[str, float]:
    """What explanations under one intervention are worth, by the first seed, and how far a second seed agrees."""
    model, data, index, config = case
    runs, start = [], time.process_time()
    for seed in seeds:
        explain = explainer(model, NSEG(intervention=intervention, seed=seed), masks, config)
        runs.append(explain_many(explain, data, index, progress=False))
    seconds, found = (time.process_time() - start) / len(seeds) / len(index), runs[0]
    line: dict[str, float] = {"instances": len(found)}
    for name in ("pns_masked", "holds_masked", "pns_removed", "holds_removed", "keeps", "changes"):
        line[name] = float(np.mean([one[name] for one in found]))
    line |= {
        "edges_kept": mean_kept_edges(found),
        "edges": float(np.mean([int(one.reached.sum()) for one in found])),
        "half_kept": half_kept(found),
        "connected": float(np.mean([in_one_piece(one) for one in found])),
        "jaccard": float(np.mean([jaccard(*pair) for pair in zip(runs[0], runs[-1], strict=True)])),
        "cpu_ms": 1000 * seconds,
    }
    return line


def kept_ends(one: Explanation) -> set[tuple[int, int]]:
    """Ends of the kept edges."""
    return set(map(tuple, one.edge_index[:, one.hard_edge_mask].T.tolist()))


def half_kept(found: Sequence[Explanation]) -> float:
    """Share of the kept bonds whose other direction is there, but not kept."""
    half = total = 0
    for one in found:
        there, kept = set(map(tuple, one.edge_index.T.tolist())), kept_ends(one)
        total += len({frozenset(ends) for ends in kept})
        half += sum(ends[::-1] in there and ends[::-1] not in kept for ends in kept)
    return half / max(total, 1)


def in_one_piece(one: Explanation) -> bool:
    """Whether the kept edges are connected; nothing is."""
    ends = kept_ends(one)
    return not ends or bool(nx.is_connected(nx.Graph(ends)))


def jaccard(one: Explanation, other: Explanation) -> float:
    """Shared part of what two explanations keep; 1 if both keep nothing."""
    names = [name for name in ("hard_edge_mask", "hard_node_mask") if one.get(name) is not None]
    a, b = (torch.cat([some[name].flatten() for name in names]).bool() for some in (one, other))
    return float((a & b).sum() / (a | b).sum()) if bool((a | b).any()) else 1.0


def mean_kept_edges(found: list[Explanation]) -> float:
    """Mean number of edges in the hard explanations."""
    return float(np.mean([int(one.hard_edge_mask.sum()) for one in found]))


def measure(args: argparse.Namespace, dataset: str, architecture: str, masks: str) -> list[dict[str, Any]]:
    """The scores of one dataset, network and kind of masks: a row per seed."""
    model, data, index, config = load_case(dataset, architecture, args.data, args.every)
    lines, known = [], torch.zeros(len(index), dtype=torch.bool)
    for seed in args.seeds:
        explain = explainer(model, NSEG(**PAPER, seed=seed), masks, config)
        start = time.perf_counter()
        found = explain_many(explain, data, index, progress=False)
        seconds = (time.perf_counter() - start) / len(found)
        evaluator = metrics.Evaluator(explain, data, found)
        soft, hard = evaluator.fidelity("soft"), evaluator.fidelity("hard")
        known |= keeps_and_flips(evaluator)
        line: dict[str, Any] = {"dataset": dataset, "architecture": architecture, "masks": masks, "seed": seed}
        line |= {"instances": len(found), "seconds": seconds, "exact": sum(bool(one.exact) for one in found)}
        for kind, result in (("soft", soft), ("hard", hard)):
            names = ("fid_plus", "fid_minus", "charact", "sparsity", "pns")
            line |= {f"{kind}_{name}": getattr(result, name) for name in names}
        line |= {"edges_kept": mean_kept_edges(found), "reported_pns": float(np.mean([one.pns for one in found]))}
        lines.append(line)
    failed = (~known).nonzero().flatten().tolist()
    if failed:
        known[failed] = search_longer(model, data, [index[n] for n in failed], masks, config)
    share = float(known.double().mean())
    ceiling = {"ceiling": share, "ceiling_charact": 2 * share / (1 + share)}  # Fid+ of that share, and Fid- of 0
    return [{**line, **ceiling} for line in lines]


# --- comparisons ---------------------------------------------------------------------------------------------------------


def compare_with_preset(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Size, recall, ROC-AUC and speed of the default and of the paper's preset, on the authors' three networks."""
    lines: list[dict[str, Any]] = []
    for dataset, name in AUTHORS_NAMES.items():
        model, data, index, config = load_case(dataset, "gcn", args.data, args.every)
        first, block, k = authors.GRAPHS[name]
        for label, algorithm in (("default", NSEG(**PAPER)), ("paper's preset", NSEG.paper(dataset, "e"))):
            explain = explainer(model, algorithm, "e", config)
            start = time.perf_counter()
            found = explain_many(explain, data, index, progress=False)
            seconds = (time.perf_counter() - start) / len(found)
            hard = metrics.Evaluator(explain, data, found).fidelity("hard")
            line: dict[str, Any] = {"dataset": dataset, "method": label, "instances": len(found), "seconds": seconds}
            line |= {"hard_charact": hard.charact, "hard_sparsity": hard.sparsity, "edges_kept": mean_kept_edges(found)}
            lines.append(line | authors.accuracy(data, found, first, block, k))
        lines[-2] |= speed(model, data, index, config, dataset, float(lines[-2]["seconds"]))
    return lines


def speed(
    model: nn.Module, data: Data, index: list[int], config: dict[str, str], dataset: str, ours: float
) -> dict[str, float]:
    """Speed relative to PyG's GNNExplainer in this run, and through it to the authors' code."""
    explain = explainer(model, PyGGNNExplainer(epochs=100), "e", config)
    some = index[:: max(1, len(index) // 10)][:10]
    start = time.perf_counter()
    for node in some:
        explain(data.x, data.edge_index, index=node)
    theirs = (time.perf_counter() - start) / len(some)
    authors_code, gnnexplainer = AUTHORS_SECONDS[dataset]
    return {
        "gnnexplainer_seconds": theirs,
        "times_gnnexplainer": theirs / ours,
        "times_authors": theirs / ours * authors_code / gnnexplainer,
    }


def compare_with_optimum(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Distance to the best of all subsets of undirected edges, on instances with at most 14 of them."""
    lines = []
    for dataset in ("tree-cycles", "mutagenicity"):
        model, data, index, config = load_case(dataset, "gcn", args.data, args.every)
        if dataset == "mutagenicity":
            index = [n for n in range(len(data)) if data[n].num_edges <= 2 * args.most][:: args.every]
        index = small_instances(model, data, index, config, args.most)
        for tolerance in (0.0, PAPER["tolerance"]):
            oracle = explainer(model, baselines.make("exhaustive", most=args.most, tolerance=tolerance), "e", config)
            best = explain_many(oracle, data, index, progress=False)
            ours = NSEG(**{**PAPER, "undirected": True, "exact": 0, "tolerance": tolerance})
            found = explain_many(explainer(model, ours, "e", config), data, index, progress=False)
            gaps = [b.pns - f.pns for b, f in zip(best, found, strict=True)]
            lines.append(
                {
                    "dataset": dataset,
                    "tolerance": tolerance,
                    "instances": len(index),
                    "optimum": float(np.mean([b.pns for b in best])),
                    "ours": float(np.mean([f.pns for f in found])),
                    "mean_gap": float(np.mean(gaps)),
                    "largest_gap": max(gaps),
                    "optimum_edges": mean_kept_edges(best),
                    "our_edges": mean_kept_edges(found),
                }
            )
    return lines


def small_instances(model: nn.Module, data: Any, index: list[int], config: dict[str, str], most: int) -> list[int]:
    """The outputs that are reached by at most ``most`` undirected edges."""
    explain = explainer(model, baselines.make("none", undirected=True), "e", config)
    found = explain_many(explain, data, index, progress=False)
    count = [torch.unique(one.edge_index[:, one.reached].sort(0).values, dim=1).size(1) for one in found]
    return [n for n, number in zip(index, count, strict=True) if number <= most]


def show(title: str, lines: list[dict[str, Any]], path: Path | None) -> None:
    """Print a table and write it as CSV."""
    columns = list(dict.fromkeys(key for line in lines for key in line))
    table = Table(*columns, title=title)
    for line in lines:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in (line.get(c, "") for c in columns)))
    Console(width=240).print(table)
    write_table(path, ({k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()} for line in lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("NSEG_DATA"), help="folder that holds authors/")
    parser.add_argument("--every", type=int, default=1, help="explain every n-th instance")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--most", type=int, default=14, help="largest number of edges for which all subsets are tried")
    parser.add_argument("--parts", nargs="+", default=["paper", "oracle", "quality"])
    parser.add_argument("--rows", nargs="*", default=None, help="only these, such as tree-grid,gcn,ef")
    parser.add_argument("--out", type=Path, default=None, help="folder for quality*.csv")
    args = parser.parse_args()
    if args.data is None:
        parser.error("--data FOLDER or NSEG_DATA must name the folder with authors/GCN_*.npz")
    args.data = Path(args.data)
    torch.set_num_threads(1)

    def path_of(name: str) -> Path | None:
        return None if args.out is None else args.out / name

    if "paper" in args.parts:
        show("Compared with the paper's preset", compare_with_preset(args), path_of("quality_paper.csv"))
    if "oracle" in args.parts:
        show("Compared with the best of all subsets", compare_with_optimum(args), path_of("quality_oracle.csv"))
    if "interventions" in args.parts:
        compare_interventions(args)
    if "quality" in args.parts:
        lines: list[dict[str, Any]] = []
        for row in CASES if args.rows is None else [tuple(r.split(",")) for r in args.rows]:
            lines += measure(args, *row)
            show("The default on all datasets", lines, path_of("quality.csv"))


if __name__ == "__main__":
    main()
