"""A time limit for a call: a verified explanation for every target, the sooner stopped the less searched."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch_geometric.explain import GNNExplainer
from typer.testing import CliRunner
from zoo import NODE_MODELS, explainer, graph, seeded

from nseg import NSEG, InputError, NsegWarning, UnsupportedError, explain_many
from nseg.baselines.exhaustive import Exhaustive
from nseg.cli import app
from nseg.explain.time_budget import RESERVE, TimeBudget
from nseg.search import deadline
from nseg.search.deadline import CLIMB_SHARE, time_is_up, time_limit

STAGES = ("climb", "second ranking", "enumeration", "moves", "kicks", "annealing")
TARGETS = list(range(9))


class Clock:
    """A clock that moves by a second whenever somebody looks."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += 1.0
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(deadline, "now", found)
    monkeypatch.setattr("nseg.explain.time_budget.now", found)
    return found


def made(**settings):
    return explainer(seeded(NODE_MODELS["gcn"]), NSEG(exact=2, **settings))


def explained(seconds: float | None, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NsegWarning)
        return explain_many(made(), graph(), TARGETS, seconds=seconds, **more)


def stopping_at(stage: str) -> Callable[..., bool]:
    """Time that runs out when a stage begins, whatever the clock says."""
    over = []

    def up(name: str, share: float = 1.0) -> bool:
        over.extend([True] if name == stage else [])
        return bool(over) and time_is_up(name, 0.0)

    return up


def test_a_limit_holds_inside_its_block_only_and_names_the_first_stage_it_cuts_short(clock: Clock) -> None:
    assert not time_is_up("climb")
    assert clock.seconds == 0, "without a limit nobody looks at the clock"
    with time_limit(4) as limit:  # begins at 1, so that half of it is over at 3
        assert not time_is_up("climb", CLIMB_SHARE)  # 2
        assert time_is_up("climb", CLIMB_SHARE)  # 3
        assert not time_is_up("moves")  # 4
        assert time_is_up("moves")  # 5
    assert limit.stopped == "climb"
    assert not time_is_up("moves")


def test_enough_time_changes_nothing(clock: Clock) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NsegWarning)
        with_limit = explain_many(made(), graph(), TARGETS, seconds=1e9)
    for one, other in zip(explained(None), with_limit, strict=True):
        assert "stopped" not in one
        assert other.stopped == ""
        assert one.pns == other.pns
        assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
        assert torch.equal(one.edge_mask, other.edge_mask)


@pytest.mark.parametrize("shard", [4, 100])
def test_no_time_still_gives_every_target_the_numbers_of_the_model(clock: Clock, shard: int) -> None:
    model, data = seeded(NODE_MODELS["gin"]).eval(), graph()
    with pytest.warns(NsegWarning, match="0 of 9 explanations were searched to the end; 9 are the best found so far"):
        found = explain_many(explainer(model, NSEG(exact=2)), data, TARGETS, seconds=1e-6, shard=shard)
    assert [one.output_id for one in found] == TARGETS
    for one in found:
        assert one.stopped == "climb"
        kept = torch.zeros(data.num_edges, dtype=torch.bool)
        kept[one.edge_id[one.hard_edge_mask]] = True
        for edges, p in ((kept, one.p_factual), (~kept, one.p_complement)):  # for a GIN, masking is deleting
            output = model(data.x, data.edge_index[:, edges])[one.output_id].softmax(-1).detach()
            assert float(output[one.target[one.index]]) == pytest.approx(p, abs=1e-5)
        assert one.pns == pytest.approx(max(0.0, one.p_factual - one.p_complement), abs=1e-6)


@pytest.mark.parametrize("stage", STAGES)
def test_a_search_can_end_before_every_stage(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    up = stopping_at(stage)
    for room in ("descent", "climb", "harden", "moves", "annealing"):
        monkeypatch.setattr(f"nseg.search.{room}.time_is_up", up)
    small, targets = graph(nodes=7, edges=12, kind="directed"), list(range(7))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NsegWarning)
        found = explain_many(made(anneal=2), small, targets, seconds=1e9)
    last = stage in ("kicks", "annealing")  # perhaps none needs them
    assert {one.stopped for one in found} <= {stage, "" if last else stage}
    monkeypatch.undo()
    best = explain_many(
        explainer(seeded(NODE_MODELS["gcn"]), Exhaustive(undirected=False, intervention="remove")), small, targets
    )
    for one, other in zip(found, best, strict=True):
        assert 0 <= one.pns <= other.pns + 1e-6, "no search beats all subsets"


def test_later_batches_share_what_earlier_ones_have_left(clock: Clock) -> None:
    budget = TimeBudget(0, end=101.0, targets=100, shard=25)
    budget.begin_shard(0)
    assert budget.share(25) == 25  # at 1: a quarter of 100 seconds
    assert budget.share(25) == 33  # at 2: a third of 99 seconds
    budget.begin_shard(3)
    assert budget.share(25) == 98  # at 3: all that is left
    assert budget.share(25) == 97  # a search that is repeated
    clock.seconds = 200
    assert budget.share(25) == 0


def test_workers_have_more_time_together(clock: Clock) -> None:
    clock.seconds = -1.0  # the call begins at 0
    limit = TimeBudget.of_call(11 / (1 - RESERVE), NSEG(), stored=False)
    budget = limit.shared_by([(n, [0, 1]) for n in range(5)], type("", (), {"workers": 2}))
    budget.begin_shard(0)
    assert budget.share(2) == pytest.approx(10 * 2 / 5)
    budget.begin_shard(4)  # the last shard: the other worker has nothing to do
    assert budget.share(2) == pytest.approx(9)


def test_workers_are_told_the_time(clock: Clock) -> None:
    from nseg.backends import Processes

    with Processes(1) as backend:
        found = explained(1e-6, backend=backend)
    assert {one.stopped for one in found} == {"climb"}


def test_errors_say_what_to_do(tmp_path) -> None:
    for seconds in (0, -1, float("nan"), float("inf"), True, "5"):
        with pytest.raises(InputError, match="seconds must be a positive number"):
            explain_many(made(), graph(), [1], seconds=seconds)
    with pytest.raises(InputError, match="can be stopped at any time and continues later"):
        explain_many(made(), graph(), [1], seconds=5, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(UnsupportedError, match="got GNNExplainer"):
        explain_many(explainer(seeded(NODE_MODELS["gcn"]), GNNExplainer(epochs=2)), graph(), [1], seconds=5)


def test_the_command_line_has_the_limit_too(tmp_path) -> None:
    words = ["explain", "tree-cycles", "--index", "511:513", "--quiet", "--seconds"]
    with pytest.warns(NsegWarning, match="0 of 2 explanations were searched to the end"):
        result = CliRunner().invoke(app, [*words, "1e-6"])
    assert result.exit_code == 0
    assert "2 explained" in result.output
    refused = CliRunner().invoke(app, [*words, "5", "--out", str(tmp_path / "run")])
    assert isinstance(refused.exception, InputError)
