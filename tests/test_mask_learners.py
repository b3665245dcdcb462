"""GNNExplainer against PyG's, CF-GNNExplainer and CF2 against answers known by hand."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer as PyGGNNExplainer
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool
from zoo import GRAPH_CONFIG, NODE_CONFIG, NODE_MODELS, Molecule, Planted, explainer, graph, mlp, seeded

from nseg import SettingsError, explain_many
from nseg.baselines.cf2 import CF2
from nseg.baselines.cf_gnnexplainer import CFGNNExplainer
from nseg.baselines.gnnexplainer import GNNExplainer
from nseg.baselines.mask_learning import normal, normal_logits
from nseg.graphs.inputs import ModelInputs
from nseg.model.borrow import borrow
from nseg.model.outcomes import outcome_of
from nseg.model.traced_graph import TracedGraph
from nseg.search.parts import Masks

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
METHODS = [GNNExplainer, CFGNNExplainer, CF2]
EDGES = {"edge_mask_type": "object"}
BOTH = {"edge_mask_type": "object", "node_mask_type": "attributes"}


def star(weights: list[float]) -> Data:
    """A node 0 with one incoming edge from each of the others, which send ``weights``."""
    count = len(weights)
    ends = torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.long)])
    return Data(x=torch.tensor([0.0, *weights]).unsqueeze(1), edge_index=ends)


class PlantedGraph(nn.Module):
    """The same closed form at graph level: p = sigmoid(bias + sum of all kept messages)."""

    def __init__(self, bias: float) -> None:
        super().__init__()
        self.conv, self.bias = Planted(0.0), bias

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.conv(x, edge_index).unsqueeze(1), batch) + self.bias


def at(level: str, bias: float) -> tuple[nn.Module, dict[str, str]]:
    return (Planted(bias), BINARY) if level == "node" else (PlantedGraph(bias), {**BINARY, "task_level": "graph"})


def of_star(level: str, algorithm, weights: list[float], bias: float):
    """The explanation of a star's centre, or of the star."""
    model, config = at(level, bias)
    explain, data = explainer(model, algorithm, config), star(weights)
    return explain_many(explain, data, [0])[0] if level == "node" else explain_many(explain, [data])[0]


def kept(found) -> list[int]:
    return found.edge_id[found.hard_edge_mask].tolist()


# --- GNNExplainer is PyG's -------------------------------------------------------------------------------------------------


class FromOurStart(PyGGNNExplainer):
    """PyG's own, that starts where it is told."""

    def __init__(self, first: Masks, **settings) -> None:
        super().__init__(**settings)
        self.first = first

    def _initialize_masks(self, x, edge_index) -> None:
        super()._initialize_masks(x, edge_index)
        if self.edge_mask is not None:
            self.edge_mask = Parameter(self.first["edges"].view_as(self.edge_mask).clone())
        if self.node_mask is not None:
            self.node_mask = Parameter(self.first["nodes"].view_as(self.node_mask).clone())


def our_start(explain, data: Data, index) -> Masks:
    """Where our search of ``index`` starts, on the edges and nodes of the whole graph; 0 elsewhere."""
    model, algorithm = explain.model, explain.algorithm
    with borrow(model):
        inputs = ModelInputs(data.x, data.edge_index, {})
        traced = TracedGraph(model, outcome_of(explain.model_config), inputs, *algorithm.masks)
        row = traced.check_rows(index)
        ((_, causal),) = traced.causal_models(traced.cuts(row, torch.zeros_like(row), traced.check_targets(None, row)))
    instances = causal.instances
    first = normal_logits(algorithm.parts(instances), algorithm.settings.seed, 0.0, instances.total[:, 1], torch.float)
    if "edges" in first:
        first["edges"] = torch.zeros(data.num_edges).index_copy(0, instances.edge_id, first["edges"][0])
    node = first.get("nodes")
    if node is not None and node.size(1) == instances.num_nodes:
        first["nodes"] = torch.zeros(data.num_nodes, node.size(2)).index_copy(0, instances.node_id, node[0])
    return first


def assert_like_pyg(model: nn.Module, data: Data, config, masks, index, steps: int = 20) -> None:
    coefficients = {"edge_size": 0.002, "edge_ent": 0.7, "node_feat_size": 0.05, "node_feat_ent": 0.2}
    mine = explainer(model, GNNExplainer(steps=steps, lr=0.05, seed=3, **coefficients), config, **masks)
    theirs = FromOurStart(our_start(mine, data, index), epochs=steps, lr=0.05, **coefficients)
    ours = mine(data.x, data.edge_index, index=index)
    pygs = explainer(model, theirs, config, **masks)(data.x, data.edge_index, index=index)
    for key in ("edge_mask", "node_mask"):
        if pygs.get(key) is not None:
            torch.testing.assert_close(ours[key], pygs[key], rtol=1e-3, atol=1e-4)
            moved = (ours[key][ours[key] > 0] - 0.5).abs()
            assert moved.numel() > 3  # and not all of them were left out
            assert moved.max() > 0.1


@pytest.mark.parametrize("masks", [EDGES, BOTH, {**EDGES, "node_mask_type": "object"}], ids=["e", "ef", "e, nodes"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "sage"])
def test_gnnexplainer_is_pygs_at_node_level(name: str, masks: dict[str, str]) -> None:
    assert_like_pyg(seeded(NODE_MODELS[name]), graph(), NODE_CONFIG, masks, 9)


LAYERS = {"gcn": GCNConv, "gin": lambda a, b: GINConv(mlp(a, b)), "gat": GATConv, "sage": SAGEConv}


@pytest.mark.parametrize("masks", [EDGES, BOTH, {"node_mask_type": "common_attributes"}], ids=["e", "ef", "common"])
@pytest.mark.parametrize("name", LAYERS)
def test_gnnexplainer_is_pygs_at_graph_level(name: str, masks: dict[str, str]) -> None:
    assert_like_pyg(seeded(lambda: Molecule(LAYERS[name])), graph(), GRAPH_CONFIG, masks, None)


def test_gnnexplainer_is_pygs_of_several_outputs_together_and_of_binary_ones() -> None:
    """The mean of -log p over the rows, not the -log of their mean."""
    model = seeded(NODE_MODELS["gcn"])
    model.head.weight.data.mul_(8)  # some rows surer than others
    assert_like_pyg(model, graph(), NODE_CONFIG, EDGES, torch.tensor([2, 5, 9]))
    binary = {**GRAPH_CONFIG, "mode": "binary_classification"}
    assert_like_pyg(seeded(lambda: Molecule(classes=1)), graph(), binary, EDGES, None)


def test_pygs_own_is_looped_by_explain_many() -> None:
    """What PyG has is at hand beside ours: equal on each computation graph, from equal starts."""
    model, data = seeded(NODE_MODELS["gin"]), graph()
    mine = explainer(model, GNNExplainer(steps=20))
    for row in (2, 5):
        theirs = explainer(model, FromOurStart(our_start(mine, data, row), epochs=20))
        (found,), (ours,) = explain_many(theirs, data, [row]), explain_many(mine, data, [row])
        assert torch.equal(found.edge_id, ours.edge_id)
        torch.testing.assert_close(found.edge_mask, ours.edge_mask, rtol=1e-3, atol=1e-4)


def test_the_start_is_normal_and_scaled_by_the_whole_graph() -> None:
    u = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    z = normal(u)
    assert float(z.mean()) == pytest.approx(0, abs=1e-6)
    assert float(z.std()) == pytest.approx(1, abs=1e-3)
    assert bool(normal(torch.tensor([0.0, 1.0], dtype=torch.float64)).isfinite().all())
    data = star([1.0] * 4000)
    data.x = torch.cat([data.x, torch.zeros(3999, 1)])  # N = 8000, half of them out of reach
    first = our_start(explainer(Planted(), GNNExplainer(), BINARY), data, 0)["edges"]
    assert float(first.std()) == pytest.approx((2 / 8000) ** 0.5, rel=0.05)
    assert float(first.mean()) == pytest.approx(0, abs=0.001)


def test_gnnexplainer_ranks_a_planted_cause_first_and_leaves_out_what_sends_nothing() -> None:
    found = of_star("node", GNNExplainer(), [8.0, -2.0, 0.0], -4.0)
    score = dict(zip(found.edge_id.tolist(), found.edge_mask.tolist(), strict=True))
    assert score[0] > 0.5 > score[1] > score[2] == 0


# --- CF-GNNExplainer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize(
    ("weights", "bias", "gone"),
    [
        ([8.0, 0.0, 0.0], -4.0, {0}),  # the one cause
        ([8.0, 1.0, 1.0, 0.0], -4.0, {0}),  # those that help are not needed
        ([5.0, 5.0, 30.0, 5.0], -28.0, {2}),  # one of four
        ([3.0, 2.0, 9.0, 2.0, -1.0], -5.0, {0, 2}),  # 15 - 9 leaves 6 > 5; 15 - 9 - 3 leaves 3; what speaks against stays
    ],
)
def test_the_counterfactual_is_the_smallest(level: str, weights: list[float], bias: float, gone: set[int]) -> None:
    found = of_star(level, CFGNNExplainer(), weights, bias)
    assert set(kept(found)) == gone
    assert found.p_complement < 0.5  # without the explanation the class has changed
    assert torch.equal(found.hard_edge_mask, found.edge_mask > 0.5)


class OwnBias(nn.Module):
    """The closed form with a bias of each graph's own, in the second feature of its centre."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = Planted(0.0)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool((self.conv(x[:, :1], edge_index) + x[:, 1]).unsqueeze(1), batch)


@pytest.mark.parametrize(("beta", "misses"), [(0.5, 1), (0.05, 10)])
def test_hardly_ever_would_fewer_edges_have_changed_the_class(beta: float, misses: int) -> None:
    """On a star the k largest senders are the best k to remove, so the least k is known.

    Of 1000 such stars (seeds 1 to 5, 200 each) it is missed on 1 at the default beta and on 20 at the paper's 0.05, where
    near-equal edges are put back too slowly; the 100 below hold 0 and 6 of these.
    """
    rng, stars, least = random.Random(1), [], []
    while len(stars) < 100:
        weights = [rng.choice([rng.uniform(-1, 7), 2.0, 3.0]) for _ in range(rng.randint(2, 8))]
        bias, descending = -rng.uniform(0.1, 0.9) * sum(weights), sorted(weights, reverse=True)
        left = [sum(weights) - sum(descending[:k]) + bias for k in range(len(weights) + 1)]
        if left[0] > 0.5 and min(abs(z) for z in left) > 0.1:  # of the class, and not too close to call
            one = star(weights)
            one.x = torch.cat([one.x, torch.zeros_like(one.x)], 1)
            one.x[0, 1] = bias
            stars.append(one)
            least.append(next(k for k, z in enumerate(left) if z <= 0))
    explain = explainer(OwnBias(), CFGNNExplainer(beta=beta), {**BINARY, "task_level": "graph"})
    found = explain_many(explain, stars)
    excess = [int(one.hard_edge_mask.sum()) - k for one, k in zip(found, least, strict=True)]
    assert all(one.p_complement < 0.5 for one in found)
    assert min(excess) == 0
    assert sum(e > 0 for e in excess) <= misses


def test_equal_edges_do_not_all_go_at_once() -> None:
    """12 - 5.5: four of six equal senders must go; from equal starts all six would."""
    assert len(kept(of_star("node", CFGNNExplainer(), [2.0] * 6, -5.5))) == 4
    assert len(kept(of_star("node", CFGNNExplainer(spread=0.0), [2.0] * 6, -5.5))) == 6


@pytest.mark.parametrize("bias", [20.0, 400.0])
def test_where_nothing_changes_the_class_the_last_masks_say_what_was_tried(bias: float) -> None:
    """The class stays without any edge: all that speaks for it has gone in the end, what speaks against it has not."""
    found = of_star("node", CFGNNExplainer(steps=50), [8.0, -8.0], bias)
    assert kept(found) == [0]
    assert found.edge_mask[0] > 0.9
    assert found.edge_mask[1] < 0.1


def test_a_price_above_its_worth_keeps_an_edge() -> None:
    assert kept(of_star("node", CFGNNExplainer(beta=3.0), [2.0, 2.0], -1.0)) == []


# --- CF2 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("level", ["node", "graph"])
def test_cf2_finds_the_one_cause(level: str, alpha: float) -> None:
    """p = sigmoid(-4 + 8 m): both leads are strong enough where tanh(|8 m - 4| / 2) >= 1/2 for m and 1 - m, so m >= .64."""
    found = of_star(level, CF2(steps=200, lr=0.05, strength=5.0, alpha=alpha), [8.0, 0.0, 0.0], -4.0)
    assert kept(found) == [0]
    edge = 0.5 + torch.atanh(torch.tensor(0.5)) / 4
    assert float(found.edge_mask[0]) == pytest.approx(float(edge), abs=0.01)
    assert float(found.edge_mask[1:].max()) < 0.05


@pytest.mark.parametrize("level", ["node", "graph"])
def test_cf2_finds_two_causes_that_are_needed_together(level: str) -> None:
    """p = sigmoid(-9 + 6 m_0 + 6 m_1): either alone gives sigmoid(-3), which is no factual explanation."""
    found = of_star(level, CF2(), [6.0, 6.0, 0.0, 0.0], -9.0)
    assert set(kept(found)) == {0, 1}
    assert found.p_factual > 0.75
    assert found.p_complement < 0.25
    # the share decides: necessity alone is had from one cause, and the second is not paid for
    necessary = of_star(level, CF2(alpha=0.0, steps=300, lr=0.05, strength=50.0), [6.0, 5.0, 0.0, 0.0], -9.0)
    assert necessary.soft_p_complement == pytest.approx(0.25, abs=0.05)  # a lead of 1/2 for the other class
    assert float(necessary.edge_mask.sum()) < 1 < float(found.edge_mask[:2].sum())


def test_cf2_masks_features_too() -> None:
    """Feature 1 of the sender is all that matters."""
    data = star([0.0, 0.0])
    data.x = torch.tensor([[0.0, 0.0], [0.0, 8.0], [0.0, 0.0]])
    found = explainer(Planted(-4.0), CF2(), BINARY, **BOTH)(data.x, data.edge_index, index=0)
    score = found.node_mask.clone()
    assert float(score[1, 1]) == float(score.max())
    score[1, 1] = 0
    assert float(found.node_mask[1, 1]) > 0.5 > float(score.max())
    assert found.hard_edge_mask.tolist() == [True, False]


# --- all three -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_no_steps_give_the_start(method) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    found = explainer(model, method(steps=0))(data.x, data.edge_index, index=5)
    near = {GNNExplainer: 0.5, CFGNNExplainer: 0.269, CF2: 0.731}[method]
    assert float(found.edge_mask[found.reached].mean()) == pytest.approx(near, abs=0.06)


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        (GNNExplainer, {"edge_size": -1}),
        (GNNExplainer, {"steps": 1.5}),
        (CFGNNExplainer, {"beta": -0.1}),
        (CFGNNExplainer, {"kept": -1.0}),
        (CF2, {"alpha": 1.1}),
        (CF2, {"gamma": "half"}),
    ],
)
def test_bad_settings_are_named(method, bad: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=f"{next(iter(bad))} must be"):
        method(**bad)


@pytest.mark.parametrize("method", METHODS)
def test_a_misspelt_setting_and_an_unknown_dataset_are_refused(method) -> None:
    with pytest.raises(TypeError, match="epoch"):
        method(epoch=3)
    with pytest.raises(SettingsError, match="Known: ba-shapes, tree-cycles"):
        method.paper("cora")


def test_the_papers_coefficients() -> None:
    names = ("ba-shapes", "tree-cycles", "tree-grid", "mutagenicity", "msrc-21")
    assert [GNNExplainer.paper(n).settings.edge_size for n in names] == [0.01, 0.01, 0.01, 0.005, 0.005]
    assert {GNNExplainer.paper(n).settings.edge_ent for n in names} == {1.0}
    assert [CFGNNExplainer.paper(n).settings.beta for n in names] == [0.05, 0.05, 0.05, 0.01, 0.01]
    assert [CF2.paper(n).settings.strength for n in names] == [500, 500, 500, 1000, 1000]
    assert {CF2.paper(n).settings.alpha for n in names} == {0.6}
    assert CF2.paper("ba-2motif", seed=4).settings.seed == 4
