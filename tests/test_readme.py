"""The README: its Python runs unchanged and prints what is quoted, its figures are measured, its links lead somewhere."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_python_runs_and_prints_the_quoted_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # the page is written here
    (code,) = blocks("python")
    namespace: dict[str, object] = {}
    exec(compile(code, "README", "exec"), namespace)  # trusted: our own text
    assert len(namespace["many"]) == 34
    assert capsys.readouterr().out == blocks("text")[0]
    assert (tmp_path / "why.html").stat().st_size > 10_000


def test_links_and_commands_exist() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert link.startswith("https://") or (ROOT / link).is_file(), link
    makefile = (ROOT / "Makefile").read_text()
    assert all(f"\n{target}:" in makefile for target in re.findall(r"^make (\w+)", TEXT, flags=re.MULTILINE))


def measured(file: str, **case: str) -> dict[str, str]:
    """One line of a benchmark's table."""
    with (ROOT / "benchmarks" / "results" / file).open() as table:
        (line,) = [row for row in csv.DictReader(table) if case.items() <= row.items()]
    return line


def test_figures_are_those_of_the_benchmark() -> None:
    table = re.findall(r"^\| (\w[^|]*) \| \*\*([\d.]+)\*\* \| ([\d.]+) \|$", TEXT, flags=re.MULTILINE)
    both = [measured("switch.csv", method=name) for name in ("nseg", "gnnexplainer")]
    speed = measured("speed.csv", dataset="ba-shapes", network="gcn", masks="e", effort="balanced")
    assert [row[1:] for row in table] == [
        tuple(f"{float(one['pns']):.2f}" for one in both),
        tuple(f"{float(one['bonds']):.0f}" for one in both),
        (f"{float(speed['ms']):.1f}", f"{float(speed['pyg_ms']):.0f}"),
    ]


def test_a_newcomer_can_read_it_in_a_minute() -> None:
    assert len(TEXT.split()) < 600
