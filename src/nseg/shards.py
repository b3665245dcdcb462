"""A long run in a folder: shards that are whole or not there, and a manifest that says what they belong to.

::

    FOLDER/manifest.json                              model, data, settings and targets, as fingerprints
    FOLDER/explanations/NUMBER-CHECKSUM.parquet       the targets of each shard (:mod:`nseg.store`)
    FOLDER/.lock                                      held by the run that writes

Nothing in the folder depends on time, order, or how often the run was started: a run that was killed and resumed leaves
the same bytes as one that was not.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nseg import store
from nseg.errors import NsegWarning, StoreError


class Shards:
    """The shards of a run, while this process alone may write them.

    Args:
        folder: of the run.
        number: how many shards there will be.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number

    def missing(self) -> list[int]:
        """The numbers of the shards that are not there; damaged ones are taken away, with a warning."""
        there = {number for number, path in store.stored_shards(self.folder).items() if self._good(path)}
        return [number for number in range(self.number) if number not in there]

    def _good(self, path: Path) -> bool:
        if store.intact(path) is not None:
            return True
        warnings.warn(f"{path.name} is damaged (its checksum is another) and is done again.", NsegWarning, stacklevel=4)
        path.unlink()
        return False

    def put(self, number: int, content: bytes) -> None:
        """Store a shard."""
        path = self.folder / "explanations" / store.shard_name(number, content)
        store.replace_file(path, lambda place: place.write_bytes(content))


def read(folder: str | Path) -> store.Explanations:
    """The explanations in a folder, in the order of the targets, read when they are asked for, without their graphs.

    Args:
        folder: written by ``explain_many(..., out=folder)``, by ``nseg explain --out`` or by :func:`nseg.store.write`.
    """
    return store.Explanations(folder)


@contextmanager
def opened(folder: str | Path, manifest: Mapping[str, Any], number: int) -> Iterator[Shards]:
    """The shards of a run that is begun or resumed; another process that writes here is waited for.

    Args:
        folder: made if need be; refused if it holds anything else than this run.
        manifest: what the run is, as plain data.
        number: how many shards it has.
    """
    root = store.prepared(folder)
    _check(root, manifest)  # before anything is written to a folder that is somebody else's
    with _alone(root):
        _check(root, manifest)
        for leftover in (*root.glob(".manifest.json.*"), *(root / "explanations").glob(".*")):
            leftover.unlink()  # of a process that was killed while it wrote
        if not (root / "manifest.json").exists():
            store.write_json(root / "manifest.json", dict(manifest))
        store.prepared(root / "explanations")
        yield Shards(root, number)


def _check(root: Path, manifest: Mapping[str, Any]) -> None:
    """Raise unless a folder is empty or holds the run that the manifest describes."""
    if not (root / "manifest.json").exists():
        others = sorted(path.name for path in root.iterdir() if not path.name.startswith("."))
        if others:
            raise StoreError(
                f"{root} must be empty or hold a run of nseg (it holds {', '.join(others[:3])}, and no manifest.json). "
                "Give another folder."
            )
        return
    found = differences(store.read_manifest(root), json.loads(store.json_text(dict(manifest))))
    if found:
        raise StoreError(
            f"{root} must hold the same run, or nothing (it belongs to another: {'; '.join(found)}). Give another "
            "folder, or the model, data, settings and targets that it was begun with."
        )


def differences(there: Mapping[str, Any], here: Mapping[str, Any], place: str = "") -> list[str]:
    """How two manifests differ, in words.

    >>> differences({"seed": 0, "data": {"nodes": 3}}, {"seed": 1, "data": {"nodes": 3}})
    ['seed is 0 there and 1 here']
    """
    found = []
    for name in sorted({*there, *here}):
        a, b = there.get(name), here.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found += differences(a, b, f"{place}{name}.")
        elif a != b:
            found.append(f"{place}{name} is {_short(a)} there and {_short(b)} here")
    return found


def _short(value: Any) -> str:
    text = "missing" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}..."


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system frees when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:
        raise StoreError("Runs are stored on systems that lock files by flock (got one that does not). Use Linux.") from None
    try:
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise StoreError(f"{folder} must be writable (got: {error.strerror}). Give another folder.") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            warnings.warn(f"Another process writes to {folder}; waiting until it ends.", NsegWarning, stacklevel=4)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
