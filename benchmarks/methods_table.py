"""Records of ``methods.py`` as CSV, row by row, and as a page to read."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from authors import GRAPHS, METRICS
from why import TEXT

Row = dict[str, str | int | float]
FAR = 5  # points from the paper that are marked, and explained
COLUMNS = {
    "Fid+": "{}_fid_plus",
    "Fid-": "{}_fid_minus",
    "charact": "{}_charact",
    "sparsity": "{}_sparsity",
}
OF_PAPER = dict(zip(METRICS, ("Fid+", "Fid-", "charact", "Recall@K", "ROC-AUC"), strict=True))

COMMANDS = """\
    NSEG_DATA=... python benchmarks/methods.py --paper results.csv --out benchmarks/results/methods.csv
    NSEG_DATA=... python benchmarks/methods.py --same-epochs --out benchmarks/results/methods.csv
    NSEG_DATA=... python benchmarks/methods.py --why --paper results.csv --out benchmarks/results/methods.csv
"""

HEAD = """\
- **Instances**: all motif nodes (from 300, 511 and 511) of the authors' GCNs of BA-Shapes, Tree-Cycles and Tree-Grid;
  the paper's 250 graphs of Mutagenicity and MSRC_21, on the GCNs that this project trained. *n* says how many;
  `exhaustive` explains only those with at most 16 undirected edges within reach (no row: none), and both directions of
  an edge as one, so that directions apart can exceed it; PyG's own GNNExplainer a few.
- **Settings**: `nseg` has its defaults, `nseg (paper)` and the rivals the paper's settings of the dataset if the paper
  has any, else their defaults; column `settings` of `methods.csv` says what is not default. Edge masks only.
- **Fidelity** is by label, in percent; masks weigh messages, nothing is removed. *soft*: masks as they are. *hard*: the
  method's own hard explanation. *cut*: what is above 0.5 in the soft mask. *sparsity*: share of the edges within reach
  that is left out. *PNS*: mean lower bound of the hard explanations. Never read charact without sparsity: `all` scores
  high.
- **Recall@K** and **ROC-AUC** are given in both readings of `authors.py`: the K best undirected edges / the 2K best
  directed ones, and the mean of the instances' areas / one area of all pooled. Mutagenicity has the first of each,
  MSRC_21 no truth.
- **kept**: directed edges in the hard explanation. **ms**: milliseconds per instance with everything, all instances at
  once on one thread of a shared machine; PGExplainer's training is in it, spread over the instances; PyG's is called
  once per instance.
"""


class Sheet:
    """A CSV file that is whole after every row; a row replaces the one with the same key.

    Args:
        path: the file; what is in it already is kept. None: rows are not kept.
        key: columns that tell rows apart.
    """

    def __init__(self, path: Path | None, key: tuple[str, ...]) -> None:
        self.path, self.key = path, key
        self.rows: dict[tuple[str, ...], Row] = {self._key(row): row for row in (read(path) if path else [])}

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in self.key)

    def put(self, row: Row) -> None:
        """Add a row and write the file."""
        if self.path is None:
            return
        self.rows[self._key(row)] = row
        columns = list(dict.fromkeys(name for one in self.rows.values() for name in one))
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(self.rows.values())


def read(path: Path) -> list[Row]:
    """The rows of a CSV file; none if there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [dict(row) for row in csv.DictReader(file)]


# --- the page ----------------------------------------------------------------------------------------------------------


def write_page(out: Path) -> None:
    """Write what the CSV files beside ``out`` hold as Markdown."""
    rows, speed, why = (read(out.with_name(f"{out.stem}{suffix}.csv")) for suffix in ("", "_speed", "_why"))
    made = sorted({str(row["made_with"]) for row in rows + speed + why})
    seeds = ", ".join(sorted({str(row["seed"]) for row in rows}))
    parts = ["# Every method on the same instances\n", f"Written by `benchmarks/methods.py`:\n\n{COMMANDS}"]
    parts.append(f"- **Made with** {'; '.join(made)}; one thread; seed {seeds} only.\n{HEAD}")
    for name, some in grouped(rows).items():
        parts += [f"## {name}\n", markdown(["method", "n", *scores_header()], [scores_row(row) for row in some])]
    parts += ["## Beside the paper\n", beside_the_paper(rows)]
    if speed:
        parts += ["## Speed, for the same number of epochs\n", speed_table(speed)]
    if why:
        parts += [
            "## Where the paper differs, and why\n",
            TEXT.format_map(evidence(why)),
            "### The checks\n",
            check_table(why),
        ]
    out.with_suffix(".md").write_text("\n".join(parts))


def grouped(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row["dataset"])].append(row)
    return found


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """A table; numbers are set to the right."""
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


def beside_the_paper(rows: list[Row]) -> str:
    """Our number, and in brackets how far it is from the paper's; bold where that is far."""
    lines = []
    for row in rows:
        known = [metric for metric in METRICS if row.get(f"difference_{metric}", "") != ""]
        if known:
            cells = [against(row, metric) if metric in known else "" for metric in METRICS]
            lines.append([f"{row['dataset']}, {row['method']}", *cells])
    text = (
        f"Ours (difference to the paper's number, in points; bold beyond {FAR}). Soft masks; Recall@K of the 2K best "
        "directed edges and ROC-AUC pooled, but of K undirected ones and averaged for Mutagenicity, and Recall@K of nodes "
        "for pgm_explainer."
    )
    return f"{text}\n\n{markdown(['', *OF_PAPER.values()], lines)}"


def against(row: Row, metric: str) -> str:
    difference = float(row[f"difference_{metric}"])
    text = f"{float(row[f'paper_{metric}']) + difference:.1f} ({difference:+.1f})"
    return f"**{text}**" if abs(difference) > FAR else text


def speed_table(rows: list[Row]) -> str:
    text = (
        "Milliseconds per instance of all instances batched against one call of PyG's GNNExplainer per instance for as many "
        "epochs, in one run on one thread. PyG's gives soft masks only; *soft* is the same of ours (hard masks are a cut at "
        "0.5), *with hard* has the search for the best prefix too, which is their default. `nseg` searches from three "
        "starts, leaves early where it gets no further, and improves hard explanations by moves."
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
    """What the text calls a check, with its numbers on the three graphs; with " paper" behind it, the paper's."""
    found: dict[str, str] = defaultdict(lambda: "?")
    for key, some in by_key(rows).items():
        found[key] = " / ".join(number(row, "value", 2) for row in some)
        found[f"{key} paper"] = " / ".join(number(row, "paper", 2) or "?" for row in some)
    return found


def by_key(rows: list[Row]) -> dict[str, list[Row]]:
    order, found = list(GRAPHS), defaultdict(list)
    for row in sorted(rows, key=lambda row: order.index(str(row["dataset"]))):
        found[str(row["key"])].append(row)
    return found


def check_table(rows: list[Row]) -> str:
    lines = []
    for some in by_key(rows).values():
        paper = [number(row, "paper", 2) for row in some]
        ours = [number(row, "value", 2) for row in some]
        lines.append(
            [f"{some[0]['what']}: {some[0]['metric']}", *ours, str(some[0]["row"]), " / ".join(filter(None, paper))]
        )
    return markdown(["", *GRAPHS, "the paper's row", "the paper's number"], lines)
