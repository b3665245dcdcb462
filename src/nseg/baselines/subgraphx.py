"""SubgraphX: Monte-Carlo tree search for the connected subgraph with the highest Shapley value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from nseg.baselines.scores import refuse_feature_masks
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.graphs.batch import InstanceBatch
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.noise import instance_keys
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.settings import BaseSettings, integer_field, number_field


@dataclass(frozen=True, kw_only=True)
class SubgraphXSettings(BaseSettings):
    """Settings of SubgraphX, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        rollouts: walks from the whole graph down to a small subgraph.
        nodes: number of nodes at which a walk ends, or half of all nodes if these are fewer.
        children: ways to prune at each step, nodes with the fewest neighbours first.
        levels: steps of a walk; of a graph with more nodes than this, a step prunes several nodes at once.
        samples: coalitions that a Shapley value is estimated from.
        explore: how much unvisited subgraphs are preferred to those with a high value.
    """

    rollouts: int = integer_field(20, 1)
    nodes: int = integer_field(5, 1)
    children: int = integer_field(12, 1)
    levels: int = integer_field(30, 1)
    samples: int = integer_field(10, 1)
    explore: float = number_field(10.0)


class SubgraphX(BatchedAlgorithm):
    r"""The connected subgraph of few nodes with the highest Shapley value, found by Monte-Carlo tree search.

    .. math::
        \phi(S) = \mathbb{E}_{C}\bigl[\, p(C \cup S) - p(C) \,\bigr]

    where C is a random set of other nodes, each kept with probability 1/2. A walk starts at the whole computation graph and
    prunes one node after the other, always staying connected; each step goes where the mean value of the subgraphs below,
    plus a bonus for what was rarely visited, is highest. The hard explanation is the best subgraph that a walk ended at.
    Half of a soft score is the share of these subgraphs that an element belongs to, half whether it is in the best one.

    Reference: Yuan et al., *On Explainability of Graph Neural Networks via Subgraph Explorations*, ICML 2021. Cost:
    ``rollouts`` walks of up to ``levels`` steps, each of 2 ``samples`` forward passes per child, instance by instance.
    Deviations: coalitions are drawn from all nodes of the computation graph, which are those that can matter; the original
    prunes one node per step also of large graphs, which would take minutes per instance here.

    >>> SubgraphX(rollouts=5)
    SubgraphX(rollouts=5)
    """

    Settings = SubgraphXSettings

    def supports(self) -> bool:
        refuse_feature_masks(self)
        return super().supports()

    @torch.no_grad()
    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        seeds = instance_keys(causal.instances, self.settings.seed).tolist()
        best = torch.zeros(causal.instances.num_nodes, dtype=torch.bool, device=causal.instances.x.device)
        score = torch.zeros_like(best, dtype=causal.dtype)
        edge_score = torch.zeros(causal.instances.num_edges, dtype=causal.dtype, device=best.device)
        for b, seed in enumerate(seeds):
            which = torch.tensor([b], device=best.device)
            alone = causal.select(which) if len(seeds) > 1 else causal
            nodes, edges = causal.instances.node_owner == b, causal.instances.edge_owner == b
            visited, chosen = _search_tree(alone, parts.select(which, alone.instances), self.settings, seed)
            best[nodes] = chosen
            score[nodes] = 0.5 * (visited.to(score.dtype).mean(0) + chosen)
            edge_score[edges] = 0.5 * (_between(visited, alone.instances) + _between(chosen, alone.instances)).mean(0).to(
                score.dtype
            )
        tick()
        soft, hard = self._masks(parts, edge_score, score), self._masks(parts, _between(best, causal.instances), best)
        own_cut = self.settings.extract == "prefix" and not (self.settings.rounds or self.settings.exact)
        return SearchResult(soft, hard=hard.map(lambda mask: mask > 0) if own_cut else None)

    def _masks(self, parts: MaskParts, edge: Tensor, node: Tensor) -> Masks:
        """Values of the elements from values of edges [E] and nodes [N]; an element has the highest of what it covers."""
        found = Masks()
        if EDGES in parts:
            low = torch.zeros(parts.edges.shape, dtype=edge.dtype, device=edge.device)
            found[EDGES] = low.scatter_reduce(0, parts.edges.element, edge, "amax")
        if NODES in parts:
            found[NODES] = node.unsqueeze(1)
        return found


def _between(kept: Tensor, instances: InstanceBatch) -> Tensor:
    """Whether each edge lies between kept nodes, [..., N] to [..., E]."""
    tail, head = instances.edge_index
    inside = kept[..., tail] & kept[..., head]
    return inside.double()


@dataclass
class _Subgraph:
    """A node of the search tree: the kept nodes, what they are worth, and where walks went from there."""

    kept: Tensor
    value: float = 0.0
    visits: int = 0
    total: float = 0.0
    children: list[_Subgraph] | None = None

    @property
    def mean(self) -> float:
        """Mean value of the walks that came through."""
        return self.total / self.visits if self.visits else 0.0


@dataclass
class _Tree:
    """The search tree of one instance.

    Args:
        instances: the instance.
        ask: returns p of coalitions of nodes, [K, N] to [K].
        settings: size of the search.
        random: random numbers of this instance.
    """

    instances: InstanceBatch
    ask: Callable[[Tensor], Tensor]
    settings: SubgraphXSettings
    random: np.random.Generator
    known: dict[bytes, _Subgraph] = field(default_factory=dict)

    @cached_property
    def root(self) -> _Subgraph:
        return _Subgraph(torch.ones(self.instances.num_nodes, dtype=torch.bool, device=self.instances.x.device))

    def walk(self) -> _Subgraph:
        """Prune nodes until few are left, and let all subgraphs on the way know what the last one is worth."""
        way, few = [self.root], min(self.settings.nodes, -(-self.instances.num_nodes // 2))
        while int(way[-1].kept.sum()) > few and (children := self._expand(way[-1])):
            tries = sum(child.visits for child in children)
            bonus = self.settings.explore * max(tries, 1) ** 0.5
            way.append(max(children, key=lambda child: child.mean + bonus * child.value / (1 + child.visits)))
        for one in way:
            one.visits += 1
            one.total += way[-1].value
        return way[-1]

    def _expand(self, parent: _Subgraph) -> list[_Subgraph]:
        """The subgraphs that pruning one node leads to; made and valued once."""
        if parent.children is not None:
            return parent.children
        found: dict[bytes, _Subgraph] = {}
        at_once = -(-self.instances.num_nodes // self.settings.levels)
        for nodes in torch.split(self._prunable(parent.kept, at_once), at_once):
            smaller = parent.kept.clone()
            smaller[nodes] = False
            kept = self._component(smaller)
            if bool(kept.any()):
                key = kept.cpu().numpy().tobytes()
                found[key] = self.known.get(key) or _Subgraph(kept)
        new = [one for key, one in found.items() if key not in self.known]
        if new:
            for one, value in zip(new, self._shapley(torch.stack([one.kept for one in new])), strict=True):
                one.value = float(value)
        self.known |= found
        parent.children = list(found.values())
        return parent.children

    def _prunable(self, kept: Tensor, at_once: int) -> Tensor:
        """Nodes with the fewest neighbours among the kept ones, so many for each child; explained nodes stay."""
        inside = _between(kept, self.instances)
        degree = inside.new_zeros(kept.numel()).index_add(0, self.instances.edge_index.flatten(), inside.repeat(2))
        free = kept.clone()
        if self.instances.explained_nodes is not None:
            free[self.instances.explained_nodes.flatten()] = False
        order = torch.argsort(torch.where(free, degree, torch.inf), stable=True)
        return order[: min(int(free.sum()), self.settings.children * at_once)]

    def _component(self, kept: Tensor) -> Tensor:
        """The connected components of the explained nodes, or the largest one."""
        number, (tail, head) = kept.numel(), self.instances.edge_index[:, _between(kept, self.instances) > 0].cpu().numpy()
        graph = coo_array((np.ones(len(tail)), (tail, head)), shape=(number, number))
        label = torch.from_numpy(connected_components(graph, directed=False)[1]).long().to(kept.device)
        explained = self.instances.explained_nodes
        wanted = label[kept].bincount().argmax().unsqueeze(0) if explained is None else label[explained.flatten()]
        return kept & torch.isin(label, wanted)

    def _shapley(self, subgraphs: Tensor) -> Tensor:
        """Estimated Shapley value of subgraphs as one player each, [C, N] to [C]."""
        draws = self.random.random((self.settings.samples, subgraphs.size(1))) < 0.5
        coalition = torch.from_numpy(draws).to(subgraphs.device) & ~subgraphs.unsqueeze(1)  # [C, S, N]
        both = torch.stack([coalition | subgraphs.unsqueeze(1), coalition])
        p_with, p_without = self.ask(both.flatten(0, 2)).view(both.shape[:3])
        value: Tensor = (p_with - p_without).mean(1)
        return value


def _search_tree(causal: CausalModel, parts: MaskParts, settings: SubgraphXSettings, seed: int) -> tuple[Tensor, Tensor]:
    """Small subgraphs that walks of one instance ended at, [W, N], and the one with the highest value, [N]."""
    instances = causal.instances
    model = causal.removing(parts.tied) if settings.intervention != "mask" and EDGES in parts else causal

    def ask(kept: Tensor) -> Tensor:
        weights = {EDGES: _between(kept, instances), NODES: kept.unsqueeze(-1)}
        return model.do({name: value.to(causal.dtype) for name, value in weights.items() if name in parts})[:, 0]

    tree = _Tree(instances, ask, settings, np.random.default_rng(seed % (1 << 63)))
    ends = [tree.walk() for _ in range(settings.rollouts)]
    return torch.stack([one.kept for one in ends]), max(ends, key=lambda one: one.value).kept
