"""Explanations that do not look at the model's output: what every other method must beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.baselines.scores import on_elements, refuse_features, scaled
from nseg.explainer import BatchedAlgorithm
from nseg.instances import Instances
from nseg.scm import Scm
from nseg.search import Solution, Tick
from nseg.settings import Common, number, one_of, whole
from nseg.space import Masks, Noise, Space


@dataclass(frozen=True, kw_only=True)
class TrivialSettings(Common):
    """As :class:`nseg.settings.Common`, but hard masks are made by the threshold, so that they stay trivial.

    The best prefix of a ranking asks the model, and would turn the worst ranking into a fair explanation.
    """

    extract: str = one_of("threshold", ("prefix", "threshold", "topk"))


class Random(BatchedAlgorithm):
    r"""Every element gets a random score, :math:`s \sim U[0, 1)`, from the seed, the instance and the element.

    The hard mask is what lies above ``threshold``: at 0.5 a random half. With ``extract="prefix"`` it is the best prefix
    of a random ranking instead, which looks at the model and is a much stronger rival. Cost: none.

    >>> Random(seed=3)
    Random(seed=3)
    """

    Settings = TrivialSettings

    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        noise = Noise.of(space, self.settings.seed, scm.dtype)
        tick()
        return Solution(Masks(noise.for_edges() if space.edges else None, noise.for_nodes() if space.nodes else None))


class All(BatchedAlgorithm):
    """Everything is the explanation, s = 1: sufficient by definition, and says nothing. Cost: none."""

    Settings = TrivialSettings

    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        tick()
        return Solution(constant(scm, space, 1.0))


class Nothing(BatchedAlgorithm):
    """Nothing is the explanation, s = 0: neither necessary nor sufficient. Cost: none."""

    Settings = TrivialSettings

    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        tick()
        return Solution(constant(scm, space, 0.0))


def constant(scm: Scm, space: Space, value: float) -> Masks:
    """The same value for all elements, [n_e] and [n_n, w]."""
    x, (edge, node) = scm.instances.x, space.owners
    return Masks(
        None if edge is None else torch.full((edge.numel(),), value, dtype=scm.dtype, device=x.device),
        None if node is None else torch.full((node.numel(), space.node_width), value, dtype=scm.dtype, device=x.device),
    )


# --- PageRank ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PageRankSettings(Common):
    """As :class:`nseg.settings.Common`, and:

    Args:
        damping: probability of going on instead of starting again.
        steps: steps of the power iteration; the error is about ``damping ** steps``.
    """

    damping: float = number(0.85, 0, 1)
    steps: int = whole(100, 1)


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

    def solve(self, scm: Scm, space: Space, tick: Tick) -> Solution:
        edge, node = page_rank(scm.instances, scm.receivers, self.settings.damping, self.settings.steps)
        tick()
        return Solution(scaled(space, on_elements(space, edge.to(scm.dtype), node.to(scm.dtype))))


def page_rank(instances: Instances, receivers: tuple[int, ...], damping: float, steps: int) -> tuple[Tensor, Tensor]:
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


def restart(instances: Instances) -> Tensor:
    """Where a walker starts: at the nodes that the explained rows are read off, evenly, [N]."""
    ends = instances.explained_nodes
    node = torch.arange(instances.num_nodes, device=instances.x.device) if ends is None else ends.flatten()
    count = node.bincount(minlength=instances.num_nodes).double()
    total = count.new_zeros(len(instances)).index_add(0, instances.node_owner, count)
    return count / total[instances.node_owner]
