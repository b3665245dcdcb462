"""Names of objectives and their surrogates, without importing torch.

The classes are in :mod:`nseg.search.objective`.
"""

SURROGATES: dict[str, tuple[str, ...]] = {
    "pns": ("log", "gap"),
    "pn": ("log", "gap", "ratio"),
    "ps": ("log", "gap", "ratio"),
}
"""Surrogates that each objective can be climbed by."""
