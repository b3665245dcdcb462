"""``nseg export``: stored explanations as CSV or JSON, with names, weights and values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nseg.cli.name_files import ClassNames, FeatureNames, NodeNames, read_names
from nseg.errors import InputError

ROWS = ("explanations", "elements")


def export(
    run: Annotated[Path, typer.Argument(help="Folder of 'nseg explain --out', or of explain_many(..., out=...).")],
    csv: Annotated[bool, typer.Option("--csv", help="Write CSV (the default).")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write JSON: all explanations with their elements.")] = False,
    rows: Annotated[str, typer.Option(help="A row of CSV is one of: explanations, elements (kept edges, ...).")] = ROWS[0],
    out: Annotated[Path | None, typer.Option(help="File to write. Default: standard output.")] = None,
    names: NodeNames = None,
    class_names: ClassNames = None,
    feature_names: FeatureNames = None,
) -> None:
    """Write stored explanations as CSV or JSON; columns are documented on the page Export."""
    if csv and json:
        raise InputError("Choose one of --csv and --json (got both).")
    if rows not in ROWS:
        raise InputError(f"--rows must be {' or '.join(ROWS)} (got {rows!r}).")
    if out is not None and not out.absolute().parent.is_dir():
        raise InputError(f"--out must be a file in a folder that exists (got {out}).")
    given = read_names(names, class_names, feature_names)
    from nseg.runs.stored import Explanations

    stored = Explanations(run)
    if given:
        stored = stored.renamed(**given)
    text = stored.to_json(out) if json else stored.to_csv(out, "elements" if rows == "elements" else "explanations")
    if out is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"Wrote {len(stored)} explanations to {out}.", err=True)
