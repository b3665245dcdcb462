"""Colours that people with any kind of colour vision can tell apart (Okabe and Ito, 2008)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

KEPT = "#0072B2"
"""Kept edges."""

BAND = "#9CCBE8"
"""Band behind the kept bonds of a molecule."""

FAINT = "#C9CDD2"
"""Edges that are not kept."""

TRUTH = "#F0C808"
"""Ground truth."""

INK = "#1F2328"
"""Outlines and text."""

QUIET = "#6B7280"
"""Secondary text."""

NEUTRAL = "#8A929B"
"""Nodes without a group colour."""

PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#D55E00", "#CC79A7", "#882255", "#44AA99", "#332288", "#999933")
"""Group colours: Okabe and Ito's without their blue, which marks kept edges; the last four are Paul Tol's."""

ATOMS = {"N": "#0072B2", "O": "#D55E00", "S": "#8A6A00", "P": "#B86E00"} | dict.fromkeys(("F", "Cl", "Br", "I"), "#00795A")
"""Atom colours close to the chemical convention; atoms that are not listed are black."""


def group_colours(groups: Sequence[int]) -> dict[int, str]:
    """Colour of each group that occurs.

    Group ``n`` has colour ``n`` of the palette. If there are more groups than colours, the most frequent groups get a
    colour and the others are neutral. Negative groups have no colour.

    >>> group_colours([1, 1, 0, -1])
    {0: '#E69F00', 1: '#56B4E9'}
    """
    count = Counter(group for group in groups if group >= 0)
    if not count or max(count) < len(PALETTE):
        return {group: PALETTE[group] for group in sorted(count)}
    by_frequency = sorted(count, key=lambda group: (-count[group], group))
    return {group: PALETTE[rank] if rank < len(PALETTE) else NEUTRAL for rank, group in enumerate(by_frequency)}
