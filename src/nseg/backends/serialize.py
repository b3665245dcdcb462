"""Objects as bytes, with large arrays kept apart so that processes can share one copy.

Classes and functions that another process cannot import (defined in a script, a notebook or a file given by path) are
serialized by value, with their code.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import torch
from torch import Tensor
from torch.fx import GraphModule

MIN_BUFFER_BYTES = 1 << 16
"""Arrays of at least this size are kept apart from the pickled bytes."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles plain tensors as NumPy arrays.

    Torch would pickle the whole storage, also of a small view. An array holds only the elements of the view, and pickle
    protocol 5 can hand its memory over without a copy.
    """

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor and _is_plain(value):
            return torch.from_numpy, (value.numpy(),)
        if isinstance(value, GraphModule):
            return _reduce_traced(value)
        return super().reducer_override(value)


def _reduce_traced(module: GraphModule) -> Any:
    """How a traced model, as ``to_hetero`` makes them, is pickled: as code without annotations.

    Torch cannot write annotations that are names of classes only, as in files with postponed annotations.
    """
    known = [(node, node.type) for node in module.graph.nodes]
    try:
        for node, _ in known:
            node.type = None
        module.recompile()
        return module.__reduce__()
    finally:
        for node, annotation in known:
            node.type = annotation
        module.recompile()


def _is_plain(value: Tensor) -> bool:
    """Whether a NumPy array can hold everything that the tensor holds."""
    on_cpu = value.device.type == "cpu" and value.layout is torch.strided and not value.requires_grad
    materialised = not (value.is_quantized or value.is_conj() or value.is_neg()) and not value.is_complex()
    return on_cpu and materialised and value.dtype is not torch.bfloat16 and not vars(value)


def serialize_with_buffers(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The pickled object, and its large arrays as separate buffers."""
    buffers: list[pickle.PickleBuffer] = []

    def keep_inline(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes >= MIN_BUFFER_BYTES:
            buffers.append(buffer)
            return False
        return True

    pickled = io.BytesIO()
    _Pickler(pickled, protocol=5, buffer_callback=keep_inline).dump(value)
    return pickled.getvalue(), buffers


def deserialize(pickled: bytes, buffers: Sequence[Any]) -> Any:
    """The object of :func:`serialize_with_buffers`.

    Its large arrays use the memory of ``buffers`` without a copy, so the buffers must be writable.
    """
    return pickle.loads(pickled, buffers=buffers)


def serialize(value: Any) -> bytes:
    """The pickled object with all its arrays."""
    pickled = io.BytesIO()
    _Pickler(pickled, protocol=5).dump(value)
    return pickled.getvalue()
