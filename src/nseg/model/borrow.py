"""The model is borrowed: used in evaluation mode without gradients, and given back as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch_geometric.nn import MessagePassing

from nseg.errors import ModelError, NsegError
from nseg.model.slow_runs import is_our_mistake


@contextmanager
def borrow(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode without gradients, and restore it afterwards, whatever happens.

    Training flags, ``requires_grad``, buffers, layer caches, masks of another explainer and the global random state are
    restored; gradients are never touched. A model is lent to one thread at a time; other threads wait.
    """
    with _lock_of(model), _borrowed(model):
        yield


_locks: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_locks_guard = Lock()


def _lock_of(model: nn.Module) -> RLock:
    """The lock of a model; the thread that holds it may take it again."""
    with _locks_guard:
        return _locks.setdefault(model, RLock())


@contextmanager
def _borrowed(model: nn.Module) -> Iterator[None]:
    modules, parameters = list(model.modules()), list(model.parameters())
    training = [m.training for m in modules]
    requires_grad = [p.requires_grad for p in parameters]
    buffers = [(m, k, b, None if b is None else b.detach().clone()) for m in modules for k, b in m._buffers.items()]
    caches = [(m, name, value) for m in modules for name, value in vars(m).items() if name.startswith("_cached")]
    caches += [(m, "cached", True) for m in modules if getattr(m, "cached", None) is True]
    masked = [m for m in modules if isinstance(m, MessagePassing) and m.explain is True]
    cuda = sorted({p.device.index or 0 for p in parameters if p.is_cuda})
    with torch.random.fork_rng(devices=cuda), flush_denormals():
        try:
            model.eval()
            for parameter in parameters:
                parameter.requires_grad_(False)
            for module, name, _ in caches:
                setattr(module, name, None if name.startswith("_") else False)
            for layer in masked:
                layer.explain = None
            yield
        finally:
            for module, flag in zip(modules, training, strict=True):
                module.training = flag
            for parameter, flag in zip(parameters, requires_grad, strict=True):
                parameter.requires_grad_(flag)
            for module, name, buffer, content in buffers:
                module._buffers[name] = buffer
                if buffer is not None and content is not None and not torch.equal(buffer, content):
                    buffer.copy_(content)
            for module, name, value in caches:
                setattr(module, name, value)
            for layer in masked:
                layer.explain = True


@contextmanager
def keep_attributes(model: nn.Module) -> Iterator[None]:
    """Undo what ``forward`` assigns to attributes and buffers, so that no pass depends on the one before.

    A model may cache what it computed from another graph or another world. Once a model was seen to assign nothing, its
    attributes are no longer compared, because that takes time; :func:`forget_attributes` makes sure that they are.
    """
    if not _assigns.get(model, True):
        yield
        return
    before = [(held, dict(held)) for module in model.modules() for held in (vars(module), module._buffers)]
    try:
        yield
    finally:
        changed = [_restore(held, content) for held, content in before]
        _assigns[model] = any(changed)


@contextmanager
def watch(model: nn.Module, before_call: Callable[[], None]) -> Iterator[None]:
    """Call a function before every forward pass of a model; what it raises ends the pass, and the work around it."""
    handle = model.register_forward_pre_hook(lambda *_: before_call())
    try:
        yield
    finally:
        handle.remove()


_assigns: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def forget_attributes(model: nn.Module) -> None:
    """Let :func:`keep_attributes` compare the attributes of a model again."""
    _assigns.pop(model, None)


def _restore(held: dict[str, Any], content: dict[str, Any]) -> bool:
    """Give a dictionary the content that it had; returns whether it has changed."""
    new = [name for name in held if name not in content]
    other = [name for name, value in content.items() if held.get(name, held) is not value]
    for name in new:
        del held[name]
    held.update({name: content[name] for name in other})
    return bool(new or other)


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush denormals to zero: CPU arithmetic on them is slow, and weight decay leaves many in trained models."""
    before = bool(torch.tensor(1e-38) / 1e3 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: sums are then equal bit for bit, however many cores there are."""
    with _locks_guard:
        if _threads.users == 0:
            _threads.before = torch.get_num_threads()
            torch.set_num_threads(1)
        _threads.users += 1
    try:
        yield
    finally:
        with _locks_guard:
            _threads.users -= 1
            if _threads.users == 0:  # the last of several threads of the caller gives the setting back
                torch.set_num_threads(_threads.before)


_threads = SimpleNamespace(users=0, before=1)
"""Who runs torch on one thread now, and the number of threads that they found."""


@contextmanager
def wrap_model_errors() -> Iterator[None]:
    """Turn what the model raises into a :class:`~nseg.errors.ModelError` with a sentence."""
    try:
        yield
    except NsegError:
        raise
    except Exception as error:
        if is_our_mistake(error):
            raise
        remedy = "Check the shapes and dtypes of x, edge_index and further arguments."
        if isinstance(error, TypeError) and "argument" in str(error):
            remedy = (
                "It is called as model(x, edge_index, ...) with further arguments by name: give those that are missing as "
                "keywords, or as attributes of the data."
            )
        raise ModelError(f"The model must run on its input (got {type(error).__name__}: {error}). {remedy}") from error


def unwrap_compiled(model: nn.Module) -> nn.Module:
    """The module inside ``torch.compile``, whose hooks can be used."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model
