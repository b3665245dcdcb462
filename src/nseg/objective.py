r"""What a world is worth: pure functions, one equation each.

:math:`p_\xi` is the probability of the explained class in the *factual* world, which keeps the explanation;
:math:`p_{\xi^c}` its probability in the *complement*, a mixture of worlds that do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Objective = Callable[[Tensor, Tensor], Tensor]


def gap(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""Signed gap :math:`p_\xi - p_{\xi^c}`, the quantity inside Eq. 18 that is climbed.

    >>> gap(torch.tensor([0.9, 0.1]), torch.tensor([0.2, 0.6]))
    tensor([ 0.7000, -0.5000])
    """
    return p_factual - p_complement


def pns_bound(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""Lower bound of the PNS, :math:`\max\{0,\, p_\xi - p_{\xi^c}\}` (Eq. 2).

    Reported, never climbed: its gradient is zero wherever the bound says nothing.

    >>> pns_bound(torch.tensor([0.9, 0.1]), torch.tensor([0.2, 0.6]))
    tensor([0.7000, 0.0000])
    """
    return gap(p_factual, p_complement).clamp_min(0)


def pn_bound(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""Lower bound of the PN, :math:`\max\{0,\, 1 - p_{\xi^c} / p_\xi\}` (Prop. 3); 0 where :math:`p_\xi = 0`.

    >>> pn_bound(torch.tensor([0.8, 0.1, 0.0]), torch.tensor([0.2, 0.6, 0.0]))
    tensor([0.7500, 0.0000, 0.0000])
    """
    return pns_bound(p_factual, p_complement) / torch.where(p_factual > 0, p_factual, 1)


def ps_bound(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""Lower bound of the PS, :math:`\max\{0,\, 1 - (1 - p_\xi) / (1 - p_{\xi^c})\}` (Prop. 3); 0 where there is no room.

    >>> ps_bound(torch.tensor([0.8, 0.1, 1.0]), torch.tensor([0.2, 0.6, 1.0]))
    tensor([0.7500, 0.0000, 0.0000])
    """
    room = 1 - p_complement
    return pns_bound(p_factual, p_complement) / torch.where(room > 0, room, 1)


def necessity(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""What NSEG(PN) climbs: the numerator :math:`1 - p_{\xi^c}` of its bound, the denominator held fixed (appendix C).

    >>> necessity(torch.tensor(0.9), torch.tensor(0.25))
    tensor(0.7500)
    """
    return 1 - p_complement


def sufficiency(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""What NSEG(PS) climbs: the numerator :math:`p_\xi` of its bound, the denominator held fixed (appendix C).

    >>> sufficiency(torch.tensor(0.75), torch.tensor(0.2))
    tensor(0.7500)
    """
    return p_factual


OBJECTIVES: dict[str, Objective] = {"pns": gap, "pn": necessity, "ps": sufficiency}


def mix(p_events: Tensor, split: Sequence[float]) -> Tensor:
    r"""Probability in the complement, :math:`\sum_a P_a\, \mathbb{E}[f^{\hat y} \mid a]` over its events (Eqs. 11, 15-17).

    Args:
        p_events: probability in each sub-event and sample, [..., A, S, B].
        split: probability of each sub-event, A numbers.

    >>> mix(torch.tensor([[[0.2], [0.4]], [[1.0], [0.0]]]), (0.5, 0.5))
    tensor([0.4000])
    """
    return torch.einsum("...ab,a->...b", p_events.mean(-2), p_events.new_tensor(split))


def size(mask: Tensor, owner: Tensor, number: int) -> Tensor:
    r"""Sum of the mask of each instance, :math:`\|M\|_1` (Eq. 19), [B].

    >>> size(torch.tensor([0.5, 1.0, 0.25]), torch.tensor([0, 0, 1]), 2)
    tensor([1.5000, 0.2500])
    """
    return mask.new_zeros(number).index_add(0, owner, mask.flatten(1).sum(1) if mask.dim() > 1 else mask)


def entropy(logits: Tensor) -> Tensor:
    r"""Elementwise entropy of a mask, :math:`-m \log m - (1-m) \log(1-m)` with :math:`m = \sigma(l)` (Eq. 19).

    Written in the logits, :math:`\log(1 + e^l) - l\,\sigma(l)`, so that value and gradient stay finite for certain masks.

    >>> entropy(torch.tensor([0.0, 100.0]))
    tensor([0.6931, 0.0000])
    """
    return F.softplus(logits) - logits * torch.sigmoid(logits)
