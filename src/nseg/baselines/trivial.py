"""Explanations that do not state at the model's output: what every other method must beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.baselines.scores import on_elements, refuse_features, scaled
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.graphs.batch import InstanceBatch
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.noise import mask_noise
from nseg.search.parts import MaskParts, Masks
from nseg.search.settings import BaseSettings, choice_field, integer_field, number_field


@dataclass(frozen=True, kw_only=True)
class TrivialSettings(BaseSettings):
    """As :class:`nseg.search.settings.BaseSettings`, but hard masks are made by the threshold, so that they stay trivial.

    The best prefix of a ranking asks the model, and would turn the worst ranking into a fair explanation.
    """

    extract: str = choice_field("threshold", ("prefix", "threshold", "topk"))


class Random(BatchedAlgorithm):
    r"""Every element gets a random score, :math:`s \sim U[0, 1)`, from the seed, the instance and the element.

    The hard mask is what lies above ``threshold``: at 0.5 a random half. With ``extract="prefix"`` it is the best prefix
    of a random ranking instead, which looks at the model and is a much stronger rival. Cost: none.

    >>> Random(seed=3)
    Random(seed=3)
    """

    Settings = TrivialSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        noise = mask_noise(parts, self.settings.seed, causal.dtype)
        tick()
        return SearchResult(Masks({name: one.draw() for name, one in noise.items()}))


class All(BatchedAlgorithm):
    """Everything is the explanation, s = 1: sufficient by definition, and says nothing. Cost: none."""

    Settings = TrivialSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        tick()
        return SearchResult(parts.full(1.0, causal.dtype))


class Nothing(BatchedAlgorithm):
    """Nothing is the explanation, s = 0: neither necessary nor sufficient. Cost: none."""

    Settings = TrivialSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        tick()
        return SearchResult(parts.full(0.0, causal.dtype))


# --- PageRank ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PageRankSettings(BaseSettings):
    """As :class:`nseg.search.settings.BaseSettings`, and:

    Args:
        damping: probability of going on instead of starting again.
        steps: steps of the power iteration; the error is about ``damping ** steps``.
    """

    damping: float = number_field(0.85, 0, 1)
    steps: int = integer_field(100, 1)


class PageRank(BatchedAlgorithm):
    r"""What a walker meets who starts at the explained output and goes back along the messages.

    .. math::
        r = (1 - d)\, e + d\, P^\top r, \qquad s_v = r_v, \quad s_{uv} = r_v / \deg(v)

    with :math:`e` uniform over the explained nodes (both ends of a link, all nodes of a graph) and :math:`P` the step from a
    receiver to one of its senders; who can go no further starts again. A score is how often a node is visited, or an edge
    walked, divided by the highest of the instance, so it depends on the graph alone. Both directions of an undirected edge
    get their mean.

    Reference: Page et al., *The PageRank Citation Ranking: Bringing Order to the Web*, 1999; personalised as in Haveliwala,
    *Topic-Sensitive PageRank*, WWW 2002. Cost: ``steps`` sums over the edges, no pass of the model. Deviations: the graph is
    the computation graph, whose rim has nowhere to go; self-loops that layers add do not count.

    >>> PageRank(damping=0.5)
    PageRank(damping=0.5)
    """

    Settings = PageRankSettings

    @property
    def ticks(self) -> int:
        return 1

    def supports(self) -> bool:
        refuse_features(self)
        return super().supports()

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        edge, node = page_rank(causal.instances, causal.receivers, self.settings.damping, self.settings.steps)
        tick()
        return SearchResult(scaled(parts, on_elements(parts, edge.to(causal.dtype), node.to(causal.dtype))))


def page_rank(instances: InstanceBatch, receivers: tuple[int, ...], damping: float, steps: int) -> tuple[Tensor, Tensor]:
    """How often edges [E] are walked and nodes [N] are visited, summing up to 1 over the nodes of each instance."""
    here = torch.cat([instances.edge_index[end] for end in receivers])  # [M]
    there = torch.cat([instances.edge_index[1 - end] for end in receivers])
    owner, home = instances.node_owner, restart(instances)
    ways = here.bincount(minlength=instances.num_nodes)
    stuck, rank = ways == 0, home
    for _ in range(steps):
        flow = rank[here] / ways[here]
        lost = home.new_zeros(len(instances)).index_add(0, owner, torch.where(stuck, rank, 0))
        rank = damping * home.new_zeros(len(rank)).index_add(0, there, flow) + (damping * lost + 1 - damping)[owner] * home
    flow = rank[here] / ways[here]
    return flow.view(len(receivers), -1).sum(0), rank


def restart(instances: InstanceBatch) -> Tensor:
    """Where a walker starts: at the nodes that the explained rows are read off, evenly, [N]."""
    ends = instances.explained_nodes
    node = torch.arange(instances.num_nodes, device=instances.x.device) if ends is None else ends.flatten()
    count = node.bincount(minlength=instances.num_nodes).double()
    total = count.new_zeros(len(instances)).index_add(0, instances.node_owner, count)
    return count / total[instances.node_owner]
