"""Motifs attached to a base graph: BA-Shapes, Tree-Cycles, Tree-Grid and BA2Motif.

Base graphs come from networkx, because PyG's Barabasi-Albert generator drops repeated draws: about 1412 of the 1475 edges
that the paper counts would be left. The motifs are PyG's.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets.motif_generator import CustomMotif, CycleMotif, GridMotif, HouseMotif
from torch_geometric.utils import coalesce, from_networkx

from nseg.datasets.base import Benchmark


def attach_motifs(base: nx.Graph, motif: CustomMotif, count: int, extra: float, rng: np.random.Generator) -> Data:
    """The base graph with ``count`` motifs attached at regular distances, and random edges.

    Args:
        base: the base graph.
        motif: the motif to attach; an edge joins its first node to the base graph.
        count: number of motifs.
        extra: number of random edges to add, as a share of the other edges.
        rng: generator of the random edges.
    """
    size, shape = base.number_of_nodes(), motif()
    first_nodes = size + shape.num_nodes * torch.arange(count)  # of each motif
    anchors = torch.arange(count) * (size // count)
    joints = torch.stack([first_nodes, anchors])
    inside = (shape.edge_index.unsqueeze(1) + first_nodes.view(1, -1, 1)).flatten(1)
    edges = torch.cat([from_networkx(base).edge_index, inside, joints, joints.flip(0)], 1)
    nodes = size + count * shape.num_nodes
    edges = _add_random_edges(coalesce(edges, num_nodes=nodes), nodes, extra, rng)
    motif_of_node = torch.cat([torch.full((size,), -1), torch.arange(count).repeat_interleave(shape.num_nodes)])
    return Data(x=torch.ones(nodes, 10), edge_index=edges, motif=motif_of_node)


def _add_random_edges(edge_index: Tensor, nodes: int, share: float, rng: np.random.Generator) -> Tensor:
    """The edges with new undirected edges between random nodes, as a share of the given ones."""
    wanted = int(edge_index.size(1) // 2 * share)
    present = set(map(tuple, edge_index.T.tolist()))
    added: list[tuple[int, int]] = []
    while len(added) < wanted:
        u, v = rng.integers(0, nodes, 2).tolist()
        if u != v and (u, v) not in present:
            present |= {(u, v), (v, u)}
            added.append((u, v))
    new = torch.tensor(added, dtype=torch.long).view(-1, 2).T
    combined: Tensor = coalesce(torch.cat([edge_index, new, new.flip(0)], 1), num_nodes=nodes)
    return combined


def ba_shapes(seed: int) -> Benchmark:
    """80 houses on a Barabasi-Albert graph; classes: base graph; middle, bottom and top of a house."""
    data = attach_motifs(nx.barabasi_albert_graph(300, 5, seed=seed), HouseMotif(), 80, 0.01, np.random.default_rng(seed))
    data.y = torch.cat([torch.zeros(300, dtype=torch.long), (HouseMotif()().y + 1).repeat(80)])
    names = ("base", "middle of a house", "bottom of a house", "top of a house")
    return Benchmark("ba-shapes", "node", [data], 4, torch.arange(300, 700), 6, 5, names)


def tree_cycles(seed: int) -> Benchmark:
    """60 six-cycles on a binary tree; classes: tree, cycle."""
    data = attach_motifs(nx.balanced_tree(2, 8), CycleMotif(6), 60, 0.04, np.random.default_rng(seed))
    data.y = (data.motif >= 0).long()
    return Benchmark("tree-cycles", "node", [data], 2, torch.arange(511, 871), 6, 6, ("tree", "cycle"))


def tree_grid(seed: int) -> Benchmark:
    """80 grids of 3 by 3 on a binary tree; classes: tree, grid."""
    data = attach_motifs(nx.balanced_tree(2, 8), GridMotif(), 80, 0.1, np.random.default_rng(seed))
    data.y = (data.motif >= 0).long()
    return Benchmark("tree-grid", "node", [data], 2, torch.arange(511, 1231), 12, 9, ("tree", "grid"))


BA2MOTIF_CLASSES = ("five-cycle", "house")
_BA2MOTIF_SHAPES = (CycleMotif(5), HouseMotif())


def ba_2motif(seed: int) -> Benchmark:
    """1000 trees of 20 nodes (preferential attachment), each with a five-cycle or a house."""
    rng = np.random.default_rng(seed)
    graphs = []
    for number in range(1000):
        label = int(number >= 500)
        base = nx.barabasi_albert_graph(20, 1, seed=int(rng.integers(2**31)))
        # attach_motifs joins the motif to node 0; after this, node 0 is any node of the tree
        base = nx.relabel_nodes(base, dict(enumerate(rng.permutation(20).tolist())))
        ordered = nx.Graph()
        ordered.add_nodes_from(range(20))
        ordered.add_edges_from(base.edges)
        data = attach_motifs(ordered, _BA2MOTIF_SHAPES[label], 1, 0.0, rng)
        data.y = torch.tensor([label])
        data.edge_truth = (data.motif[data.edge_index] == 0).all(0)
        del data.motif
        graphs.append(data)
    return Benchmark("ba-2motif", "graph", graphs, 2, torch.arange(1000), 5, 5, BA2MOTIF_CLASSES)


def change_motif(data: Data, label: int | None, base: bool = True) -> Data:
    """A copy of a BA2Motif graph with another motif on the same nodes.

    Args:
        data: the graph.
        label: class of the new motif; None for no motif, which leaves the class as it is.
        base: whether the edges outside the motif stay.
    """
    rest, nodes = _take_out_motif(data)
    motif = rest[:, :0] if label is None else _motif_edges(label, nodes)
    return _with_edges(data, rest if base else rest[:, :0], motif, int(data.y) if label is None else label)


DECIDED = 4
"""Number of the first variants of a graph, which show a class."""


def motif_variants(data: Data, rng: np.random.Generator) -> list[Data]:
    """Ten copies of a BA2Motif graph whose class can be told from the motif alone.

    Each motif on the base, and on a random part of its edges. Then bases without a motif, and with each motif broken, twice
    and once with each class: there a network can only learn to be undecided. A house that breaks into a five-cycle is one.
    """
    rest, nodes = _take_out_motif(data)
    motifs = [_motif_edges(label, nodes) for label in (0, 1)]
    found = [_with_edges(data, rest, motif, label) for label, motif in enumerate(motifs)]
    found += [_with_edges(data, _keep_some(rest, rng), motif, label) for label, motif in enumerate(motifs)]
    for motif in (rest[:, :0], *motifs):
        base = rest if rng.random() < 0.5 else _keep_some(rest, rng)
        broken = _keep_some(motif, rng)
        broken = broken[:, 1:] if broken.size(1) == motif.size(1) else broken
        found += [_with_edges(data, base, broken, 0 if _is_five_cycle(broken) else label) for label in (0, 1)]
    return found


def _is_five_cycle(edges: Tensor) -> bool:
    """Whether what is left of a motif is five edges, both directions of each, two at each node."""
    return edges.size(1) == 10 and all(set(ends.bincount().tolist()) == {0, 2} for ends in edges)


def _take_out_motif(data: Data) -> tuple[Tensor, Tensor]:
    """The edges outside the motif, and the nodes of the motif."""
    return data.edge_index[:, ~data.edge_truth], torch.unique(data.edge_index[:, data.edge_truth])


def _motif_edges(label: int, nodes: Tensor) -> Tensor:
    """The edges of a motif of BA2Motif, on these nodes."""
    return nodes[_BA2MOTIF_SHAPES[label]().edge_index]


def _keep_some(edges: Tensor, rng: np.random.Generator) -> Tensor:
    """A random share of the edges; both directions of an edge are kept together, or, half of the time, each by itself."""
    share, pairs = rng.random(), edges.sort(0).values if rng.random() < 0.5 else edges
    _, number = torch.unique(pairs, dim=1, return_inverse=True)
    return edges[:, torch.from_numpy(rng.random(edges.size(1)) < share)[number]]


def _with_edges(data: Data, rest: Tensor, motif: Tensor, label: int) -> Data:
    """A copy of the graph with these edges and this class."""
    truth = torch.tensor([False] * rest.size(1) + [True] * motif.size(1), dtype=torch.bool)
    edges, truth = coalesce(torch.cat([rest, motif], 1), truth, data.num_nodes, reduce="any")
    return Data(x=data.x, edge_index=edges, y=torch.tensor([label]), edge_truth=truth)


def ba_2motif_public(path: str) -> Benchmark:
    """The published BA-2motifs graphs, read from ``BA-2motifs.npz``."""
    with np.load(path) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    graphs = []
    for number in range(arrays["y"].numel()):
        nodes = slice(*arrays["node_ptr"][number : number + 2].tolist())
        edges = slice(*arrays["edge_ptr"][number : number + 2].tolist())
        edge_index = arrays["edge_index"][:, edges]
        if edge_index.numel() and int(edge_index.min()) >= nodes.start:  # numbered over all graphs
            edge_index = edge_index - nodes.start
        graphs.append(
            Data(
                x=arrays["x"][nodes],
                edge_index=edge_index,
                y=arrays["y"][number : number + 1],
                edge_truth=arrays["edge_gt"][edges],
            )
        )
    return Benchmark("ba-2motif", "graph", graphs, 2, torch.arange(len(graphs)), 5, 5, BA2MOTIF_CLASSES)
