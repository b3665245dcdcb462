"""How far an answer is, and whether anybody still waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event


class Stopped(BaseException):  # not an error, and no ``except Exception`` on the way may take it for one
    """The person no longer waits for the answer."""


@dataclass
class Work:
    """How far an answer is, and whether anybody still waits for it.

    Args:
        stop: set when the person has moved on.
        share: share of the search that is done.
        asked: how often the model was asked.
    """

    stop: Event = field(default_factory=Event)
    share: float = 0.0
    asked: int = 0

    def ask(self) -> None:
        """The model is asked once more; raises :class:`Stopped` if nobody waits."""
        self.asked += 1
        if self.stop.is_set():
            raise Stopped

    def advance(self, share: float) -> None:
        """A share of the search is done."""
        self.share = share
