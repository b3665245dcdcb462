"""In place of PyG's GNNExplainer: every configuration that PyG's own tests call it with is answered, in its shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hetero_zoo import NODE, hetero_graph, make_net
from torch import Tensor, nn
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import HeteroExplanation
from torch_geometric.nn import GCNConv, SAGEConv, global_add_pool
from zoo import quick

import nseg
from nseg import Explainer, NsegWarning
from nseg.model.products import SparsePattern

pytestmark = pytest.mark.filterwarnings("ignore:Shortcuts are not exact", "ignore:.*searched again without shortcuts")
GRAPH = {**NODE, "task_level": "graph"}
RETURNS = [
    ("binary_classification", "probs"),
    ("binary_classification", "raw"),
    ("multiclass_classification", "log_probs"),
    ("multiclass_classification", "raw"),
    ("regression", "raw"),
]
FINISH = {"probs": torch.sigmoid, "log_probs": lambda x: x.log_softmax(-1), "raw": lambda x: x}


class Net(nn.Module):
    """Two layers that know what is asked of them; batch and pairs are always passed, as in PyG's tests."""

    def __init__(self, mode: str, level: str, returns: str) -> None:
        super().__init__()
        self.level, self.finish = level, FINISH[returns]
        self.one, self.two = GCNConv(3, 8), GCNConv(8, 4 if mode.startswith("multi") else 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_label_index: Tensor) -> Tensor:
        x = self.two(self.one(x, edge_index).relu(), edge_index)
        if self.level == "graph":
            x = global_add_pool(x, batch)
        if self.level == "edge":
            x = x[edge_label_index[0]] * x[edge_label_index[1]]
        return self.finish(x)


def path_of(nodes: int) -> Tensor:
    """A path, in both directions."""
    there = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    return torch.stack([there, there.flip(0)], -1).flatten(1)


def given_target(mode: str, returns: str, output: Tensor) -> Tensor:
    if mode.startswith("binary"):
        return (output > (0.5 if returns == "probs" else 0)).long().view(-1)
    return output.argmax(-1) if mode.startswith("multi") else output


@pytest.mark.parametrize(("mode", "returns"), RETURNS)
@pytest.mark.parametrize("level", ["node", "edge", "graph"])
def test_modes_levels_targets_and_indices(mode: str, returns: str, level: str) -> None:
    """Masks, kinds of explanation, forms of index and both explainers take turns: every pair of choices occurs."""
    torch.manual_seed(0)
    x, edges = torch.randn(8, 3), path_of(8)
    more = {"batch": torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]), "edge_label_index": torch.tensor([[0, 1, 2], [3, 4, 5]])}
    model = Net(mode, level, returns)
    model.eval()
    shapes = {"object": (8, 1), "attributes": (8, 3), "common_attributes": (1, 3)}
    turns = [("object", "model", None), ("attributes", "phenomenon", 2), ("common_attributes", "model", torch.arange(3))]
    for number, (node, kind, index) in enumerate(turns):
        edge = None if number == 1 else "object"
        door = (PyGExplainer, Explainer)[number % 2]
        explainer = door(
            model,
            quick(steps=2, intervention="remove"),
            explanation_type=kind,
            node_mask_type=node,
            edge_mask_type=edge,
            model_config={"mode": mode, "task_level": level, "return_type": returns},
        )
        target = None if kind == "model" else given_target(mode, returns, model(x, edges, **more).detach())
        found = explainer(x, edges, target=target, index=index, **more)
        assert found.node_mask.shape == shapes[node]
        assert ("edge_mask" in found) == (edge is not None)
        for mask in (found.node_mask, found.get("edge_mask", torch.zeros(14))):
            assert 0 <= float(mask.min()) <= float(mask.max()) <= 1
        assert found.get("edge_mask", torch.zeros(14)).shape == (14,)
        assert 0 <= found.pns <= 1


def hetero_explainer(door: Any = PyGExplainer, **changes: Any) -> PyGExplainer:
    given = {"explanation_type": "model", "edge_mask_type": "object", "node_mask_type": "attributes", "model_config": NODE}
    return door(make_net("to_hetero"), quick(steps=2, intervention="remove"), **{**given, **changes})


@pytest.mark.parametrize(("kind", "value"), [("topk", 5), ("hard", 0.5)])
def test_thresholds_of_heterogeneous_graphs(kind: str, value: float) -> None:
    data = hetero_graph()
    found = hetero_explainer(threshold_config=(kind, value))(data.x_dict, data.edge_index_dict, index=2)
    assert isinstance(found, HeteroExplanation)
    for name in found.available_explanations:
        for mask in found.collect(name).values():
            if kind == "topk":
                assert int((mask > 0).sum()) <= min(mask.numel(), value)
            else:
                assert set(mask.unique().tolist()) <= {0, 1}


@pytest.mark.parametrize("door", [PyGExplainer, Explainer])
def test_rows_of_nodes_are_explained_as_such_whatever_level_is_declared(door: Any) -> None:
    """PyG asks nothing of a level; a wrong one is told, and the answer is that of the right one."""
    data = hetero_graph()
    given = data.x_dict, data.edge_index_dict
    expected = hetero_explainer(node_mask_type=None)(*given, index=torch.tensor([1, 2]))
    with pytest.warns(NsegWarning, match="Set task_level='node'"):
        found = hetero_explainer(door, model_config=GRAPH, node_mask_type=None)(*given, index=torch.tensor([1, 2]))
    assert found.pns == expected.pns
    for kind in data.edge_types:
        assert torch.equal(found[kind].edge_mask, expected[kind].edge_mask)
    with pytest.raises(nseg.ModelError, match="one entry per graph"):
        nseg.explain_many(hetero_explainer(model_config=GRAPH), [data])


def test_more_parallel_edges_than_pairs_of_nodes() -> None:
    """torch's sampled product refuses such a matrix; the gradient is that of adding up."""
    torch.manual_seed(0)
    sender, receiver = torch.tensor([0, 0, 1, 0, 1]), torch.tensor([0, 0, 0, 1, 0])
    for some in (slice(0, 2), slice(0, 5)):
        values, features = torch.rand(len(sender[some]), requires_grad=True), torch.randn(2, 3)
        one, other = sender[some], receiver[some]
        pattern = SparsePattern(one, other, int(other.max()) + 1)
        (found,) = torch.autograd.grad(pattern.multiply(values, features).square().sum(), values)
        total = torch.zeros(pattern.nodes, 3).index_add(0, other, values.unsqueeze(1) * features[one])
        (expected,) = torch.autograd.grad(total.square().sum(), values)
        assert torch.allclose(found, expected, atol=1e-5)
    model, edges = SAGEConv(3, 2).eval(), torch.zeros(2, 4, dtype=torch.long)
    explainer = Explainer(
        model,
        quick(steps=2, intervention="remove"),
        explanation_type="model",
        edge_mask_type="object",
        model_config={**NODE, "return_type": "raw"},
    )
    assert explainer(torch.randn(1, 3), edges, index=0).edge_mask.shape == (4,)


def test_rows_of_graphs_are_explained_also_if_the_level_is_said_to_be_node() -> None:
    """As PyG's own test of AttentiveFP asks its GNNExplainer."""
    batch, edges = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]), path_of(8)
    model = Net("multiclass_classification", "graph", "raw").eval()
    given = {"batch": batch, "edge_label_index": torch.zeros(2, 1, dtype=torch.long)}
    config = {"mode": "multiclass_classification", "return_type": "raw"}
    x = torch.rand(8, 3, generator=torch.Generator().manual_seed(0))
    said, true = (
        PyGExplainer(
            model,
            quick(steps=2, intervention="remove"),
            explanation_type="model",
            edge_mask_type="object",
            model_config=config | level,
        )
        for level in ({"task_level": "node"}, {"task_level": "graph"})
    )
    with pytest.warns(NsegWarning, match="one row per graph of the batch"):
        one = said(x, edges, index=1, **given)
    other = true(x, edges, index=1, **given)
    assert one.pns == other.pns
    assert torch.equal(one.edge_mask, other.edge_mask)
