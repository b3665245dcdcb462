"""The tables of the results page equal the committed files."""

import csv
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

from nseg.study import summary

DOCS = Path(__file__).parent.parent / "docs"
spec = importlib.util.spec_from_file_location("fill_tables", DOCS / "fill_tables.py")
fill_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fill_tables)


@pytest.mark.parametrize("page", [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"], ids=lambda page: page.stem)
def test_the_tables_of_the_pages_are_those_of_the_files(page):
    text = page.read_text()
    assert fill_tables.filled(text) == text
    assert page.stem != "results" or text.count("| NSEG |") >= 6


def test_pages_name_no_commit_by_hand():
    """Commits stand in tables that are filled in, or in none."""
    for page in DOCS.glob("*.md"):
        text = re.sub(r"<!-- [a-z].*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
        assert re.findall(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7}\b", text) == [], page.name


def test_each_finding_is_on_the_page_once():
    """Sentences with figures are made from the files; none is written and not shown."""
    assert re.findall(r"<!-- finding (\S+) -->", (DOCS / "results.md").read_text()) != []
    assert sorted(re.findall(r"<!-- finding (\S+) -->", (DOCS / "results.md").read_text())) == sorted(fill_tables.FINDINGS)


def test_findings_change_with_the_numbers(monkeypatch):
    findings = sys.modules["findings"]

    def rows(*numbers):
        head = {"dataset": "d", "column": "recall_at_k"}
        return [{**head, "label": label, "mean": str(mean), "instances": str(n)} for label, mean, n in numbers]

    table = rows(("NSEG", 50, 9), ("a", 40, 9), ("b", 99, 2), ("NSEG, other", 80, 9))
    monkeypatch.setattr(findings, "read_results", lambda *_: table)
    assert findings.better_rankings("x").endswith("d (50): none.")  # b explains few instances
    table[1]["mean"] = "60"
    assert findings.better_rankings("x").endswith("d (50): 1 (a 60).")


def test_the_table_of_forms_has_a_line_per_method(tmp_path, monkeypatch):
    monkeypatch.setattr(fill_tables, "HERE", tmp_path)
    assert "not made yet" in fill_tables.form_table("s", "mask", "pns")
    head = "dataset,label,form,judged,instances,pns,kept,cpu_ms,commit\n"
    lines = ["d,NSEG,hardened,mask,5,0.9,4,8,abc", "d,a,as published,mask,5,0.5,9,2,abc", "d,a,hardened,mask,5,0.91,4,7,abc"]
    lines += ["d,a,equal size,mask,5,0.3,4,1,abc", "d,a,hardened,remove,5,0.1,1,1,abc", "d,b,hardened,mask,2,1,1,1,abc"]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "s-forms.csv").write_text(head + "\n".join(lines) + "\n")
    rows = fill_tables.read_results("s-forms", tmp_path / "results")
    monkeypatch.setattr(fill_tables, "read_results", lambda _: rows)
    table = fill_tables.form_table("s", "mask", "pns")
    assert "| NSEG | 90.0 | 4.0 | 8.0 |\n| a | 50.0 / 91.0 / 30.0 | 9.0 / 4.0 / 4.0 | 2.0 / 7.0 / 1.0 |" in table
    assert "| b \\* | 100.0 |" in table
    assert table.endswith("Instances: d 5; \\* fewer. `docs/results/s-forms.csv`, commit abc.\n")


def test_results_name_no_folder_of_a_machine():
    for folder in (DOCS / "results", fill_tables.BENCHMARKS):
        for path in (path for path in folder.iterdir() if path.suffix in (".csv", ".md", ".json", ".tex")):
            assert re.findall(r"(?<![\w.])/(?:tmp|home|root|work|var|Users)/\S+", path.read_text()) == [], path.name


def test_a_table_of_a_file_chooses_rows_and_columns_and_names_the_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(fill_tables, "BENCHMARKS", tmp_path)
    (tmp_path / "x.csv").write_text("set,kind,ms,commit\na,e,1.2345,abc\nb,e,1234.5,abc\nb,f,20,abc\n")
    assert "| a | 1.234 |\n| b | 1,234 |\n\n" in fill_tables.file_table("rows", "x", "set ms if kind=e")
    table = fill_tables.file_table("pivot", "x", "kind set ms")
    assert table.startswith("| ms | a | b |")
    assert "| f |  | 20 |" in table
    assert table.endswith("commit abc.\n")
    assert "not made yet" in fill_tables.file_table("rows", "y", "set")


@pytest.mark.parametrize("path", sorted(DOCS.glob("results/*-manifest.json")), ids=lambda path: path.stem)
def test_every_study_has_a_manifest_and_the_papers_numbers(path):
    facts = json.loads(path.read_text())
    assert facts["trials"]["failed"] == 0
    assert facts["trials"]["done"] + facts["trials"]["skipped"] == facts["trials"]["all"]
    assert facts["command"].startswith("nseg bench ")
    name = path.stem.removesuffix("-manifest")
    rows = list(csv.DictReader((DOCS / "results" / f"{name}.csv").read_text().splitlines()))
    known = set(summary.paper_scores().values())
    assert {float(row["paper"]) for row in rows if row["paper"]} <= known
    assert all(0 <= float(row["mean"]) <= 100 for row in rows if row["column"] not in ("seconds", "kept"))
