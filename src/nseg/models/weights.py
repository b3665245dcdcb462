"""Weights: those that ship with the package, and a user's own, read without running pickled code."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save_file
from torch import Tensor, nn

from nseg.errors import InputError
from nseg.models.catalogue import FOLDER, manifest
from nseg.models.hetero_nets import HGT, HeteroSAGE, build_hetero
from nseg.models.nets import GCN, GIN, build
from nseg.storage.hashing import hash_file


def pretrained(dataset: str, architecture: str = "gcn") -> GCN | GIN | HGT | HeteroSAGE:
    """A trained network that ships with the package, in evaluation mode.

    Args:
        dataset: name of the dataset; or ``"ba-2motif-shortcut"``, networks that find the class of BA2Motif without the
            motif: an example of models that are right for the wrong reason.
        architecture: ``"gcn"`` or ``"gin"``; ``"hgt"`` or ``"sage"`` for dblp.
    """
    key = f"{dataset}/{architecture}"
    if key not in manifest():
        raise InputError(f"There are no weights of that name (got {key!r}). Known: {', '.join(sorted(manifest()))}.")
    entry = manifest()[key]
    path = FOLDER / entry["file"]
    found = hash_file(path)
    if found != entry["sha256"]:
        raise InputError(f"{path.name} must have the hash in the manifest (got {found}). Install the package again.")
    model: GCN | GIN | HGT | HeteroSAGE
    sizes = entry["num_features"], entry["num_classes"]
    if "metadata" in entry:
        node_types, edge_types = entry["metadata"]
        model = build_hetero(architecture, (node_types, [tuple(one) for one in edge_types]), entry["output"], *sizes)
    else:
        model = build(architecture, *sizes, entry["level"], entry["recipe"]["dropout"])
    model.load_state_dict(load_safetensors(path.read_bytes()))
    return model.eval()


def write_weights(model: nn.Module, path: Path) -> str:
    """Write weights as safetensors and return the SHA-256 of the file."""
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return hash_file(path)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The state dictionary in a checkpoint.

    The file is safetensors or ``torch.save`` of tensors only. Pickled code is never run.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"A checkpoint must be a file (got {path}, which does not exist or is a folder). Check the path.")
    try:
        if path.suffix == ".safetensors":
            return load_safetensors(path.read_bytes())
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise InputError(
            f"{path.name} must hold only tensors, as safetensors or torch.save(model.state_dict()) (got "
            f"{type(error).__name__} while reading it). Save the state dictionary, not the model."
        ) from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise InputError(
            f"{path.name} must hold a dictionary of tensors (got {type(state).__name__}). Save model.state_dict()."
        )
    return state


__all__ = ["FOLDER", "pretrained", "read_weights", "write_weights"]
