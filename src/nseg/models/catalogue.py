"""The architectures and the manifest of the pre-trained networks; imports without torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from nseg.errors import InputError

ARCHITECTURES = ("gcn", "gin")
HETERO_ARCHITECTURES = ("hgt", "sage")
"""Networks of heterogeneous graphs."""

FOLDER = Path(__file__).parent / "pretrained"


def check_architecture(name: str) -> None:
    """Raise unless an architecture of that name exists."""
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"There is no architecture of that name (got {name!r}). Known: {known}.")


@cache
def manifest() -> dict[str, Any]:
    """How each network was trained, by ``"dataset/architecture"``: seed, settings, split, accuracy, versions, hash."""
    entries: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text())
    return entries
