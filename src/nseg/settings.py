"""What every explainer can be told: flat, frozen, checked when made; a misspelt name is a ``TypeError``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from torch import Tensor

from nseg import objective as obj
from nseg.errors import SettingsError

Check = Callable[[Any], str | None]
"""Says what must hold if it does not."""


def number(default: float, least: float = 0, most: float = math.inf) -> Any:
    """A setting that is a number between bounds."""

    def check(value: Any) -> str | None:
        good = (
            isinstance(value, Real)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and least <= float(value) <= most
        )
        if good:
            return None
        if math.isfinite(most):
            return f"between {least} and {most}"
        return "a number" if least == -math.inf else f"a number of at least {least}" if least else "a non-negative number"

    return field(default=default, metadata={"check": check, "try": default})


def whole(default: int | None, least: int | None = 0, optional: bool = False) -> Any:
    """A setting that is a whole number, or None if that is its default or allowed."""

    def check(value: Any) -> str | None:
        good = isinstance(value, Integral) and not isinstance(value, bool) and (least is None or int(value) >= least)
        if good or (value is None and (default is None or optional)):
            return None
        return "a whole number" if least is None else f"a whole number of at least {least}"

    return field(default=default, metadata={"check": check, "try": 10 if default is None else default})


def one_of(default: str, known: Sequence[str]) -> Any:
    """A setting that is one of some names."""

    def check(value: Any) -> str | None:
        return None if value in known else f"one of {', '.join(map(repr, known))}"

    return field(default=default, metadata={"check": check, "try": repr(default)})


def yes_or_no(default: bool) -> Any:
    """A setting that is true or false."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, bool) else "True or False"

    return field(default=default, metadata={"check": check, "try": default})


@dataclass(frozen=True, kw_only=True)
class Common:
    """What all explainers share: how the hard explanation is made of the soft one, and how it is judged.

    Args:
        split: probability of the sub-events 00, 01, 10 of a joint complement (Eq. 11).
        undirected: give both directions of an edge one weight.
        extract: how the hard explanation is made: ``"prefix"``, ``"threshold"`` or ``"topk"``.
        threshold: for ``"threshold"``.
        k: for ``"topk"``, how many edges (and nodes).
        tolerance: how much of the bound may be given up for an explanation that keeps the class and without which it
            changes, and for a smaller one.
        rounds: for ``"prefix"``, how often moves (drop, add, exchange) are looked for at the most; 0: none.
        exact: for ``"prefix"``, up to how many elements all subsets are tried instead.
        connected: for ``"prefix"``, let the explanation grow from the explained node (or the strongest edge of a graph), so
            that its edges hang together; no moves are made then.
        seed: equal seeds give equal masks, alone or in any batch.
    """

    split: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    undirected: bool = yes_or_no(False)
    extract: str = one_of("prefix", ("prefix", "threshold", "topk"))
    threshold: float = number(0.5, 0, 1)
    k: int | None = whole(None)
    tolerance: float = number(0.05)
    rounds: int = whole(0)
    exact: int = whole(0)
    connected: bool = yes_or_no(False)
    seed: int = whole(0, None)

    def __post_init__(self) -> None:
        for one in fields(self):
            check: Check = one.metadata.get("check", lambda value: None)
            must = check(getattr(self, one.name))
            if must is not None:
                raise SettingsError(
                    f"{one.name} must be {must} (got {getattr(self, one.name)!r}). Try {one.metadata['try']}."
                )
        parts = tuple(self.split) if isinstance(self.split, Iterable) else ()
        if (
            len(parts) != 3
            or not all(isinstance(p, Real) and not isinstance(p, bool) and p >= 0 for p in parts)
            or not math.isclose(sum(parts), 1, abs_tol=1e-6)
        ):
            raise SettingsError(
                f"split must be three non-negative numbers that sum to 1 (got {self.split}). Try (1/3, 1/3, 1/3)."
            )
        object.__setattr__(self, "split", parts)
        if self.extract == "topk" and self.k is None:
            raise SettingsError("k must be a whole number of at least 0 where extract='topk' (got None). Try 10.")

    def merit(self, p_factual: Tensor, p_complement: Tensor) -> Tensor:
        """What hard explanations are compared by; the higher the better."""
        return obj.gap(p_factual, p_complement)

    def valid(self, factual: Tensor, complement: Tensor) -> Tensor:
        """Whether an explanation does what it says, from the share of rows that have their class with and without it.

        Among subsets within ``tolerance`` of the best bound, one that keeps and changes the class goes before others.
        """
        return (factual == 1) & (complement == 0)

    def surrogate_of(self, z_factual: Tensor, z_complement: Tensor, split: Sequence[float]) -> Tensor:
        """What stands for the merit where a gradient is needed."""
        return obj.climb_log_gap(z_factual, z_complement, split, 0)

    def as_plain_data(self) -> dict[str, Any]:
        """The settings as JSON would keep them."""
        plain = {one.name: getattr(self, one.name) for one in fields(self)}
        return {k: list(v) if isinstance(v, tuple) else repr(v) if callable(v) else v for k, v in plain.items()}
