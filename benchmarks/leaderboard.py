"""The page of the race, ``docs/results/leaderboard.md``, from the rows of ``race.csv``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

FORMS = ("as published", "hardened", "equal size")
JUDGED = ("remove", "mask")
"""What explanations are searched and judged under."""

TITLES = {"remove": "Judged by deletion", "mask": "Judged under masks"}
MEANS = ("pns", "fid_plus", "fid_minus", "charact")
SHARED = ("sparsity", "size", "robust_charact", "tuned_charact", "budget_necessity")
OLD = "It was raced before the table had all of its columns; race it again."

HOW = """\
# Leaderboard

Made by `python benchmarks/race.py` from `benchmarks/results/race.csv`, which has every number for each network; do not edit.

Each method runs up to three times on the same predictions: *as published*, with its paper's settings and its own cut;
*hardened*, its ranking followed by the search that makes NSEG's hard explanations, with NSEG's default settings, under the
intervention that the table is about; and at *equal size*, the top of that ranking, as many edges as NSEG keeps of the same
instance. Methods that publish a ranking without a cut are cut at the prefix with the best PNS under masks. NSEG as published
is the paper's, hardened it is the default of this package. Cells are mean PNS, then the mean number of kept edges (both
directions of an edge are two). Means are over the networks of the row; rows that lack a network come last. PNS, Fid+,
charact: higher is better. Fid-, size and milliseconds: lower is better. Read charact beside sparsity: keeping everything has
a high one. *Robust* is charact of robust fidelity, *tuned* that of F-Fidelity, on a network fine-tuned on thinned graphs,
both under masks. *Five* is the share of predictions that change if the first five edges of an explanation are deleted.
*Area* is the mean height of charact of the ranking's top edges while 10 to 90 % of the edges are left out, so that sizes
are equal. *n* is the number of explained instances: methods that take seconds explain every eighth, so compare their means
with care.
Milliseconds are of processor time per instance, on one thread, with training; of *equal size*, what the ranking takes.
"""

OWN = '''\
## Add your own method

Write a class with one method, `solve`, that scores elements. Hard explanations, both directions of an edge, batches, numbers
and checks are shared by all methods. In `my_method.py`:

```python
import torch

from nseg.explain.algorithm import BatchedAlgorithm
from nseg.search.harden import SearchResult
from nseg.search.parts import EDGES, Masks
from nseg.search.settings import BaseSettings


class MyMethod(BatchedAlgorithm):
    """Scores an edge by the degree of its receiver."""

    Settings = BaseSettings

    def solve(self, causal, parts, tick):
        """Scores between 0 and 1, one per element."""
        graph = causal.instances  # x, edge_index, edge_owner (the instance of each edge), ...
        degree = torch.bincount(graph.edge_index[1], minlength=graph.num_nodes).to(causal.dtype)
        score = degree[graph.edge_index[1]] / degree.max().clamp_min(1)
        element = parts.edges.element  # the element of each edge: itself, or both directions as one
        mean = score.new_zeros(parts.edges.shape).scatter_reduce(0, element, score, "mean", include_self=False)
        tick()
        return SearchResult(Masks({EDGES: mean}))
```

`causal.log_odds(parts.to_weights(masks))` asks the model about masks, with gradients. A method that must be trained has
`fit(explainer, data, index, progress=False)`; one with settings for each dataset has `paper(dataset, **changes)`. To race an
explainer of PyG, subclass `nseg.baselines.pyg.PyGMethod` and return it from `algorithm`. Then:

```sh
python benchmarks/race.py --methods nseg --method my_method.py:MyMethod
```

`module:Class` works for installed packages. Rows are kept, so a run that was stopped goes on where it was, and other methods
are not run again at the same commit.
'''

Row = Mapping[str, Any]


def write_leaderboard(page: Path, rows: Sequence[Row], agreement: Sequence[Row] = ()) -> None:
    """Write the page."""
    page.parent.mkdir(parents=True, exist_ok=True)
    rows = [row if _is_complete(row) else {**row, "size": "", "note": OLD} for row in rows]
    parts = [HOW, *(_section(judged, rows) for judged in JUDGED), _agreement(rows), _pairs(agreement), _left_out(rows), OWN]
    page.write_text("\n".join(parts), encoding="utf-8")


def _section(judged: str, rows: Sequence[Row]) -> str:
    """The table of one intervention: a line per method and form, best mean PNS first."""
    scored = [row for row in rows if _is_scored(row) and (row["searched"] == judged or row["form"] == FORMS[0])]
    networks = list(dict.fromkeys((row["dataset"], row["network"]) for row in scored))
    lines: dict[tuple[str, str], dict[tuple[str, str], Row]] = {}
    for row in scored:
        lines.setdefault((row["method"], row["form"]), {})[row["dataset"], row["network"]] = row
    order = sorted(lines, key=lambda one: (-len(lines[one]), -_mean(f"{judged}_pns", lines[one].values())))
    head = [
        *(
            "method",
            "form",
            "n",
            "PNS",
            "Fid+",
            "Fid-",
            "charact",
            "sparsity",
            "size",
            "robust",
            "tuned",
            "five",
            "area",
            "ms",
        )
    ]
    head += [f"{dataset} {network.upper()}" for dataset, network in networks]
    body = [head, ["---", "---"] + ["--:"] * (len(head) - 2)]
    names = [*(f"{judged}_{name}" for name in MEANS), *SHARED, f"{judged}_area", "cpu_ms"]
    for line in order:
        found = lines[line]
        means = [f"{_mean(name, found.values()):.{1 if name in ('size', 'cpu_ms') else 3}f}" for name in names]
        cells = [_cell(judged, found[one]) if one in found else "" for one in networks]
        body.append([*line, str(sum(int(row["instances"]) for row in found.values())), *means, *cells])
    most = {row["dataset"]: row["instances"] for row in sorted(scored, key=lambda row: int(row["instances"]))}
    counts = [f"{dataset} {number}" for dataset, number in sorted(most.items())]
    made = ", ".join(sorted({str(row["commit"]) for row in scored}))
    table = [f"| {' | '.join(one)} |" for one in body]
    return "\n".join([f"## {TITLES[judged]}", "", *table, "", f"Instances: {', '.join(counts)}. Commit {made}.", ""])


def _agreement(rows: Sequence[Row]) -> str:
    """How much the explanations of each method overlap with those of NSEG's default."""
    found: dict[str, dict[tuple[str, str], list[Row]]] = {}
    for row in rows:
        if _is_scored(row):
            found.setdefault(row["method"], {}).setdefault((row["form"], row["searched"]), []).append(row)
    columns = [(FORMS[0], "mask"), *((form, searched) for searched in JUDGED for form in FORMS[1:])]
    body = [["method", FORMS[0], *(f"{form}, {searched}" for form, searched in columns[1:])], ["---"] + ["--:"] * 5]
    for method, forms in found.items():
        cells = [f"{_mean('agrees_with_nseg', forms[one]):.2f}" if one in forms else "" for one in columns]
        body.append([method, *cells])
    table = "\n".join(f"| {' | '.join(one)} |" for one in body)
    return f"""\
## Agreement with NSEG

Mean Jaccard index of the kept edges with those of NSEG's default under the same intervention (as published: masks). It says
how much methods agree, not which is right.

{table}
"""


def _pairs(agreement: Sequence[Row]) -> str:
    """How much the explanations of each pair of methods overlap: as published, and hardened under deletion."""
    parts = []
    for form in (f"{FORMS[0]}, mask", f"{FORMS[1]}, remove"):
        values = {(row["method"], row["other"]): f"{row['agreement']:.2f}" for row in agreement if row["form"] == form}
        names = list(dict.fromkeys(name for pair in values for name in pair))
        body = [["", *names], ["---"] + ["--:"] * len(names)]
        body += [[one, *(values.get((one, b), values.get((b, one), "")) for b in names)] for one in names]
        parts += [f"### {form[0].upper()}{form[1:]}", "", *(f"| {' | '.join(line)} |" for line in body), ""]
    return "\n".join(
        [
            *("## Agreement between methods", ""),
            "Mean Jaccard index of the kept edges of each pair, over the instances that both explain. Other forms, and over",
            "how many networks: `benchmarks/results/agreement.csv`.",
            *("", *parts),
        ]
    )


def _is_complete(row: Row) -> bool:
    """Whether a row has every column of the tables, or is only a note."""
    needed = [*SHARED, "cpu_ms", "agrees_with_nseg", *(f"{judged}_{name}" for judged in JUDGED for name in (*MEANS, "area"))]
    return not _is_scored(row) or all(row.get(name) not in (None, "") for name in needed)


def _is_scored(row: Row) -> bool:
    return bool(row.get("size", "") != "")


def _cell(judged: str, row: Row) -> str:
    return f"{float(row[f'{judged}_pns']):.3f} ({float(row['size']):.1f})"


def _mean(name: str, rows: Iterable[Row]) -> float:
    return fmean(float(row[name]) for row in rows)


def _left_out(rows: Sequence[Row]) -> str:
    """Methods that cannot explain a network, and why."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row.get("note", ""):
            notes.setdefault(f"{row['method']}: {row['note']}", []).append(f"{row['dataset']} {row['network'].upper()}")
    lines = [f"- {note} ({', '.join(where)})" for note, where in notes.items()]
    return "\n".join(["## Not in the tables", "", *(lines or ["Nothing."]), ""])
