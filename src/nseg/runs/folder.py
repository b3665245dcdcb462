"""A run folder: shards that are complete or absent, and a manifest that says what they belong to.

::

    FOLDER/manifest.json                              model, data, settings and targets, as fingerprints
    FOLDER/explanations/NUMBER-CHECKSUM.parquet       the targets of each shard (:mod:`nseg.runs.parquet`)
    FOLDER/names.json                                 names of nodes, features, classes, if there are any (:mod:`nseg.names`)
    FOLDER/.lock                                      held by the process that writes
    FOLDER/.plain                                     there if shortcuts were shown to be wrong for the model

Nothing in the folder depends on time, order, or the number of restarts: a run that was killed and resumed leaves the
same bytes as an undisturbed one. A folder with a single file, ``explanations.parquet``, is read as well
(:func:`nseg.runs.parquet.write`); ``pandas.read_parquet``, DuckDB and Polars open both.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nseg.errors import InputError, NsegWarning, StoreError
from nseg.names import NamedData, from_run, to_run
from nseg.runs.fingerprint import UNKNOWN
from nseg.runs.parquet import count_failed
from nseg.storage import files
from nseg.storage.hashing import hash_bytes
from nseg.storage.locks import lock_file

NAMES = "names.json"


class RunFolder:
    """The shards of a run, while this process alone may write them.

    Args:
        folder: of the run.
        shards: number of shards in the finished run.

    Attributes:
        retried: stored shards that :meth:`missing` also lists, with the number of their targets that were not explained.
    """

    def __init__(self, folder: Path, shards: int) -> None:
        self.folder, self.shards = folder, shards
        self.retried: dict[int, int] = {}

    def missing(self, retry: bool = False) -> list[int]:
        """Numbers of the shards that are absent; damaged ones are deleted with a warning.

        Args:
            retry: also list shards with targets that could not be explained, because the cause may be gone.
        """
        failed = {number: self._count_failed(path, retry) for number, path in stored_shards(self.folder).items()}
        self.retried = {number: count for number, count in failed.items() if count}
        return [number for number in range(self.shards) if failed.get(number) != 0]

    def _count_failed(self, path: Path, retry: bool) -> int | None:
        """Number of targets in a shard to try again; None if the shard is damaged."""
        content = read_if_intact(path)
        if content is None:
            warnings.warn(f"{path.name} is damaged (its checksum differs) and is replaced.", NsegWarning, stacklevel=5)
            path.unlink()
            return None
        return count_failed(content, path.name) if retry else 0

    @property
    def plain(self) -> bool:
        """Whether shards must be explained without shortcuts, because these were shown to be wrong."""
        return (self.folder / ".plain").exists()

    def distrust(self, trusted: Collection[int]) -> None:
        """Delete all shards but the trusted ones; from now on shards must be explained without shortcuts."""
        for number, path in stored_shards(self.folder).items():
            if number not in trusted:
                path.unlink()
        (self.folder / ".plain").touch()  # last: a crash before it only repeats work

    def write_names(self, names: NamedData, outputs: Sequence[int]) -> None:
        """Write the names of the explained graphs; they change no result, so a resumed run may bring others."""
        plain = to_run(names, outputs)
        if plain:
            files.write_json(self.folder / NAMES, plain)

    def store(self, number: int, content: bytes, failed: int = 0, trusted: bool = True) -> int:
        """Store a shard, unless one is stored that explains more of its targets.

        Args:
            number: of the shard.
            content: of the file.
            failed: number of its targets that could not be explained.
            trusted: whether a shard that is stored already may be kept.

        Returns:
            the number of targets without an explanation in the shard that is now stored.
        """
        if trusted and self.retried.get(number, failed) < failed:
            return self.retried[number]
        name = shard_name(number, content)
        files.write_bytes(self.folder / "explanations" / name, content)
        if number in self.retried:  # only now: whatever happens, one of the two is there
            for path in _files_by_number(self.folder)[number]:
                if path.name != name:
                    path.unlink()
        return failed


def shard_name(number: int, content: bytes) -> str:
    """File name of a shard, which holds its checksum."""
    return f"{number:06d}-{hash_bytes(content)[:32]}.parquet"


def stored_shards(folder: Path) -> dict[int, Path]:
    """The shards in a run folder by number, intact or not."""
    return {number: paths[-1] for number, paths in _files_by_number(folder).items()}


def _files_by_number(folder: Path) -> dict[int, list[Path]]:
    """The files of each shard: one, or two if a process was killed while it replaced one by the other."""
    found: dict[int, list[Path]] = {}
    for path in files.list_files(folder / "explanations", "*-*.parquet"):
        number = path.stem.partition("-")[0]
        if number.isdecimal():
            found.setdefault(int(number), []).append(path)
    return found


def read_if_intact(path: Path) -> bytes | None:
    """The content of a shard if its checksum is right, else None; raises if the file cannot be read now."""
    content = files.read_bytes(path)
    return content if path.name == shard_name(int(path.stem.partition("-")[0]), content) else None


def _keep_best(folder: Path) -> None:
    """Of two files of one shard, keep the one that explains more targets."""
    for paths in _files_by_number(folder).values():
        if len(paths) > 1:
            contents = {path: read_if_intact(path) for path in paths}
            failed = {path: math.inf if found is None else count_failed(found) for path, found in contents.items()}
            for path in sorted(paths, key=lambda path: failed[path])[1:]:
                path.unlink()


def read_names(folder: Path) -> dict[str, Any]:
    """The names in a run folder as :func:`nseg.names.to_run` wrote them; empty if there are none."""
    if not (folder / NAMES).exists():
        return {}
    try:
        found = json.loads(files.read_bytes(folder / NAMES))
        for number in found.get("graphs", {"0": {}}):
            from_run(found, int(number))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(
            f"{folder / NAMES} must hold names that nseg wrote (got {type(error).__name__}). Delete it: explanations are "
            "then shown with numbers."
        ) from error
    return dict(found)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run folder."""
    try:
        found = json.loads(files.read_bytes(folder / "manifest.json"))
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise InputError(
            f"{folder} must hold manifest.json (it does not). Write it with explain_many(..., out=...)."
        ) from None
    except (ValueError, RecursionError) as error:
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
        for leftover in (*root.glob(".manifest.json.*"), *root.glob(f".{NAMES}.*"), *(root / "explanations").glob(".*")):
            leftover.unlink()  # of a process that was killed while it wrote
        if not (root / "manifest.json").exists():
            files.write_json(root / "manifest.json", dict(manifest))
        _keep_best(files.prepare_folder(root / "explanations").parent)
        yield RunFolder(root, shards)


def _check_same_run(root: Path, manifest: Mapping[str, Any]) -> None:
    """Raise unless a folder is empty or holds the run that the manifest describes."""
    # listed before the manifest is looked for: another process may write it in between
    others = sorted(path.name for path in root.iterdir() if not path.name.startswith("."))
    if not (root / "manifest.json").exists():
        if others:
            raise StoreError(
                f"{root} must be empty or hold a run of nseg (it holds {', '.join(others[:3])}, and no manifest.json). "
                "Choose another folder."
            )
        return
    unknown = list(_find_unknown(manifest))
    if unknown:
        raise StoreError(
            f"A run can only be resumed if its model, data and settings can be compared (got {'; '.join(unknown)}). Choose "
            "another folder, read the stored explanations with nseg.read, or remove that attribute."
        )
    found = differences(read_manifest(root), json.loads(files.json_text(dict(manifest))))
    if found:
        raise StoreError(
            f"{root} must be empty or hold the same run (it belongs to another: {'; '.join(found)}). Choose another "
            "folder, or use the model, data, settings and targets that the run was started with."
        )


def _find_unknown(manifest: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """What of a run could not be hashed, by name, with the reason."""
    for name, value in manifest.items():
        if name == UNKNOWN:
            yield from (f"{prefix}{key}: {reason}" for key, reason in value.items())
        elif isinstance(value, Mapping):
            yield from _find_unknown(value, f"{prefix}{name}.")


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
        file = (folder / ".lock").open("a")
    except OSError as error:
        raise StoreError(f"{folder} must be writable (got: {error.strerror}). Choose another folder.") from error
    with file:
        if not lock_file(file, wait=False):
            warnings.warn(f"Another process writes to {folder}; waiting for it to finish.", NsegWarning, stacklevel=4)
            lock_file(file, wait=True)
        yield
