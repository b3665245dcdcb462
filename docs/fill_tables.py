"""Fill the tables of results.md from the studies' CSV files beside it: python docs/fill_tables.py.

A table stands between ``<!-- table STUDY COLUMN [COLUMN] -->`` and ``<!-- end -->``: a row per method, a column per dataset,
in each cell the study's number (of both columns, if two are named), and in brackets the paper's number for the first.
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
    """A page with all its tables written anew."""
    text = COSTS.sub(lambda m: f"{m[1]}\n{costs(m[2])}\n{m[3]}", text)
    return TABLE.sub(lambda m: f"{m[1]}\n{table(m[2], m[3], m[4])}\n{m[5]}", text)


def costs(study: str) -> str:
    """What each method of a study took, as Markdown."""
    rows = read(f"{study}-cost")
    lines = [list(rows[0]), ["---", *["--:"] * (len(rows[0]) - 1)]]
    lines += [
        [row["method"], row["trials"], row["explanations"], *(f"{float(v):.0f}" for v in list(row.values())[3:])]
        for row in rows
    ]
    return markdown(lines)


def read(name: str) -> list[Row]:
    """A file of the studies' results."""
    path = HERE / "results" / f"{name}.csv"
    return list(csv.DictReader(path.read_text().splitlines()))


def markdown(lines: list[list[str]]) -> str:
    """Lines of cells as a table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def table(study: str, first: str, second: str | None) -> str:
    """A study's numbers of one or two columns as Markdown."""
    rows = read(study)
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    cells = {(row["label"], row["dataset"], row["column"]): row for row in rows}
    lines = [["", *names], ["---", *["--:"] * len(names)]]
    for label in dict.fromkeys(row["label"] for row in rows):
        lines.append([label, *(cell(cells, label, name, first, second) for name in names)])
    return markdown(lines)


def cell(cells: dict[tuple[str, str, str], Row], label: str, name: str, first: str, second: str | None) -> str:
    """One method on one dataset."""
    row = cells.get((label, name, first))
    if row is None:
        return ""
    text = f"**{number(row)}**" if row["best"] == "True" else number(row)
    other = cells.get((label, name, second or ""))
    if other is not None:
        text += f" / {number(other)}"
    return text + (f" ({float(row['paper']):.1f})" if row["paper"] else "")


def number(row: Row) -> str:
    """A number as it is shown; seconds in milliseconds."""
    value = float(row["mean"])
    return f"{1000 * value:.1f}" if row["column"] == "seconds" else f"{value:.1f}"


if __name__ == "__main__":
    page = HERE / "results.md"
    page.write_text(filled(page.read_text()))
