"""Backends by name; imports without torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nseg.backends.base import Backend, check_workers
from nseg.backends.local import Local
from nseg.errors import InputError

NAMES = ("local", "processes", "ray")


def check_name(name: str) -> None:
    """Raise unless a backend of that name exists."""
    if name not in NAMES:
        raise InputError(f"There is no backend of that name (got {name!r}). Known: {', '.join(NAMES)}.")


def make(name: str, workers: int | None = None, address: str | None = None) -> Backend:
    """A new backend by name.

    Args:
        name: ``"local"``, ``"processes"`` or ``"ray"``.
        workers: number of workers; one per core by default.
        address: address of a Ray cluster.
    """
    check_name(name)
    if name == "ray":
        from nseg.backends.ray import Ray

        return Ray(address, workers)
    if address is not None:
        raise InputError(f"address is only for the backend 'ray' (got one with {name!r}). Leave address out.")
    if name == "processes":
        from nseg.backends.processes import Processes

        return Processes(workers)
    if check_workers(workers) not in (None, 1):
        raise InputError(f"The backend 'local' has one worker (got workers={workers}). Try backend='processes'.")
    return Local()


@contextmanager
def open_backend(backend: str | Backend, workers: int | None, items: int = 0) -> Iterator[Backend]:
    """A backend for a ``with`` block, prepared for so many items.

    A backend given by name is created here and closed at the end. A backend object belongs to the caller and stays open.
    """
    if isinstance(backend, Backend):
        backend.prepare(items)
        yield backend
    else:
        with make(backend, workers) as created:
            created.prepare(items)
            yield created
