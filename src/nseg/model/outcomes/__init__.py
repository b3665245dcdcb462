"""What "the prediction" of a model is: one class per kind of model and question, chosen by :func:`outcome_of`.

A new kind of model is one new file here and one line in :data:`OUTCOMES`; a new event of its output
(:mod:`nseg.events`) is a class there and a line in :func:`outcome_of`.
"""

from __future__ import annotations

from torch_geometric.explain.config import ModelConfig, ModelMode

from nseg.errors import UnsupportedError
from nseg.events import Custom, Event, Not, Rather
from nseg.model.outcomes.base import Outcome
from nseg.model.outcomes.binary import BinaryOutcome
from nseg.model.outcomes.contrast import ContrastOutcome
from nseg.model.outcomes.custom import CustomOutcome
from nseg.model.outcomes.multiclass import MulticlassOutcome
from nseg.model.outcomes.regression import RegressionOutcome

__all__ = [
    "OUTCOMES",
    "BinaryOutcome",
    "ContrastOutcome",
    "CustomOutcome",
    "MulticlassOutcome",
    "Outcome",
    "RegressionOutcome",
    "outcome_of",
]

OUTCOMES: dict[ModelMode, type[Outcome]] = {
    ModelMode.multiclass_classification: MulticlassOutcome,
    ModelMode.binary_classification: BinaryOutcome,
    ModelMode.regression: RegressionOutcome,
}
"""The usual outcome of each kind of model."""


def outcome_of(config: ModelConfig, event: Event | None = None) -> Outcome:
    """How to read the output of a model that a configuration of PyG describes, for a question about it.

    Args:
        config: of the model.
        event: what is asked; None for the usual question.
    """
    if event is not None and config.mode.value not in event.modes:
        raise UnsupportedError(
            f"The outcome must be one that the model can have (got {event} for mode={config.mode.value!r}). "
            f"{type(event).__name__} is for mode={' or '.join(map(repr, event.modes))}."
        )
    kind = OUTCOMES[config.mode]
    if isinstance(event, Rather | Not):
        kind = ContrastOutcome
    elif isinstance(event, Custom):
        kind = CustomOutcome
    return kind(config.return_type, config.task_level, event)
