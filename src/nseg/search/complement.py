r"""Laws of the complement: which worlds stand for "not the explanation".

A *law* turns a mask and uniform numbers of its shape into the mask of a world in which the explanation does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from torch import Tensor

from nseg.errors import SettingsError

Law = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Shifted:
    r"""The paper's law, :math:`1 - M + \epsilon` with :math:`\epsilon` uniform in :math:`\pm` ``noise`` (Eqs. 13, 14).

    >>> import torch
    >>> Shifted(0.1)(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 1.0]))
    tensor([0.0000, 1.1000])
    """

    noise: float = 0.025

    def __call__(self, mask: Tensor, u: Tensor) -> Tensor:
        return 1 - mask + self.noise * (2 * u - 1)


@dataclass(frozen=True)
class Subset:
    r"""Each element outside the explanation is kept with probability ``keep``: :math:`(1 - M) \odot \mathbb{1}[u < q]`.

    >>> import torch
    >>> Subset(0.5)(torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.1, 0.1, 0.9]))
    tensor([0., 1., 0.])
    """

    keep: float = 0.5

    def __call__(self, mask: Tensor, u: Tensor) -> Tensor:
        return (1 - mask) * (u < self.keep)


@dataclass(frozen=True)
class Bernoulli:
    r"""Each element is kept with probability ``q``, whatever the explanation: :math:`\mathbb{1}[u < q]`.

    With q = 1/2 all subsets are equally likely: the paper's uniform law over the subsets (Eqs. 7, 9).

    >>> import torch
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
    r"""The complement without noise, :math:`1 - M`: what all reported numbers are measured in."""
    return 1 - mask
