"""Backends by name; imports without torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nseg.backends.base import Backend, checked_workers
from nseg.backends.local import Local
from nseg.errors import InputError

NAMES = ("local", "processes", "ray")


def check_name(name: str) -> None:
    """Raise unless a backend of that name exists."""
    if name not in NAMES:
        raise InputError(f"There is no backend of that name (got {name!r}). Known: {', '.join(NAMES)}.")


def make(name: str, workers: int | None = None, address: str | None = None) -> Backend:
    """Make a backend by name.

    Args:
        name: ``"local"``, ``"processes"`` or ``"ray"``.
        workers: how many; one per core by default.
        address: of a Ray cluster.
    """
    check_name(name)
    if name == "ray":
        from nseg.backends.ray import Ray

        return Ray(address, workers)
    if address is not None:
        raise InputError(f"address belongs to the backend 'ray' (got one with {name!r}). Leave it out.")
    if name == "processes":
        from nseg.backends.processes import Processes

        return Processes(workers)
    if checked_workers(workers) not in (None, 1):
        raise InputError(f"The backend 'local' has one worker (got workers={workers}). Try 'processes'.")
    return Local()


@contextmanager
def hired(backend: str | Backend, workers: int | None) -> Iterator[Backend]:
    """Make a backend from its name and close it afterwards; one that is passed in stays open."""
    if isinstance(backend, Backend):
        yield backend
    else:
        with make(backend, workers) as made:
            yield made
