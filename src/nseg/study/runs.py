"""A run folder: trials are taken one by one, by as many processes as like to, and each record is written once."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch_geometric

import nseg
from nseg import store
from nseg.errors import InputError
from nseg.study.plan import Study, Trial, restored
from nseg.study.trial import Record, code, execute, key

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


def work(run: Run, trials: dict[str, Trial], measures: Sequence[str], retry: bool = False) -> Iterator[Record]:
    """Do what nobody has done and nobody else is doing, until all is done; yields the records made here."""
    open_, mine = dict(trials), set()
    while open_:
        busy = len(open_)
        for name, trial in list(open_.items()):
            again = retry and name not in mine
            if run.done(name, measures, again):
                del open_[name]
                continue
            with _claimed(run.folder / "locks" / name, str(trial)) as claimed:
                if not claimed:
                    continue
                if not run.done(name, measures, again):  # somebody may have finished it meanwhile
                    record = execute(trial, name, run.folder, tuple(measures), run.record(name))
                    store.write_json(run.folder / "records" / f"{name}.json", record)
                    mine.add(name)
                    yield record
            del open_[name]
        if len(open_) == busy:
            time.sleep(PAUSE)


@contextlib.contextmanager
def _claimed(path: Path, what: str) -> Iterator[bool]:
    """Whether this process alone holds a lock; the system frees it when the process ends, however it does."""
    import fcntl

    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file.truncate(0)
        file.write(what)
        file.flush()
        try:
            yield True
        finally:
            file.truncate(0)


def run(run_: Run, study: Study, trials: dict[str, Trial], workers: int = 1, retry: bool = False) -> Iterator[Record]:
    """Run what is missing; yields records as they are finished.

    Args:
        run_: where.
        study: what is measured.
        trials: from :func:`start`.
        workers: processes that share the trials.
        retry: run failed trials again.
    """
    if workers == 1:
        yield from work(run_, trials, study.measures, retry)
        return
    context = multiprocessing.get_context("spawn")
    missing = [name for name in trials if not run_.done(name, study.measures, retry)]
    crew = [context.Process(target=_worker, args=(run_, trials, study.measures, retry)) for _ in range(workers)]
    before = {name: (run_.record(name) or {}).get("finished") for name in missing}
    try:
        for one in crew:
            one.start()
        while missing:
            alive = any(one.is_alive() for one in crew)  # asked first: what they leave behind is then seen below
            for name in list(missing):
                found = run_.record(name)
                if found is not None and run_.done(name, study.measures) and found["finished"] != before[name]:
                    missing.remove(name)
                    yield found
            if not alive:
                break
            time.sleep(PAUSE)
    finally:
        for one in crew:
            one.terminate() if missing else None
            one.join()
    if missing:
        raise InputError(f"The worker processes ended before {len(missing)} trials were done. Start the same command again.")


def _worker(run_: Run, trials: dict[str, Trial], measures: Sequence[str], retry: bool) -> None:
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - lives as long as the process; failures are in records
    parent = multiprocessing.parent_process()
    for _ in work(run_, trials, measures, retry):
        if parent is not None and not parent.is_alive():  # it was killed: nobody waits for the rest
            return
