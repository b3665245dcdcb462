"""Worker processes on this machine, one thread each.

Workers are forks where that is safe, else new processes (:mod:`nseg.backends.start`). They receive the function once
through shared memory, mapped copy-on-write, and end when this process ends, however it ends.

Where calls may be made anywhere, this process is one of the workers, and the others get their first item when they have
started. So workers never delay what is done before they are there, and a short map is done here alone, as it should be.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import subprocess
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import accumulate
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from nseg.backends.base import Backend, Item, Result, check_workers, usable_cores
from nseg.backends.local import Local
from nseg.backends.serialize import deserialize, serialize, serialize_with_buffers
from nseg.backends.start import ForkedProcess, can_fork, new_process
from nseg.backends.worker import call_and_serialize, deserialize_result, serialize_error
from nseg.errors import BackendError

MAX_DEATHS = 3
"""Number of workers that may die over one item before the map gives up."""

ALIGNMENT = 64  # bytes: a cache line
POLL_SECONDS = 0.05
STARTING = -1  # stands for the item of a worker that has not started yet

ALONE = "backend='processes' ran in this process alone, because that was faster: {}. The results are the same."

Finished = tuple[int, bytes]
"""Position of an item, and its serialized result."""


class Processes(Backend):
    """Calls the function in worker processes on this machine.

    Args:
        workers: number of processes; one per core that this process may use by default. If there are several and calls may
            be made anywhere, as in ``explain_many``, this process is one of them.
    """

    def __init__(self, workers: int | None = None) -> None:
        if not hasattr(socket, "send_fds"):
            raise BackendError(
                "Worker processes need a system on which processes can share open files, such as Linux or macOS (this one "
                "cannot). Use backend='local'."
            )
        self.workers = check_workers(workers) or usable_cores()
        self._apart = workers == 1  # one worker was asked for: it is not to be this process
        self._processes: list[_WorkerProcess] = []
        self._note: str | None = None

    def prepare(self, items: int) -> None:
        while can_fork() and len(self._processes) < self._others(items):
            self._processes.append(_WorkerProcess())

    def note(self) -> str | None:
        return self._note

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        self._note = None
        if not len(items):
            return
        waiting = deque(range(len(items)))
        if getattr(function, "anywhere", False) and not self._apart:
            yield from self._map_here_too(function, items, waiting)
            return
        with closing(self._map_there(_SharedFunction(function), items, waiting, self.workers)) as results:
            for number, content in results:
                yield number, deserialize_result(content)

    def _others(self, items: int) -> int:
        """Number of workers besides this process for so many calls that may be made anywhere."""
        return min(items, self.workers) - (not self._apart)

    def _map_here_too(
        self, function: Callable[[Item], Result], items: Sequence[Item], waiting: deque[int]
    ) -> Generator[tuple[int, Result], None, None]:
        """Call the function in this process and, as soon as they have started, in the other workers."""
        others, here, there = self._others(len(items)), 0, 0
        if not others:
            yield from Local().map(function, items)
            self._note = ALONE.format("there is one shard" if len(items) == 1 else "there is one worker")
            return
        while len(self._processes) < others:  # before there is a thread, so that they can be forks
            self._processes.append(_WorkerProcess())
        stop = threading.Event()
        with _in_background(self._map_there(_SharedFunction(function), items, waiting, others, stop), stop) as finished:
            while here + there < len(items):
                number = _next(waiting) if finished.empty() else None  # also one that a worker died over
                if number is not None:
                    yield number, function(items[number])
                    here += 1
                    continue
                if (result := _wait_for_result(finished)) is not None:
                    there += 1
                    yield result[0], deserialize_result(result[1])
        if not there:
            self._note = ALONE.format(f"its {len(items)} shards were done before another worker had started")

    def _map_there(
        self,
        shared: _SharedFunction,
        items: Sequence[Any],
        waiting: deque[int],
        workers: int,
        stop: threading.Event | None = None,
    ) -> Generator[Finished, None, None]:
        """Call the function in up to so many workers, until all items are done or somebody says stop."""
        deaths = Counter[int]()

        def start_calls() -> None:
            """Give an item to every idle worker."""
            for _ in range(min(len(waiting), workers - len(self._processes))):
                self._processes.append(_WorkerProcess())
            for worker in [worker for worker in self._processes if worker.item_number is None]:
                if (number := _next(waiting)) is not None:
                    worker.start_call(shared, number, items[number])

        try:
            while (waiting or any(worker.is_busy for worker in self._processes)) and not (stop and stop.is_set()):
                start_calls()
                for worker in self._wait_for_workers():
                    number, content = worker.receive()
                    if content is None:
                        self._processes.remove(worker)
                        deaths[number] += 1
                        if deaths[number] == MAX_DEATHS:
                            raise _too_many_deaths(number, worker.exit_code())
                        waiting.extendleft([number] if number != STARTING else [])
                    start_calls()  # before the yield, so that no worker idles while the caller handles the result
                    if content is not None and number != STARTING:
                        yield number, content
        finally:
            shared.file.close()
            for worker in [worker for worker in self._processes if worker.is_busy]:
                self._processes.remove(worker)
                worker.kill()

    def _wait_for_workers(self) -> list[_WorkerProcess]:
        """Wait a moment for workers that have started, sent a result or died, and return them."""
        expected = [worker for worker in self._processes if worker.item_number is not None]
        ready = wait([worker.connection for worker in expected], POLL_SECONDS)
        return [worker for worker in expected if worker.connection in ready]

    def close(self) -> None:
        while self._processes:
            self._processes.pop().kill()


def _next(waiting: deque[int]) -> int | None:
    """The next item, for one of several threads; None if there is none."""
    try:
        return waiting.popleft()
    except IndexError:
        return None


def _wait_for_result(finished: SimpleQueue[Finished | BaseException]) -> Finished | None:
    """What a thread gets within a moment; raises what it raised."""
    try:
        result = finished.get(timeout=POLL_SECONDS)
    except Empty:
        return None
    if isinstance(result, BaseException):
        raise result
    return result


@contextmanager
def _in_background(results: Iterable[Finished], stop: threading.Event) -> Iterator[SimpleQueue[Finished | BaseException]]:
    """Results as a thread gets them, or what it raises: workers get their next item while this process makes a call."""
    finished: SimpleQueue[Finished | BaseException] = SimpleQueue()

    def get_all() -> None:
        try:
            for result in results:
                finished.put(result)
        except BaseException as error:
            finished.put(error)

    thread = threading.Thread(target=get_all, daemon=True)
    thread.start()
    try:
        yield finished
    finally:
        stop.set()
        thread.join()


def _too_many_deaths(number: int, exit_code: int | None) -> BackendError:
    where = "at their start" if number == STARTING else f"at item {number}"
    return BackendError(
        f"Worker processes must stay alive (got {MAX_DEATHS} that died {where}, with exit code {exit_code}; a likely cause "
        "is too little memory). Use fewer workers or a smaller budget."
    )


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
        item_number: position of the item that it works on; None if idle, ``STARTING`` until it says that it has started.
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
        self.item_number: int | None = STARTING
        self.shared: _SharedFunction | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it works on an item."""
        return self.item_number not in (None, STARTING)

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
    with suppress(EOFError, OSError):
        _answer_calls(Connection(file_descriptor))


def _answer_calls(connection: Connection[Any, Any]) -> NoReturn:
    """Say that this process has started, then take functions and make calls."""
    function: Any = None
    load_error: Exception | None = None
    connection.send_bytes(b"started")
    while True:
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


def _serialize_load_error(error: Exception | None) -> bytes:
    return serialize_error(
        BackendError(
            f"A worker process must be able to load model and data (got {type(error).__name__}: {error}). "
            "Define the model in a module that can be imported."
        )
    )
