"""Which edges hang together: the pieces of a subset, its border, and the shortest paths to other edges.

At node and link level a subset hangs together with the explained nodes, which count as joined; at graph level its edges
form one piece. Edges count whatever their direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.search.part import EdgePart

FAR = 1 << 40
"""Hops to what cannot be reached."""


def is_connected(part: EdgePart, kept: Tensor) -> Tensor:
    """Whether each of K subsets of edge elements [K, n] is connected in each instance, [K, B]; an empty one is."""
    one = largest_piece(part, kept)
    loose = torch.zeros(len(kept), len(part.instances), device=kept.device)
    return loose.index_add(1, part.owner, (kept & ~one).float()) == 0


def largest_piece(part: EdgePart, kept: Tensor) -> Tensor:
    """Of each of K subsets of edge elements [K, n] the piece with most elements, or what hangs on explained nodes."""
    instances, tail = part.instances, part.instances.edge_index[0]
    of_node = _smallest_node(part, kept)
    piece = of_node[:, tail[_one_edge(part)]]  # [K, n]
    if instances.explained_nodes is not None:
        first = instances.explained_nodes[0, instances.row_ptr[:-1]]
        return kept & (piece == of_node[:, first[part.owner]])
    count = torch.zeros_like(of_node).scatter_add(1, piece, kept.long())
    number = instances.num_nodes
    rank = torch.where(kept, count.gather(1, piece) * number + number - 1 - piece, -1)  # of equals the one of the first node
    most = rank.new_full((len(kept), len(instances)), -1).scatter_reduce(1, part.owner.expand_as(rank), rank, "amax")
    return kept & (rank == most[:, part.owner])


def _smallest_node(part: EdgePart, kept: Tensor) -> Tensor:
    """The smallest node that each node is joined with by each of K subsets [K, n], [K, N]."""
    tail, head = part.instances.edge_index
    weight, number = kept[:, part.element], part.instances.num_nodes
    if part.instances.explained_nodes is not None:  # these are joined, whatever is kept
        first, second = _joined_pairs(part.instances)
        tail, head = torch.cat([tail, first]), torch.cat([head, second])
        weight = torch.nn.functional.pad(weight, (0, tail.numel() - weight.size(1)), value=True)
    label = torch.arange(number, device=kept.device).repeat(len(kept), 1)
    while True:
        low = torch.where(weight, torch.minimum(label[:, tail], label[:, head]), number)
        new = label.scatter_reduce(1, tail.expand_as(low), low, "amin").scatter_reduce(1, head.expand_as(low), low, "amin")
        new = new.gather(1, new)
        if torch.equal(new, label):
            return label
        label = new


def _joined_pairs(instances: InstanceBatch) -> tuple[Tensor, Tensor]:
    """Pairs of neighbouring explained nodes of the same instance, one row after the other."""
    assert instances.explained_nodes is not None
    nodes, owner = instances.explained_nodes.t(), instances.row_owner.unsqueeze(1)  # [R, 1] or [R, 2]; [R, 1]
    nodes, owner = nodes.flatten(), owner.expand_as(nodes).flatten()
    same = owner[1:] == owner[:-1]
    return nodes[:-1][same], nodes[1:][same]


@dataclass(frozen=True)
class Reach:
    """How far everything is from a connected subset.

    Args:
        part: the edge elements.
        kept: the subset, [n].
    """

    part: EdgePart
    kept: Tensor

    @cached_property
    def hops(self) -> Tensor:
        """Hops from the subset to each node, [N]; 0 where there is nothing to start from, so that any edge may be first."""
        instances, (tail, head) = self.part.instances, self.part.instances.edge_index
        weight = self.kept[self.part.element]
        touched = torch.zeros(instances.num_nodes, dtype=torch.bool, device=tail.device)
        touched[tail[weight]] = touched[head[weight]] = True
        if instances.explained_nodes is not None:
            touched[instances.explained_nodes.flatten()] = True
        something = torch.zeros(len(instances), dtype=torch.bool, device=tail.device)
        something[instances.node_owner[touched]] = True
        hops = torch.where(touched | ~something[instances.node_owner], 0, FAR)
        while True:
            near = torch.minimum(hops[tail], hops[head]) + 1
            new = hops.scatter_reduce(0, tail, near, "amin").scatter_reduce(0, head, near, "amin").clamp(max=FAR)
            if torch.equal(new, hops):
                return hops
            hops = new

    @cached_property
    def distance(self) -> Tensor:
        """Hops from the subset to the nearer end of each element, [n]."""
        near = self.hops[self.part.instances.edge_index].amin(0)
        return torch.full_like(self.part.owner, FAR).scatter_reduce(0, self.part.element, near, "amin")

    def joined(self, wanted: Tensor) -> Tensor:
        """Each of K rows of wanted elements [K, n] with shortest paths to the subset, as far as there are any, [K, n]."""
        wanted = wanted & (self.distance < FAR)
        ends = self.part.instances.edge_index[:, _one_edge(self.part)]
        near = ends.gather(0, self.hops[ends].argmin(0, keepdim=True)).squeeze(0)  # [n]
        here = torch.zeros(len(wanted), self.hops.numel(), dtype=torch.bool, device=wanted.device)
        here = here.scatter_reduce(1, near.expand_as(wanted), wanted, "amax")
        edge, far = self._way, self.hops > 0
        towards = self.part.instances.edge_index[:, edge]
        towards = towards.gather(0, self.hops[towards].argmin(0, keepdim=True)).squeeze(0)  # [N]
        while bool((here := here & far).any()):
            wanted = wanted.scatter_reduce(1, self.part.element[edge].expand_as(here), here, "amax")
            here = torch.zeros_like(here).scatter_reduce(1, towards.expand_as(here), here, "amax")
        return wanted

    @cached_property
    def _way(self) -> Tensor:
        """The first edge of each node that leads towards the subset; any where none does, [N]."""
        tail, head = self.part.instances.edge_index
        edges = torch.arange(tail.numel(), device=tail.device)
        first = torch.full_like(self.hops, tail.numel())
        for a, b in ((tail, head), (head, tail)):
            nearer = torch.where(self.hops[b] == self.hops[a] - 1, edges, tail.numel())
            first = first.scatter_reduce(0, a, nearer, "amin")
        return first.clamp(max=max(tail.numel() - 1, 0))


def _one_edge(part: EdgePart) -> Tensor:
    """An edge of each element, [n]."""
    edges = torch.arange(part.element.numel(), device=part.element.device)
    return torch.zeros_like(part.owner).scatter(0, part.element, edges)
