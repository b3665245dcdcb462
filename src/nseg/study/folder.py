"""A run folder: several processes can work on it at once, and each record is written once."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
import torch_geometric

from nseg.backends import Backend, Local
from nseg.errors import InputError
from nseg.storage.commit import code_commit
from nseg.storage.files import prepare_folder, write_bytes, write_json
from nseg.storage.locks import lock_file
from nseg.study.plan import Study, Trial, study_from_plain_data
from nseg.study.trial import Record, TrialJob, TrialResult, hash_source, run_trial, trial_key
from nseg.version import __version__

POLL_INTERVAL = 0.5  # seconds between checks of the trials that other processes have locked


@dataclass(frozen=True)
class StudyFolder:
    """A folder with studies, and the records, explanations and scores of their trials.

    ``studies/NAME.json`` holds a study and the keys of its trials. ``records/KEY.json`` is the record of a trial, written
    last and in one piece. ``explanations/KEY.parquet`` and ``values/KEY.parquet`` hold its explanations and the scores of
    each instance. ``locks/KEY`` is locked by the process that runs the trial.
    """

    path: Path

    def studies(self) -> list[str]:
        """Names of the studies in this folder."""
        return sorted(path.stem for path in (self.path / "studies").glob("*.json"))

    def study(self, name: str) -> tuple[Study, dict[str, Trial]]:
        """A study of this folder, and its trials by key, in their order."""
        path = self.path / "studies" / f"{name}.json"
        if not path.is_file():
            raise InputError(
                f"{self.path} must hold the study {name!r} (got {', '.join(self.studies()) or 'no study'}). "
                f"Run it first: nseg bench {name} --out {self.path}."
            )
        content = json.loads(path.read_text())
        return study_from_plain_data(content["study"]), {key: Trial(**trial) for key, trial in content["trials"]}

    def manifest(self, name: str) -> dict[str, Any]:
        """The command, seeds, versions and machine of a study."""
        found: dict[str, Any] = json.loads((self.path / "studies" / f"{name}.json").read_text())["manifest"]
        return found

    def record(self, key: str) -> Record | None:
        """The record of a trial; None if there is none yet."""
        with contextlib.suppress(FileNotFoundError):
            found: Record = json.loads((self.path / "records" / f"{key}.json").read_text())
            return found
        return None

    def records(self, keys: Iterable[str]) -> list[Record]:
        """The records of these trials, as far as they exist."""
        return [found for key in keys if (found := self.record(key)) is not None]

    def running(self, keys: Iterable[str]) -> list[str]:
        """Descriptions of the trials that some process is running now."""
        found = []
        for key in keys:
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                text = (self.path / "locks" / key).read_text()
                if text:
                    found.append(text)
        return found

    def write_result(self, key: str, result: TrialResult) -> None:
        """Write the files of a trial; its record last, because the record marks the trial as done."""
        for part, content in (("explanations", result.explanations), ("values", result.values)):
            if content is not None:
                write_bytes(self.path / part / f"{key}.parquet", content)
        write_json(self.path / "records" / f"{key}.json", result.record)

    def done(self, key: str, measures: Sequence[str], retry: bool = False) -> bool:
        """Whether a trial is explained, and has all measures from the current source."""
        found = self.record(key)
        if found is None or (retry and found["status"] == "failed"):
            return False
        measured = found.get("measured_by") == hash_source("measures") and {*measures} <= {*found.get("measures", [])}
        return found["status"] != "done" or measured


def start(study: Study, folder: str | Path, command: str = "") -> tuple[StudyFolder, dict[str, Trial]]:
    """Create or open a run folder, write the study into it, and return its trials by key."""
    root = prepare_folder(folder)
    if (root / "manifest.json").exists():
        raise InputError(f"{root} must be empty or hold studies (got a run of nseg explain). Give another folder.")
    for part in ("studies", "records", "explanations", "values", "locks"):
        prepare_folder(root / part)
    trials = {trial_key(trial): trial for trial in study.trials()}
    content = {
        "study": asdict(study),
        "trials": [[key, vars(trial)] for key, trial in trials.items()],
        "manifest": {
            "study": study.name,
            "command": command,
            "seeds": list(study.seeds),
            "commit": code_commit(),
            "code": hash_source("explanations"),
            "nseg": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "machine": {"system": platform.system(), "processor": processor_name(), "cores": os.cpu_count()},
        },
    }
    write_json(root / "studies" / f"{study.name}.json", content)
    return StudyFolder(root), trials


def processor_name() -> str:
    """The model of this machine's processor."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def run_trials(
    folder: StudyFolder, study: Study, trials: dict[str, Trial], backend: Backend | None = None, retry: bool = False
) -> Iterator[Record]:
    """Run the trials that are not done, and wait for those that other processes run.

    Args:
        folder: the run folder.
        study: the study, which says what to measure.
        trials: trials by key, from :func:`start`.
        backend: where to run the trials; in this process if None.
        retry: run failed trials again.

    Yields:
        the records that this process writes, in the order in which trials finish.
    """
    backend, finished_here, measures = backend or Local(), set[str](), study.measures_of(trials)

    def done(key: str) -> bool:
        return folder.done(key, measures[key], retry and key not in finished_here)

    while left := {key: trial for key, trial in trials.items() if not done(key)}:
        before, jobs = len(finished_here), _LockedJobs(folder, left, measures, done)
        with closing(jobs), closing(backend.map(run_trial, jobs)) as results:
            for number, result in results:
                if result is not None:
                    key = jobs.keys[number]
                    folder.write_result(key, result)
                    finished_here.add(key)
                    jobs.release(key)
                    yield result.record
        if len(finished_here) == before:
            time.sleep(POLL_INTERVAL)


class _LockedJobs(Sequence[TrialJob | None]):
    """Jobs that are locked when they are read; None if another process has the lock or has finished the trial.

    Reading locks, because a backend reads a job just before a worker starts it. The system releases a lock when its process
    ends, however it ends.
    """

    def __init__(
        self,
        folder: StudyFolder,
        trials: dict[str, Trial],
        measures: dict[str, tuple[str, ...]],
        done: Callable[[str], bool],
    ) -> None:
        self.folder, self.trials, self.measures, self.done = folder, trials, measures, done
        self.keys = list(trials)
        self.locks: dict[str, TextIO] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, number: Any) -> Any:
        key = self.keys[number]
        if key not in self.locks and not self._lock(key):
            return None
        record, path = self.folder.record(key), self.folder.path / "explanations" / f"{key}.parquet"
        stored = path.read_bytes() if record is not None and path.is_file() else None
        return TrialJob(self.trials[key], key, self.measures[key], record if stored is not None else None, stored)

    def _lock(self, key: str) -> bool:
        """Try to lock a trial that is not done; returns whether it succeeded."""
        file = (self.folder.path / "locks" / key).open("a+")
        locked = False
        try:
            locked = lock_file(file, wait=False)
        finally:
            if not locked:
                file.close()
        if not locked:
            return False
        self.locks[key] = file
        if self.done(key):  # another process may have finished it before the lock was taken
            self.release(key)
            return False
        file.truncate(0)
        file.write(str(self.trials[key]))
        file.flush()
        return True

    def release(self, key: str) -> None:
        """Unlock a trial."""
        with self.locks.pop(key) as file:
            file.truncate(0)

    def close(self) -> None:
        """Unlock all trials that are not finished."""
        for key in list(self.locks):
            self.release(key)
