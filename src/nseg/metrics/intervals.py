"""Confidence intervals of means and shares that hold for any number of samples."""

from __future__ import annotations

import math

from scipy.special import betaincinv
from torch import Tensor


def hoeffding(samples: int, error: float) -> float:
    r"""Half-width :math:`\sqrt{\ln(2/\delta) / 2n}` of a two-sided interval of a mean in [0, 1] (Hoeffding 1963).

    >>> round(hoeffding(1000, 0.05), 4)
    0.0429
    """
    return math.sqrt(math.log(2 / error) / (2 * samples))


def empirical_bernstein(variance: Tensor, samples: int, error: float) -> Tensor:
    r"""Half-width :math:`\sqrt{2 V \ln(4/\delta) / n} + 7 \ln(4/\delta) / 3(n-1)` of such an interval.

    Theorem 4 of Maurer and Pontil, *Empirical Bernstein Bounds and Sample Variance Penalization* (COLT 2009), for both
    sides. ``variance`` is the sample variance with n - 1.

    >>> import torch
    >>> empirical_bernstein(torch.tensor([0.0, 0.04]), 1000, 0.05)
    tensor([0.0102, 0.0290])
    """
    least = math.log(4 / error)
    return (2 * least / samples * variance).sqrt() + 7 * least / (3 * (samples - 1))


def mean_interval(values: Tensor, confidence: float) -> tuple[Tensor, Tensor, Tensor]:
    """Mean of independent numbers in [0, 1], and an interval of its expectation, [S, B] to [B] each.

    The tighter of the two intervals above, each of which may err with half the probability.

    >>> import torch
    >>> mean_interval(torch.tensor([0.0, 1.0]).repeat(500).unsqueeze(1), 0.95)
    (tensor([0.5000]), tensor([0.4532]), tensor([0.5468]))
    """
    samples, error = len(values), (1 - confidence) / 2
    mean = values.mean(0)
    half = empirical_bernstein(values.var(0), samples, error).clamp(max=hoeffding(samples, error))
    return mean, (mean - half).clamp(0, 1), (mean + half).clamp(0, 1)


def share_interval(happened: int, number: int, confidence: float) -> tuple[float, float]:
    r"""Exact interval of a probability after something happened some times in a number of independent trials.

    The quantiles :math:`B(\delta/2; k, n-k+1)` and :math:`B(1-\delta/2; k+1, n-k)` of beta distributions (Clopper and
    Pearson 1934).

    >>> [tuple(round(end, 3) for end in share_interval(k, 10, 0.95)) for k in (0, 5, 10)]
    [(0.0, 0.308), (0.187, 0.813), (0.692, 1.0)]
    """
    error = (1 - confidence) / 2
    low = 0.0 if happened == 0 else float(betaincinv(happened, number - happened + 1, error))
    high = 1.0 if happened == number else float(betaincinv(happened + 1, number - happened, 1 - error))
    return low, high
