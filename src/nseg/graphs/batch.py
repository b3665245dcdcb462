"""B instances, packed as one disjoint union.

An *instance* is what one explanation explains: some rows of the model's output (one node, one link, one graph, or
several of them with one common mask), together with the part of the input that these rows are computed from.

A graph of a million edges and a list of a thousand molecules become the same object here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from nseg.graphs.baseline import nodes_vanish
from nseg.graphs.groups import group_members, offsets, owner_of, positions_of
from nseg.graphs.inputs import NODE_TYPE, NODE_TYPES, ModelInputs, Role, common_roles

__all__ = ["InstanceBatch", "WorldBatch", "group_members", "offsets", "pack_graphs", "repeat_rows"]

_KEPT_WITH = {Role.PAIR_INDEX: Role.PAIR, Role.BATCH: Role.GRAPH}
"""Roles whose arguments are cut by the members of another role."""


@dataclass(frozen=True)
class InstanceBatch:
    """B instances as one disjoint union.

    Args:
        x: features, [N, ...].
        edge_index: edges, [2, E], in the numbering of the union.
        args: further model arguments, packed, by name.
        roles: the role of each argument.
        ptr: offset of each instance among the nodes, edges, graphs and pairs, [B + 1] each.
        outputs: what one row of the model's output stands for (node, edge, pair or graph).
        row: explained rows of the output, [R].
        row_ptr: offset of each instance among the rows, [B + 1].
        target: explained class of each row, [R].
        node_id: the caller's number of each node, [N].
        edge_id: the caller's number of each edge, [E].
        hops: hops from each node to the nearest explained output, [N]; 0 where every node may matter.
        total: edges and nodes of the caller's graph that each instance was cut from, [B, 2].
        baseline: what masked features become, [N, F]; None for 0; [N, 0] if nodes are deleted.
    """

    x: Tensor
    edge_index: Tensor
    args: dict[str, Any]
    roles: dict[str, Role]
    ptr: dict[Role, Tensor]
    outputs: Role
    row: Tensor
    row_ptr: Tensor
    target: Tensor
    node_id: Tensor
    edge_id: Tensor
    hops: Tensor
    total: Tensor
    baseline: Tensor | None = None

    def masked_features(self, factor: Tensor) -> Tensor:
        """Features times their factors [K, N, F or 1], and the baseline times what is missing to 1, [K, N, F]."""
        kept = self.x * factor
        return kept if self.baseline is None or nodes_vanish(self.baseline) else kept + self.baseline * (1 - factor)

    def __len__(self) -> int:
        return self.row_ptr.numel() - 1

    def count(self, role: Role) -> int:
        """Number of nodes, edges, graphs or pairs in the union."""
        return int(self.ptr[role][-1])

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)

    @cached_property
    def node_owner(self) -> Tensor:
        """Instance of each node, [N]."""
        return owner_of(self.ptr[Role.NODE])

    @cached_property
    def edge_owner(self) -> Tensor:
        """Instance of each edge, [E]."""
        return owner_of(self.ptr[Role.EDGE])

    @cached_property
    def row_owner(self) -> Tensor:
        """Instance of each explained row, [R]."""
        return owner_of(self.row_ptr)

    @property
    def node_types(self) -> int:
        """Number of node types; 1 for a homogeneous graph."""
        return int(self.args.get(NODE_TYPES, 1))

    @cached_property
    def node_group(self) -> Tensor:
        """Group of nodes with the same kind of features that each node belongs to, [N]: its instance and type."""
        if NODE_TYPE not in self.args:
            return self.node_owner
        return torch.add(self.args[NODE_TYPE], self.node_owner, alpha=self.node_types)

    @property
    def sizes(self) -> Tensor:
        """Nodes plus edges of each instance, [B]."""
        return self.ptr[Role.NODE].diff() + self.ptr[Role.EDGE].diff()

    @property
    def explained_nodes(self) -> Tensor | None:
        """The nodes that each explained row is computed for: [1, R], or [2, R] for links; None for graphs."""
        if self.outputs is Role.GRAPH:
            return None
        if self.outputs is Role.NODE:
            return self.row.unsqueeze(0)
        pairs = (self.args[name] for name, role in self.roles.items() if role is Role.PAIR_INDEX)
        ends: Tensor = self.edge_index if self.outputs is Role.EDGE else next(pairs)
        return ends[:, self.row]

    @property
    def nodes_can_be_shared(self) -> bool:
        """Whether instances may share nodes: not if the model asks which graph each node belongs to."""
        return Role.BATCH not in self.roles.values()

    def members(self, role: Role, number: int) -> slice:
        """Range of one instance's nodes, edges, graphs or pairs."""
        return slice(*self._ranges[role][number : number + 2])

    @cached_property
    def _ranges(self) -> dict[Role, list[int]]:
        """The offsets as Python's numbers, read once for all instances."""
        return {role: ptr.tolist() for role, ptr in self.ptr.items()}

    # --- smaller batches -------------------------------------------------------------------------------------------------

    def select(self, which: Tensor) -> InstanceBatch:
        """The instances ``which``, in that order."""
        needed = {Role.NODE, Role.EDGE, self.outputs, *(_KEPT_WITH.get(role, role) for role in self.roles.values())}
        members = {role: group_members(ptr, which) for role, ptr in self.ptr.items() if role in needed}
        ptr = {role: offsets(ptr.diff()[which]) for role, ptr in self.ptr.items()}
        return self._keep(which, members, ptr)

    def keep_explained_graphs(self) -> InstanceBatch:
        """Drop the graphs that are not explained, where an instance holds several graphs that no edge connects."""
        batch = next((self.args[name] for name, role in self.roles.items() if role is Role.BATCH), None)
        if self.outputs is not Role.GRAPH or batch is None:
            return self
        graph = torch.unique(self.row)
        stays = torch.isin(batch, graph)
        tail, head = stays[self.edge_index]
        if not torch.equal(tail, head):
            return self
        node, edge = stays.nonzero().flatten(), tail.nonzero().flatten()
        everything = torch.arange(len(self), device=self.x.device)
        members = {role: group_members(ptr, everything) for role, ptr in self.ptr.items()}
        members[Role.GRAPH] = graph, owner_of(self.ptr[Role.GRAPH])[graph]
        members[Role.NODE] = node, self.node_owner[node]
        members[Role.EDGE] = edge, self.edge_owner[edge]
        ptr = {role: offsets(owner.bincount(minlength=len(self))) for role, (_, owner) in members.items()}
        return self._keep(everything, members, ptr)

    def _keep(self, which: Tensor, members: dict[Role, tuple[Tensor, Tensor]], ptr: dict[Role, Tensor]) -> InstanceBatch:
        """The instances ``which``, reduced to the given members.

        Args:
            which: numbers of instances.
            members: for each role that arguments have, the kept members and their position in ``which``, sorted by the
                latter.
            ptr: offset of each instance among the kept members of all roles.
        """
        kept = {role: member for role, (member, _) in members.items()}
        moved = {Role.NODE, self.outputs, *(Role.GRAPH for role in self.roles.values() if role is Role.BATCH)}
        position = {role: positions_of(kept[role], self.count(role)) for role in moved}
        rows, _ = group_members(self.row_ptr, which)
        nodes, edges = kept[Role.NODE], kept[Role.EDGE]

        def cut(name: str, value: Any) -> Any:
            role = self.roles[name]
            if role is Role.PAIR_INDEX:
                return position[Role.NODE][value[:, kept[Role.PAIR]]]
            if role is Role.BATCH:
                return position[Role.GRAPH][value[kept[Role.NODE]]]
            return value[kept[role]] if role in kept else value

        return replace(
            self,
            x=self.x.index_select(0, nodes),
            edge_index=position[Role.NODE][self.edge_index.index_select(1, edges)],
            args={name: cut(name, value) for name, value in self.args.items()},
            ptr=ptr,
            row=position[self.outputs][self.row[rows]],
            row_ptr=offsets(self.row_ptr.diff()[which]),
            target=self.target[rows],
            node_id=self.node_id.index_select(0, nodes),
            edge_id=self.edge_id.index_select(0, edges),
            hops=self.hops.index_select(0, nodes),
            total=self.total[which],
            baseline=None if self.baseline is None else self.baseline.index_select(0, nodes),
        )

    def single(self, number: int) -> tuple[ModelInputs, Tensor]:
        """One instance as a graph of its own, and its explained rows of the model's output."""
        nodes, edges = self.members(Role.NODE, number), self.members(Role.EDGE, number)

        def cut(name: str, value: Any) -> Any:
            role = self.roles[name]
            if role is Role.PAIR_INDEX:
                return value[:, self.members(Role.PAIR, number)] - nodes.start
            if role is Role.BATCH:
                return value[nodes] - self.members(Role.GRAPH, number).start
            return value[self.members(role, number)] if role in self.ptr else value

        inputs = ModelInputs(
            x=self.x[nodes],
            edge_index=self.edge_index[:, edges] - nodes.start,
            kwargs={name: cut(name, value) for name, value in self.args.items()},
        )
        begin, end = self.row_ptr[number : number + 2].tolist()
        return inputs, self.row[begin:end] - self.members(self.outputs, number).start

    # --- larger batches --------------------------------------------------------------------------------------------------

    def repeat_worlds(self, worlds: int, boundary: int | None = None, edges: bool = True) -> WorldBatch:
        """``worlds`` copies of the union, one after the other.

        Args:
            worlds: K.
            boundary: nodes this many hops away or further only send messages. Their features are the same in all worlds,
                so all worlds and instances share one copy of each. None copies them, for worlds that change features.
            edges: whether the model sees the edges.
        """
        number, device = self.num_nodes, self.x.device
        world = torch.arange(worlds, device=device).view(-1, 1)
        everything = torch.arange(number, device=device)
        seen = self.edge_index if edges else self.edge_index[:, :0]
        if boundary is None:
            position = everything + number * world
            node, ends = everything.repeat(worlds), seen.unsqueeze(1) + number * world
        else:
            shared = self.hops >= boundary
            inner = (~shared).nonzero().flatten()
            pool, member = torch.unique(self.node_id[shared], return_inverse=True)
            node = torch.cat([inner.repeat(worlds), _any_member(member, shared.nonzero().flatten(), pool.numel())])
            own = int(inner.numel())
            first = torch.empty_like(everything)
            first[inner], first[shared] = everything[:own], worlds * own + member
            step = torch.where(shared, 0, own)
            position = torch.addcmul(first, world, step)  # of each node in world k: first + k * step
            ends = torch.addcmul(first[seen].unsqueeze(1), world, step[seen].unsqueeze(1))
        inputs = ModelInputs(
            x=repeat_rows(self.x, worlds) if boundary is None else self.x[node],
            edge_index=ends.flatten(1),
            kwargs={
                name: value[:0]
                if self.roles[name] is Role.EDGE and not edges
                else self._repeat_arg(name, value, node, position, world)
                for name, value in self.args.items()
            },
        )
        rows = position[:, self.row] if self.outputs is Role.NODE else self.row + world * self.count(self.outputs)
        return WorldBatch(inputs, rows, node, self, position)

    def _repeat_arg(self, name: str, value: Any, node: Tensor, position: Tensor, world: Tensor) -> Any:
        """One model argument for K worlds, whose nodes are ``node`` and stand at ``position`` [K, N]."""
        role, worlds = self.roles[name], len(world)
        if role is Role.SHARED:
            return value
        if role is Role.COUNT:
            return worlds * self.count(Role.GRAPH)
        if role is Role.NODE:
            return value[node]
        if role is Role.PAIR_INDEX:
            return position[:, value].transpose(0, 1).flatten(1)
        if role is Role.BATCH:
            return value.new_zeros(len(node)).index_put((position,), value + world * self.count(Role.GRAPH))
        return repeat_rows(value, worlds)

    def repeat(self, times: int) -> InstanceBatch:
        """All instances ``times`` times in one batch."""
        copies = self.repeat_worlds(times)
        return replace(
            self,
            x=copies.inputs.x,
            edge_index=copies.inputs.edge_index,
            args=dict(copies.inputs.kwargs),
            ptr={role: offsets(ptr.diff().repeat(times)) for role, ptr in self.ptr.items()},
            row=copies.rows.flatten(),
            row_ptr=offsets(self.row_ptr.diff().repeat(times)),
            target=self.target.repeat(times),
            node_id=copies.node_id,
            edge_id=self.edge_id.repeat(times),
            hops=copies.hops,
            total=self.total.repeat(times, 1),
            baseline=None if self.baseline is None else self.baseline.repeat(times, 1),
        )


@dataclass(frozen=True)
class WorldBatch:
    """K worlds of all instances, ready for the model.

    Args:
        inputs: arguments of the model call.
        rows: explained rows of the output, [K, R].
        node: which node of the instances each node is.
        instances: these instances.
        position: where each node of the instances stands in each world, [K, N].
    """

    inputs: ModelInputs
    rows: Tensor
    node: Tensor
    instances: InstanceBatch
    position: Tensor

    @cached_property
    def hops(self) -> Tensor:
        """Hops from each node to the nearest explained output."""
        return self.instances.hops[self.node]

    @cached_property
    def node_id(self) -> Tensor:
        """The caller's number of each node."""
        return self.instances.node_id[self.node]


def pack_graphs(
    graphs: Sequence[ModelInputs], outputs: Role, row: Sequence[Tensor], target: Sequence[Tensor]
) -> InstanceBatch:
    """Pack whole graphs, one per instance.

    Args:
        graphs: B graphs.
        outputs: what a row of the model's output stands for.
        row, target: explained rows of each graph, and their classes.
    """
    first = graphs[0]
    roles = common_roles(graphs)
    device = first.x.device

    sizes = {
        Role.NODE: [g.num_nodes for g in graphs],
        Role.EDGE: [g.num_edges for g in graphs],
        Role.GRAPH: [g.num_graphs for g in graphs],
        Role.PAIR: [0 if g.pairs is None else g.pairs.size(1) for g in graphs],
    }
    start = {role: [0, *accumulate(size)] for role, size in sizes.items()}  # lists: many graphs are small

    def pack(name: str) -> Any:
        role, values = roles[name], [g.kwargs[name] for g in graphs]
        if role is Role.PAIR_INDEX:
            return torch.cat([v + o for v, o in zip(values, start[Role.NODE], strict=False)], 1)
        if role is Role.BATCH:
            return torch.cat([v + o for v, o in zip(values, start[Role.GRAPH], strict=False)])
        return values[0] if role in (Role.SHARED, Role.COUNT) else torch.cat(values)

    baselines = [g.baseline for g in graphs if g.baseline is not None]
    return InstanceBatch(
        x=torch.cat([g.x for g in graphs]),
        edge_index=torch.cat([g.edge_index + o for g, o in zip(graphs, start[Role.NODE], strict=False)], 1),
        args={name: pack(name) for name in first.kwargs},
        roles=roles,
        ptr={role: torch.tensor(ptr, device=device) for role, ptr in start.items()},
        outputs=outputs,
        row=torch.cat([r + o for r, o in zip(row, start[outputs], strict=False)]),
        row_ptr=torch.tensor([0, *accumulate(r.numel() for r in row)], device=device),
        target=torch.cat(list(target)),
        node_id=torch.cat([torch.arange(n, device=device) for n in sizes[Role.NODE]]),
        edge_id=torch.cat([torch.arange(n, device=device) for n in sizes[Role.EDGE]]),
        hops=torch.zeros(start[Role.NODE][-1], dtype=torch.long, device=device),
        total=torch.tensor([g.total for g in graphs], device=device),
        baseline=torch.cat(baselines) if baselines else None,
    )


def repeat_rows(value: Tensor, times: int) -> Tensor:
    """``times`` copies, one below the other.

    >>> repeat_rows(torch.tensor([[1, 2], [3, 4]]), 2).tolist()
    [[1, 2], [3, 4], [1, 2], [3, 4]]
    """
    return value if times == 1 else value.repeat(times, *[1] * (value.dim() - 1))


def _any_member(group: Tensor, member: Tensor, groups: int) -> Tensor:
    """One arbitrary member of each group."""
    return torch.empty(groups, dtype=torch.long, device=group.device).scatter_(0, group, member)
