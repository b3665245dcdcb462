"""The race: forms of a method differ by what they should, rows are made once, and anybody's method can take part."""

from __future__ import annotations

import csv
import importlib
import re
import sys
from pathlib import Path

import pytest

from nseg.errors import InputError

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))
race, leaderboard = (importlib.import_module(name) for name in ("race", "leaderboard"))


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_method_in_one_file_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the page itself is raced; a second run makes nothing again."""
    (example,) = re.findall(r"```python\n(.*?)```", leaderboard.OWN, re.DOTALL)
    (tmp_path / "my_method.py").write_text(example)
    out, page = tmp_path / "race.csv", tmp_path / "leaderboard.md"
    words = ["--datasets", "tree-cycles", "--networks", "gcn", "--every", "180", "--methods", "nseg", "attention"]
    words += ["--method", f"{tmp_path / 'my_method.py'}:MyMethod", "--out", str(out), "--page", str(page)]
    race.main(words)
    rows = {(row["method"], row["form"], row["searched"]): row for row in read(out)}

    def number(method: str, form: str, searched: str, column: str) -> float:
        return float(rows[method, form, searched][column])

    for searched in ("mask", "remove"):
        own, nseg = (("MyMethod", "equal size", searched), ("nseg", "hardened", searched))
        assert number(*own, "size") == number(*nseg, "size")
        assert number("MyMethod", "hardened", searched, f"{searched}_pns") >= number(*own, f"{searched}_pns") - 0.03
        assert number(*own, "cpu_ms") <= number("MyMethod", "hardened", searched, "cpu_ms")
        assert {"rounds=6", "kicks=6", "exact=12"} <= set(rows["MyMethod", "hardened", searched]["settings"].split(", "))
    assert rows["MyMethod", "as published", "mask"]["settings"] == "defaults"
    assert "layers attend" in rows["attention", "as published", "mask"]["note"]
    assert "layers attend" in page.read_text()
    assert "| MyMethod | equal size |" in page.read_text()
    assert page.read_text().count("| nseg | hardened |") == 2
    assert all(0 <= number("MyMethod", "as published", "mask", f"{judged}_area") <= 1 for judged in ("mask", "remove"))
    pairs = {row["form"]: float(row["agreement"]) for row in read(tmp_path / "agreement.csv")}
    assert pairs["hardened, remove"] == pytest.approx(number("MyMethod", "hardened", "remove", "agrees_with_nseg"), abs=1e-4)
    assert "### Hardened, remove" in page.read_text()

    monkeypatch.setattr(race.Run, "of", None)  # nothing may be run again
    before, written = out.read_bytes(), page.read_text()
    race.main([*words[:-1], str(tmp_path / "again.md"), "--rows-only"])
    assert out.read_bytes() == before
    assert not (tmp_path / "again.md").exists()
    race.main(["--page-only", "--out", str(out), "--page", str(tmp_path / "again.md")])
    assert (tmp_path / "again.md").read_text() == written


def test_the_page_leaves_rows_without_all_columns_out_and_says_so(tmp_path: Path) -> None:
    """Two processes race at once, and one may meet rows that were made before a column was added."""
    rows = read(BENCHMARKS / "results" / "race.csv")
    old = next(row for row in rows if row["method"] == "occlusion" and row["form"] == "as published")
    old["remove_area"] = ""
    leaderboard.write_leaderboard(tmp_path / "page.md", rows)
    page = (tmp_path / "page.md").read_text()
    assert f"- occlusion: {leaderboard.OLD} ({old['dataset']} {old['network'].upper()})" in page
    assert "| occlusion | as published |" in page  # of its other networks


@pytest.mark.parametrize("spec", ["nothing.py:Method", "Method", "nseg:Explanation"])
def test_what_is_not_a_method_is_refused(spec: str) -> None:
    with pytest.raises(InputError, match="--method must"):
        race.own_method(spec)
