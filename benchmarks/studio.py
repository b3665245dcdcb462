"""How long the studio takes to answer: toggles and explanations, as a browser would ask.

python benchmarks/studio.py --out benchmarks/results/studio.csv
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from nseg import NSEG, Explainer, datasets, models
from nseg.live.launch import make_studio


def ask(address: str, name: str, body: Any) -> tuple[float, dict[str, Any]]:
    """Seconds and answer of a question."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    began = time.perf_counter()
    connection.request("POST", parts.path + name, json.dumps(body).encode())
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    ended = time.perf_counter()
    connection.close()
    assert "error" not in found, found
    return ended - began, found


def quantile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(int(share * len(seconds)), len(seconds) - 1)]


def measure(dataset: str, architecture: str, outputs: list[int], toggles: int) -> dict[str, Any]:
    """Latencies on one dataset."""
    data = datasets.load(dataset)
    explainer = Explainer(
        models.pretrained(dataset, architecture),
        NSEG(undirected=True, seed=0),
        explanation_type="model",
        edge_mask_type="object",
        model_config=data.model_config,
    )
    studio = make_studio(explainer, data).start()
    while not studio.server.started:
        time.sleep(0.05)
    predict, explain = list[float](), list[float]()
    for output in outputs:
        _, view = ask(studio.address, "view", {"output": output})
        for n in range(toggles):
            edge = view["edges"][n % len(view["edges"])]
            predict.append(ask(studio.address, "predict", {"output": output, "edits": {"removed": [edge]}})[0])
        explain.append(ask(studio.address, "explain", {"output": output, "edits": {}})[0])
    studio.stop()
    line = {"dataset": dataset, "architecture": architecture, "toggles": len(predict), "explanations": len(explain)}
    numbers = {
        "toggle_median_ms": 1000 * quantile(predict, 0.5),
        "toggle_p95_ms": 1000 * quantile(predict, 0.95),
        "explain_median_ms": 1000 * quantile(explain, 0.5),
        "explain_p95_ms": 1000 * quantile(explain, 0.95),
    }
    return line | {name: round(value, 1) for name, value in numbers.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        measure("ba-shapes", "gcn", list(range(300, 700, 20)), 30),
        measure("mutagenicity", "gin", list(range(0, 2000, 100)), 30),
    ]
    for line in lines:
        print(line)
    if arguments.out is not None:
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
