"""Agreement of each pair of methods of the race, from the edges that each keeps.

Kept edges are files in a folder beside the table, so that a race that was stopped can still compare what ran before with
what runs after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

from nseg.explanation import Explanation

Row = Mapping[str, Any]
Kept = dict[str, list[int]]
"""The kept edges of each instance."""


def _file(folder: Path, row: Row) -> Path:
    return folder / "-".join(str(row[name]) for name in ("dataset", "network", "method", "seed", "commit"))


def keep_edges(folder: Path, head: Row, found: Sequence[Explanation]) -> None:
    """Note which edges the explanations of a row keep."""
    folder.mkdir(parents=True, exist_ok=True)
    path = _file(folder, head)
    known: dict[str, Kept] = json.loads(path.read_text()) if path.exists() else {}
    edges = {str(int(one.output_id)): one.edge_id[one.hard_edge_mask].tolist() for one in found}
    path.write_text(json.dumps(known | {f"{head['form']}, {head['searched']}": edges}))


def pairs_of_methods(folder: Path, rows: Iterable[Row], commit: str) -> list[dict[str, Any]]:
    """Mean agreement of each pair by form: of instances that both explain, then over the networks."""
    kept: dict[tuple[str, str], dict[str, dict[str, Kept]]] = {}
    for row in rows:
        path = _file(folder, row)
        if row["commit"] == commit and path.exists():
            kept.setdefault((row["dataset"], row["network"]), {})[row["method"]] = json.loads(path.read_text())
    found: dict[tuple[str, str, str], list[float]] = {}
    for methods in kept.values():
        for one, other in combinations(sorted(methods), 2):
            for form in methods[one].keys() & methods[other].keys():
                found.setdefault((form, one, other), []).append(jaccard(methods[one][form], methods[other][form]))
    return [
        {"form": form, "method": one, "other": other, "networks": len(values), "agreement": round(fmean(values), 4)}
        for (form, one, other), values in sorted(found.items())
    ]


def jaccard(one: Kept, other: Kept) -> float:
    """Mean Jaccard index of the kept edges of the instances that both have; 1 where both keep nothing.

    >>> jaccard({"7": [1, 2], "8": []}, {"7": [2, 3], "8": [], "9": [4]})
    0.6666666666666666
    """
    pairs = [(set(one[number]), set(other[number])) for number in one.keys() & other.keys()]
    return fmean(len(a & b) / len(a | b) if a | b else 1.0 for a, b in pairs)
