"""Processes of this machine, one thread each.

They are started afresh (not forked, which breaks libraries with threads), get the function once through shared memory, of
which each writes only to its own copy, and end when this process does, however it does.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from itertools import accumulate
from multiprocessing import reduction
from multiprocessing.connection import Connection, wait
from typing import Any

from nseg.backends.base import Backend, Item, Result, checked_workers
from nseg.backends.parcel import dumps, packed, unpacked
from nseg.backends.worker import failure, outcome, result
from nseg.errors import BackendError

DEATHS = 3
"""How many workers an item may cost before it is given up."""

ALIGNED = 64  # bytes
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


class Processes(Backend):
    """Calls the function in processes of this machine.

    Args:
        workers: how many; as many as there are cores for this process by default.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = checked_workers(workers) or len(os.sched_getaffinity(0))
        self._crew: list[_Worker] = []

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[int, Result], None, None]:
        if not len(items):
            return
        waiting, deaths, parcel = deque(range(len(items))), Counter[int](), _Parcel(function)

        def employ() -> None:
            """Give something to do to all who have nothing."""
            while waiting and (worker := self._idle()) is not None:
                worker.begin(parcel, waiting[0], items[waiting[0]])
                waiting.popleft()

        try:
            while waiting or any(one.number is not None for one in self._crew):
                employ()
                for worker in self._finished():
                    number, sent = worker.result()
                    if sent is None:
                        self._crew.remove(worker)
                        deaths[number] += 1
                        if deaths[number] == DEATHS:
                            raise BackendError(
                                f"Worker processes must live (got {DEATHS} that died over item {number}, as for want of "
                                f"memory; exit code {worker.code()}). Use fewer workers or a smaller budget."
                            )
                        waiting.appendleft(number)
                    employ()
                    if sent is not None:
                        yield number, result(sent)
        finally:
            parcel.file.close()
            for worker in [one for one in self._crew if one.number is not None]:
                self._crew.remove(worker)
                worker.end()

    def _idle(self) -> _Worker | None:
        """A worker that has nothing to do, if there can be one."""
        idle = next((one for one in self._crew if one.number is None), None)
        if idle is None and len(self._crew) < self.workers:
            idle = _Worker()
            self._crew.append(idle)
        return idle

    def _finished(self) -> list[_Worker]:
        """Those who have something to say; waits until there is one."""
        busy = [one for one in self._crew if one.number is not None]
        ready = wait([one.connection for one in busy])
        return [one for one in busy if one.connection in ready]

    def close(self) -> None:
        while self._crew:
            self._crew.pop().end()


class _Parcel:
    """A function in shared memory that is gone when nobody has it open any more."""

    def __init__(self, function: Any) -> None:
        self.head, apart = packed(function)
        self.sizes = [one.raw().nbytes for one in apart]
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.file = tempfile.TemporaryFile(dir=shared)  # noqa: SIM115 - closed when the map ends
        for one, begin in zip(apart, _begins(self.sizes), strict=False):
            self.file.seek(begin)
            self.file.write(one.raw())
        self.file.truncate(_begins(self.sizes)[-1])
        self.file.flush()


def _begins(sizes: Sequence[int]) -> list[int]:
    """Where arrays of these sizes begin in memory, each at a multiple of what processors read at once, and the end.

    >>> _begins([100, 64])
    [0, 128, 192]
    """
    return [0, *accumulate(-(-size // ALIGNED) * ALIGNED for size in sizes)]


def _from_memory(head: bytes, sizes: list[int], place: int) -> Any:
    """The function of a parcel; what it writes to its arrays stays here."""
    if not sizes:
        return unpacked(head, [])
    begins = _begins(sizes)
    memory = memoryview(mmap.mmap(place, begins[-1], access=mmap.ACCESS_COPY))
    return unpacked(head, [memory[begin : begin + size] for begin, size in zip(begins, sizes, strict=False)])


class _Worker:
    """A process, seen from here.

    Attributes:
        number: of the item that it works on.
        parcel: what it was sent last.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(one for one in sys.path if one) or "."
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from nseg.backends.processes import serve; serve({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process to see, which then ends the others
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
            )
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        self.number: int | None = None
        self.parcel: _Parcel | None = None

    def begin(self, parcel: _Parcel, number: int, item: Any) -> None:
        """Let it work on an item; that it is dead is noticed when its result is asked for."""
        self.number = number
        try:
            if self.parcel is not parcel:
                self.connection.send_bytes(dumps(("function", (parcel.head, parcel.sizes))))
                reduction.send_handle(self.connection, parcel.file.fileno(), self.process.pid)
                self.parcel = parcel
            self.connection.send_bytes(dumps(("item", item)))
        except OSError:
            pass

    def result(self) -> tuple[int, bytes | None]:
        """The number of the item that it worked on, and what came of it; None if it died."""
        assert self.number is not None
        number, self.number = self.number, None
        try:
            return number, self.connection.recv_bytes()
        except (EOFError, OSError):
            self.end()
            return number, None

    def code(self) -> int | None:
        """How the process ended."""
        return self.process.poll()

    def end(self) -> None:
        """End the process, whatever it does."""
        self.connection.close()
        self.process.kill()
        self.process.wait()


def serve(place: int) -> None:
    """The life of a worker process, until the other end of its connection is closed."""
    connection: Connection[Any, Any] = Connection(place)
    function: Any = None
    problem: Exception | None = None
    while True:
        try:
            what, content = pickle.loads(connection.recv_bytes())
            if what == "item":
                connection.send_bytes(outcome(function, content) if problem is None else _unopened(problem))
                continue
            handle = reduction.recv_handle(connection)
            try:
                function, problem = _from_memory(content[0], content[1], handle), None
            except Exception as error:
                function, problem = None, error
            os.close(handle)
        except (EOFError, OSError):
            return


def _unopened(problem: Exception) -> bytes:
    return failure(
        BackendError(
            f"Model and data must be such that a worker process can open them (got {type(problem).__name__}: {problem}). "
            "Define the model in a module that can be imported."
        )
    )
