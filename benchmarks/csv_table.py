"""Results of a benchmark as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nseg.storage.commit import code_commit


def write_table(path: Path | None, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one line per row; columns are in the order in which rows name them first, missing values are empty.

    Rows that name no commit get that of the code. Without a path nothing is written.
    """
    if path is None:
        return
    known = [dict(row) for row in rows]
    for row in known:
        row["commit"] = row.pop("commit", None) or code_commit() or ""  # the last column
    columns = [name for name in dict.fromkeys(name for row in known for name in row) if name != "commit"]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*columns, "commit"], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(known)
