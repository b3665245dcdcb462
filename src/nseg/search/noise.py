"""Random numbers that depend only on what they are for.

A number is a pure function of the seed, the instance, the element and the draw. So an instance sees the same noise
alone, in any batch, in any order and after a restart, and no random state is read or changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch, offsets
from nseg.graphs.inputs import Role
from nseg.search.parts import MaskParts, Part

FEATURE_SALT = 0x5DEECE66D  # separates the keys of features from those of edges


def _mix(z: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64, which wraps around like unsigned arithmetic."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def _combine(*parts: int) -> int:
    """One int64 from several integers, equal on every machine."""
    z = 0
    for part in parts:
        z = (z * 31 + part + 1) * 0x9E3779B97F4A7C15 % (1 << 64)
        z ^= z >> 29
    return z - (1 << 64) if z >> 63 else z


def uniform(keys: Tensor, width: int, draw: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Uniform numbers in [0, 1), one row of ``width`` per key, [len(keys), width].

    Args:
        keys: what each row belongs to.
        width: numbers per key.
        draw: identifies the draw (step, sample, ...); another draw gives other numbers.
        dtype: of the result.
    """
    column = torch.arange(1, width + 1, device=keys.device) * -7046029254386353131
    bits = _mix((keys.unsqueeze(1) + column) ^ _combine(*draw))
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64).mul_(2.0**-53).to(dtype)


def instance_keys(instances: InstanceBatch, seed: int) -> Tensor:
    """One key per instance, from the seed, its edges and its explained rows, [B]; other instances do not matter."""
    owner, start = instances.edge_owner, instances.ptr[Role.NODE]
    local = instances.edge_index - start[owner]
    position = torch.arange(owner.numel(), device=owner.device) - instances.ptr[Role.EDGE][owner]
    edges = _mix(_mix(local[0] * 31 + position) * 31 + local[1])
    row = _mix(instances.row - instances.ptr[instances.outputs][instances.row_owner] + 1)
    key = _mix(start.diff() ^ _combine(seed)).index_add(0, owner, edges)
    return _mix(key.index_add(0, instances.row_owner, row))


def element_keys(keys: Tensor, owner: Tensor) -> Tensor:
    """One key per element, from the key of its instance and its position there. ``owner`` must be sorted."""
    ptr = offsets(owner.bincount(minlength=keys.numel()))
    return _mix(keys[owner] + torch.arange(owner.numel(), device=owner.device) - ptr[owner])


@dataclass(frozen=True)
class PartNoise:
    """The random numbers of one part's elements.

    Args:
        part: the part.
        keys: one key per row of the part's values, [n].
        dtype: of the numbers.
    """

    part: Part
    keys: Tensor
    dtype: torch.dtype

    @classmethod
    def of(cls, part: Part, seed: int, dtype: torch.dtype) -> PartNoise:
        """The random numbers of a part, given a seed."""
        keys = instance_keys(part.instances, seed)
        return cls(part, element_keys(keys ^ FEATURE_SALT if part.group else keys, part.owner), dtype)

    def draw(self, *draw: int) -> Tensor:
        """Uniform numbers of one draw, in the shape of the part's values."""
        return self.rows(self.part.width, *draw).view(self.part.shape)

    def rows(self, width: int, *draw: int) -> Tensor:
        """Uniform numbers of one draw, ``width`` for each row of the part's values, [n, width]."""
        return uniform(self.keys, width, (self.part.group, *draw), self.dtype)


Noise = dict[str, PartNoise]
"""The random numbers of all parts of a mask, by the part's name."""


def mask_noise(parts: MaskParts, seed: int, dtype: torch.dtype) -> Noise:
    """The random numbers of all parts of a mask, given a seed."""
    return {part.name: PartNoise.of(part, seed, dtype) for part in parts}
