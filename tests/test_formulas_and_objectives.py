"""Laws of the bounds, and objectives as the catalogue names them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nseg.search import formulas
from nseg.search.catalogue import SURROGATES
from nseg.search.objective import OBJECTIVES, objective_of
from nseg.search.settings import BaseSettings, Settings

probabilities = st.floats(0, 1, allow_subnormal=False)


@given(probabilities, probabilities)
def test_pns_is_at_most_pn_and_ps_and_all_are_probabilities(p_factual: float, p_complement: float) -> None:
    p, q = torch.tensor(p_factual, dtype=torch.double), torch.tensor(p_complement, dtype=torch.double)
    pns, pn, ps = formulas.pns_bound(p, q), formulas.pn_bound(p, q), formulas.ps_bound(p, q)
    assert 0 <= pns <= torch.minimum(pn, ps) + 1e-12
    assert torch.maximum(pn, ps) <= 1 + 1e-12


@given(probabilities, probabilities)
def test_the_bounds_hold_for_every_joint_law_with_these_margins(p_factual: float, p_complement: float) -> None:
    """PNS = P(Y=y under xi and not under its complement); it is least where the two agree as often as they can."""
    agree = min(p_factual, p_complement)  # most mass on (y, y)
    least_pns = p_factual - agree
    assert abs(float(formulas.pns_bound(torch.tensor(p_factual), torch.tensor(p_complement))) - least_pns) < 1e-6


def test_mix_is_the_expectation_over_events_and_samples() -> None:
    p = torch.rand(5, 3, 4, 2)
    split = (0.5, 0.2, 0.3)
    by_hand = sum(w * p[:, a].mean(1) for a, w in enumerate(split))
    torch.testing.assert_close(formulas.mix(p, split), by_hand)


def test_entropy_and_its_gradient_stay_finite_for_certain_masks() -> None:
    logits = torch.tensor([-200.0, -20.0, -1.0, 0.0, 2.0, 200.0], requires_grad=True)
    formulas.entropy(logits).sum().backward()
    assert torch.isfinite(logits.grad).all()
    mask = logits.detach()[1:5].double().sigmoid()
    by_hand = -mask * mask.log() - (1 - mask) * (1 - mask).log()
    torch.testing.assert_close(formulas.entropy(logits)[1:5].detach().double(), by_hand, rtol=1e-4, atol=1e-6)


# --- objectives ------------------------------------------------------------------------------------------------------------


def test_the_catalogue_names_the_surrogates_of_every_objective() -> None:
    """The catalogue imports no torch, so it repeats what the classes say."""
    assert {name: tuple(objective.surrogates) for name, objective in OBJECTIVES.items()} == SURROGATES


@pytest.mark.parametrize(("name", "surrogate"), [(name, one) for name, some in SURROGATES.items() for one in some])
def test_settings_name_an_objective_and_what_it_climbs(name: str, surrogate: str) -> None:
    found = objective_of(Settings(objective=name, surrogate=surrogate))
    assert type(found) is OBJECTIVES[name]
    z_factual, z_complement = torch.tensor([[0.5, 3.0]]), torch.tensor([[[[-1.0, 2.0]]]])
    value = found.climb(z_factual, z_complement, (1.0,), 0)
    assert torch.equal(value, OBJECTIVES[name].surrogates[surrogate](z_factual, z_complement, (1.0,), 0))


def test_other_methods_compare_explanations_by_pns() -> None:
    assert type(objective_of(BaseSettings())) is OBJECTIVES["pns"]


@pytest.mark.parametrize(
    ("name", "surrogate", "merit"),
    [("pns", "log", 0.6), ("pn", "log", 0.8), ("ps", "log", 0.8), ("pn", "ratio", 0.75), ("ps", "ratio", 0.75)],
)
def test_merits_by_hand(name: str, surrogate: str, merit: float) -> None:
    """p = 0.8 with the explanation alone and 0.2 in the complement."""
    value = OBJECTIVES[name](surrogate).merit(torch.tensor(0.8), torch.tensor(0.2))
    assert float(value) == pytest.approx(merit)


def test_an_explanation_is_valid_if_it_does_what_the_objective_asks_for() -> None:
    """PNS: keeps the class, and the class changes without it; PN: the latter; PS: the former. Shares must be whole."""
    keeps, remains = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.5]), torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5])
    valid = {name: objective().valid(keeps, remains).tolist() for name, objective in OBJECTIVES.items()}
    assert valid == {
        "pns": [True, False, False, False, False],
        "pn": [True, False, True, False, False],
        "ps": [True, True, False, False, False],
    }
