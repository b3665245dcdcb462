"""Folders, atomic file writes and JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nseg.errors import InputError, StoreError


def cache_folder() -> Path:
    """The folder for datasets and what is compiled: NSEG_CACHE, else ~/.cache/nseg."""
    return Path(os.environ.get("NSEG_CACHE") or Path.home() / ".cache" / "nseg")


def prepare_folder(folder: str | Path) -> Path:
    """Create a folder to write into, if it does not exist."""
    if not isinstance(folder, str | Path) or not str(folder):
        raise InputError(f"The output must be the name of a folder (got {folder!r}).")
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The output must be a folder that can be created (got {folder}: {error.strerror}). Choose another folder."
        ) from error
    return path


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Replace a file atomically: readers see the old content or the new, even after a power failure.

    Args:
        path: the file.
        write: writes the new content to the temporary path that it is given.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} could not be written (got: {error.strerror or error}). Free some space or check the disk, then start "
            "again; everything stored so far is intact."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, have reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_bytes(path: Path) -> bytes:
    """The content of a file. One that cannot be read may be intact: nothing is concluded from that."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{path} could not be read (got: {error.strerror or error}). Nothing was changed. Close other programs or check "
            "the disk, then try again."
        ) from error


def list_files(folder: Path, pattern: str) -> list[Path]:
    """The files in a folder whose names match a pattern, sorted; none if there is no such folder."""
    try:
        return sorted(folder.glob(pattern))
    except OSError as error:
        raise StoreError(
            f"{folder} could not be read (got: {error.strerror or error}). Nothing was changed. Close other programs or "
            "check the disk, then try again."
        ) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    replace_file(path, lambda temporary: temporary.write_bytes(content))


def write_text(path: Path, content: str) -> None:
    """Write a UTF-8 text file atomically."""
    replace_file(path, lambda temporary: temporary.write_text(content, encoding="utf-8"))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain data as JSON, atomically; NaN and infinity become null."""
    write_text(path, json_text(content))


def json_text(content: dict[str, Any]) -> str:
    """Plain data as JSON text; NaN and infinity become null."""
    return json.dumps(_nan_to_none(content), indent=1, sort_keys=True, allow_nan=False) + "\n"


def _nan_to_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _nan_to_none(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_nan_to_none(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
