"""Locks on files, which the system releases when the process ends, however it ends."""

from __future__ import annotations

from typing import IO, Any

from nseg.errors import StoreError


def lock_file(file: IO[Any], wait: bool) -> bool:
    """Lock an open file against other processes until it is closed; returns whether that succeeded.

    Args:
        file: the open file.
        wait: wait for another process that has the lock, instead of returning False.
    """
    try:
        import fcntl  # does not exist on Windows
    except ImportError:
        raise StoreError(
            "The system must be able to lock files, as Linux and macOS do (this one has no fcntl). Leave out=... out and "
            "keep the explanations in memory, or use Linux, macOS or WSL."
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:  # some network file systems have no locks
        raise StoreError(
            f"{file.name} must be on a file system with locks (got: {error.strerror or error}). Choose another folder."
        ) from error
    return True
