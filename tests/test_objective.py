"""Laws of the bounds."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from nseg import objective as obj

probabilities = st.floats(0, 1, allow_subnormal=False)


@given(probabilities, probabilities)
def test_pns_is_at_most_pn_and_ps_and_all_are_probabilities(p_factual: float, p_complement: float) -> None:
    p, q = torch.tensor(p_factual, dtype=torch.double), torch.tensor(p_complement, dtype=torch.double)
    pns, pn, ps = obj.pns_bound(p, q), obj.pn_bound(p, q), obj.ps_bound(p, q)
    assert 0 <= pns <= torch.minimum(pn, ps) + 1e-12
    assert torch.maximum(pn, ps) <= 1 + 1e-12


@given(probabilities, probabilities)
def test_the_bounds_hold_for_every_joint_law_with_these_margins(p_factual: float, p_complement: float) -> None:
    """PNS = P(Y=y under xi and not under its complement); it is least where the two agree as often as they can."""
    agree = min(p_factual, p_complement)  # most mass on (y, y)
    least_pns = p_factual - agree
    assert abs(float(obj.pns_bound(torch.tensor(p_factual), torch.tensor(p_complement))) - least_pns) < 1e-6


def test_mix_is_the_expectation_over_events_and_samples() -> None:
    p = torch.rand(5, 3, 4, 2)
    split = (0.5, 0.2, 0.3)
    by_hand = sum(w * p[:, a].mean(1) for a, w in enumerate(split))
    torch.testing.assert_close(obj.mix(p, split), by_hand)


def test_entropy_and_its_gradient_stay_finite_for_certain_masks() -> None:
    logits = torch.tensor([-200.0, -20.0, -1.0, 0.0, 2.0, 200.0], requires_grad=True)
    obj.entropy(logits).sum().backward()
    assert torch.isfinite(logits.grad).all()
    mask = logits.detach()[1:5].double().sigmoid()
    by_hand = -mask * mask.log() - (1 - mask) * (1 - mask).log()
    torch.testing.assert_close(obj.entropy(logits)[1:5].detach().double(), by_hand, rtol=1e-4, atol=1e-6)
