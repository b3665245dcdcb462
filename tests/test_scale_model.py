"""The cluster simulation: closed forms where stragglers, losses and transfers have one, and laws where not."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import scale_model as model

Cluster, Work, simulate = model.Cluster, model.Work, model.simulate


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 9), st.integers(1, 9))
def test_equal_shards_without_trouble_take_rounds(shards: int, workers: int, startup: int, seconds: int) -> None:
    found = simulate(Work(shards, (float(seconds),)), Cluster(workers, startup=startup))
    assert found.seconds == startup + math.ceil(shards / workers) * seconds
    assert found.useful_seconds == shards * seconds
    assert found.core_seconds == workers * found.seconds
    assert found.lost == 0


@given(st.lists(st.integers(1, 50), min_size=2, max_size=30), st.integers(1, 8))
def test_the_end_is_between_the_bounds_of_list_scheduling(durations: list[int], workers: int) -> None:
    found = simulate(Work(len(durations), tuple(map(float, durations))), Cluster(workers)).seconds
    best = max(*durations, sum(durations) / workers)
    assert best <= found <= sum(durations) / workers + (1 - 1 / workers) * max(durations) + 1e-9  # Graham 1966


def test_stragglers_transfers_and_the_driver_cost_what_they_should() -> None:
    work = Work(10, (6.0,), graph_bytes=400.0, result_bytes=20.0)
    assert simulate(work, Cluster(1, slow_share=1.0, slowdown=3.0)).seconds == 180
    assert simulate(work, Cluster(2, bandwidth=10.0)).seconds == 40 + 5 * (6 + 2)
    assert simulate(work, Cluster(2, bandwidth=100.0, store_bandwidth=20.0)).seconds == pytest.approx(40 + 5 * 6.2)
    assert simulate(work, Cluster(10, driver_seconds=2.0)).seconds == 6 + 10 * 2
    assert simulate(work, Cluster(1, driver_seconds=2.0)).seconds == 60 + 2


def test_lost_workers_cost_what_restarts_cost_on_average() -> None:
    shards, seconds, startup, rate = 20_000, 10.0, 4.0, 0.05
    found = simulate(Work(shards, (seconds,)), Cluster(1, startup=startup, losses_per_hour=rate * 3600), seed=1)
    expected = (math.exp(rate * seconds) - 1) * (1 / rate + startup)  # a shard that begins again after every loss
    assert found.seconds / shards == pytest.approx(expected, rel=0.03)
    assert found.lost / shards == pytest.approx(math.exp(rate * seconds) - 1, rel=0.03)


def test_equal_seeds_give_equal_forecasts_and_the_plan_stops_scaling() -> None:
    work = Work(500, (1.0, 2.0, 5.0))
    cluster = Cluster(7, startup=3.0, slow_share=0.3, slowdown=2.0, losses_per_hour=30.0)
    assert simulate(work, cluster, 3) == simulate(work, cluster, 3) != simulate(work, cluster, 4)
    rows = model.forecast_rows((1.0, 1.2), 50)
    assert [row["workers"] for row in rows] == list(model.WORKERS)
    efficiency = [row["efficiency"] for row in rows]
    assert efficiency == sorted(efficiency, reverse=True)
    assert efficiency[1] > 0.8
    assert efficiency[-1] < 0.2
