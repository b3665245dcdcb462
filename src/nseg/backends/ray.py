"""A Ray cluster: shards are tasks, the function is put into its object store once."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from nseg.backends.base import Backend, Item, Result, checked_workers
from nseg.backends.parcel import packed, unpacked
from nseg.backends.worker import outcome, result
from nseg.errors import BackendError

PATIENCE = 5  # seconds
HINT = 'backend="ray" needs Ray (it is not installed). Install it: pip install "nseg[ray]".'


class Ray(Backend):
    """Calls the function as tasks of a Ray cluster, whose nodes have nseg and the module of the model, or see the same disk.

    A task whose worker or node dies is run again by Ray, elsewhere if need be.

    Args:
        address: of the cluster, as ``ray.init`` takes it. By default the one that this process is connected to or that
            ``RAY_ADDRESS`` names, else a new one on this machine for as long as the back end is open.
        workers: tasks under way at once; as many as the cluster has cores (or GPUs) by default.
        gpus: that each task asks for; what the function says by default.
    """

    def __init__(self, address: str | None = None, workers: int | None = None, gpus: float | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise BackendError(HINT) from None
        self.ray: Any = ray
        self.workers, self.gpus = checked_workers(workers), gpus
        self.ours = not ray.is_initialized()
        if self.ours:
            try:
                address = address or os.environ.get("RAY_ADDRESS")
                _knock(address)
                own = {} if address else {"include_dashboard": False}
                ray.init(address, log_to_driver=False, logging_level="error", **own)
            except Exception as error:
                raise BackendError(
                    f"The Ray cluster must be reachable (got {type(error).__name__}: {error}). Check address and "
                    "RAY_AUTH_MODE, or leave address out for a cluster on this machine."
                ) from error

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        ray, gpus = self.ray, self.gpus if self.gpus is not None else getattr(function, "gpus", 0)
        head, apart = packed(function)
        arrays = [np.frombuffer(one.raw(), np.uint8) for one in apart]
        parcel, key = ray.put((head, arrays, sys.path)), uuid.uuid4().hex
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=-1)(_task)
        waiting, under_way = iter(range(len(items))), dict[Any, int]()
        most = self.workers or max(1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1) / (gpus or 1)))

        def employ() -> None:
            while len(under_way) < most and (number := next(waiting, None)) is not None:
                under_way[task.remote(key, [parcel], items[number])] = number

        try:
            employ()
            while under_way:
                (done,), _ = ray.wait(list(under_way), num_returns=1)
                number, sent = under_way.pop(done), self._sent(done)
                employ()
                yield number, result(sent)
        finally:
            for one in under_way:
                ray.cancel(one, force=True)

    def _sent(self, done: Any) -> bytes:
        try:
            sent: bytes = self.ray.get(done)
            return sent
        except Exception as error:
            raise BackendError(
                f"The Ray cluster must finish its tasks (got {type(error).__name__}: {error}). Check that its nodes have "
                "nseg installed and enough memory; what is stored is kept."
            ) from error

    def close(self) -> None:
        if self.ours and self.ray.is_initialized():
            self.ray.shutdown()


def _knock(address: str | None) -> None:
    """Raise if nobody answers at HOST:PORT; Ray itself tries for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


_functions: dict[str, Any] = {}


def _task(key: str, parcel: list[Any], item: Any) -> bytes:
    """One call, in a process of the cluster; the function is fetched and opened once per process."""
    import ray

    if key not in _functions:
        _functions.clear()
        head, apart, path = ray.get(parcel[0])
        sys.path += [one for one in path if one not in sys.path and os.path.isdir(one)]  # on nodes that share the disk
        _functions[key] = unpacked(head, [one.copy() for one in apart])  # the store's own memory cannot be written to
    return outcome(_functions[key], item)
