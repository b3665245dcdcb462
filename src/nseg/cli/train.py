"""``nseg train``: train a network of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nseg.cli.console import console
from nseg.cli.options import Architecture, DatasetName, set_threads
from nseg.datasets.names import check_name as check_dataset
from nseg.models.catalogue import ARCHITECTURES, check_architecture


def train(
    context: typer.Context,
    dataset: DatasetName,
    arch: Architecture = None,
    seed: Annotated[int, typer.Option(help="Seed of the initial weights and the batches.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="Largest number of epochs. Default: the paper's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for model.safetensors and manifest.json.")] = None,
) -> None:
    """Train a network with the paper's hyper-parameters."""
    check_dataset(dataset)
    arch = arch or ARCHITECTURES[0]
    check_architecture(arch)
    set_threads(context)
    from nseg import datasets, models
    from nseg.models.weights import write_weights
    from nseg.storage.files import prepare_folder, replace_file, write_json

    if out is not None:
        prepare_folder(out)
    recipe = models.recipe(dataset, seed=seed, **({} if epochs is None else {"epochs": epochs}))
    trained = models.train(datasets.load(dataset), arch, recipe)
    accuracy = ", ".join(f"{part} {value:.3f}" for part, value in trained.accuracy.items())
    console().print(f"{arch} on {dataset}: {trained.epochs} epochs, best at {trained.best_epoch}; accuracy {accuracy}.")
    if out is not None:
        digest: list[str] = []
        replace_file(out / "model.safetensors", lambda path: digest.append(write_weights(trained.model, path)))
        write_json(
            out / "manifest.json", {"dataset": dataset, "architecture": arch, "sha256": digest[0], **trained.record()}
        )
        console().print(f"Stored in {out}: model.safetensors, manifest.json.")
