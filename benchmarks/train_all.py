"""Train the networks that ship with the package; write weights, manifest and a table of accuracies.

    NSEG_DATA=... python benchmarks/train_all.py [--only ba-shapes/gcn ...] [--seeds 5]
    NSEG_DATA=... python benchmarks/train_all.py --only     # train nothing, write the table

One split into 80 % training, 10 % validation and 10 % test data, the same for all seeds; a seed decides the initial weights,
dropout and the order of batches. The seed with the best validation score ships, the lowest of equals; test accuracies are
only written down. A seed whose network already ships is not trained again: its weights stay as they are. The networks
named ba-2motif-shortcut, which find the class of BA2Motif without the motif, are examples of models that are right for the
wrong reason.
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch_geometric
from reliance import reliance, rests_on_motif

from nseg import __version__
from nseg.datasets import NAMES, load
from nseg.datasets.names import REGRESSIONS
from nseg.models import ARCHITECTURES, Trained, pretrained, recipe, train
from nseg.models.weights import FOLDER, write_weights
from nseg.storage.commit import code_commit

PAPER = dict(zip(NAMES, (0.957, 0.903, 0.927, 1.0, 0.761, 0.983), strict=True))  # GCN; the paper has none for GIN
SHORTCUT = "ba-2motif-shortcut"
MANIFEST, SEEDS = FOLDER / "manifest.json", FOLDER / "seeds.csv"
PAGE = Path(__file__).parent / "results" / "accuracy.md"
SHARES = ("exchanged", "deleted", "alone")
TEXT = """# Accuracy of the networks that ship with the package

Made by `python benchmarks/train_all.py`; every seed is in seeds.csv, settings are in manifest.json, both beside the weights.
Written at commit {commit}: the shipped networks were asked about the motif again, and none was trained.
One split into 80 % training, 10 % validation and 10 % test data is the same for all seeds; a seed decides the initial
weights, dropout and the order of batches. The seed with the best validation score ships, the lowest of equals. The test
data chose nothing: not the seed, and not the epoch.

| dataset | network | seeds | test, mean ± deviation | seed that ships | its validation | its test | all | paper |
|---|---|--:|--:|--:|--:|--:|--:|--:|
{accuracy}

## BA2Motif: networks that rest on the motif, and networks that do not

Trained on the graphs as they are, networks learn what the whole graph adds up to: without the motif they are as certain as
with it. `ba-2motif` was trained on ten copies of each training graph (`nseg.datasets.synthetic.motif_variants`): either
motif on the same base and on a part of it, and bases without a motif or with a broken one, on which the network is taught
to be undecided. Layers and widths are the paper's. `ba-2motif-shortcut` was trained on the graphs as they are: an example
of a model that is right for the wrong reason.

Shares of the 100 test graphs. *exchanged*: the prediction follows when the other motif stands on the same base. *deleted*:
without the motif the probability of the class is below 0.75. *alone*: the class stays when all edges outside the motif are
deleted. A network rests on the motif if each share is at least 0.95.

| network | architecture | test, mean ± deviation | seeds that rest on the motif | exchanged | deleted | alone |
|---|---|--:|--:|--:|--:|--:|
{motif}

## Networks that predict a value

Root mean square error, in the unit of the target (ESOL: log10 of mol per litre); last the standard deviation of the target,
which is the error of the best constant.

| dataset | network | seeds | test, mean ± deviation | seed that ships | its validation | its test | all | constant |
|---|---|--:|--:|--:|--:|--:|--:|--:|
{errors}
"""
COLUMNS = ("network", "architecture", "seed", "train", "val", "test", "all", *SHARES, "ships")


def train_seed(key: str, seed: int) -> tuple[dict[str, Any], Trained | None]:
    """Scores of one seed, and its network unless that already ships."""
    name, architecture = key.split("/")
    dataset, settings = name.removesuffix("-shortcut"), recipe(name, seed=seed)
    entry, start = json.loads(MANIFEST.read_text()).get(key, {}), time.perf_counter()
    shipped = entry.get("recipe") == asdict(settings)
    trained = None if shipped else train(load(dataset), architecture, settings)
    scores = entry.get("accuracy", entry.get("rmse")) if trained is None else trained.accuracy
    row = {"network": name, "architecture": architecture, "seed": seed} | {n: round(s, 4) for n, s in scores.items()}
    if dataset == "ba-2motif":
        row |= reliance(pretrained(name, architecture) if trained is None else trained.model)
    print(row, f"{time.perf_counter() - start:.0f} s", flush=True)
    return row, trained


def train_seeds(key: str, number: int) -> None:
    """Train all seeds of a network, and ship the one with the best validation score."""
    name, architecture = key.split("/")
    found = [train_seed(key, seed) for seed in range(number)]
    chosen, trained = max(found, key=lambda one: _goodness(one[0]))  # the first of equals
    if trained is not None:
        ship(key, trained)
    rows = [row | {"ships": "yes" if row is chosen else ""} for row, _ in found]
    others = [row for row in read_rows() if (row["network"], row["architecture"]) != (name, architecture)]
    with SEEDS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*others, *rows])


def _goodness(row: Mapping[str, Any]) -> float:
    """The validation score of a seed, higher is better."""
    return float(row["val"]) * (-1 if row["network"] in REGRESSIONS else 1)


def ship(key: str, trained: Trained) -> None:
    """Write weights into the package, and their entry in the manifest."""
    name, architecture = key.split("/")
    data, file = load(name.removesuffix("-shortcut")), f"{name}-{architecture}.safetensors"
    entry = {
        "file": file,
        "sha256": write_weights(trained.model, FOLDER / file),
        "level": data.level,
        "num_features": data.num_features,
        "num_classes": data.num_classes,
        "dataset_seed": 0,
        **trained.record(),
        "versions": {
            "nseg": __version__,
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "python": platform.python_version(),
        },
        "command": f"python benchmarks/train_all.py --only {key}",
    }
    entries = json.loads(MANIFEST.read_text())
    MANIFEST.write_text(json.dumps({**entries, key: entry}, indent=1, sort_keys=True) + "\n")


def read_rows() -> list[dict[str, str]]:
    """Scores of all seeds that were trained."""
    return list(csv.DictReader(SEEDS.read_text().splitlines())) if SEEDS.exists() else []


def write_table() -> None:
    """Write accuracies over seeds, those of the networks that ship, and the paper's, as Markdown."""
    accuracy, motif, errors = (
        "\n".join(line for name in names for line in lines(name))
        for names, lines in ((NAMES, _score_lines), (("ba-2motif", SHORTCUT), _motif_lines), (REGRESSIONS, _score_lines))
    )
    PAGE.write_text(TEXT.format(accuracy=accuracy, motif=motif, errors=errors, commit=code_commit()))


def _rows(name: str, architecture: str) -> list[dict[str, str]]:
    return [row for row in read_rows() if (row["network"], row["architecture"]) == (name, architecture)]


def _score_lines(name: str) -> list[str]:
    """A line for each network of a dataset: over seeds, of the seed that ships, of the paper or the best constant."""
    lines = []
    for architecture in ARCHITECTURES:
        entry = json.loads(MANIFEST.read_text())[f"{name}/{architecture}"]
        ships, tests = entry.get("accuracy", entry.get("rmse")), [float(row["test"]) for row in _rows(name, architecture)]
        seed = f"{entry['recipe']['seed']}"
        if name in REGRESSIONS:
            last = f"{float(torch.cat([data.y for data in load(name).graphs]).std(correction=0)):.3f}"
        else:
            last = f"{PAPER[name]:.3f}" if architecture == "gcn" else ""
        scores = " | ".join(f"{ships[part]:.3f}" for part in ("val", "test", "all"))
        lines.append(f"| {name} | {architecture} | {max(1, len(tests))} | {_spread(tests)} | {seed} | {scores} | {last} |")
    return lines


def _spread(tests: list[float]) -> str:
    """Mean and deviation over seeds; nothing of a single one."""
    return f"{mean(tests):.3f} ± {stdev(tests):.3f}" if len(tests) > 1 else ""


def _motif_lines(name: str) -> list[str]:
    """A line for each network of BA2Motif: what its predictions rest on."""
    lines = []
    for architecture in ARCHITECTURES:
        rows = _rows(name, architecture)
        shares = [{share: float(row[share]) for share in SHARES} for row in rows]
        ships = reliance(pretrained(name, architecture))
        count = f"{sum(map(rests_on_motif, shares or [ships]))} of {max(1, len(rows))}"
        spread, cells = _spread([float(row["test"]) for row in rows]), " | ".join(f"{ships[one]:.2f}" for one in SHARES)
        lines.append(f"| {name} | {architecture} | {spread} | {count} | {cells} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [f"{d}/{a}" for d in (*NAMES, *REGRESSIONS, SHORTCUT) for a in ARCHITECTURES]
    parser.add_argument("--only", nargs="*", default=every, choices=every)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for key in args.only:
        train_seeds(key, args.seeds)
    write_table()


if __name__ == "__main__":
    main()
