"""Distance of the search to the best there is: brute force on small graphs, annealing on larger ones, and other seeds.

    NSEG_DATA=... python benchmarks/optimum.py --out benchmarks/results/optimum.csv
    NSEG_DATA=... python benchmarks/optimum.py --sources motifs --networks gin --graphs 20        # a minute

Networks are trained here, so that none was tuned on: GIN with batch norm, GAT and SAGE (mean) on molecules (Mutagenicity),
on parts of scenes (crops of MSRC_21) and on generated graphs with a planted motif. Every row is one network, intervention,
kind of element (whole bonds, or directed edges) and level of effort:

- *gap*: of graphs with 6 to 15 bonds, PNS of the best of all subsets minus that found with tolerance 0 (mean and worst), and
  the share in which the default is further from the best than its tolerance;
- *annealing*: of graphs with 17 to 60 bonds, share in which simulated annealing, given 16 times the worlds
  (*times*), finds a PNS that is higher by more than .05, or fewer elements at a PNS that is as high;
- *jaccard*: share of the kept elements that two seeds have in common, over three seeds, mean over the larger graphs;
- *worlds*: forward passes of one graph that the search asks for, per larger graph; *slopes*: those with a gradient;
- *search_s*, *annealing_s*: CPU seconds of search and annealing per larger graph.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from csv_table import write_table
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GAT, GIN, GraphSAGE, global_add_pool
from torch_geometric.utils import erdos_renyi_graph, k_hop_subgraph, to_undirected

from nseg import NSEG, Explainer, NsegWarning, baselines, datasets, explain_many
from nseg.model.causal import CausalModel
from nseg.model.subset_worlds import SubsetWorlds
from nseg.search.formulas import gap
from nseg.search.harden import SearchResult
from nseg.search.parts import MaskParts
from nseg.search.worlds import evaluate

CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
SMALL, LARGE = range(6, 16), range(17, 61)
"""Bonds of graphs whose subsets are all tried, and of those that annealing is tried on."""

PRICES = (0.0, 0.002, 0.01)
"""Prices of an element in the annealing chains; the first finds the highest bound, the others small subsets."""

# --- networks and graphs -------------------------------------------------------------------------------------------------


class Network(nn.Module):
    """Three layers, sum over nodes, linear head."""

    def __init__(self, kind: str, features: int, classes: int, width: int = 32) -> None:
        super().__init__()
        make = {"gin": GIN, "gat": GAT, "sage": GraphSAGE}[kind]
        options: dict[str, Any] = {"norm": "batch_norm"} if kind == "gin" else {"heads": 4} if kind == "gat" else {}
        self.encoder = make(features, width, 3, **options)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        scores: Tensor = self.head(global_add_pool(self.encoder(x, edge_index), batch))
        return scores


def molecules() -> list[Data]:
    return [Data(x=g.x, edge_index=g.edge_index, y=g.y) for g in datasets.load("mutagenicity").graphs]


def scenes() -> list[Data]:
    """Surroundings of random nodes of MSRC_21's graphs, of a random size."""
    draw, found = torch.Generator().manual_seed(0), []
    for g in datasets.load("msrc-21").graphs * 4:
        centre, hops = int(torch.randint(g.num_nodes, (), generator=draw)), int(torch.randint(1, 4, (), generator=draw))
        nodes, edge_index, _, _ = k_hop_subgraph(centre, hops, g.edge_index, relabel_nodes=True, num_nodes=g.num_nodes)
        found.append(Data(x=g.x[nodes], edge_index=edge_index, y=g.y))
    return found


def motifs() -> list[Data]:
    """Random graphs of typed nodes: class 1 has a triangle, class 2 a star of five nodes, class 0 neither added."""
    draw, found = torch.Generator().manual_seed(1), []
    torch.manual_seed(1)
    shapes = {1: [(0, 1), (1, 2), (2, 0)], 2: [(0, 1), (0, 2), (0, 3), (0, 4)]}
    for number in range(1500):
        nodes, label = int(torch.randint(7, 26, (), generator=draw)), number % 3
        chain = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
        edges = torch.cat([chain, erdos_renyi_graph(nodes, 0.6 / nodes)], 1)
        if label:
            place = torch.randperm(nodes, generator=draw)
            edges = torch.cat([edges, place[torch.tensor(shapes[label]).t()]], 1)
        kind = torch.randint(4, (nodes,), generator=draw)
        x = torch.nn.functional.one_hot(kind, 4).float()
        found.append(Data(x=x, edge_index=to_undirected(edges[:, edges[0] != edges[1]]), y=torch.tensor([label])))
    return found


SOURCES = {"molecules": molecules, "scenes": scenes, "motifs": motifs}


def train(kind: str, graphs: Sequence[Data], epochs: int) -> tuple[nn.Module, float]:
    """A network trained on the graphs, and its accuracy on them."""
    torch.manual_seed(0)
    classes = 1 + max(int(g.y) for g in graphs)
    model = Network(kind, graphs[0].num_features, classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(epochs):
        for some in torch.utils.data.BatchSampler(torch.randperm(len(graphs)).tolist(), 128, False):
            batch = Batch.from_data_list([graphs[i] for i in some])
            loss = nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
    model.eval()
    batch = Batch.from_data_list(list(graphs))
    with torch.no_grad():
        right = model(batch.x, batch.edge_index, batch.batch).argmax(-1) == batch.y
    return model, float(right.double().mean())


def load(source: str, kind: str, epochs: int, cache: Path | None) -> tuple[nn.Module, list[Data]]:
    """A trained network and its graphs; weights are kept in ``cache``."""
    graphs = SOURCES[source]()
    file = None if cache is None else cache / f"{source}_{kind}_{epochs}.pt"
    if file is not None and file.exists():
        known = Network(kind, graphs[0].num_features, 1 + max(int(g.y) for g in graphs))
        known.load_state_dict(torch.load(file, weights_only=True))
        return known.eval(), graphs
    model, accuracy = train(kind, graphs, epochs)
    print(f"{source} {kind}: accuracy {accuracy:.3f}", flush=True)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), file)
    return model, graphs


def pick(graphs: Sequence[Data], bonds: range, number: int) -> list[Data]:
    """Some graphs of these sizes, spread over all of them."""
    found = [g for g in graphs if g.num_edges // 2 in bonds]
    return found[:: max(1, len(found) // number)][:number]


# --- what is counted -----------------------------------------------------------------------------------------------------


@dataclass
class Count:
    """Worlds of one instance that were asked for, and how many of them with a gradient."""

    worlds: int = 0
    slopes: int = 0
    passes: int = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Count the worlds that causal models are asked for."""
    count, original = Count(), CausalModel.output

    def output(self: CausalModel, weights: Any = None) -> Tensor:
        weights = {} if weights is None else weights
        worlds = len(weights) if isinstance(weights, SubsetWorlds) else next((len(w) for w in weights.values()), 1)
        number = worlds * len(self.instances)
        count.worlds += number
        count.slopes += number if torch.is_grad_enabled() else 0
        count.passes += 1
        return original(self, weights)

    with patch.object(CausalModel, "output", output):
        yield count


def content(x: Tensor, edge_index: Tensor) -> int:
    """A number that tells graphs apart."""
    return hash((x.numpy().tobytes(), edge_index.contiguous().numpy().tobytes()))


class Annealing(NSEG):
    """Simulated annealing over hard subsets, given a number of worlds; remembers the best of every size.

    Chains start at all, nothing and random subsets; a step flips one element or exchanges two. The result is the highest
    bound; :attr:`best` holds the highest bound of at most so many kept elements, [sizes], by the graph's content.
    """

    budget = 32_000
    chains = 12

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.best: dict[int, Tensor] = {}

    @torch.no_grad()
    def solve(self, causal: CausalModel, parts: MaskParts, tick: Any) -> Any:
        draw = torch.Generator().manual_seed(0)
        number, n, owner = len(causal.instances), parts.owner.numel(), parts.owner
        kept = torch.rand(self.chains, n, generator=draw) < torch.linspace(0, 1, self.chains).unsqueeze(1)
        price = torch.tensor(PRICES).repeat(self.chains)[: self.chains].unsqueeze(1)
        sizes = int(parts.count.max()) + 1
        best = torch.full((number, sizes), -1.0)
        top, top_kept = torch.full((number,), -2.0), torch.zeros(n, dtype=torch.bool)

        def score(subset: Tensor) -> Tensor:
            masks = parts.unflatten(subset.to(causal.dtype))
            found = evaluate(causal, parts, masks, parts.split(self.settings), self.settings.intervention)
            value = gap(found.p_factual, found.p_complement)  # [chains, B]
            size = torch.zeros(len(subset), number).index_add(1, owner, subset.float())
            for chain in range(len(subset)):
                index = size[chain].long()
                rows = torch.arange(number)
                best[rows, index] = torch.maximum(best[rows, index], value[chain].float())
                up = value[chain] > top
                top[up] = value[chain][up].float()
                top_kept[up[owner]] = subset[chain][up[owner]]
            return value - price * size

        now = score(kept)
        steps = self.budget // (2 * self.chains)
        for step in range(steps):
            heat = 0.1 * (0.002 / 0.1) ** (step / steps)
            chosen = torch.rand(2, self.chains, number, generator=draw)
            position = (chosen * parts.count).long()[:, :, owner] == parts.position  # [2, chains, n]
            pair = (torch.rand(self.chains, number, generator=draw) < 0.4)[:, owner]
            flips = position[0] ^ (position[1] & pair)
            value = score(kept ^ flips)
            take = torch.rand(value.shape, generator=draw) < ((value - now) / heat).exp()
            now, kept = torch.where(take, value, now), torch.where(take[:, owner], kept ^ flips, kept)
        for b, row in enumerate(best.cummax(1).values):
            one = causal.instances.select(torch.tensor([b]))
            self.best[content(one.x, one.edge_index)] = row
        hard = parts.unflatten(top_kept)
        return SearchResult(hard.map(lambda mask: mask.to(causal.dtype)), hard=hard)


# --- rows ----------------------------------------------------------------------------------------------------------------


def make(model: nn.Module, algorithm: Any) -> Explainer:
    return Explainer(model, algorithm, explanation_type="model", edge_mask_type="object", model_config=CONFIG)


def compare_with_brute_force(model: nn.Module, graphs: list[Data], common: dict[str, Any]) -> dict[str, Any]:
    """Gaps to the best of all subsets; only where whole bonds are the elements."""
    kinds = {k: v for k, v in common.items() if k in ("intervention", "undirected")}
    best = explain_many(make(model, baselines.make("exhaustive", most=15, **kinds)), graphs, progress=False)
    found = explain_many(make(model, NSEG(tolerance=0.0, **common)), graphs, progress=False)
    usual = explain_many(make(model, NSEG(**common)), graphs, progress=False)
    gaps = [b.pns - f.pns for b, f in zip(best, found, strict=True)]
    tolerance = float(usual[0].settings["tolerance"])
    over = [b.pns - f.pns > tolerance + 1e-4 for b, f in zip(best, usual, strict=True)]
    return {"small": len(graphs), "gap": mean(gaps), "worst": max(gaps), "over_tolerance": mean(over)}


def compare_with_annealing(
    model: nn.Module, graphs: list[Data], common: dict[str, Any], seeds: int, times: float
) -> dict[str, Any]:
    """Shares in which annealing finds a higher bound or a smaller explanation; worlds; likeness of seeds."""
    found, began = [], time.process_time()
    for seed in range(seeds):
        with counted() as count:
            found.append(explain_many(make(model, NSEG(seed=seed, **common)), graphs, progress=False))
    worlds, search_s = count.worlds / len(graphs), (time.process_time() - began) / seeds / len(graphs)
    kinds = {k: v for k, v in common.items() if k in ("intervention", "undirected")}
    rival = Annealing(**kinds)
    rival.budget = int(times * worlds)
    began = time.process_time()
    explain_many(make(model, rival), graphs, progress=False)
    higher, smaller = [], []
    per_bond = 2 if common["undirected"] else 1
    for one, graph in zip(found[0], graphs, strict=True):
        best = rival.best[content(graph.x, graph.edge_index)]
        size = int(one.hard_edge_mask.sum()) // per_bond
        higher.append(float(best.max()) > one.pns + 0.05 + 1e-4)
        smaller.append(size > 0 and float(best[size - 1]) >= one.pns - 1e-5)
    pairs = [mean([jaccard(a, b) for a, b in zip(x, y, strict=True)]) for x, y in itertools.combinations(found, 2)]
    return {
        "large": len(graphs),
        "times": times,
        "pns": mean([one.pns for one in found[0]]),
        "size": mean([float(one.hard_edge_mask.sum()) for one in found[0]]),
        "higher": mean(higher),
        "smaller": mean(smaller),
        "jaccard": mean(pairs) if pairs else 1.0,
        "worlds": worlds,
        "slopes": count.slopes / len(graphs),
        "search_s": search_s,
        "annealing_s": (time.process_time() - began) / len(graphs),
    }


def jaccard(one: Any, other: Any) -> float:
    a, b = one.hard_edge_mask, other.hard_edge_mask
    return float((a & b).sum() / (a | b).sum()) if bool((a | b).any()) else 1.0


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--networks", nargs="+", default=["gin", "gat", "sage"])
    parser.add_argument("--interventions", nargs="+", default=["mask", "remove"])
    parser.add_argument("--elements", nargs="+", default=["bonds", "edges"], choices=["bonds", "edges"])
    parser.add_argument("--effort", nargs="+", default=["balanced", "thorough"])
    parser.add_argument("--graphs", type=int, default=40, help="graphs of each size per network")
    parser.add_argument("--times", type=float, default=16, help="worlds of annealing for each world of the search")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--cache", type=Path, default=None, help="folder for trained weights")
    parser.add_argument("--out", type=Path, default=None, help="CSV to write")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NsegWarning)
    rows: list[dict[str, Any]] = []
    for source, kind in itertools.product(asked.sources, asked.networks):
        model, graphs = load(source, kind, asked.epochs, asked.cache)
        for intervention, elements, effort in itertools.product(asked.interventions, asked.elements, asked.effort):
            common = {"intervention": intervention, "undirected": elements == "bonds", "effort": effort}
            row = {"source": source, "network": kind, "elements": elements, **common}
            if elements == "bonds":
                row |= compare_with_brute_force(model, pick(graphs, SMALL, asked.graphs), common)
            row |= compare_with_annealing(model, pick(graphs, LARGE, asked.graphs), common, asked.seeds, asked.times)
            rows.append({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
            print(rows[-1], flush=True)
            write_table(asked.out, rows)


if __name__ == "__main__":
    main()
