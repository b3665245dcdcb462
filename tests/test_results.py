"""The tables of the results page equal the committed files."""

import csv
import importlib.util
import json
from pathlib import Path

import pytest

from nseg.study import summary

DOCS = Path(__file__).parent.parent / "docs"
spec = importlib.util.spec_from_file_location("fill_tables", DOCS / "fill_tables.py")
fill_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fill_tables)


def test_the_tables_of_the_page_are_those_of_the_files():
    text = (DOCS / "results.md").read_text()
    assert fill_tables.filled(text) == text
    assert text.count("| NSEG |") >= 6


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
