"""Contrasts of classes: this class rather than that one, and not that one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelReturnType

from nseg.errors import InputError
from nseg.events import Not, Rather
from nseg.model.outcomes.multiclass import LARGEST, ClassOutcome, class_column


class ContrastOutcome(ClassOutcome):
    r"""Some classes against some others, :math:`p = p_A / (p_A + p_B)`. Outputs are [..., R, C].

    :class:`nseg.Rather` puts the explained class against another one; :class:`nseg.Not` all classes against one.

    >>> from torch_geometric.explain.config import ModelTaskLevel
    >>> rather = ContrastOutcome(ModelReturnType.raw, ModelTaskLevel.graph, Rather(than=2))
    >>> rather.log_odds(torch.tensor([[3.0, 9.0, 1.0]]), torch.tensor([0]))
    tensor([2.])
    """

    @property
    def asked(self) -> Rather | Not:
        assert isinstance(self.event, Rather | Not)
        return self.event

    @property
    def other(self) -> int:
        """The class that the event is against."""
        return self.asked.than if isinstance(self.asked, Rather) else self.asked.label

    def given_target(self, output: Tensor, target: Tensor) -> Tensor:
        classes = super().given_target(output, target)
        if self.other >= output.size(1):
            raise InputError(f"The class must be one of the model's, 0 to {output.size(1) - 1} (got {self.asked}).")
        if isinstance(self.asked, Rather) and bool((classes == self.other).any()):
            raise InputError(
                f"{self.asked} must be asked of outputs of another class (got {int((classes == self.other).sum())} of class "
                f"{self.other} itself). Leave them out of index, or use strict=False, which names them."
            )
        return classes

    def log_odds(self, output: Tensor, target: Tensor) -> Tensor:
        if self.returns is ModelReturnType.probs:
            return torch.logit(self.probability(output, target), eps=torch.finfo(output.dtype).eps)
        return (self._for(output, target) - output[..., self.other]).clamp(-LARGEST, LARGEST)

    def probability(self, output: Tensor, target: Tensor) -> Tensor:
        if self.returns is not ModelReturnType.probs:
            return self.log_odds(output, target).sigmoid()
        for_it, against = self._for(output, target), output[..., self.other]
        return for_it / (for_it + against).clamp_min(torch.finfo(output.dtype).tiny)

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        return self.log_odds(output, target)

    def holds(self, output: Tensor, target: Tensor) -> Tensor:
        if isinstance(self.asked, Not):
            return output.argmax(-1) != self.other
        return self._for(output, target) > output[..., self.other]

    def _for(self, output: Tensor, target: Tensor) -> Tensor:
        """Score of the classes that the event is for: the explained one, or all but the other; [..., R]."""
        if isinstance(self.asked, Rather):
            return output.gather(-1, class_column(output, target)).squeeze(-1)
        rest = torch.arange(output.size(-1), device=output.device) != self.other
        chosen = output[..., rest]
        return chosen.sum(-1) if self.returns is ModelReturnType.probs else chosen.logsumexp(-1)
