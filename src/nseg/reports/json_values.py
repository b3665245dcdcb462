"""Numbers as the page's JSON holds them."""

from __future__ import annotations

import math
from typing import Any

from nseg.wording import DECIMALS

JsonObject = dict[str, Any]
"""A dictionary that JSON can hold."""


def rounded(value: Any) -> float | None:
    """A number as the page holds it; None if it is unknown or not finite.

    The page writes numbers by the rules of :mod:`nseg.wording`, so it needs the decimals that those rules start from.

    >>> rounded(0.123456789), rounded(float("nan")), rounded(None)
    (0.123457, None, None)
    """
    return None if value is None or not math.isfinite(value) else round(float(value), DECIMALS)
