"""Models that cannot run on smaller graphs: their explanations are searched with messages masked, and say so."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from nseg.explain.answers import BatchAnswer
from nseg.graphs.batch import InstanceBatch
from nseg.model.causal import CausalModel
from nseg.model.slow_runs import raise_own_fault
from nseg.search.descent import Tick
from nseg.search.parts import MaskParts

MASKED = (
    "{number} explanations were searched with messages masked instead of edges deleted, because the model does not run on "
    "graphs with fewer edges ({error}). They say what happens if messages are weighed by 0. To ask for masks at once, use "
    "intervention='mask'."
)


class Method(Protocol):
    """What is needed of an algorithm (:class:`nseg.explain.algorithm.BatchedAlgorithm`)."""

    @property
    def deletes(self) -> bool: ...
    def masking(self) -> Method: ...
    def parts(self, instances: InstanceBatch) -> MaskParts: ...
    def answer(self, causal: CausalModel, parts: MaskParts, tick: Tick = ...) -> BatchAnswer: ...


NumberedAnswer = tuple[Tensor, BatchAnswer]
"""Numbers of some instances, and the answer to them."""


def answer_all(algorithm: Method, causal: CausalModel, tick: Tick = lambda: None) -> tuple[list[NumberedAnswer], str | None]:
    """Answers that together hold all instances of a causal model, and a note if some are by masks.

    The intervention is decided for each instance by what the model does with it alone, so that batch = alone holds.
    """
    everything = torch.arange(len(causal.instances), device=causal.instances.x.device)
    try:
        return [(everything, algorithm.answer(causal, algorithm.parts(causal.instances), tick))], None
    except Exception as error:  # a model may raise anything on a graph that it does not expect
        raise_own_fault(error)
        if not algorithm.deletes:
            raise
        found, failed = ([], everything) if len(everything) == 1 else _halves(algorithm, causal, everything)
        if not failed.numel():  # together they fail, but not alone
            return found, None
        some = causal.select(failed)
        masked = algorithm.masking()
        found.append((failed, masked.answer(some, masked.parts(some.instances))))
        reason = f"{type(error).__name__}: {error}"[:200]
        return found, MASKED.format(number=failed.numel(), error=reason)


def _halves(algorithm: Method, causal: CausalModel, numbers: Tensor) -> tuple[list[NumberedAnswer], Tensor]:
    """Answers to all instances that can be answered, found by halving, and the numbers of the others."""
    found: list[NumberedAnswer] = []
    failed = [numbers[:0]]
    for some in numbers.tensor_split(2):
        small = causal.select(some)
        try:
            found.append((some, algorithm.answer(small, algorithm.parts(small.instances))))
        except Exception as error:  # as above
            raise_own_fault(error)
            more, rest = ([], some) if len(some) == 1 else _halves(algorithm, causal, some)
            found += more
            failed.append(rest)
    return found, torch.cat(failed)
