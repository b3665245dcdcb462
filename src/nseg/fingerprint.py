"""What a run is made of, as hashes: two runs with equal fingerprints give equal explanations."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import torch_geometric
from torch import Tensor, nn
from torch_geometric.data import Data, Dataset
from torch_geometric.explain import Explainer

Plain = bool | int | float | str | None


def digest(value: Any) -> str:
    """SHA-256 of tensors, plain values, and sequences and mappings of them.

    >>> digest({"a": torch.tensor([1.0]), "b": 2}) == digest({"b": 2, "a": torch.tensor([1.0])})
    True
    >>> digest(torch.tensor([1.0])) == digest(torch.tensor([1]))
    False
    """
    made = hashlib.sha256()
    _feed(value, made.update)
    return made.hexdigest()


def _feed(value: Any, take: Callable[[Any], None]) -> None:
    if isinstance(value, Tensor):
        take(f"tensor {value.dtype} {tuple(value.shape)};".encode())
        take(_content(value))
    elif isinstance(value, Data):
        _feed({str(key): content for key, content in value.to_dict().items()}, take)
    elif isinstance(value, Mapping):
        take(f"mapping {len(value)};".encode())
        for key in sorted(value, key=str):
            take(f"{key}=".encode())
            _feed(value[key], take)
    elif hasattr(value, "fingerprint"):
        take(str(value.fingerprint()).encode())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        take(f"sequence {len(value)};".encode())
        for one in value:
            _feed(one, take)
    else:
        take(f"{named(value)!r};".encode())


def _content(value: Tensor) -> Any:
    value = value.detach().cpu()
    if value.layout is torch.strided and not value.is_quantized:
        return value.contiguous().reshape(-1).view(torch.uint8).numpy().data
    whole = io.BytesIO()
    torch.save(value, whole)
    return whole.getvalue()


def of_file(path: Path) -> str:
    """SHA-256 of a file, read piece by piece."""
    made = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 22):
            made.update(piece)
    return made.hexdigest()


def named(value: Any) -> Any:
    """Plain data that is the same in every process: a function or class is its name, not its place in memory."""
    if isinstance(value, Plain):
        return value
    if isinstance(value, Mapping):
        return {str(k): named(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [named(v) for v in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


def of_model(model: nn.Module) -> dict[str, str]:
    """Class, structure and weights of a model."""
    layers = {
        name: {
            key: value
            for key, value in vars(layer).items()
            if not key.startswith("_") and key != "training" and isinstance(value, Plain)
        }
        for name, layer in model.named_modules()
    }
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "structure": digest([str(model), layers]),
        "weights": digest(dict(model.state_dict())),
    }


def of_explainer(explainer: Explainer) -> dict[str, Any]:
    """What is explained, by what algorithm, and what that has learned."""
    state = dict(explainer.algorithm.state_dict())
    types = {name: getattr(explainer, name) for name in ("explanation_type", "edge_mask_type", "node_mask_type")}
    types |= {name: getattr(explainer.model_config, name) for name in ("task_level", "mode", "return_type")}
    return {
        "algorithm": type(explainer.algorithm).__qualname__,
        **({"learned": digest(state)} if state else {}),
        **{name: one and one.value for name, one in types.items()},
        "threshold": repr(explainer.threshold_config),
    }


def of_settings(algorithm: Any) -> dict[str, Any]:
    """The settings of an algorithm."""
    own = getattr(algorithm, "settings", None)
    if own is not None:
        return {name: named(value) for name, value in vars(own).items()}
    found = {k: v for k, v in vars(algorithm).items() if not k.startswith("_") and k != "training"}
    # PyG's keep theirs as attributes, beside what they work with, which is None, or a tensor, or not there yet
    return {k: named(v) for k, v in found.items() if v is not None and isinstance(v, Plain | Mapping)}


def of_data(data: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Size and content of one graph or several, with further model arguments."""
    graphs = [data[n] for n in range(len(data))] if isinstance(data, Sequence | Dataset) else [data]
    return {
        "graphs": len(graphs),
        "nodes": sum(int(one.num_nodes) for one in graphs),
        "edges": sum(int(one.num_edges) for one in graphs),
        "content": digest([graphs, dict(arguments)]),
    }


def versions() -> dict[str, str]:
    """What else the bytes of a result depend on."""
    import nseg

    return {
        "nseg": nseg.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "pyarrow": pa.__version__,
    }
