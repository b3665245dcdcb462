"""What the methods that learn a mask share: a normal start, means over an instance's rows, the paper's table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nseg import objective as obj
from nseg.errors import SettingsError
from nseg.instances import Instances
from nseg.space import Masks, Noise, Space

NODE_STD = 0.1
"""Spread of the start of node masks."""


def normal(u: Tensor) -> Tensor:
    r"""Standard normal numbers from uniform ones in [0, 1), :math:`\sqrt 2\, \mathrm{erf}^{-1}(2u - 1)`.

    >>> normal(torch.tensor([0.5, 0.975, 0.025], dtype=torch.float64))
    tensor([ 0.0000,  1.9600, -1.9600], dtype=torch.float64)
    """
    return math.sqrt(2) * torch.erfinv((2 * u - 1).clamp(-1 + 1e-15, 1 - 1e-15))  # finite also for u = 0


def start(space: Space, seed: int, mean: float, nodes: Tensor, dtype: torch.dtype) -> Masks:
    r"""Normal logits, :math:`\sqrt{2 / N}` wide for edges and 0.1 for nodes, as all published codes have them.

    Args:
        space: what the elements are.
        seed: of the random numbers.
        mean: around which they lie.
        nodes: N, nodes of the graph that each instance belongs to, [B].
        dtype: of the result.

    Returns:
        one start, [1, n_e] and [1, n_n, w].
    """
    noise = Noise.of(space, seed, torch.float64)  # single precision would round some numbers up to 1
    edge = (2 / nodes.double()).sqrt()[space.edge_owner] * normal(noise.for_edges(-1)) if space.edges else None
    node = NODE_STD * normal(noise.for_nodes(-1)) if space.nodes else None
    return Masks(edge, node).map(lambda z: (mean + z).to(dtype).unsqueeze(0))


def product(masks: Masks, others: Masks) -> Masks:
    """Element by element."""
    return Masks(*(None if a is None or b is None else a * b for a, b in zip(masks, others, strict=True)))


def per_instance(value: Tensor, instances: Instances) -> Tensor:
    """Mean over each instance's explained rows, [..., R] to [..., B]."""
    if value.size(-1) == len(instances):
        return value
    return obj.size(value, instances.row_owner, len(instances)) / instances.row_ptr.diff()


def preset(method: str, table: Mapping[str, dict[str, Any]], dataset: str) -> dict[str, Any]:
    """What the paper set for a method on a dataset."""
    if dataset not in table:
        raise SettingsError(f"The paper has no settings of {method} for {dataset!r}. Known: {', '.join(table)}.")
    return table[dataset]
