"""A second device on a machine that has only one, so that code for GPUs can be tested without a GPU.

A tensor of :class:`OtherDevice` says that it is on torch's device ``meta``, which every build of torch knows, but holds its
values in a tensor in memory. The rules are those of CUDA, and a little stricter: an operation on tensors of both devices
raises, except for a scalar in arithmetic; random numbers need a generator of the device; NumPy cannot read the tensor.

:class:`Factories` records the calls that make a tensor without saying on which device.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import nseg

DEVICE = torch.device("meta")
SOURCE = str(Path(nseg.__file__).parent)
TORCH = str(Path(torch.__file__).parent) + "/"
ATEN = torch.ops.aten

MOVES = {ATEN._to_copy, ATEN.copy_, ATEN.copy}
"""Operations that may get tensors of both devices."""

TAKE_SCALARS = {ATEN.where, ATEN.index_put_, ATEN.index_put, ATEN._index_put_impl_, ATEN.masked_fill, ATEN.masked_fill_}
"""Operations, besides arithmetic, that may get a scalar of the other device."""


INDEXING = {ATEN.index, ATEN.index_put, ATEN.index_put_, ATEN._index_put_impl_}
"""Operations whose index CUDA also takes from the CPU."""

REFUSED: list[str] = []
"""What was refused since :func:`other_device` was entered."""


class Remote(Tensor):
    """A tensor that is said to be on :data:`DEVICE`; ``local`` holds the values."""

    local: Tensor

    @staticmethod
    def __new__(cls, local: Tensor) -> Remote:
        made = Tensor._make_wrapper_subclass(
            cls,
            local.size(),
            strides=local.stride(),
            storage_offset=local.storage_offset(),
            dtype=local.dtype,
            device=DEVICE,
        )
        made.local = local
        return made

    def __repr__(self) -> str:
        return f"Remote({self.local!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values, after checking the devices. Called tens of thousands of times per test."""
    tensors: list[Tensor] = []
    local = [to_local(one, tensors) for one in args]
    local_kwargs = {name: to_local(one, tensors) for name, one in kwargs.items()} if kwargs else kwargs
    strays = [one for one in tensors if not isinstance(one, Remote)]
    asked = kwargs.get("device")
    on_device = len(strays) < len(tensors) if asked is None else torch.device(asked) == DEVICE
    if len(strays) == len(tensors) and not on_device:
        return func(*args, **kwargs)
    if strays:
        check_devices(func, tensors, strays)
    if on_device and kwargs.get("generator") is not None:
        refuse(f"{func}: expected a generator of the device (got one of the CPU)")
    if "device" in kwargs:
        local_kwargs["device"] = torch.device("cpu") if asked is not None else None
    result = func(*local, **local_kwargs)
    if changes_its_input(func):
        return args[0]
    if func.overloadpacket is ATEN._to_copy and not on_device:
        return result
    return to_remote(result)


@cache
def changes_its_input(func: Any) -> bool:
    return func.overloadpacket is ATEN.copy_ or (func._schema.name.endswith("_") and func._schema.is_mutable)


def to_local(value: Any, seen: list[Tensor]) -> Any:
    """The values of an argument; adds its tensors to those seen."""
    if isinstance(value, Tensor):
        seen.append(value)
        return value.local if isinstance(value, Remote) else value
    return type(value)(to_local(one, seen) for one in value) if type(value) in (list, tuple) else value


def to_remote(value: Any) -> Any:
    if type(value) is Tensor or type(value) is nn.Parameter:
        return Remote(value)
    return type(value)(to_remote(one) for one in value) if type(value) in (list, tuple) else value


def check_devices(func: Any, tensors: list[Tensor], strays: list[Tensor]) -> None:
    """Raise as CUDA does if an operation mixes devices."""
    if len(strays) == len(tensors) or func.overloadpacket in MOVES:
        return
    if torch.Tag.pointwise in func.tags or func.overloadpacket in TAKE_SCALARS:
        strays = [one for one in strays if one.dim() > 0]
    lenient = func.overloadpacket in INDEXING and isinstance(tensors[0], Remote) and strays and not called_by_nseg()
    if strays and not lenient:
        shapes = ", ".join(str(tuple(one.shape)) for one in strays)
        refuse(f"{func}: all tensors must be on one device (got some on the CPU, of shape {shapes})")


def called_by_nseg() -> bool:
    """Whether ``nseg`` itself calls torch, not PyG or a test.

    CUDA takes an index from the CPU, and PyG makes use of that; ours must be on the device of what they index.
    """
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename == __file__ or frame.f_code.co_filename.startswith(TORCH):
        frame = frame.f_back
    return bool(frame.f_code.co_filename.startswith(SOURCE))


def refuse(sentence: str) -> None:
    """Raise, and remember it, because code that falls back to something slower swallows the error."""
    places = [frame for frame in traceback.extract_stack() if frame.filename.startswith(SOURCE)]
    REFUSED.append(f"{sentence} at {places[-1].filename}:{places[-1].lineno}" if places else sentence)
    raise RuntimeError(REFUSED[-1])


class _Operations(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and the guard costs as much as the operation."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class _Conversions(TorchFunctionMode):
    """Tensors from and to Python numbers, by way of the CPU: torch itself makes an empty tensor on ``meta``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = torch.device(kwargs.pop("device"))
            return func(*args, **kwargs).to(device)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[1], list) and isinstance(args[0], Remote):
            return func(args[0], torch.tensor(args[1], dtype=torch.long).to(DEVICE), *args[2:])
        if func is Tensor.data_ptr and isinstance(args[0], Remote):  # tells tensors apart, as on any device
            return args[0].local.data_ptr()
        if func is Tensor.tolist:  # refused for subclasses
            return func(args[0].cpu())
        if func is Tensor.new_tensor and isinstance(args[0], Remote):
            return torch.tensor(args[1], **{"dtype": args[0].dtype, **kwargs}).to(DEVICE)
        return func(*args, **kwargs)


@contextmanager
def other_device() -> Iterator[torch.device]:
    """While active, ``.to(device)`` and ``device=device`` give tensors of the other device; raises if devices were mixed."""
    REFUSED.clear()
    with _Operations(), _Conversions():
        yield DEVICE
    if REFUSED:
        raise AssertionError(f"{len(REFUSED)} operations mixed devices: {REFUSED[0]}")


def move(model: nn.Module) -> nn.Module:
    """The model with its parameters and buffers on the other device; ``Module.to`` cannot do that on ``meta``."""
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None:
                module._parameters[name] = nn.Parameter(Remote(value.detach().clone()), value.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = Remote(buffer.detach().clone())
    return model


FACTORIES = {
    *(torch.arange, torch.zeros, torch.ones, torch.full, torch.empty, torch.tensor, torch.as_tensor, torch.eye),
    *(torch.rand, torch.randn, torch.randint, torch.randperm, torch.linspace, torch.logspace, torch.from_numpy),
}


class Factories(TorchFunctionMode):
    """Records where ``nseg`` makes a tensor without a device, as ``file:function``."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made_of_tensor = func is torch.as_tensor and isinstance(args[0], Tensor)
        if func in FACTORIES and "device" not in kwargs and not made_of_tensor:
            self._record()
        return func(*args, **kwargs)

    def _record(self) -> None:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        name = "" if frame is None else frame.f_code.co_filename
        if not name.startswith(SOURCE):  # PyG or a test
            return
        while frame.f_code.co_name.startswith("<"):  # a comprehension
            frame = frame.f_back
        self.places.add(f"{name[len(SOURCE) + 1 :]}:{frame.f_code.co_name}")
