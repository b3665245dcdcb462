"""The one content hash of the package."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

Plain = bool | int | float | str | None

PIECE = 1 << 22  # bytes of a file that are read at once


def digest(value: Any) -> str:
    """SHA-256 of tensors, graphs, plain values, and sequences and mappings of them.

    >>> digest({"a": torch.tensor([1.0]), "b": 2}) == digest({"b": 2, "a": torch.tensor([1.0])})
    True
    >>> digest(torch.tensor([1.0])) == digest(torch.tensor([1]))
    False
    """
    sha = hashlib.sha256()
    _feed(value, sha.update)
    return sha.hexdigest()


def hash_bytes(content: bytes) -> str:
    """SHA-256 of bytes, such as the content of a file."""
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            sha.update(piece)
    return sha.hexdigest()


def _feed(value: Any, update: Callable[[Any], None]) -> None:
    if isinstance(value, Tensor):
        update(f"tensor {value.dtype} {tuple(value.shape)};".encode())
        update(_tensor_bytes(value))
    elif isinstance(value, Data):
        _feed({str(key): content for key, content in value.to_dict().items()}, update)
    elif isinstance(value, Mapping):
        update(f"mapping {len(value)};".encode())
        for key in sorted(value, key=str):
            update(f"{key}=".encode())
            _feed(value[key], update)
    elif hasattr(value, "fingerprint"):
        update(str(value.fingerprint()).encode())
    elif isinstance(value, bytes):
        update(f"bytes {len(value)};".encode())
        update(value)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        update(f"sequence {len(value)};".encode())
        for one in value:
            _feed(one, update)
    else:
        update(f"{plain_data(value)!r};".encode())


def _tensor_bytes(value: Tensor) -> Any:
    value = value.detach().cpu()
    if value.layout is torch.strided and not value.is_quantized:
        return value.contiguous().reshape(-1).view(torch.uint8).numpy().data
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def plain_data(value: Any) -> Any:
    """Plain data that is equal in every process: functions and classes become their qualified names."""
    if isinstance(value, Plain):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain_data(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [plain_data(v) for v in value]
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text
