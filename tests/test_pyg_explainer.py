"""NSEG inside PyG's own Explainer: mask types, model outputs, PyG's tools, and layers that masks do not reach."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explanation, ThresholdConfig
from torch_geometric.explain.metric import characterization_score, fidelity, unfaithfulness
from torch_geometric.nn import GCNConv, TopKPooling
from zoo import (
    CLASSES,
    FEATURES,
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_CONFIG,
    NODE_MODELS,
    Link,
    Molecule,
    arguments,
    explainer,
    graph,
    quick,
    seeded,
)

from nseg import NSEG, ModelError, explain_many

NODE_MASKS = (None, "object", "attributes", "common_attributes")
SHAPES = {"object": (24, 1), "attributes": (24, FEATURES), "common_attributes": (1, FEATURES)}


@pytest.mark.parametrize("objective", ["pns", "pn", "ps"])
@pytest.mark.parametrize("edge", ["object", None])
@pytest.mark.parametrize("node", NODE_MASKS)
def test_shape_range_numbers_and_settings(node: str | None, edge: str | None, objective: str) -> None:
    if node is None and edge is None:
        return
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, quick(objective, steps=4, seed=7), edge_mask_type=edge, node_mask_type=node)
    found = explain(data.x, data.edge_index, index=5)
    assert isinstance(found, Explanation)
    if edge:
        assert found.edge_mask.shape == found.hard_edge_mask.shape == (data.num_edges,)
    if node:
        assert found.node_mask.shape == found.hard_node_mask.shape == SHAPES[node]
    for key in ("edge_mask", "node_mask"):
        if found.get(key) is not None:
            assert 0 <= found[key].min() <= found[key].max() <= 1
            assert found["hard_" + key].dtype is torch.bool
    assert 0 <= found.pns <= min(found.pn, found.ps) + 1e-6 <= 1 + 2e-6
    some = any(bool(found[name].any()) for name in ("hard_edge_mask", "hard_node_mask") if name in found)
    assert found.pns == pytest.approx(max(0, found.p_factual - found.p_complement) if some else 0, abs=1e-6)
    assert (found.seed, found.settings["steps"], found.settings["objective"]) == (7, 4, objective)
    assert found.validate()


@pytest.mark.parametrize("node", NODE_MASKS)
def test_the_reported_numbers_are_what_pyg_predicts_under_the_hard_masks(node: str | None) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    split = (0.5, 0.2, 0.3)
    explain = explainer(model, quick(steps=6, split=split), edge_mask_type="object", node_mask_type=node)
    for row in (0, 5):
        found = explain(data.x, data.edge_index, index=row)
        label = int(found.target[row])

        def p(edge, hard, row=row, label=label) -> float:
            out = explain.get_masked_prediction(data.x, data.edge_index, hard, edge)
            return float(out[row].softmax(-1)[label])

        edge = found.hard_edge_mask.float()
        hard = None if node is None else found.hard_node_mask.float()
        if hard is None:
            complement = p(1 - edge, None)
        else:
            parts = (p(1 - edge, 1 - hard), p(1 - edge, hard), p(edge, 1 - hard))
            complement = sum(w * v for w, v in zip(split, parts, strict=True))
        assert found.p_factual == pytest.approx(p(edge, hard), abs=1e-5)
        assert found.p_complement == pytest.approx(complement, abs=1e-5)


class Activated(nn.Module):
    """The same model with another way to say its answer."""

    def __init__(self, inner: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.inner, self.last = inner, last

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x, edge_index))


def test_raw_probs_and_log_probs_are_one_explanation() -> None:
    data, inner = graph(), seeded(NODE_MODELS["gcn"])
    outputs = {"raw": nn.Identity(), "probs": nn.Softmax(-1), "log_probs": nn.LogSoftmax(-1)}
    found = [
        explainer(Activated(inner, last), quick(steps=10), {**NODE_CONFIG, "return_type": kind})(
            data.x, data.edge_index, index=5
        )
        for kind, last in outputs.items()
    ]
    torch.testing.assert_close(found[0].edge_mask, found[1].edge_mask, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found[0].edge_mask, found[2].edge_mask, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("column", [False, True])
def test_binary_raw_and_probs_are_the_two_class_softmax(column: bool) -> None:
    """sigmoid(z) is the softmax of (0, z), so all three explain alike."""
    data, some = graph(), seeded(lambda: Molecule(classes=1))

    class TwoClass(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = some

        def forward(self, x, edge_index, batch=None):
            z = self.inner(x, edge_index, batch)
            return torch.cat([torch.zeros_like(z), z], -1)

    class Squeezed(Molecule):
        def forward(self, x, edge_index, batch=None):
            return super().forward(x, edge_index, batch).squeeze(-1)

    class Probs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = some

        def forward(self, x, edge_index, batch=None):
            return self.inner(x, edge_index, batch).sigmoid()

    raw: nn.Module = some
    if not column:
        raw = seeded(lambda: Squeezed(classes=1))
    binary = {**GRAPH_CONFIG, "mode": "binary_classification"}
    masks = [
        explainer(model, quick(steps=10), config)(data.x, data.edge_index).edge_mask
        for model, config in (
            (TwoClass(), GRAPH_CONFIG),
            (raw, binary),
            (Probs(), {**binary, "return_type": "probs"}),
        )
    ]
    torch.testing.assert_close(masks[0], masks[1], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(masks[0], masks[2], rtol=1e-3, atol=1e-4)


def test_gradients_may_be_off_outside() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, quick(steps=5))
    expected = explain(data.x, data.edge_index, index=5).edge_mask
    with torch.no_grad():
        assert torch.equal(explain(data.x, data.edge_index, index=5).edge_mask, expected)
        assert torch.equal(
            explain_many(explain, data, [5])[0].edge_mask, expected[explain_many(explain, data, [5])[0].edge_id]
        )


def test_float64_is_kept() -> None:
    model, data = seeded(NODE_MODELS["gcn"]).double(), graph()
    found = explainer(model, quick(steps=3), edge_mask_type="object", node_mask_type="object")(
        data.x.double(), data.edge_index, index=5
    )
    assert found.edge_mask.dtype is found.node_mask.dtype is torch.float64


class Embedded(nn.Module):
    """Takes whole-number node types."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.conv = nn.Embedding(5, 8), GCNConv(8, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(self.table(x.view(-1)), edge_index)


@pytest.mark.parametrize("shape", [(24,), (24, 1)])
def test_whole_number_features_can_have_their_edges_explained(shape: tuple[int, ...]) -> None:
    model, data = seeded(Embedded), graph()
    x = torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(0))
    found = explainer(model, quick(steps=3))(x, data.edge_index, index=5)
    assert found.edge_mask.any()
    with pytest.raises(ModelError, match="x must be floating"):
        explainer(model, quick(steps=3), node_mask_type="object")(x, data.edge_index, index=5)


def test_index_may_be_one_several_or_none() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, quick(steps=3))
    one = explain(data.x, data.edge_index, index=5)
    assert torch.equal(one.edge_mask, explain(data.x, data.edge_index, index=torch.tensor([5])).edge_mask)
    several = explain(data.x, data.edge_index, index=torch.tensor([5, 9]))
    everything = explain(data.x, data.edge_index)
    assert (one.edge_mask > 0).sum() <= (several.edge_mask > 0).sum() <= (everything.edge_mask > 0).sum()
    with torch.no_grad():
        p = model(data.x, data.edge_index).softmax(-1).amax(-1).mean()
    kept = explainer(model, quick(steps=0, extract="threshold", threshold=0.0))(data.x, data.edge_index)
    assert kept.p_factual == pytest.approx(float(p), abs=1e-5)


@pytest.mark.parametrize("kind", ["isolated", "empty"])
def test_nodes_and_graphs_without_edges_have_an_empty_explanation(kind: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(kind="empty" if kind == "empty" else "undirected")
    data.x = torch.cat([data.x, data.x[:1]])  # node 24 has no edge
    explain = explainer(model, quick(steps=3), edge_mask_type="object", node_mask_type="object")
    for found in (
        explain(data.x, data.edge_index, index=24),
        *explain_many(explain, Data(x=data.x, edge_index=data.edge_index), [24]),
    ):
        assert not found.edge_mask.any()
        assert found.node_mask.sum() > 0
        assert found.pns >= 0


# --- PyG's own tools -------------------------------------------------------------------------------------------------------


def all_kinds() -> list[Explanation]:
    node_model, data, molecule = seeded(NODE_MODELS["gcn"]), graph(), seeded(Molecule)
    both = {"edge_mask_type": "object", "node_mask_type": "object"}
    on_nodes = explainer(node_model, quick(steps=3), **both)
    on_graphs = explainer(molecule, quick(steps=3), GRAPH_CONFIG, **both)
    link = explainer(seeded(Link), quick(steps=3), LINK_CONFIG, **both)
    pairs = torch.tensor([[0, 3], [2, 9]])
    return [
        on_nodes(data.x, data.edge_index, index=5),
        *explain_many(on_nodes, data, [5]),
        on_graphs(data.x, data.edge_index),
        *explain_many(on_graphs, [data]),
        link(data.x, data.edge_index, index=1, edge_label_index=pairs),
        *explain_many(link, data, [1], edge_label_index=pairs),
    ]


def test_explanations_survive_saving_cloning_and_cutting(tmp_path) -> None:
    for number, found in enumerate(all_kinds()):
        torch.save(found, tmp_path / f"{number}.pt")
        loaded = torch.load(tmp_path / f"{number}.pt", weights_only=False)
        for copy in (loaded, found.clone(), found.to("cpu")):
            assert torch.equal(copy.edge_mask, found.edge_mask)
            assert copy.pns == found.pns
            assert copy.settings == found.settings
        kept = found.get_explanation_subgraph()
        assert kept.edge_mask.numel() == int((found.edge_mask > 0).sum()) or kept.num_nodes < found.num_nodes
        assert kept.hard_edge_mask.shape == kept.edge_mask.shape
        rest = found.get_complement_subgraph()
        assert rest.edge_mask.numel() + kept.edge_mask.numel() <= found.edge_mask.numel()
        assert Batch.from_data_list([found, found.clone()]).num_graphs == 2


def test_explanations_can_be_drawn(tmp_path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    for number, found in enumerate(all_kinds()):
        found.visualize_graph(str(tmp_path / f"{number}.png"), backend="networkx")
        assert (tmp_path / f"{number}.png").stat().st_size > 1000


def test_pygs_metrics_read_them() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=60, edges=90)
    explain = explainer(model, NSEG(steps=30))
    for one in explain_many(explain, data, [1, 5]):
        single = explain(data.x, data.edge_index, index=one.output_id)
        assert fidelity(explain, one) == fidelity(explain, single)
        plus, minus = fidelity(explain, one)
        assert {plus, minus} <= {0.0, 1.0}
        if plus and not minus:
            assert characterization_score(torch.tensor(plus), torch.tensor(minus)) == 1.0
        assert unfaithfulness(explain, one) == pytest.approx(unfaithfulness(explain, single), abs=1e-4)


def test_pygs_threshold_is_respected() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, quick(steps=5), edge_mask_type="object", threshold_config=ThresholdConfig("topk_hard", 4))
    for found in (explain(data.x, data.edge_index, index=5), *explain_many(explain, data, [5])):
        assert found.edge_mask.sum() == 4


# --- layers that cannot be explained are named -----------------------------------------------------------------------------


class OwnPropagate(GCNConv):
    def propagate(self, edge_index, size=None, **kwargs):
        x = kwargs["x"]
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])


class Around(nn.Module):
    """A good layer, and one that edge masks do not reach."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.conv = kind, GCNConv(FEATURES, CLASSES)
        self.odd = OwnPropagate(CLASSES, CLASSES) if kind == "own propagate" else GCNConv(CLASSES, CLASSES)
        self.pool = TopKPooling(CLASSES, ratio=0.5)

    def forward(self, x, edge_index):
        x = self.conv(x, edge_index)
        size = x.size(0)
        if self.kind == "pooling":
            x, edge_index, *_ = self.pool(x, edge_index)
        elif self.kind == "rewiring":
            edge_index = torch.cat([edge_index, torch.tensor([[0], [size - 1]])], 1)
        x = self.odd(x, edge_index)
        return x if self.kind != "pooling" else torch.cat([x, x])


@pytest.mark.parametrize("kind", ["own propagate", "pooling", "rewiring"])
def test_a_layer_that_masks_do_not_reach_is_named(kind: str) -> None:
    data = graph()
    with pytest.raises(ModelError, match="'odd'"):
        explainer(seeded(lambda: Around(kind)), quick(steps=2))(data.x, data.edge_index, index=5)


def test_a_layer_that_the_user_exempts_is_left_alone() -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph()
    for conv in model.convs:
        conv.explain = False
    with pytest.raises(ModelError, match="must depend on the edges"):
        explainer(model, quick(steps=2))(data.x, data.edge_index, index=5)
    model.convs[1].explain = None
    found = explainer(model, quick(steps=2))(data.x, data.edge_index, index=5)
    assert found.edge_mask.any()


def test_every_model_of_the_zoo_is_explained_in_every_way() -> None:
    data = graph()
    for name, make in NODE_MODELS.items():
        model = seeded(make)
        found = explainer(model, quick(steps=2, undirected=True), edge_mask_type="object", node_mask_type="object")(
            data.x, data.edge_index, index=5, **arguments(model, data)
        )
        assert found.edge_mask.any(), name
