r"""How the worlds of the complement are drawn.

A *law* turns a mask and uniform numbers of its shape into the mask of a world in which the explanation does not hold.
The uniform numbers are a pure function of the seed, the instance, the element and the draw. So an instance sees the
same noise alone, in any batch, in any order and after a restart, and no random state is read or moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from nseg.errors import SettingsError
from nseg.instances import Instances, Role, pointers

Law = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Shifted:
    r"""The paper's law, :math:`1 - M + \epsilon` with :math:`\epsilon` uniform in :math:`\pm` ``noise`` (Eqs. 13, 14).

    >>> Shifted(0.1)(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 1.0]))
    tensor([0.0000, 1.1000])
    """

    noise: float = 0.025

    def __call__(self, mask: Tensor, u: Tensor) -> Tensor:
        return 1 - mask + self.noise * (2 * u - 1)


@dataclass(frozen=True)
class Subset:
    r"""Each element outside the explanation is kept with probability ``keep``: :math:`(1 - M) \odot \mathbb{1}[u < q]`.

    >>> Subset(0.5)(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.1, 0.1, 0.9]))
    tensor([0., 1., 0.])
    """

    keep: float = 0.5

    def __call__(self, mask: Tensor, u: Tensor) -> Tensor:
        return (1 - mask) * (u < self.keep)


@dataclass(frozen=True)
class Bernoulli:
    r"""Each element is kept with probability ``q``, whatever the explanation: :math:`\mathbb{1}[u < q]`.

    All subsets are equally likely if q is 1/2: the paper's uniform law over the subsets (Eqs. 7, 9).

    >>> Bernoulli(0.5)(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.1, 0.1, 0.9]))
    tensor([1., 1., 0.])
    """

    q: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.q, Real) or isinstance(self.q, bool) or not 0 <= self.q <= 1:
            raise SettingsError(f"q must be a probability between 0 and 1 (got {self.q!r}). Try 0.5.")

    def __call__(self, mask: Tensor, u: Tensor) -> Tensor:
        return (u < self.q).to(mask.dtype).expand(mask.shape)


def literal(mask: Tensor, u: Tensor) -> Tensor:
    r"""The complement without noise, :math:`1 - M`: what the reported numbers are measured in."""
    return 1 - mask


# --- random numbers that depend on nothing but what they are for -------------------------------------------------------


def _mixed(z: Tensor) -> Tensor:
    """The finaliser of splitmix64 on int64, which wraps around as unsigned arithmetic does."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * -4658895280553007687
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * -7723592293110705685
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def _key(*parts: int) -> int:
    """One int64 from several integers, the same on every machine."""
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
        draw: which draw this is (step, sample, ...); another draw gives other numbers.
        dtype: of the result.
    """
    column = torch.arange(1, width + 1, device=keys.device) * -7046029254386353131
    bits = _mixed((keys.unsqueeze(1) + column) ^ _key(*draw))
    return ((bits >> 11) & ((1 << 53) - 1)).to(torch.float64).mul_(2.0**-53).to(dtype)


def instance_keys(instances: Instances, seed: int) -> Tensor:
    """A number for each instance that depends on the seed, its edges and its explained rows, not on its neighbours, [B]."""
    owner, start = instances.edge_owner, instances.ptr[Role.NODE]
    local = instances.edge_index - start[owner]
    place = torch.arange(owner.numel(), device=owner.device) - instances.ptr[Role.EDGE][owner]
    edges = _mixed(_mixed(local[0] * 31 + place) * 31 + local[1])
    row = _mixed(instances.row - instances.ptr[instances.outputs][instances.row_owner] + 1)
    key = _mixed(start.diff() ^ _key(seed)).index_add(0, owner, edges)
    return _mixed(key.index_add(0, instances.row_owner, row))


def element_keys(keys: Tensor, owner: Tensor) -> Tensor:
    """A number for each element of each instance, by its place among them. ``owner`` must be sorted."""
    ptr = pointers(owner.bincount(minlength=keys.numel()))
    return _mixed(keys[owner] + torch.arange(owner.numel(), device=owner.device) - ptr[owner])
