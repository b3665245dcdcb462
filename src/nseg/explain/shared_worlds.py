"""Several instances verified in one pass of the caller's whole graph.

A world of one instance sets the weights of its own edges and nodes; everything else counts as not explained. Instances
whose masks agree wherever they have an edge or a node in common can therefore share a world: each finds there what it
would find alone, as far as its edges and nodes go. A model that looks further sees a difference; the instance then gets
passes of its own (:func:`nseg.explain.verification.find_wrong`), so that sharing can cost time, but hides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

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
        owner: instance of each entry, sorted, [M].
        position: edge or node of each, [M].
        value: what it is set to, [M] or [M, w].
    """

    owner: Tensor
    position: Tensor
    value: Tensor

    def keep(self, group: Tensor) -> _Covered:
        """The entries of each group, one group after the other; group -1 is left out. The owner is then the group."""
        own = group[self.owner]
        order = torch.argsort(own, stable=True)
        order = order[int((own < 0).sum()) :]
        return _Covered(own[order], self.position[order], self.value[order])


@dataclass(frozen=True)
class SharedMasks:
    """Masks of b instances on the whole graph, and which of them can share a world.

    Args:
        which: the instances, [b].
        group: group of each, [b]; those of one group share their worlds. -1 if it is in none.
        whole: the whole graph.
        parts: what the instances set in each part.
    """

    which: Tensor
    group: Tensor
    whole: InstanceBatch
    parts: dict[str, _Covered]

    @classmethod
    def of(
        cls, masks: Masks, instances: InstanceBatch, whole: InstanceBatch, tied: bool, most: int, which: Tensor
    ) -> SharedMasks:
        """Masks of instances that were cut from a graph.

        Args:
            masks: of edges [E] and of nodes [N, w].
            instances: B instances.
            whole: the graph, as one instance.
            tied: whether a mask covers both directions of an edge.
            most: number of groups that is not too many; instances that fit into none of them are left out. 0: all are kept
                apart, each in a group of its own.
            which: which of the B instances, ascending, [b].
        """
        parts, some = {}, len(which) < len(instances)
        members = {
            EDGES: (instances.edge_owner, instances.edge_id, whole.edge_id),
            NODES: (instances.node_owner, instances.node_id, whole.node_id),
        }
        for name in (name for name in members if name in masks):
            (owner, number, there), value = members[name], masks[name]
            if some:
                mine = torch.isin(owner, which).nonzero().flatten()
                owner, number, value = torch.searchsorted(which, owner[mine]), number[mine], value[mine]
            parts[name] = _Covered(owner, torch.searchsorted(there, number), value)
        if tied and EDGES in parts:
            parts[EDGES] = _both_directions(parts[EDGES], whole)
        if most:
            group = _group_compatible(list(parts.values()), len(which), most).to(which.device)
        else:
            group = torch.arange(len(which), device=which.device)
        return cls(which, group, whole, parts)

    def dropping(self, sizes: Tensor, least: int) -> SharedMasks:
        """The same without groups whose instances have a smaller sum of sizes [b] than ``least``."""
        total = sizes.new_zeros(self.number).index_add(0, self.group.clamp(min=0), sizes * (self.group >= 0))
        enough = total >= least
        number = torch.where(enough, torch.cumsum(enough, 0) - 1, -1)
        return replace(self, group=torch.where(self.group < 0, -1, number[self.group]))

    @property
    def number(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1

    @cached_property
    def _by_group(self) -> dict[str, tuple[_Covered, list[int]]]:
        """What the instances set, group after group, and where each group begins."""
        groups, found = torch.arange(self.number + 1, device=self.group.device), {}
        for name, part in self.parts.items():
            kept = part.keep(self.group)
            found[name] = kept, torch.searchsorted(kept.owner, groups).tolist()
        return found

    def of_groups(self, first: int, last: int, dtype: torch.dtype) -> Masks:
        """The masks of some groups, one after the other, on the whole graph, [P, ...]; 0 where no instance sets anything."""
        found = Masks()
        for name, (part, begin) in self._by_group.items():
            size, width = self.whole.num_edges if name == EDGES else self.whole.num_nodes, part.value.shape[1:]
            mine = slice(begin[first], begin[last])
            at = (part.owner[mine] - first) * size + part.position[mine]
            empty = torch.zeros((last - first) * size, *width, dtype=dtype, device=self.group.device)
            found[name] = empty.index_copy_(0, at, part.value[mine].to(dtype)).view(last - first, size, *width)
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


def _group_compatible(parts: Sequence[_Covered], number: int, most: int) -> Tensor:
    """Groups of instances that agree wherever they set the same edge or node, [b].

    Each instance joins the first of ``most`` groups that it can; -1 if there is none.
    """
    most = min(most, number)
    if not any(bool(part.value.any()) for part in parts):  # all keep nothing
        return torch.zeros(number, dtype=torch.long)
    prepared = []
    for part in parts:
        value = _numbered(part.value)
        item, entries = part.position, int(part.position.max()) + 1 if len(part.position) else 0
        if entries > len(item):  # a large graph, of which few edges or nodes are set
            used, item = torch.unique(item, return_inverse=True)
            entries = len(used)
        ptr = torch.searchsorted(part.owner, torch.arange(number + 1, device=part.owner.device))
        # value of each item in each group; -1 if not set
        known = np.full((entries, most), -1, dtype=np.int8 if value.dtype == torch.int8 else np.int32)
        prepared.append((item.cpu().numpy(), value.cpu().numpy()[:, None], ptr.tolist(), known))
    group, groups = np.full(number, -1, dtype=np.int64), 0
    for b in range(number):
        fits = np.ones(groups, dtype=bool)
        mine = [(item[ptr[b] : ptr[b + 1]], value[ptr[b] : ptr[b + 1]], known) for item, value, ptr, known in prepared]
        for items, values, known in mine:
            there = known[items][:, :groups]
            fits &= ~((there >= 0) & (there != values)).any(0)
        chosen = int(fits.argmax()) if fits.any() else groups
        if chosen == most:
            continue
        group[b], groups = chosen, max(groups, chosen + 1)
        for items, values, known in mine:
            known[items, chosen] = values[:, 0]
    return torch.from_numpy(group)


def _numbered(value: Tensor) -> Tensor:
    """A number from 0 for each row of values [M] or [M, w], equal for equal rows."""
    narrow = value.dim() == 1 or value.size(1) == 1
    small = value.flatten().to(torch.int8)
    if narrow and torch.equal(small.to(value.dtype), value.flatten()) and bool((small >= 0).all()):
        return small  # hard masks
    number: Tensor = torch.unique(value, dim=None if narrow else 0, return_inverse=True)[1].flatten()  # rows are slower
    return number
