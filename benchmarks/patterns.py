"""Are patterns found that were planted? Precision, recall, tests on the model, and time.

Five sets with a known cause: coloured motifs in random trees and a rule on features of neighbours (both generated here, with
networks that are shown to use them), houses of BA-Shapes, five-cycles and houses of BA2Motif, NO2 and NH2 of Mutagenicity.

    python benchmarks/patterns.py --out benchmarks/results/patterns.csv

- uses: share of predictions of the class that change when the planted cause is deleted from the graph: what the network
  uses, whatever is found.
- precision: share of the elements in occurrences of the patterns that are in the planted cause. recall: share of the planted
  cause that is in an occurrence of a pattern. Both over all predictions of the class, of edges (of conditions for the rule).
- exact: whether a pattern is the planted cause itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import torch
from csv_table import write_table
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, GraphConv, global_add_pool

from nseg import NSEG, Explainer, Patterns, PatternSettings, datasets, explain_many, models, patterns
from nseg.pattern.forms import are_isomorphic
from nseg.pattern.matching import OccurrenceSearch, occurrence_edges
from nseg.pattern.predictions import ExplainedPrediction, all_conditions
from nseg.pattern.reading import PredictionReader
from nseg.pattern.trials import PatternTester
from nseg.pattern.typed_graph import Edge, NodeLabel, TypedGraph

COLOURS = ("red", "green", "blue", "grey")
MOTIFS = {1: ("triangle", ("red", "green", "blue")), 2: ("path", ("green", "blue", "green"))}
EFFORT = 20_000


class Case(NamedTuple):
    """A set with a known cause.

    Args:
        name: name of the case.
        data: what is explained.
        explainer: explains it.
        outputs: explained outputs.
        truth: edges of the cause for each output, [E] each; None where it is unknown.
        planted: the cause of each class as a pattern, where it is one.
        classes: classes that have a cause.
    """

    name: str
    data: Any
    explainer: Explainer
    outputs: Sequence[int]
    truth: dict[int, Tensor]
    planted: dict[int, TypedGraph]
    classes: Sequence[int]


class GIN(nn.Module):
    """Two layers and sum pooling."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        widths = (features, 32, 32)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))) for a, b in pairwise(widths)
        )
        self.classify = nn.Linear(32, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Class scores, [B, C]."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        scores: Tensor = self.classify(global_add_pool(x, batch))
        return scores


# --- sets ----------------------------------------------------------------------------------------------------------------


def coloured_graph(label: int, rng: np.random.Generator) -> Data:
    """A random tree with nodes of four colours, in which only adjacent colours tell the motif from chance."""
    tree = nx.random_labeled_tree(int(rng.integers(10, 20)), seed=int(rng.integers(2**31)))
    pairs, colour = list(tree.edges), ["grey"] * tree.number_of_nodes()
    for leaf in [n for n in tree if tree.degree[n] == 1]:  # colours of the motifs everywhere, but never adjacent
        colour[leaf] = COLOURS[int(rng.integers(3))]
    truth: set[Edge] = set()
    if label:
        kind, colours = MOTIFS[label]
        first = len(colour)
        colour += colours
        truth = {(first, first + 1), (first + 1, first + 2)} | ({(first, first + 2)} if kind == "triangle" else set())
        grey = [n for n, one in enumerate(colour) if one == "grey"]
        pairs += [*truth, (int(rng.choice(grey)), first + 1)]
    ends = torch.tensor(pairs).T
    edge_index = torch.cat([ends, ends.flip(0)], 1)
    mask = torch.tensor([(min(e), max(e)) in truth for e in edge_index.T.tolist()])
    x = torch.eye(4)[[COLOURS.index(one) for one in colour]]
    return Data(x=x, edge_index=edge_index, y=torch.tensor([label]), edge_truth=mask)


def coloured_case() -> Case:
    rng = np.random.default_rng(0)
    graphs = [coloured_graph(n % 3, rng) for n in range(900)]
    torch.manual_seed(0)
    model, batch = GIN(4, 3), Batch.from_data_list(graphs[:600])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    config = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
    planted = {}
    for label, (kind, colours) in MOTIFS.items():
        edges = {(0, 1): "", (1, 2): ""} | ({(0, 2): ""} if kind == "triangle" else {})
        planted[label] = TypedGraph(tuple(NodeLabel(one) for one in colours), edges)
    truth = {n: graph.edge_truth for n, graph in enumerate(graphs)}
    return Case("coloured motifs", graphs, explainer_of(model.eval(), config), range(600, 900), truth, planted, (1, 2))


def explainer_of(model: nn.Module, config: dict[str, str], **masks: Any) -> Explainer:
    masks = masks or {"edge_mask_type": "object"}
    return Explainer(model, NSEG(seed=0, undirected=True), explanation_type="model", model_config=config, **masks)


def dataset_case(name: str, architecture: str, number: int) -> Case:
    """A dataset of the paper, with its own ground truth."""
    data, model = datasets.load(name), models.pretrained(name, architecture)
    index = data.instances.tolist()
    if name == "mutagenicity":  # all molecules, not only mutagens with ground truth
        index = list(range(0, len(data.graphs), len(data.graphs) // number))[:number]
    index = index[:: max(1, len(index) // number)][:number]
    truth = {}
    for n in index:
        known = data.truth(n)
        if known is not None and bool(known.edge.any()):
            truth[n] = known.edge
    square = {(0, 1): "", (1, 2): "", (2, 3): "", (0, 3): ""}
    planted, classes = dict[int, TypedGraph](), [0]
    if name == "ba-shapes":
        house = square | {(0, 4): "", (1, 4): ""}
        for label, target in ((1, 0), (2, 2), (3, 4)):
            planted[label] = TypedGraph(tuple(NodeLabel(target=n == target) for n in range(5)), house)
        classes = [1, 2, 3]
    if name == "ba-2motif":
        ring = {(0, 1): "", (1, 2): "", (2, 3): "", (3, 4): "", (0, 4): ""}
        planted = {
            0: TypedGraph((NodeLabel(),) * 5, ring),
            1: TypedGraph((NodeLabel(),) * 5, square | {(0, 4): "", (1, 4): ""}),
        }
        classes = [0, 1]
    return Case(name, data, explainer_of(model, data.model_config), index, truth, planted, classes)


# --- measures ------------------------------------------------------------------------------------------------------------


def edges_of(found: Patterns, label: int, one: ExplainedPrediction, host: TypedGraph) -> set[Edge]:
    """Edges in occurrences of the patterns of a class."""
    edges: set[Edge] = set()
    for pattern in found:
        parts = [list(OccurrenceSearch(graph, host, EFFORT)) for graph in pattern.graphs]
        if pattern.target == label and all(parts):
            for graph, places in zip(pattern.graphs, parts, strict=True):
                edges |= {edge for place in places for edge in occurrence_edges(graph, host, place)}
    return edges


def accuracy(case: Case, found: Patterns, label: int, predictions: list[ExplainedPrediction]) -> tuple[float, float]:
    """Precision and recall of the edges in occurrences, over the predictions of the class whose cause is known."""
    hits = given = wanted = 0
    for one in predictions:
        if one.target_class == label and one.number in case.truth:
            host = one.host(all_conditions(predictions))
            edges = one.edge_mask(edges_of(found, label, one, host))
            truth = case.truth[one.number][one.explanation.edge_id]
            hits += int((edges & truth).sum())
            given += int(edges.sum())
            wanted += int(truth.sum())
    return hits / max(given, 1), hits / max(wanted, 1)


def uses(case: Case, label: int, predictions: list[ExplainedPrediction]) -> float:
    """Share of the predictions of a class that change when the planted cause is deleted."""
    from nseg.pattern.edits import delete_edges
    from nseg.pattern.selection import PatternIndex

    mine = [one for one in predictions if one.target_class == label and one.number in case.truth]
    tester = PatternTester(case.explainer, PatternIndex(mine, PatternSettings()), range(len(mine)))
    graphs = [delete_edges(tester.inputs(n), case.truth[one.number][one.explanation.edge_id]) for n, one in enumerate(mine)]
    return float((~tester.holds(graphs, range(len(mine)), [label] * len(mine))).float().mean()) if mine else 0.0


def measure(case: Case) -> list[dict[str, Any]]:
    """One line per class of a set."""
    graphs = case.data.graphs if isinstance(case.data, datasets.Benchmark) else case.data
    graphs = graphs[0] if isinstance(case.data, datasets.Benchmark) and case.data.level == "node" else graphs
    began = time.perf_counter()
    explanations = explain_many(case.explainer, graphs, case.outputs, progress=False)
    explained = time.perf_counter()
    names: dict[str, Any] = {} if isinstance(case.data, datasets.Benchmark) else {"kind_names": COLOURS}
    found = patterns(explanations, case.data, explainer=case.explainer, **names)
    ended = time.perf_counter()
    print(found, flush=True)
    predictions = PredictionReader(case.data, **names).read(explanations)
    lines = []
    for label in case.classes:
        precision, recall = accuracy(case, found, label, predictions)
        mine = [one for one in found if one.target == label]
        one = next(c for c in found.classes if c.target == label)
        planted = case.planted.get(label)
        exact = planted is not None and any(len(p.graphs) == 1 and are_isomorphic(p.graphs[0], planted) for p in mine)
        lines.append(
            {
                "set": case.name,
                "class": one.name,
                "uses": round(uses(case, label, predictions), 3),
                "precision": round(precision, 3),
                "recall": round(recall, 3),
                "exact": exact if planted is not None else "",
                "patterns": " | ".join(p.text for p in mine),
                "necessity": " | ".join("" if p.necessity is None else f"{p.necessity.share:.3f}" for p in mine),
                "sufficiency": " | ".join("" if p.sufficiency is None else f"{p.sufficiency.share:.3f}" for p in mine),
                "unexplained": round(one.unexplained, 3),
                "explanations": len(explanations),
                "seconds_explaining": round(explained - began, 2),
                "seconds_patterns": round(ended - explained, 2),
            }
        )
    return lines


# --- a rule on features --------------------------------------------------------------------------------------------------


class NeighbourNet(nn.Module):
    """One layer that tells a node from its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.classify = GraphConv(6, 16), nn.Linear(16, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores, [N, 2]."""
        scores: Tensor = self.classify(self.conv(x, edge_index).relu())
        return scores


def measure_rule() -> dict[str, Any]:
    """A graph like a table: six features per node; the class says whether a neighbour has the second."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(1500, (2, 2250), generator=generator)
    edge_index = torch.unique(torch.cat([ends, ends.flip(0)], 1)[:, (ends[0] != ends[1]).repeat(2)], dim=1)
    x = torch.rand(1500, 6, generator=generator)
    x[:, 1:3] = (x[:, 1:3] < 0.15).float()  # device_new, and a decoy
    near = torch.zeros(1500).index_add(0, edge_index[1], x[edge_index[0], 1])
    data = Data(x=x, edge_index=edge_index, y=(near > 0).long())
    torch.manual_seed(0)
    model = NeighbourNet()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-4)
    for _ in range(1500):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x, edge_index), data.y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    model.eval()
    predicted = model(x, edge_index).argmax(1)
    print(f"accuracy of the rule's network: {float((predicted == data.y).float().mean()):.3f}")
    removed = x.clone()
    removed[:, 1] = 0
    used = float((model(removed, edge_index).argmax(1) != predicted)[predicted == 1].float().mean())
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = explainer_of(model, config, node_mask_type="attributes", edge_mask_type=None)
    chosen = predicted.nonzero().flatten()[:200].tolist() + (predicted == 0).nonzero().flatten()[:200].tolist()
    began = time.perf_counter()
    explanations = explain_many(explainer, data, chosen, progress=False)
    explained = time.perf_counter()
    names = ["age", "device_new", "decoy", "amount", "hour", "balance"]
    found = patterns(explanations, data, explainer=explainer, feature_names=names, class_names=["fine", "fraud"])
    ended = time.perf_counter()
    print(found, flush=True)
    mine = [one for one in found if one.class_name == "fraud"]
    conditions = [c for p in mine for g in p.graphs for node in g.nodes for c in node.conditions]
    right = [c.feature == 1 for c in conditions]
    return {
        "set": "rule on features",
        "class": "fraud",
        "uses": round(used, 3),
        "precision": round(sum(right) / max(len(right), 1), 3),
        "recall": float(any(right)),
        "exact": any(p.text == "device_new = 1 at a neighbour" for p in mine),
        "patterns": " | ".join(p.text for p in mine),
        "necessity": " | ".join("" if p.necessity is None else f"{p.necessity.share:.3f}" for p in mine),
        "sufficiency": " | ".join("" if p.sufficiency is None else f"{p.sufficiency.share:.3f}" for p in mine),
        "unexplained": round(next(c for c in found.classes if c.name == "fraud").unexplained, 3),
        "explanations": len(explanations),
        "seconds_explaining": round(explained - began, 2),
        "seconds_patterns": round(ended - explained, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--number", type=int, default=1000, help="largest number of explanations per dataset")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [measure_rule(), *measure(coloured_case())]
    for name, architecture in (("ba-shapes", "gcn"), ("ba-2motif", "gin"), ("mutagenicity", "gin")):
        lines += measure(dataset_case(name, architecture, arguments.number))
    for line in lines:
        print(line)
    if arguments.out is not None:
        write_table(arguments.out, lines)


if __name__ == "__main__":
    main()
