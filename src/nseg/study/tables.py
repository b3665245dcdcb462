"""Lines to tables: for the terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from nseg.study.summary import Line, head

NOTES = (
    "Shares in percent: mean over seeds, ± standard deviation between seeds, [95 % bootstrap interval over instances]; "
    "bold: no method's interval lies beyond it (trivial methods compete, sparsity and time do not; methods that explain "
    "only some of the instances are left out). Below it the paper's number and how far ours is from it. soft: masks as "
    "they are; hard: the method's own hard explanation; cut: what is above 0.5 in the soft mask. Fidelity is by label; "
    "masks weigh messages and nothing is removed. Never read charact without sparsity: the whole graph scores high."
)


@dataclass(frozen=True)
class Cell:
    """A number as it is shown."""

    text: str
    spread: str = ""
    interval: str = ""
    paper: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """One dataset and architecture: a row per method."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def tables(lines: Sequence[Line]) -> list[Table]:
    """A table per dataset and architecture, methods and columns in the order of the lines."""
    groups: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.dataset, line.architecture].append(line)
    found = []
    for (dataset, architecture), some in groups.items():
        columns = list(dict.fromkeys(line.column for line in lines))
        columns = [column for column in columns if any(line.column == column for line in some)]
        cells = {(line.label, line.column): cell(line) for line in some}
        labels = list(dict.fromkeys(line.label for line in some))
        full = max(line.instances for line in some)
        few = {line.label: line.instances for line in some if line.instances < full}
        rows = tuple(
            (
                label + (f" ({few[label]} instances)" if label in few else ""),
                tuple(cells.get((label, column), Cell("")) for column in columns),
            )
            for label in labels
        )
        seeds = max(line.seeds for line in some)
        title = f"{dataset}, {architecture.upper()}: {full} instances, {seeds} seed{'s' if seeds > 1 else ''}"
        found.append(Table(title, tuple(head(column) for column in columns), rows))
    return found


def across(lines: Sequence[Line], column: str) -> list[Table]:
    """One column of all datasets beside each other, a table per architecture."""
    found = []
    for architecture in dict.fromkeys(line.architecture for line in lines):
        some = [line for line in lines if line.architecture == architecture and line.column == column]
        names = list(dict.fromkeys(line.dataset for line in some))
        cells = {(line.label, line.dataset): cell(line) for line in some}
        labels = list(dict.fromkeys(line.label for line in some))
        rows = tuple((label, tuple(cells.get((label, name), Cell("")) for name in names)) for label in labels)
        found.append(Table(f"{head(column)}, {architecture.upper()}", tuple(names), rows))
    return found


def cell(line: Line) -> Cell:
    """A number with its spread and the paper's.

    >>> cell(Line("d", "gcn", "m", "soft.pns", 99.84, 0.1, 99.0, 100.0, 5, 9, True, 99.0))
    Cell(text='99.8', spread='±0.1', interval='[99, 100]', paper='paper 99.0 (+0.8)', best=True)
    """
    if line.column == "seconds":
        return Cell(f"{line.mean:.4f}")
    spread = "" if line.std is None else f"±{line.std:.1f}"
    ends = (f"{end:.1f}".removesuffix(".0") for end in (line.low, line.high))
    paper = "" if line.paper is None else f"paper {line.paper:.1f} ({line.difference:+.1f})"
    return Cell(f"{line.mean:.1f}", spread, f"[{', '.join(ends)}]", paper, line.best)


def terminal(table: Table) -> RichTable:
    """For a terminal."""
    made = RichTable(title=table.title, show_lines=True)
    made.add_column("method", min_width=14)
    for column in table.columns:
        made.add_column(column, no_wrap=False, justify="right")
    for label, cells in table.rows:
        made.add_row(label, *(_rich(one) for one in cells))
    return made


def _rich(one: Cell) -> Text:
    text = Text(one.text, style="bold" if one.best else "").append(f" {one.spread}" if one.spread else "", style="not bold")
    for part in filter(None, (one.interval, one.paper)):
        text.append(f"\n{part}", style="not bold dim")
    return text


def markdown(found: Sequence[Table]) -> str:
    """A section per table."""
    parts = []
    for table in found:
        lines = [["method", *table.columns], ["---", *["--:"] * len(table.columns)]]
        lines += [[label, *(_markdown(one) for one in cells)] for label, cells in table.rows]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"### {table.title}\n\n{body}\n")
    return "\n".join(parts)


def _markdown(one: Cell) -> str:
    text = f"**{one.text}**" if one.best else one.text
    return "<br>".join(filter(None, (" ".join(filter(None, (text, one.spread, one.interval))), one.paper)))


def latex(found: Sequence[Table]) -> str:
    """A booktabs table per table; needs the packages booktabs and makecell."""
    parts = ["% needs \\usepackage{booktabs,makecell}"]
    for table in found:
        rows = [" & ".join(["method", *map(_escaped, table.columns)]) + r" \\ \midrule"]
        rows += [" & ".join([_escaped(label), *(_latex(one) for one in cells)]) + r" \\" for label, cells in table.rows]
        body = "\n".join(rows)
        parts.append(
            "\\begin{table}\n\\caption{" + _escaped(table.title) + "}\n\\begin{tabular}{l" + "r" * len(table.columns) + "}\n"
            "\\toprule\n" + body + "\n\\bottomrule\n\\end{tabular}\n\\end{table}\n"
        )
    return "\n".join(parts)


def _latex(one: Cell) -> str:
    text = f"\\textbf{{{one.text}}}" if one.best else one.text
    parts = [" ".join([text, _escaped(one.spread)]).strip(), *map(_escaped, filter(None, (one.interval, one.paper)))]
    return parts[0] if len(parts) == 1 else "\\makecell[r]{" + r" \\ ".join(f"{{{part}}}" for part in parts) + "}"


def _escaped(text: str) -> str:
    r"""Text as LaTeX shows it.

    >>> _escaped("cf_gnnexplainer, 5 %")
    'cf\\_gnnexplainer, 5 \\%'
    """
    for sign in "&%$#_{}":
        text = text.replace(sign, "\\" + sign)
    return text.replace("±", "$\\pm$")


def as_csv(lines: Sequence[Line]) -> str:
    """All lines, one number each, in full."""
    return rows_as_csv([{**asdict(line), "difference": line.difference} for line in lines], [f.name for f in fields(Line)])


def rows_as_csv(rows: Sequence[dict[str, Any]], heads: Sequence[str] = ()) -> str:
    """Plain rows as CSV."""
    columns = list(dict.fromkeys([*heads, *(name for row in rows for name in row)]))
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return file.getvalue()
