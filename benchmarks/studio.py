"""How long the studio takes to answer: toggles, explanations and smallest changes, as a browser would ask.

python benchmarks/studio.py --out benchmarks/results/studio.csv

Four subjects: BA-Shapes, molecules, authors of a heterogeneous graph, and nodes of a graph with a million edges, of which
only the neighbourhood is asked.
Times are those between request and answer, connection included; ``cpu`` is what this process, server and client together,
used of a processor meanwhile, which other programs on the machine do not lengthen. ``load`` is 20 clients with 100 toggles
each at once.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch
from csv_table import write_table
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from nseg import NSEG, Explainer, datasets, models
from nseg.live.launch import make_studio

CLIENTS, ACTIONS = 20, 100


class Spent(NamedTuple):
    """Seconds by the clock, and of processor time."""

    clock: float
    cpu: float


def ask(address: str, name: str, body: Any) -> tuple[Spent, dict[str, Any]]:
    """Seconds and answer of a question."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    began, used = time.perf_counter(), time.process_time()
    connection.request("POST", parts.path + name, json.dumps(body).encode())
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    spent = Spent(time.perf_counter() - began, time.process_time() - used)
    connection.close()
    assert "error" not in found, found
    return spent, found


def quantile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)]


def shipped(dataset: str, architecture: str) -> tuple[Explainer, Any]:
    """A shipped network and its dataset."""
    data = datasets.load(dataset)
    return explainer_of(models.pretrained(dataset, architecture), data.model_config), data


def million_edges() -> tuple[Explainer, Data]:
    """An untrained GCN of two layers on a random graph of a million edges."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(100_000, (2, 500_000), generator=generator)
    x = torch.randn(100_000, 16, generator=generator)
    torch.manual_seed(0)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    return explainer_of(GCN(16, 32, 2, 4), config), Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


def explainer_of(model: torch.nn.Module, config: Any) -> Explainer:
    return Explainer(model, NSEG(seed=0), explanation_type="model", edge_mask_type="object", model_config=config)


def measure(name: str, explainer: Explainer, data: Any, outputs: list[int], toggles: int) -> dict[str, Any]:
    """Latencies of one subject."""
    studio = make_studio(explainer, data).start()
    while not studio.server.started:
        time.sleep(0.05)
    toggle, explain, change = list[Spent](), list[Spent](), list[Spent]()
    asked: list[dict[str, Any]] = []
    for output in outputs:
        _, view = ask(studio.address, "view", {"output": output})
        for n in range(toggles):
            edge = view["edges"][n % len(view["edges"])]
            asked.append({"output": output, "edits": {"removed": [edge]}})
            toggle.append(ask(studio.address, "predict", asked[-1])[0])
        explain.append(ask(studio.address, "explain", {"output": output})[0])
        change.append(ask(studio.address, "change", {"output": output})[0])
    began = time.perf_counter()
    many = [asked[n % len(asked)] for n in range(CLIENTS * ACTIONS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        load = list(pool.map(lambda body: ask(studio.address, "predict", body)[0].clock, many))
    spent = time.perf_counter() - began
    studio.stop()
    line = {"subject": name, "toggles": len(toggle), "explanations": len(explain)}
    numbers = {"load_p95_ms": 1000 * quantile(load, 0.95), "load_answers_per_s": len(load) / spent}
    for what, seconds in (("toggle", toggle), ("explain", explain), ("change", change)):
        for of, kind in (("", [one.clock for one in seconds]), ("cpu_", [one.cpu for one in seconds])):
            numbers |= {f"{what}_{of}{end}_ms": 1000 * quantile(kind, q) for end, q in (("median", 0.5), ("p95", 0.95))}
    return line | {key: round(value, 1) for key, value in numbers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for name, (explainer, data), outputs in (
        ("ba-shapes gcn", shipped("ba-shapes", "gcn"), list(range(300, 700, 20))),
        ("mutagenicity gin", shipped("mutagenicity", "gin"), list(range(0, 2000, 100))),
        ("dblp hgt", shipped("dblp", "hgt"), list(range(900, 1100, 10))),
        ("a million edges", million_edges(), list(range(0, 100_000, 10_000))),
    ):
        lines.append(measure(name, explainer, data, outputs, 30))
        print(lines[-1], flush=True)
    if arguments.out is not None:
        write_table(arguments.out, lines)


if __name__ == "__main__":
    main()
