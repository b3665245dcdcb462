"""What a question leaves open, taken from the data: distances and noises of regressions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nseg.explain.jobs.base import ExplainJob
from nseg.model.borrow import borrow, one_thread
from nseg.model.outcomes import Outcome


def complete_outcome(job: ExplainJob) -> None:
    """Take from the data what the outcome leaves open, once for all targets, so that batch equals alone."""
    if not job.outcome.is_complete:
        with torch.inference_mode(False), torch.no_grad(), borrow(job.model), one_thread():
            job.outcome = job.outcome.complete(*job.known_predictions())


def known_values(data: Any, outcome: Outcome) -> Tensor | None:
    """The true values of a regression on one graph, or one node type of it, if it holds them as ``y``, [R]."""
    y = data.get("y")
    return outcome.target_rows(y) if isinstance(y, Tensor) and y.is_floating_point() else None
