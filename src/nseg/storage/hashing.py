"""The one content hash of the package: equal content gives equal hashes in every process."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing

from nseg.errors import StoreError
from nseg.storage.callables import Referred, callable_parts, class_parts, is_library, qualified_name

Plain = bool | int | float | str | None

PIECE = 1 << 22  # bytes of a file that are read at once
PYG_STATE = ("training", "inspector", "propagate", "edge_updater")  # what PyG writes on layers while it explains
SHOWN = 16  # characters of a digest that are shown after a name


class UnhashableError(StoreError):
    """A value without content that could be hashed, such as a lock or an open file."""


def digest(value: Any, names: Mapping[int, str] | None = None) -> str:
    """SHA-256 of the content of tensors, arrays, graphs, plain values, functions, modules and other objects.

    Of a function, the code, defaults, closure and constants are hashed, so that two lambdas are equal if they do the same.

    Args:
        value: what is hashed.
        names: stand for the objects with these ids, wherever they occur in the value.

    >>> digest({"a": torch.tensor([1.0]), "b": 2}) == digest({"b": 2, "a": torch.tensor([1.0])})
    True
    >>> digest(torch.tensor([1.0])) == digest(torch.tensor([1]))
    False
    >>> digest(lambda x: x + 1) == digest(lambda x: x + 2)
    False
    """
    sha = hashlib.sha256()
    _Feed(sha.update, names or {}).feed_all(value)
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


class _Feed:
    """Feeds the content of a value to a hash.

    Args:
        update: of the hash.
        names: of objects that are known by name.
    """

    def __init__(self, update: Callable[[Any], None], names: Mapping[int, str]) -> None:
        self.update, self.names = update, names
        self.inside: list[Any] = []  # values whose content is being fed, outermost first
        self.referred: list[Any] = []  # classes and functions whose names were fed, in the order of their first mention

    def feed_all(self, value: Any) -> None:
        """Feed a value, then the code of the classes and functions that it mentions, each once."""
        self.feed(value)
        for one in self.referred:  # grows while it is read
            self._feed_parts(qualified_name(one), class_parts(one) if isinstance(one, type) else callable_parts(one) or ())

    def _refer(self, value: Any) -> None:
        self.update(f"{qualified_name(value)};".encode())
        if not is_library(value) and not any(value is one for one in self.referred):
            self.referred.append(value)

    def feed(self, value: Any) -> None:
        value = value.item() if isinstance(value, np.generic) and not isinstance(value, np.void) else value
        if isinstance(value, Plain) and not isinstance(value, Enum):
            self.update(f"{value!r};".encode())
        elif id(value) in self.names:
            self.update(f"known {self.names[id(value)]};".encode())
        elif any(value is outer for outer in self.inside):  # a value that contains itself
            self.update(f"outer {next(n for n, outer in enumerate(self.inside) if outer is value)};".encode())
        else:
            self.inside.append(value)
            self._feed_content(value)
            self.inside.pop()

    def _feed_content(self, value: Any) -> None:
        if isinstance(value, type):
            self._refer(value)
        elif isinstance(value, Referred):
            self._refer(value.function)
        elif isinstance(value, Tensor):
            self._feed_tensor(value)
        elif isinstance(value, np.ndarray):
            self._feed_array(value)
        elif isinstance(value, Data):
            self.feed({str(key): content for key, content in value.to_dict().items()})
        elif isinstance(value, Mapping):
            self._feed_mapping(value)
        elif isinstance(value, bytes | bytearray):
            self.update(f"bytes {len(value)};".encode())
            self.update(bytes(value))
        elif isinstance(value, Set):
            self._feed_parts("set", sorted(digest(one, self.names) for one in value))
        elif callable(getattr(value, "fingerprint", None)):
            self.update(str(value.fingerprint()).encode())
        elif isinstance(value, Sequence):
            self._feed_parts("sequence", value)
        else:
            self._feed_parts(type(value).__qualname__, _parts(value))

    def _feed_parts(self, tag: str, parts: Sequence[Any]) -> None:
        self.update(f"{tag} {len(parts)};".encode())
        for one in parts:
            self.feed(one)

    def _feed_mapping(self, value: Mapping[Any, Any]) -> None:
        self.update(f"mapping {len(value)};".encode())
        strings = all(isinstance(key, str) for key in value)
        for key in sorted(value) if strings else sorted(value, key=lambda key: digest(key, self.names)):
            self.feed(key)
            self.feed(value[key])

    def _feed_tensor(self, value: Tensor) -> None:
        if is_lazy(value):
            raise UnhashableError("A tensor must have content (got a layer that was never run). Run the model once.")
        value = value.detach()
        if value.layout is torch.strided and not value.is_quantized and value.device.type != "meta":
            self.update(f"tensor {value.dtype} {tuple(value.shape)};".encode())
            plain = value.as_subclass(Tensor).cpu().resolve_conj().resolve_neg().contiguous()
            self.update(plain.reshape(-1).view(torch.uint8).numpy().data)
        else:
            self._feed_parts(f"tensor {value.dtype} {tuple(value.shape)} {value.layout}", _sparse_parts(value))

    def _feed_array(self, value: np.ndarray[Any, Any]) -> None:
        self.update(f"array {value.dtype.str} {value.shape};".encode())
        if value.dtype.hasobject:
            self.feed(value.tolist())
        else:
            self.update(np.ascontiguousarray(value).tobytes())


def _sparse_parts(value: Tensor) -> tuple[Any, ...]:
    if value.is_quantized:
        scale = value.q_scale() if value.qscheme() == torch.per_tensor_affine else value.q_per_channel_scales()
        zero = value.q_zero_point() if value.qscheme() == torch.per_tensor_affine else value.q_per_channel_zero_points()
        return value.int_repr(), scale, zero
    if value.layout is torch.sparse_coo:
        return value._indices(), value._values()
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return value.crow_indices(), value.col_indices(), value.values()
    if value.layout in (torch.sparse_csc, torch.sparse_bsc):
        return value.ccol_indices(), value.row_indices(), value.values()
    raise UnhashableError(f"The content of a tensor must be readable (got one on {value.device}, {value.layout}).")


def _parts(value: Any) -> Sequence[Any]:
    """What an object consists of, as values that can be hashed."""
    if isinstance(value, Enum):
        return qualified_name(type(value)), value.name
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format | complex):
        return (repr(value),)
    if isinstance(value, nn.Module):
        return type(value), module_attributes(value), dict(value.named_parameters()), dict(value.named_children())
    found = callable_parts(value)
    return _pickled_parts(value) if found is None else found


def _pickled_parts(value: Any) -> Sequence[Any]:
    """What pickle would store of an object: its class, and its state."""
    try:
        found = value.__reduce_ex__(4)
    except Exception as error:  # pickling hooks may raise anything
        raise UnhashableError(
            f"The content of an object must be readable (got {qualified_name(type(value))}, which pickle does not know)."
        ) from error
    if isinstance(found, str):
        return qualified_name(type(value)), found
    make, arguments, state, *items = (*found, None, None, None)[:5]
    return [make, arguments, state, *(None if one is None else list(one) for one in items)]


def module_attributes(module: nn.Module) -> dict[str, Any]:
    """Attributes of a module that are neither parameters nor submodules, and may change what the module does.

    Private attributes are left out where they are caches or PyTorch's own: those of classes in PyTorch and PyG, and tensors.
    """
    found: dict[str, Any] = dict(module._buffers)
    private = not is_library(type(module))
    for name, value in vars(module).items():
        if name in PYG_STATE or name.startswith("__"):
            continue
        if not name.startswith("_") or (private and name not in _PRIVATE and (isinstance(value, Plain) or callable(value))):
            found[name] = value
    if isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule):
        found["code"] = module.code
    if getattr(module, "_explain", None) is False:  # exempted by the caller: its messages are never masked
        found["explain"] = False
    return {name: value for name, value in found.items() if value is not None}


# Private attributes of every module. A MessagePassing is not made for this: PyG would generate code into the class.
_PRIVATE = frozenset({*vars(nn.Module()), *MessagePassing.__init__.__code__.co_names, "_compiled_call_impl"})


def plain_data(value: Any) -> Any:
    """Plain data for JSON, equal in every process: functions and objects become their names with a hash of their content.

    >>> plain_data({"steps": np.int64(5), "act": torch.tanh, "starts": (0.0, 1)})
    {'steps': 5, 'act': 'torch._VariableFunctionsClass.tanh', 'starts': [0.0, 1]}
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Enum):
        return plain_data(value.value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Plain):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain_data(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain_data(v) for v in value]
    known = hasattr(value, "__qualname__")
    name = qualified_name(value if known else type(value))
    return name if known and is_library(value) else f"{name} {digest(value)[:SHOWN]}"
