"""Flips made together: what single flips do to log-odds, added up."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nseg.search.additive import AdditiveFlips
from nseg.search.formulas import gap
from nseg.search.objective import PNS


def flips(change: torch.Tensor, odds: torch.Tensor, count: list[int]) -> AdditiveFlips:
    exists = torch.arange(len(change)).unsqueeze(1) < torch.tensor(count)
    return AdditiveFlips(PNS(), (1.0,), odds, torch.where(exists.unsqueeze(1), change, 0), exists)


def single(some: AdditiveFlips) -> torch.Tensor:
    p = (some.odds + some.change).sigmoid()
    return torch.where(some.exists, gap(p[:, 0], p[:, 1]), -torch.inf)


def merit(some: AdditiveFlips, chosen: torch.Tensor) -> torch.Tensor:
    p = (some.odds + (some.change * chosen.unsqueeze(1)).sum(0)).sigmoid()
    return gap(p[0], p[1])


def test_flips_that_seem_to_do_nothing_alone_are_found_together() -> None:
    """Each of three flips takes 7 from log-odds of 12 without the explanation: only two of them change the probability."""
    change = torch.tensor([[0.0, -7.0], [0.0, 0.5], [0.0, -7.0], [0.0, -7.0]]).unsqueeze(2)
    some = flips(change, torch.tensor([[9.0], [12.0]]), [4])
    assert float(single(some).max() - gap(*some.odds.sigmoid())) < 0.01
    pair, more = some.promising(single(some))[:, :, 0]
    assert pair.tolist() == [True, False, True, False]
    assert more.tolist() == [True, False, True, True]


def test_where_only_sufficiency_can_change_the_sets_are_the_best_of_all_of_their_size() -> None:
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        change = torch.randn(7, 2, 1, generator=rng) * torch.tensor([1.0, 0.0]).view(1, 2, 1)
        some = flips(change, torch.randn(2, 1, generator=rng), [7])
        sets = some.promising(single(some))
        for chosen, sizes in zip(sets, ((2,), (3, 4), (5, 6, 7)), strict=True):
            every = (c for size in sizes for c in itertools.combinations(range(7), size))
            best = max(float(merit(some, torch.zeros(7, 1).index_fill(0, torch.tensor(c), 1.0))) for c in every)
            assert abs(float(merit(some, chosen)) - best) < 1e-3
            assert int(chosen.sum()) in sizes


def test_sets_do_not_depend_on_who_shares_the_batch() -> None:
    rng = torch.Generator().manual_seed(1)
    count = [9, 2, 5, 1]
    change, odds = torch.randn(9, 3, 4, generator=rng), torch.randn(3, 4, generator=rng)
    some = flips(change, odds, count)
    both = AdditiveFlips(PNS(), (0.3, 0.7), some.odds, some.change, some.exists)
    together = both.promising(single(both))
    for b, number in enumerate(count):
        own = AdditiveFlips(
            PNS(), (0.3, 0.7), odds[:, b : b + 1], both.change[:number, :, b : b + 1], both.exists[:number, b : b + 1]
        )
        alone = own.promising(single(own))
        assert torch.equal(together[: len(alone), :number, b], alone[:, :, 0])
        assert not together[len(alone) :, :, b].any()


@given(
    number=st.integers(1, 40),
    instances=st.integers(0, 5),
    events=st.integers(1, 3),
    wide=st.booleans(),
    equal=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_kernel_chooses_the_same_sets(
    number: int, instances: int, events: int, wide: bool, equal: bool, seed: int
) -> None:
    rng, dtype = torch.Generator().manual_seed(seed), torch.float64 if wide else torch.float32
    change = 3 * torch.randn(number, 1 + events, instances, generator=rng, dtype=dtype)
    change = change.round() if equal else change  # many flips do the same
    odds = 5 * torch.randn(1 + events, instances, generator=rng, dtype=dtype)
    count = torch.randint(number + 1, (instances,), generator=rng)
    some = flips(change, odds, count.tolist())
    some = AdditiveFlips(PNS(), (1 / events,) * events, some.odds, some.change, some.exists)
    alone = torch.rand(number, instances, generator=rng, dtype=dtype).round(decimals=2)
    alone = torch.where(some.exists & (alone > 0.1), alone, -torch.inf)  # some are not valid
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AdditiveFlips, "_compiled", lambda *_: None)
        right = some.promising(alone)
    assert torch.equal(some.promising(alone), right)
