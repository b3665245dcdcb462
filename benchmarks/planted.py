"""Sets of graphs with a planted cause, and networks that are trained on them: what patterns should find.

Every set has a class without motif and one class per motif. All graphs hold a random base, a motif unless they are of the
first class, and two decoys. In coloured graphs these are motifs without one of their edges, and networks are trained on
thinned copies too; a copy whose motif lacks an edge is of the first class. So a network must use the whole motif, and
nothing else, also in the small graphs that explanations are judged by. Without colours a network of this kind cannot tell
such a motif from the whole: decoys are trees, no copies are thinned, and the network may use more or less than the motif.
Pooling takes the largest value of each feature over the nodes; with sums, networks learn to count edges instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx
import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_max_pool

from nseg.pattern.typed_graph import NodeLabel, TypedGraph

COLOURS = ("red", "green", "blue", "grey")
CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
TRAINED, EXPLAINED = 600, 300
"""Number of graphs for training, each with a thinned copy, and of further graphs whose predictions are explained."""

SHAPES: Mapping[str, list[tuple[int, int]]] = {
    "house": [(0, 1), (1, 2), (2, 3), (0, 3), (0, 4), (1, 4)],
    "cycle of 5": [(n, (n + 1) % 5) for n in range(5)],
    "cycle of 6": [(n, (n + 1) % 6) for n in range(6)],
    "clique of 4": [(a, b) for a in range(4) for b in range(a)],
    "diamond": [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)],
    "triangle": [(0, 1), (1, 2), (0, 2)],
    "path": [(0, 1), (1, 2)],
    "square": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "star": [(0, 1), (0, 2), (0, 3)],
}


@dataclass(frozen=True)
class Motif:
    """A shape, with a colour for each node in sets of coloured graphs."""

    shape: str
    colours: tuple[str, ...] = ()

    @property
    def graph(self) -> TypedGraph:
        """The motif as a pattern."""
        edges = SHAPES[self.shape]
        size = 1 + max(n for edge in edges for n in edge)
        nodes = tuple(map(NodeLabel, self.colours)) or (NodeLabel(),) * size
        return TypedGraph(nodes, {(min(e), max(e)): "" for e in edges})

    @property
    def piece(self) -> nx.Graph:
        """The motif as a networkx graph with colours."""
        found = nx.Graph(SHAPES[self.shape])
        for node in found:
            found.nodes[node]["colour"] = self.colours[node] if self.colours else "grey"
        return found


@dataclass(frozen=True)
class PlantedSet:
    """How a set is generated.

    Args:
        name: what it is called.
        base: ``"tree"``, ``"ba"`` (preferential attachment) or ``"er"`` (random edges, connected).
        motifs: motif of the classes 1, 2, ...
        seed: of graphs and training.
    """

    name: str
    base: str
    motifs: tuple[Motif, ...]
    seed: int

    def graphs(self) -> list[Data]:
        """All graphs, with the planted edges in ``edge_truth``."""
        rng = np.random.default_rng(self.seed)
        return [self._graph(n % (len(self.motifs) + 1), rng) for n in range(TRAINED + EXPLAINED)]

    @property
    def coloured(self) -> bool:
        """Whether nodes have colours."""
        return bool(self.motifs[0].colours)

    def _graph(self, label: int, rng: np.random.Generator) -> Data:
        graph = _base(self.base, int(rng.integers(12, 22)), int(rng.integers(2**31)))
        colours = ["grey"] * graph.number_of_nodes()
        if self.coloured:  # colours of the motifs everywhere, but never adjacent
            for node in rng.permutation(len(colours)).tolist():
                if rng.random() < 0.5 and all(colours[n] == "grey" for n in graph[node]):
                    colours[node] = COLOURS[int(rng.integers(3))]
        ties = [n for n, one in enumerate(colours) if one == "grey"]
        pieces = [self.decoys[int(rng.integers(len(self.decoys)))] for _ in range(2)]
        pieces += [self.motifs[label - 1].piece] if label else []
        first = len(colours)
        for piece in pieces:
            first = len(colours)
            colours += [piece.nodes[n]["colour"] for n in sorted(piece)]
            graph.add_edges_from((a + first, b + first) for a, b in piece.edges)
            for part in nx.connected_components(piece):
                graph.add_edge(int(rng.choice(ties)), first + int(rng.choice(sorted(part))))
        ends = torch.tensor([*graph.edges]).T
        edge_index = torch.cat([ends, ends.flip(0)], 1)
        planted = (edge_index >= first).all(0) if label else torch.zeros(edge_index.size(1), dtype=torch.bool)
        x = torch.eye(4)[[COLOURS.index(one) for one in colours]] if self.coloured else torch.ones(len(colours), 1)
        return Data(x=x, edge_index=edge_index, y=torch.tensor([label]), edge_truth=planted)

    def with_motif(self, graph: Data, label: int, rng: np.random.Generator) -> Data:
        """A graph of the first class with the motif of another, joined at a random node that has no colour."""
        piece, first = self.motifs[label - 1].piece, int(graph.num_nodes)
        grey = (graph.x[:, -1] == 1).nonzero().flatten().tolist()
        pairs = [(a + first, b + first) for a, b in piece.edges]
        pairs += [(grey[int(rng.integers(len(grey)))], first + int(rng.choice(sorted(piece))))]
        ends = torch.tensor(pairs).T
        colours = [COLOURS.index(piece.nodes[n]["colour"]) for n in sorted(piece)]
        x = torch.eye(4)[colours] if self.coloured else torch.ones(len(colours), 1)
        return Data(x=torch.cat([graph.x, x]), edge_index=torch.cat([graph.edge_index, ends, ends.flip(0)], 1))

    @cached_property
    def decoys(self) -> list[nx.Graph]:
        """Motifs without an edge, in which no motif of the set occurs; trees if there are no colours."""
        found: list[nx.Graph] = []
        if not self.coloured:
            found = [nx.path_graph(5), nx.star_graph(4), nx.star_graph(3)]
            for piece in found:
                nx.set_node_attributes(piece, "grey", "colour")
            return found
        for piece in (motif.piece for motif in self.motifs):
            for edge in piece.edges:
                less = piece.copy()
                less.remove_edge(*edge)
                if not any(_occurs(motif.piece, less) for motif in self.motifs):
                    found.append(less)
        return found


def _occurs(piece: nx.Graph, graph: nx.Graph) -> bool:
    same = nx.isomorphism.categorical_node_match("colour", "")
    return bool(nx.isomorphism.GraphMatcher(graph, piece, node_match=same).subgraph_is_monomorphic())


def _base(kind: str, number: int, seed: int) -> nx.Graph:
    if kind == "tree":
        return nx.random_labeled_tree(number, seed=seed)
    if kind == "ba":
        return nx.barabasi_albert_graph(number, 1, seed=seed)
    graph = nx.random_labeled_tree(number, seed=seed)
    rng = np.random.default_rng(seed)
    graph.add_edges_from(rng.integers(number, size=(3, 2)).tolist())  # some random edges close cycles everywhere
    graph.remove_edges_from(nx.selfloop_edges(graph))
    return graph


class GIN(nn.Module):
    """Three layers and pooling by the largest value."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))) for a, b in pairwise((features, 32, 32, 32))
        )
        self.classify = nn.Linear(32, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Class scores, [B, C]."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        scores: Tensor = self.classify(global_max_pool(x, batch))
        return scores


def thinned(graph: Data, rng: np.random.Generator) -> Data:
    """A copy without some of the edges; of the first class if its motif lacks one.

    Half of the copies keep the motif, a quarter lack exactly one of its edges, the others lack what chance takes.
    """
    ends, truth = graph.edge_index, graph.edge_truth.numpy()
    bond = (ends.min(0).values * int(graph.num_nodes) + ends.max(0).values).numpy()
    gone = set(np.unique(bond)[rng.random(len(np.unique(bond))) < rng.random()].tolist())
    motif, case = np.unique(bond[truth]).tolist(), rng.random()
    if case < 0.75:
        gone -= set(motif)
    if case < 0.25 and motif:
        gone |= {motif[int(rng.integers(len(motif)))]}
    keep = torch.tensor([one not in gone for one in bond.tolist()], dtype=torch.bool)
    label = graph.y if not gone & set(motif) else torch.zeros_like(graph.y)
    return Data(x=graph.x, edge_index=ends[:, keep], y=label)


def train(graphs: list[Data], classes: int, seed: int, epochs: int = 200) -> tuple[GIN, float]:
    """A network trained on the first graphs, with thinned copies if there are colours, and its accuracy on the others."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    some = [Data(x=one.x, edge_index=one.edge_index, y=one.y) for one in graphs[:TRAINED]]
    some += [thinned(one, rng) for one in graphs[:TRAINED] if one.x.size(1) > 1]
    batch = Batch.from_data_list(some)
    model = GIN(graphs[0].x.size(1), classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y))
        optimiser.step()
        schedule.step()
    rest = Batch.from_data_list(graphs[TRAINED:])
    with torch.no_grad():
        right = model.eval()(rest.x, rest.edge_index, rest.batch).argmax(1) == rest.y
    return model, float(right.float().mean())


CHOSEN_ON = (
    PlantedSet("houses and cliques on BA", "ba", (Motif("house"), Motif("clique of 4")), 0),
    PlantedSet(
        "coloured triangles and stars on trees",
        "tree",
        (Motif("triangle", ("red", "green", "blue")), Motif("star", ("red", "blue", "blue", "green"))),
        1,
    ),
    PlantedSet(
        "coloured 5-cycles and triangles on random graphs",
        "er",
        (Motif("cycle of 5", ("red", "green", "red", "blue", "green")), Motif("triangle", ("red", "red", "blue"))),
        2,
    ),
    PlantedSet(
        "coloured houses and paths on trees",
        "tree",
        (Motif("house", ("red", "green", "blue", "green", "red")), Motif("path", ("red", "red", "blue"))),
        3,
    ),
)
"""Sets on which the defaults of patterns were chosen."""

REPORTED = (
    PlantedSet("houses and cliques on BA", "ba", (Motif("house"), Motif("clique of 4")), 11),
    PlantedSet("diamonds and cliques on trees", "tree", (Motif("diamond"), Motif("clique of 4")), 12),
    PlantedSet(
        "coloured 5-cycles and houses on random graphs",
        "er",
        (
            Motif("cycle of 5", ("blue", "blue", "green", "red", "green")),
            Motif("house", ("green", "red", "green", "blue", "red")),
        ),
        13,
    ),
    PlantedSet(
        "coloured squares and stars on BA",
        "ba",
        (Motif("square", ("red", "green", "blue", "green")), Motif("star", ("blue", "red", "red", "green"))),
        14,
    ),
    PlantedSet(
        "coloured diamonds and paths on random graphs",
        "er",
        (Motif("diamond", ("red", "green", "blue", "green")), Motif("path", ("red", "green", "red"))),
        15,
    ),
)
"""Sets with other seeds, bases and motifs, on which nothing was chosen."""
