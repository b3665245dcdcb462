"""Are patterns found that were planted? Precision, recall, tests on the model, and time.

    python benchmarks/patterns.py --out benchmarks/results/patterns.csv [--only NAME ...]

Settings of patterns were chosen on the sets whose role is ``chosen``; those whose role is ``reported`` have other seeds,
motifs or networks. Sets are listed by ``--list``; ``--only`` replaces the lines of some of them in the file.

- accuracy: of the network. deleted: share of predictions of the class that change when the planted cause is deleted from
  their graphs. planted: share of graphs of another class that become the class when the cause is put in (generated sets).
  alone: share of predictions of the class that stay if everything but the cause is deleted.
  These say what the network uses, whatever is found: a cause that is never enough alone is not what it looks at.
- precision: share of the elements in occurrences of the patterns that are in the planted cause. recall: share of the planted
  cause that is in an occurrence of a pattern. Both over all predictions of the class, of edges (of conditions for the rule).
- exact: whether a pattern is the planted cause itself; of DBLP, whichever the conference.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from csv_table import write_table
from planted import CHOSEN_ON, COLOURS, CONFIG, REPORTED, TRAINED, PlantedSet, train
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv

from nseg import NSEG, Explainer, Patterns, PatternSettings, datasets, explain_many, models, patterns
from nseg.pattern.edits import delete_edges
from nseg.pattern.forms import are_isomorphic
from nseg.pattern.matching import cover_occurrences
from nseg.pattern.predictions import ExplainedPrediction
from nseg.pattern.reading import PredictionReader
from nseg.pattern.selection import PatternIndex
from nseg.pattern.trials import PatternTester
from nseg.pattern.typed_graph import Edge, NodeLabel, TypedGraph
from nseg.storage.commit import code_commit

EFFORT = 20_000
SQUARE = {(0, 1): "", (1, 2): "", (2, 3): "", (0, 3): ""}
HOUSE = SQUARE | {(0, 4): "", (1, 4): ""}
RING = {(0, 1): "", (1, 2): "", (2, 3): "", (3, 4): "", (0, 4): ""}
Truth = Callable[[ExplainedPrediction], Tensor | None]


@dataclass
class Case:
    """A set with a known cause.

    Args:
        graphs: what is explained, and what patterns are searched in.
        explainer, outputs: explains these outputs.
        truth: edges of the cause in an explanation's graph, [E]; None where it is unknown.
        planted: the cause of each class as a pattern, where it is one.
        classes: classes that have a cause.
        names: names for :func:`nseg.patterns`.
        accuracy: of the network.
        becomes: share of graphs without cause that become each class when it is put in.
    """

    graphs: Any
    explainer: Explainer
    outputs: Sequence[int]
    truth: Truth
    planted: Mapping[int, TypedGraph]
    classes: Sequence[int]
    names: dict[str, Any] = field(default_factory=dict)
    accuracy: float | None = None
    becomes: Mapping[int, float] = field(default_factory=dict)


def explainer_of(model: nn.Module, config: Any, **masks: Any) -> Explainer:
    masks = masks or {"edge_mask_type": "object"}
    return Explainer(model, NSEG(seed=0), explanation_type="model", model_config=config, **masks)


# --- sets ----------------------------------------------------------------------------------------------------------------


def generated(made: PlantedSet) -> Case:
    """A set that is generated here, with a network that is trained on it."""
    graphs = made.graphs()
    model, accuracy = train(graphs, len(made.motifs) + 1, made.seed)
    rest, classes = graphs[TRAINED:], range(1, len(made.motifs) + 1)
    rng, becomes = np.random.default_rng(made.seed), {}
    with torch.no_grad():
        for label in classes:
            without = [made.with_motif(one, label, rng) for one in rest if int(one.y) == 0]
            becomes[label] = sum(int(model(one.x, one.edge_index).argmax()) == label for one in without) / len(without)

    def truth(one: ExplainedPrediction) -> Tensor | None:
        graph = rest[one.number]
        return graph.edge_truth[one.explanation.edge_id] if int(graph.y) == one.target_class else None

    planted = {label: made.motifs[label - 1].graph for label in classes}
    names = {"kind_names": COLOURS} if made.coloured else {}
    return Case(rest, explainer_of(model, CONFIG), range(len(rest)), truth, planted, classes, names, accuracy, becomes)


def dataset(name: str, architecture: str, number: int) -> Case:
    """A dataset of the paper, with its own ground truth."""
    data, model = datasets.load(name), models.pretrained(name, architecture)
    index = data.instances.tolist()
    if name == "mutagenicity":  # all molecules, not only mutagens with ground truth
        index = list(range(len(data.graphs)))
    index = index[:: max(1, len(index) // number)][:number]

    def truth(one: ExplainedPrediction) -> Tensor | None:
        known = data.truth(one.number)
        return None if known is None or not bool(known.edge.any()) else known.edge[one.explanation.edge_id]

    planted, classes = dict[int, TypedGraph](), [0]
    if name == "ba-shapes":
        for label, target in ((1, 0), (2, 2), (3, 4)):
            planted[label] = TypedGraph(tuple(NodeLabel(target=n == target) for n in range(5)), HOUSE)
        classes = [1, 2, 3]
    if name == "ba-2motif":
        planted = {n: TypedGraph((NodeLabel(),) * 5, edges) for n, edges in ((0, RING), (1, HOUSE))}
        classes = [0, 1]
    return Case(data, explainer_of(model, data.model_config), index, truth, planted, classes)


def dblp(architecture: str, number: int) -> Case:
    """Authors of DBLP, whose area is that of the conferences of their papers."""
    data, model = datasets.load("dblp"), models.pretrained("dblp", architecture)

    def truth(one: ExplainedPrediction) -> Tensor:
        """Edges of all paths author - paper - conference from the explained author."""
        ends, hops, host = one.explanation.edge_index, [node.hops for node in one.plain.nodes], one.plain
        near = [{a, b} for a, b in ends.T.tolist()]
        kinds = [{(host.nodes[n].kind, hops[n]) for n in pair} for pair in near]
        wanted = ({("author", 0), ("paper", 1)}, {("paper", 1), ("conference", 2)})
        return torch.tensor([one in wanted for one in kinds], dtype=torch.bool)

    labels = (NodeLabel("author", target=True), NodeLabel("paper"), NodeLabel("conference"))
    path = TypedGraph(labels, {(0, 1): "wrote", (1, 2): "presented at"})
    outputs = data.instances[:number].tolist()
    classes = range(4)
    return Case(data, explainer_of(model, data.model_config), outputs, truth, dict.fromkeys(classes, path), classes)


# --- measures ------------------------------------------------------------------------------------------------------------


def edges_of(found: Patterns, label: int, host: TypedGraph) -> set[Edge]:
    """Edges in occurrences of the patterns of a class."""
    edges: set[Edge] = set()
    for pattern in found:
        if pattern.target == label:
            parts = [cover_occurrences(graph, host, EFFORT) for graph in pattern.graphs]
            edges |= {edge for part in parts for edge in part.edges} if all(part.places for part in parts) else set()
    return edges


def accuracy(case: Case, found: Patterns, label: int, index: PatternIndex) -> tuple[float, float]:
    """Precision and recall of the edges in occurrences, over the predictions of the class whose cause is known."""
    hits = given = wanted = 0
    for position, one in enumerate(index.predictions):
        truth = case.truth(one) if one.target_class == label else None
        if truth is not None:
            edges = one.edge_mask(edges_of(found, label, index.host(position)))
            hits += int((edges & truth).sum())
            given += int(edges.sum())
            wanted += int(truth.sum())
    return hits / max(given, 1), hits / max(wanted, 1)


def deleted(case: Case, label: int, index: PatternIndex, reader: PredictionReader) -> tuple[float, float] | None:
    """Shares of the predictions of a class that change when the planted cause is deleted, and that stay with it alone."""
    known = [(p, case.truth(one)) for p, one in enumerate(index.predictions) if one.target_class == label]
    mine = [(p, truth) for p, truth in known if truth is not None]
    if not mine:
        return None
    tester = PatternTester(case.explainer, index, [], reader.given_graphs)
    positions, classes = [p for p, _ in mine], [label] * len(mine)
    without, alone = (
        [delete_edges(tester.inputs(p), cut(truth)) for p, truth in mine] for cut in (Tensor.bool, torch.logical_not)
    )
    stays = [float(tester.holds(graphs, positions, classes).float().mean()) for graphs in (without, alone)]
    return 1 - stays[0], stays[1]


def is_planted(found: Sequence[TypedGraph], planted: TypedGraph) -> bool:
    """Whether a pattern is the planted one, whatever single nodes are called."""
    if len(found) != 1:
        return False
    nameless = replace(found[0], nodes=tuple(node._replace(name="") for node in found[0].nodes))
    return are_isomorphic(nameless, planted)


def shares(trials: Sequence[Any]) -> str:
    return " | ".join("" if one is None else f"{one.share:.2f} ({one.low:.2f}-{one.high:.2f})" for one in trials)


def measure(name: str, role: str, case: Case) -> list[dict[str, Any]]:
    """One line per class of a set."""
    graphs = case.graphs
    if isinstance(graphs, datasets.Benchmark):
        graphs = graphs.graphs[0] if graphs.level == "node" else graphs.graphs
    began = time.perf_counter()
    explanations = explain_many(case.explainer, graphs, case.outputs, progress=False)
    explained = time.perf_counter()
    found = patterns(explanations, case.graphs, explainer=case.explainer, **case.names)
    ended = time.perf_counter()
    print(found, flush=True)
    reader = PredictionReader(case.graphs, **case.names)
    index = PatternIndex(reader.read(explanations), PatternSettings())
    lines = []
    for label in [label for label in case.classes if label in {one.target for one in found.classes}]:
        precision, recall = accuracy(case, found, label, index)
        mine = [one for one in found if one.target == label]
        one, planted = next(c for c in found.classes if c.target == label), case.planted.get(label)
        used = deleted(case, label, index, reader)
        lines.append(
            {
                "set": name,
                "role": role,
                "class": one.name,
                "accuracy": "" if case.accuracy is None else round(case.accuracy, 3),
                "deleted": "" if used is None else round(used[0], 3),
                "alone": "" if used is None else round(used[1], 3),
                "planted": round(case.becomes[label], 3) if label in case.becomes else "",
                "precision": round(precision, 3),
                "recall": round(recall, 3),
                "exact": "" if planted is None else any(is_planted(p.graphs, planted) for p in mine),
                "patterns": " | ".join(p.text for p in mine),
                "necessity": shares([p.necessity for p in mine]),
                "sufficiency": shares([p.sufficiency for p in mine]),
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


def measure_rule(name: str, role: str, seed: int, feature: int) -> list[dict[str, Any]]:
    """A graph like a table: six features per node; the class says whether a neighbour has one of them."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(1500, (2, 2250), generator=generator)
    edge_index = torch.unique(torch.cat([ends, ends.flip(0)], 1)[:, (ends[0] != ends[1]).repeat(2)], dim=1)
    x = torch.rand(1500, 6, generator=generator)
    x[:, [1, 2, 4]] = (x[:, [1, 2, 4]] < 0.15).float()  # one of them is the cause, the others are decoys
    near = torch.zeros(1500).index_add(0, edge_index[1], x[edge_index[0], feature])
    data = Data(x=x, edge_index=edge_index, y=(near > 0).long())
    torch.manual_seed(seed)
    model = NeighbourNet()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=1e-4)
    for _ in range(1500):
        optimiser.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(x, edge_index), data.y))
        optimiser.step()
    predicted = model.eval()(x, edge_index).argmax(1)
    removed = x.clone()
    removed[:, feature] = 0
    used = float((model(removed, edge_index).argmax(1) != predicted)[predicted == 1].float().mean())
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = explainer_of(model, config, node_mask_type="attributes", edge_mask_type=None)
    chosen = predicted.nonzero().flatten()[:500].tolist() + (predicted == 0).nonzero().flatten()[:500].tolist()
    began = time.perf_counter()
    explanations = explain_many(explainer, data, chosen, progress=False)
    explained = time.perf_counter()
    names = ["age", "device_new", "abroad", "amount", "night", "balance"]
    found = patterns(explanations, data, explainer=explainer, feature_names=names, class_names=["fine", "fraud"])
    ended = time.perf_counter()
    print(found, flush=True)
    mine = [one for one in found if one.class_name == "fraud"]
    right = [c.feature == feature for p in mine for g in p.graphs for node in g.nodes for c in node.conditions]
    line = {
        "set": name,
        "role": role,
        "class": "fraud",
        "accuracy": round(float((predicted == data.y).float().mean()), 3),
        "deleted": round(used, 3),
        "alone": "",
        "planted": "",
        "precision": round(sum(right) / max(len(right), 1), 3),
        "recall": float(any(right)),
        "exact": any(p.text == f"{names[feature]} = 1 at a neighbour" for p in mine),
        "patterns": " | ".join(p.text for p in mine),
        "necessity": shares([p.necessity for p in mine]),
        "sufficiency": shares([p.sufficiency for p in mine]),
        "unexplained": round(next(c for c in found.classes if c.name == "fraud").unexplained, 3),
        "explanations": len(explanations),
        "seconds_explaining": round(explained - began, 2),
        "seconds_patterns": round(ended - explained, 2),
    }
    return [line]


# --- all of them ---------------------------------------------------------------------------------------------------------


def make_and_measure(name: str, role: str, make: Callable[[], Case]) -> list[dict[str, Any]]:
    """Make a set when its turn comes, and measure it."""
    return measure(name, role, make())


def all_sets(number: int) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """What measures each set, by name."""
    found: dict[str, Callable[[], list[dict[str, Any]]]] = {}
    for role, some in (("chosen", CHOSEN_ON), ("reported", REPORTED)):
        for made in some:
            name = f"{made.name} (seed {made.seed})"
            found[name] = partial(make_and_measure, name, role, partial(generated, made))
    for role, seed, feature in (("chosen", 0, 1), ("reported", 1, 4)):
        name = f"rule (seed {seed})"
        found[name] = partial(measure_rule, name, role, seed, feature)
    for data, pair in (
        ("ba-shapes", ("gcn", "gin")),
        ("ba-2motif", ("gin", "gcn")),
        ("mutagenicity", ("gcn", "gin")),
        ("dblp", ("sage", "hgt")),
    ):
        for role, net in zip(("chosen", "reported"), pair, strict=True):
            name = f"{data} {net}"
            make = partial(dblp, net, min(number, 300)) if data == "dblp" else partial(dataset, data, net, number)
            found[name] = partial(make_and_measure, name, role, make)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="CSV file to write")
    parser.add_argument("--number", type=int, default=1000, help="largest number of explanations per dataset")
    parser.add_argument("--only", nargs="*", help="sets to measure; those of the file that are not named stay in it")
    parser.add_argument("--list", action="store_true", help="list the sets, and end")
    arguments = parser.parse_args()
    known = all_sets(arguments.number)
    if arguments.list:
        print("\n".join(known))
        return
    torch.set_num_threads(1)
    chosen = [name for name in known if arguments.only is None or name in arguments.only]
    lines: dict[str, list[Any]] = {name: [] for name in known}
    if arguments.out is not None and arguments.out.exists() and arguments.only is not None:
        for line in csv.DictReader(arguments.out.open()):
            lines.setdefault(line["set"], []).append(line)
    for name in chosen:
        lines[name] = [line | {"commit": code_commit()} for line in known[name]()]
        print(lines[name], flush=True)
        write_table(arguments.out, [line for some in lines.values() for line in some])


if __name__ == "__main__":
    main()
