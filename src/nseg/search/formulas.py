r"""The paper's equations, one pure function each.

:math:`p_\xi` is the probability of the explained class in the *factual* world, which keeps the explanation;
:math:`p_{\xi^c}` is its probability in the *complement*, a mixture of worlds that do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def gap(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""Signed gap :math:`p_\xi - p_{\xi^c}`, the quantity inside Eq. 18 that is climbed.

    >>> gap(torch.tensor([0.9, 0.1]), torch.tensor([0.2, 0.6]))
    tensor([ 0.7000, -0.5000])
    """
    return p_factual - p_complement


def pns_bound(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    r"""Lower bound of the PNS, :math:`\max\{0,\, p_\xi - p_{\xi^c}\}` (Eq. 2).

    Reported, never climbed: its gradient is zero wherever the bound is vacuous.

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


def bounds(p_factual: Tensor, p_complement: Tensor) -> Tensor:
    """The bounds of PNS, PN and PS, [3, ...].

    Each decreases in ``p_complement``, so the ends of its interval give the ends of theirs.

    >>> bounds(torch.tensor([0.8, 0.8]), torch.tensor([0.2, 0.5]))
    tensor([[0.6000, 0.3000],
            [0.7500, 0.3750],
            [0.7500, 0.6000]])
    """
    return torch.stack([bound(p_factual, p_complement) for bound in (pns_bound, pn_bound, ps_bound)])


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


def mix(p_events: Tensor, split: Sequence[float]) -> Tensor:
    r"""Probability in the complement, :math:`\sum_a P_a\, \mathbb{E}[f^{\hat y} \mid a]` over its events (Eqs. 11, 15-17).

    Args:
        p_events: probability in each sub-event and sample, [..., A, S, B].
        split: probability of each sub-event, A numbers.

    >>> mix(torch.tensor([[[0.2], [0.4]], [[1.0], [0.0]]]), (0.5, 0.5))
    tensor([0.4000])
    """
    p = p_events.mean(-2)
    if len(split) == 1:
        return p.squeeze(-2) * split[0]
    return torch.einsum("...ab,a->...b", p, p.new_tensor(split))


def size(mask: Tensor, owner: Tensor, number: int) -> Tensor:
    r"""Sum of the mask of each instance, :math:`\|M\|_1` (Eq. 19), [..., n] to [..., B].

    >>> size(torch.tensor([0.5, 1.0, 0.25]), torch.tensor([0, 0, 1]), 2)
    tensor([1.5000, 0.2500])
    """
    return mask.new_zeros(*mask.shape[:-1], number).index_add(-1, owner, mask)


def entropy(logits: Tensor) -> Tensor:
    r"""Elementwise entropy of a mask, :math:`-m \log m - (1-m) \log(1-m)` with :math:`m = \sigma(l)` (Eq. 19).

    Written in the logits, :math:`\log(1 + e^l) - l\,\sigma(l)`, so that value and gradient stay finite for masks of 0 and 1.

    >>> entropy(torch.tensor([0.0, 100.0]))
    tensor([0.6931, 0.0000])
    """
    return F.softplus(logits) - logits * torch.sigmoid(logits)


# --- surrogates, which are climbed -------------------------------------------------------------------------------------
# Functions of the log-odds z_factual [P, B] and z_complement [P, A, S, B], whose sigmoids are probabilities, of the split of
# the complement into sub-events, and of the step.


def climb_gap(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The paper's PNS objective :math:`p_\xi - p_{\xi^c}` (Eq. 18), whose gradient vanishes for confident models."""
    return gap(z_factual.sigmoid(), mix(z_complement.sigmoid(), split))


def climb_necessity(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The paper's NSEG(PN) objective (appendix C)."""
    return necessity(z_factual.sigmoid(), mix(z_complement.sigmoid(), split))


def climb_sufficiency(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The paper's NSEG(PS) objective (appendix C)."""
    return sufficiency(z_factual.sigmoid(), mix(z_complement.sigmoid(), split))


def climb_log_gap(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""Surrogate of the gap, :math:`\log p_\xi + \sum_a P_a\, \mathbb{E}\log(1 - f^{\hat y})`: 0 where the PNS bound is 1.

    Its gradient is that of a log-odds, so it does not vanish where the model is confidently wrong.

    >>> climb_log_gap(torch.tensor([[0.0]]), torch.tensor([[[[0.0]]]]), (1.0,), 0)
    tensor([[-1.3863]])
    """
    return climb_log_sufficiency(z_factual, z_complement, split, step) + climb_log_necessity(
        z_factual, z_complement, split, step
    )


def climb_log_necessity(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""Surrogate of necessity, :math:`\sum_a P_a\, \mathbb{E}\log(1 - f^{\hat y})`."""
    return mix(F.logsigmoid(-z_complement), split)


def climb_log_sufficiency(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""Surrogate of sufficiency, :math:`\log p_\xi`."""
    return F.logsigmoid(z_factual)


def climb_pn_ratio(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The PN bound of Prop. 3 without its clamp, :math:`1 - p_{\xi^c} / p_\xi`.

    Numerator and denominator are climbed alternately, one per step, so that neither outweighs the other (appendix C).
    """
    return 1 - _alternate(mix(z_complement.sigmoid(), split), z_factual.sigmoid(), step)


def climb_ps_ratio(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The PS bound of Prop. 3 without its clamp, :math:`1 - (1 - p_\xi) / (1 - p_{\xi^c})`, alternating like PN."""
    return 1 - _alternate((-z_factual).sigmoid(), mix((-z_complement).sigmoid(), split), step)


def _alternate(numerator: Tensor, denominator: Tensor, step: int) -> Tensor:
    """The ratio, with a gradient through the numerator in even steps and through the denominator in odd ones."""
    if step % 2:
        return numerator.detach() / denominator.clamp_min(1e-6)
    return numerator / denominator.detach().clamp_min(1e-6)
