"""Networks set by hand compute their rules on every graph, and the known sets are exactly what exhaustive search finds."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

from nseg import explain_many
from nseg.baselines import make

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
rules = importlib.import_module("rules")


def triangles(graph: nx.Graph) -> list[set[int]]:
    return [set(one) for one in nx.enumerate_all_cliques(graph) if len(one) == 3]


def squares(graph: nx.Graph) -> int:
    return sum(len(cycle) == 4 for cycle in nx.simple_cycles(graph, length_bound=4))


PLAIN = {
    "a triangle": lambda g, red: len(triangles(g)) >= 1,
    "a triangle with a red node": lambda g, red: any(red in one for one in triangles(g)),
    "two triangles of three": lambda g, red: len(triangles(g)) >= 2,
    "a triangle and a square": lambda g, red: bool(triangles(g)) and squares(g) >= 1,
    "a triangle or a square": lambda g, red: bool(triangles(g)) or squares(g) >= 1,
}


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.name)
def test_the_network_computes_the_rule_on_random_graphs(rule) -> None:
    rng, model, answers = np.random.default_rng(0), rules.MotifCounter(rule.scores), []
    for seed in range(120):
        graph = nx.gnm_random_graph(7, int(rng.integers(3, 11)), seed=seed)
        red = int(rng.integers(7))
        x = torch.zeros(7, rules.WIDTH + 1)
        x[:, :7], x[red, -1] = torch.eye(7), 1
        ends = torch.tensor([*graph.edges]).T
        says = bool(model(x, torch.cat([ends, ends.flip(0)], 1)).argmax(1))
        assert says == PLAIN[rule.name](graph, red)
        answers.append(says)
    assert 10 < sum(answers) < 110


def test_the_network_finds_the_path_on_random_graphs() -> None:
    rng, model = np.random.default_rng(0), rules.PathCounter()
    for _ in range(30):
        data = HeteroData()
        data["author"].x, data["paper"].x, data["conference"].x = torch.zeros(3, 1), torch.zeros(5, 1), torch.eye(2)[:, :1]
        data[rules.BY].edge_index = torch.from_numpy(
            np.unique(np.stack([rng.integers(5, size=6), rng.integers(3, size=6)]), axis=1)
        )
        data[rules.HOSTS].edge_index = torch.from_numpy(
            np.unique(np.stack([rng.integers(2, size=5), rng.integers(5, size=5)]), axis=1)
        )
        graph = nx.DiGraph([(("c", c), ("p", p)) for c, p in data[rules.HOSTS].edge_index.T.tolist()])
        graph.add_edges_from((("p", p), ("a", a)) for p, a in data[rules.BY].edge_index.T.tolist())
        graph.add_nodes_from([("c", 0), *(("a", a) for a in range(3))])
        plain = [nx.has_path(graph, ("c", 0), ("a", a)) for a in range(3)]
        assert model(data.x_dict, data.edge_index_dict).argmax(1).bool().tolist() == plain


@pytest.mark.parametrize("case", rules.cases(2, seed=1, size=2), ids=lambda case: case.task.dataset)
def test_exhaustive_search_finds_exactly_what_is_known(case) -> None:
    """It tries all subsets and takes the smallest of the best: so nothing smaller is as good, and what is known is."""
    typed = isinstance(case.task.data, HeteroData)
    method = make("exhaustive", most=20, undirected=not typed)
    found = explain_many(case.explainer(method), case.task.data, case.task.index)
    assert all(one.pns > 0.999 for one in found)
    assert rules.agreement_with(found, case.known) == {"precision": 1.0, "recall": 1.0, "exact": 1.0}


def test_all_known_sets_are_necessary_and_sufficient() -> None:
    for case in rules.cases(2, seed=2, size=4)[:-1]:
        for graph, known in zip(case.task.data, case.known, strict=True):
            for one in known:
                kept, rest = ((graph.edge_index[:, which]) for which in (one["edge"], ~one["edge"]))
                assert case.task.model(graph.x, kept).argmax() == 1
                assert case.task.model(graph.x, rest).argmax() == 0
