"""Nodes really deleted, with their edges: numbers are those of the graph rebuilt without them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, NODE_MODELS, Link, Molecule, explainer, graph, seeded

from nseg import NSEG, SettingsError, certify, explain_many
from nseg.metrics import Evaluator

PAIRS = torch.tensor([[0, 3, 7], [5, 4, 1]])


def rebuilt(model: nn.Module, data: Data, keep: Tensor, edge: Tensor, explained: list[int]) -> Tensor:
    """The output on a graph with the kept nodes and edges only; explained nodes stay without their features."""
    x = data.x * keep.view(-1, 1)
    stay = keep.bool().clone()
    stay[explained] = True
    if not bool(stay.any()):
        stay[0] = True
    edges, _ = subgraph(stay, data.edge_index[:, edge.bool()], relabel_nodes=True, num_nodes=data.num_nodes)
    number = torch.cumsum(stay, 0) - 1
    with torch.no_grad():
        if isinstance(model, Link):
            return model(x[stay], edges, number[torch.tensor(explained)].view(2, 1))[0]
        return model(x[stay], edges)[number[explained[0]] if explained else 0]


def probabilities(model: nn.Module, data: Data, one: Any, explained: list[int], target: int) -> tuple[float, float]:
    """p with the explanation alone and without it, mixed over the three ways to be without a joint one."""
    node = torch.zeros(data.num_nodes).index_copy(0, one.node_id, one.hard_node_mask.float().flatten())
    edges = one.get("hard_edge_mask")
    edge = torch.ones(data.num_edges) if edges is None else torch.zeros(data.num_edges)
    edge = edge if edges is None else edge.index_copy(0, one.edge_id, edges.float())

    def p(keep: Tensor, kept_edges: Tensor) -> float:
        output = rebuilt(model, data, keep, kept_edges, explained)
        return float(output.sigmoid() if output.numel() == 1 else output.softmax(-1)[target])

    if edges is None:
        return p(node, edge), p(1 - node, edge)
    without = p(1 - node, 1 - edge), p(node, 1 - edge), p(1 - node, edge)
    return p(node, edge), sum(without) / 3


@pytest.mark.parametrize("masks", ["nodes", "edges and nodes"])
@pytest.mark.parametrize("level", ["gcn, no self-loops", "gat", "gin", "graph", "link"])
def test_numbers_are_those_of_the_graph_without_the_nodes(level: str, masks: str) -> None:
    edges = "object" if masks != "nodes" else None
    kinds = {"edge_mask_type": edges, "node_mask_type": "object"}
    algorithm = NSEG(steps=2, baseline="absent", undirected=False, exact=4, rounds=0, starts=(0.0,), path_points=2)
    if level == "graph":
        model, config, data = seeded(Molecule), GRAPH_CONFIG, [graph(6, 7, seed) for seed in range(3)]
    elif level == "link":
        model, config, data = seeded(Link), LINK_CONFIG, graph(10, 11)
        data.edge_label_index = PAIRS
    else:
        model, config, data = seeded(NODE_MODELS[level]), NODE_CONFIG, graph(10, 11)
    pairs = {"edge_label_index": PAIRS} if level == "link" else {}
    explain = explainer(model, algorithm, config, **kinds)
    found = explain_many(explain, data, [0, 2], **pairs)
    each = Evaluator(explain, data, found).each("hard")
    certificates = certify(explain, data, found)
    for number, one in enumerate(found):
        whole = data[one.output_id] if level == "graph" else data
        explained = {"graph": [], "link": PAIRS[:, one.output_id].tolist()}.get(level, [one.output_id])
        target = int(one.target if one.get("index") is None else one.target[one.index])
        p, q = probabilities(model, whole, one, explained, target)
        if level == "link" and target == 0:
            p, q = 1 - p, 1 - q
        assert one.intervention == "remove"
        assert (one.p_factual, one.p_complement) == pytest.approx((p, q), abs=1e-4)
        assert float(each.p_factual[number]) == pytest.approx(p, abs=1e-4)
        assert certificates[number].pns == pytest.approx(one.pns, abs=1e-4)


def test_only_whole_nodes_can_be_deleted_and_only_by_removal() -> None:
    with pytest.raises(SettingsError, match="intervention must be 'remove' or 'both'"):
        NSEG(baseline="absent", intervention="mask")
    with pytest.raises(SettingsError, match="needs node_mask_type='object'"):
        explainer(seeded(NODE_MODELS["gcn"]), NSEG(baseline="absent"), node_mask_type="attributes")
