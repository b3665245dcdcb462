"""A plan past this machine: simulate a cluster that explains 10^7 targets of a graph with 10^9 edges.

    python benchmarks/scale_model.py --out benchmarks/results/scale_model.csv
    python benchmarks/scale_model.py --measure --out benchmarks/results/scale_local.csv

The first form reads the shard times that the second one measured (``--shards FILE``), and simulates clusters of 1 to 10,000
workers. The second form explains BA-Shapes' nodes in one and in two worker processes, stores the seconds and CPU seconds of
every shard, and compares the time of both runs with the model's predictions: from the shards of the first run
(``predicted``), which knows nothing of workers that slow each other down, and from its own (``predicted_own``). Forecasts
use CPU seconds, which other work on this machine does not lengthen. Shards wait for workers in order, as in
:mod:`nseg.backends`.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import random
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from csv_table import write_table

HOUR = 3600.0
WORKERS = (1, 10, 30, 100, 200, 300, 1000, 10_000)
EDGES, NODES, FEATURES, TARGETS, SHARD = 10**9, 10**8, 16, 10**7, 256
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Work:
    """What is to be done.

    Args:
        shards: number of shards.
        seconds: measured seconds of shards, of which each shard gets one at random; in order if there are as many as shards.
        graph_bytes: what every worker reads from the object store before its first shard.
        result_bytes: what it writes there after each shard.
    """

    shards: int
    seconds: tuple[float, ...]
    graph_bytes: float = 0.0
    result_bytes: float = 0.0


@dataclass(frozen=True)
class Cluster:
    """Where it is done.

    Args:
        workers: number of workers, one core each.
        startup: seconds until a worker can read the graph.
        slow_share, slowdown: share of the workers that are stragglers, and how many times longer they take.
        losses_per_hour: how often a worker is lost; its shard begins again in a new worker, which starts up first.
        bandwidth: bytes per second between a worker and the object store.
        store_bandwidth: bytes per second of the object store, which all workers share while they read the graph.
        driver_seconds: seconds that the driver needs for the result of a shard, one after the other.
    """

    workers: int
    startup: float = 0.0
    slow_share: float = 0.0
    slowdown: float = 1.0
    losses_per_hour: float = 0.0
    bandwidth: float = float("inf")
    store_bandwidth: float = float("inf")
    driver_seconds: float = 0.0

    def load_seconds(self, graph_bytes: float) -> float:
        """Seconds in which all workers read the graph at the same time."""
        return graph_bytes / min(self.bandwidth, self.store_bandwidth / self.workers)


@dataclass(frozen=True)
class Forecast:
    """What a simulation gives: seconds until the last result, seconds of all cores, useful seconds, lost shards."""

    seconds: float
    core_seconds: float
    useful_seconds: float
    lost: int

    @property
    def efficiency(self) -> float:
        """Useful seconds per second of a core that is kept for the run."""
        return self.useful_seconds / self.core_seconds


def simulate(work: Work, cluster: Cluster, seed: int = 0) -> Forecast:
    """Give every shard to the worker that is free first, until all are done.

    >>> simulate(Work(6, (10.0,)), Cluster(4, startup=5.0)).seconds
    25.0
    """
    draw = random.Random(seed)
    durations = _durations(work, draw)
    slow = set(draw.sample(range(cluster.workers), round(cluster.slow_share * cluster.workers)))
    begin = cluster.startup + cluster.load_seconds(work.graph_bytes)
    free = [(begin, worker) for worker in range(cluster.workers)]
    rate, upload = cluster.losses_per_hour / HOUR, work.result_bytes / cluster.bandwidth
    finished, useful, lost = list[float](), 0.0, 0
    for duration in durations:
        ready = 0.0  # when the shard waits for a worker: from the beginning, or since its worker was lost
        while True:
            idle, worker = heapq.heappop(free)
            at = max(idle, ready)
            length = duration * (cluster.slowdown if worker in slow else 1.0) + upload
            until_loss = draw.expovariate(rate) if rate else float("inf")
            if until_loss >= length:
                break
            lost, ready = lost + 1, at + until_loss
            heapq.heappush(free, (ready + begin, worker))
        heapq.heappush(free, (at + length, worker))
        finished.append(at + length)
        useful += duration
    end = _last_result(finished, cluster.driver_seconds)
    return Forecast(end, end * cluster.workers, useful, lost)


def _durations(work: Work, draw: random.Random) -> Sequence[float]:
    if len(work.seconds) == work.shards:
        return work.seconds
    return draw.choices(work.seconds, k=work.shards)


def _last_result(finished: list[float], driver_seconds: float) -> float:
    """When the driver has handled all results, one after the other."""
    end = 0.0
    for at in sorted(finished):
        end = max(end, at) + driver_seconds
    return end


def plan(seconds: tuple[float, ...], targets_per_shard: int) -> tuple[Work, Cluster]:
    """The work of 10^7 targets, by the time that a target took here, and a cluster of ordinary cloud machines."""
    shards = -(-TARGETS // SHARD)
    scaled = tuple(one * SHARD / targets_per_shard for one in seconds)
    graph_bytes = 16.0 * EDGES + (8 + 4 * FEATURES) * NODES  # as nseg.LargeGraph stores it
    cluster = Cluster(
        workers=1,
        startup=30.0,
        slow_share=0.05,
        slowdown=2.0,
        losses_per_hour=0.01,
        bandwidth=125e6,
        store_bandwidth=10e9,
        driver_seconds=0.02,
    )
    return Work(shards, scaled, graph_bytes, result_bytes=1e6), cluster


def forecast_rows(seconds: tuple[float, ...], targets_per_shard: int) -> list[dict[str, float]]:
    """One row per number of workers: hours, core hours, efficiency and lost shards."""
    work, cluster = plan(seconds, targets_per_shard)
    rows = []
    for workers in WORKERS:
        found = simulate(work, replace(cluster, workers=workers))
        load = replace(cluster, workers=workers).load_seconds(work.graph_bytes)
        rows.append(
            {
                "workers": workers,
                "hours": round(found.seconds / HOUR, 3),
                "core_hours": round(found.core_seconds / HOUR, 1),
                "efficiency": round(found.efficiency, 3),
                "load_hours": round(load / HOUR, 3),
                "lost_shards": found.lost,
            }
        )
    return rows


# --- measured here ---------------------------------------------------------------------------------------------------------


class _TimedCall:
    """A function that also returns the seconds and CPU seconds of each call."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function, self.gpus = function, getattr(function, "gpus", 0)

    def __call__(self, item: Any) -> tuple[Any, float, float]:
        began, cpu = time.perf_counter(), time.process_time()
        return self.function(item), time.perf_counter() - began, time.process_time() - cpu


def measure(nodes: int, shard: int) -> list[dict[str, float]]:
    """Explain BA-Shapes' nodes in one and in two processes: seconds of each shard, of the run, and as predicted."""
    from nseg import NSEG, Explainer, explain_many
    from nseg.backends import Backend, Processes
    from nseg.datasets import load
    from nseg.models import pretrained

    class Timed(Backend):
        """Worker processes that note the seconds and CPU seconds of each shard."""

        def __init__(self, workers: int) -> None:
            self.inner, self.spent = Processes(workers), dict[int, tuple[float, float]]()

        def map(self, function: Any, items: Sequence[Any]) -> Generator[tuple[int, Any], None, None]:
            for number, (result, *spent) in self.inner.map(_TimedCall(function), items):
                self.spent[number] = (spent[0], spent[1])
                yield number, result

    bench, model = load("ba-shapes"), pretrained("ba-shapes", "gcn")
    explainer = Explainer(model, NSEG(), explanation_type="model", edge_mask_type="object", model_config=bench.model_config)
    index, rows = bench.instances[:nodes].tolist(), list[dict[str, float]]()
    explain_many(explainer, bench.graphs[0], index[:shard])  # warm up
    first: tuple[float, ...] = ()
    startup = 0.0
    for workers in (1, 2):
        backend = Timed(workers)
        began = time.perf_counter()
        explain_many(explainer, bench.graphs[0], index, backend=backend, shard=shard)
        run = time.perf_counter() - began
        backend.inner.close()
        spent = [backend.spent[number] for number in sorted(backend.spent)]
        own = tuple(seconds for seconds, _ in spent)
        first, startup = (first, startup) if first else (own, run - sum(own))
        predicted, predicted_own = (_predict(shards, workers, startup) for shards in (first, own))
        common = {"run": run, "predicted": predicted, "predicted_own": predicted_own, "startup": startup}
        rows += [{"workers": workers, "shard": n, "seconds": a, "cpu": b, **common} for n, (a, b) in enumerate(spent)]
    return rows


def _predict(seconds: tuple[float, ...], workers: int, startup: float) -> float:
    return simulate(Work(len(seconds), seconds), Cluster(workers, startup=startup)).seconds


def read_shards(path: Path) -> tuple[float, ...]:
    """The CPU seconds of the shards that one worker explained."""
    with path.open(newline="") as file:
        return tuple(float(row["cpu"]) for row in csv.DictReader(file) if row["workers"] == "1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", action="store_true", help="measure shards here, in one and in two processes")
    parser.add_argument("--shards", type=Path, default=RESULTS / "scale_local.csv", help="measured shards")
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--shard", type=int, default=50, help="targets of a measured shard")
    args = parser.parse_args()
    rows = measure(args.nodes, args.shard) if args.measure else forecast_rows(read_shards(args.shards), args.shard)
    for row in rows:
        print("  ".join(f"{name} {value:g}" for name, value in row.items()))
    write_table(args.out, rows)


if __name__ == "__main__":
    main()
