"""Heterogeneous graphs as sparse matrices by type: the model gets matrices, and the answers are those of the edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hetero_zoo import BY, CITES, NODE, WROTE, HeteroNet, hetero_graph, make_net
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphConv, HeteroConv
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.utils import to_torch_coo_tensor

import nseg
from nseg import NSEG, Explainer, NsegError, explain_many
from nseg.metrics import Evaluator
from nseg.runs import attach

pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse tensor to CSR")  # PyG's advice on speed


class Takes(torch.nn.Module):
    """A network that remembers how its edges were given."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net
        self.__dict__["seen"] = set()

    def forward(self, x_dict: dict[str, torch.Tensor], adj_t_dict: dict[Any, Any]) -> torch.Tensor:
        self.__dict__["seen"] |= {getattr(one, "layout", None) for one in adj_t_dict.values()}
        return self.net(x_dict, adj_t_dict)


def explainer_of(model: torch.nn.Module, **settings: Any) -> Explainer:
    return Explainer(
        model, NSEG(steps=4, exact=4, **settings), explanation_type="model", edge_mask_type="object", model_config=NODE
    )


def edges_of(one: Any, kind: Any) -> dict[tuple[int, int], tuple[float, bool]]:
    """Masks of the edges of a type by their nodes in the caller's graph."""
    ends = one[kind].edge_index
    if "node_id" in one[kind[0]]:
        ends = torch.stack([one[kind[0]].node_id[ends[0]], one[kind[2]].node_id[ends[1]]])
    masks = zip(one[kind].edge_mask.tolist(), one[kind].hard_edge_mask.tolist(), strict=True)
    return dict(zip(map(tuple, ends.t().tolist()), masks, strict=True))


def assert_same_answer(one: Any, other: Any) -> None:
    for kind in (CITES, BY, WROTE):
        mine, theirs = edges_of(one, kind), edges_of(other, kind)
        assert mine.keys() == theirs.keys()
        for ends, (soft, hard) in mine.items():
            assert soft == pytest.approx(theirs[ends][0], abs=1e-4)
            assert hard == theirs[ends][1]
    for name in ("pns", "p_factual", "p_complement"):
        assert one[name] == pytest.approx(other[name], abs=1e-5)


@pytest.mark.parametrize("name", ["to_hetero", "attention", "hgt"])
def test_matrices_give_the_answers_of_their_edges(name: str, tmp_path: Path) -> None:
    model, data = Takes(make_net(name)).eval(), hetero_graph(3)
    sparse = ToSparseTensor()(data.clone())
    explainer = explainer_of(model)
    plain = explain_many(explainer, data, [0, 4])
    model.__dict__["seen"].clear()
    explain_many(explainer, sparse, [0, 4], out=tmp_path)
    assert model.__dict__["seen"] == {torch.sparse_csr}  # never anything else
    found = [attach(one, sparse) for one in nseg.read(tmp_path)]
    for one, other in zip(found, plain, strict=True):
        assert_same_answer(one, other)
    assert_same_answer(
        explainer(sparse.x_dict, sparse.adj_t_dict, index=4), explainer(data.x_dict, data.edge_index_dict, index=4)
    )
    each = Evaluator(explainer, sparse, found).each("hard")
    assert each.p_factual.tolist() == pytest.approx([one.p_factual for one in plain], abs=1e-5)


def test_values_are_weights_and_other_types_may_stay_edges() -> None:
    """Values of a matrix are what a layer takes as ``edge_weight``."""
    torch.manual_seed(0)
    convs = {WROTE: GraphConv((-1, -1), 8), CITES: GraphConv(-1, 8), BY: GraphConv((-1, -1), 8)}
    model, data = HeteroNet([HeteroConv(convs)]).eval(), hetero_graph(1)
    edges, weight = data[WROTE].edge_index, torch.rand(data[WROTE].num_edges)
    matrix = to_torch_coo_tensor(edges.flip(0), weight, (7, 9))
    given = {**data.edge_index_dict, WROTE: matrix}
    model(data.x_dict, given)
    found = explainer_of(model)(data.x_dict, given, index=2)

    class Weighted(torch.nn.Module):
        def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> torch.Tensor:
            x = model.layers[0](x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)
            return 3 * model.head(x["paper"].relu())

        def __init__(self) -> None:
            super().__init__()
            self.inner = model

    weights = {kind: torch.ones(data[kind].num_edges) for kind in data.edge_types} | {WROTE: weight}
    assert_same_answer(found, explainer_of(Weighted())(data.x_dict, data.edge_index_dict, index=2, edge_weight_dict=weights))


def test_a_matrix_of_another_size_is_a_sentence() -> None:
    data: HeteroData = ToSparseTensor()(hetero_graph())
    data[WROTE].adj_t = torch.eye(7).to_sparse_csr()
    with pytest.raises(
        NsegError, match=r"a row per node of type 'paper', 7, and a column per node of type 'author', 9 \(got 7"
    ):
        explain_many(explainer_of(make_net("mixed")), data, [0])
