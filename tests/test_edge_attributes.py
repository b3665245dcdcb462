"""Masks of edge attributes: closed forms, batch = alone, brute force, baselines, words, storage, and what is refused."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hetero_zoo import NODE, hetero_graph, make_net
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.nn import GATConv, GCNConv, GINEConv, MessagePassing, global_add_pool

import nseg
from nseg import NSEG, Explainer, explain_many, metrics

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
GRAPH = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}


class Sums(MessagePassing):
    """The output of a node is the weighted sum of its incoming edges' attributes, minus a half."""

    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.weight = nn.Parameter(torch.tensor([4.0, 1.0, 0.0]))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr) - 0.5

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return 0 * x_j[:, :1] + (edge_attr * self.weight).sum(1, keepdim=True)


class Net(nn.Module):
    """Two layers with edge attributes; a readout of the whole graph if it pools."""

    def __init__(self, layer: str, pool: bool = False) -> None:
        super().__init__()
        self.pool = pool
        self.one = GINEConv(nn.Linear(3, 6), edge_dim=2)
        self.two = GATConv(6, 3, edge_dim=2) if layer == "gat" else GINEConv(nn.Linear(6, 3), edge_dim=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor | None = None) -> Tensor:
        x = 2 * self.two(self.one(x, edge_index, edge_attr).relu(), edge_index, edge_attr)
        return global_add_pool(x, batch) if self.pool else x


def graph(seed: int = 0, nodes: int = 9) -> Data:
    rng = torch.Generator().manual_seed(seed)
    edges = torch.unique(torch.randint(nodes, (2, 2 * nodes), generator=rng), dim=1)
    attr = torch.randn(edges.size(1), 2, generator=rng)
    return Data(x=torch.randn(nodes, 3, generator=rng), edge_index=edges, edge_attr=attr)


def explainer(model: nn.Module, config: dict[str, str] = NODE, door: Any = Explainer, **settings: Any) -> PyGExplainer:
    chosen = {"edge_attributes": "attributes", "steps": 8, **settings}
    masks = {"edge_mask_type": "object", "node_mask_type": chosen.pop("node_mask_type", None)}
    return door(model, NSEG(**chosen), explanation_type="model", model_config=config, **masks)


def star(attr: list[list[float]]) -> Data:
    """Edges into node 0, one per row of attributes."""
    edges = torch.stack([torch.arange(1, len(attr) + 1), torch.zeros(len(attr), dtype=torch.long)])
    return Data(x=torch.ones(len(attr) + 1, 2), edge_index=edges, edge_attr=torch.tensor(attr))


@pytest.mark.parametrize("door", [Explainer, PyGExplainer])
def test_the_attribute_that_decides_is_found_with_its_closed_form(door: Any) -> None:
    """Only column 0 of edge 1 carries the output above 0: z = 4 a - 1/2 with it, about -1/2 without."""
    data = star([[0.0, 0.1, 9.0], [1.0, 0.0, 9.0]])
    found = explainer(Sums(), BINARY, door)(data.x, data.edge_index, index=0, edge_attr=data.edge_attr)
    assert found.hard_edge_attr_mask.nonzero().tolist() == [[1, 0]]
    assert "edge_mask" not in found
    assert found.p_factual == pytest.approx(torch.tensor(3.5).sigmoid().item(), abs=1e-5)
    assert found.p_complement == pytest.approx(torch.tensor(-0.4).sigmoid().item(), abs=1e-5)
    assert found.keeps
    assert found.changes
    assert "2 -> 0: attribute 0 = 1" in found.words()


@pytest.mark.parametrize(("baseline", "rest"), [("zero", 0.0), ("mean", 0.5), ((0.25, 0.0, 0.0), 0.25), ("others", 0.0)])
def test_baselines_are_what_masked_attributes_become(baseline: Any, rest: float) -> None:
    """All edges of node 0 have column 0 masked in the complement: two edges of value ``rest``."""
    data = star([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    one = explain_many(explainer(Sums(), BINARY, edge_attributes="common_attributes", edge_baseline=baseline), data, [0])[0]
    assert one.hard_edge_attr_mask.shape == (1, 3)
    if bool(one.hard_edge_attr_mask[0, 0]):
        z = 4 * (1.0 if baseline == "others" else 2 * rest) - 0.5  # of two edges, the other one is the other
        assert one.p_complement == pytest.approx(torch.tensor(z).sigmoid().item(), abs=1e-5)
    assert one.settings["edge_baseline"] == (list(baseline) if isinstance(baseline, tuple) else baseline)
    assert ("Masked edge attributes become" in one.words()) == (baseline != "zero")


@pytest.mark.parametrize("layer", ["gine", "gat"])
@pytest.mark.parametrize("kind", ["attributes", "common_attributes"])
def test_batch_equals_alone_and_numbers_are_those_of_the_model(layer: str, kind: str) -> None:
    torch.manual_seed(0)
    model, data = Net(layer).eval(), graph()
    asked = explainer(model, edge_attributes=kind, edge_baseline="mean")
    many = explain_many(asked, data, range(4))
    alone = explain_many(asked, data, [2])[0]
    assert torch.allclose(many[2].edge_attr_mask, alone.edge_attr_mask, atol=1e-6)  # rounding of larger products
    assert torch.equal(many[2].hard_edge_attr_mask, alone.hard_edge_attr_mask)
    single = asked(data.x, data.edge_index, index=2, edge_attr=data.edge_attr)
    assert single.pns == pytest.approx(many[2].pns, abs=1e-6)
    mask, mean = single.hard_edge_attr_mask.float(), data.edge_attr.mean(0)
    for weight, name in ((mask, "p_factual"), (1 - mask, "p_complement")):
        masked = data.edge_attr * weight + mean * (1 - weight)
        with torch.no_grad():
            p = model(data.x, data.edge_index, masked)[2].softmax(-1)[int(single.target[2])]
        assert single[name] == pytest.approx(float(p), abs=1e-5)


def test_small_instances_are_solved_exactly() -> None:
    torch.manual_seed(3)
    model, data = Sums(), star([[0.3, 0.2, 1.0], [0.1, -0.6, 1.0], [-0.05, 0.4, 1.0]])
    one = explainer(model, BINARY, exact=9, tolerance=0)(data.x, data.edge_index, index=0, edge_attr=data.edge_attr)

    def gap(kept: tuple[int, ...]) -> float:
        mask = torch.tensor(kept, dtype=torch.float).view(3, 3)
        with torch.no_grad():
            p = [torch.sigmoid(model(data.x, data.edge_index, data.edge_attr * m)[0]) for m in (mask, 1 - mask)]
        return float(p[0] - p[1])

    sign = 1 if int(one.target[0]) else -1
    assert one.exact
    assert one.pns == pytest.approx(max(sign * gap(kept) for kept in product((0, 1), repeat=9)), abs=1e-5)


def test_graphs_with_features_are_stored_exported_and_reported(tmp_path: Path) -> None:
    torch.manual_seed(0)
    graphs = [graph(seed, 5 + seed) for seed in range(2)]
    asked = explainer(Net("gine", pool=True).eval(), GRAPH, node_mask_type="object")
    found = explain_many(asked, graphs)
    stored = explain_many(asked, graphs, out=tmp_path / "run")
    for one, other in zip(found, stored, strict=True):
        for name in ("edge_attr_mask", "hard_edge_attr_mask", "node_mask"):
            assert torch.equal(one[name], other[name])
    row = found.records()[0]
    assert row["attributes"] == 2 * graphs[0].num_edges
    assert row["attributes_kept"] == int(found[0].hard_edge_attr_mask.sum())
    assert any(cells["kind"] == "edge attribute" for cells in stored.records("elements"))
    page = tmp_path / "page.html"
    nseg.report({"NSEG": found}, page, data=graphs, explainer=asked)
    assert "attribute" in page.read_text()


def test_weights_are_one_column() -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(3, 3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
            return 3 * self.conv(x, edge_index, edge_weight)

    torch.manual_seed(0)
    data = graph()
    data = Data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_attr[:, 0].abs() + 0.1)
    many = explain_many(explainer(Weighted().eval()), data, range(3))
    assert all(one.edge_attr_mask.shape == (one.num_edges, 1) for one in many)


def test_what_cannot_be_is_a_sentence() -> None:
    data, model = graph(), Net("gine").eval()
    typed = hetero_graph()
    for text, call in (
        ("needs edge_attr", lambda: explain_many(explainer(GCNConv(3, 3)), data, [0])),
        ("one number per feature, 2", lambda: explain_many(explainer(model, edge_baseline=(1.0,)), data, [0])),
        ("edge_attributes must be None", lambda: NSEG(edge_attributes="columns")),
        ("undirected and connected are of edges", lambda: NSEG(edge_attributes="attributes", undirected=True)),
        (
            "needs edge_mask_type='object'",
            lambda: Explainer(
                model,
                NSEG(edge_attributes="attributes"),
                explanation_type="model",
                node_mask_type="object",
                model_config=NODE,
            ),
        ),
        (
            "needs edge_attr_dict",
            lambda: explainer(make_net("to_hetero"))(typed.x_dict, typed.edge_index_dict, index=0),
        ),
        ("needs edge_attr_dict", lambda: explain_many(explainer(make_net("to_hetero")), typed, [0])),
        (
            "A threshold is of masks that PyG knows",
            lambda: explain_many(explainer(model), data, [0])[0].threshold(("topk", 3)),
        ),
        (
            "Metrics are of edges and features",
            lambda: metrics.Evaluator(explainer(model), data, explain_many(explainer(model), data, [0])),
        ),
    ):
        with pytest.raises(nseg.NsegError, match=text):
            call()
