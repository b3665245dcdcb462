"""Objectives: what is climbed, what explanations are compared by, and when one is valid.

A new objective is one class here and one line in :mod:`nseg.search.catalogue`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from nseg.search import formulas
from nseg.search.settings import BaseSettings

Surrogate = Callable[[Tensor, Tensor, Sequence[float], int], Tensor]
"""From log-odds in the factual world [P, B] and the complement worlds [P, A, S, B], the split and the step to [P, B]."""


class Objective(ABC):
    """What a method maximises.

    Args:
        surrogate: name of the function that is climbed in place of the merit.
    """

    surrogates: ClassVar[Mapping[str, Surrogate]]

    def __init__(self, surrogate: str = "log") -> None:
        self.surrogate = surrogate

    def climb(self, z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
        """The surrogate, a differentiable function of log-odds, [P, B]."""
        return self.surrogates[self.surrogate](z_factual, z_complement, split, step)

    def propose(self, z_factual: Tensor, z_complement: Tensor, split: Sequence[float]) -> Tensor:
        """Function whose gradient proposes moves of hard explanations, [P, B]; the merit then decides."""
        return formulas.climb_log_gap(z_factual, z_complement, split, 0)

    @abstractmethod
    def merit(self, p_factual: Tensor, p_complement: Tensor) -> Tensor:
        """What explanations are compared by; higher is better."""

    @abstractmethod
    def valid(self, keeps: Tensor, remains: Tensor) -> Tensor:
        """Whether an explanation does what the objective asks for.

        Args:
            keeps: share of the rows that have their class with the explanation alone.
            remains: share of the rows that still have it without the explanation.
        """


class PNS(Objective):
    """Necessary and sufficient: keeps the class, and the class changes without it."""

    surrogates: ClassVar = {"log": formulas.climb_log_gap, "gap": formulas.climb_gap}

    def merit(self, p_factual: Tensor, p_complement: Tensor) -> Tensor:
        return formulas.gap(p_factual, p_complement)

    def valid(self, keeps: Tensor, remains: Tensor) -> Tensor:
        return (keeps == 1) & (remains == 0)


class PN(Objective):
    """Necessary: the class changes without it."""

    surrogates: ClassVar = {
        "log": formulas.climb_log_necessity,
        "gap": formulas.climb_necessity,
        "ratio": formulas.climb_pn_ratio,
    }

    def merit(self, p_factual: Tensor, p_complement: Tensor) -> Tensor:
        return (formulas.pn_bound if self.surrogate == "ratio" else formulas.necessity)(p_factual, p_complement)

    def valid(self, keeps: Tensor, remains: Tensor) -> Tensor:
        return remains == 0


class PS(Objective):
    """Sufficient: keeps the class."""

    surrogates: ClassVar = {
        "log": formulas.climb_log_sufficiency,
        "gap": formulas.climb_sufficiency,
        "ratio": formulas.climb_ps_ratio,
    }

    def merit(self, p_factual: Tensor, p_complement: Tensor) -> Tensor:
        return (formulas.ps_bound if self.surrogate == "ratio" else formulas.sufficiency)(p_factual, p_complement)

    def valid(self, keeps: Tensor, remains: Tensor) -> Tensor:
        return keeps == 1


OBJECTIVES: dict[str, type[Objective]] = {"pns": PNS, "pn": PN, "ps": PS}
"""Objectives by the names of :data:`nseg.search.catalogue.SURROGATES`."""


def objective_of(settings: BaseSettings) -> Objective:
    """The objective that settings name."""
    name, surrogate = settings.goal
    return OBJECTIVES[name](surrogate)
