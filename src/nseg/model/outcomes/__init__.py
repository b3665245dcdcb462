"""What "the prediction" of a model is: one class per kind of model, chosen by :func:`outcome_of`.

A new kind of model is one new file here and one line in :data:`OUTCOMES`.
"""

from __future__ import annotations

from torch_geometric.explain.config import ModelConfig, ModelMode

from nseg.errors import UnsupportedError
from nseg.model.outcomes.base import Outcome
from nseg.model.outcomes.binary import BinaryOutcome
from nseg.model.outcomes.multiclass import MulticlassOutcome

__all__ = ["OUTCOMES", "BinaryOutcome", "MulticlassOutcome", "Outcome", "outcome_of"]

OUTCOMES: dict[ModelMode, type[Outcome]] = {
    ModelMode.multiclass_classification: MulticlassOutcome,
    ModelMode.binary_classification: BinaryOutcome,
}
"""The outcome of each kind of model."""


def outcome_of(config: ModelConfig) -> Outcome:
    """The outcome that a model configuration of PyG describes."""
    if config.mode not in OUTCOMES:
        raise UnsupportedError(
            f"mode must be one of {', '.join(mode.value for mode in OUTCOMES)} (got {config.mode.value!r}): an explanation "
            "is about the probability of a class. Threshold a regression output to make it a classification."
        )
    return OUTCOMES[config.mode](config.return_type, config.task_level)
