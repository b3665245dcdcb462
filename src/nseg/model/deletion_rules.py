"""What the compiled kernel must know of a network whose edges are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class DegreeData:
    """What degrees consist of, see ``Degrees`` of pass.h; ``receiver`` is the row of ``edge_index`` that counts."""

    receiver: int
    weight: Tensor | None
    loops: Tensor
    outside: Tensor
    loose: Tensor | None


@dataclass(frozen=True)
class Deletion:
    """How the messages of a step change where edges are deleted.

    Args:
        degrees: number of the degrees that they are divided by; -1 if they are not.
        factor: what they are multiplied by besides, [M]; None for 1.
        mean: whether they are averaged.
    """

    degrees: int = -1
    factor: Tensor | None = None
    mean: bool = False


class DeletionRules(Protocol):
    """Knows how messages change where edges are deleted (:class:`nseg.model.rescaling.RescaledMessages`)."""

    def degree_data(self) -> list[DegreeData]: ...
    def deletions(self) -> list[Deletion]: ...
