"""Weights: those that this project trained, and a user's own, read without pickle."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save_file
from torch import Tensor

from nseg.errors import InputError
from nseg.models.catalogue import FOLDER, manifest
from nseg.models.nets import GCN, GIN, build


def pretrained(dataset: str, architecture: str = "gcn") -> GCN | GIN:
    """A network that this project trained, in evaluation mode.

    Args:
        dataset: name of the dataset.
        architecture: ``"gcn"`` or ``"gin"``.
    """
    key = f"{dataset}/{architecture}"
    if key not in manifest():
        raise InputError(f"There are no weights for {key!r} (got that name). Known: {', '.join(sorted(manifest()))}.")
    entry = manifest()[key]
    content = (FOLDER / entry["file"]).read_bytes()
    if hashlib.sha256(content).hexdigest() != entry["sha256"]:
        raise InputError(f"{entry['file']} must have the hash in the manifest (it does not). Install the package again.")
    model = build(architecture, entry["num_features"], entry["num_classes"], entry["level"], entry["recipe"]["dropout"])
    model.load_state_dict(load_safetensors(content))
    return model.eval()


def write_weights(model: GCN | GIN, path: Path) -> str:
    """Write weights as safetensors; returns their SHA-256."""
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """A user's checkpoint as a state dictionary: safetensors, or ``torch.save`` of tensors only. Never a pickle."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"A checkpoint must be a file (got {path}, which is none). Check the path.")
    try:
        if path.suffix == ".safetensors":
            return load_safetensors(path.read_bytes())
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise InputError(
            f"{path.name} must hold tensors only, as safetensors or torch.save(model.state_dict()) (got something else: "
            f"{type(error).__name__}). Save the state dictionary, not the model."
        ) from error
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise InputError(f"{path.name} must hold a dictionary of tensors (got {type(state).__name__}).")
    return state


__all__ = ["FOLDER", "pretrained", "read_weights", "write_weights"]
