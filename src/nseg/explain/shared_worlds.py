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

BITS = 63
"""Groups that one number stands for."""


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
        """The entries of each group that are not 0, one group after the other, without group -1; the owner is the group."""
        own = group[self.owner]
        there = (own >= 0) & (self.value.flatten(1).any(1) if self.value.dim() > 1 else self.value != 0)
        entry = there.nonzero().flatten()
        entry = entry[torch.argsort(own[entry], stable=True)]
        return _Covered(own[entry], self.position[entry], self.value[entry])


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
            complete = len(there) and int(there[-1]) == len(there) - 1  # sorted, so that each has its own number
            parts[name] = _Covered(owner, number if complete else torch.searchsorted(there, number), value)
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

    Each instance joins the first of ``most`` groups that it can; -1 if there is none. Bit g of a number stands for group g.
    """
    most = min(most, number)
    if not any(bool(part.value.any()) for part in parts):  # all keep nothing
        return torch.zeros(number, dtype=torch.long)
    words, prepared = -(-most // BITS), []
    for part in parts:
        item, entries = _dense(part.position)
        setting, settings = _settings(item, part.value)
        ptr = torch.searchsorted(part.owner, torch.arange(number + 1, device=part.owner.device)).tolist()
        # groups in which each item is set, and in which it is set to each of its values
        known = np.zeros((entries, words), dtype=np.int64), np.zeros((settings, words), dtype=np.int64)
        prepared.append((item.cpu().numpy(), setting.cpu().numpy(), ptr, *known))
    group = np.full(number, -1, dtype=np.int64)
    for b in range(number):
        differs = np.zeros(words, dtype=np.int64)
        mine = [(item[ptr[b] : ptr[b + 1]], to[ptr[b] : ptr[b + 1]], *known) for item, to, ptr, *known in prepared]
        for items, to, is_set, is_set_to in mine:
            differs |= np.bitwise_or.reduce(is_set[items] & ~is_set_to[to], axis=0)
        chosen = next((g for g in range(most) if not differs[g // BITS] >> g % BITS & 1), -1)
        if chosen >= 0:
            group[b] = chosen
            for items, to, is_set, is_set_to in mine:
                is_set[items, chosen // BITS] |= 1 << chosen % BITS
                is_set_to[to, chosen // BITS] |= 1 << chosen % BITS
    return torch.from_numpy(group)


def _dense(position: Tensor) -> tuple[Tensor, int]:
    """Positions as numbers below some number, which is not much larger than needed; and that number."""
    entries = int(position.max()) + 1 if len(position) else 0
    if entries <= len(position):
        return position, entries
    used, item = torch.unique(position, return_inverse=True)  # a large graph, of which few edges or nodes are set
    return item, len(used)


def _settings(item: Tensor, value: Tensor) -> tuple[Tensor, int]:
    """A number for each pair of an item and a row of values [M] or [M, w], equal for equal pairs; and how many there are."""
    narrow = value.dim() == 1 or value.size(1) == 1
    hard = value.flatten().long()
    if narrow and torch.equal(hard.to(value.dtype), value.flatten()):  # 0 or 1
        return 2 * item + hard, 2 * int(item.max()) + 2 if len(item) else 0
    number = torch.unique(value, dim=None if narrow else 0, return_inverse=True)[1].flatten()  # rows are slower
    pairs, setting = torch.unique(item * (int(number.max()) + 1) + number, return_inverse=True)
    return setting, len(pairs)
