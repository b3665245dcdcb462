"""Results of a benchmark as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_table(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one line per row; columns are in the order in which rows name them first, missing values are empty."""
    known = list(rows)
    columns = list(dict.fromkeys(name for row in known for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(known)
