"""The command that makes all results: what is done stays done, what fails is tried again, what is old is named."""

from __future__ import annotations

import fcntl
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
all_results = importlib.import_module("all_results")
Job = all_results.Job


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes a runner whose commands are lines of Python."""
    monkeypatch.setattr(all_results, "RESULTS", tmp_path)
    monkeypatch.setattr(all_results.Runner, "words", lambda _, command: [sys.executable, "-c", command[0]])
    return lambda: all_results.Runner(tmp_path / "runs")


def test_a_run_goes_on_where_it_was(runner, tmp_path: Path) -> None:
    note = f"open({str(tmp_path / 'noted')!r}, 'a').write"
    jobs = [
        Job("first", ((f"{note}('1')",), (f"{note}('2')",))),
        Job("broken", (("1 / 0",), (f"{note}('never')",))),
        Job("alone", ((f"{note}('3')",),), 2),
    ]
    assert runner().run(jobs) == ["broken"]
    assert (tmp_path / "noted").read_text() == "123"
    assert "ZeroDivisionError" in (tmp_path / "runs" / "broken.log").read_text()
    jobs[1] = Job("broken", ((f"{note}('4')",),))
    assert runner().run(jobs) == []
    assert (tmp_path / "noted").read_text() == "1234"  # nothing was done twice
    assert (tmp_path / "made.csv").read_text().count("\n") == 4

    state = tmp_path / "runs" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"commit": "another"}))
    assert runner().done == {}


def test_jobs_end_with_the_command(tmp_path: Path) -> None:
    """SIGTERM ends the jobs, and what they started: here a process that holds a lock."""
    lock = tmp_path / "lock"
    program = f"""
import sys
from pathlib import Path
sys.path.append({str(BENCHMARKS)!r})
import all_results
child = "import fcntl, time; file = open({str(lock)!r}, 'w'); fcntl.flock(file, fcntl.LOCK_EX); time.sleep(600)"
all_results.JOBS = (all_results.Job("long", ((child,),)),)
all_results.RUNS = Path({str(tmp_path)!r})
all_results.Runner.words = lambda _, command: [sys.executable, "-c", command[0]]
all_results.missing = lambda jobs: []
all_results.main([])
"""
    command = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: lock.exists() and not is_free(lock))
    command.terminate()
    assert "Ended by SIGTERM." in command.communicate()[1]
    assert command.returncode
    wait_until(lambda: is_free(lock))


def is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_is_missing_is_said_before_any_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_results.Runner, "run", lambda *_: pytest.fail("a job was started"))
    monkeypatch.setattr(all_results.shutil, "which", lambda _: None)
    monkeypatch.delenv("NSEG_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"^NSEG_DATA must be a folder with .*esol.csv \(got None.*Chromium"):
        all_results.main([])
    for name in all_results.DATA:
        (tmp_path / name).mkdir()
    monkeypatch.setenv("NSEG_DATA", str(tmp_path))
    assert all_results.missing([Job("rules", ())]) == []


def test_what_is_left_is_estimated_from_what_jobs_took_before(runner, tmp_path: Path) -> None:
    names = [job.name for job in all_results.JOBS[:2]]
    rows = [f"{name},600,9,old" for name in names]
    (tmp_path / "made.csv").write_text("job,seconds,cpu_seconds,commit\n" + "\n".join([*rows, "gone,7,7,old"]) + "\n")
    one, two = (Job(name, (("pass",),), cores) for name, cores in zip(names, (1, 2), strict=True))
    assert runner().minutes_left([one, two, Job("new", ())]) == 5 + 10
    assert runner().run([one]) == []
    first, second = (tmp_path / "made.csv").read_text().splitlines()[1:]  # what is no job any more is left out
    assert first.startswith(f"{names[0]},")
    assert not first.endswith(",old")
    assert second == rows[1]


def test_results_of_another_commit_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_results, "RESULTS", tmp_path)
    monkeypatch.setattr(all_results, "PAGES", tmp_path)
    (tmp_path / "new.csv").write_text("what,commit\n1,abc\n")
    (tmp_path / "mixed.csv").write_text("what,commit\n1,abc\n2,old\n")
    (tmp_path / "silent.csv").write_text("what\n1\n")
    (tmp_path / "new.md").write_text("Made at commit abc.")
    (tmp_path / "old.md").write_text("Made at commit old.")
    (tmp_path / "study-manifest.json").write_text('{"commit": "old"}')
    assert all_results.of_another_commit("abc") == ["mixed.csv", "old.md", "silent.csv", "study-manifest.json"]


def test_jobs_are_of_scripts_and_options_that_exist() -> None:
    assert len({job.name for job in all_results.JOBS}) == len(all_results.JOBS)
    for job in all_results.JOBS:
        for script, *words in job.commands:
            if script != "nseg":
                text = (BENCHMARKS / script).read_text()
                assert all(f'"{word}"' in text for word in words if word.startswith("--")), (script, words)
