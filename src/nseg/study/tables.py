"""Scores as tables: for the terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from nseg.study.summary import Score, column_title

NOTES = (
    "Shares in percent: mean over seeds, ± standard deviation between seeds, [95 % bootstrap interval over instances]. "
    "Bold: the best, and every method whose interval overlaps it. Trivial methods compete; sparsity and time are not "
    "ranked, nor are methods that explain only some of the instances. Second line: the paper's number, and our difference "
    "to it. soft: soft masks; hard: the method's own hard explanation; cut: soft masks cut at 0.5. Masks weight messages; "
    "removed: the hard explanation (or the cut masks) with edges deleted. Fidelity is by label. Never read charact without "
    "sparsity: the whole graph scores high."
)


@dataclass(frozen=True)
class Cell:
    """A score as the texts of a table cell."""

    text: str
    spread: str = ""
    interval: str = ""
    paper: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A titled table with a row per method."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def tables(scores: Sequence[Score]) -> list[Table]:
    """A table per dataset and architecture, with methods and columns in the order of the scores."""
    groups: dict[tuple[str, str], list[Score]] = defaultdict(list)
    for score in scores:
        groups[score.dataset, score.architecture].append(score)
    found = []
    for (dataset, architecture), group in groups.items():
        columns = list(dict.fromkeys(score.column for score in scores))
        columns = [column for column in columns if any(score.column == column for score in group)]
        cells = {(score.label, score.column): cell(score) for score in group}
        labels = list(dict.fromkeys(score.label for score in group))
        total = max(score.instances for score in group)
        incomplete = {score.label: score.instances for score in group if score.instances < total}
        rows = tuple(
            (
                label + (f" ({incomplete[label]} instances)" if label in incomplete else ""),
                tuple(cells.get((label, column), Cell("")) for column in columns),
            )
            for label in labels
        )
        seeds = max(score.seeds for score in group)
        title = f"{dataset}, {architecture.upper()}: {total} instances, {seeds} seed{'s' if seeds > 1 else ''}"
        found.append(Table(title, tuple(column_title(column) for column in columns), rows))
    return found


def tables_of_column(scores: Sequence[Score], column: str) -> list[Table]:
    """One column of all datasets side by side, in a table per architecture."""
    found = []
    for architecture in dict.fromkeys(score.architecture for score in scores):
        group = [score for score in scores if score.architecture == architecture and score.column == column]
        names = list(dict.fromkeys(score.dataset for score in group))
        cells = {(score.label, score.dataset): cell(score) for score in group}
        labels = list(dict.fromkeys(score.label for score in group))
        rows = tuple((label, tuple(cells.get((label, name), Cell("")) for name in names)) for label in labels)
        found.append(Table(f"{column_title(column)}, {architecture.upper()}", tuple(names), rows))
    return found


FORM_NOTES = (
    "Hard explanations of edges, each rival three times from the same soft masks of the same run (the first seed). As "
    "published: with its own settings and cut. Hardened: its ranking, followed by the search that makes NSEG's hard "
    "explanations, with NSEG's settings. Equal size: the top of its ranking, as many edges as NSEG keeps of the same "
    "instance. Rivals are hardened, and NSEG sets the size, under the intervention that the table is about, each direction "
    "of an edge by itself; as published, all but NSEG searched by deletion were cut under masks. About 50 instances of each "
    "dataset, evenly over all; methods that explain only some have fewer (the CSV file says how many). Cells: mean PNS in "
    "percent (kept edges; processor milliseconds per instance, on one thread). Milliseconds are of the same parts for all: "
    "training, scoring, and making a hard explanation of the scores, which at equal size takes no time. Cutting subgraphs, "
    "numbers and checks, which every method needs, are left out."
)
FORM_TITLES = {"mask": "judged under masks", "remove": "judged by deletion"}


def forms_section(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown of all forms of each method, in a table per architecture and intervention."""
    found = []
    for architecture, judged in product(_different(rows, "architecture"), FORM_TITLES):
        here = [row for row in rows if (row["architecture"], row["judged"]) == (architecture, judged)]
        names = _different(here, "dataset")
        cells = {(row["label"], row["form"], row["dataset"]): form_cell(row) for row in here}
        lines = dict.fromkeys((row["label"], row["form"]) for row in here)
        body = tuple((", ".join(line), tuple(cells.get((*line, name), Cell("")) for name in names)) for line in lines)
        found.append(Table(f"PNS of each form, {architecture.upper()}, {FORM_TITLES[judged]}", tuple(names), body))
    return f"{FORM_NOTES}\n\n{markdown(found)}\n"


def form_cell(row: dict[str, Any]) -> Cell:
    """The table cell of a form: mean PNS, kept edges and milliseconds.

    >>> form_cell({"pns": 0.9876, "kept": 12.34, "cpu_ms": 5.5}).text
    '98.8 (12.3; 5.5 ms)'
    """
    return Cell(f"{100 * row['pns']:.1f} ({row['kept']:.1f}; {row['cpu_ms']:.1f} ms)")


def _different(rows: Sequence[dict[str, Any]], name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def cell(score: Score) -> Cell:
    """The table cell of a score: mean, spread, interval and the paper's number.

    >>> cell(Score("d", "gcn", "m", "soft.pns", 99.84, 0.1, 99.0, 100.0, 5, 9, True, 99.0))
    Cell(text='99.8', spread='±0.1', interval='[99, 100]', paper='paper 99.0 (+0.8)', best=True)
    """
    if score.column == "seconds":
        return Cell(f"{score.mean:.4f}")
    spread = "" if score.std is None else f"±{score.std:.1f}"
    ends = (f"{end:.1f}".removesuffix(".0") for end in (score.low, score.high))
    paper = "" if score.paper is None else f"paper {score.paper:.1f} ({score.difference:+.1f})"
    return Cell(f"{score.mean:.1f}", spread, f"[{', '.join(ends)}]", paper, score.best)


def terminal(table: Table) -> RichTable:
    """A table for the terminal."""
    shown = RichTable(title=table.title, show_lines=True)
    shown.add_column("method", min_width=14)
    for column in table.columns:
        shown.add_column(column, no_wrap=False, justify="right")
    for label, cells in table.rows:
        shown.add_row(label, *(_rich_cell(one) for one in cells))
    return shown


def _rich_cell(one: Cell) -> Text:
    text = Text(one.text, style="bold" if one.best else "").append(f" {one.spread}" if one.spread else "", style="not bold")
    for part in filter(None, (one.interval, one.paper)):
        text.append(f"\n{part}", style="not bold dim")
    return text


def markdown(found: Sequence[Table]) -> str:
    """Tables as Markdown, a section each."""
    parts = []
    for table in found:
        lines = [["method", *table.columns], ["---", *["--:"] * len(table.columns)]]
        lines += [[label, *(_markdown_cell(one) for one in cells)] for label, cells in table.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"### {table.title}\n\n{body}\n")
    return "\n".join(parts)


def _markdown_cell(one: Cell) -> str:
    text = f"**{one.text}**" if one.best else one.text
    return "<br>".join(filter(None, (" ".join(filter(None, (text, one.spread, one.interval))), one.paper)))


def latex(found: Sequence[Table]) -> str:
    """Tables as LaTeX, which needs the packages booktabs and makecell."""
    parts = ["% needs \\usepackage{booktabs,makecell}"]
    for table in found:
        rows = [" & ".join(["method", *map(_escape, table.columns)]) + r" \\ \midrule"]
        rows += [" & ".join([_escape(label), *(_latex_cell(one) for one in cells)]) + r" \\" for label, cells in table.rows]
        body = "\n".join(rows)
        parts.append(
            "\\begin{table}\n\\caption{" + _escape(table.title) + "}\n\\begin{tabular}{l" + "r" * len(table.columns) + "}\n"
            "\\toprule\n" + body + "\n\\bottomrule\n\\end{tabular}\n\\end{table}\n"
        )
    return "\n".join(parts)


def _latex_cell(one: Cell) -> str:
    text = f"\\textbf{{{one.text}}}" if one.best else one.text
    parts = [
        " ".join([text, _escape(one.spread)]).strip(),
        *map(_escape, filter(None, (one.interval, one.paper))),
    ]
    return parts[0] if len(parts) == 1 else "\\makecell[r]{" + r" \\ ".join(f"{{{part}}}" for part in parts) + "}"


def _escape(text: str) -> str:
    r"""Text with LaTeX's special characters escaped.

    >>> _escape("cf_gnnexplainer, 5 %")
    'cf\\_gnnexplainer, 5 \\%'
    """
    for sign in "&%$#_{}":
        text = text.replace(sign, "\\" + sign)
    return text.replace("±", "$\\pm$")


def as_csv(scores: Sequence[Score], commit: str = "") -> str:
    """All scores as CSV, a row each, with the commit that made them if there is one."""
    rows = [{**asdict(score), "difference": score.difference} for score in scores]
    return rows_as_csv(with_commit(rows, commit), [field.name for field in fields(Score)])


def with_commit(rows: Sequence[dict[str, Any]], commit: str) -> list[dict[str, Any]]:
    """Rows with the commit that made them as their last column, if there is one."""
    return [{**row, "commit": commit} if commit else row for row in rows]


def rows_as_csv(rows: Sequence[dict[str, Any]], first_columns: Sequence[str] = ()) -> str:
    """Rows as CSV; ``first_columns`` come first, also if there is no row."""
    columns = list(dict.fromkeys([*first_columns, *(name for row in rows for name in row)]))
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return file.getvalue()
