"""A Ray cluster: each call is a task, and the function is put into the object store once."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from nseg.backends.base import Backend, Item, Result, check_workers
from nseg.backends.serialize import deserialize, serialize_with_buffers
from nseg.backends.worker import call_and_serialize, deserialize_result
from nseg.errors import BackendError

CONNECT_TIMEOUT = 5  # seconds
INSTALL_HINT = 'backend="ray" needs Ray (it is not installed). Install it: pip install "nseg[ray]".'


class Ray(Backend):
    """Calls the function in tasks of a Ray cluster.

    Every node needs nseg and the module that defines the model, installed or on a shared disk. Ray repeats a task whose
    worker or node dies, on another node if necessary.

    Args:
        address: address of the cluster, as for ``ray.init``. By default the cluster that this process is connected to or
            that ``RAY_ADDRESS`` names, else a new cluster on this machine that ends when the backend is closed.
        workers: number of tasks in progress at once; one per core (or GPU) of the cluster by default.
        gpus: GPUs per task; the function's ``gpus`` by default.
    """

    def __init__(self, address: str | None = None, workers: int | None = None, gpus: float | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise BackendError(INSTALL_HINT) from None
        self.ray: Any = ray
        self.workers, self.gpus = check_workers(workers), gpus
        self.connected_here = not ray.is_initialized()
        if self.connected_here:
            try:
                address = address or os.environ.get("RAY_ADDRESS")
                _check_reachable(address)
                own = {} if address else {"include_dashboard": False}
                ray.init(address, log_to_driver=False, logging_level="error", **own)
            except Exception as error:
                raise BackendError(
                    f"The Ray cluster must be reachable (got {type(error).__name__}: {error}). Check address and "
                    "RAY_AUTH_MODE, or leave address out to start a cluster on this machine."
                ) from error

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        ray, gpus = self.ray, self.gpus if self.gpus is not None else getattr(function, "gpus", 0)
        pickled, buffers = serialize_with_buffers(function)
        arrays = [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
        stored, cache_key = ray.put((pickled, arrays, sys.path)), uuid.uuid4().hex
        task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=-1)(_run_task)
        waiting, in_progress = iter(range(len(items))), dict[Any, int]()
        limit = self.workers or max(1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 1) / (gpus or 1)))

        def start_tasks() -> None:
            while len(in_progress) < limit and (number := next(waiting, None)) is not None:
                # the reference is passed in a list, so that Ray does not load the function for every task
                in_progress[task.remote(cache_key, [stored], items[number])] = number

        try:
            start_tasks()
            while in_progress:
                (done,), _ = ray.wait(list(in_progress), num_returns=1)
                number, content = in_progress.pop(done), self._fetch(done)
                start_tasks()
                yield number, deserialize_result(content)
        finally:
            for one in in_progress:
                ray.cancel(one, force=True)

    def _fetch(self, done: Any) -> bytes:
        """The bytes that a finished task returned."""
        try:
            content: bytes = self.ray.get(done)
            return content
        except Exception as error:
            raise BackendError(
                f"The Ray cluster must finish its tasks (got {type(error).__name__}: {error}). Check that all nodes have "
                "nseg installed and enough memory. Results that are already stored are kept."
            ) from error

    def close(self) -> None:
        if self.connected_here and self.ray.is_initialized():
            self.ray.shutdown()


def _check_reachable(address: str | None) -> None:
    """Raise at once if nothing listens at HOST:PORT; Ray itself would retry for minutes."""
    host, _, port = (address or "").rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT).close()


_function_cache: dict[str, Any] = {}  # in a process of the cluster: the function of the current map


def _run_task(cache_key: str, stored: list[Any], item: Any) -> bytes:
    """One call, in a process of the cluster, which fetches and loads the function once."""
    import ray

    if cache_key not in _function_cache:
        _function_cache.clear()
        pickled, arrays, path = ray.get(stored[0])
        sys.path += [entry for entry in path if entry not in sys.path and os.path.isdir(entry)]  # nodes that share a disk
        _function_cache[cache_key] = deserialize(pickled, [one.copy() for one in arrays])  # Ray's own memory is read-only
    return call_and_serialize(_function_cache[cache_key], item)
