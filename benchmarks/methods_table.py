"""The results of ``methods.py`` as CSV files, and as a Markdown page."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from authors import GRAPHS, METRICS
from csv_table import write_table
from why import TEXT

from nseg.storage.commit import code_commit

Row = dict[str, str | int | float]
LARGE_DIFFERENCE = 5  # percentage points; larger differences to the paper are bold, and explained
COLUMNS = {
    "Fid+": "{}_fid_plus",
    "Fid-": "{}_fid_minus",
    "charact": "{}_charact",
    "sparsity": "{}_sparsity",
}
PAPER_METRICS = dict(zip(METRICS, ("Fid+", "Fid-", "charact", "Recall@K", "ROC-AUC"), strict=True))

COMMANDS = """\
    NSEG_DATA=... python benchmarks/methods.py --paper results.csv --out benchmarks/results/methods.csv
    NSEG_DATA=... python benchmarks/methods.py --same-epochs --out benchmarks/results/methods.csv
    NSEG_DATA=... python benchmarks/methods.py --why --paper results.csv --out benchmarks/results/methods.csv
"""

INTRODUCTION = """\
- **Instances**: motif nodes (from 300, 511 and 511) of the authors' GCNs of BA-Shapes, Tree-Cycles and Tree-Grid (400, 360
  and 720); the paper's 250 graphs of Mutagenicity and MSRC_21, on the GCNs that this project trained. *n* is how many were
  explained: all, or with `--every 7` (as in `all_results.py`) every seventh.
  `exhaustive` explains only instances that are reached by at most 16 undirected edges (no row: no such instance). It
  treats both directions of an edge as one, so that methods that separate directions can exceed it. PyG's own
  GNNExplainer explains a few instances.
- **Settings**: `nseg` uses its defaults; `nseg (paper)` and the rivals use the paper's settings for the dataset if the
  paper has any, else their defaults. Column `settings` of `methods.csv` lists what differs from the defaults. Edge masks
  only.
- **Fidelity** is by label, in percent; masks weight messages, no edge is deleted. *soft*: soft masks. *hard*: the
  method's own hard explanation. *cut*: soft masks cut at 0.5. *sparsity*: share of the reached edges that is left out.
  *PNS*: mean lower bound of the hard explanations. Never read charact without sparsity: `all` scores high.
- **Recall@K** and **ROC-AUC** are given by both definitions of `authors.py`: the K best undirected edges / the 2K best
  directed edges, and the mean of the areas of all instances / one area of all pooled edges. Mutagenicity has the first
  of each, MSRC_21 has no ground truth.
- **kept**: number of directed edges in the hard explanation. **ms**: milliseconds per instance in total, with all
  instances in one call on one thread of a shared machine; they include PGExplainer's training, divided by the number of
  instances. PyG's GNNExplainer is called once per instance.
"""


class CsvTable:
    """A CSV file that is complete after every row; a new row replaces the row with the same key.

    Args:
        path: the file; rows of the same commit are kept. None: nothing is written.
        key: names of the columns that identify a row.
    """

    def __init__(self, path: Path | None, key: tuple[str, ...]) -> None:
        self.path, self.key = path, key
        self.rows: dict[tuple[str, ...], Row] = {
            self._key(row): row for row in (read(path) if path else []) if row.get("commit") == code_commit()
        }

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.key)

    def put(self, row: Row) -> None:
        """Add a row and write the file."""
        if self.path is None:
            return
        self.rows[self._key(row)] = row
        write_table(self.path, self.rows.values())


def read(path: Path) -> list[Row]:
    """The rows of a CSV file; none if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [dict(row) for row in csv.DictReader(file)]


# --- the page ----------------------------------------------------------------------------------------------------------


def write_page(out: Path) -> None:
    """Write the CSV files next to ``out`` as one Markdown page."""
    rows, speed, why = (read(out.with_name(f"{out.stem}{suffix}.csv")) for suffix in ("", "_speed", "_why"))
    versions = sorted({str(row["made_with"]) for row in rows + speed + why})
    seeds = ", ".join(sorted({str(row["seed"]) for row in rows}))
    parts = ["# Every method on the same instances\n", f"Written by `benchmarks/methods.py`:\n\n{COMMANDS}"]
    parts.append(f"- **Made with** {'; '.join(versions)}; one thread; seed {seeds} only.\n{INTRODUCTION}")
    for name, group in by_dataset(rows).items():
        parts += [f"## {name}\n", markdown(["method", "n", *scores_header()], [scores_row(row) for row in group])]
    parts += ["## Compared with the paper\n", paper_table(rows)]
    if speed:
        parts += ["## Speed, for the same number of epochs\n", speed_table(speed)]
    if why:
        parts += [
            "## Differences to the paper, and their causes\n",
            TEXT.format_map(evidence(why)),
            "### The checks\n",
            check_table(why),
        ]
    out.with_suffix(".md").write_text("\n".join(parts))


def by_dataset(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row["dataset"])].append(row)
    return found


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table with numbers aligned to the right."""
    rule = ["---", *["--:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *rows]) + "\n"


def number(row: Row, name: str, digits: int = 1, factor: float = 1) -> str:
    value = row.get(name, "")
    return "" if value == "" else f"{factor * float(value):.{digits}f}"


def scores_header() -> list[str]:
    kinds = [f"{kind} {column}" for kind in ("soft", "hard", "cut") for column in COLUMNS]
    return [*kinds, "PNS", "Recall@K", "ROC-AUC", "kept", "ms"]


def scores_row(row: Row) -> list[str]:
    kinds = [number(row, name.format(kind)) for kind in ("soft", "hard", "cut") for name in COLUMNS.values()]
    pairs = [("recall_at_k", "recall_at_k (directed)"), ("roc_auc", "roc_auc (pooled)")]
    truth = [" / ".join(filter(None, (number(row, name) for name in pair))) for pair in pairs]
    last = [number(row, "hard_pns"), *truth, number(row, "kept_edges"), number(row, "seconds", 1, 1000)]
    return [str(row["method"]), str(row["instances"]), *kinds, *last]


def paper_table(rows: list[Row]) -> str:
    """Our scores with their differences to the paper; large differences are bold."""
    lines = []
    for row in rows:
        known = [metric for metric in METRICS if row.get(f"difference_{metric}", "") != ""]
        if known:
            cells = [compared_score(row, metric) if metric in known else "" for metric in METRICS]
            lines.append([f"{row['dataset']}, {row['method']}", *cells])
    text = (
        f"Our number (difference to the paper's in percentage points; bold beyond {LARGE_DIFFERENCE}). Soft masks. Recall@K "
        "is of the 2K best directed edges and ROC-AUC is pooled; for Mutagenicity they are of K undirected edges and "
        "averaged. "
        "Recall@K of pgm_explainer is over nodes."
    )
    return f"{text}\n\n{markdown(['', *PAPER_METRICS.values()], lines)}"


def compared_score(row: Row, metric: str) -> str:
    difference = float(row[f"difference_{metric}"])
    text = f"{float(row[f'paper_{metric}']) + difference:.1f} ({difference:+.1f})"
    return f"**{text}**" if abs(difference) > LARGE_DIFFERENCE else text


def speed_table(rows: list[Row]) -> str:
    text = (
        "Milliseconds per instance: all instances in one batched call, compared with one call of PyG's GNNExplainer per "
        "instance for the same number of epochs, in one run on one thread. PyG returns soft masks only; *soft* is our time "
        "for these (hard masks are cut at 0.5), *with hard* includes the search for the best prefix, which is the default. "
        "`nseg` searches from three starts, stops early when it no longer improves, and improves hard explanations by moves."
    )
    lines = [
        [
            f"{row['dataset']}, {row['method']}",
            str(row["epochs"]),
            str(row["instances"]),
            number(row, "pyg_seconds", 0, 1000),
            number(row, "seconds_soft", 1, 1000),
            number(row, "seconds", 1, 1000),
            number(row, "times_faster_soft", 0),
            number(row, "times_faster", 0),
        ]
        for row in rows
    ]
    header = ["", "epochs", "n", "ms PyG", "ms soft", "ms with hard", "times faster, soft", "times faster, with hard"]
    return f"{text}\n\n{markdown(header, lines)}"


def evidence(rows: list[Row]) -> dict[str, str]:
    """The numbers of each check on the three graphs, by the key in the text; with " paper" appended, the paper's numbers."""
    found: dict[str, str] = defaultdict(lambda: "?")
    for key, group in by_key(rows).items():
        found[key] = " / ".join(number(row, "value", 2) for row in group)
        found[f"{key} paper"] = " / ".join(number(row, "paper", 2) or "?" for row in group)
    return found


def by_key(rows: list[Row]) -> dict[str, list[Row]]:
    order, found = list(GRAPHS), defaultdict(list)
    for row in sorted(rows, key=lambda row: order.index(str(row["dataset"]))):
        found[str(row["key"])].append(row)
    return found


def check_table(rows: list[Row]) -> str:
    lines = []
    for group in by_key(rows).values():
        paper = [number(row, "paper", 2) for row in group]
        ours = [number(row, "value", 2) for row in group]
        lines.append(
            [f"{group[0]['what']}: {group[0]['metric']}", *ours, str(group[0]["row"]), " / ".join(filter(None, paper))]
        )
    return markdown(["", *GRAPHS, "the paper's row", "the paper's number"], lines)
