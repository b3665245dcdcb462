"""Any event of the output, by a function that gives its probability."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError, ModelError
from nseg.events import Custom
from nseg.model.outcomes.base import Outcome, rows_agree


class CustomOutcome(Outcome):
    """An event with a probability that the caller computes. Outputs are [..., R, C]; targets are 1: it happens."""

    @property
    def asked(self) -> Custom:
        assert isinstance(self.event, Custom)
        return self.event

    def as_rows(self, output: Tensor) -> Tensor:
        if output.dim() == 1:
            return output.unsqueeze(0 if self.level is ModelTaskLevel.graph else 1)
        if output.dim() != 2:
            raise ModelError(f"The model must return [rows, values] (got shape {tuple(output.shape)}).")
        return output

    def check_values(self, output: Tensor) -> None:
        p = self._call(output)
        slack = torch.finfo(output.dtype).eps ** 0.5
        if p.shape != output.shape[:-1] or not p.is_floating_point():
            raise InputError(
                f"The function of {self.asked} must give one probability per row, {tuple(output.shape[:-1])} for outputs of "
                f"shape {tuple(output.shape)} (got {p.dtype} of shape {tuple(p.shape)}). Reduce the last dimension only."
            )
        if not bool(((p >= -slack) & (p <= 1 + slack)).all()):
            raise InputError(
                f"The function of {self.asked} must give probabilities between 0 and 1 (got {float(p.min()):.3g} to "
                f"{float(p.max()):.3g}). Apply a sigmoid or softmax first."
            )
        if self.asked.holds is not None and (found := torch.as_tensor(self.asked.holds(output))).dtype is not torch.bool:
            raise InputError(f"holds of {self.asked} must give True or False per row (got {found.dtype}).")

    def looks_like_probabilities(self, output: Tensor) -> bool:
        return False

    def given_target(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.ones(output.size(0), dtype=torch.long, device=output.device)

    def predicted(self, output: Tensor) -> Tensor:
        holds = self._call(output) > 0.5 if self.asked.holds is None else self.asked.holds(output)
        return torch.as_tensor(holds).long()

    def holds(self, output: Tensor, target: Tensor) -> Tensor:
        return self.predicted(output) == 1

    def probability(self, output: Tensor, target: Tensor) -> Tensor:
        return self._call(output).clamp(0, 1)

    def log_odds(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.logit(self._call(output), eps=torch.finfo(output.dtype).eps)

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        return self._call(output)

    def agree(self, a: Tensor, b: Tensor) -> Tensor:
        return rows_agree(a, b)

    def _call(self, output: Tensor) -> Tensor:
        if self.asked.probability is None:
            raise InputError(
                f"The function of a custom outcome is not stored (got {self.asked} from a file). Pass an explainer whose "
                "method has it: NSEG(outcome=Custom(...))."
            )
        found = self.asked.probability(output)
        if not isinstance(found, Tensor):
            raise InputError(f"The function of {self.asked} must return a tensor (got {type(found).__name__}).")
        return found
