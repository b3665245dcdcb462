"""Models that defeat a shortcut: reported numbers must still be those of the whole graph, one world at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    DirGNNConv,
    GCNConv,
    GINConv,
    GraphConv,
    GraphNorm,
    LayerNorm,
    PairNorm,
    SAGEConv,
    TopKPooling,
    global_add_pool,
)
from torch_geometric.utils import to_dense_batch
from zoo import CLASSES, FEATURES, GRAPH_CONFIG, NODE_CONFIG, explainer, graph, quick, seeded

from nseg import Explainer, InputError, ModelError, explain_many
from nseg.model.runner import WorldRunner


class Two(nn.Module):
    """Two layers with something in front and something between them; scores far apart if asked."""

    def __init__(self, before=None, between=None, conv=GCNConv, scale: float = 1.0) -> None:
        super().__init__()
        self.one, self.two, self.head = conv(FEATURES, 8), conv(8, 8), nn.Linear(8, CLASSES)
        self.before, self.scale = before or nn.Identity(), scale
        self.between = between or nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.between(self.one(self.before(x), edge_index).relu())
        return self.scale * self.head(self.two(x, edge_index).relu())


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0)


class FrozenWeights(nn.Module):
    """Edge weights that depend on the features, though no gradient shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = GraphConv(FEATURES, 8), GraphConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        with torch.no_grad():
            weight = F.cosine_similarity(x[edge_index[0]], x[edge_index[1]] + 1)
        h = self.one(x, edge_index, weight).tanh()
        sign = ((h[edge_index[0]] * h[edge_index[1]]).sum(-1) > 0).to(x.dtype)
        return self.two(h, edge_index, sign)


class Branching(nn.Module):
    """Passes messages once or twice, as its input is."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = SAGEConv(FEATURES, FEATURES), SAGEConv(FEATURES, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if x.abs().mean() > 0.5:
            x = self.one(x, edge_index)
        return self.two(x, edge_index)


class Turned(nn.Module):
    """Second layer against the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = SAGEConv(FEATURES, 8), SAGEConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.two(self.one(x, edge_index).relu(), edge_index.flip(0))


class PerNode(nn.Module):
    """A parameter for every node of its own graph."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv = nn.Parameter(torch.randn(24, FEATURES)), GCNConv(FEATURES, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x + self.table, edge_index)


def dir_gnn(a: int, b: int) -> nn.Module:
    return DirGNNConv(SAGEConv(a, b))


AWKWARD = {
    "centred input": lambda: Two(Centred(), conv=lambda a, b: GINConv(nn.Linear(a, b))),
    "graph norm": lambda: Two(between=GraphNorm(8)),
    "graph norm, sure of itself": lambda: Two(between=GraphNorm(8), scale=60.0),
    "pair norm": lambda: Two(between=PairNorm()),
    "layer norm over the graph": lambda: Two(between=LayerNorm(8)),
    "batch norm without memory": lambda: Two(between=nn.BatchNorm1d(8, track_running_stats=False)),
    "frozen weights": FrozenWeights,
    "branching": Branching,
    "turned edges": Turned,
    "both ways": lambda: Two(conv=dir_gnn),
    "a parameter per node": PerNode,
    "median": lambda: Two(conv=lambda a, b: SAGEConv(a, b, aggr="median")),
    "lstm": lambda: Two(conv=lambda a, b: SAGEConv(a, b, aggr="lstm")),
}


def star(nodes: int = 24) -> Data:
    spokes = torch.arange(1, nodes)
    ends = torch.stack([spokes, torch.zeros_like(spokes)])
    x = torch.randn(nodes, FEATURES, generator=torch.Generator().manual_seed(1))
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], 1))


def masks_of(name: str) -> list[str]:
    """Edges and nodes, which have shortcuts of their own; both at once where nodes are mixed, and where they are not."""
    return ["e", "f", *(["ef"] if name in ("centred input", "graph norm", "frozen weights", "branching", "lstm") else [])]


@pytest.mark.parametrize(("name", "masks"), [(name, masks) for name in AWKWARD for masks in masks_of(name)])
def test_reported_numbers_are_those_of_the_whole_graph(name: str, masks: str) -> None:
    model, data = seeded(AWKWARD[name]), star(12) if masks == "ef" else graph(edges=20)
    if name == "lstm":  # runs one world at a time
        data = star(6) if masks == "ef" else graph(10, 12)
    data.edge_index = data.edge_index[:, data.edge_index[1].argsort(stable=True)]  # as sequences want it
    edges, nodes = "e" in masks, "f" in masks
    kinds = {"edge_mask_type": "object" if edges else None, "node_mask_type": "object" if nodes else None}
    explain = explainer(model, quick(steps=2, noise=0.2), **kinds)
    many = explain_many(explain, Data(x=data.x, edge_index=data.edge_index), [3, 0])
    for found in many[-1:]:
        row = found.output_id
        one = explain(data.x, data.edge_index, index=row)
        for key, ids in (("edge_mask", found.edge_id), ("node_mask", found.node_id)):
            if one.get(key) is not None:
                torch.testing.assert_close(found[key], one[key][ids], rtol=1e-3, atol=1e-4)
        edge = one.hard_edge_mask.float() if edges else None
        node = one.hard_node_mask.float() if nodes else None
        label = int(one.target[row])

        def p(e, n, row=row, label=label) -> float:
            return float(explain.get_masked_prediction(data.x, data.edge_index, n, e)[row].softmax(-1)[label])

        if edges and nodes:
            rest = (p(1 - edge, 1 - node) + p(1 - edge, node) + p(edge, 1 - node)) / 3
        else:
            rest = p(None if edge is None else 1 - edge, None if node is None else 1 - node)
        assert one.p_factual == pytest.approx(p(edge, node), abs=2e-4)
        assert one.p_complement == pytest.approx(rest, abs=2e-4)


# --- graphs that differ in what comes with them --------------------------------------------------------------------------


class WithArguments(nn.Module):
    """Takes weights, a number and a vector of its graph."""

    def __init__(self, pad: bool = False) -> None:
        super().__init__()
        self.conv, self.head, self.pad = GCNConv(FEATURES, 8), nn.Linear(8, CLASSES), pad

    def forward(self, x, edge_index, batch=None, edge_weight=None, temperature=1.0, u=None):
        x = self.conv(x, edge_index, edge_weight).relu()
        pooled = to_dense_batch(x, batch)[0].mean(1) if self.pad else global_add_pool(x, batch)
        if u is not None:
            pooled = pooled * u.view(-1, 8)
        return self.head(pooled) / temperature


def graphs(**extra) -> list[Data]:
    some = []
    for number, nodes in enumerate((1, 9, 6, 7)):
        one = graph(nodes=nodes, edges=8, seed=number)
        one = Data(x=one.x, edge_index=one.edge_index)
        for name, make in extra.items():
            one[name] = make(number, one)
        some.append(one)
    return some


@pytest.mark.parametrize(
    "extra",
    [
        {"temperature": lambda n, g: 1.0 + 5 * n, "u": lambda n, g: torch.full((8,), 0.5 + n)},
        {
            "u": lambda n, g: torch.full((1, 8), 0.5 + n),
            "edge_weight": lambda n, g: torch.rand(g.num_edges, generator=torch.Generator().manual_seed(n)),
        },
    ],
    ids=["number and vector", "row and weights"],
)
@pytest.mark.parametrize("pad", [False, True])
def test_each_graph_keeps_its_own_arguments(extra, pad: bool) -> None:
    model, some = seeded(lambda: WithArguments(pad)), graphs(**extra)
    explain = explainer(model, quick(steps=3), GRAPH_CONFIG)
    alone = [explain(data.x, data.edge_index, **{name: data[name] for name in extra}) for data in some]
    for order in (slice(None), slice(None, None, -1)):
        for one, other in zip(explain_many(explain, some[order]), alone[order], strict=True):
            assert one.p_factual == pytest.approx(other.p_factual, abs=1e-4)
            torch.testing.assert_close(one.edge_mask, other.edge_mask, rtol=1e-3, atol=1e-4)


def test_graphs_must_have_the_same_arguments_and_features() -> None:
    explain = explainer(seeded(WithArguments), quick(steps=2), GRAPH_CONFIG)
    some = graphs()
    some[1].edge_weight = torch.ones(some[1].num_edges)
    with pytest.raises(InputError, match="edge_weight in only one"):
        explain_many(explain, some)
    some = graphs()
    some[2].x = some[2].x[:, :2]
    with pytest.raises(InputError, match="features of one shape"):
        explain_many(explain, some)


# --- what must be refused, or work ---------------------------------------------------------------------------------------


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(FEATURES, CLASSES)

    def forward(self, x, edge_index):
        return self.conv(F.dropout(x, 0.5, training=True), edge_index)


class Dividing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(FEATURES, CLASSES)

    def forward(self, x, edge_index):
        return self.conv(x / x.abs().sum(-1, keepdim=True), edge_index)


def test_a_random_model_is_refused() -> None:
    data = graph()
    for run in (
        lambda e: e(data.x, data.edge_index, index=3),
        lambda e: explain_many(e, data, [3]),
    ):
        with pytest.raises(ModelError, match="same output for the same input"):
            run(explainer(seeded(Dropping), quick(steps=2)))


def test_a_world_without_a_probability_is_refused() -> None:
    data = graph()
    with pytest.raises(ModelError, match="stay finite"):
        explainer(seeded(Dividing), quick(steps=2), node_mask_type="object")(data.x, data.edge_index, index=3)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.pool, self.two = GCNConv(FEATURES, 8), TopKPooling(8, ratio=0.5), GCNConv(8, CLASSES)

    def forward(self, x, edge_index, batch=None):
        x, edge_index, _, batch, *_ = self.pool(self.one(x, edge_index).relu(), edge_index, batch=batch)
        return global_add_pool(self.two(x, edge_index), batch)


def test_the_features_of_a_pooling_model_can_be_explained() -> None:
    data = graph()
    model = seeded(Pooled)
    explain = explainer(model, quick(steps=3), GRAPH_CONFIG, node_mask_type="object")
    found = explain(data.x, data.edge_index)
    node = found.hard_node_mask.float()
    with torch.no_grad():
        p = model(data.x * node, data.edge_index).softmax(-1)[0, int(found.target)]
    assert found.p_factual == pytest.approx(float(p), abs=1e-4)
    with pytest.raises(ModelError, match="'two'"):
        explainer(model, quick(steps=3), GRAPH_CONFIG)(data.x, data.edge_index)


def test_inference_mode_and_compiled_models() -> None:
    model, data = seeded(Two), graph()
    expected = explainer(model, quick(steps=3))(data.x, data.edge_index, index=5)
    with torch.inference_mode():
        x = data.x * 1.0
        found = explainer(model, quick(steps=3))(x, data.edge_index * 1, index=5)
    torch.testing.assert_close(found.edge_mask, expected.edge_mask)
    compiled = torch.compile(model, backend="eager")
    found = explain_many(explainer(compiled, quick(steps=3)), data, [5])[0]
    torch.testing.assert_close(found.edge_mask, expected.edge_mask[found.edge_id])


def test_buffers_that_forward_replaces_are_restored() -> None:
    class Counting(Two):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.register_buffer("later", None)

        def forward(self, x, edge_index):
            self.calls = self.calls + 1
            self.later = self.calls * 2
            return super().forward(x, edge_index)

    model, data = seeded(Counting), graph()
    explain_many(explainer(model, quick(steps=2)), data, [3])
    assert float(model.calls) == 0
    assert model.later is None


def test_common_attributes_of_an_isolated_node() -> None:
    data = graph()
    x = torch.cat([data.x, data.x[:1]])
    found = explainer(seeded(Two), quick(steps=2), node_mask_type="common_attributes")(x, data.edge_index, index=24)
    assert found.node_mask.shape == (1, FEATURES)


def test_both_directions_of_an_edge_have_one_weight_on_the_whole_graph() -> None:
    model, data = seeded(Two), graph()
    found = explainer(model, quick(steps=5, undirected=True))(data.x, data.edge_index, index=5)
    dense = torch.zeros(24, 24)
    dense[data.edge_index[0], data.edge_index[1]] = found.edge_mask
    assert torch.equal(dense, dense.T)


def test_our_explainer_checks_its_input_before_it_runs_the_model() -> None:
    data = graph()
    explain = Explainer(
        seeded(Two), quick(steps=2), explanation_type="model", edge_mask_type="object", model_config=NODE_CONFIG
    )
    for x, edge_index, words in (
        (data.x.double(), data.edge_index, "model's dtype"),
        (data.x, data.edge_index + 9, "from 0 to 23"),
        (None, data.edge_index, "x must be a dense tensor"),
    ):
        with pytest.raises(InputError, match=words):
            explain(x, edge_index, index=0)


def test_the_memory_budget_also_limits_the_scoring_of_hard_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    run = WorldRunner.run

    def watch(self: WorldRunner, edge: Tensor | None, node: Tensor | None, worlds: int, **more: Any) -> Tensor:
        seen.append(worlds * int(self.instances.sizes.sum()))
        return run(self, edge, node, worlds, **more)

    monkeypatch.setattr(WorldRunner, "run", watch)
    model, data = seeded(Two), graph(nodes=40, edges=80)
    most = {}
    for budget in (2**19, 2**28):
        seen.clear()
        explain_many(explainer(model, quick(steps=2)), data, range(40), budget=budget)
        most[budget] = max(seen)
    assert most[2**19] < most[2**28] / 4
