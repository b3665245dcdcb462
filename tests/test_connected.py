"""Connected explanations: pieces and paths as networkx finds them, connectedness, and all subsets as the oracle."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
import torch
from test_causal_model import causal_model
from torch_geometric.data import Data
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_MODELS, Link, Molecule, explainer, graph, seeded

from nseg import NSEG, explain_many
from nseg.search.noise import uniform
from nseg.search.parts import MaskParts
from nseg.search.pieces import FAR, Reach, is_connected, largest_piece
from nseg.search.prefix import connected_ranking


def of_ends(ends: list[tuple[int, int]]) -> nx.Graph:
    return nx.Graph([tuple(pair) for pair in ends])


# --- pieces and paths ------------------------------------------------------------------------------------------------------


def test_pieces_and_paths_are_those_of_networkx() -> None:
    """Of whole graphs the largest piece, around nodes the one that holds the node; and the shortest way to each edge."""
    model, data = seeded(NODE_MODELS["gin"]), graph(nodes=16, edges=24)
    with causal_model(model, data, [5, 9]) as causal:
        part = MaskParts.of(causal.instances, edges=True, undirected=True).edges
        here = causal.instances
        subsets = uniform(torch.arange(part.owner.numel()), 20, (0,), torch.float).T < 0.5
        pieces, connected = largest_piece(part, subsets), is_connected(part, subsets)
        ends = {int(e): pair for e, pair in zip(part.element, here.edge_index.T.tolist(), strict=True)}
        for b, root in enumerate(here.explained_nodes.flatten().tolist()):
            mine = (part.owner == b).nonzero().flatten().tolist()
            for row, piece, whole in zip(subsets, pieces, connected[:, b], strict=True):
                kept = of_ends([ends[e] for e in mine if row[e]])
                kept.add_node(root)
                hangs = nx.node_connected_component(kept, root)
                assert {e for e in mine if piece[e]} == {e for e in mine if row[e] and ends[e][0] in hangs}
                assert bool(whole) == nx.is_connected(kept)
            there = of_ends([ends[e] for e in mine])
            start = torch.zeros_like(part.owner, dtype=torch.bool)
            start[mine[:1]] = True
            start = largest_piece(part, start.unsqueeze(0))[0]
            reach = Reach(part, start)
            sources = {root, *(node for e in mine if start[e] for node in ends[e])}
            away = nx.multi_source_dijkstra_path_length(there, sources)
            for e in mine:
                near = min(away.get(node, FAR) for node in ends[e])
                assert int(reach.distance[e]) == near
                wanted = torch.zeros_like(start)
                wanted[e] = True
                joined = reach.joined(wanted.unsqueeze(0))
                assert int((joined & ~start).sum()) == (0 if start[e] else near + 1)
                assert bool(is_connected(part, joined | start)[0, b])


def test_of_a_whole_graph_the_largest_piece_is_kept() -> None:
    data = graph(nodes=14, edges=16)
    data = Data(x=data.x, edge_index=data.edge_index)
    with causal_model(seeded(Molecule), data, [0], GRAPH_CONFIG) as causal:
        part = MaskParts.of(causal.instances, edges=True, undirected=True).edges
        ends = {int(e): pair for e, pair in zip(part.element, data.edge_index.T.tolist(), strict=True)}
        subsets = uniform(torch.arange(part.owner.numel()), 20, (0,), torch.float).T < 0.4
        for row, piece, whole in zip(subsets, largest_piece(part, subsets), is_connected(part, subsets), strict=True):
            kept = of_ends([ends[e] for e in row.nonzero().flatten().tolist()])
            sizes = [kept.subgraph(nodes).number_of_edges() for nodes in nx.connected_components(kept)]
            found = of_ends([ends[e] for e in piece.nonzero().flatten().tolist()])
            assert found.number_of_edges() == max(sizes, default=0)
            assert not sizes or nx.is_connected(found)
            assert bool(whole) == (len(sizes) <= 1)


def test_edges_are_ranked_by_the_weakest_link_in_the_maximum_spanning_tree() -> None:
    """The best path from the origin, as networkx finds it in that tree."""
    data = graph(nodes=12, edges=30)
    with causal_model(seeded(NODE_MODELS["gin"]), data, [5]) as causal:
        here = causal.instances
        part = MaskParts.of(here, edges=True, undirected=True).edges
        score = uniform(torch.arange(part.owner.numel()), 1, (0,), torch.float).squeeze(1)
        found, links = connected_ranking(part, score)
        ends = here.node_id[here.edge_index].t().tolist()
        whole = nx.Graph()
        for (u, v), element in zip(ends, part.element.tolist(), strict=True):
            whole.add_edge(u, v, weight=float(score[element]), element=element)
        tree = nx.maximum_spanning_tree(whole)
        for u, v, content in whole.edges(data=True):
            weakest = []
            for end in (u, v):
                path = nx.shortest_path(tree, 5, end)
                weakest.append(min([tree.edges[pair]["weight"] for pair in itertools.pairwise(path)], default=2.0))
            assert float(found[content["element"]]) == pytest.approx(min(max(weakest), content["weight"]))
        assert links.min() == 0


# --- explanations ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("undirected", [False, True])
def test_connected_explanations_are_connected_and_hold_the_explained_node(undirected: bool) -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph()
    explain = explainer(model, NSEG(connected=True, undirected=undirected, tolerance=0.0))
    kept = 0
    for one in explain_many(explain, data, range(6)):
        edges = one.node_id[one.edge_index[:, one.hard_edge_mask]].t().tolist()
        together = nx.Graph(edges)
        kept += len(edges)
        assert not edges or (nx.is_connected(together) and one.output_id in together)
    assert kept > 6
    graphs = [graph(nodes=10, edges=11, seed=s) for s in range(3)]
    explain = explainer(seeded(Molecule), NSEG(connected=True, undirected=undirected), GRAPH_CONFIG)
    for one in explain_many(explain, graphs):
        edges = one.edge_index[:, one.hard_edge_mask].t().tolist()
        assert not edges or nx.is_connected(nx.Graph(edges))


def test_no_connected_subset_of_bonds_is_better() -> None:
    """Every subset of bonds is asked of the model itself, on the graph without the others; by moves and by enumeration."""
    model, graphs = seeded(Molecule), [graph(nodes=8, edges=8, seed=s) for s in range(4)]
    graphs = [Data(x=one.x, edge_index=one.edge_index) for one in graphs]
    best = [best_connected(model, data) for data in graphs]
    assert sum(value > 0.01 for value in best) >= 2
    for exact in (0, 12):
        explain = explainer(model, NSEG(connected=True, tolerance=0.0, exact=exact), GRAPH_CONFIG)
        found = explain_many(explain, graphs)
        assert [one.pns for one in found] == pytest.approx(best, abs=1e-4)
        assert all(one.exact == (exact > 0) for one in found)
    alone = explain_many(explain, graphs[:1])[0]
    assert torch.equal(alone.hard_edge_mask, found[0].hard_edge_mask)


@torch.no_grad()
def best_connected(model: Molecule, data: Data) -> float:
    """The highest PNS bound of all connected subsets of bonds."""
    bonds = [tuple(ends) for ends in data.edge_index.T.tolist() if ends[0] < ends[1]]

    def p(kept: list[tuple[int, int]]) -> torch.Tensor:
        edges = torch.tensor(kept + [(v, u) for u, v in kept], dtype=torch.long).reshape(-1, 2).T
        return model(data.x, edges).softmax(-1)[0]

    target, best = int(p(bonds).argmax()), 0.0
    for chosen in itertools.product((False, True), repeat=len(bonds)):
        kept = list(itertools.compress(bonds, chosen))
        if kept and nx.is_connected(of_ends(kept)):
            rest = [bond for bond in bonds if bond not in kept]
            best = max(best, float(p(kept)[target] - p(rest)[target]))
    return best


def test_connected_explanations_of_several_links_are_those_of_each_alone() -> None:
    """Each hangs on the ends of its own link, whoever shares the batch."""
    model, data = seeded(Link, 1), graph(edges=30, seed=3)
    explain = explainer(model, NSEG(connected=True, exact=0, effort="fast"), LINK_CONFIG)
    links = {"edge_label_index": torch.tensor([[0, 3, 7, 5], [2, 9, 1, 11]])}
    together = explain_many(explain, data, range(4), progress=False, **links)
    for number, one in enumerate(together):
        (alone,) = explain_many(explain, data, [number], progress=False, **links)
        assert torch.equal(one.hard_edge_mask, alone.hard_edge_mask)
        ends = of_ends(one.edge_index[:, one.hard_edge_mask.bool()].T.tolist())
        mine = [torch.nonzero(one.node_id == end).item() for end in links["edge_label_index"][:, number]]
        ends.add_edge(*mine)  # the ends of a link count as joined
        assert nx.is_connected(ends)
