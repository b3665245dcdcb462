"""Binary classification: one number per row."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelReturnType

from nseg.errors import ModelError
from nseg.model.outcomes.base import Outcome, check_classes, check_probabilities, rows_agree

FEWEST_ROWS = 10
"""Rows that must all lie in [0, 1] before scores are taken for probabilities: fewer may do so by chance."""


class BinaryOutcome(Outcome):
    """Class 1 or class 0, from one score or probability of class 1 per row. Outputs are [..., R].

    A model with several binary labels has a column for each; :class:`nseg.Label` says which one is asked about.

    >>> from torch_geometric.explain.config import ModelTaskLevel
    >>> output, target = torch.tensor([0.9, 0.2]), torch.tensor([1, 0])
    >>> BinaryOutcome(ModelReturnType.probs, ModelTaskLevel.graph).probability(output, target)
    tensor([0.9000, 0.8000])
    >>> BinaryOutcome(ModelReturnType.raw, ModelTaskLevel.graph).score(torch.tensor([3.0, 3.0]), target)
    tensor([ 3., -3.])
    """

    def as_rows(self, output: Tensor) -> Tensor:
        column = None if self.event is None else self.event.column
        if column is not None:
            if output.dim() != 2 or column >= output.size(1):
                raise ModelError(
                    f"{self.event} must be a column of the model's output, [rows, labels] (got shape {tuple(output.shape)})."
                )
            return output[:, column]
        if output.dim() > 1 and output.numel() != output.size(0):
            raise ModelError(
                "A binary model must return one value per row (got shape "
                f"{tuple(output.shape)}). Use mode='multiclass_classification' if its columns are classes, and "
                "outcome=nseg.Label(number) if they are binary labels."
            )
        return output.reshape(-1)

    def check_values(self, output: Tensor) -> None:
        if self.returns is not ModelReturnType.raw:
            p = output.exp() if self.returns is ModelReturnType.log_probs else output
            check_probabilities(p, self.returns, sum_to_one=False)

    def looks_like_probabilities(self, output: Tensor) -> bool:
        return len(output) >= FEWEST_ROWS and bool(((output >= 0) & (output <= 1)).all())

    def given_target(self, output: Tensor, target: Tensor) -> Tensor:
        return check_classes(target, output.size(0), 2)

    def predicted(self, output: Tensor) -> Tensor:
        return (output > (0.0 if self.returns is ModelReturnType.raw else 0.5)).long()

    def probability(self, output: Tensor, target: Tensor) -> Tensor:
        if self.returns is ModelReturnType.raw:
            return torch.sigmoid(_sign(output, target) * output)
        return torch.where(target == 1, output, 1 - output)

    def log_odds(self, output: Tensor, target: Tensor) -> Tensor:
        if self.returns is ModelReturnType.raw:
            return _sign(output, target) * output
        return torch.logit(self.probability(output, target), eps=torch.finfo(output.dtype).eps)

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        return (self.log_odds if self.returns is ModelReturnType.raw else self.probability)(output, target)

    def distribution(self, output: Tensor, target: Tensor) -> Tensor:
        p = output.sigmoid() if self.returns is ModelReturnType.raw else output
        return torch.stack([1 - p, p], -1)

    def agree(self, a: Tensor, b: Tensor) -> Tensor:
        return rows_agree(a.unsqueeze(-1), b.unsqueeze(-1))


def _sign(output: Tensor, target: Tensor) -> Tensor:
    """1 for class 1, -1 for class 0."""
    return 2.0 * target.to(output.dtype) - 1.0
