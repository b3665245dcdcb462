"""Worker processes on this machine, one thread each.

Workers are forks where that is safe, else new processes (:mod:`nseg.backends.start`). They receive the function once
through shared memory, mapped copy-on-write, and end when this process ends, however it ends.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import subprocess
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any

from nseg.backends.base import Backend, Item, Result, check_workers, usable_cores
from nseg.backends.serialize import deserialize, serialize, serialize_with_buffers
from nseg.backends.start import ForkedProcess, can_fork, new_process
from nseg.backends.worker import call_and_serialize, deserialize_result, serialize_error
from nseg.errors import BackendError

MAX_DEATHS = 3
"""Number of workers that may die over one item before the map gives up."""

ALIGNMENT = 64  # bytes: a cache line


class Processes(Backend):
    """Calls the function in worker processes on this machine.

    Args:
        workers: number of processes; one per core that this process may use by default.
    """

    def __init__(self, workers: int | None = None) -> None:
        if not hasattr(socket, "send_fds"):
            raise BackendError(
                "Worker processes need a system on which processes can share open files, such as Linux or macOS (this one "
                "cannot). Use backend='local'."
            )
        self.workers = check_workers(workers) or usable_cores()
        self._processes: list[_WorkerProcess] = []

    def prepare(self, items: int) -> None:
        while can_fork() and len(self._processes) < min(items, self.workers):
            self._processes.append(_WorkerProcess())

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        if not len(items):
            return
        waiting, deaths, shared = deque(range(len(items))), Counter[int](), _SharedFunction(function)

        def start_calls() -> None:
            """Give an item to every idle worker."""
            while waiting and (worker := self._idle_worker()) is not None:
                worker.start_call(shared, waiting[0], items[waiting[0]])
                waiting.popleft()

        try:
            while waiting or any(worker.is_busy for worker in self._processes):
                start_calls()
                for worker in self._wait_for_workers():
                    number, content = worker.receive()
                    if content is None:
                        self._processes.remove(worker)
                        deaths[number] += 1
                        if deaths[number] == MAX_DEATHS:
                            raise BackendError(
                                f"Worker processes must stay alive (got {MAX_DEATHS} that died at item {number}, with exit "
                                f"code {worker.exit_code()}; a likely cause is too little memory). Use fewer workers or a "
                                "smaller budget."
                            )
                        waiting.appendleft(number)
                    start_calls()  # before the yield, so that no worker idles while the caller handles the result
                    if content is not None:
                        yield number, deserialize_result(content)
        finally:
            shared.file.close()
            for worker in [worker for worker in self._processes if worker.is_busy]:
                self._processes.remove(worker)
                worker.kill()

    def _idle_worker(self) -> _WorkerProcess | None:
        """A worker without an item, started if there are fewer than ``workers``; None if all are busy."""
        idle = next((worker for worker in self._processes if not worker.is_busy), None)
        if idle is None and len(self._processes) < self.workers:
            idle = _WorkerProcess()
            self._processes.append(idle)
        return idle

    def _wait_for_workers(self) -> list[_WorkerProcess]:
        """Wait until at least one busy worker has sent a result or died, and return all such workers."""
        busy = [worker for worker in self._processes if worker.is_busy]
        ready = wait([worker.connection for worker in busy])
        return [worker for worker in busy if worker.connection in ready]

    def close(self) -> None:
        while self._processes:
            self._processes.pop().kill()


class _SharedFunction:
    """A serialized function whose large arrays are in shared memory.

    The file has no name, so the system frees the memory as soon as no process has it open.
    """

    def __init__(self, function: Any) -> None:
        self.pickled, buffers = serialize_with_buffers(function)
        self.sizes = [buffer.raw().nbytes for buffer in buffers]
        folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed when the map ends
        for buffer, offset in zip(buffers, _aligned_offsets(self.sizes), strict=False):
            self.file.seek(offset)
            self.file.write(buffer.raw())
        self.file.truncate(_aligned_offsets(self.sizes)[-1])
        self.file.flush()


def _aligned_offsets(sizes: Sequence[int]) -> list[int]:
    """Offsets of arrays of these sizes in one block of memory, each aligned to a cache line, and the end of the block.

    >>> _aligned_offsets([100, 64])
    [0, 128, 192]
    """
    return [0, *accumulate(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)]


def _load_shared_function(pickled: bytes, sizes: list[int], file_descriptor: int) -> Any:
    """The function of a ``_SharedFunction``; writing to its arrays changes only this process's copy."""
    if not sizes:
        return deserialize(pickled, [])
    offsets = _aligned_offsets(sizes)
    memory = memoryview(mmap.mmap(file_descriptor, offsets[-1], access=mmap.ACCESS_COPY))
    return deserialize(pickled, [memory[offset : offset + size] for offset, size in zip(offsets, sizes, strict=False)])


class _WorkerProcess:
    """A worker process, as the driver sees it.

    Attributes:
        item_number: position of the item that it works on; None if idle.
        shared: the function that it received last.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.process: ForkedProcess | subprocess.Popen[bytes]
        with theirs:
            if can_fork():
                self.process = ForkedProcess(run_worker, theirs.fileno())
            else:
                code = f"from nseg.backends.processes import run_worker; run_worker({theirs.fileno()})"
                self.process = new_process(code, theirs.fileno())
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        self.item_number: int | None = None
        self.shared: _SharedFunction | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it works on an item."""
        return self.item_number is not None

    def start_call(self, shared: _SharedFunction, item_number: int, item: Any) -> None:
        """Send an item, and first the function if the worker does not have it yet."""
        self.item_number = item_number
        try:
            if self.shared is not shared:
                self.connection.send_bytes(serialize(("function", (shared.pickled, shared.sizes))))
                reduction.send_handle(self.connection, shared.file.fileno(), self.process.pid)
                self.shared = shared
            self.connection.send_bytes(serialize(("item", item)))
        except (OSError, RuntimeError):  # on macOS, send_handle raises RuntimeError if nobody acknowledges the handle
            pass  # the worker is dead: receive() will notice

    def receive(self) -> tuple[int, bytes | None]:
        """The number of its item and the serialized result; None instead of a result if the worker died."""
        assert self.item_number is not None
        item_number, self.item_number = self.item_number, None
        try:
            return item_number, self.connection.recv_bytes()
        except (EOFError, OSError):
            self.kill()
            return item_number, None

    def exit_code(self) -> int | None:
        """Exit code of the process; None if it is still running."""
        return self.process.poll()

    def kill(self) -> None:
        """Kill the process, also in the middle of a call."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def run_worker(file_descriptor: int) -> None:
    """Main loop of a worker process, until the driver closes the connection."""
    connection: Connection[Any, Any] = Connection(file_descriptor)
    function: Any = None
    load_error: Exception | None = None
    while True:
        try:
            kind, content = pickle.loads(connection.recv_bytes())
            if kind == "item":
                loaded = load_error is None
                connection.send_bytes(call_and_serialize(function, content) if loaded else _serialize_load_error(load_error))
                continue
            handle = reduction.recv_handle(connection)
            try:
                function, load_error = _load_shared_function(content[0], content[1], handle), None
            except Exception as error:
                function, load_error = None, error
            os.close(handle)
        except (EOFError, OSError):
            return


def _serialize_load_error(error: Exception | None) -> bytes:
    return serialize_error(
        BackendError(
            f"A worker process must be able to load model and data (got {type(error).__name__}: {error}). "
            "Define the model in a module that can be imported."
        )
    )
