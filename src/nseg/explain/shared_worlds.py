"""Several instances verified in one pass of the caller's whole graph.

A world of one instance sets the weights of its own edges and nodes; everything else counts as not explained. Instances
whose masks agree wherever they have an edge or a node in common can therefore share a world: each finds there what it
would find alone, as far as its edges and nodes go. A model that looks further sees a difference; the instance then gets
passes of its own (:func:`nseg.explain.verification.find_wrong`), so that sharing can cost time, but hides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import EDGE_KIND
from nseg.graphs.subgraph import reverse_edges
from nseg.search.parts import EDGES, NODES, Masks


@dataclass(frozen=True)
class _Covered:
    """What some instances set in the whole graph, one part of the masks.

    Args:
        owner: instance of each entry, [M].
        position: edge or node of each, [M].
        value: what it is set to, [M] or [M, w].
    """

    owner: Tensor
    position: Tensor
    value: Tensor


@dataclass(frozen=True)
class SharedMasks:
    """Masks of B instances on the whole graph, and which of them can share a world.

    Args:
        group: group of each instance, [B]; those of one group share their worlds.
        whole: the whole graph.
        parts: what the instances set in each part.
    """

    group: Tensor
    whole: InstanceBatch
    parts: dict[str, _Covered]

    @classmethod
    def of(cls, masks: Masks, instances: InstanceBatch, whole: InstanceBatch, tied: bool, most: int) -> SharedMasks | None:
        """Masks of instances that were cut from a graph; None if they need too many worlds.

        Args:
            masks: of edges [E] and of nodes [N, w].
            instances: B instances.
            whole: the graph, as one instance.
            tied: whether a mask covers both directions of an edge.
            most: number of groups that is not too many.
        """
        parts = {}
        if EDGES in masks:
            position = torch.searchsorted(whole.edge_id, instances.edge_id)
            parts[EDGES] = _Covered(instances.edge_owner, position, masks[EDGES])
            if tied:
                parts[EDGES] = _both_directions(parts[EDGES], whole)
        if NODES in masks:
            position = torch.searchsorted(whole.node_id, instances.node_id)
            parts[NODES] = _Covered(instances.node_owner, position, masks[NODES])
        group = _group_compatible(list(parts.values()), len(instances), most)
        return None if group is None else cls(group.to(whole.x.device), whole, parts)

    @property
    def number(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1

    def of_group(self, number: int, dtype: torch.dtype) -> Masks:
        """The masks of one group on the whole graph; 0 where no instance sets anything."""
        found = Masks()
        for name, part in self.parts.items():
            size = self.whole.num_edges if name == EDGES else self.whole.num_nodes
            mine = self.group[part.owner] == number
            empty = torch.zeros(size, *part.value.shape[1:], dtype=dtype, device=self.group.device)
            found[name] = empty.index_copy(0, part.position[mine], part.value[mine].to(dtype))
        return found


def _both_directions(part: _Covered, whole: InstanceBatch) -> _Covered:
    """The same, where each edge also sets its reverse; the larger value counts, as on an explanation."""
    reverse = reverse_edges(whole.edge_index, whole.num_nodes, whole.args.get(EDGE_KIND))
    position = torch.cat([part.position, reverse[part.position]])
    key = torch.cat([part.owner, part.owner]) * whole.num_edges + position
    entry, number = torch.unique(key, return_inverse=True)
    value = torch.cat([part.value, part.value])
    largest = value.new_zeros(len(entry)).scatter_reduce(0, number, value, "amax", include_self=False)
    return _Covered(entry // whole.num_edges, entry % whole.num_edges, largest)


def _group_compatible(parts: Sequence[_Covered], number: int, most: int) -> Tensor | None:
    """Groups of instances that agree wherever they set the same edge or node, [B]; None if there are more than ``most``.

    Each instance joins the first group that it can.
    """
    most = min(most, number)
    prepared = []
    for part in parts:
        rows = None if part.value.dim() == 1 or part.value.size(1) == 1 else 0  # which makes unique much slower
        value = torch.unique(part.value, dim=rows, return_inverse=True)[1].flatten() if part.value.numel() else part.owner
        item, entries = part.position, int(part.position.max()) + 1 if len(part.position) else 0
        if entries > len(item):  # a large graph, of which few edges or nodes are set
            used, item = torch.unique(item, return_inverse=True)
            entries = len(used)
        ptr = torch.searchsorted(part.owner, torch.arange(number + 1, device=part.owner.device))
        known = np.full((most, entries), -1, dtype=np.int32)  # value of each item in each group; -1 if not set
        prepared.append((item.cpu().numpy(), value.cpu().numpy(), ptr.tolist(), known))
    group, groups = np.zeros(number, dtype=np.int64), 0
    for b in range(number):
        fits = np.ones(groups, dtype=bool)
        mine = [(item[ptr[b] : ptr[b + 1]], value[ptr[b] : ptr[b + 1]], known) for item, value, ptr, known in prepared]
        for items, values, known in mine:
            there = known[:groups, items]
            fits &= ((there < 0) | (there == values)).all(1)
        chosen = int(fits.argmax()) if fits.any() else groups
        if chosen == most:
            return None
        group[b], groups = chosen, max(groups, chosen + 1)
        for items, values, known in mine:
            known[chosen, items] = values
    return torch.from_numpy(group)
