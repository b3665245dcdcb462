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
    r"""Sum of the mask of each instance, :math:`\|M\|_1` (Eq. 19), [..., n] to [..., B].

    >>> size(torch.tensor([0.5, 1.0, 0.25]), torch.tensor([0, 0, 1]), 2)
    tensor([1.5000, 0.2500])
    """
    return mask.new_zeros(*mask.shape[:-1], number).index_add(-1, owner, mask)


def entropy(logits: Tensor) -> Tensor:
    r"""Elementwise entropy of a mask, :math:`-m \log m - (1-m) \log(1-m)` with :math:`m = \sigma(l)` (Eq. 19).

    Written in the logits, :math:`\log(1 + e^l) - l\,\sigma(l)`, so that value and gradient stay finite for certain masks.

    >>> entropy(torch.tensor([0.0, 100.0]))
    tensor([0.6931, 0.0000])
    """
    return F.softplus(logits) - logits * torch.sigmoid(logits)


# --- what is climbed -------------------------------------------------------------------------------------------------------
# Functions of log-odds: z_factual [P, B] and z_complement [P, A, S, B], whose sigmoids are probabilities, and the split.


def climb_gap(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The paper's PNS objective :math:`p_\xi - p_{\xi^c}` (Eq. 18), whose gradient dies for confident models."""
    return gap(z_factual.sigmoid(), mix(z_complement.sigmoid(), split))


def climb_necessity(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The paper's NSEG(PN) objective (appendix C)."""
    return necessity(z_factual.sigmoid(), mix(z_complement.sigmoid(), split))


def climb_sufficiency(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The paper's NSEG(PS) objective (appendix C)."""
    return sufficiency(z_factual.sigmoid(), mix(z_complement.sigmoid(), split))


def climb_log_gap(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""Surrogate of the gap, :math:`\log p_\xi + \sum_a P_a\, \mathbb{E}\log(1 - f^{\hat y})`: 0 where the PNS bound is 1.

    Its gradient is that of a log-odds, so it does not vanish where the model is sure of the wrong thing.

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

    Numerator and denominator are climbed in turn, one per step, so that neither outweighs the other (appendix C).
    """
    return 1 - _in_turn(mix(z_complement.sigmoid(), split), z_factual.sigmoid(), step)


def climb_ps_ratio(z_factual: Tensor, z_complement: Tensor, split: Sequence[float], step: int) -> Tensor:
    r"""The PS bound of Prop. 3 without its clamp, :math:`1 - (1 - p_\xi) / (1 - p_{\xi^c})`, in turn like the other."""
    return 1 - _in_turn((-z_factual).sigmoid(), mix((-z_complement).sigmoid(), split), step)


def _in_turn(numerator: Tensor, denominator: Tensor, step: int) -> Tensor:
    """The ratio, through one part of which a gradient flows."""
    if step % 2:
        return numerator.detach() / denominator.clamp_min(1e-6)
    return numerator / denominator.detach().clamp_min(1e-6)


Climb = Callable[[Tensor, Tensor, Sequence[float], int], Tensor]

CLIMBED: dict[tuple[str, str], Climb] = {
    ("pns", "gap"): climb_gap,
    ("pn", "gap"): climb_necessity,
    ("ps", "gap"): climb_sufficiency,
    ("pns", "log"): climb_log_gap,
    ("pn", "log"): climb_log_necessity,
    ("ps", "log"): climb_log_sufficiency,
    ("pn", "ratio"): climb_pn_ratio,
    ("ps", "ratio"): climb_ps_ratio,
}
"""What is climbed, by objective and surrogate."""

MERITS: dict[tuple[str, str], Objective] = {
    ("pns", "gap"): gap,
    ("pn", "gap"): necessity,
    ("ps", "gap"): sufficiency,
    ("pn", "ratio"): pn_bound,
    ("ps", "ratio"): ps_bound,
}
"""What explanations are compared by; a logarithm is compared by what it is the logarithm of."""
