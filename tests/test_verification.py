"""Every reported number is what the untouched model gives on the caller's graph, whatever shortcuts the model defeats."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    AttentiveFP,
    EdgePooling,
    GCNConv,
    GINConv,
    GraphConv,
    GRUAggregation,
    SAGPooling,
    TopKPooling,
    global_add_pool,
)
from zoo import CLASSES, FEATURES, GRAPH_CONFIG, NODE_CONFIG, NODE_MODELS, GlobalMean, explainer, graph, quick, seeded

from nseg import NSEG, Explainer, ModelError, NsegWarning, certify, explain_many, metrics
from nseg.explain import verification
from nseg.explain.jobs import base
from nseg.graphs.inputs import ModelInputs
from nseg.model import edge_values
from nseg.model.outcomes import outcome_of
from nseg.model.strategy import PLAIN
from nseg.model.traced_graph import TracedGraph

REDONE = "searched again without shortcuts"


class Gated(nn.Module):
    """Messages to a minority of the nodes pass only if hidden features of both ends agree, which no gradient shows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = GraphConv(FEATURES, 8), GraphConv(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, end = edge_index
        h = self.first(x, edge_index).relu() - 0.3
        agree = ((h[source] * h[end]).sum(-1) > 0).to(x.dtype)
        weight = torch.where(x[end, 0] > 0.5, agree, torch.ones_like(agree))
        return self.head(self.second(h, edge_index, weight).relu())


def gated_graph(seed: int) -> Data:
    data = graph(36, 70, seed)
    data.x[:, 0] = (torch.rand(36, generator=torch.Generator().manual_seed(seed)) < 0.2).float()
    return data


def pyg_probabilities(explain: Explainer, data: Data, one: Any, mask: Tensor | None = None) -> tuple[float, float]:
    """PyG's own probability of the class under the hard (or another) mask and its complement, on the whole graph."""
    full = torch.zeros(data.num_edges).index_copy(0, one.edge_id, (one.hard_edge_mask if mask is None else mask).float())
    target = int(one.target[one.index])
    outputs = (explain.get_masked_prediction(data.x, data.edge_index, None, mask) for mask in (full, 1 - full))
    with_it, without = (float(output[one.output_id].softmax(-1)[target]) for output in outputs)
    return with_it, without


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that depend on hidden features are taken for constant, so that answers are wrong until they are verified."""
    monkeypatch.setattr(edge_values, "_equal", lambda *_: True)


def test_values_that_depend_on_hidden_features_are_not_taken_for_constant() -> None:
    """In random worlds some gate is other than in the traced pass, on whichever edges of the graph."""
    for seed in range(4):
        explain, data = explainer(seeded(Gated, seed), quick()), gated_graph(seed)
        inputs, outcome = ModelInputs(data.x, data.edge_index, {}), outcome_of(explain.model_config, None)
        assert not TracedGraph(explain.model, outcome, inputs, True, False).strategy.constants
        assert TracedGraph(seeded(NODE_MODELS["gcn"]), outcome, inputs, True, False).strategy.constants


@pytest.mark.usefixtures("trusting")
def test_numbers_are_right_where_messages_depend_on_hidden_features() -> None:
    redone = 0
    for seed in range(3):
        explain, data = explainer(seeded(Gated, seed), NSEG(steps=10, rounds=1)), gated_graph(seed)
        gated = (data.x[:, 0] > 0.5).nonzero().flatten().tolist()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = explain_many(explain, data, [*gated, 1, 2])
        redone += any(REDONE in str(one.message) for one in said)
        each, certificates = metrics.Evaluator(explain, data, found).each("hard"), certify(explain, data, found)
        for b, one in enumerate(found):
            truth = pytest.approx(pyg_probabilities(explain, data, one), abs=1e-4)
            assert (one.p_factual, one.p_complement) == truth
            assert (float(each.p_factual[b]), float(each.p_complement[b])) == truth
            assert (certificates[b].p_factual, certificates[b].p_complement) == truth
    assert redone, "the models must defeat the shortcuts on some graph, or this test shows nothing"


@pytest.mark.usefixtures("trusting")
def test_numbers_of_soft_masks_are_right_too() -> None:
    """A hard mask can be right by chance where the soft one, which was searched with a wrong shortcut, is not."""
    for seed in (1, 2):
        explain, data = explainer(seeded(Gated, seed), quick(steps=3)), gated_graph(seed)
        with pytest.warns(NsegWarning, match=REDONE):
            found = explain_many(explain, data, range(data.num_nodes))
        each = metrics.Evaluator(explain, data, found).each("soft")
        for b, one in enumerate(found):
            truth = pytest.approx(pyg_probabilities(explain, data, one, one.edge_mask), abs=2e-4)
            assert (one.soft_p_factual, one.soft_p_complement) == truth
            assert (float(each.p_factual[b]), float(each.p_complement[b])) == truth


def test_joint_masks_have_one_pns_everywhere() -> None:
    """The complement of joint masks mixes three worlds; each is PyG's own prediction under masks."""
    data, masks = graph(12, 18), {"edge_mask_type": "object", "node_mask_type": "object"}
    explain = explainer(seeded(NODE_MODELS["gcn"]), NSEG(steps=10, split=(0.5, 0.2, 0.3), intervention="mask"), **masks)
    found = explain_many(explain, data, [0, 4, 9])
    each, certificates = metrics.Evaluator(explain, data, found).each("hard"), certify(explain, data, found)
    for b, one in enumerate(found):
        edge = torch.zeros(data.num_edges).index_copy(0, one.edge_id, one.hard_edge_mask.float())
        node = torch.zeros(data.num_nodes, 1).index_copy(0, one.node_id, one.hard_node_mask.float())

        def p(edge_mask: Tensor, node_mask: Tensor, one: Any = one) -> float:
            output = explain.get_masked_prediction(data.x, data.edge_index, node_mask, edge_mask)
            return float(output[one.output_id].softmax(-1)[int(one.target[one.index])])

        without = 0.5 * p(1 - edge, 1 - node) + 0.2 * p(1 - edge, node) + 0.3 * p(edge, 1 - node)
        some = bool(edge.any() or node.any())  # what keeps nothing shows nothing
        pns = pytest.approx(max(0, p(edge, node) - without) * some, abs=1e-5)
        assert one.pns == pns
        assert float(each.pns[b]) == pns
        assert certificates[b].pns == pns


@pytest.mark.usefixtures("trusting")
def test_a_single_call_is_verified_too() -> None:
    data = gated_graph(0)
    explain = Explainer(
        seeded(Gated, 0),
        NSEG(steps=10, rounds=1),
        explanation_type="model",
        edge_mask_type="object",
        model_config=NODE_CONFIG,
    )
    for row in (data.x[:, 0] > 0.5).nonzero().flatten().tolist():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*searched again")
            one = explain(data.x, data.edge_index, index=row)
        hard, target = one.hard_edge_mask.float(), int(one.target[row])
        for mask, p in ((hard, one.p_factual), (1 - hard, one.p_complement)):
            output = explain.get_masked_prediction(data.x, data.edge_index, None, mask)[row]
            assert float(output.softmax(-1)[target]) == pytest.approx(p, abs=1e-4)


def test_a_sample_that_fails_makes_all_shards_plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """The fake finds the first answer wrong although the batched reference agrees with it."""
    data, strategies = graph(), []
    explain = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=3))
    answer = NSEG.answer

    def watched(self: NSEG, causal: Any, *rest: Any) -> Any:
        strategies.append(causal.strategy)
        return answer(self, causal, *rest)

    def suspicious(*args: Any) -> tuple[list[int], bool]:
        return ([0], True) if len(strategies) == 1 else verification.find_wrong(*args)

    monkeypatch.setattr(NSEG, "answer", watched)
    monkeypatch.setattr(base, "find_wrong", suspicious)
    plain = explain_many(explain, data, range(6), shard=2)
    assert set(strategies[1:]) == {PLAIN}
    strategies.clear()
    stored = explain_many(explain, data, range(6), shard=2, out=tmp_path / "run")
    for one, other in zip(plain, stored, strict=True):
        assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
    assert (tmp_path / "run" / ".plain").exists()


def test_a_model_that_defeats_the_shortcuts_is_named_with_the_reason_and_the_cost() -> None:
    explain, data = explainer(seeded(GlobalMean), quick(steps=2)), graph(8, 12)
    with pytest.warns(NsegWarning, match=r"not exact for GlobalMean: its output changes .* one world at a time"):
        explain_many(explain, data, [0, 3])


class Fussy(nn.Module):
    """Asserts that it sees its own graph."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.nodes, self.inner = nodes, seeded(NODE_MODELS["gcn"])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        assert len(x) == self.nodes, "another graph"
        return self.inner(x, edge_index)


def test_a_model_that_asserts_on_another_graph_is_explained_on_its_own() -> None:
    data = graph(10, 16)
    explain = explainer(Fussy(10).eval(), quick(steps=3))
    with pytest.warns(NsegWarning, match=r"it raises AssertionError \(another graph.*\) on a subgraph"):
        found = explain_many(explain, data, [0, 5])
    reference = explain_many(explainer(explain.model.inner, quick(steps=3)), data, [0, 5])
    for one, other in zip(found, reference, strict=True):
        assert one.p_factual == pytest.approx(other.p_factual, abs=1e-5)


class Remembering(nn.Module):
    """Computes a gate from hidden features once for each number of nodes, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = GraphConv(FEATURES, 8), GraphConv(8, 8), nn.Linear(8, CLASSES)
        self.gate: Tensor | None = None
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.calls += 1
        self.seen = self.seen + 1
        h = self.first(x, edge_index).relu()
        if self.gate is None or len(self.gate) != len(x):
            self.gate = (h.detach().sum(1, keepdim=True) > 1).float()
        return self.head(self.second(h * self.gate, edge_index).relu())


@pytest.mark.filterwarnings("ignore:.*searched again without shortcuts", "ignore:Shortcuts are not exact")
def test_a_model_that_remembers_is_asked_afresh_in_every_world_and_left_as_it_was() -> None:
    data, model = graph(16, 26, 1), seeded(Remembering)
    found = explain_many(explainer(model, quick(steps=5)), data, range(6))
    each = metrics.Evaluator(explainer(model, quick(steps=5)), data, found).each("hard")
    assert (model.gate, model.calls, float(model.seen)) == (None, 0, 0.0)
    for b, one in enumerate(found):
        explain = explainer(seeded(Remembering), quick(steps=5))
        full = torch.zeros(data.num_edges).index_copy(0, one.edge_id, one.hard_edge_mask.float())
        target = int(one.target[one.index])
        for mask, p, measured in ((full, one.p_factual, each.p_factual), (1 - full, one.p_complement, each.p_complement)):
            explain.model.gate = None
            output = explain.get_masked_prediction(data.x, data.edge_index, None, mask)[one.output_id]
            assert float(output.softmax(-1)[target]) == pytest.approx(p, abs=1e-4)
            assert float(measured[b]) == pytest.approx(p, abs=1e-4)


# --- identity of edges ---------------------------------------------------------------------------------------------------


class Pooled(nn.Module):
    """A convolution after node pooling."""

    def __init__(self, pool: Any, width: int = 8, ratio: float = 0.5) -> None:
        super().__init__()
        self.first, self.pool, self.second = GraphConv(FEATURES, width), pool(width, ratio=ratio), GraphConv(width, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x, edge_index, _, batch, *_ = self.pool(self.first(x, edge_index).relu(), edge_index, None, batch)
        return self.head(global_add_pool(self.second(x, edge_index).relu(), batch))


def complete(nodes: int, constant: bool = False) -> Data:
    ends = torch.combinations(torch.arange(nodes)).T
    x = torch.randn(nodes, FEATURES, generator=torch.Generator().manual_seed(nodes))
    return Data(x=torch.ones_like(x) if constant else x, edge_index=torch.cat([ends, ends.flip(0)], 1))


@pytest.mark.parametrize("pool", [TopKPooling, SAGPooling])
@pytest.mark.parametrize("ratio", [0.5, 0.75, 1.0])
@pytest.mark.parametrize("constant", [False, True])
def test_convolutions_after_pooling_are_always_refused(pool: Any, ratio: float, constant: bool) -> None:
    """On complete graphs every renumbered edge exists, so that only tracing tells."""
    for nodes, width in ((8, 8), (5, 8)):
        model, data = seeded(lambda w=width: Pooled(pool, w, ratio)), complete(nodes, constant)
        explain = explainer(model, quick(steps=2), GRAPH_CONFIG)
        if ratio == 1.0 and constant:
            continue  # equal scores keep the order: the pooled graph is the graph, edge by edge
        with pytest.raises(ModelError, match=r"pooling, rewiring"):
            explain_many(explain, [data, complete(nodes + 1, constant)])
        with pytest.raises(ModelError, match=r"pooling, rewiring"):
            explain(data.x, data.edge_index)


def test_exempt_layers_over_other_nodes_are_left_alone() -> None:
    """AttentiveFP passes messages from nodes to graphs by a layer with explain = False."""
    model = seeded(lambda: AttentiveFP(FEATURES, 8, CLASSES, edge_dim=2, num_layers=2, num_timesteps=2))
    graphs = [graph(9, 14, seed) for seed in range(3)]
    explain = explainer(model, quick(steps=5), GRAPH_CONFIG)
    for one, data in zip(explain_many(explain, graphs), graphs, strict=True):
        batch = torch.zeros(9, dtype=torch.long)
        alone = explain(data.x, data.edge_index, edge_attr=data.edge_attr, batch=batch)
        assert torch.equal(one.hard_edge_mask, alone.hard_edge_mask)
        mask = one.hard_edge_mask.float()
        output = explain.get_masked_prediction(data.x, data.edge_index, None, mask, edge_attr=data.edge_attr, batch=batch)
        assert float(output.softmax(-1)[0, int(one.target)]) == pytest.approx(one.p_factual, abs=1e-4)


# --- batch = alone, also where graphs cannot be packed -------------------------------------------------------------------


class Recurrent(nn.Module):
    """A read-out whose result depends on the padding of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.head = GCNConv(FEATURES, 8), GRUAggregation(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv(x, edge_index).relu()
        batch = torch.zeros(len(x), dtype=torch.long) if batch is None else batch
        return self.head(self.pool(x, batch))


class Contracted(nn.Module):
    """Edge pooling after the last convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.head = GCNConv(FEATURES, 8), EdgePooling(8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv(x, edge_index).relu()
        batch = torch.zeros(len(x), dtype=torch.long) if batch is None else batch
        x, _, batch, _ = self.pool(x, edge_index, batch)
        return self.head(global_add_pool(x, batch))


@pytest.mark.filterwarnings("ignore:Several graphs cannot share", "ignore:Shortcuts are not exact")
@pytest.mark.parametrize("make", [Recurrent, Contracted])
def test_graphs_that_cannot_be_packed_are_explained_as_alone(make: Any) -> None:
    graphs = [graph(5 + seed, 6 + seed, seed) for seed in range(2)]
    explain = explainer(seeded(make), NSEG(steps=4, exact=0, rounds=1, starts=(0.0, 2.0)), GRAPH_CONFIG)
    for one, data in zip(explain_many(explain, graphs), graphs, strict=True):
        alone = explain(data.x, data.edge_index)
        assert torch.equal(one.hard_edge_mask, alone.hard_edge_mask)
        assert one.pns == pytest.approx(alone.pns, abs=1e-5)


# --- asking for more never gives less ------------------------------------------------------------------------------------


class Normed(nn.Module):
    """Three GIN layers with batch norm."""

    def __init__(self) -> None:
        super().__init__()

        def layer(width: int) -> GINConv:
            norm = nn.BatchNorm1d(12)
            norm.running_var.uniform_(0.2, 2.0)
            norm.running_mean.uniform_(-0.5, 0.5)
            return GINConv(nn.Sequential(nn.Linear(width, 12), norm, nn.ReLU(), nn.Linear(12, 12)))

        self.convs, self.head = nn.ModuleList([layer(FEATURES), layer(12), layer(12)]), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, batch))


@pytest.mark.parametrize("undirected", [True, False])
def test_a_smaller_tolerance_never_gives_a_worse_explanation(undirected: bool) -> None:
    graphs = [graph(9, 12, seed) for seed in range(3)]
    for seed in range(2):
        model, found = seeded(Normed, seed), {}
        for tolerance in (0.0, 0.02, 0.05):
            algorithm = NSEG(undirected=undirected, tolerance=tolerance, exact=0, steps=8)
            found[tolerance] = [one.pns for one in explain_many(explainer(model, algorithm, GRAPH_CONFIG), graphs)]
        for best, some, usual in zip(found[0.0], found[0.02], found[0.05], strict=True):
            assert best >= max(some, usual) - 1e-4


# --- threads -------------------------------------------------------------------------------------------------------------


def test_threads_that_share_a_model_get_the_right_answers_and_leave_it_as_it_was() -> None:
    data, model = graph(), seeded(NODE_MODELS["gcn, cached"]).train()
    model.head.weight.requires_grad_(False)
    explain = Explainer(model, NSEG(steps=3), explanation_type="model", edge_mask_type="object", model_config=NODE_CONFIG)
    expected = explain_many(explain, data, range(6))

    def work(row: int) -> Any:
        if row % 2:
            return explain(data.x, data.edge_index, index=row)
        return explain_many(explain, data, [row])[0]

    threads = torch.get_num_threads()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(work, range(6)))
    for one, other in zip(found, expected, strict=True):
        assert one.p_factual == pytest.approx(other.p_factual, abs=1e-6)
        assert int(one.hard_edge_mask.sum()) == int(other.hard_edge_mask.sum())
    assert model.training
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    assert torch.get_num_threads() == threads


class WithoutBatch(nn.Module):
    """Gives other scores if it is called without ``batch``, or refuses to be."""

    def __init__(self, refuses: bool = False) -> None:
        super().__init__()
        self.conv, self.head, self.refuses = GCNConv(FEATURES, 8), nn.Linear(8, CLASSES), refuses

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv(x, edge_index).relu()
        if batch is None:
            assert not self.refuses, "a batch, please"
            return self.head(1.7 * x.mean(0, keepdim=True))
        return self.head(global_add_pool(x, batch))


@pytest.mark.filterwarnings("ignore:Several graphs cannot share", "ignore:Shortcuts are not exact")
def test_a_model_is_called_without_batch_if_the_caller_gives_none() -> None:
    """The numbers are those of ``model(x, edge_index)``, which is what a caller without ``batch`` would compare with."""
    model, some = seeded(WithoutBatch), [graph(5, 6, seed) for seed in range(2)]
    explain = explainer(model, quick(steps=2, rounds=0, intervention="remove"), GRAPH_CONFIG)
    found = explain_many(explain, some)
    each = metrics.Evaluator(explain, some, found).each("hard")
    for b, (one, data) in enumerate(zip(found, some, strict=True)):
        with torch.no_grad():
            kept = one.hard_edge_mask.bool()
            p = [model(data.x, data.edge_index[:, edges]).softmax(-1)[0, int(one.target)] for edges in (kept, ~kept)]
        assert (one.p_factual, one.p_complement) == pytest.approx(tuple(map(float, p)), abs=1e-5)
        assert (float(each.p_factual[b]), float(each.p_complement[b])) == pytest.approx(tuple(map(float, p)), abs=1e-5)
    needs = explainer(seeded(lambda: WithoutBatch(refuses=True)), quick(steps=2, rounds=0), GRAPH_CONFIG)
    assert all(one.p_factual > 0 for one in explain_many(needs, some)), "a model that needs batch gets it"


@pytest.mark.usefixtures("trusting")
def test_metrics_of_other_masks_and_of_deleted_edges_are_right_too() -> None:
    """Thresholds and deletion put explanations into worlds that nobody asked about in the search."""
    for seed in (1, 2):
        explain, data = explainer(seeded(Gated, seed), quick(steps=3)), gated_graph(seed)
        rows = (data.x[:, 0] > 0.5).nonzero().flatten().tolist()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*searched again")
            found = explain_many(explain, data, rows)
        for one in found:  # alone, so that no other explanation gives a wrong shortcut away
            evaluator = metrics.Evaluator(explain, data, one)
            for cut in (0.3, 0.7):
                each, mask = evaluator.each(cut, "mask"), (one.edge_mask > cut).float()
                truth = pyg_probabilities(explain, data, one, mask)
                assert (float(each.p_factual), float(each.p_complement)) == pytest.approx(truth, abs=1e-4)
                each, full = evaluator.each(cut, "remove"), torch.zeros(data.num_edges, dtype=torch.bool)
                full[one.edge_id] = mask.bool()
                target = int(one.target[one.index])
                with torch.no_grad():
                    outputs = [explain.model(data.x, data.edge_index[:, some]) for some in (full, ~full)]
                truth = tuple(float(output[one.output_id].softmax(-1)[target]) for output in outputs)
                assert (float(each.p_factual), float(each.p_complement)) == pytest.approx(truth, abs=1e-4)
