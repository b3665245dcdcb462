"""Explanations that ignore the model's output: every other method must beat them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.baselines.scores import divide_by_highest, element_scores, refuse_feature_masks
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.graphs.batch import InstanceBatch
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult
from nseg.search.noise import mask_noise
from nseg.search.parts import TRIVIAL_VALUES, MaskParts, Masks
from nseg.search.settings import BaseSettings, choice_field, integer_field, number_field


@dataclass(frozen=True, kw_only=True)
class TrivialSettings(BaseSettings):
    """Settings of trivial methods: :class:`nseg.search.settings.BaseSettings`, but hard masks are cut at a threshold.

    The usual extraction, the best prefix of a ranking, runs the model and would turn the worst ranking into a fair
    explanation.
    """

    extract: str = choice_field("threshold", ("prefix", "threshold", "topk"))


class Random(BatchedAlgorithm):
    r"""A random score for every element, :math:`s \sim U[0, 1)`, from the seed, the instance and the element.

    The hard mask holds the elements above ``threshold``: at 0.5 a random half. With ``extract="prefix"`` the hard mask is
    the best prefix of a random ranking, which depends on the model and is much harder to beat. Cost: none.

    >>> Random(seed=3)
    Random(seed=3)
    """

    Settings = TrivialSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        noise = mask_noise(parts, self.settings.seed, causal.dtype)
        tick()
        return SearchResult(Masks({name: part_noise.draw() for name, part_noise in noise.items()}))


class All(BatchedAlgorithm):
    """Everything as the explanation, s = 1: sufficient by definition, and uninformative. Cost: none."""

    Settings = TrivialSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        tick()
        return SearchResult(parts.full(TRIVIAL_VALUES["all"], causal.dtype))


class Nothing(BatchedAlgorithm):
    """Nothing as the explanation, s = 0: neither necessary nor sufficient. Cost: none."""

    Settings = TrivialSettings

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        tick()
        return SearchResult(parts.full(TRIVIAL_VALUES["none"], causal.dtype))


# --- PageRank ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PageRankSettings(BaseSettings):
    """Settings of PageRank, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        damping: probability of continuing the random walk instead of restarting it.
        steps: steps of the power iteration; the error is about ``damping ** steps``.
    """

    damping: float = number_field(0.85, 0, 1)
    steps: int = integer_field(100, 1)


class PageRank(BatchedAlgorithm):
    r"""How often a random walk from the explained output, against the messages, visits each element.

    .. math::
        r = (1 - d)\, e + d\, P^\top r, \qquad s_v = r_v, \quad s_{uv} = r_v / \deg(v)

    with :math:`e` uniform over the explained nodes (both ends of a link, all nodes of a graph) and :math:`P` the step from a
    receiver to one of its senders; a walk that cannot continue restarts. A score is the frequency with which a node is
    visited, or an edge is used, divided by the highest of the instance. Scores depend on the graph alone. Both directions
    of an undirected edge get their mean.

    Reference: Page et al., *The PageRank Citation Ranking: Bringing Order to the Web*, 1999; personalised as in Haveliwala,
    *Topic-Sensitive PageRank*, WWW 2002. Cost: ``steps`` sums over the edges, no forward pass. Deviations: the graph is the
    computation graph, whose boundary nodes have no senders; self-loops that layers add do not count.

    >>> PageRank(damping=0.5)
    PageRank(damping=0.5)
    """

    Settings = PageRankSettings

    @property
    def ticks(self) -> int:
        return 1

    def supports(self) -> bool:
        refuse_feature_masks(self)
        return super().supports()

    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        edge, node = page_rank(causal.instances, causal.receivers, self.settings.damping, self.settings.steps)
        tick()
        return SearchResult(divide_by_highest(parts, element_scores(parts, edge.to(causal.dtype), node.to(causal.dtype))))


def page_rank(instances: InstanceBatch, receivers: tuple[int, ...], damping: float, steps: int) -> tuple[Tensor, Tensor]:
    """Frequencies of edges [E] and nodes [N] on the walk; those of an instance's nodes sum to 1."""
    receiver = torch.cat([instances.edge_index[end] for end in receivers])  # [M]
    sender = torch.cat([instances.edge_index[1 - end] for end in receivers])
    owner, restart = instances.node_owner, restart_distribution(instances)
    degree = receiver.bincount(minlength=instances.num_nodes)
    dangling, rank = degree == 0, restart  # a walk restarts at nodes that receive nothing
    for _ in range(steps):
        flow = rank[receiver] / degree[receiver]
        lost = restart.new_zeros(len(instances)).index_add(0, owner, torch.where(dangling, rank, 0))  # [B]
        received = restart.new_zeros(len(rank)).index_add(0, sender, flow)
        rank = damping * received + (damping * lost + 1 - damping)[owner] * restart
    flow = rank[receiver] / degree[receiver]
    return flow.view(len(receivers), -1).sum(0), rank


def restart_distribution(instances: InstanceBatch) -> Tensor:
    """Probability that a walk starts at each node: uniform over the explained nodes of an instance, [N]."""
    ends = instances.explained_nodes
    node = torch.arange(instances.num_nodes, device=instances.x.device) if ends is None else ends.flatten()
    count = node.bincount(minlength=instances.num_nodes).double()
    total = count.new_zeros(len(instances)).index_add(0, instances.node_owner, count)
    return count / total[instances.node_owner]
