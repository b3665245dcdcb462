"""A run folder: trials are taken one by one, by as many processes as like to, and each record is written once."""

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

import nseg
from nseg import store
from nseg.backends import Backend, Local
from nseg.errors import InputError
from nseg.study.plan import Study, Trial, restored
from nseg.study.trial import Job, Outcome, Record, code, execute, key

PAUSE = 0.5  # seconds between looks at what other processes do


@dataclass(frozen=True)
class Run:
    """A folder with studies, their records, explanations and values.

    ``records/KEY.json`` is one trial each, written last and whole; ``explanations/KEY.parquet`` and ``values/KEY.parquet``
    hold its explanations and what each instance contributes to the metrics; ``locks/KEY`` says who works on it.
    """

    folder: Path

    def studies(self) -> list[str]:
        """Names of the studies that were started here."""
        return sorted(path.stem for path in (self.folder / "studies").glob("*.json"))

    def study(self, name: str) -> tuple[Study, dict[str, Trial]]:
        """A study that was started here, with its trials by key, in its order."""
        path = self.folder / "studies" / f"{name}.json"
        if not path.is_file():
            raise InputError(
                f"{self.folder} must hold the study {name!r} (it holds {', '.join(self.studies()) or 'none'}). "
                f"Run it first: nseg bench {name} --out {self.folder}."
            )
        content = json.loads(path.read_text())
        return restored(content["study"]), {key: Trial(**trial) for key, trial in content["trials"]}

    def manifest(self, name: str) -> dict[str, Any]:
        """What the study was run with."""
        found: dict[str, Any] = json.loads((self.folder / "studies" / f"{name}.json").read_text())["manifest"]
        return found

    def record(self, name: str) -> Record | None:
        """The record of a key, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            found: Record = json.loads((self.folder / "records" / f"{name}.json").read_text())
            return found
        return None

    def records(self, keys: Iterable[str]) -> list[Record]:
        """The records that are there."""
        return [found for one in keys if (found := self.record(one)) is not None]

    def running(self, keys: Iterable[str]) -> list[str]:
        """What other processes, or this one, work on now."""
        found = []
        for one in keys:
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                text = (self.folder / "locks" / one).read_text()
                if text:
                    found.append(text)
        return found

    def keep(self, name: str, outcome: Outcome) -> None:
        """Write what a trial has given, its record last."""
        for part, content in (("explanations", outcome.explanations), ("values", outcome.values)):
            if content is not None:
                store.write_bytes(self.folder / part / f"{name}.parquet", content)
        store.write_json(self.folder / "records" / f"{name}.json", outcome.record)

    def done(self, name: str, measures: Sequence[str], retry: bool = False) -> bool:
        """Whether nothing is left to do for a key: explained, and measured as asked by today's code."""
        found = self.record(name)
        if found is None or (retry and found["status"] == "failed"):
            return False
        measured = found.get("measured_by") == code("measures") and {*measures} <= {*found.get("measures", [])}
        return found["status"] != "done" or measured


def start(study: Study, folder: str | Path, command: str = "") -> tuple[Run, dict[str, Trial]]:
    """Make or open a run folder and note what will be run in it."""
    root = store.prepared(folder)
    if (root / "manifest.json").exists():
        raise InputError(f"{root} must be empty or hold studies (it holds a run of nseg explain). Give another folder.")
    for part in ("studies", "records", "explanations", "values", "locks"):
        store.prepared(root / part)
    trials = {key(trial): trial for trial in study.trials()}
    content = {
        "study": asdict(study),
        "trials": [[k, vars(trial)] for k, trial in trials.items()],
        "manifest": {
            "study": study.name,
            "command": command,
            "seeds": list(study.seeds),
            "code": code("explanations"),
            "nseg": nseg.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_geometric": torch_geometric.__version__,
            "machine": {"system": platform.system(), "processor": processor(), "cores": os.cpu_count()},
        },
    }
    store.write_json(root / "studies" / f"{study.name}.json", content)
    return Run(root), trials


def processor() -> str:
    """What the machine calls its processor."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


def run(
    run_: Run, study: Study, trials: dict[str, Trial], crew: Backend | None = None, retry: bool = False
) -> Iterator[Record]:
    """Do what nobody has done and nobody else is doing, until all is done.

    Args:
        run_: where.
        study: what is measured.
        trials: from :func:`start`.
        crew: who does the trials; this process if None.
        retry: run failed trials again.

    Yields:
        the records that are made here, as they are finished.
    """
    crew, mine = crew or Local(), set[str]()

    def done(name: str) -> bool:
        return run_.done(name, study.measures, retry and name not in mine)

    while left := {name: trial for name, trial in trials.items() if not done(name)}:
        before, claims = len(mine), _Claims(run_, left, study.measures, done)
        with closing(claims), closing(crew.map(execute, claims)) as outcomes:
            for number, outcome in outcomes:
                if outcome is not None:
                    name = claims.names[number]
                    run_.keep(name, outcome)
                    mine.add(name)
                    claims.release(name)
                    yield outcome.record
        if len(mine) == before:
            time.sleep(PAUSE)


class _Claims(Sequence[Job | None]):
    """Trials that are claimed as they are handed out; None for what another process is at, or has done meanwhile.

    The system frees a claim when the process ends, however it does.
    """

    def __init__(self, run_: Run, trials: dict[str, Trial], measures: tuple[str, ...], done: Callable[[str], bool]) -> None:
        self.run, self.trials, self.measures, self.done = run_, trials, measures, done
        self.names = list(trials)
        self.held: dict[str, TextIO] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, number: Any) -> Any:
        name = self.names[number]
        if name not in self.held and not self._claimed(name):
            return None
        record, path = self.run.record(name), self.run.folder / "explanations" / f"{name}.parquet"
        stored = path.read_bytes() if record is not None and path.is_file() else None
        return Job(self.trials[name], name, self.measures, record if stored is not None else None, stored)

    def _claimed(self, name: str) -> bool:
        import fcntl

        file = (self.run.folder / "locks" / name).open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self.held[name] = file
        if self.done(name):  # somebody may have finished it meanwhile
            self.release(name)
            return False
        file.truncate(0)
        file.write(str(self.trials[name]))
        file.flush()
        return True

    def release(self, name: str) -> None:
        """Let others have a trial."""
        with self.held.pop(name) as file:
            file.truncate(0)

    def close(self) -> None:
        """Let others have what is not finished."""
        for name in list(self.held):
            self.release(name)
