"""All results of the project, made anew at one commit.

    NSEG_DATA=... python benchmarks/all_results.py --paper results.csv     # all, about 95 minutes on two cores
    NSEG_DATA=... python benchmarks/all_results.py --only race-gcn rules   # some
    python benchmarks/all_results.py --list                                # the jobs, and what is done

Two processes at a time, each on one thread; jobs whose result is a time run alone, at the end. What is done at this commit
of the code is not done again, so a run that was stopped goes on: studies and the race even within a job. Each job's output
is in ``runs/results/JOB.log``, and what it took in ``results/made.csv``, from which the next run estimates what is left. At
the end every results file is checked for its commit. Commit results as you like meanwhile, but no code.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csv_table import write_table

from nseg.datasets.tu import data_folder
from nseg.storage.commit import code_commit

ROOT = Path(__file__).parents[1]
RUNS, RESULTS, PAGES = ROOT / "runs" / "results", ROOT / "benchmarks" / "results", ROOT / "docs" / "results"
OUT = "benchmarks/results"  # relative, as commands become part of what they write
PAPER = "{paper}"


@dataclass(frozen=True)
class Job:
    """Commands that make some results.

    Args:
        name: what the job is called.
        commands: words of each command; ``nseg`` or a script of this folder comes first.
        cores: processes that it keeps busy; a job of two runs alone.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    cores: int = 1


def script(name: str, *words: str, out: str = "", cores: int = 1, job: str = "") -> Job:
    """A script of this folder."""
    written = ("--out", f"{OUT}/{out}") if out else ()
    return Job(job or name, ((f"{name}.py", *words, *written),), cores)


def study(name: str, folder: str, workers: int = 1) -> Job:
    """A study of the package and its report; studies in one folder share their explanations."""
    run = ("nseg", "bench", name, "--out", f"runs/results/{folder}", "--workers", str(workers))
    report = ("nseg", "report", f"runs/results/{folder}", "--study", name, "--out", "docs/results", "--no-html")
    shown = (*report, "--format", "none")
    return Job(name, (run, shown), workers)


JOBS = (
    study("fidelity-gcn", "gcn", 2),
    study("fidelity-gin", "gin", 2),
    script("race", "--networks", "gcn", "--rows-only", job="race-gcn"),
    script("race", "--networks", "gin", "--rows-only", job="race-gin"),
    script(
        "optimum",
        *("--sources", "molecules", "--interventions", "remove", "--elements", "bonds", "--graphs", "20", "--seeds", "1"),
        out="optimum.csv",
    ),
    study("sensitivity-split", "sensitivity"),
    study("variants", "variants"),
    study("thresholds", "gcn"),
    study("sensitivity-alpha", "sensitivity-alpha"),
    study("sensitivity-beta", "sensitivity-beta"),
    study("tune", "tune"),
    study("accuracy-gcn", "gcn"),
    study("accuracy-gin", "gin"),
    study("cost", "gcn"),
    script("quality", "--every", "19", "--seeds", "0", "--out", OUT),  # no n divides a motif, so that all places occur
    script(
        "quality",
        *("--parts", "interventions", "--every", "41", "--seeds", "0", "1", "--out", OUT),
        job="interventions",
    ),
    Job(  # one after the other, as both write methods.md
        "methods",
        tuple(
            ("methods.py", *words, "--paper", PAPER, "--out", f"{OUT}/methods.csv")
            for words in (("--every", "7"), ("--why",))
        ),
    ),
    script("authors", "--every", "7", "--paper", PAPER, out="authors.csv"),
    script("pgexplainer", "--paper", PAPER),
    script("rules", "--instances", "20"),
    script("outcomes"),
    script("dblp", "--authors", "100"),
    script("dblp_paths", "--authors", "50"),
    script("patterns", "--number", "200", out="patterns.csv"),
    script("switch"),
    script("train_all", "--only", job="accuracy"),
    script("faults", out="faults.csv"),
    script("race", "--page-only", cores=2, job="leaderboard"),  # alone, so after both races
    # alone, because their results are times
    script("speed", out="speed.csv", cores=2),
    script(
        "speed",
        *("--effort", "fast", "balanced", "thorough", "--masks", "e", "--networks", "gcn", "--every", "7", "--calls", "3"),
        out="effort.csv",
        cores=2,
        job="effort",
    ),
    script("speed", "--memory", out="memory.csv", cores=2, job="memory"),
    script("verification", "--times", "1", cores=2),
    script("cores", "--times", "3", out="cores.csv", cores=2),
    script("time_profile", out="time_profile.csv", cores=2),
    script("time_profile", "--growth", out="time_growth.csv", cores=2, job="time-growth"),
    script("metrics", out="metrics.csv", cores=2),
    script("large", "--sizes", "100k", "1M", "--targets", "200", "--epochs", "1", out="large.csv", cores=2),
    script("large", "--load", "--instances", "2000", out="load.csv", cores=2, job="load"),
    script("studio", out="studio.csv", cores=2),
    script("report", out="report.csv", cores=2),
    script("page", cores=2),
    script("scale_model", "--measure", out="scale_local.csv", cores=2, job="scale-local"),
    script("scale_model", out="scale_model.csv", cores=2, job="scale-model"),
    script("methods", "--same-epochs", "--every", "7", "--calls", "2", out="methods.csv", cores=2, job="methods-speed"),
)


DATA = ("authors", "Mutagenicity", "MSRC_21", "DBLP.npz", "esol.csv")
"""What the folder NSEG_DATA must hold."""


def missing(jobs: Iterable[Job]) -> list[str]:
    """What some jobs need and this machine does not have, as sentences."""
    folder, found = data_folder(), list[str]()
    absent = [name for name in DATA if folder is None or not (folder / name).exists()]
    if absent:
        found.append(f"NSEG_DATA must be a folder with {', '.join(DATA)} (got {folder}, without {', '.join(absent)}).")
    if any(job.name == "page" for job in jobs) and shutil.which("chromium") is None:
        found.append("The job page needs Chromium (found none). Install it, or name the other jobs with --only.")
    return found


def earlier_rows() -> dict[str, dict[str, str]]:
    """What each job took when it was last made, by name."""
    path = RESULTS / "made.csv"
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    names = {job.name for job in JOBS}
    return {row["job"]: row for row in rows if row["job"] in names}


class Runner:
    """Runs jobs, at most two processes at a time, and notes what each took.

    Args:
        folder: for the state and the logs.
        paper: file with the paper's numbers; None leaves the comparison out.
    """

    def __init__(self, folder: Path, paper: Path | None = None) -> None:
        self.folder, self.paper, self.commit = folder, paper, code_commit() or ""
        self.state = folder / "state.json"
        known: dict[str, Any] = json.loads(self.state.read_text()) if self.state.exists() else {}
        self.done: dict[str, dict[str, Any]] = known["done"] if known.get("commit") == self.commit else {}
        self.running: dict[int, tuple[Job, subprocess.Popen[bytes], float]] = {}
        self.earlier = earlier_rows()

    def run(self, jobs: Iterable[Job]) -> list[str]:
        """Run what is not done, in order; returns the names of jobs that failed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        left, failed = [job for job in jobs if job.name not in self.done], list[str]()
        try:
            while left or self.running:
                if left and sum(job.cores for job, _, _ in self.running.values()) + left[0].cores <= 2:
                    self._start(left.pop(0))
                    continue
                print(f"about {self.minutes_left(left):.0f} minutes left", flush=True)
                if (name := self._wait()) is not None:
                    failed.append(name)
        finally:
            for pid in self.running:
                with suppress(ProcessLookupError):  # it has just ended
                    os.killpg(pid, signal.SIGTERM)
        return failed

    def minutes_left(self, jobs: Iterable[Job]) -> float:
        """Estimated minutes until some jobs and those that run now are done, by what they took before, on two cores."""
        now = time.monotonic()
        work = [(job, 0.0) for job in jobs] + [(job, now - began) for job, _, began in self.running.values()]
        took = {name: float(row["seconds"]) for name, row in self.earlier.items()}
        return sum(job.cores / 2 * max(0.0, took.get(job.name, 0.0) - spent) for job, spent in work) / 60

    def words(self, command: Sequence[str]) -> list[str]:
        """A command as it is started."""
        if self.paper is None and PAPER in command:
            at = list(command).index(PAPER)
            command = [*command[: at - 1], *command[at + 1 :]]
        first, *rest = (word.replace(PAPER, str(self.paper)) for word in command)
        start = ["-c", "from nseg.cli import run; run()"] if first == "nseg" else [str(ROOT / "benchmarks" / first)]
        return [sys.executable, *start, *rest]

    def _start(self, job: Job) -> None:
        """Start all commands of a job, one after the other, in one process."""
        chain = [self.words(command) for command in job.commands]
        program = f"import subprocess\nfor words in {chain!r}:\n    subprocess.run(words, check=True)"
        with (self.folder / f"{job.name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
            )
        print(f"{time.strftime('%H:%M:%S')} {job.name} starts", flush=True)
        self.running[process.pid] = job, process, time.monotonic()

    def _wait(self) -> str | None:
        """Wait for the next job to end; returns its name if it failed."""
        pid, status, usage = os.wait3(0)
        job, process, began = self.running.pop(pid)
        process.returncode = os.waitstatus_to_exitcode(status)  # so that Popen does not wait for it
        took = {"seconds": round(time.monotonic() - began, 1), "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1)}
        print(f"{time.strftime('%H:%M:%S')} {job.name} {'failed' if process.returncode else 'done'} {took}", flush=True)
        if process.returncode:
            return job.name
        self.done[job.name] = took
        self.state.write_text(json.dumps({"commit": self.commit, "done": self.done}, indent=1))
        made = {name: {"job": name, **one} for name, one in self.done.items()}
        write_table(RESULTS / "made.csv", ({**self.earlier, **made}).values())
        return None


def of_another_commit(commit: str) -> list[str]:
    """Results files of which a part was made at another commit, or that do not say at which."""
    found = set()
    for path in [*RESULTS.glob("*.csv"), *PAGES.glob("*.csv")]:
        with path.open(newline="") as file:
            if {row.get("commit") for row in csv.DictReader(file)} != {commit}:
                found.add(path.name)
    found |= {path.name for path in [*RESULTS.glob("*.md"), *PAGES.glob("*.md")] if commit not in path.read_text()}
    manifests = {path.name: json.loads(path.read_text()).get("commit") for path in PAGES.glob("*-manifest.json")}
    return sorted(found | {name for name, made_at in manifests.items() if made_at != commit})


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[job.name for job in JOBS], metavar="JOB")
    parser.add_argument("--paper", type=Path, help="the paper's numbers, see README.md")
    parser.add_argument("--list", action="store_true", help="list the jobs, and what those that are done took")
    asked = parser.parse_args(words)
    runner = Runner(RUNS, asked.paper and asked.paper.resolve())
    if asked.list:
        print("\n".join(f"{job.name} {runner.done.get(job.name, '')}" for job in JOBS))
        return
    jobs = [job for job in JOBS if asked.only is None or job.name in asked.only]
    if wanting := missing(jobs):
        sys.exit(" ".join(wanting))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Ended by SIGTERM."))  # so that running jobs are ended too
    failed = runner.run(jobs)
    subprocess.run([sys.executable, str(ROOT / "docs" / "fill_tables.py")], check=True)
    stale = of_another_commit(runner.commit)
    print(f"Commit {runner.commit}. Of another commit: {', '.join(stale) or 'nothing'}.")
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}. See {RUNS.relative_to(ROOT)}, then start again.")


if __name__ == "__main__":
    main()
