"""Numbers as people read them: probabilities to the nearest thousandth, bounds rounded so that they stay true."""

from __future__ import annotations

import math
from collections.abc import Callable

DECIMALS = 6
"""Decimal places that a probability in single precision is worth. Texts are made of numbers rounded to this many."""

TINY = 1e-6
"""Thousandths that the product of 1000 and a number of six decimals may be off."""


def probability_text(value: float) -> str:
    """A probability with three decimals, rounded to the nearest, halves up.

    >>> probability_text(0.9364), probability_text(0.0625)
    ('0.936', '0.063')
    """
    return _thousandths(value, lambda n: math.floor(n + 0.5))


def bound_text(value: float) -> str:
    """A lower bound with three decimals, rounded down so that it stays a lower bound.

    >>> bound_text(0.8379), bound_text(0.84), bound_text(0.9999999)
    ('0.837', '0.840', '1.000')
    """
    return _thousandths(value, lambda n: math.floor(n + TINY))


def upper_bound_text(value: float) -> str:
    """An upper bound with three decimals, rounded up so that it stays an upper bound.

    >>> upper_bound_text(0.8371), upper_bound_text(0.84)
    ('0.838', '0.840')
    """
    return _thousandths(value, lambda n: math.ceil(n - TINY))


def _thousandths(value: float, whole: Callable[[float], int]) -> str:
    return f"{whole(1000 * round(float(value), DECIMALS)) / 1000:.3f}" if math.isfinite(value) else "unknown"


def plural(number: int, word: str) -> str:
    """A number and a word.

    >>> plural(1, "edge"), plural(0, "edge")
    ('1 edge', '0 edges')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"
