"""Large graphs: seconds per target and peak memory as the graph grows, compared with PyG's GNNExplainer.

    python benchmarks/large.py --out benchmarks/results/large.csv
    python benchmarks/large.py --load --out benchmarks/results/load.csv

The graphs are on disk, with 10 edges per node, power-law in-degrees and uniform senders. A GCN of two layers is explained
for 1,000 targets whose three-hop neighbourhoods have 300 to 3,000 edges, whatever the size of the graph. Each size is
measured in its own process, on one thread, after a warm-up with a few targets. ``memory`` is the peak memory of the process;
``mapped`` is the part of it that are pages of the graph's files, which the system can reclaim at any time. GNNExplainer runs
on the whole graph. ``--load`` streams 100,000 instances of the graph with a million edges to a folder, with a GCN of one
layer and few steps, and prints the memory after every tenth of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import numpy as np
import torch
from csv_table import write_table
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GCNConv

from nseg import NSEG, LargeGraph, explain_many
from nseg.backends import Local
from nseg.backends.base import Item, Result

SIZES = {"100k": 100_000, "1M": 1_000_000, "10M": 10_000_000}
DEGREE, FEATURES, WIDTH, CLASSES, HOPS = 10, 16, 32, 4, 3
EDGE_RANGE = (300, 3000)  # of a target's neighbourhood
MIB = 2**20


class TwoLayerGCN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(FEATURES, WIDTH), GCNConv(WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return out


class OneLayerGCN(nn.Module):
    """One layer, so that a hundred thousand targets take only minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.only = GCNConv(FEATURES, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.only(x, edge_index)
        return out


def generate(folder: Path, edges: int, hub_edges: int = 0) -> None:
    """Write a random graph, with ``hub_edges`` further edges to node 0."""
    rng, nodes = np.random.default_rng(0), edges // DEGREE
    weight = (1 + np.arange(nodes)) ** -0.5  # in-degrees fall as a power law with exponent 3
    receiver = np.concatenate([rng.choice(nodes, size=edges, p=weight / weight.sum()), np.zeros(hub_edges, np.int64)])
    ends = np.stack([rng.integers(nodes, size=edges + hub_edges), receiver])
    LargeGraph.write(folder, ends, rng.standard_normal((nodes, FEATURES), np.float32))


def choose_targets(graph: LargeGraph, number: int) -> list[int]:
    """Random targets whose neighbourhoods have similar sizes."""
    rng, found = np.random.default_rng(1), list[int]()
    for node in rng.permutation(graph.num_nodes).tolist():
        if EDGE_RANGE[0] <= graph.subgraph(torch.tensor([node]), HOPS).edge.numel() <= EDGE_RANGE[1]:
            found.append(node)
            if len(found) == number:
                return found
    raise SystemExit(f"only {len(found)} targets have a neighbourhood of {EDGE_RANGE} edges")


def explainer(algorithm: object = None, network: type[nn.Module] = TwoLayerGCN) -> Explainer:
    torch.manual_seed(0)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    return Explainer(
        network().eval(), algorithm or NSEG(), explanation_type="model", edge_mask_type="object", model_config=config
    )


def memory(field: str) -> float:
    """A memory field of this process in MiB, from Linux's /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(folder: Path, targets: int) -> dict[str, float]:
    """Seconds and memory of explaining targets of one graph."""
    torch.set_num_threads(1)
    graph, explain = LargeGraph(folder), explainer()
    index = choose_targets(graph, targets)
    explain_many(explain, graph, index[:2])  # warm up
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    wall, cpu = time.perf_counter(), time.process_time()
    found = explain_many(explain, graph, index)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sizes = [one.edge_id.numel() for one in found]
    return {
        "edges": graph.num_edges,
        "targets": targets,
        "neighbourhood": float(np.mean(sizes)),
        "seconds": wall / targets,
        "cpu_seconds": cpu / targets,
        "memory": memory("VmHWM"),
        "mapped": memory("RssFile"),
        "pns": float(np.mean([one.pns for one in found])),
    }


def measure_gnnexplainer(folder: Path, epochs: int) -> dict[str, float]:
    """Seconds and memory of PyG's GNNExplainer for one target on the whole graph; seconds are scaled to 100 epochs."""
    torch.set_num_threads(1)
    graph = LargeGraph(folder, neighbours=None)
    target = choose_targets(graph, 1)[0]
    whole = graph.subgraph(torch.arange(graph.num_nodes), 1).data
    explain = explainer(GNNExplainer(epochs=epochs))
    start = time.perf_counter()
    explain(whole.x, whole.edge_index, index=target)
    return {"seconds": (time.perf_counter() - start) / epochs * 100, "memory": memory("VmHWM")}


class MemoryPrintingLocal(Local):
    """The local backend; prints the memory after every tenth of the shards."""

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        every, start = max(len(items) // 10, 1), time.perf_counter()
        for number, result in super().map(function, items):
            yield number, result
            if (number + 1) % every == 0:
                results.append({"shards": number + 1, "memory": memory("VmRSS"), "peak": memory("VmHWM")})
                print(f"{results[-1]}, {time.perf_counter() - start:.0f} s", flush=True)


results: list[dict[str, float]] = []


def load(folder: Path, out: Path, instances: int) -> None:
    """Stream many instances to a folder."""
    torch.set_num_threads(1)
    graph = LargeGraph(folder)
    # few steps, because the streaming is measured, not the search
    explain = explainer(NSEG(steps=5, starts=(0.0,), extract="threshold"), OneLayerGCN)
    explain_many(explain, graph, np.arange(instances).tolist(), out=out, backend=MemoryPrintingLocal())


def hub(folder: Path) -> None:
    """Explain a node with two million incoming edges."""
    torch.set_num_threads(1)
    graph, explain = LargeGraph(folder), explainer()
    start = time.perf_counter()
    (one,) = explain_many(explain, graph, [0])
    print(
        f"{graph.num_edges} edges; around node 0, {one.edge_id.numel()} are used and {one.left_out} left out; "
        f"{time.perf_counter() - start:.1f} s, {memory('VmHWM'):.0f} MiB peak memory of the process"
    )


def run_in_process(*arguments: str, limit: int | None = None) -> dict[str, float] | None:
    """The JSON that this script prints in another process; None if the process fails, as when it runs out of memory."""

    def limit_memory() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    command = [sys.executable, __file__, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit_memory, check=False)
    if run.returncode:
        print(run.stderr[-500:], file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(run.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=3, help="epochs of GNNExplainer; its time is scaled to 100")
    parser.add_argument("--limit", type=int, default=16, help="memory limit of GNNExplainer in GiB")
    parser.add_argument("--folder", type=Path, help="folder to keep the graphs in")
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--hub", action="store_true", help="explain a node with two million incoming edges")
    parser.add_argument("--instances", type=int, default=100_000)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--gnnexplainer", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure or args.gnnexplainer:
        found = measure(args.measure, args.targets) if args.measure else measure_gnnexplainer(args.gnnexplainer, args.epochs)
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as scratch:
        root = args.folder or Path(scratch)
        if args.hub:
            generate(root / "hub", SIZES["1M"], hub_edges=2_000_000)
            hub(root / "hub")
            return
        for name in args.sizes if not args.load else ["1M"]:
            if not (root / name / "graph.json").exists():
                generate(root / name, SIZES[name])
        if args.load:
            load(root / "1M", root / "run", args.instances)
        else:
            results.extend(compare(root, args))
    if results:
        write_table(args.out, results)


def compare(root: Path, args: argparse.Namespace) -> list[dict[str, float]]:
    """Results of each size, also printed as a table."""
    table = Table("graph", "edges around a target", "s per target", "CPU s", "MiB", "mapped", "GNNExplainer s", "its MiB")
    found = []
    for name in args.sizes:
        print(f"{name}: explaining {args.targets} targets, then one with GNNExplainer", file=sys.stderr, flush=True)
        ours = run_in_process("--measure", str(root / name), "--targets", str(args.targets))
        if ours is None:
            continue
        theirs = run_in_process("--gnnexplainer", str(root / name), "--epochs", str(args.epochs), limit=args.limit << 30)
        theirs = theirs or {"seconds": float("nan"), "memory": float("nan")}
        found.append({**ours, **{f"gnnexplainer_{k}": v for k, v in theirs.items()}})
        keys = ("neighbourhood", "seconds", "cpu_seconds", "memory", "mapped")
        table.add_row(name, *(f"{ours[k]:.4g}" for k in keys), *(f"{theirs[k]:.4g}" for k in ("seconds", "memory")))
    Console().print(table)
    if len(found) > 1:
        print(f"seconds per target, largest graph over smallest: {found[-1]['seconds'] / found[0]['seconds']:.2f}")
    return found


if __name__ == "__main__":
    main()
