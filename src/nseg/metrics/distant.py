"""Stability under edges that come and go far from an explanation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.utils import k_hop_subgraph

from nseg.errors import InputError
from nseg.explain.many import explain_many


def distant_stability(
    explainer: Explainer,
    data: Data | Sequence[Data],
    index: Sequence[int],
    share: float = 0.1,
    hops: int = 1,
    times: int = 3,
    seed: int = 0,
) -> Tensor:
    """Jaccard index with explanations after edges far from them were removed and added, [B]; NaN if the class changes.

    An edge is far if both ends are more than ``hops`` steps away from every node of the explanation. What is far should not
    matter to an explanation, as long as the prediction stays.

    Reference: Agarwal et al., *Probing GNN Explainers: A Rigorous Theoretical and Empirical Analysis of GNN Explanation
    Methods*, AISTATS 2022 (stability), with perturbations that leave the explanation alone.

    Args:
        explainer: makes the explanations, of edges.
        data: the graph, or the graphs.
        index: the nodes, or graphs, to explain.
        share: share of the far edges that goes; as many come.
        hops: how near is too near.
        times: perturbations of each instance, whose mean is taken.
        seed: of the perturbations.
    """
    if not 0 <= share <= 1 or times < 1:
        raise InputError(f"share must be between 0 and 1, and times at least 1 (got {share} and {times}).")
    rng = torch.Generator().manual_seed(seed)
    values = []
    for number, one in zip(index, explain_many(explainer, data, list(index)), strict=True):
        graph = data if isinstance(data, Data) else data[number]
        again = []
        for _ in range(times):
            other = change_far_edges(graph, core(one, graph), share, hops, rng)
            (found,) = explain_many(explainer, other, [number]) if graph is data else explain_many(explainer, [other])
            again.append(_overlap(one, found, graph, other))
        values.append(sum(again) / times)
    return torch.tensor(values)


def core(one: Explanation, graph: Data) -> Tensor:
    """Nodes of an explanation in the caller's graph: ends of its edges, and the explained node."""
    nodes: Tensor = graph.edge_index[:, one.edge_id[one.hard_edge_mask]].flatten()
    return nodes if one.get("index") is None else torch.cat([nodes, nodes.new_tensor([int(one.output_id)])])


def change_far_edges(graph: Data, nodes: Tensor, share: float, hops: int, rng: torch.Generator) -> Data:
    """A copy in which a share of the pairs of joined nodes far from some nodes is replaced by other far pairs."""
    near = k_hop_subgraph(nodes, hops, graph.edge_index, num_nodes=graph.num_nodes, flow="source_to_target")[0]
    far = torch.ones(int(graph.num_nodes), dtype=torch.bool).index_fill(0, near.cpu(), False)
    ends = graph.edge_index.cpu()
    low, high = ends.min(0).values, ends.max(0).values
    pair, candidates = low * int(graph.num_nodes) + high, far[low] & far[high]
    known = torch.tensor(sorted(set(pair[candidates].tolist())), dtype=torch.long)
    gone = known[torch.randperm(known.numel(), generator=rng)[: round(share * known.numel())]]
    kept = ~torch.isin(pair, gone)
    new = _new_pairs(far.nonzero().flatten(), set(pair.tolist()), gone.numel(), int(graph.num_nodes), rng)
    other = graph.clone()
    for name, value in graph:
        if isinstance(value, Tensor) and name != "edge_index" and graph.is_edge_attr(name):
            if new.size(1):
                raise InputError(
                    f"New edges have no attributes (got a graph with {name}). Leave attributes out, or share=0."
                )
            other[name] = value[kept.to(value.device)]
    other.edge_index = torch.cat([ends[:, kept], new], 1).to(graph.edge_index.device)
    return other


def _new_pairs(far: Tensor, taken: set[int], number: int, nodes: int, rng: torch.Generator) -> Tensor:
    """Both directions of so many new pairs of far nodes, or of fewer if there is no room, [2, 2 n]."""
    found: list[tuple[int, int]] = []
    for _ in range(20 * number if far.numel() > 1 else 0):
        a, b = sorted(far[torch.randint(far.numel(), (2,), generator=rng)].tolist())
        if a != b and a * nodes + b not in taken and len(found) < number:
            taken.add(a * nodes + b)
            found.append((a, b))
    ends = torch.tensor(found, dtype=torch.long).view(-1, 2).T
    return torch.cat([ends, ends.flip(0)], 1)


def _overlap(one: Explanation, other: Explanation, graph: Data, changed: Data) -> float:
    """Jaccard index of the kept edges, known by their ends; NaN if the class is another."""
    if int(one.target[0 if one.get("index") is None else one.index]) != int(
        other.target[0 if other.get("index") is None else other.index]
    ):
        return float("nan")
    before, after = (
        set(map(tuple, data.edge_index[:, found.edge_id[found.hard_edge_mask]].T.tolist()))
        for found, data in ((one, graph), (other, changed))
    )
    return len(before & after) / max(1, len(before | after)) if before or after else 1.0
