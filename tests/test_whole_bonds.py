"""Both directions of an edge as one bond, where a whole graph is explained; models that cannot lose edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, global_add_pool
from torch_geometric.utils import coalesce, degree
from zoo import FEATURES, GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, quick, seeded

from nseg import NSEG, NsegWarning, certify, counterfactual, explain_many, runs
from nseg.graphs.subgraph import reverse_edges
from nseg.metrics import Evaluator
from nseg.wording import is_undirected, kept_parts


class Weighted(torch.nn.Module):
    """A graph classifier that takes weights of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GraphConv(FEATURES, 8), torch.nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.head(global_add_pool(self.conv(x, edge_index, edge_weight).relu(), batch))


def bonds(seed: int, **changes: Any) -> Data:
    data = graph(7, 8, seed)
    for name, value in changes.items():
        data[name] = value
    return data


def without_one_edge(data: Data) -> Data:
    data.edge_index, data.edge_weight = data.edge_index[:, 1:], data.edge_weight[1:]
    return data


def twice(data: Data) -> Data:
    data.edge_index = torch.cat([data.edge_index, data.edge_index], 1)
    return data


def symmetric_weights(data: Data) -> Data:
    data.edge_weight = coalesce(data.edge_index, data.edge_weight)[1]
    data.edge_weight = torch.maximum(data.edge_weight, data.edge_weight[reverse_edges(data.edge_index, data.num_nodes)])
    return data


def is_symmetric(one: Any) -> bool:
    reverse = reverse_edges(one.edge_index, one.num_nodes)
    masks = (one.hard_edge_mask, one.edge_mask, *(point.edge_mask for point in one.path()))
    return all(torch.equal(mask, mask[reverse]) for mask in masks)


MIXED = [bonds(0), without_one_edge(bonds(1)), bonds(2), twice(bonds(3)), bonds(4, edge_index=torch.zeros(2, 0).long())]


@pytest.mark.parametrize("algorithm", [NSEG(steps=5, exact=4), quick(steps=4)], ids=["default", "quick"])
def test_each_graph_of_a_batch_decides_for_itself(algorithm: Any, tmp_path: Path) -> None:
    explain = explainer(seeded(Molecule), algorithm, GRAPH_CONFIG)
    found = explain_many(explain, MIXED)
    assert [is_undirected(one) for one in found] == [True, False, True, True, True]
    assert all(is_symmetric(one) for one in found if is_undirected(one))
    runs.write(tmp_path, found, {})
    certificates = certify(explain, MIXED, found)
    each = Evaluator(explain, MIXED, found).each("hard", explain.algorithm.settings.intervention)
    for number, one in enumerate(found):
        (alone,) = explain_many(explain, MIXED, [number])
        stored = runs.attach(runs.read(tmp_path)[number], MIXED)
        for other in (alone, stored):
            assert is_undirected(other) == is_undirected(one)
            assert torch.equal(other.hard_edge_mask, one.hard_edge_mask)
            assert other.pns == pytest.approx(one.pns, abs=1e-5)
            assert kept_parts(other) == kept_parts(one)
        assert certificates[number].elements == kept_parts(one)[0].total
        assert certificates[number].pns == pytest.approx(one.pns, abs=1e-4)
        assert float(each.pns[number]) == pytest.approx(one.pns, abs=1e-4)


def test_attributes_of_both_directions_must_be_equal() -> None:
    graphs = [bonds(0), symmetric_weights(bonds(0))]
    found = explain_many(explainer(seeded(Weighted), quick(steps=2), GRAPH_CONFIG), graphs)
    assert [is_undirected(one) for one in found] == [False, True]


def test_nodes_are_explained_by_directed_edges_unless_asked() -> None:
    data, model = graph(), seeded(NODE_MODELS["gin"])
    (one,) = explain_many(explainer(model, quick(steps=2)), data, [3])
    assert not is_undirected(one)
    (tied,) = explain_many(explainer(model, quick(steps=2, undirected=True)), data, [3])
    assert is_undirected(tied)


def test_counterfactuals_remove_whole_bonds_of_graphs() -> None:
    explain = explainer(seeded(Molecule), NSEG(), GRAPH_CONFIG)
    for number in (0, 1):
        assert counterfactual(explain, MIXED, number).undirected == (number == 0)


class NeedsNeighbours(Molecule):
    """Raises on graphs in which a node has no edge."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        if bool((degree(edge_index[1], x.size(0)) == 0).any()):
            raise ValueError("a node has no neighbour")
        return super().forward(x, edge_index, batch)


def test_a_model_that_cannot_lose_edges_is_explained_by_masks_with_a_sentence() -> None:
    ring = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    rings = [bonds(n, x=torch.randn(6, FEATURES), edge_index=torch.cat([ring, ring.flip(0)], 1)) for n in range(3)]
    model = seeded(NeedsNeighbours)
    masked = explain_many(explainer(model, NSEG(steps=5, intervention="mask"), GRAPH_CONFIG), rings)
    explain = explainer(model, NSEG(steps=5), GRAPH_CONFIG)
    with pytest.warns(NsegWarning, match="does not run on graphs with fewer edges .ValueError: a node has no neighbour"):
        found = explain_many(explain, rings)
    with pytest.warns(NsegWarning, match="intervention='mask'"):
        alone = explain(rings[1].x, rings[1].edge_index)
    for one, same in (*zip(found, masked, strict=True), (alone, masked[1])):
        assert one.intervention == one.settings["intervention"] == "mask"
        assert one.get("pns_removed") is None
        assert torch.equal(one.hard_edge_mask, same.hard_edge_mask)
        assert one.pns == pytest.approx(same.pns, abs=1e-6)
    assert len(certify(explain, rings, found)) == 3
