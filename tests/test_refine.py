"""Hard explanations: enumeration as the oracle, moves that never lose, connected explanations, early leaving."""

from __future__ import annotations

import itertools
from contextlib import contextmanager

import networkx as nx
import pytest
import torch
from nseg.complement import uniform
from nseg.extract import attached, towards
from nseg.instances import Inputs
from nseg.refine import best_subset, climb, shrink
from nseg.scm import borrowed
from nseg.source import Source
from nseg.space import Masks, Space, evaluate, log_odds
from nseg.subsets import Merits, Row
from torch_geometric.explain.config import MaskType, ModelConfig
from zoo import GRAPH_CONFIG, NODE_CONFIG, NODE_MODELS, Molecule, Planted, explainer, graph, seeded

from nseg import NSEG, SettingsError, baselines, explain_many
from nseg import objective as obj
from nseg.search import Descent, Settings, descend, search, start

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}


@contextmanager
def causal_model(model, data, rows, config=NODE_CONFIG):
    with borrowed(model):
        source = Source(model, ModelConfig(**config), Inputs(data.x, data.edge_index, {}), True, True)
        row = torch.as_tensor(rows)
        ((_, scm),) = source.scms(row, torch.arange(row.numel()), source.targets(None, row))
        yield scm


def some_subset(row: Row, draw: int) -> torch.Tensor:
    return uniform(torch.arange(row.owner.numel()), 1, (draw,), torch.float).squeeze(1) < 0.4


# --- all subsets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["pns", "pn", "ps"])
@pytest.mark.parametrize("nodes", [None, MaskType.object], ids=["e", "ef"])
@pytest.mark.parametrize("tolerance", [0.0, 0.03])
def test_the_best_subset_is_the_one_that_a_plain_loop_finds(nodes, objective: str, tolerance: float) -> None:
    model, data = seeded(NODE_MODELS["gcn"], 2), graph(edges=16, seed=1)
    rows = [5, 0, 7, 9]
    settings = Settings(objective=objective, tolerance=tolerance, split=(0.5, 0.2, 0.3), undirected=True)
    with causal_model(model, data, rows) as scm:
        space = Space(scm.instances, True, nodes, undirected=True)
        row = Row(space)
        kept, exact = best_subset(scm, space, settings, most=9)
        assert exact.tolist() == (row.count <= 9).tolist()
        assert exact.sum() >= 3
        explain = explainer(model, NSEG(), edge_mask_type="object", node_mask_type="object")
        for b in exact.nonzero().flatten().tolist():
            best, values = -9.0, {}
            mine = (row.owner == b).nonzero().flatten()
            for bits in itertools.product((False, True), repeat=mine.numel()):
                full = torch.zeros(row.owner.numel())
                full[mine] = torch.tensor(bits).float()
                p, q, with_it, without = by_pyg(explain, data, scm, space, row, full, b, rows[b], settings)
                valid = {"pns": with_it and not without, "pn": not without, "ps": with_it}[objective]
                values[bits] = {"pns": p - q, "pn": 1 - q, "ps": p}[objective] + tolerance * valid
                best = max(best, values[bits])
            chosen = tuple(kept[mine].tolist())
            smallest = min(sum(bits) for bits, value in values.items() if value >= best - tolerance - 1e-6)
            assert sum(chosen) == smallest
            assert values[chosen] >= best - tolerance - 1e-5


def by_pyg(explain, data, scm, space, row, full, b, node, settings) -> tuple[float, float, bool, bool]:
    """Factual and complement probability of a subset, and whether the class is there with and without it.

    By PyG's own masks on the whole graph, one world at a time.
    """
    weights, here = space.weights(row.part(full)), scm.instances
    edge, factor = torch.zeros(data.num_edges), torch.zeros(data.num_nodes, 1)
    mine = here.edge_owner == b
    edge[here.edge_id[mine]] = weights.edge[mine]
    if weights.node is None:
        factor = None
    else:
        factor[here.node_id[here.node_owner == b]] = weights.node[here.node_owner == b]
    label = int(here.target[b])

    def world(e, n) -> tuple[float, bool]:
        output = explain.get_masked_prediction(data.x, data.edge_index, n, e)[node]
        return float(output.softmax(-1)[label]), int(output.argmax()) == label

    p, with_it = world(edge, factor)
    if factor is None:
        q, without = world(1 - edge, None)
        return p, q, with_it, without
    parts = world(1 - edge, 1 - factor), world(1 - edge, factor), world(edge, 1 - factor)
    q = sum(w * v for w, (v, _) in zip(settings.split, parts, strict=True))
    return p, q, with_it, parts[0][1]


@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
@pytest.mark.parametrize("nodes", [None, "object"], ids=["e", "ef"])
def test_the_default_is_never_better_than_enumeration_and_close_to_it(name: str, nodes: str | None) -> None:
    """With tolerance 0 and without its own enumeration, the mean distance to the optimum stays under 0.01."""
    gaps = []
    masks = {"edge_mask_type": "object", "node_mask_type": nodes}
    for seed in range(4):
        model, data = seeded(NODE_MODELS[name], seed), graph(edges=16 if nodes else 24, seed=seed)
        rows = [0, 3, 5, 7, 9, 11]
        oracle = explainer(model, baselines.make("exhaustive", undirected=False, most=18), **masks)
        ours = explainer(model, NSEG(tolerance=0.0, exact=0), **masks)
        some = [r for r in rows if elements(ours, data, r) <= 14]
        for best, found in zip(explain_many(oracle, data, some), explain_many(ours, data, some), strict=True):
            assert best.exact
            assert not found.exact
            assert found.pns <= best.pns + 1e-5
            gaps.append(best.pns - found.pns)
    assert len(gaps) >= 12
    assert sum(gaps) / len(gaps) < 0.01, gaps


def elements(explain, data, node: int) -> int:
    with causal_model(explain.model, data, [node]) as scm:
        return int(Row(explain.algorithm.space(scm.instances)).count[0])


def test_small_instances_are_solved_exactly_and_say_so() -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph(edges=24)
    explain = explainer(model, NSEG(exact=8, tolerance=0.0))
    for one in explain_many(explain, data, range(24)):
        assert one.exact == (elements(explain, data, one.output_id) <= 8)
        if one.exact:
            oracle = explainer(model, baselines.make("exhaustive", undirected=False))
            (best,) = explain_many(oracle, data, [one.output_id])
            assert one.pns == pytest.approx(best.pns, abs=1e-5)


# --- moves -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [None, MaskType.object, MaskType.attributes], ids=["e", "ef", "attributes"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_moves_never_lose(name: str, nodes) -> None:
    model, data, settings = seeded(NODE_MODELS[name]), graph(), Settings(rounds=4)
    with causal_model(model, data, [0, 3, 5, 9, 11]) as scm:
        space = Space(scm.instances, True, nodes)
        row, merits = Row(space), Merits(scm, Row(space), settings)

        def worth(kept: torch.Tensor) -> torch.Tensor:
            return merits.of(1, lambda _: kept.unsqueeze(0))[0]

        before = some_subset(row, 3)
        climbed = climb(scm, space, before, settings)
        assert (worth(climbed) >= worth(before)).all()
        assert (worth(climbed) > worth(before) + 1e-3).any()
        least = worth(climbed) - 0.02
        small = shrink(scm, space, climbed, settings, least)
        assert (worth(small) >= least).all()
        assert not (small & ~climbed).any()
        assert small.sum() < climbed.sum()
        for b in range(5):  # as it would be alone
            alone = scm.select(torch.tensor([b]))
            mine = row.owner == b
            assert torch.equal(climb(alone, space.of(alone.instances), before[mine], settings), climbed[mine])


def test_a_shrunk_subset_has_nothing_to_spare() -> None:
    """No single element can be dropped without falling below the floor."""
    model, data, settings = seeded(NODE_MODELS["gcn"]), graph(), Settings(rounds=50)
    with causal_model(model, data, [0, 3, 5, 9]) as scm:
        space = Space(scm.instances, True, None)
        row, merits = Row(space), Merits(scm, Row(space), settings)
        everything = torch.ones_like(row.owner, dtype=torch.bool)
        least = merits.of(1, lambda _: everything.unsqueeze(0))[0] - 0.05
        small = shrink(scm, space, everything, settings, least)
        for element in small.nonzero().flatten().tolist():
            less = small.clone()
            less[element] = False
            b = int(row.owner[element])
            assert merits.of(1, lambda _, less=less: less.unsqueeze(0))[0, b] < least[b]


def test_soft_masks_move_towards_hard_ones_only_as_far_as_needed() -> None:
    model, data, settings = seeded(NODE_MODELS["gin"]), graph(), Settings(tolerance=0.01)
    with causal_model(model, data, [0, 3, 5, 9]) as scm:
        space = Space(scm.instances, True, None)
        row = Row(space)
        hard = row.part(climb(scm, space, some_subset(row, 1), settings))
        bad = Masks(torch.full((row.owner.numel(),), 0.5), None)
        moved = towards(scm, space, bad, hard, settings)
        same = towards(scm, space, hard.map(lambda m: m.float()), hard, settings)
        assert torch.equal(same.edge, hard.edge.float())

        def gap(masks: Masks) -> torch.Tensor:
            return obj.gap(*evaluate(scm, space, masks.map(lambda m: m.float().unsqueeze(0)), (1.0,)))[0]

        nearest = bad.edge + 0.9 * (hard.edge.float() - bad.edge)
        assert (gap(moved) >= gap(Masks(nearest, None)) - 0.01 - 1e-4).all()
        assert moved.edge[hard.edge].min() >= 0.5 >= moved.edge[~hard.edge].max()


# --- connected -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("undirected", [False, True])
def test_connected_explanations_hang_together_and_on_the_explained_node(undirected: bool) -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph()
    explain = explainer(model, NSEG(connected=True, undirected=undirected, tolerance=0.0))
    kept = 0
    for one in explain_many(explain, data, range(24)):
        edges = one.node_id[one.edge_index[:, one.hard_edge_mask]].t().tolist()
        together = nx.Graph(edges)
        kept += len(edges)
        assert not edges or (nx.is_connected(together) and one.output_id in together)
    assert kept > 24
    graphs = [graph(nodes=12, edges=14, seed=s) for s in range(5)]
    explain = explainer(seeded(Molecule), NSEG(connected=True, undirected=undirected), GRAPH_CONFIG)
    for one in explain_many(explain, graphs):
        edges = one.edge_index[:, one.hard_edge_mask].t().tolist()
        assert not edges or nx.is_connected(nx.Graph(edges))


def test_the_weakest_link_is_that_of_the_maximum_spanning_tree() -> None:
    """By the best way from the origin, as networkx finds it in the maximum spanning tree."""
    data = graph(nodes=12, edges=30)
    with causal_model(seeded(NODE_MODELS["gin"]), data, [5]) as scm:
        space, here = Space(scm.instances, True, None, undirected=True), scm.instances
        score = uniform(torch.arange(space.edge_owner.numel()), 1, (0,), torch.float).squeeze(1)
        found, links = attached(space, score)
        ends = here.node_id[here.edge_index].t().tolist()
        whole = nx.Graph()
        for (u, v), element in zip(ends, space.element_of_edge.tolist(), strict=True):
            whole.add_edge(u, v, weight=float(score[element]), element=element)
        tree = nx.maximum_spanning_tree(whole)
        for u, v, content in whole.edges(data=True):
            ways = []
            for end in (u, v):
                way = nx.shortest_path(tree, 5, end)
                ways.append(min([tree.edges[pair]["weight"] for pair in itertools.pairwise(way)], default=2.0))
            assert float(found[content["element"]]) == pytest.approx(min(max(ways), content["weight"]))
        assert links.min() == 0


# --- the loop --------------------------------------------------------------------------------------------------------------


def test_an_instance_that_leaves_has_walked_the_path_that_it_walks_in_company() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    rows, settings = list(range(12)), Settings(steps=60, patience=6)
    with causal_model(model, data, rows) as scm:
        space = Space(scm.instances, True, None)
        found = search(scm, space, settings)
        assert found.steps.min() < found.steps.max() <= 60
        for b in range(12):
            alone = scm.select(torch.tensor([b]))
            one = search(alone, space.of(alone.instances), settings)
            assert int(one.steps) == int(found.steps[b])
            torch.testing.assert_close(one.soft.edge, found.soft.edge[space.edge_owner == b], rtol=1e-3, atol=1e-4)


def test_the_best_masks_met_are_kept() -> None:
    """The merit of what is kept is the highest of the path, up to the tolerance, and nothing within it was smaller."""
    model, data = seeded(NODE_MODELS["gin"]), graph()
    with causal_model(model, data, [0, 3, 5, 9]) as scm:
        space, settings = Space(scm.instances, True, None), Settings(steps=40, noise=0.0, starts=(0.0, 2.0))
        seen = []

        def method(look):
            z = log_odds(look.scm, look.space, look.soft)
            merit = obj.gap(z[0].sigmoid(), obj.mix(z[1].sigmoid(), (1.0,))).detach()
            seen.append((merit, look.space.size(look.soft).detach()))
            return -obj.climb_log_gap(*z, (1.0,), 0) + 0.1 * look.space.size(look.soft), merit

        walk = descend(scm, space, start(scm, space, settings), method, Descent(40, 0.1, None, 0.05))
        merit, size = (torch.stack(values).flatten(0, 1) for values in zip(*seen, strict=True))  # [steps * P, B]
        best = merit.amax(0)
        kept = obj.gap(*evaluate(scm, space, walk.best.map(lambda m: m.unsqueeze(0)), (1.0,)))[0]
        assert (kept >= best - 0.05 - 0.05 - 1e-5).all()  # the tolerance counts once per start, and once among starts
        assert torch.allclose(walk.trace[-1], best)
        ideal = torch.where(merit >= best - 0.05, size, torch.inf).amin(0)
        assert (space.size(walk.best) <= size.amax(0)).all()
        assert (space.size(walk.best) <= ideal * 1.5 + 1).all()


def test_the_surrogates_gradient_does_not_die_where_the_gaps_does() -> None:
    """p = sigmoid(-60 + 80 m): at m = 1/2 the class has probability e^-20 with and without, and so no slope to speak of."""
    x, edge_index = torch.tensor([[0.0], [80.0]]), torch.tensor([[1], [0]])
    slopes = {}
    with borrowed(model := Planted(-60.0)):
        source = Source(model, ModelConfig(**BINARY), Inputs(x, edge_index, {}), True, True)
        ((_, scm),) = source.scms(torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))
        space = Space(scm.instances, True, None)
        for name in ("gap", "log"):
            mask = torch.tensor([[0.5]], requires_grad=True)
            z = log_odds(scm, space, Masks(mask, None))
            value = obj.CLIMBED["pns", name](*z, (1.0,), 0).sum()
            (slopes[name],) = torch.autograd.grad(value, mask)
    assert abs(float(slopes["gap"])) < 1e-6
    assert float(slopes["log"]) > 70


@pytest.mark.parametrize("objective", ["pn", "ps"])
def test_ratio_bounds_are_climbed_in_turn(objective: str) -> None:
    z_f, z_c = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[[[-0.5]]]], requires_grad=True)
    p, q = float(torch.sigmoid(z_f.detach())), float(torch.sigmoid(z_c.detach()))
    bound = {"pn": 1 - q / p, "ps": 1 - (1 - p) / (1 - q)}[objective]
    moved = []
    for step in (0, 1):
        value = obj.CLIMBED[objective, "ratio"](z_f, z_c, (1.0,), step)
        assert float(value.detach()) == pytest.approx(bound, abs=1e-6)
        slopes = torch.autograd.grad(value.sum(), (z_f, z_c), allow_unused=True)
        moved.append([s is not None and bool(s.any()) for s in slopes])
    assert sorted(moved) == [[False, True], [True, False]]
    x = torch.tensor([0.0, 8.0, 0.0, 0.0]).unsqueeze(1)
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])
    explain = explainer(Planted(-4.0), NSEG(objective, surrogate="ratio"), BINARY)
    assert explain(x, edge_index, index=0).hard_edge_mask.tolist() == [True, False, False]


def test_settings_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"surrogate must be .*\(got 'ratio'\)"):
        NSEG(surrogate="ratio")
    with pytest.raises(SettingsError, match=r"keep='last' needs one start"):
        NSEG(keep="last")
    with pytest.raises(SettingsError, match=r"starts must be one or more"):
        NSEG(starts=())
