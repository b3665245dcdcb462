"""The interface of all outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelReturnType, ModelTaskLevel

from nseg.errors import InputError, ModelError
from nseg.events import Event

PROBABILITIES = (
    "The model is declared to return raw scores (return_type='raw'), but all of its outputs look like probabilities. If "
    "they are, every number of the explanations is wrong, because a softmax or sigmoid is applied once more. Set "
    "return_type='probs' in model_config."
)


@dataclass(frozen=True)
class Outcome(ABC):
    """How a model's output is read: the probability of the explained event, and whether it happens.

    ``output`` is always the model's output after :meth:`as_rows`, with any number of leading dimensions; ``target`` is
    the class of each row, or its value for a regression, [R].

    Args:
        returns: raw scores, probabilities or log-probabilities.
        level: node, edge or graph.
        event: what is asked; None for the usual: the predicted class, or a value near the predicted one.
    """

    returns: ModelReturnType
    level: ModelTaskLevel
    event: Event | None = None

    # --- checks ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def as_rows(self, output: Tensor) -> Tensor:
        """The model's output in canonical shape, one row per node, link or graph; raises if it has another shape."""

    @abstractmethod
    def check_values(self, output: Tensor) -> None:
        """Raise unless the values are what ``returns`` says they are."""

    @abstractmethod
    def looks_like_probabilities(self, output: Tensor) -> bool:
        """Whether raw scores [R, ...] are so much like probabilities that they must be some."""

    def note(self, output: Tensor) -> str | None:
        """A warning if the output is probably not what ``returns`` says; None if it may be."""
        if self.returns is not ModelReturnType.raw or not output.numel() or not self.looks_like_probabilities(output):
            return None
        return PROBABILITIES

    def is_readable(self, output: Tensor) -> Tensor:
        """Whether each value is a number; a logarithm of a probability may be minus infinity."""
        good = torch.isfinite(output)
        return good | (output == -torch.inf) if self.returns is ModelReturnType.log_probs else good

    def num_classes(self, output: Tensor) -> int:
        """Number of classes that a target may name; 2 for an event, which happens or not."""
        return 2

    def check_target(self, output: Tensor, target: Tensor | None) -> Tensor:
        """Class (or value) of each row of the output: the given one, or the predicted one if None, [R]."""
        if not bool(self.is_readable(output).all()):
            raise ModelError(
                "The model's output must be finite (got NaN or infinity for an explained row). Such a prediction has no "
                "probability to explain; check weights and input."
            )
        return self.given_target(output, self.predicted(output) if target is None else target)

    @abstractmethod
    def given_target(self, output: Tensor, target: Tensor) -> Tensor:
        """Class (or value) of each row, [R]; raises unless it is one that can be explained."""

    def target_rows(self, target: Tensor) -> Tensor:
        """The caller's or PyG's targets as one class (or value) per row, [R]: those of the column that is asked about."""
        column = None if self.event is None else self.event.column
        return target[:, column] if target.dim() == 2 and column is not None and target.size(1) > 1 else target.flatten()

    def require_event(self, output: Tensor, target: Tensor) -> None:
        """Raise unless the event happens where nothing is changed: otherwise there is nothing to explain."""
        happens = self.holds(output, target)
        if self.event is not None and not bool(happens.all()):
            number, first = int((~happens).sum()), output[~happens][0].detach().flatten()[:8]
            values = ", ".join(f"{value:.4g}" for value in first.tolist())
            raise InputError(
                f"The outcome must hold for what is explained (got {self.event}, which does not hold for {number} of "
                f"{happens.numel()} outputs; the first is {values}). Ask for its opposite there, choose other outputs by "
                "index, or use explain_many(..., strict=False), which says so for each of them."
            )

    # --- what is taken from the data -------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether nothing has to be taken from the data to know the event."""
        return True

    def complete(self, output: Tensor, truth: Tensor | None = None) -> Outcome:
        """The same outcome, with all that was not given taken from predictions [R] and their true values [R]."""
        return self

    # --- what the output says --------------------------------------------------------------------------------------------

    @abstractmethod
    def predicted(self, output: Tensor) -> Tensor:
        """Class (or value) that the model gives each row, [..., R]."""

    @abstractmethod
    def probability(self, output: Tensor, target: Tensor) -> Tensor:
        r"""Probability of the event, of the target class :math:`f_\theta^{\hat y}`, [..., R]."""

    @abstractmethod
    def log_odds(self, output: Tensor, target: Tensor) -> Tensor:
        r"""Log-odds of the event, for a class :math:`\log f_\theta^{\hat y} - \log(1 - f_\theta^{\hat y})`, [..., R].

        If the model returns raw scores or logarithms, the gradient survives where the probability rounds to 0 or 1.
        """

    @property
    def reads_raw_classes(self) -> bool:
        """Whether log-odds are those of a class among raw scores, which the kernel computes itself."""
        return False

    @abstractmethod
    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """Score of the target class as the model returns it, [..., R]; a higher score always speaks for the class."""

    def distribution(self, output: Tensor, target: Tensor) -> Tensor:
        """Probabilities of all classes, [..., R, C]; otherwise those of the event not to happen, and to happen."""
        p = self.probability(output, target)
        return torch.stack([1 - p, p], -1)

    def margin(self, output: Tensor, target: Tensor) -> Tensor:
        r"""Margin of the event over its alternatives, for a class :math:`f^{\hat y} - \max_{y \ne \hat y} f^y`, [..., R]."""
        return 2 * self.probability(output, target) - 1

    def holds(self, output: Tensor, target: Tensor) -> Tensor:
        """Whether the event happens by the plain output, e.g. the model gives each row its target class, [..., R]."""
        return self.predicted(output) == target

    def read(self, output: Tensor, target: Tensor, odds: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """The results of :meth:`probability`, :meth:`holds` as 0 or 1, and if asked for :meth:`log_odds`, [..., R] each."""
        p = self.probability(output, target)
        return p, self.holds(output, target).to(p.dtype), self.log_odds(output, target) if odds else None

    @abstractmethod
    def agree(self, a: Tensor, b: Tensor) -> Tensor:
        """Whether two outputs agree up to rounding, row by row and in all worlds if there are several, [R]."""


def check_classes(target: Tensor, rows: int, classes: int) -> Tensor:
    """The class of each row, [R]; raises unless all are whole numbers of classes."""
    if target.is_floating_point() or target.numel() != rows:
        raise InputError(
            f"target must hold a whole class number for each of {rows} outputs "
            f"(got {target.dtype} of shape {tuple(target.shape)})."
        )
    if int(target.min()) < 0 or int(target.max()) >= classes:
        raise InputError(f"target must be a class from 0 to {classes - 1} (got {int(target.min())} to {int(target.max())}).")
    return target.long()


def rows_agree(a: Tensor, b: Tensor) -> Tensor:
    """Whether outputs [..., R, C] agree up to rounding, [R]; infinities agree if they are equal.

    >>> impossible = -torch.inf
    >>> rows_agree(torch.tensor([[0, impossible], [1, impossible]]), torch.tensor([[0, impossible], [0, impossible]]))
    tensor([ True, False])
    """
    size = b.abs().masked_fill(b.isinf(), 0)
    scale = torch.finfo(a.dtype).eps ** 0.6 * (1 + size.amax(-1, keepdim=True))
    near: Tensor = (((a - b).abs() <= scale) | (a == b)).all(-1)  # [..., R]
    return near.all(0) if near.dim() > 1 else near


def check_probabilities(p: Tensor, returns: ModelReturnType, sum_to_one: bool) -> None:
    """Raise unless numbers are probabilities."""
    slack = torch.finfo(p.dtype).eps ** 0.5
    outside = bool((p < -slack).any() or (p > 1 + slack).any())
    if outside or (sum_to_one and bool(((p.sum(-1) - 1).abs() > slack).any())):
        raise ModelError(
            f"A model with return_type='{returns.value}' must return probabilities that sum to 1 (got "
            f"{float(p.min()):.3g} to {float(p.max()):.3g}). Did you mean return_type='raw'?"
        )
