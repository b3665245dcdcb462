"""Every answer that metrics get from the model is verified: asked again without shortcuts.

The same question is put to a causal model without shortcuts that depend on the explanation, for all explanations or for a
random sample of them. Where the two disagree, a plain pass of the caller's whole graph decides, and if the fast answer is
wrong, all are asked plainly. Whatever makes this slower is a warning that says why and what it costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from nseg.errors import NsegWarning
from nseg.metrics.groups import EvaluatedGroup
from nseg.metrics.sources import ModelSource
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome
from nseg.model.slow_runs import raise_own_fault, raised, slow_note
from nseg.model.strategy import PLAIN

SAMPLE = 32
"""Explanations that are verified in worlds other than those of their own masks, and alone on the whole graph."""

SAMPLED_MEMBERS = 100_000
"""Nodes and edges of a graph up to which the whole sample is verified plainly; fewer of larger graphs."""


class Asking(Protocol):
    """What asks the model about explanations."""

    explanations: list[Any]
    model: nn.Module
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


def why_wrong(evaluator: Asking, groups: Sequence[EvaluatedGroup], question: Question) -> str:
    """What is wrong with the answers of groups, by the references, and by plain passes for a sample and wherever in doubt.

    Empty if nothing is.
    """
    found = evaluator.in_order([question(group) for group in groups], 1, groups)
    numbers = torch.arange(len(evaluator.explanations), device=found.device)
    size = max(2, min(SAMPLE, SAMPLE * SAMPLED_MEMBERS // max(evaluator.source.members, 1)))
    return _Check(evaluator, question, found).why_wrong(numbers, sample_of(len(numbers), size).to(found.device))


def ask(evaluator: Asking, question: Question, in_full: bool, groups: Sequence[EvaluatedGroup]) -> Tensor:
    """The answer for all explanations, [K, B, ...]: that of the groups, or that of plain passes if it is wrong.

    Args:
        evaluator: whose explanations they are.
        question: what is asked.
        in_full: verify all explanations, not only a sample.
        groups: all explanations.
    """
    number = len(evaluator.explanations)
    try:
        found = evaluator.in_order([question(group) for group in groups], 1, groups)
    except Exception as error:  # a model may raise anything on graphs that it does not expect together
        raise_own_fault(error)
        why = raised(error, "on several explanations together")
    else:
        if all(group.causal.strategy == PLAIN for group in groups):
            return found
        some = torch.arange(number, device="cpu") if in_full else sample_of(number, SAMPLE)
        why = _Check(evaluator, question, found).why_wrong(some.to(found.device))
        if not why:
            return found
    answer = torch.cat([question(group) for group in evaluator.plain_groups()], 1)
    cost = f"{number} explanations were therefore asked alone on the whole graph, in {len(answer) * number} passes."
    warn_slow(evaluator.model, why, cost)
    return answer


def warn_slow(model: nn.Module, why: str, cost: str) -> None:
    """Warn that a model is run the slow way: why, and what it costs."""
    warnings.warn(slow_note(model, why, cost), NsegWarning, stacklevel=4)


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of two outputs; equal infinities do not differ."""
    return float(torch.where(a == b, 0, (a - b).abs()).nan_to_num(torch.inf, torch.inf).max())


@dataclass
class _Check:
    """Compares what was found with what the model says without shortcuts.

    Args:
        evaluator: whose explanations they are.
        question: what was asked.
        found: the answer for all explanations, [K, B, ...].
        why: what was wrong with it, so far.
    """

    evaluator: Asking
    question: Question
    found: Tensor
    why: str = ""

    def why_wrong(self, numbers: Tensor, sample: Tensor | None = None) -> str:
        """What is wrong with the answers for some explanations; empty if plain passes confirm all that are in doubt.

        Args:
            numbers: the explanations.
            sample: those that plain passes are asked about in any case.
        """
        reference = self.evaluator.reference_group(numbers)
        doubtful = numbers if reference is None else numbers[~self._agree(numbers, reference, "on wider subgraphs together")]
        doubt = self.why
        chosen = doubtful if sample is None else torch.unique(torch.cat([sample, doubtful]))
        alone = ((n, self.evaluator.group(n, self.evaluator.source.plain(int(n)))) for n in chosen.view(-1, 1))
        if not all(bool(self._agree(n, group, "alone on the whole graph").all()) for n, group in alone):
            return self.why
        if doubt:
            cost = f"{len(doubtful)} explanations were therefore verified alone, in {len(self.found)} passes each."
            warn_slow(self.evaluator.model, doubt, cost)
        return ""

    def _agree(self, numbers: Tensor, other: EvaluatedGroup, where: str) -> Tensor:
        """For which of some explanations another group gives what was found; for none if it raises."""
        own = self.found[:, numbers]
        try:
            answer = self.question(other)
        except Exception as error:  # a model may raise anything on graphs that it does not expect; plain passes decide
            raise_own_fault(error)
            self.why = raised(error, where)
            return torch.zeros_like(numbers, dtype=torch.bool)
        agree = self.evaluator.outcome.agree(answer, own)
        if not bool(agree.all()):
            self.why = f"its outputs {where} differ by up to {difference(answer, own):.2g} from those of the shortcut"
        return agree
