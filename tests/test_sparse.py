"""Sparse adjacency matrices: the model gets what it expects, and the answers are those of the plain edges."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, global_add_pool
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from nseg import NSEG, Explainer, LargeGraph, ModelError, NsegError, explain_many, metrics
from nseg.runs import attach

BUILD = {"coo": to_torch_coo_tensor, "csr": to_torch_csr_tensor, "csc": to_torch_csc_tensor}
LAYERS = {
    "gcn": GCNConv,
    "sage": SAGEConv,
    "gin": lambda i, o: GINConv(torch.nn.Linear(i, o)),
    "graph": GraphConv,
    "gat": lambda i, o: GATConv(i, o, add_self_loops=False),
}
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR")  # PyG's advice on speed
QUICK = {"steps": 10, "seed": 0}
CONFIG = {"mode": "multiclass_classification", "return_type": "raw"}


class Net(torch.nn.Module):
    """Two layers; remembers with what kinds of edges it was called."""

    def __init__(self, layer: str = "gcn", pool: bool = False) -> None:
        super().__init__()
        self.one, self.two, self.pool = LAYERS[layer](4, 8), LAYERS[layer](8, 3), pool
        self.__dict__["seen"] = set()

    def forward(self, x: Tensor, adj_t: Tensor, batch: Tensor | None = None, time: Tensor | None = None) -> Tensor:
        self.__dict__["seen"].add((getattr(adj_t, "layout", None), None if time is None else tuple(time.tolist())))
        x = self.two(self.one(x, adj_t).tanh(), adj_t)
        return global_add_pool(x, batch) if self.pool else x


def graph(seed: int = 0, nodes: int = 12) -> Data:
    rng = torch.Generator().manual_seed(seed)
    pair = torch.unique(torch.randint(nodes, (2, 3 * nodes), generator=rng), dim=1)
    pair = pair[:, pair[0] != pair[1]]
    order = torch.argsort(pair[1] * nodes + pair[0])  # as the rows of a transposed matrix are
    return Data(x=torch.randn(nodes, 4, generator=rng), edge_index=pair[:, order])


def matrix(data: Data, kind: str, value: Tensor | None = None) -> Tensor:
    size = data.num_nodes, data.num_nodes
    return BUILD[kind](data.edge_index.flip(0), value, size)


def explainer(model: torch.nn.Module, kind: type = Explainer, **changes: object) -> PyGExplainer:
    given = {"explanation_type": "model", "edge_mask_type": "object", "model_config": {**CONFIG, "task_level": "node"}}
    return kind(model, NSEG(**QUICK), **{**given, **changes})


def assert_same_answer(one: Data, other: Data) -> None:
    """Both explanations are of the same graph, up to the order of their edges."""
    a, b = (torch.argsort(e.edge_index[1] * 100 + e.edge_index[0]) for e in (one, other))
    assert torch.equal(one.edge_index[:, a], other.edge_index[:, b])
    assert torch.allclose(one.edge_mask[a], other.edge_mask[b], atol=1e-4)
    assert torch.equal(one.hard_edge_mask[a], other.hard_edge_mask[b])
    for name in ("pns", "p_factual", "p_complement"):
        assert one[name] == pytest.approx(other[name], abs=1e-5)


@pytest.mark.parametrize("layer", list(LAYERS))
@pytest.mark.parametrize("kind", ["coo", "csr"])
def test_a_matrix_gives_the_answers_of_its_edges(kind: str, layer: str) -> None:
    torch.manual_seed(0)
    model, data = Net(layer).eval(), graph()
    found = explainer(model)(data.x, matrix(data, kind), index=3)
    layouts = {layout for layout, _ in model.__dict__["seen"]}
    assert layouts == {{"coo": torch.sparse_coo, "csr": torch.sparse_csr}[kind]}  # never anything else
    assert_same_answer(found, explainer(model)(data.x, data.edge_index, index=3))
    assert found.adj_t.layout in layouts


def test_csc_weights_and_pygs_own_explainer() -> None:
    """A matrix with values, in the layout that is sorted by sender, through PyG's own ``Explainer``."""
    torch.manual_seed(0)
    data = graph(1)
    weight = torch.rand(data.num_edges)

    class Weighted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GraphConv(4, 3)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            return self.conv(x, edge_index, edge_weight)

    model = Weighted().eval()
    found = explainer(model, PyGExplainer)(data.x, matrix(data, "csc", weight), index=3)
    assert_same_answer(found, explainer(model, PyGExplainer)(data.x, data.edge_index, index=3, edge_weight=weight))
    double = torch.cat([data.edge_index.flip(0)] * 2, 1)  # entries that stand twice are added up
    twice = torch.sparse_coo_tensor(double, torch.cat([weight / 2] * 2), (12, 12))
    assert_same_answer(explainer(model)(data.x, twice, index=3), found)


def test_many_targets_and_graphs_of_matrices_are_batched_and_measured() -> None:
    torch.manual_seed(0)
    model, data = Net("sage").eval(), graph(2)
    sparse = ToSparseTensor()(data.clone())
    assert "edge_index" not in sparse
    many, plain = (explain_many(explainer(model), one, range(4)) for one in (sparse, Data(data.x, data.edge_index)))
    for one, other in zip(many, plain, strict=True):
        assert_same_answer(one, other)
        assert one.adj_t.shape == (len(one.x), len(one.x))
    score, expected = (
        metrics.Evaluator(explainer(model), one, found).fidelity("hard") for found, one in ((many, sparse), (plain, data))
    )
    assert score == expected

    whole = explainer(Net("sage", pool=True).eval(), model_config={**CONFIG, "task_level": "graph"})
    graphs = [graph(seed, 6 + seed) for seed in range(3)]
    for one, other in zip(
        explain_many(whole, [ToSparseTensor()(g.clone()) for g in graphs]), explain_many(whole, graphs), strict=True
    ):
        assert_same_answer(one, other)


def test_matrices_are_stored_and_resumed(tmp_path: object) -> None:
    torch.manual_seed(0)
    sparse = ToSparseTensor()(graph(2))
    first = explain_many(explainer(Net("sage").eval()), sparse, range(2), out=tmp_path)
    torch.manual_seed(0)
    again = explain_many(explainer(Net("sage").eval()), sparse, range(2), out=tmp_path)
    assert [one.pns for one in first] == [one.pns for one in again]
    whole = attach(first[1], sparse)
    (alone,) = explain_many(explainer(Net("sage").eval()), sparse, [1])
    assert torch.equal(whole.edge_index, alone.edge_index)
    torch.testing.assert_close(whole.adj_t.to_dense(), alone.adj_t.to_dense())


@pytest.mark.parametrize("layer", ["gcn", "gat"])
def test_a_sparse_tensor_of_torch_sparse_gives_the_answers_of_its_edges(layer: str) -> None:
    """Runs where torch_sparse is installed, which has no wheels for every torch."""
    torch_sparse = pytest.importorskip("torch_sparse")
    torch.manual_seed(0)
    data = graph()

    class Takes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.kinds = LAYERS[layer](4, 8), LAYERS[layer](8, 3), []

        def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
            self.kinds.append(type(adj_t))
            return self.two(self.one(x, adj_t).tanh(), adj_t)

    model, (sender, receiver) = Takes().eval(), data.edge_index
    sparse = Data(x=data.x, adj_t=torch_sparse.SparseTensor(row=receiver, col=sender, sparse_sizes=(12, 12)))
    (found,) = explain_many(explainer(model), sparse, [3])
    assert set(model.kinds) == {torch_sparse.SparseTensor} == {type(found.adj_t)}
    (plain,) = explain_many(explainer(model), data, [3])
    assert_same_answer(found, plain)


def test_a_matrix_made_inside_the_model_is_traced() -> None:
    class Inside(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net("gcn")

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.net(x, to_torch_csr_tensor(edge_index.flip(0), size=(len(x), len(x))))

    torch.manual_seed(0)
    model, data = Inside().eval(), graph(3)
    assert_same_answer(
        explainer(model)(data.x, data.edge_index, index=2), explainer(model.net)(data.x, data.edge_index, index=2)
    )


def test_other_arguments_arrive_untouched() -> None:
    """An argument that is neither of nodes nor of edges, like the times of snapshots, is passed on as it is."""
    torch.manual_seed(0)
    model, data = Net().eval(), graph()
    when = torch.tensor([1.0, 5.0, 7.0])
    explainer(model)(data.x, matrix(data, "csr"), index=3, time=when)
    assert {time for _, time in model.__dict__["seen"]} == {(1.0, 5.0, 7.0)}
    explain_many(explainer(model), data, [1, 2], time=when)
    assert {time for _, time in model.__dict__["seen"]} == {(1.0, 5.0, 7.0)}


class Multiplies(torch.nn.Module):
    """A model without layers: edge masks cannot reach a bare product."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(4, 3)

    def forward(self, x: Tensor, adj_t: Tensor) -> Tensor:
        return adj_t @ self.lin(x)


def test_what_is_impossible_is_said() -> None:
    data = graph()
    with pytest.raises(ModelError, match="MessagePassing layers"):
        explainer(Multiplies())(data.x, matrix(data, "csr"), index=0)
    with pytest.raises(NsegError, match="a row and a column per node, 12"):
        explainer(Net())(data.x, torch.eye(5).to_sparse_csr(), index=0)
    with pytest.raises(NsegError, match="the matrix must have the model's dtype"):
        explainer(Net())(data.x, matrix(data, "csr").double(), index=0)
    with pytest.raises(NsegError, match="or a sparse matrix"):
        explainer(Net())(data.x, "edges", index=0)


@pytest.mark.parametrize("kind", BUILD)
def test_a_large_graph_may_be_a_matrix(kind: str) -> None:
    data, model = graph(), Net("graph").eval()
    weight = torch.rand(data.num_edges, generator=torch.Generator().manual_seed(1)) + 0.5
    sparse = Data(x=data.x, adj_t=matrix(data, kind, weight))
    found = explain_many(explainer(model), LargeGraph(sparse), [0, 5])
    assert {layout for layout, _ in model.seen} == {sparse.adj_t.layout}
    for one, other in zip(found, explain_many(explainer(model), sparse, [0, 5]), strict=True):
        assert torch.equal(one.edge_id, other.edge_id)
        assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
        assert one.pns == pytest.approx(other.pns, abs=1e-5)
