"""What methods that learn a mask share: normally distributed initial logits, and lookup of the paper's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nseg.errors import SettingsError
from nseg.search.noise import mask_noise
from nseg.search.parts import EDGES, NODES, MaskParts, Masks

NODE_STD = 0.1
"""Standard deviation of the initial logits of node masks."""


def normal(u: Tensor) -> Tensor:
    r"""Standard normal numbers from uniform ones in [0, 1), :math:`\sqrt 2\, \mathrm{erf}^{-1}(2u - 1)`.

    >>> normal(torch.tensor([0.5, 0.975, 0.025], dtype=torch.float64))
    tensor([ 0.0000,  1.9600, -1.9600], dtype=torch.float64)
    """
    return math.sqrt(2) * torch.erfinv((2 * u - 1).clamp(-1 + 1e-15, 1 - 1e-15))  # finite also for u = 0


def normal_logits(parts: MaskParts, seed: int, mean: float, nodes: Tensor, dtype: torch.dtype) -> Masks:
    r"""Normal initial logits, of standard deviation :math:`\sqrt{2 / N}` for edges and 0.1 for nodes.

    All published implementations start like this.

    Args:
        parts: the parts of the masks.
        seed: seed of the random numbers.
        mean: mean of the logits.
        nodes: N, number of nodes of the graph that each instance belongs to, [B].
        dtype: dtype of the result.

    Returns:
        logits of one start, [1, n_e] and [1, n_n, w].
    """
    noise = mask_noise(parts, seed, torch.float64)  # single precision would round some numbers up to 1
    logits = Masks()
    if EDGES in parts:
        logits[EDGES] = (2 / nodes.double()).sqrt()[parts.edges.owner] * normal(noise[EDGES].draw(-1))
    if NODES in parts:
        logits[NODES] = NODE_STD * normal(noise[NODES].draw(-1))
    return logits.map(lambda z: (mean + z).to(dtype).unsqueeze(0))


def paper_settings(method: str, table: Mapping[str, dict[str, Any]], dataset: str) -> dict[str, Any]:
    """The paper's settings of a method on a dataset."""
    if dataset not in table:
        raise SettingsError(f"The paper has no settings of {method} for {dataset!r}. Known: {', '.join(table)}.")
    return table[dataset]
