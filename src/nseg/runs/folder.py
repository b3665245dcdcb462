"""A run folder: shards that are complete or absent, and a manifest that says what they belong to.

::

    FOLDER/manifest.json                              model, data, settings and targets, as fingerprints
    FOLDER/explanations/NUMBER-CHECKSUM.parquet       the targets of each shard (:mod:`nseg.runs.parquet`)
    FOLDER/.lock                                      held by the process that writes

Nothing in the folder depends on time, order, or the number of restarts: a run that was killed and resumed leaves the
same bytes as an undisturbed one. A folder with a single file, ``explanations.parquet``, is read as well
(:func:`nseg.runs.parquet.write`); ``pandas.read_parquet``, DuckDB and Polars open both.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nseg.errors import InputError, NsegWarning, StoreError
from nseg.storage import files
from nseg.storage.hashing import hash_bytes


class RunFolder:
    """The shards of a run, while this process alone may write them.

    Args:
        folder: of the run.
        shards: number of shards in the finished run.
    """

    def __init__(self, folder: Path, shards: int) -> None:
        self.folder, self.shards = folder, shards

    def missing(self) -> list[int]:
        """Numbers of the shards that are absent; damaged ones are deleted with a warning."""
        present = {number for number, path in stored_shards(self.folder).items() if self._is_intact(path)}
        return [number for number in range(self.shards) if number not in present]

    def _is_intact(self, path: Path) -> bool:
        if read_if_intact(path) is not None:
            return True
        warnings.warn(f"{path.name} is damaged (its checksum differs) and is replaced.", NsegWarning, stacklevel=4)
        path.unlink()
        return False

    def store(self, number: int, content: bytes) -> None:
        """Store a shard."""
        files.write_bytes(self.folder / "explanations" / shard_name(number, content), content)


def shard_name(number: int, content: bytes) -> str:
    """File name of a shard, which holds its checksum."""
    return f"{number:06d}-{hash_bytes(content)[:32]}.parquet"


def stored_shards(folder: Path) -> dict[int, Path]:
    """The shards in a run folder by number, intact or not."""
    names = {path: path.stem.partition("-")[0] for path in (folder / "explanations").glob("*-*.parquet")}
    return {int(number): path for path, number in names.items() if number.isdecimal()}


def read_if_intact(path: Path) -> bytes | None:
    """The content of a shard if its checksum is right, else None."""
    try:
        content = path.read_bytes()
    except OSError:  # a medium that cannot be read
        return None
    return content if path.name == shard_name(int(path.stem.partition("-")[0]), content) else None


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder."""
    try:
        found = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        raise InputError(
            f"{folder} must hold manifest.json (it does not). Write it with explain_many(..., out=...)."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{folder / 'manifest.json'} must be JSON (got {type(error).__name__}), so the content of the folder is "
            "unknown. Choose another folder, or delete this one."
        ) from error
    if not isinstance(found, dict):
        raise StoreError(f"{folder / 'manifest.json'} must be a JSON object (got {type(found).__name__}).")
    return found


@contextmanager
def open_run(folder: str | Path, manifest: Mapping[str, Any], shards: int) -> Iterator[RunFolder]:
    """Begin or resume a run; waits for another process that writes to the folder.

    Args:
        folder: created if needed; refused if it holds anything else than this run.
        manifest: what the run depends on, as plain data.
        shards: number of shards.
    """
    root = files.prepare_folder(folder)
    _check_same_run(root, manifest)  # before anything is written to a folder that belongs to another run
    with _lock(root):
        _check_same_run(root, manifest)
        for leftover in (*root.glob(".manifest.json.*"), *(root / "explanations").glob(".*")):
            leftover.unlink()  # of a process that was killed while it wrote
        if not (root / "manifest.json").exists():
            files.write_json(root / "manifest.json", dict(manifest))
        files.prepare_folder(root / "explanations")
        yield RunFolder(root, shards)


def _check_same_run(root: Path, manifest: Mapping[str, Any]) -> None:
    """Raise unless a folder is empty or holds the run that the manifest describes."""
    if not (root / "manifest.json").exists():
        others = sorted(path.name for path in root.iterdir() if not path.name.startswith("."))
        if others:
            raise StoreError(
                f"{root} must be empty or hold a run of nseg (it holds {', '.join(others[:3])}, and no manifest.json). "
                "Choose another folder."
            )
        return
    found = differences(read_manifest(root), json.loads(files.json_text(dict(manifest))))
    if found:
        raise StoreError(
            f"{root} must be empty or hold the same run (it belongs to another: {'; '.join(found)}). Choose another "
            "folder, or use the model, data, settings and targets that the run was started with."
        )


def differences(stored: Mapping[str, Any], given: Mapping[str, Any], prefix: str = "") -> list[str]:
    """How two manifests differ, in words.

    >>> differences({"seed": 0, "data": {"nodes": 3}}, {"seed": 1, "data": {"nodes": 3}})
    ['seed is 0 there and 1 here']
    """
    found = []
    for name in sorted({*stored, *given}):
        a, b = stored.get(name), given.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{prefix}{name}.")
        elif a != b:
            found.append(f"{prefix}{name} is {_short(a)} there and {_short(b)} here")
    return found


def _short(value: Any) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}..."


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system releases when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:
        raise StoreError("Runs can be stored on systems with flock, such as Linux (this one has none).") from None
    try:
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise StoreError(f"{folder} must be writable (got: {error.strerror}). Choose another folder.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            warnings.warn(f"Another process writes to {folder}; waiting for it to finish.", NsegWarning, stacklevel=4)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
