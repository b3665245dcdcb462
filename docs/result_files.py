"""Where the files of the results are, and how they are read."""

from __future__ import annotations

import csv
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks" / "results"
AUTHORS = ("ba-shapes", "tree-cycles", "tree-grid")
"""Datasets of which the authors published their graph and GCN."""

Row = dict[str, str]


def read_results(name: str, folder: Path = HERE / "results") -> list[Row]:
    """Rows of a CSV file in docs/results, or in another folder."""
    return list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))


def markdown_table(lines: list[list[str]]) -> str:
    """Rows of cells as a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
