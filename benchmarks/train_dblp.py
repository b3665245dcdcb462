"""Train the two networks of DBLP that ship with the package; write weights and their entries in the manifest.

    NSEG_DATA=... python benchmarks/train_dblp.py

The weights kept are those of the best validation accuracy; the test authors are only counted.
"""

from __future__ import annotations

import copy
import json
import platform
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric
from torch_geometric.data import HeteroData

from nseg import __version__
from nseg.datasets import load
from nseg.models import HETERO_ARCHITECTURES, HGT, HeteroSAGE, build_hetero
from nseg.models.weights import FOLDER, write_weights

EPOCHS, SEED, LR, WEIGHT_DECAY = 100, 0, 0.005, 0.001
PARTS = ("train", "val", "test")


def train(data: HeteroData, architecture: str, features: int, classes: int) -> tuple[HGT | HeteroSAGE, dict[str, Any]]:
    """A trained network, and how it was trained."""
    torch.manual_seed(SEED)
    model = build_hetero(architecture, data.metadata(), "author", features, classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)
    author = data["author"]
    best, kept = -1.0, (0, copy.deepcopy(model.state_dict()))
    for epoch in range(1, EPOCHS + 1):
        model.train()
        output = model(data.x_dict, data.edge_index_dict)
        optimiser.zero_grad()
        torch.autograd.backward(F.cross_entropy(output[author.train_mask], author.y[author.train_mask]))
        optimiser.step()
        right = accuracies(model, data)["val"]
        if right > best:
            best, kept = right, (epoch, copy.deepcopy(model.state_dict()))
    model.load_state_dict(kept[1])
    return model.eval(), {"accuracy": accuracies(model, data), "epochs": EPOCHS, "best_epoch": kept[0]}


@torch.no_grad()
def accuracies(model: HGT | HeteroSAGE, data: HeteroData) -> dict[str, float]:
    """Accuracy on each part, and on all authors."""
    author = data["author"]
    right = model.eval()(data.x_dict, data.edge_index_dict).argmax(-1) == author.y
    parts = {part: right[author[f"{part}_mask"]] for part in PARTS} | {"all": right}
    return {name: round(float(part.float().mean()), 4) for name, part in parts.items()}


def main() -> None:
    torch.set_num_threads(1)
    found = load("dblp")
    (data,), path = found.graphs, FOLDER / "manifest.json"
    for architecture in HETERO_ARCHITECTURES:
        model, record = train(data, architecture, found.num_features, found.num_classes)
        file = f"dblp-{architecture}.safetensors"
        print(architecture, record, flush=True)
        entry = {
            "file": file,
            "sha256": write_weights(model, FOLDER / file),
            "level": found.level,
            "num_features": found.num_features,
            "num_classes": found.num_classes,
            "metadata": data.metadata(),
            "output": "author",
            "recipe": {"lr": LR, "epochs": EPOCHS, "weight_decay": WEIGHT_DECAY, "seed": SEED},
            "split": "that of the file: 600 training, 300 validation and 2057 test authors",
            **record,
            "versions": {
                "nseg": __version__,
                "torch": torch.__version__,
                "torch_geometric": torch_geometric.__version__,
                "python": platform.python_version(),
            },
            "command": "python benchmarks/train_dblp.py",
        }
        entries = json.loads(path.read_text())
        path.write_text(json.dumps({**entries, f"dblp/{architecture}": entry}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
