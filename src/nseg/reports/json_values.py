"""Numbers as the page's JSON holds them."""

from __future__ import annotations

import math
from typing import Any

DIGITS = 4
"""Decimal places of numbers in the page."""

JsonObject = dict[str, Any]
"""A dictionary that JSON can hold."""


def rounded(value: Any) -> float | None:
    """A number as the page holds it; None if it is unknown or not finite.

    >>> rounded(0.123456), rounded(float("nan")), rounded(None)
    (0.1235, None, None)
    """
    return None if value is None or not math.isfinite(value) else round(float(value), DIGITS)
