"""Names from the command line: a CSV or JSON file, or a few names with commas; imports without torch."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from nseg.errors import InputError

NodeNames = Annotated[
    str | None, typer.Option("--names", help="Names of the nodes: a CSV or JSON file with all in order, or number,name.")
]
ClassNames = Annotated[str | None, typer.Option(help="Names of the classes: a CSV or JSON file, or legit,fraud.")]
FeatureNames = Annotated[str | None, typer.Option(help="Names of the features: a CSV or JSON file, or amount,risk.")]

HEADERS = {"name", "names", "node", "feature", "class", "node_name", "feature_name", "class_name", "label"}
"""First lines of a CSV file with one column that are no names."""


def read_names(node: str | None, classes: str | None, features: str | None) -> dict[str, Any]:
    """Return the names that the options give, as :func:`nseg.explain_many` takes them."""
    given = {"node_names": ("names", node), "class_names": ("class-names", classes)}
    given["feature_names"] = ("feature-names", features)
    return {key: _read(option, value) for key, (option, value) in given.items() if value is not None}


def _read(option: str, given: str) -> Any:
    path = Path(given)
    if not path.is_file():
        if "," in given and path.suffix.lower() not in (".csv", ".json"):
            return [name.strip() for name in given.split(",")]
        raise InputError(f"--{option} must be a CSV or JSON file, or names with commas (got {given!r}, which is no file).")
    try:
        text = path.read_text(encoding="utf-8-sig")
        return json.loads(text) if path.suffix.lower() == ".json" else _from_csv(text, option, path.name)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"--{option} must be a readable CSV or JSON file (got {path.name}: {error}). Try a file with one name per line."
        ) from None


def _from_csv(text: str, option: str, name: str) -> list[str] | dict[int, str]:
    """Names in order from one column or one line, or by number from two columns; a header is skipped."""
    rows = [row for row in csv.reader(text.splitlines()) if row]
    widths = {len(row) for row in rows}
    if len(rows) == 1 and len(rows[0]) > 1 and not rows[0][0].strip().isdigit():
        return [one.strip() for one in rows[0]]
    if rows and widths == {1}:
        return [row[0] for row in (rows[1:] if rows[0][0].strip().lower() in HEADERS else rows)]
    numbered = rows[1:] if rows and not rows[0][0].strip().isdigit() else rows
    if not rows or widths != {2} or not all(row[0].strip().isdigit() for row in numbered):
        raise InputError(
            f"--{option} must have one column with all names, or two: number,name (got {name} with {len(rows)} "
            f"row{'' if len(rows) == 1 else 's'} of {' or '.join(map(str, sorted(widths))) or 'no'} columns)."
        )
    return {int(number): label for number, label in numbered}
