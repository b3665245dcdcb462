"""Colours that people with any kind of colour vision tell apart (Okabe and Ito, 2008)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

KEPT = "#0072B2"
BAND = "#9CCBE8"
FAINT = "#C9CDD2"
TRUTH = "#F0C808"
INK = "#1F2328"
QUIET = "#6B7280"
PLAIN = "#8A929B"

PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#D55E00", "#CC79A7", "#882255", "#44AA99", "#332288", "#999933")
"""For groups; the blue of Okabe and Ito is that of what is kept. The last four are Tol's, for those who have many."""

ATOMS = {"N": "#0072B2", "O": "#D55E00", "S": "#8A6A00", "P": "#B86E00"} | dict.fromkeys(("F", "Cl", "Br", "I"), "#00795A")
"""As chemists have them, or near; atoms that are not here are black."""


def of_groups(groups: Sequence[int]) -> dict[int, str]:
    """A colour for each group that is present: its own where the palette is enough, else the most frequent have one.

    >>> of_groups([1, 1, 0, -1])
    {0: '#E69F00', 1: '#56B4E9'}
    """
    number = Counter(group for group in groups if group >= 0)
    if not number or max(number) < len(PALETTE):
        return {group: PALETTE[group] for group in sorted(number)}
    common = sorted(number, key=lambda group: (-number[group], group))
    return {group: PALETTE[place] if place < len(PALETTE) else PLAIN for place, group in enumerate(common)}
