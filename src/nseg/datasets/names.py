"""Names of the datasets; imports without torch."""

from __future__ import annotations

from nseg.errors import InputError

NAMES = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motif", "mutagenicity", "msrc-21")
"""Datasets of the paper."""

REGRESSIONS = ("esol",)
"""Further datasets, whose networks predict a value."""


def check_name(name: str) -> None:
    """Raise unless a dataset of that name exists."""
    if name not in (*NAMES, *REGRESSIONS):
        known = ", ".join((*NAMES, *REGRESSIONS))
        raise InputError(f"There is no dataset of that name (got {name!r}). Known: {known}.")
