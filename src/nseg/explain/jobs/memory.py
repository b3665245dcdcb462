"""How much memory a search needs, and chunks that fit into it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.causal import CausalModel
from nseg.model.hooks import count_saved_bytes


def chunks(need: Tensor, budget: float, most: int) -> Iterator[Tensor]:
    """Consecutive chunks whose needs sum to at most the budget, with at least one and at most ``most`` members.

    >>> [part.tolist() for part in chunks(torch.tensor([3, 3, 3, 9, 1]), 6, 2)]
    [[0, 1], [2], [3], [4]]
    """
    part: list[int] = []
    total = 0.0
    for number, cost in enumerate(need.tolist()):
        if part and (total + cost > budget or len(part) == most):
            yield torch.tensor(part)
            part, total = [], 0.0
        part.append(number)
        total += cost
    yield torch.tensor(part)


def saved_bytes(algorithm: BatchedAlgorithm, causal: CausalModel) -> int:
    """Bytes that one world saves for its backward pass."""
    parts = algorithm.parts(causal.instances)
    ones = parts.full(1.0, causal.dtype).map(lambda mask: mask.unsqueeze(0).requires_grad_())
    with count_saved_bytes() as saved:
        causal.do(parts.to_weights(ones))
    return saved()
