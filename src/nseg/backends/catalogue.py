"""Back ends by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nseg.backends.base import Backend, checked_workers
from nseg.backends.local import Local
from nseg.backends.processes import Processes
from nseg.backends.ray import Ray
from nseg.errors import InputError

NAMES = ("local", "processes", "ray")


def make(name: str, workers: int | None = None, address: str | None = None) -> Backend:
    """A back end by name.

    Args:
        name: ``"local"``, ``"processes"`` or ``"ray"``.
        workers: how many; as many as there are cores by default.
        address: of a Ray cluster.
    """
    if name == "ray":
        return Ray(address, workers)
    if address is not None:
        raise InputError(f"An address belongs to the back end 'ray' (got one with {name!r}). Leave it out.")
    if name == "processes":
        return Processes(workers)
    if name != "local":
        raise InputError(f"There is no back end of that name (got {name!r}). Known: {', '.join(NAMES)}.")
    if checked_workers(workers) not in (None, 1):
        raise InputError(f"The back end 'local' has one worker (got workers={workers}). Try 'processes'.")
    return Local()


@contextmanager
def hired(backend: str | Backend, workers: int | None) -> Iterator[Backend]:
    """A back end that is closed in the end if it was only named, and stays the caller's if it was given."""
    if isinstance(backend, Backend):
        yield backend
    else:
        with make(backend, workers) as made:
            yield made
