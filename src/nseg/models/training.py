"""Training with the paper's hyper-parameters."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import Progress
from torch import Tensor
from torch_geometric.data import Batch

from nseg.datasets import Benchmark
from nseg.models.nets import GCN, GIN, build


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Args:
        lr, epochs, dropout, weight_decay: as in the paper's table.
        batch: graphs per step; all at once by default, which BA2Motif needs to get started.
        patience: epochs without a better validation score after which training stops.
        seed: of the split, the start, dropout and the order of batches.
    """

    lr: float
    epochs: int
    dropout: float = 0.0
    weight_decay: float = 0.0
    batch: int = 1 << 20
    patience: int = 500
    seed: int = 0


_PAPER = {
    "ba-shapes": Recipe(lr=0.001, epochs=2000),
    "tree-cycles": Recipe(lr=0.001, epochs=2000),
    "tree-grid": Recipe(lr=0.001, epochs=2000),
    "ba-2motif": Recipe(lr=0.01, epochs=5000, patience=5000),
    "mutagenicity": Recipe(lr=0.001, epochs=500, dropout=0.5, weight_decay=5e-4, batch=64, patience=100),
    "msrc-21": Recipe(lr=0.001, epochs=500, dropout=0.5, weight_decay=5e-4, batch=32, patience=200),
}


def recipe(dataset: str, **changes: Any) -> Recipe:
    """The paper's recipe for a dataset, with changes."""
    return replace(_PAPER[dataset], **changes)


@dataclass(frozen=True)
class Trained:
    """A trained network and how it went.

    Args:
        model: with the weights of the best validation score, in evaluation mode.
        accuracy: share that is right of ``train``, ``val``, ``test`` and ``all``.
        epochs: epochs that were run.
        best_epoch: epoch of the weights.
        recipe: how it was trained.
    """

    model: GCN | GIN
    accuracy: dict[str, float]
    epochs: int
    best_epoch: int
    recipe: Recipe

    def record(self) -> dict[str, Any]:
        """All but the weights, as plain data."""
        return {
            "recipe": asdict(self.recipe),
            "split": "80/10/10, a permutation by torch.Generator from the recipe's seed",
            "accuracy": {k: round(v, 4) for k, v in self.accuracy.items()},
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
        }


def split(number: int, seed: int) -> dict[str, Tensor]:
    """A random 80/10/10 split."""
    order = torch.randperm(number, generator=torch.Generator().manual_seed(seed))
    first, second = int(0.8 * number), int(0.9 * number)
    return {"train": order[:first], "val": order[first:second], "test": order[second:], "all": order}


def train(data: Benchmark, architecture: str, how: Recipe | None = None, progress: bool | None = None) -> Trained:
    """Train a network; the global random state is not touched.

    Args:
        data: what to learn.
        architecture: ``"gcn"`` or ``"gin"``.
        how: recipe; the paper's if None.
        progress: show a progress bar; by default only on a terminal.
    """
    how = how or recipe(data.name)
    shown = sys.stderr.isatty() if progress is None else progress
    with torch.random.fork_rng(), Progress(console=Console(stderr=True), disable=not shown) as bar:
        torch.manual_seed(how.seed)
        model = build(architecture, data.num_features, data.num_classes, data.level, how.dropout)
        parts = split(data.graphs[0].num_nodes if data.level == "node" else len(data.graphs), how.seed)
        task = bar.add_task(f"training {architecture} on {data.name}", total=how.epochs)
        optimiser = torch.optim.Adam(model.parameters(), lr=how.lr, weight_decay=how.weight_decay)
        batches = list(_batches(data, parts["train"], how.batch))
        judge = {name: list(_batches(data, part, how.batch)) for name, part in parts.items() if name != "all"}
        best, best_epoch, weights, epoch = (-1.0, 0.0), 0, copy.deepcopy(model.state_dict()), 0
        for epoch in range(1, how.epochs + 1):
            model.train()
            for number in torch.randperm(len(batches)).tolist():
                optimiser.zero_grad()
                torch.autograd.backward(_loss(model, batches[number]))
                optimiser.step()
            right, loss = _judge(model, judge["val"])
            bar.update(task, advance=1, description=f"training {architecture} on {data.name}, validation {right:.3f}")
            if (right, -loss) > best:
                best, best_epoch, weights = (right, -loss), epoch, copy.deepcopy(model.state_dict())
            elif epoch - best_epoch >= how.patience:
                break
        model.load_state_dict(weights)
        model.eval()
        accuracy = {name: _judge(model, part)[0] for name, part in judge.items()}
    sizes = {name: len(parts[name]) for name in accuracy}
    accuracy["all"] = sum(accuracy[n] * sizes[n] for n in sizes) / sum(sizes.values())
    return Trained(model, accuracy, epoch, best_epoch, how)


@dataclass(frozen=True)
class _Examples:
    """Inputs of one forward pass, and the outputs that count."""

    arguments: dict[str, Tensor]
    rows: Tensor
    target: Tensor


def _batches(data: Benchmark, part: Tensor, size: int) -> Iterator[_Examples]:
    """One pass over the whole graph, or batches of graphs."""
    if data.level == "node":
        graph = data.graphs[0]
        yield _Examples({"x": graph.x, "edge_index": graph.edge_index}, part, graph.y[part])
        return
    for some in torch.split(part, size):
        batch = Batch.from_data_list([data.graphs[n] for n in some.tolist()])
        arguments = {"x": batch.x, "edge_index": batch.edge_index, "batch": batch.batch}
        yield _Examples(arguments, torch.arange(len(some)), batch.y)


def _loss(model: GCN | GIN, some: _Examples) -> Tensor:
    return F.cross_entropy(model(**some.arguments)[some.rows], some.target)


@torch.no_grad()
def _judge(model: GCN | GIN, batches: list[_Examples]) -> tuple[float, float]:
    """Share that is right, and mean loss."""
    model.eval()
    right = loss = total = 0.0
    for some in batches:
        output = model(**some.arguments)[some.rows]
        right += float((output.argmax(-1) == some.target).sum())
        loss += float(F.cross_entropy(output, some.target, reduction="sum"))
        total += len(some.rows)
    return right / max(total, 1), loss / max(total, 1)
