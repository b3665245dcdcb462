"""Fill results.md from the files of the results. Run it with: python docs/fill_tables.py.

A table goes between ``<!-- table STUDY COLUMN [COLUMN] -->`` and ``<!-- end -->``. It has a row per method and a column per
dataset. Each cell shows the study's number (or two numbers, if two columns are named), and in brackets the paper's number
for the first column. ``<!-- costs STUDY -->`` begins a table of costs, ``<!-- differences STUDY COLUMN -->`` one of what
differs from the paper on the authors' networks, and ``<!-- summary -->`` the summary of the race, of speed and of the main
table.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
BENCHMARKS = HERE.parent / "benchmarks" / "results"
COSTS = re.compile(r"(<!-- costs (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
DIFFERENCES = re.compile(r"(<!-- differences (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
SUMMARY = re.compile(r"(<!-- summary -->\n).*?(<!-- end -->)", re.DOTALL)
AUTHORS = ("ba-shapes", "tree-cycles", "tree-grid")
EQUAL = 0.005  # PNS that is not counted as a difference
TABLE = re.compile(r"(<!-- table (\S+) (\S+)(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)
Row = dict[str, str]


def filled(text: str) -> str:
    """Page text with all tables filled in."""
    text = SUMMARY.sub(lambda m: f"{m[1]}\n{summary()}\n{m[2]}", text)
    text = DIFFERENCES.sub(lambda m: f"{m[1]}\n{difference_table(m[2], m[3])}\n{m[4]}", text)
    text = COSTS.sub(lambda m: f"{m[1]}\n{cost_table(m[2])}\n{m[3]}", text)
    return TABLE.sub(lambda m: f"{m[1]}\n{score_table(m[2], m[3], m[4])}\n{m[5]}", text)


def cost_table(study: str) -> str:
    """Markdown table of the cost of each method of a study."""
    rows = [{name: value for name, value in row.items() if name != "commit"} for row in read_results(f"{study}-cost")]
    lines = [list(rows[0]), ["---", *["--:"] * (len(rows[0]) - 1)]]
    lines += [
        [row["method"], row["trials"], row["explanations"], *(f"{float(v):.0f}" for v in list(row.values())[3:])]
        for row in rows
    ]
    return markdown_table(lines)


def read_results(name: str, folder: Path = HERE / "results") -> list[Row]:
    """Rows of a CSV file in docs/results, or in another folder."""
    return list(csv.DictReader((folder / f"{name}.csv").read_text().splitlines()))


def difference_table(study: str, column: str) -> str:
    """Markdown table of our numbers minus the paper's on the authors' networks."""
    rows = [row for row in read_results(study) if row["column"] == column and row["paper"] and row["dataset"] in AUTHORS]
    cells = {(row["label"], row["dataset"]): f"{float(row['mean']) - float(row['paper']):+.1f}" for row in rows}
    lines = [["", *AUTHORS], ["---", *["--:"] * len(AUTHORS)]]
    for label in dict.fromkeys(row["label"] for row in rows):
        lines.append([label, *(cells.get((label, dataset), "") for dataset in AUTHORS)])
    return markdown_table(lines)


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


# --- the summary ---------------------------------------------------------------------------------------------------------


def summary() -> str:
    """What NSEG is best at, what it is not, and what it costs, by deletion and under masks."""
    rows = [row for row in read_results("race", BENCHMARKS) if row["size"]]
    found = {judged: [best_of_each(group, judged) for group in by_network(rows)] for judged in ("remove", "mask")}
    lines = [["", "NSEG, deletion", "best other, hardened", "best other, as published"]]
    lines[0] += ["NSEG, masks", *lines[0][2:]]
    lines.append(["---"] * len(lines[0]))
    for by_deletion, by_masks in zip(found["remove"], found["mask"], strict=True):
        name = f"{by_deletion[0]['dataset']} {by_deletion[0]['network'].upper()}"
        lines.append([name, *race_cells(by_deletion, "remove"), *race_cells(by_masks, "mask")])
    others = {row["method"] for row in rows} - {"nseg"}
    commits = ", ".join(sorted({row["commit"] for row in rows}))
    how = f"""\
## In a minute

Mean PNS bound, then kept edges (each direction is one) and milliseconds of one core per prediction. *Hardened*: the ranking
of another method, improved by NSEG's own search at equal effort. *Best* is chosen afterwards, of {len(others)} methods.
Bold: the highest of three, and what is within {EQUAL}. From the [leaderboard](results/leaderboard.md), commit {commits}."""
    told = [how, markdown_table(lines).strip(), *(verdict(found[judged], judged) for judged in found), cost_sentence(found)]
    return "\n\n".join(told) + "\n"


def by_network(rows: list[Row]) -> list[list[Row]]:
    """Rows of each dataset and network."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["network"]), []).append(row)
    return list(groups.values())


def best_of_each(rows: list[Row], judged: str) -> list[Row]:
    """NSEG's row, and the best of other methods hardened and as published, of those that explain as many instances."""
    (ours,) = [row for row in rows if (row["method"], row["form"], row["searched"]) == ("nseg", "hardened", judged)]
    others = [row for row in rows if row["method"] != "nseg" and row["instances"] == ours["instances"]]
    hardened = [row for row in others if (row["form"], row["searched"]) == ("hardened", judged)]
    published = [row for row in others if row["form"] == "as published"]
    return [ours, *(max(kind, key=lambda row: float(row[f"{judged}_pns"])) for kind in (hardened, published))]


def race_cells(rows: list[Row], judged: str) -> list[str]:
    """Cells of NSEG and of the best others."""
    top = max(float(row[f"{judged}_pns"]) for row in rows)
    cells = []
    for row in rows:
        value = float(row[f"{judged}_pns"])
        number = f"**{value:.3f}**" if value >= top - EQUAL else f"{value:.3f}"
        name = "" if row["method"] == "nseg" else f"{row['method']} "
        cells.append(f"{name}{number} ({float(row['size']):.1f}, {float(row['cpu_ms']):.0f} ms)")
    return cells


def verdict(found: list[list[Row]], judged: str) -> str:
    """Where NSEG is best, and where it is not."""
    title, told, exceptions = {"remove": "By deletion", "mask": "Under masks"}[judged], [], list[str]()
    for place, kind in (
        (2, "no method as published has a higher PNS than NSEG"),
        (1, "no other ranking with NSEG's search"),
    ):
        better = []
        for rows in found:
            other, lead = rows[place], float(rows[place][f"{judged}_pns"]) - float(rows[0][f"{judged}_pns"])
            if lead > EQUAL:
                better.append(f"{other['dataset']} {other['network'].upper()} ({other['method']}, {lead:+.3f})")
        told.append(f"{kind} on {len(found) - len(better)} of {len(found)} networks")
        exceptions += better
    better_there = f" Better than NSEG: {', '.join(dict.fromkeys(exceptions))}." if exceptions else ""
    return f"**{title}**, {', and '.join(told)}.{better_there}"


def cost_sentence(found: dict[str, list[list[Row]]]) -> str:
    """Milliseconds of NSEG and of the best rivals, how much faster it is than PyG's, and what the main table took."""

    def span(values: list[float]) -> str:
        return f"{min(values):.0f} to {max(values):.0f}"

    ours, hardened, published = (span([float(row["cpu_ms"]) for row in kind]) for kind in zip(*found["remove"], strict=True))
    faster = [float(row["times_faster"]) for row in read_results("speed", BENCHMARKS)]
    facts = json.loads((HERE / "results" / "fidelity-gcn-manifest.json").read_text())
    return (
        f"**Cost.** NSEG by deletion takes {ours} ms per prediction in small batches like those of the race, the best "
        f"hardened rankings {hardened} ms, the best methods as published {published} ms. On whole datasets it is "
        f"{min(faster):.1f} to {max(faster):.0f} times as fast as PyG's GNNExplainer (`benchmarks/results/speed.csv`). "
        "The whole GCN table took "
        f"{facts['cpu_seconds_of_trials'] / 60:.0f} minutes of processor time."
    )


if __name__ == "__main__":
    page = HERE / "results.md"
    page.write_text(filled(page.read_text()))
