"""What the methods that learn a mask share: a normal start, means over an instance's rows, the paper's table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nseg.errors import SettingsError
from nseg.graphs.batch import InstanceBatch
from nseg.search.formulas import size
from nseg.search.noise import mask_noise
from nseg.search.parts import EDGES, NODES, MaskParts, Masks

NODE_STD = 0.1
"""Spread of the start of node masks."""


def normal(u: Tensor) -> Tensor:
    r"""Standard normal numbers from uniform ones in [0, 1), :math:`\sqrt 2\, \mathrm{erf}^{-1}(2u - 1)`.

    >>> normal(torch.tensor([0.5, 0.975, 0.025], dtype=torch.float64))
    tensor([ 0.0000,  1.9600, -1.9600], dtype=torch.float64)
    """
    return math.sqrt(2) * torch.erfinv((2 * u - 1).clamp(-1 + 1e-15, 1 - 1e-15))  # finite also for u = 0


def start(parts: MaskParts, seed: int, mean: float, nodes: Tensor, dtype: torch.dtype) -> Masks:
    r"""Normal logits, :math:`\sqrt{2 / N}` wide for edges and 0.1 for nodes, as all published codes have them.

    Args:
        parts: what the elements are.
        seed: of the random numbers.
        mean: around which they lie.
        nodes: N, nodes of the graph that each instance belongs to, [B].
        dtype: of the result.

    Returns:
        one start, [1, n_e] and [1, n_n, w].
    """
    noise = mask_noise(parts, seed, torch.float64)  # single precision would round some numbers up to 1
    found = Masks()
    if EDGES in parts:
        found[EDGES] = (2 / nodes.double()).sqrt()[parts.edges.owner] * normal(noise[EDGES].draw(-1))
    if NODES in parts:
        found[NODES] = NODE_STD * normal(noise[NODES].draw(-1))
    return found.map(lambda z: (mean + z).to(dtype).unsqueeze(0))


def per_instance(value: Tensor, instances: InstanceBatch) -> Tensor:
    """Mean over each instance's explained rows, [..., R] to [..., B]."""
    if value.size(-1) == len(instances):
        return value
    return size(value, instances.row_owner, len(instances)) / instances.row_ptr.diff()


def preset(method: str, table: Mapping[str, dict[str, Any]], dataset: str) -> dict[str, Any]:
    """What the paper set for a method on a dataset."""
    if dataset not in table:
        raise SettingsError(f"The paper has no settings of {method} for {dataset!r}. Known: {', '.join(table)}.")
    return table[dataset]
