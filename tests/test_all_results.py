"""The command that makes all results: what is done stays done, what fails is tried again, what is old is named."""

from __future__ import annotations

import importlib
import json
import sys
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
