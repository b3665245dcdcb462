"""Fill the tables of results.md from the CSV files of the studies. Run it with: python docs/fill_tables.py.

A table goes between ``<!-- table STUDY COLUMN [COLUMN] -->`` and ``<!-- end -->``. It has a row per method and a column per
dataset. Each cell shows the study's number (or two numbers, if two columns are named), and in brackets the paper's number
for the first column. A table of costs goes between ``<!-- costs STUDY -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

HERE = Path(__file__).parent
COSTS = re.compile(r"(<!-- costs (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"(<!-- table (\S+) (\S+)(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)
Row = dict[str, str]


def filled(text: str) -> str:
    """Page text with all tables filled in."""
    text = COSTS.sub(lambda m: f"{m[1]}\n{cost_table(m[2])}\n{m[3]}", text)
    return TABLE.sub(lambda m: f"{m[1]}\n{score_table(m[2], m[3], m[4])}\n{m[5]}", text)


def cost_table(study: str) -> str:
    """Markdown table of the cost of each method of a study."""
    rows = read_results(f"{study}-cost")
    lines = [list(rows[0]), ["---", *["--:"] * (len(rows[0]) - 1)]]
    lines += [
        [row["method"], row["trials"], row["explanations"], *(f"{float(v):.0f}" for v in list(row.values())[3:])]
        for row in rows
    ]
    return markdown_table(lines)


def read_results(name: str) -> list[Row]:
    """Rows of a CSV file in docs/results."""
    path = HERE / "results" / f"{name}.csv"
    return list(csv.DictReader(path.read_text().splitlines()))


def markdown_table(lines: list[list[str]]) -> str:
    """Rows of cells as a Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def score_table(study: str, first: str, second: str | None) -> str:
    """Markdown table of one or two columns of a study, by method and dataset."""
    rows = read_results(study)
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    cells = {(row["label"], row["dataset"], row["column"]): row for row in rows}
    lines = [["", *datasets], ["---", *["--:"] * len(datasets)]]
    for label in dict.fromkeys(row["label"] for row in rows):
        lines.append([label, *(format_cell(cells, label, dataset, first, second) for dataset in datasets)])
    return markdown_table(lines)


def format_cell(cells: dict[tuple[str, str, str], Row], label: str, dataset: str, first: str, second: str | None) -> str:
    """Cell text of one method on one dataset."""
    row = cells.get((label, dataset, first))
    if row is None:
        return ""
    text = f"**{format_number(row)}**" if row["best"] == "True" else format_number(row)
    other = cells.get((label, dataset, second or ""))
    if other is not None:
        text += f" / {format_number(other)}"
    return text + (f" ({float(row['paper']):.1f})" if row["paper"] else "")


def format_number(row: Row) -> str:
    """Mean with one decimal; seconds are shown in milliseconds."""
    value = float(row["mean"])
    return f"{1000 * value:.1f}" if row["column"] == "seconds" else f"{value:.1f}"


if __name__ == "__main__":
    page = HERE / "results.md"
    page.write_text(filled(page.read_text()))
