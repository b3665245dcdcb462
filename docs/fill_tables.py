"""Fill the tables of the pages and of the README from the files of the results. Run it with: python docs/fill_tables.py.

A table goes between ``<!-- table STUDY COLUMN [COLUMN] -->`` and ``<!-- end -->``. It has a row per method and a column per
dataset. Each cell shows the study's number (or two numbers, if two columns are named), and in brackets the paper's number
for the first column. ``<!-- costs STUDY -->`` begins a table of costs, ``<!-- differences STUDY COLUMN -->`` one of what
differs from the paper on the authors' networks, ``<!-- forms STUDY mask|remove COLUMN -->`` one of each method as published,
hardened and at NSEG's size, ``<!-- finding NAME -->`` a sentence (``findings.py``), and ``<!-- summary -->`` the summary of
the race, of speed and of the main table. On all pages, ``<!-- rows FILE COLUMN ... [if COLUMN=VALUE|VALUE and ...] -->``
begins a table of some columns of a file in benchmarks/results, and ``<!-- pivot FILE ROW COLUMN VALUE ... [if ...] -->`` one
with a line and a column for each value of two of its columns. Both end with the commit.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from statistics import fmean

sys.path.append(str(Path(__file__).parent))
from findings import FINDINGS
from result_files import AUTHORS, BENCHMARKS, HERE, Row, markdown_table, read_results

COSTS = re.compile(r"(<!-- costs (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
DIFFERENCES = re.compile(r"(<!-- differences (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
SUMMARY = re.compile(r"(<!-- summary -->\n).*?(<!-- end -->)", re.DOTALL)
FINDING = re.compile(r"(<!-- finding (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
FORMS = re.compile(r"(<!-- forms (\S+) (\S+) (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
EQUAL = 0.005  # PNS that is not counted as a difference
ROWS = re.compile(r"(<!-- (rows|pivot) (\S+) (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
SWITCH = re.compile(r"(<!-- figures: .*? -->\n).*?(<!-- end -->)", re.DOTALL)
TABLE = re.compile(r"(<!-- table (\S+) (\S+)(?: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """Page text with all tables filled in."""
    text = ROWS.sub(lambda m: f"{m[1]}\n{file_table(m[2], m[3], m[4])}\n{m[5]}", text)
    text = SWITCH.sub(lambda m: f"{m[1]}\n{switch_table()}\n{m[2]}", text)
    text = FINDING.sub(lambda m: f"{m[1]}\n{FINDINGS[m[2]]()}\n\n{m[3]}", text)
    text = FORMS.sub(lambda m: f"{m[1]}\n{form_table(m[2], m[3], m[4])}\n{m[5]}", text)
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


def difference_table(study: str, column: str) -> str:
    """Markdown table of our numbers minus the paper's on the authors' networks."""
    rows = [row for row in read_results(study) if row["column"] == column and row["paper"] and row["dataset"] in AUTHORS]
    cells = {(row["label"], row["dataset"]): f"{float(row['mean']) - float(row['paper']):+.1f}" for row in rows}
    lines = [["", *AUTHORS], ["---", *["--:"] * len(AUTHORS)]]
    for label in dict.fromkeys(row["label"] for row in rows):
        lines.append([label, *(cells.get((label, dataset), "") for dataset in AUTHORS)])
    return markdown_table(lines)


def form_table(study: str, judged: str, column: str) -> str:
    """Markdown table of a column, in percent, of each method as published / hardened / at NSEG's size; size and cost."""
    if not (HERE / "results" / f"{study}-forms.csv").exists():
        return f"`docs/results/{study}-forms.csv` is not made yet.\n"
    rows = [row for row in read_results(f"{study}-forms") if row["judged"] == judged]
    datasets = [name for name in _each(rows, "dataset") if any(r["dataset"] == name and r[column] for r in rows)]
    lines = [["", *datasets, "kept", "ms"], ["---", *["--:"] * (len(datasets) + 2)]]
    most = {name: max(int(row["instances"]) for row in rows if row["dataset"] == name) for name in datasets}
    for label in _each(rows, "label"):
        mine = [row for row in rows if row["label"] == label and row["dataset"] in most]
        cells = [_forms([r for r in mine if r["dataset"] == name], column, 100) for name in datasets]
        few = " \\*" if any(int(row["instances"]) < most[row["dataset"]] for row in mine) else ""
        lines.append([label + few, *cells, _forms(mine, "kept"), _forms(mine, "cpu_ms")])
    made = ", ".join(_each(rows, "commit"))
    counts = ", ".join(f"{name} {number}" for name, number in most.items())
    return markdown_table(lines) + f"\nInstances: {counts}; \\* fewer. `docs/results/{study}-forms.csv`, commit {made}.\n"


def _forms(rows: list[Row], column: str, scale: float = 1) -> str:
    """The mean of a column in each form."""
    means = [[float(row[column]) for row in rows if row["form"] == form and row[column]] for form in _each(rows, "form")]
    return " / ".join(f"{scale * fmean(values):.1f}" for values in means if values)


def _each(rows: list[Row], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows))


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


# --- tables of any page --------------------------------------------------------------------------------------------------


def file_table(kind: str, name: str, spec: str) -> str:
    """Markdown table of a file in benchmarks/results, and its commit."""
    if not (BENCHMARKS / f"{name}.csv").exists():
        return f"`benchmarks/results/{name}.csv` is not made yet.\n"
    columns, _, conditions = spec.partition(" if ")
    wanted = dict(one.split("=") for one in conditions.split(" and ")) if conditions else {}
    rows = [
        row for row in read_results(name, BENCHMARKS) if all(row[key] in value.split("|") for key, value in wanted.items())
    ]
    made = ", ".join(sorted({row.get("commit") or "unknown" for row in rows}))
    table = (row_lines if kind == "rows" else pivot_lines)(rows, columns.split())
    return markdown_table(table) + f"\n`benchmarks/results/{name}.csv`, commit {made}.\n"


def row_lines(rows: list[Row], columns: list[str]) -> list[list[str]]:
    """A line for each row with other cells than the rows before it."""
    lines = [[column.replace("_", " ") for column in columns], ["---"] * len(columns)]
    return lines + [list(line) for line in dict.fromkeys(tuple(short(row[name]) for name in columns) for row in rows)]


def pivot_lines(rows: list[Row], columns: list[str]) -> list[list[str]]:
    """A line for each value of the first column, a column for each value of the second, cells of the others."""
    down, across, *values = columns
    heads = list(dict.fromkeys(row[across] for row in rows))
    cells = {(row[down], row[across]): " / ".join(short(row[name]) for name in values) for row in rows}
    title = " / ".join(name.replace("_", " ") for name in values)
    lines = [[title, *heads], ["---", *["--:"] * len(heads)]]
    return lines + [
        [one, *(cells.get((one, head), "") for head in heads)] for one in dict.fromkeys(row[down] for row in rows)
    ]


def short(value: str) -> str:
    """A number with few digits; of a list of texts the first.

    >>> short("0.98163"), short("1076.17"), short("400"), short("house | star")
    ('0.982', '1,076', '400', 'house')
    """
    try:
        number = float(value)
    except ValueError:
        return value.split(" | ", maxsplit=1)[0].replace("|", r"\|")
    if number.is_integer() or abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.3f}" if abs(number) < 10 else f"{number:.1f}"


def switch_table() -> str:
    """The README's comparison with GNNExplainer."""
    ours, theirs = read_results("switch", BENCHMARKS)
    case = {"dataset": "ba-shapes", "network": "gcn", "masks": "e", "effort": "balanced"}
    (speed,) = [row for row in read_results("speed", BENCHMARKS) if case.items() <= row.items()]
    molecules = f"{ours['instances']} molecules of Mutagenicity, GCN, bonds deleted"
    numbers = [
        [f"Necessary *and* sufficient (PNS bound; {molecules})", *(f"{float(one['pns']):.2f}" for one in (ours, theirs))],
        ["Bonds that the explanation keeps (the same molecules)", *(f"{float(one['bonds']):.0f}" for one in (ours, theirs))],
        [
            "Milliseconds per explanation (BA-Shapes, one thread; PyG's GNNExplainer, 100 epochs)",
            *(f"{float(speed['ms']):.1f}", f"{float(speed['pyg_ms']):.0f}"),
        ],
    ]
    lines = [[what, f"**{one}**", other] for what, one, other in numbers]
    return markdown_table([["", "NSEG", "GNNExplainer"], ["---", "--:", "--:"], *lines])


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
    took = [float(row["seconds"]) for row in read_results("made", BENCHMARKS) if row["job"] == "fidelity-gcn"]
    clock = f"{took[0] / 60:.0f} minutes by the clock on two cores, " if took else ""
    return (
        f"**Cost.** NSEG by deletion takes {ours} ms per prediction in small batches like those of the race, the best "
        f"hardened rankings {hardened} ms, the best methods as published {published} ms. On whole datasets it is "
        f"{min(faster):.1f} to {max(faster):.0f} times as fast as PyG's GNNExplainer (`benchmarks/results/speed.csv`). "
        f"The whole GCN table took {clock}{facts['cpu_seconds_of_trials'] / 60:.0f} minutes of processor time."
    )


if __name__ == "__main__":
    for page in (*HERE.glob("*.md"), HERE.parent / "README.md"):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
