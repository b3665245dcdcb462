"""One kind of mask of many explanations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.errors import InputError

MaskKind = Literal["soft", "hard"] | float
"""Soft masks, hard masks, or soft masks cut at a threshold."""


def masks_of(explanations: Sequence[Explanation], name: str, kind: MaskKind) -> Sequence[Tensor]:
    """One mask of each explanation; cut at a threshold all at once, because there may be thousands.

    Args:
        explanations: the explanations.
        name: ``"edge_mask"`` or ``"node_mask"``.
        kind: the kind of mask.
    """
    if isinstance(kind, str):
        return [_mask(one, name, kind) for one in explanations]
    soft = [one[name] for one in explanations]
    whole = torch.cat(soft)
    return torch.split((whole > float(kind)).to(whole.dtype), [len(mask) for mask in soft])


def _mask(one: Explanation, name: str, kind: str) -> Tensor:
    soft: Tensor = one[name]
    if kind == "soft":
        return soft
    if kind != "hard":
        raise InputError(f"masks must be 'soft', 'hard' or a threshold (got {kind!r}).")
    if one.get(f"hard_{name}") is None:
        raise InputError("These explanations have no hard masks (got soft ones). Give a threshold: masks=0.5.")
    hard: Tensor = one[f"hard_{name}"].to(soft.dtype)
    return hard
