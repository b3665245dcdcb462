"""Regression: one number per row, and events of it."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from nseg.errors import InputError, ModelError
from nseg.events import Above, Below, Event, ValueEvent, Within
from nseg.model.outcomes.base import Outcome, rows_agree

STANDARD_LOGISTIC = math.pi / math.sqrt(3)
"""Standard deviation of the logistic distribution of scale 1."""

SIGNIFICANT = 4
"""Digits of distances and noises that are taken from data: rounding must not make equal questions differ."""

NO_DISTANCE = 1e-4
"""Distance from the explained value, in units of the noise, that is rounding."""


class RegressionOutcome(Outcome):
    r"""A predicted number is near what it is, above or below a threshold. Outputs and targets are [..., R].

    The true value is the prediction plus logistic noise of standard deviation ``scale``, :math:`s = \sqrt3\,\sigma / \pi`:

    .. math::
        P(\text{above } t) = \frac{1}{1 + e^{-(f - t) / s}}, \qquad
        P(\text{within } w \text{ of } y) = \frac{\sinh(w / s)}{\cosh(w / s) + \cosh((f - y) / s)}

    >>> from torch_geometric.explain.config import ModelReturnType, ModelTaskLevel
    >>> near = RegressionOutcome(ModelReturnType.raw, ModelTaskLevel.graph, Within(1.0, scale=STANDARD_LOGISTIC))
    >>> output, target = torch.tensor([2.0, 5.0]), torch.tensor([2.0, 2.0])
    >>> near.probability(output, target), near.holds(output, target)
    (tensor([0.4621, 0.1012]), tensor([ True, False]))
    """

    @property
    def asked(self) -> ValueEvent:
        """The event; by default that the prediction stays near what it is."""
        event = self.event or Within()
        assert isinstance(event, ValueEvent)
        return event

    # --- checks ----------------------------------------------------------------------------------------------------------

    def as_rows(self, output: Tensor) -> Tensor:
        column = self.asked.output
        if output.dim() == 2 and (column is not None or output.size(1) != 1):
            if column is None or column >= output.size(1):
                raise ModelError(
                    f"The outcome of a regression must be about one number per row (got outputs of shape "
                    f"{tuple(output.shape)} and output={column}). Say which column, from 0 to {output.size(1) - 1}: "
                    "e.g. Within(0.5, output=0)."
                )
            return output[:, column]
        if output.dim() > 1 and output.numel() != output.size(0):
            raise ModelError(f"A regression must return [rows] or [rows, numbers] (got shape {tuple(output.shape)}).")
        return output.reshape(-1)

    def check_values(self, output: Tensor) -> None:
        if not output.is_floating_point():
            raise ModelError(f"A regression must return floating point numbers (got {output.dtype}).")

    def looks_like_probabilities(self, output: Tensor) -> bool:
        return False

    def given_target(self, output: Tensor, target: Tensor) -> Tensor:
        if target.numel() != output.size(0) or not bool(torch.isfinite(target).all()):
            raise InputError(
                f"target must hold a finite number for each of {output.size(0)} outputs (got shape {tuple(target.shape)})."
            )
        return target.to(output.dtype)

    # --- the question ------------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        asked = self.asked
        return asked.scale is not None and not (isinstance(asked, Within) and asked.distance is None)

    def complete(self, output: Tensor, truth: Tensor | None = None) -> RegressionOutcome:
        """The same with the distance and the noise taken from the data, where they are not given.

        Args:
            output: predictions, [R].
            truth: their true values, [R], of which those that are not finite are ignored.
        """
        event: Event = self.asked
        spread = _spread(output)
        if isinstance(event, Within) and event.distance is None:
            event = replace(event, distance=_rounded(spread / 2))
        if isinstance(event, ValueEvent) and event.scale is None:
            event = replace(event, scale=_rounded(_residual(output, truth) or spread / 4))
        return replace(self, event=event)

    # --- what the output says --------------------------------------------------------------------------------------------

    @property
    def _unit(self) -> float:
        """Scale s of the logistic noise."""
        scale = self.asked.scale
        assert scale is not None, "the noise of the prediction must be known"
        return scale / STANDARD_LOGISTIC

    def predicted(self, output: Tensor) -> Tensor:
        return output

    def probability(self, output: Tensor, target: Tensor) -> Tensor:
        return self.log_odds(output, target).sigmoid()

    def log_odds(self, output: Tensor, target: Tensor) -> Tensor:
        asked, unit = self.asked, self._unit
        if isinstance(asked, Within):
            width = torch.as_tensor(asked.distance, dtype=output.dtype, device=output.device) / unit
            return _log_sinh(width) - torch.logaddexp(-width, _log_cosh((output - target) / unit))
        return self._excess(output) / unit

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        """How far the value is above the threshold, or below; or the negative distance from the explained value.

        At the explained value itself, where a distance has no gradient, the gradient is that of the value.
        """
        if not isinstance(self.asked, Within):
            return self._excess(output)
        away = output - target
        return torch.where(away > NO_DISTANCE * self._unit, -away, away)

    def holds(self, output: Tensor, target: Tensor) -> Tensor:
        if isinstance(self.asked, Within):
            assert self.asked.distance is not None, "the distance must be known"
            return (output - target).abs() <= self.asked.distance
        return self._excess(output) > 0

    def _excess(self, output: Tensor) -> Tensor:
        """How far the value is on the side of the threshold that is asked about."""
        asked = self.asked
        assert isinstance(asked, Above | Below)
        return output - asked.threshold if isinstance(asked, Above) else asked.threshold - output

    def agree(self, a: Tensor, b: Tensor) -> Tensor:
        return rows_agree(a.unsqueeze(-1), b.unsqueeze(-1))


def _log_sinh(a: Tensor) -> Tensor:
    """Logarithm of the hyperbolic sine of positive numbers, without overflow."""
    return a + torch.log(-torch.expm1(-2 * a)) - math.log(2)


def _log_cosh(a: Tensor) -> Tensor:
    """Logarithm of the hyperbolic cosine, without overflow."""
    return a.abs() + torch.log1p(torch.exp(-2 * a.abs())) - math.log(2)


def _spread(output: Tensor) -> float:
    """Standard deviation of predictions; their size if they are all equal, or one only."""
    values = output.detach().double()
    deviation = float(values.std(correction=0)) if values.numel() else 0.0
    size = float(values.abs().mean()) if values.numel() else 0.0
    return deviation if deviation > 1e-6 * size else size or 1.0


def _residual(output: Tensor, truth: Tensor | None) -> float:
    """Root mean square of the model's error; 0 if unknown."""
    if truth is None or truth.numel() != output.numel():
        return 0.0
    error = output.detach().double() - truth.to(output.device).double().view_as(output)
    known = error[torch.isfinite(error)]
    return float(known.square().mean().sqrt()) if known.numel() else 0.0


def _rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT}g}")
