"""The architectures and the manifest of the pre-trained networks; imports without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nseg.datasets.names import HETERO_NAMES
from nseg.errors import InputError

ARCHITECTURES = ("gcn", "gin")
HETERO_ARCHITECTURES = ("hgt", "sage")
"""Networks of heterogeneous graphs."""

FOLDER = Path(__file__).parent / "pretrained"


def check_architecture(name: str, known: Sequence[str] = ARCHITECTURES) -> None:
    """Raise unless an architecture of that name exists."""
    if name not in known:
        raise InputError(f"There is no architecture of that name (got {name!r}). Known: {', '.join(known)}.")


def choose_architecture(name: str | None, dataset: str | None) -> str:
    """The architecture of that name, checked; without a name the first one that there is for the dataset.

    >>> choose_architecture(None, "dblp")
    'hgt'
    """
    known = HETERO_ARCHITECTURES if dataset in HETERO_NAMES else ARCHITECTURES
    check_architecture(known[0] if name is None else name, known)
    return known[0] if name is None else name


@cache
def manifest() -> dict[str, Any]:
    """How each network was trained, by ``"dataset/architecture"``: seed, settings, split, accuracy, versions, hash."""
    entries: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text())
    return entries
