"""Which message passing steps follow on which others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor


class StepChain:
    """Watches message passing steps in a forward pass with gradients, and finds which depend on which.

    Steps of several edge types, or of parallel branches, do not depend on each other: what counts for how far a message
    goes is the longest chain of steps, not their number.
    """

    def __init__(self) -> None:
        self._step_of: dict[Any, int] = {}  # by autograd node of a step's output
        self._open: list[int] = []
        self._opaque: set[int] = set()
        self._earlier: list[set[int]] = []

    def begin(self, arguments: dict[str, Any]) -> None:
        """A step begins, with these arguments of ``propagate``."""
        self._open.append(len(self._earlier))
        self._earlier.append(self._opaque | self._steps_behind(arguments))

    def end(self, output: Any) -> None:
        """The step that began last ends."""
        step = self._open.pop()
        nodes = [tensor.grad_fn for tensor in _tensors(output)]
        if not nodes or any(node is None for node in nodes):
            self._opaque.add(step)  # a step whose output has no gradient may be used by any later one
        self._step_of |= {node: step for node in nodes if node is not None}

    @property
    def after(self) -> list[int]:
        """For each step, the number of later steps in the longest chain that begins with it."""
        after = [0] * len(self._earlier)
        for step in reversed(range(len(self._earlier))):
            for earlier in self._earlier[step]:
                after[earlier] = max(after[earlier], after[step] + 1)
        return after

    def _steps_behind(self, arguments: dict[str, Any]) -> set[int]:
        """The latest steps that some values were computed from."""
        pending = [tensor.grad_fn for tensor in _tensors(list(arguments.values()))]
        seen: set[Any] = set()
        found: set[int] = set()
        while pending:
            node = pending.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node in self._step_of:
                found.add(self._step_of[node])
            else:
                pending += [one for one, _ in node.next_functions]
        return found


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
