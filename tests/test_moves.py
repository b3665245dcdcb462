"""Hard explanations: enumeration as the oracle, moves that never lose; and the descent loop."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch
from test_causal_model import causal_model
from torch_geometric.data import Data
from torch_geometric.explain.config import MaskType
from zoo import NODE_MODELS, Planted, explainer, graph, seeded

from nseg import NSEG, Settings, SettingsError, baselines, explain_many
from nseg.search import formulas
from nseg.search.climb import climb_bound, initial_logits
from nseg.search.descent import DescentSettings, StepState, descend
from nseg.search.enumeration import best_subset
from nseg.search.harden import blend_to_hard
from nseg.search.moves import Limit, _Moves, climb_merit, shrink
from nseg.search.noise import uniform
from nseg.search.objective import OBJECTIVES
from nseg.search.parts import MaskParts, Masks
from nseg.search.subsets import SubsetScorer
from nseg.search.worlds import evaluate, world_log_odds

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}


def limits(best: torch.Tensor, tolerance: float) -> Limit:
    return Limit(best - tolerance, best, torch.zeros_like(best, dtype=torch.bool))


def random_subset(parts: MaskParts, draw: int) -> torch.Tensor:
    return uniform(torch.arange(parts.owner.numel()), 1, (draw,), torch.float).squeeze(1) < 0.4


# --- all subsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [None, MaskType.object], ids=["e", "ef"])
def test_the_best_subset_is_the_one_that_a_plain_loop_finds(nodes) -> None:
    """What every subset gives does not depend on the objective or the tolerance, so that it is asked once."""
    model, data = seeded(NODE_MODELS["gcn"], 2), graph(edges=16, seed=1)
    rows = [5, 0, 7, 9]
    split = (0.5, 0.2, 0.3)
    explain = explainer(model, NSEG(), edge_mask_type="object", node_mask_type="object")
    with causal_model(model, data, rows) as causal:
        parts = MaskParts.of(causal.instances, True, nodes, undirected=True)
        small = (parts.count <= 9).nonzero().flatten().tolist()
        assert len(small) >= 3
        outcomes: dict[int, dict[tuple[bool, ...], tuple[float, float, bool, bool]]] = {b: {} for b in small}
        for b in small:
            mine = parts.owner == b
            for bits in itertools.product((False, True), repeat=int(mine.sum())):
                full = torch.zeros(parts.owner.numel())
                full[mine] = torch.tensor(bits).float()
                outcomes[b][bits] = by_pyg(explain, data, parts, full, b, rows[b], split)
        for objective, tolerance in itertools.product(("pns", "pn", "ps"), (0.0, 0.03)):
            settings = Settings(objective=objective, tolerance=tolerance, split=split, undirected=True, intervention="mask")
            kept, exact = best_subset(causal, parts, settings, most=9)
            assert exact.nonzero().flatten().tolist() == small
            for b in small:
                worth = {bits: merit(objective, any(bits), *outcome) for bits, outcome in outcomes[b].items()}
                best = max(value for value, _ in worth.values())
                good = {bits for bits, (value, _) in worth.items() if value >= best - tolerance - 1e-5}
                good = {bits for bits in good if worth[bits][1]} or good  # valid ones come first
                chosen = tuple(kept[parts.owner == b].tolist())
                assert sum(chosen) == min(map(sum, good))
                assert chosen in good
                assert worth[chosen][0] >= max(worth[bits][0] for bits in good if sum(bits) == sum(chosen)) - 2e-5


def merit(objective: str, some: bool, p: float, q: float, with_it: bool, without: bool) -> tuple[float, bool]:
    """What a subset is worth, and whether it is a valid explanation; one without elements shows nothing."""
    valid = {"pns": with_it and not without, "pn": not without, "ps": with_it}[objective]
    value = {"pns": p - q, "pn": 1 - q, "ps": p}[objective]
    return (value, valid) if some else (min(value, 0.0), False)


def by_pyg(explain, data, parts, full, b, node, split) -> tuple[float, float, bool, bool]:
    """Factual and complement probability of a subset, and whether the class is there with and without it.

    By PyG's own masks on the whole graph, one world at a time.
    """
    weights, here = parts.to_weights(parts.unflatten(full)), parts.instances
    edge, factor = torch.zeros(data.num_edges), torch.zeros(data.num_nodes, 1)
    mine = here.edge_owner == b
    edge[here.edge_id[mine]] = weights["edges"][mine]
    if "nodes" not in weights:
        factor = None
    else:
        factor[here.node_id[here.node_owner == b]] = weights["nodes"][here.node_owner == b]
    label = int(here.target[b])

    def world(e, n) -> tuple[float, bool]:
        output = explain.get_masked_prediction(data.x, data.edge_index, n, e)[node]
        return float(output.softmax(-1)[label]), int(output.argmax()) == label

    p, with_it = world(edge, factor)
    if factor is None:
        q, without = world(1 - edge, None)
        return p, q, with_it, without
    events = world(1 - edge, 1 - factor), world(1 - edge, factor), world(edge, 1 - factor)
    q = sum(w * v for w, (v, _) in zip(split, events, strict=True))
    return p, q, with_it, events[0][1]


@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
@pytest.mark.parametrize("nodes", [None, "object"], ids=["e", "ef"])
def test_the_default_is_never_better_than_enumeration_and_close_to_it(name: str, nodes: str | None) -> None:
    """With tolerance 0 and without its own enumeration, the mean distance to the optimum stays under 0.01."""
    gaps = []
    masks = {"edge_mask_type": "object", "node_mask_type": nodes}
    by = "mask" if name == "gat" else "remove"  # all subsets as smaller graphs would take a minute
    for seed in range(2):
        model, data = seeded(NODE_MODELS[name], seed), graph(edges=16 if nodes else 24, seed=seed)
        rows = [0, 3, 5, 7, 9, 11]
        oracle = explainer(model, baselines.make("exhaustive", undirected=False, most=18, intervention=by), **masks)
        ours = explainer(model, NSEG(tolerance=0.0, exact=0, intervention=by), **masks)
        some = [row for row, count in zip(rows, elements(ours, data, rows), strict=True) if count <= 12]
        for best, found in zip(explain_many(oracle, data, some), explain_many(ours, data, some), strict=True):
            assert best.exact
            assert not found.exact
            assert found.pns <= best.pns + 1e-5
            gaps.append(best.pns - found.pns)
    assert len(gaps) >= 6
    assert sum(gaps) / len(gaps) < 0.01, gaps


def elements(explain, data, rows: list[int]) -> list[int]:
    with causal_model(explain.model, data, rows) as causal:
        return explain.algorithm.parts(causal.instances).count.tolist()


def test_small_instances_are_solved_exactly_and_say_so() -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph(edges=24)
    explain = explainer(model, NSEG(exact=8, tolerance=0.0))
    found = explain_many(explain, data, range(24))
    counts = elements(explain, data, list(range(24)))
    assert all(one.exact for one, count in zip(found, counts, strict=True) if count <= 8)
    assert all(count <= 11 for one, count in zip(found, counts, strict=True) if one.exact)  # 3 more where it is stuck
    assert not all(one.exact for one in found)
    small = [one for one in found if one.exact]
    assert small
    oracle = explainer(model, baselines.make("exhaustive", undirected=False))
    for one, best in zip(small, explain_many(oracle, data, [one.output_id for one in small]), strict=True):
        assert one.pns == pytest.approx(best.pns, abs=1e-5)


# --- moves -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [None, MaskType.object, MaskType.attributes], ids=["e", "ef", "attributes"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_moves_never_lose(name: str, nodes) -> None:
    model, data, settings = seeded(NODE_MODELS[name]), graph(), Settings(rounds=4)
    with causal_model(model, data, [0, 5, 9]) as causal:
        parts = MaskParts.of(causal.instances, True, nodes)
        scorer = SubsetScorer(causal, parts, settings)

        def score(kept: torch.Tensor) -> torch.Tensor:
            return scorer.score(1, lambda _: kept.unsqueeze(0))[0]

        before = random_subset(parts, 3)
        climbed = climb_merit(causal, parts, before, settings)
        assert (score(climbed) >= score(before)).all()
        assert (score(climbed) > score(before) + 1e-3).any()
        limit = limits(score(climbed), 0.02)
        small = shrink(causal, parts, climbed, settings, limit)
        assert (score(small) >= limit.least).all()
        assert (score(small) <= limit.most).all()
        assert not (small & ~climbed).any()
        assert small.sum() < climbed.sum()
        for b in range(3):  # as it would be alone
            alone = causal.select(torch.tensor([b]))
            mine = parts.owner == b
            assert torch.equal(climb_merit(alone, parts.on(alone.instances), before[mine], settings), climbed[mine])


def test_extremes_are_those_of_all_worlds_asked_whichever_copies_of_an_instance_asked_them() -> None:
    model, data = seeded(NODE_MODELS["gcn"], 2), graph(edges=16, seed=1)
    with causal_model(model, data, [5, 0, 7]) as causal:
        parts, settings, seen = MaskParts.of(causal.instances, True, None), Settings(), []
        for some in (causal, causal.select(torch.tensor([2, 0])).repeat(3), causal.removing()):
            its = parts.on(some.instances)
            for draw in range(4):
                merit, _ = SubsetScorer(some, its, settings).measure(1, lambda _, d=draw, m=its: random_subset(m, d)[None])
                high, low = some.extremes.span
                assert bool((merit[0] <= OBJECTIVES["pns"]().merit(high, low) + 1e-5).all())
                seen.append(causal.extremes.span)
        assert all(bool((a[0] <= b[0]).all() and (a[1] >= b[1]).all()) for a, b in itertools.pairwise(seen))
        grew = (torch.stack(seen[7]) != torch.stack(seen[3])).any(0)
        assert bool(grew.any())
        assert not bool(grew[1])  # it was not in the second model


def test_no_element_of_a_shrunk_subset_can_be_dropped() -> None:
    """Without any one of its elements, the merit falls below the limit."""
    model, data, settings = seeded(NODE_MODELS["gcn"]), graph(), Settings(rounds=50)
    with causal_model(model, data, [0, 3, 5, 9]) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
        scorer = SubsetScorer(causal, parts, settings)
        everything = torch.ones_like(parts.owner, dtype=torch.bool)
        least = scorer.score(1, lambda _: everything.unsqueeze(0))[0] - 0.05
        limit = limits(least + 0.05, 0.05)
        small = shrink(causal, parts, everything, settings, replace(limit, most=torch.ones_like(least)))
        for element in small.nonzero().flatten().tolist():
            less = small.clone()
            less[element] = False
            b = int(parts.owner[element])
            assert scorer.score(1, lambda _, less=less: less.unsqueeze(0))[0, b] < least[b]


def test_soft_masks_are_blended_to_hard_ones_only_as_far_as_needed() -> None:
    model, data, settings = seeded(NODE_MODELS["gin"]), graph(), Settings(tolerance=0.01)
    with causal_model(model, data, [0, 3, 5, 9]) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
        hard = parts.unflatten(climb_merit(causal, parts, random_subset(parts, 1), settings))
        bad = parts.full(0.5, torch.float)
        moved = blend_to_hard(causal, parts, bad, hard, settings)
        same = blend_to_hard(causal, parts, hard.map(lambda m: m.float()), hard, settings)
        assert torch.equal(same["edges"], hard["edges"].float())
        nearest = Masks(edges=bad["edges"] + 0.9 * (hard["edges"].float() - bad["edges"]))
        assert (gap(causal, parts, moved) >= gap(causal, parts, nearest) - 0.01 - 1e-4).all()
        assert moved["edges"][hard["edges"]].min() >= 0.5 >= moved["edges"][~hard["edges"]].max()


def gap(causal, parts: MaskParts, masks: Masks) -> torch.Tensor:
    """p_factual - p_complement of each instance, [B]."""
    found = evaluate(causal, parts, masks.map(lambda mask: mask.float().unsqueeze(0)), (1.0,))
    return formulas.gap(found.p_factual, found.p_complement)[0]


# --- the descent loop ------------------------------------------------------------------------------------------------------


def test_an_instance_that_stops_early_takes_the_same_steps_alone_and_in_a_batch() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    rows, settings = list(range(6)), Settings(steps=60, patience=6)
    with causal_model(model, data, rows) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
        found = climb_bound(causal, parts, settings)
        assert found.steps.min() < found.steps.max() <= 60
        for b in range(6):
            alone = causal.select(torch.tensor([b]))
            one = climb_bound(alone, parts.on(alone.instances), settings)
            assert int(one.steps) == int(found.steps[b])
            mine = found.soft["edges"][parts.owner == b]
            torch.testing.assert_close(one.soft["edges"], mine, rtol=1e-3, atol=1e-4)


def test_the_best_masks_seen_are_kept() -> None:
    """Their merit is the highest seen, up to the tolerance, and they are about as small as any mask that good."""
    model, data = seeded(NODE_MODELS["gin"]), graph()
    with causal_model(model, data, [0, 3, 5, 9]) as causal:
        parts, settings = MaskParts.of(causal.instances, edges=True), Settings(steps=40, noise=0.0, starts=(0.0, 2.0))
        seen = []

        def method(state: StepState) -> tuple[torch.Tensor, torch.Tensor]:
            z = world_log_odds(state.causal, state.parts, state.soft)
            merit = formulas.gap(z[0].sigmoid(), formulas.mix(z[1].sigmoid(), (1.0,))).detach()
            size = state.parts.size(state.soft)
            seen.append((merit, size.detach()))
            return -formulas.climb_log_gap(*z, (1.0,), 0) + 0.1 * size, merit

        start = initial_logits(causal, parts, settings)
        found = descend(causal, parts, start, method, DescentSettings(40, 0.1, None, 0.05))
        merit, size = (torch.stack(values).flatten(0, 1) for values in zip(*seen, strict=True))  # [steps * P, B]
        best = merit.amax(0)
        # the tolerance counts once per start, and once among starts
        assert (gap(causal, parts, found.best) >= best - 0.05 - 0.05 - 1e-5).all()
        assert torch.allclose(found.trace[-1], best)
        ideal = torch.where(merit >= best - 0.05, size, torch.inf).amin(0)
        assert (parts.size(found.best) <= size.amax(0)).all()
        assert (parts.size(found.best) <= ideal * 1.5 + 1).all()


def test_the_gradient_of_the_log_surrogate_survives_where_that_of_the_gap_vanishes() -> None:
    """p = sigmoid(-60 + 80 m): at m = 1/2 the class has probability e^-20 with and without, so hardly any slope."""
    x, edge_index = torch.tensor([[0.0], [80.0]]), torch.tensor([[1], [0]])
    slopes = {}
    with causal_model(Planted(-60.0), Data(x=x, edge_index=edge_index), [0], BINARY) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
        for name in ("gap", "log"):
            mask = torch.tensor([[0.5]], requires_grad=True)
            z = world_log_odds(causal, parts, Masks(edges=mask))
            value = OBJECTIVES["pns"](name).climb(*z, (1.0,), 0).sum()
            (slopes[name],) = torch.autograd.grad(value, mask)
    assert abs(float(slopes["gap"])) < 1e-6
    assert float(slopes["log"]) > 70


@pytest.mark.parametrize("objective", ["pn", "ps"])
def test_numerator_and_denominator_of_ratio_bounds_are_climbed_alternately(objective: str) -> None:
    z_f, z_c = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[[[-0.5]]]], requires_grad=True)
    p, q = float(torch.sigmoid(z_f.detach())), float(torch.sigmoid(z_c.detach()))
    bound = {"pn": 1 - q / p, "ps": 1 - (1 - p) / (1 - q)}[objective]
    moved = []
    for step in (0, 1):
        value = OBJECTIVES[objective]("ratio").climb(z_f, z_c, (1.0,), step)
        assert float(value.detach()) == pytest.approx(bound, abs=1e-6)
        slopes = torch.autograd.grad(value.sum(), (z_f, z_c), allow_unused=True)
        moved.append([s is not None and bool(s.any()) for s in slopes])
    assert sorted(moved) == [[False, True], [True, False]]
    x = torch.tensor([0.0, 8.0, 0.0, 0.0]).unsqueeze(1)
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])
    explain = explainer(Planted(-4.0), NSEG(objective, surrogate="ratio"), BINARY)
    assert explain(x, edge_index, index=0).hard_edge_mask.tolist() == [True, False, False]


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"surrogate must be .*\(got 'ratio'\)"):
        NSEG(surrogate="ratio")
    with pytest.raises(SettingsError, match=r"keep='last' needs one start"):
        NSEG(keep="last")
    with pytest.raises(SettingsError, match=r"starts must be one or more"):
        NSEG(starts=())


def test_equal_flips_are_chosen_alike_beside_a_larger_instance() -> None:
    """Where all flips of an instance are tried, the order of equals does not come from a gradient that others need."""
    model, data = seeded(NODE_MODELS["gcn"], 2), graph(nodes=24, edges=110, seed=1)
    with causal_model(model, data, list(range(20))) as causal:
        parts = MaskParts.of(causal.instances, True, None)
        moves = _Moves(causal, parts, Settings())
        most = moves.flips_tried
        assert (parts.count > most).any()
        assert (parts.count <= most).any()
        flips = moves._number_flips(random_subset(parts, 0))
        small = (parts.count <= most)[parts.owner]
        assert torch.equal(flips[small], parts.position[small])
        tried = flips < most[parts.owner]
        assert torch.equal(moves._count(tried), torch.minimum(parts.count, most))
        for b in range(len(parts.count)):  # numbered by position
            mine = (parts.owner == b) & tried
            assert torch.equal(flips[mine], torch.arange(int(mine.sum())))
