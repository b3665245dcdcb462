"""Objects as bytes, with large tensors apart, so that many processes can share one copy of them.

Classes and functions that other processes cannot import (of a script, a notebook or a file given by path) travel with the
object.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import torch
from torch import Tensor

LARGE = 1 << 16  # bytes from which an array travels apart


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Tensors go as arrays: only what they show of their memory, and that without a copy."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and _is_plain(value):
            return torch.from_numpy, (value.numpy(),)
        return super().reducer_override(value)


def _is_plain(value: Tensor) -> bool:
    """Whether a tensor is nothing but numbers that NumPy knows."""
    there = value.device.type == "cpu" and value.layout is torch.strided and not value.requires_grad
    known = not (value.is_quantized or value.is_conj() or value.is_neg()) and not value.is_complex()
    return there and known and value.dtype is not torch.bfloat16 and not vars(value)


def packed(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """An object as bytes and the large arrays in it."""
    apart: list[pickle.PickleBuffer] = []

    def is_small(array: pickle.PickleBuffer) -> bool:
        if array.raw().nbytes >= LARGE:
            apart.append(array)
            return False
        return True

    head = io.BytesIO()
    _Pickler(head, protocol=5, buffer_callback=is_small).dump(value)
    return head.getvalue(), apart


def unpacked(head: bytes, apart: Sequence[Any]) -> Any:
    """The object again; its large arrays stay where they are given, so they must be writable."""
    return pickle.loads(head, buffers=apart)


def dumps(value: Any) -> bytes:
    """An object as bytes, all in one."""
    made = io.BytesIO()
    _Pickler(made, protocol=5).dump(value)
    return made.getvalue()
