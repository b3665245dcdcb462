"""Every answer that metrics get from the model is verified: asked again without shortcuts.

The same question is put to a causal model without shortcuts that depend on the explanation, for all explanations or for a
random sample of them. Where the two disagree, a plain pass of the caller's whole graph decides, and if the fast answer is
wrong, all are asked plainly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from nseg.metrics.groups import EvaluatedGroup
from nseg.metrics.sources import ModelSource
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome
from nseg.model.strategy import PLAIN

SAMPLE = 32
"""Explanations that are verified in worlds other than those of their own masks, and alone on the whole graph."""

SAMPLED_MEMBERS = 100_000
"""Nodes and edges of a graph up to which the whole sample is verified plainly; fewer of larger graphs."""


class Asking(Protocol):
    """What asks the model about explanations."""

    explanations: list[Any]
    source: ModelSource
    outcome: Outcome

    def group(self, numbers: Tensor, causal: CausalModel) -> EvaluatedGroup:
        """Some explanations on a causal model that has an instance for each."""

    def reference_group(self, numbers: Tensor) -> EvaluatedGroup | None:
        """Some explanations on a causal model without shortcuts that depend on the explanation; None if there is none."""

    def plain_groups(self) -> Iterator[EvaluatedGroup]:
        """The explanations one by one, each on the caller's whole graph, one world at a time."""

    def in_order(self, values: list[Tensor], dim: int = 0, groups: Sequence[EvaluatedGroup] | None = None) -> Tensor:
        """Values of all groups in the order of the explanations."""


Question = Callable[[EvaluatedGroup], Tensor]
"""Asks the model about some explanations in K worlds, [K, b, ...]."""


def sample_of(number: int, size: int) -> Tensor:
    """Some of a number of explanations, drawn at random, sorted."""
    return torch.randperm(number, generator=torch.Generator().manual_seed(0), device="cpu")[:size].sort().values


def is_right(evaluator: Asking, groups: Sequence[EvaluatedGroup], question: Question) -> bool:
    """Whether groups answer as the references do, and as plain passes do for a sample and wherever in doubt."""
    found = evaluator.in_order([question(group) for group in groups], 1, groups)
    numbers = torch.arange(len(evaluator.explanations), device=found.device)
    doubtful = numbers[~_agrees(evaluator, question, numbers, evaluator.reference_group(numbers), found)]
    size = max(2, min(SAMPLE, SAMPLE * SAMPLED_MEMBERS // max(evaluator.source.members, 1)))
    chosen = torch.unique(torch.cat([sample_of(len(numbers), size).to(numbers.device), doubtful]))
    return _plainly_right(evaluator, question, chosen, found)


def ask(evaluator: Asking, question: Question, in_full: bool, groups: Sequence[EvaluatedGroup]) -> Tensor:
    """The answer for all explanations, [K, B, ...]: that of the groups, or that of plain passes if it is wrong.

    Args:
        evaluator: whose explanations they are.
        question: what is asked.
        in_full: verify all explanations, not only a sample.
        groups: all explanations.
    """
    try:
        found = evaluator.in_order([question(group) for group in groups], 1, groups)
        if all(group.causal.strategy == PLAIN for group in groups):
            return found
        number = len(evaluator.explanations)
        some = torch.arange(number, device="cpu") if in_full else sample_of(number, SAMPLE)
        some = some.to(found.device)
        good = _agrees(evaluator, question, some, evaluator.reference_group(some), found)
        if _plainly_right(evaluator, question, some[~good], found):
            return found
    except Exception:  # a model may raise anything on graphs that it does not expect together; plain passes decide
        pass
    return torch.cat([question(group) for group in evaluator.plain_groups()], 1)


def _agrees(evaluator: Asking, question: Question, numbers: Tensor, other: EvaluatedGroup | None, found: Tensor) -> Tensor:
    """For which of some explanations another group gives what was found; for none if it raises, or if there is none."""
    none = torch.zeros_like(numbers, dtype=torch.bool)
    if other is None:
        return none
    try:
        answer = question(other)
    except Exception:  # a model may raise anything on graphs that it does not expect; plain passes decide
        return none
    return evaluator.outcome.agree(answer, found[:, numbers])


def _plainly_right(evaluator: Asking, question: Question, numbers: Tensor, found: Tensor) -> bool:
    """Whether plain passes give what was found, for each of some explanations."""
    alone = ((n, evaluator.group(n, evaluator.source.plain(int(n)))) for n in numbers.view(-1, 1))
    return all(bool(_agrees(evaluator, question, n, group, found).all()) for n, group in alone)
