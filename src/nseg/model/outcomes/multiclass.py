"""Multiclass classification: one score per class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelReturnType, ModelTaskLevel

from nseg.errors import ModelError
from nseg.model.kernel import read_classes
from nseg.model.outcomes.base import Outcome, check_classes, check_probabilities, rows_agree

LARGEST = 1e4
"""Bound of log-odds and logarithms, which are infinite for impossible classes."""


class ClassOutcome(Outcome):
    """An event of the classes of a multiclass model. Outputs are [..., R, C]."""

    def as_rows(self, output: Tensor) -> Tensor:
        if output.dim() == 1 and self.level is ModelTaskLevel.graph:  # one graph, classes only
            output = output.unsqueeze(0)
        if output.dim() != 2:
            raise ModelError(
                f"A multiclass model must return [rows, classes] (got shape {tuple(output.shape)}). Use "
                "mode='binary_classification' if it returns one value per row."
            )
        if self.returns is ModelReturnType.log_probs and output.grad_fn is not None and bool(torch.isneginf(output).any()):
            output.grad_fn.register_hook(_without_nan)
        return output

    def check_values(self, output: Tensor) -> None:
        if output.size(1) < 2:
            raise ModelError(
                f"A multiclass model must have at least two classes (got shape {tuple(output.shape)}). Use "
                "mode='binary_classification' if its one column is the score of class 1."
            )
        if self.returns is not ModelReturnType.raw:
            check_probabilities(class_probabilities(output, self.returns), self.returns, sum_to_one=True)

    def looks_like_probabilities(self, output: Tensor) -> bool:
        slack = torch.finfo(output.dtype).eps ** 0.75
        inside = bool(((output >= 0) & (output <= 1)).all())
        return inside and bool(((output.sum(-1) - 1).abs() <= slack).all())

    def num_classes(self, output: Tensor) -> int:
        return output.size(1)

    def given_target(self, output: Tensor, target: Tensor) -> Tensor:
        return check_classes(target, output.size(0), output.size(1))

    def predicted(self, output: Tensor) -> Tensor:
        return output.argmax(-1)

    def agree(self, a: Tensor, b: Tensor) -> Tensor:
        return rows_agree(a, b)


class MulticlassOutcome(ClassOutcome):
    """One class of several. Outputs are [..., R, C].

    >>> raw = MulticlassOutcome(ModelReturnType.raw, ModelTaskLevel.graph)
    >>> raw.log_odds(torch.tensor([[90.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    tensor([90.,  1.])
    >>> probs = MulticlassOutcome(ModelReturnType.probs, ModelTaskLevel.graph)
    >>> probs.margin(torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]), torch.tensor([0, 1]))
    tensor([ 0.2000, -0.2000])
    """

    @property
    def reads_raw_classes(self) -> bool:
        return self.returns is ModelReturnType.raw

    def probability(self, output: Tensor, target: Tensor) -> Tensor:
        return _of_class(class_probabilities(output, self.returns), target)

    def log_odds(self, output: Tensor, target: Tensor) -> Tensor:
        if self.returns is ModelReturnType.probs:
            return torch.logit(self.probability(output, target), eps=torch.finfo(output.dtype).eps)
        others = output.scatter(-1, class_column(output, target), -torch.inf).logsumexp(-1)
        return (_of_class(output, target) - others).clamp(-LARGEST, LARGEST)  # others may be impossible, or none

    def read(self, output: Tensor, target: Tensor, odds: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        found = read_classes(output, target) if self.returns is ModelReturnType.raw else None
        return super().read(output, target, odds) if found is None else found

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        score = _of_class(output, target)
        return score.clamp_min(-LARGEST) if self.returns is ModelReturnType.log_probs else score

    def distribution(self, output: Tensor, target: Tensor) -> Tensor:
        return class_probabilities(output, self.returns)

    def margin(self, output: Tensor, target: Tensor) -> Tensor:
        distribution = class_probabilities(output, self.returns)
        others = distribution.scatter(-1, class_column(distribution, target), 0.0)
        return _of_class(distribution, target) - others.amax(-1)


def class_probabilities(output: Tensor, returns: ModelReturnType) -> Tensor:
    """Probabilities of all classes, [..., R, C]."""
    if returns is ModelReturnType.raw:
        return output.softmax(-1)
    return output.exp() if returns is ModelReturnType.log_probs else output


def _without_nan(gradients: Sequence[Tensor | None], outputs: object) -> tuple[Tensor | None, ...]:
    """Gradients in which impossible classes count nothing: the gradient of log 0, times 0, would be NaN."""
    return tuple(None if one is None else one.nan_to_num(nan=0.0) for one in gradients)


def class_column(output: Tensor, target: Tensor) -> Tensor:
    """The target as an index into the last dimension, [..., R, 1]."""
    return target.expand(output.shape[:-1]).unsqueeze(-1)


def _of_class(values: Tensor, target: Tensor) -> Tensor:
    """The entry of each row's target class, [..., R]."""
    return values.gather(-1, class_column(values, target)).squeeze(-1)
