"""How worker processes start: as a fork of this process where that is safe, else as a new process.

A fork has torch and PyG loaded already, a new process imports them for seconds. A fork is safe if no other thread can hold a
lock at that moment: on Linux, with one Python thread, no GPU in use, and no library that runs threads of its own. Torch's
idle OpenMP threads hold none, and a worker, like those of torch's ``DataLoader``, uses one thread and never misses them.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

THREADED = ("ray", "grpc", "jax", "tensorflow")
"""Modules that run threads of their own, which a fork would cut off in the middle of anything."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
POLL_SECONDS = 0.01


def can_fork() -> bool:
    """Whether workers may be forks of this process, and would start faster for it."""
    torch: Any = sys.modules.get("torch")
    return (
        sys.platform == "linux"
        and torch is not None
        and not torch.cuda.is_initialized()
        and threading.active_count() == 1
        and threading.current_thread() is threading.main_thread()
        and not any(name in sys.modules for name in THREADED)
    )


class ForkedProcess:
    """A fork of this process that runs a function and ends; a ``subprocess.Popen`` as far as it is used here.

    Args:
        run: what the fork does.
        file_descriptor: the only open file that it keeps, besides standard output and error.
    """

    def __init__(self, run: Callable[[int], None], file_descriptor: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()  # what is buffered would be written twice
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 counts idle OpenMP threads
            self.pid = os.fork()
        if self.pid == 0:
            _run_fork(run, file_descriptor)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody else has waited for it: its exit code is lost
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("fork", timeout or 0)
            time.sleep(POLL_SECONDS)
        return code

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _run_fork(run: Callable[[int], None], file_descriptor: int) -> None:
    """Run a function in the fork and end it, without the exit handlers and open files of the process that it was."""
    code = 1
    try:
        gc.freeze()  # so that no object of that process closes a file here by its number
        os.setsid()  # Ctrl-C goes to that process only, which then stops the workers
        # Sockets to other workers must not stay open here: a worker ends when the last copy of its socket is closed.
        os.closerange(3, file_descriptor)
        os.closerange(file_descriptor + 1, os.sysconf("SC_OPEN_MAX"))
        os.dup2(nothing := os.open(os.devnull, os.O_RDONLY), 0)
        os.close(nothing)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.update(ONE_THREAD)
        import torch

        torch.set_num_threads(1)
        with torch.inference_mode(False), torch.enable_grad():
            run(file_descriptor)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def new_process(code: str, file_descriptor: int) -> subprocess.Popen[bytes]:
    """A new Python process that runs some code, and keeps one open file."""
    path = os.pathsep.join(entry for entry in sys.path if entry) or "."
    return subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=[file_descriptor],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C goes to this process only, which then stops the workers
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
    )
