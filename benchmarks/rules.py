"""Rules that are planted in graphs and computed by networks whose weights were set by hand: ground truth that is true.

    python benchmarks/rules.py

Nodes carry their number as a one-hot feature, so that sums over neighbours are rows of the adjacency matrix A, of A^2, and
so on, and closed walks count motifs exactly: tr(A^3) / 6 triangles, (tr(A^4) - 2 sum d^2 + sum d) / 8 squares. No network is
trained, and edges of weight 0 are the same as deleted ones. So it is known which sets of edges (and nodes) are sufficient
and necessary, and which of these are smallest: :attr:`Case.known` has all of them. Every method is run with its own cut and
with NSEG's hardening, and compared with the known set that it resembles most. Graphs have too many edges to try all subsets;
the tests do that in small ones. Tables: ``results/rules.csv``, and ``docs/results/rules.md``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
from csv_table import write_table
from planted import SHAPES
from race import COSTLY, ROOT, Row, Run, Task, hardened
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import SimpleConv, global_add_pool

from nseg import Explainer, NsegWarning
from nseg.baselines import CATALOGUE, find
from nseg.errors import MissingError, ModelError, UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.storage.commit import code_commit

WIDTH = 40
"""Maximum number of nodes of a graph: columns of the one-hot numbers. One more column says whether a node is red."""

STEEPNESS = 80.0
"""So steep that probabilities are 0 or 1 to eight digits, and no motif more than needed is worth anything."""
GRAPH = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
NODE = {**GRAPH, "task_level": "node"}
Pairs = set[tuple[int, int]]
Known = list[dict[str, Tensor]]
"""The smallest necessary and sufficient sets of an instance: whether each edge, and node if nodes are masked, is in it."""


def at_least(count: Tensor, number: int) -> Tensor:
    """Scores of the classes no and yes for whether a count reaches a number; 3/4 below it and half a motif are no."""
    score = STEEPNESS * (count - number + 0.25)
    return torch.stack([torch.zeros_like(score), score], -1)


class MotifCounter(nn.Module):
    """Counts motifs by closed walks, with sums over neighbours as its only layers.

    Args:
        rule: makes the scores of the classes from the numbers of triangles, of corners of triangles that are red, and of
            squares in each graph.
    """

    def __init__(self, rule: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.rule, self.first, self.second = rule, SimpleConv("sum"), SimpleConv("sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Class scores, [B, 2]."""
        red = x[:, -1:]
        one = self.first(x[:, :-1], edge_index)  # A
        two = self.second(one, edge_index)  # A^2
        degree = one.sum(1, keepdim=True)
        closed = (one * two).sum(1, keepdim=True)  # closed walks of three steps from each node
        back = (two * two).sum(1, keepdim=True) - 2 * degree**2 + degree
        total = global_add_pool(torch.cat([closed / 6, red * closed / 2, back / 8], 1), batch)
        return self.rule(*total.unbind(1))


class PathCounter(nn.Module):
    """Counts the papers of each author at a marked conference: two steps of sums over typed edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SimpleConv("sum"), SimpleConv("sum")

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
        """Class scores of the authors, [A, 2]."""
        papers = self.first((x_dict["conference"], x_dict["paper"]), edge_index_dict[HOSTS])
        authors = self.second((papers, x_dict["author"]), edge_index_dict[BY])
        return at_least(authors.squeeze(1), 1)


HOSTS, BY = ("conference", "hosts", "paper"), ("paper", "by", "author")


# --- rules and graphs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A rule about the motifs of a graph.

    Args:
        name: what it is called.
        motifs: shapes that are planted in a tree, each in one piece of its own.
        scores: the class scores from numbers of triangles, red corners of triangles, and squares.
        known: the smallest necessary and sufficient sets, given the edges of each planted motif.
        red: whether the first motif has a red node; nodes are then masked, too, and all its nodes belong to the set.
    """

    name: str
    motifs: tuple[str, ...]
    scores: Callable[[Tensor, Tensor, Tensor], Tensor]
    known: Callable[[Sequence[Pairs]], list[Pairs]]
    red: bool = False

    def graph(self, rng: np.random.Generator, tree: int) -> tuple[Data, Known]:
        """A random tree with the motifs, nodes numbered at random; and what is known."""
        base = nx.random_labeled_tree(tree, seed=int(rng.integers(2**31)))
        planted: list[Pairs] = []
        for shape in self.motifs:
            first = base.number_of_nodes()
            planted.append({(a + first, b + first) for a, b in SHAPES[shape]})
            base.add_edges_from([*planted[-1], (int(rng.integers(tree)), first + int(rng.integers(3)))])
        number = rng.permutation(base.number_of_nodes())
        graph = nx.relabel_nodes(base, dict(enumerate(number.tolist())))
        ends = torch.tensor(sorted(graph.edges)).T
        edge_index = torch.cat([ends, ends.flip(0)], 1)
        x = torch.zeros(len(number), WIDTH + 1)
        x[:, : len(number)] = torch.eye(len(number))
        if self.red:
            x[number[min(planted[0])[0]], -1] = 1
        sets = [{frozenset((int(number[a]), int(number[b]))) for a, b in one} for one in self.known(planted)]
        edges = [torch.tensor([frozenset(pair) in one for pair in edge_index.T.tolist()]) for one in sets]
        found: Known = [{"edge": edge} for edge in edges]
        if self.red:
            found = [{"edge": edge, "node": _ends(edge_index[:, edge], len(number))} for edge in edges]
        return Data(x=x, edge_index=edge_index), found


def _ends(edge_index: Tensor, number: int) -> Tensor:
    inside = torch.zeros(number, dtype=torch.bool)
    inside[edge_index.flatten()] = True
    return inside


def _either(planted: Sequence[Pairs]) -> list[Pairs]:
    """All of the smaller motif keeps the class; one edge of the other must go with it to change it."""
    small, large = sorted(planted, key=len)
    return [small | {edge} for edge in sorted(large)]


RULES = (
    Rule("a triangle", ("triangle",), lambda t, r, s: at_least(t, 1), lambda planted: [planted[0]]),
    Rule(
        "a triangle with a red node",
        ("triangle", "triangle"),
        lambda t, r, s: at_least(r, 1),
        lambda planted: [planted[0]],
        red=True,
    ),
    Rule(
        "two triangles of three",
        ("triangle",) * 3,
        lambda t, r, s: at_least(t, 2),
        lambda planted: [a | b for a, b in combinations(planted, 2)],
    ),
    Rule(
        "a triangle and a square",
        ("triangle", "square"),
        lambda t, r, s: at_least(torch.minimum(t, s), 1),
        lambda planted: [planted[0] | planted[1]],
    ),
    Rule("a triangle or a square", ("triangle", "square"), lambda t, r, s: at_least(torch.maximum(t, s), 1), _either),
)
PATHS = "a path from a conference"


@dataclass(frozen=True)
class Case:
    """Instances of a rule: a task, the sets that are known of each instance, and whether nodes are masked.

    A mask of a heterogeneous graph has one key per type of edges.
    """

    task: Task
    known: list[Known]
    nodes: bool = False

    @classmethod
    def of(cls, rule: Rule, number: int, seed: int, tree: int) -> Case:
        rng = np.random.default_rng(seed)
        graphs, known = zip(*(rule.graph(rng, tree) for _ in range(number)), strict=True)
        task = Task(rule.name, "by hand", MotifCounter(rule.scores), list(graphs), GRAPH, list(range(number)))
        return cls(task, list(known), rule.red)

    @classmethod
    def of_paths(cls, number: int, seed: int, papers_each: int) -> Case:
        """Authors of some papers each, one of them at the marked conference."""
        rng = np.random.default_rng(seed)
        data, papers, conferences = HeteroData(), papers_each * number, 6
        data["author"].x, data["paper"].x = torch.zeros(number, 1), torch.zeros(papers, 1)
        data["conference"].x = torch.eye(conferences)[:, :1]  # the first is marked
        venue = torch.from_numpy(rng.integers(1, conferences, papers))
        marked = torch.arange(number) * papers_each + torch.from_numpy(rng.integers(0, papers_each, number))
        venue[marked] = 0
        data[BY].edge_index = torch.stack([torch.arange(papers), torch.arange(papers) // papers_each])
        data[HOSTS].edge_index = torch.stack([venue, torch.arange(papers)])
        known = [[{name: torch.arange(papers) == one for name in ("by", "hosts")}] for one in marked]
        return cls(Task(PATHS, "by hand", PathCounter(), data, NODE, list(range(number))), known)

    def explainer(self, algorithm: BatchedAlgorithm) -> Explainer:
        masks = {"edge_mask_type": "object", "node_mask_type": "object" if self.nodes else None}
        return Explainer(self.task.model, algorithm, explanation_type="model", model_config=self.task.config, **masks)


def cases(number: int, seed: int = 0, size: int = 20) -> list[Case]:
    """All rules, with so many instances each: trees of ``size`` nodes with motifs, and authors of as many papers."""
    return [*(Case.of(rule, number, seed, size) for rule in RULES), Case.of_paths(number, seed, size)]


# --- scores ------------------------------------------------------------------------------------------------------------


def kept_by(one: Any, known: dict[str, Tensor]) -> Tensor:
    """What an explanation keeps, as one mask over the elements that ``known`` is about, in its order."""
    if "hosts" in known:
        masks = [_on_graph(one[kind].hard_edge_mask, one[kind].edge_id, known[kind[1]]) for kind in (BY, HOSTS)]
        return torch.cat(masks)
    masks = [_on_graph(one.hard_edge_mask, one.edge_id, known["edge"])]
    if "node" in known:
        masks.append(_on_graph(one.hard_node_mask.any(-1), one.node_id, known["node"]))
    return torch.cat(masks)


def _on_graph(mask: Tensor, ids: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like).index_copy(0, ids, mask)


def agreement_with(found: Sequence[Any], known: Sequence[Known]) -> Row:
    """Mean precision and recall against the closest known set, and the share of instances that equal one."""
    rows = []
    for one, sets in zip(found, known, strict=True):
        pairs = [(kept_by(one, which), torch.cat(list(which.values()))) for which in sets]
        kept, truth = max(pairs, key=lambda pair: float((pair[0] & pair[1]).sum() / (pair[0] | pair[1]).sum()))
        both = float((kept & truth).sum())
        rows.append((both / max(1.0, float(kept.sum())), both / float(truth.sum()), float(torch.equal(kept, truth))))
    means = torch.tensor(rows).mean(0).tolist()
    return dict(zip(("precision", "recall", "exact"), (round(value, 4) for value in means), strict=True))


def measure(case: Case, name: str, seed: int) -> list[Row]:
    """Rows of a method: with its own cut, and hardened as NSEG is."""
    method, rows = find(name), []
    few = COSTLY.get(name, 1)
    if len(case.known) > few > 1:
        case = replace(case, task=replace(case.task, index=case.task.index[::few]), known=case.known[::few])
    ties = {} if isinstance(case.task.data, HeteroData) else {"undirected": True}
    forms: dict[str, Callable[..., BatchedAlgorithm]] = {"own cut": method, "hardened": partial(hardened, method)}
    for form, make in forms.items():
        head = {"rule": case.task.dataset, "method": name, "form": form, "instances": len(case.known)}
        try:
            run = Run.of(case.task, make(**ties, intervention="mask", seed=seed), case.explainer)
        except (UnsupportedError, MissingError, ModelError) as error:
            return [head | {"note": str(error)}]
        pns = sum(one.pns for one in run.found) / len(run.found)
        milliseconds = round(1000 * run.seconds / len(run.found), 2)
        rows.append(head | agreement_with(run.found, case.known) | {"pns": round(pns, 4), "cpu_ms": milliseconds})
    return rows


def write_page(page: Path, rows: Sequence[Row]) -> None:
    """A table with a line per method and form, and a column per rule."""
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    lines = list(dict.fromkeys((row["method"], row["form"]) for row in rows if "exact" in row))
    found = {(row["method"], row["form"], row["rule"]): row for row in rows if "exact" in row}
    table = [["method", "form", *rules], ["---", "---"] + ["--:"] * len(rules)]
    for line in lines:
        here = [found.get((*line, rule)) for rule in rules]
        cells = ["" if one is None else f"{one['exact']:.2f} ({one['precision']:.2f} / {one['recall']:.2f})" for one in here]
        table.append([*line, *cells])
    text = "\n".join(f"| {' | '.join(line)} |" for line in table)
    told = f"{rows[0]['instances']} instances per rule, every eighth for {', '.join(COSTLY)}. Commit {rows[0]['commit']}."
    page.write_text(f"{HEADING}\n{text}\n\n{told}\n")


HEADING = """\
# Rules that networks provably compute

Made by `python benchmarks/rules.py` from networks whose weights were set by hand, in graphs where all smallest necessary and
sufficient sets are known; do not edit. Share of explanations that equal a known set (precision / recall against the closest
one). *Own cut* is what a method does by default, *hardened* its ranking with the search that makes NSEG's hard explanations.
An empty cell: the method cannot explain such a network, or none of this size.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(CATALOGUE), choices=list(CATALOGUE))
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "rules.csv")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results" / "rules.md")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NsegWarning)
    rows: list[Row] = []
    for case in cases(asked.instances, asked.seed):
        for name in asked.methods:
            for row in measure(case, name, asked.seed):
                rows.append(row | {"seed": asked.seed, "commit": code_commit()})
                print(*row.values(), flush=True)
            write_table(asked.out, rows)
    write_page(asked.page, rows)


if __name__ == "__main__":
    main()
