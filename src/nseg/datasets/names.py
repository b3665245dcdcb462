"""Names of the datasets; imports without torch."""

from __future__ import annotations

from nseg.errors import InputError

NAMES = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motif", "mutagenicity", "msrc-21")
"""Datasets of the paper."""

REGRESSIONS = ("esol",)
"""Further datasets, whose networks predict a value."""

HETERO_NAMES = ("dblp",)
"""Heterogeneous graphs, which the paper does not have."""


ALL = (*NAMES, *REGRESSIONS, *HETERO_NAMES)


def check_name(name: str) -> None:
    """Raise unless a dataset of that name exists."""
    if name not in ALL:
        raise InputError(f"There is no dataset of that name (got {name!r}). Known: {', '.join(ALL)}.")
