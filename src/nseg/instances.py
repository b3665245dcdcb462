"""Instances: B computation graphs, packed as one disjoint union.

An *instance* is what one explanation explains: some rows of the model's output (one node, one link, one graph, or
several of them with one common mask) together with the part of the input that these rows are computed from.

A graph of a million edges and a list of a thousand molecules become the same thing here, so that everything above
this file is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nseg.errors import InputError


class Role(Enum):
    """What the entries of a model argument stand for, hence how it is cut and packed."""

    NODE = "one entry per node"
    EDGE = "one entry per edge"
    GRAPH = "one entry per graph"
    PAIR = "one entry per explained pair of nodes"
    BATCH = "the graph of each node"
    PAIR_INDEX = "pairs of nodes, [2, P]"
    COUNT = "number of graphs"
    SHARED = "the same for all"


@dataclass(frozen=True)
class Inputs:
    """What the caller gives the model: ``model(x, edge_index, **kwargs)``.

    Args:
        x, edge_index, kwargs: as the model takes them.
        pairs_name: which argument holds the pairs of nodes that a link model scores, if one does.
        part_of: edges and nodes of the graph that this is a part of, if it is.
    """

    x: Tensor
    edge_index: Tensor
    kwargs: Mapping[str, Any]
    pairs_name: str | None = None
    part_of: tuple[int, int] | None = None

    @property
    def num_nodes(self) -> int:
        return self.x.size(0)

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)

    @property
    def num_graphs(self) -> int:
        batch = self.kwargs.get("batch")
        return int(batch.max()) + 1 if isinstance(batch, Tensor) and batch.numel() else 1

    @property
    def total(self) -> tuple[int, int]:
        """Edges and nodes of the caller's graph."""
        return self.part_of or (self.num_edges, self.num_nodes)

    @property
    def pairs(self) -> Tensor | None:
        """The pairs of nodes that a link model scores, [2, P]."""
        return None if self.pairs_name is None else self.kwargs[self.pairs_name]

    def roles(self, name: str) -> list[Role]:
        """What the entries of an argument may stand for, by its name and size, most likely first."""
        value = self.kwargs[name]
        if name == "batch_size":
            return [Role.COUNT]
        if not isinstance(value, Tensor) or value.dim() == 0:
            return [Role.SHARED]
        if name == "batch":
            return [Role.BATCH]
        if name == self.pairs_name:
            return [Role.PAIR_INDEX]
        sizes = {Role.EDGE: self.num_edges, Role.NODE: self.num_nodes, Role.GRAPH: self.num_graphs}
        if "batch" not in self.kwargs:
            del sizes[Role.GRAPH]
        if self.pairs is not None:
            sizes[Role.PAIR] = self.pairs.size(1)
        found = [role for role, size in sizes.items() if value.size(0) == size]
        if "edge" not in name and found[:2] == [Role.EDGE, Role.NODE]:
            found[:2] = [Role.NODE, Role.EDGE]
        return [*found, Role.SHARED]


def roles_in(graphs: Sequence[Inputs]) -> dict[str, Role]:
    """The role of each argument that fits all graphs."""
    found = {}
    for name in graphs[0].kwargs:
        possible = [g.roles(name) for g in graphs]
        found[name] = next((role for role in possible[0] if all(role in other for other in possible)), Role.SHARED)
    return found


def packable(graphs: Sequence[Inputs]) -> bool:
    """Whether graphs fit into one union: what they share is the same in all of them."""
    first = graphs[0]
    for name, role in roles_in(graphs).items():
        if role is Role.SHARED and not all(_equal(first.kwargs[name], g.kwargs[name]) for g in graphs):
            return False
    return True


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    return bool(a is b or (type(a) is type(b) and a == b))


def spread(ptr: Tensor, which: Tensor) -> tuple[Tensor, Tensor]:
    """Members of the groups ``which`` and the position in ``which`` that each belongs to.

    >>> spread(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0]))
    (tensor([2, 3, 4, 0, 1]), tensor([0, 0, 0, 1, 1]))
    """
    count = ptr[which + 1] - ptr[which]
    owner = torch.repeat_interleave(torch.arange(which.numel(), device=ptr.device), count)
    first = torch.cumsum(count, 0) - count
    within = torch.arange(owner.numel(), device=ptr.device) - first[owner]
    return ptr[which][owner] + within, owner


def pointers(count: Tensor) -> Tensor:
    """Cumulative counts with a leading zero.

    >>> pointers(torch.tensor([2, 0, 3]))
    tensor([0, 2, 2, 5])
    """
    return torch.cat([count.new_zeros(1), torch.cumsum(count, 0)])


@dataclass(frozen=True)
class Instances:
    """B instances as one disjoint union.

    Args:
        x: features, [N, ...].
        edge_index: edges, [2, E], in the numbering of the union.
        args: further model arguments, packed, by name.
        roles: the role of each argument.
        ptr: where each instance begins among the nodes, edges, graphs and pairs, each [B + 1].
        outputs: what one row of the model's output stands for (node, edge, pair or graph).
        row: explained rows of the output, [R].
        row_ptr: where each instance begins among the rows, [B + 1].
        target: explained class of each row, [R].
        node_id: the caller's number of each node, [N].
        edge_id: the caller's number of each edge, [E].
        hops: hops from each node to the nearest explained output, [N]; 0 where every node is taken to matter.
        total: edges and nodes of the caller's graph that each instance was cut from, [B, 2].
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

    def __len__(self) -> int:
        return self.row_ptr.numel() - 1

    def count(self, role: Role) -> int:
        """How many nodes, edges, graphs or pairs the union has."""
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
        return _owner(self.ptr[Role.NODE])

    @cached_property
    def edge_owner(self) -> Tensor:
        """Instance of each edge, [E]."""
        return _owner(self.ptr[Role.EDGE])

    @cached_property
    def row_owner(self) -> Tensor:
        """Instance of each explained row, [R]."""
        return _owner(self.row_ptr)

    @property
    def sizes(self) -> Tensor:
        """Nodes plus edges of each instance, [B]."""
        return self.ptr[Role.NODE].diff() + self.ptr[Role.EDGE].diff()

    def select(self, which: Tensor) -> Instances:
        """The instances ``which``, in that order."""
        return self._keep(which, {role: spread(ptr, which) for role, ptr in self.ptr.items()})

    def core(self, hops: int, receivers: Sequence[int]) -> Instances:
        """Only what can reach an explained output in ``hops`` steps.

        Args:
            hops: how many times the model passes messages.
            receivers: the rows of ``edge_index`` that messages go to: (1,) for PyG's usual flow.
        """
        node = (self.hops <= hops).nonzero().flatten()
        near = torch.stack([self.hops[self.edge_index[end]] for end in receivers]).amin(0)
        edge = (near < hops).nonzero().flatten()
        everything = torch.arange(len(self), device=node.device)
        members = {role: spread(ptr, everything) for role, ptr in self.ptr.items()}
        members[Role.NODE] = node, self.node_owner[node]
        members[Role.EDGE] = edge, self.edge_owner[edge]
        return self._keep(everything, members)

    def explained_graphs(self) -> Instances:
        """Only the graphs that are explained, where an instance holds several graphs."""
        batch = next((self.args[name] for name, role in self.roles.items() if role is Role.BATCH), None)
        if self.outputs is not Role.GRAPH or batch is None:
            return self
        graph = torch.unique(self.row)
        node = torch.isin(batch, graph).nonzero().flatten()
        edge = torch.isin(self.edge_index[0], node).nonzero().flatten()
        everything = torch.arange(len(self), device=node.device)
        members = {role: spread(ptr, everything) for role, ptr in self.ptr.items()}
        members[Role.GRAPH] = graph, _owner(self.ptr[Role.GRAPH])[graph]
        members[Role.NODE] = node, self.node_owner[node]
        members[Role.EDGE] = edge, self.edge_owner[edge]
        return self._keep(everything, members)

    def _keep(self, which: Tensor, members: dict[Role, tuple[Tensor, Tensor]]) -> Instances:
        """The instances ``which``, of each only the given (members, their position in ``which``), sorted by the latter."""
        kept = {role: member for role, (member, _) in members.items()}
        place = {role: _inverse(kept[role], self.count(role)) for role in kept}
        rows, _ = spread(self.row_ptr, which)

        def cut(name: str, value: Any) -> Any:
            role = self.roles[name]
            if role is Role.PAIR_INDEX:
                return place[Role.NODE][value[:, kept[Role.PAIR]]]
            if role is Role.BATCH:
                return place[Role.GRAPH][value[kept[Role.NODE]]]
            return value[kept[role]] if role in kept else value

        return replace(
            self,
            x=self.x[kept[Role.NODE]],
            edge_index=place[Role.NODE][self.edge_index[:, kept[Role.EDGE]]],
            args={name: cut(name, value) for name, value in self.args.items()},
            ptr={role: pointers(owner.bincount(minlength=which.numel())) for role, (_, owner) in members.items()},
            row=place[self.outputs][self.row[rows]],
            row_ptr=pointers(self.row_ptr.diff()[which]),
            target=self.target[rows],
            node_id=self.node_id[kept[Role.NODE]],
            edge_id=self.edge_id[kept[Role.EDGE]],
            hops=self.hops[kept[Role.NODE]],
            total=self.total[which],
        )

    def tile(self, worlds: int, leaf: int | None = None) -> Tile:
        """``worlds`` copies of the union, world after world.

        Args:
            worlds: K.
            leaf: nodes this many hops away or further only lend their features, which no world changes, so all worlds and
                instances may share one copy of each. None where worlds do change features.
        """
        number, device = self.num_nodes, self.x.device
        world = torch.arange(worlds, device=device).view(-1, 1)
        everything = torch.arange(number, device=device)
        if leaf is None:
            node = everything.repeat(worlds)
            place = everything.expand(worlds, -1) + world * number
        else:
            far = self.hops >= leaf
            inner = (~far).nonzero().flatten()
            pool, member = torch.unique(self.node_id[far], return_inverse=True)
            node = torch.cat([inner.repeat(worlds), _inverse_any(member, far.nonzero().flatten(), pool.numel())])
            place = torch.empty(worlds, number, dtype=torch.long, device=device)
            place[:, inner] = torch.arange(inner.numel(), device=device) + world * inner.numel()
            place[:, far] = worlds * inner.numel() + member

        def repeat(name: str, value: Any) -> Any:
            role = self.roles[name]
            if role is Role.SHARED:
                return value
            if role is Role.COUNT:
                return worlds * self.count(Role.GRAPH)
            if role is Role.NODE:
                return value[node]
            if role is Role.PAIR_INDEX:
                return place[:, value].transpose(0, 1).flatten(1)
            if role is Role.BATCH:
                return (value + world * self.count(Role.GRAPH)).flatten()
            return repeat_rows(value, worlds)

        inputs = Inputs(
            x=self.x[node],
            edge_index=place[:, self.edge_index].transpose(0, 1).flatten(1),
            kwargs={name: repeat(name, value) for name, value in self.args.items()},
        )
        rows = place[:, self.row] if self.outputs is Role.NODE else self.row + world * self.count(self.outputs)
        own = number if leaf is None else int(inner.numel())
        return Tile(inputs, rows, self.hops[node], self.node_id[node], own)

    def repeated(self, number: int) -> Instances:
        """All instances, and all of them again, so often."""
        tile = self.tile(number)
        return replace(
            self,
            x=tile.inputs.x,
            edge_index=tile.inputs.edge_index,
            args=dict(tile.inputs.kwargs),
            ptr={role: pointers(ptr.diff().repeat(number)) for role, ptr in self.ptr.items()},
            row=tile.rows.flatten(),
            row_ptr=pointers(self.row_ptr.diff().repeat(number)),
            target=self.target.repeat(number),
            node_id=tile.node_id,
            edge_id=self.edge_id.repeat(number),
            hops=tile.hops,
            total=self.total.repeat(number, 1),
        )

    def without_edges(self, inputs: Inputs) -> Inputs:
        """A tile's arguments with all edges taken out."""
        kwargs = {k: v[:0] if self.roles[k] is Role.EDGE else v for k, v in inputs.kwargs.items()}
        return replace(inputs, edge_index=inputs.edge_index[:, :0], kwargs=kwargs)

    def members(self, role: Role, number: int) -> slice:
        """Where the nodes, edges, graphs or pairs of one instance stand."""
        begin, end = self.ptr[role][number : number + 2].tolist()
        return slice(begin, end)

    def alone(self, number: int) -> tuple[Inputs, Tensor]:
        """One instance as its own graph, and the rows of the model's output on it that are explained."""
        nodes, edges = self.members(Role.NODE, number), self.members(Role.EDGE, number)

        def cut(name: str, value: Any) -> Any:
            role = self.roles[name]
            if role is Role.PAIR_INDEX:
                return value[:, self.members(Role.PAIR, number)] - nodes.start
            if role is Role.BATCH:
                return value[nodes] - self.members(Role.GRAPH, number).start
            return value[self.members(role, number)] if role in self.ptr else value

        inputs = Inputs(
            x=self.x[nodes],
            edge_index=self.edge_index[:, edges] - nodes.start,
            kwargs={name: cut(name, value) for name, value in self.args.items()},
        )
        begin, end = self.row_ptr[number : number + 2].tolist()
        return inputs, self.row[begin:end] - self.members(self.outputs, number).start

    @property
    def explained_nodes(self) -> Tensor | None:
        """The nodes that each explained row is read off, [1, R], or [2, R] for links; None for graphs."""
        if self.outputs is Role.GRAPH:
            return None
        if self.outputs is Role.NODE:
            return self.row.unsqueeze(0)
        pairs = (self.args[name] for name, role in self.roles.items() if role is Role.PAIR_INDEX)
        ends: Tensor = self.edge_index if self.outputs is Role.EDGE else next(pairs)
        return ends[:, self.row]

    @property
    def shareable(self) -> bool:
        """Whether nodes may be shared between instances: not if the model asks which graph each node is in."""
        return Role.BATCH not in self.roles.values()


@dataclass(frozen=True)
class Tile:
    """K worlds of all instances, ready for the model.

    Args:
        inputs: what the model is called with.
        rows: explained rows of its output, [K, R].
        hops: hops from each node to the nearest explained output.
        node_id: the caller's number of each node.
        own: how many nodes each world has for itself; those that all share stand behind them.
        hollow: whether the edges have been taken out of the inputs.
    """

    inputs: Inputs
    rows: Tensor
    hops: Tensor
    node_id: Tensor
    own: int
    hollow: bool = False


def repeat_rows(value: Tensor, times: int) -> Tensor:
    """``times`` copies below each other.

    >>> repeat_rows(torch.tensor([[1, 2], [3, 4]]), 2).tolist()
    [[1, 2], [3, 4], [1, 2], [3, 4]]
    """
    return value if times == 1 else value.repeat(times, *[1] * (value.dim() - 1))


def _inverse_any(group: Tensor, member: Tensor, groups: int) -> Tensor:
    """A member of each group, whichever."""
    return torch.empty(groups, dtype=torch.long, device=group.device).scatter_(0, group, member)


def _owner(ptr: Tensor) -> Tensor:
    return torch.repeat_interleave(torch.arange(ptr.numel() - 1, device=ptr.device), ptr.diff())


def _inverse(members: Tensor, size: int) -> Tensor:
    """Position of each member among ``members``; -1 for those left out."""
    place = torch.full((size,), -1, dtype=torch.long, device=members.device)
    place[members] = torch.arange(members.numel(), device=members.device)
    return place


MULTIPLICITY = 1 << 16  # most parallel edges between two nodes


def numbered_edges(edge_index: Tensor, size: int) -> Tensor:
    """A number for each edge that differs between parallel edges: the first, the second, ... between the same nodes."""
    if size * size >= (1 << 63) // MULTIPLICITY:
        raise InputError(
            f"A pass may hold at most {int(((1 << 63) // MULTIPLICITY) ** 0.5)} nodes (got {size}). Lower budget=..."
        )
    key = edge_index[0] * size + edge_index[1]
    order = torch.argsort(key, stable=True)
    _, count = torch.unique_consecutive(key[order], return_counts=True)
    first = torch.repeat_interleave(torch.cumsum(count, 0) - count, count)
    rank = torch.empty_like(key)
    rank[order] = torch.arange(key.numel(), device=key.device) - first
    return key * MULTIPLICITY + rank


def opposite(edge_index: Tensor, nodes: int) -> Tensor:
    """The edge that runs the other way, the first of several to the first, [E]; an edge without one is its own.

    >>> opposite(torch.tensor([[0, 1, 0], [1, 0, 2]]), 3)
    tensor([1, 0, 2])
    """
    place = torch.arange(edge_index.size(1), device=edge_index.device)
    forward, backward = numbered_edges(edge_index, nodes), numbered_edges(edge_index.flip(0), nodes)
    known, order = forward.sort()
    partner = torch.searchsorted(known, backward).clamp(max=max(known.numel() - 1, 0))
    return torch.where(known[partner] == backward, order[partner], place)


class Neighbours:
    """Incoming edges of each node (CSR), so that a computation graph costs what it holds, not what the graph holds."""

    def __init__(self, inputs: Inputs, receivers: Sequence[int]) -> None:
        edge_index, self.num_nodes, self.num_edges = inputs.edge_index, inputs.num_nodes, max(inputs.num_edges, 1)
        receiver = torch.cat([edge_index[end] for end in receivers])
        sender = torch.cat([edge_index[1 - end] for end in receivers])
        order = torch.argsort(receiver, stable=True)
        self.sender, self.edge = sender[order], order % self.num_edges
        self.ptr = pointers(receiver.bincount(minlength=self.num_nodes))

    def reach(self, node: Tensor, owner: Tensor, hops: int) -> tuple[Tensor, Tensor, Tensor]:
        """Everything that can reach the seeds in ``hops`` steps, for all owners at once.

        Args:
            node: seeds, [R].
            owner: instance of each seed, [R].
            hops: how many steps.

        Returns:
            nodes as ``owner * num_nodes + node``, sorted; their distance; edges as ``owner * num_edges + edge``, sorted.
        """
        seen = torch.unique(owner * self.num_nodes + node)
        frontier, found, distance, edges = seen, [seen], [torch.zeros_like(seen)], []
        for hop in range(1, hops + 1):
            entry, position = spread(self.ptr, frontier % self.num_nodes)
            holder = (frontier // self.num_nodes)[position]
            edges.append(holder * self.num_edges + self.edge[entry])
            frontier = torch.unique(holder * self.num_nodes + self.sender[entry])
            frontier = frontier[~torch.isin(frontier, seen)]
            seen = torch.cat([seen, frontier])
            found.append(frontier)
            distance.append(torch.full_like(frontier, hop))
        nodes, order = torch.cat(found).sort()
        return nodes, torch.cat(distance)[order], torch.unique(torch.cat([seen[:0], *edges]))


def _seeds(inputs: Inputs, outputs: Role, row: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """The nodes that explained rows are read off, and their instances."""
    if outputs is Role.NODE:
        return row, owner
    ends = inputs.edge_index if outputs is Role.EDGE else inputs.pairs
    assert ends is not None
    return ends[:, row].flatten(), owner.repeat(2)


def around(
    inputs: Inputs,
    outputs: Role,
    row: Tensor,
    owner: Tensor,
    target: Tensor,
    neighbours: Neighbours,
    hops: int,
) -> Instances:
    """Cut the computation graphs of nodes or links out of one graph.

    Args:
        inputs: the whole graph.
        outputs: what the model's rows stand for: NODE, EDGE or PAIR.
        row: explained rows of the model's output, [R].
        owner: instance of each row, sorted, [R].
        target: class of each row, [R].
        neighbours: the graph's incoming edges.
        hops: how far to go.
    """
    nodes, distance, edges = neighbours.reach(*_seeds(inputs, outputs, row, owner), hops)
    if outputs is Role.EDGE:  # the explained edges themselves must stay, whatever their direction
        edges = torch.unique(torch.cat([edges, owner * neighbours.num_edges + row]))
    number, size = int(owner.max()) + 1, inputs.num_nodes

    def local(holder: Tensor, node: Tensor) -> Tensor:
        return torch.searchsorted(nodes, (holder * size + node).contiguous())

    node_id, edge_owner, edge_id = nodes % size, edges // neighbours.num_edges, edges % neighbours.num_edges
    roles = roles_in([inputs])
    explained: dict[Role, Tensor] = {
        Role.NODE: local(owner, row) if outputs is Role.NODE else row,
        Role.EDGE: torch.searchsorted(edges, owner * neighbours.num_edges + row),
        Role.PAIR: torch.arange(row.numel(), device=row.device),
    }

    def cut(name: str, value: Any) -> Any:
        role = roles[name]
        if role is Role.NODE:
            return value[node_id]
        if role is Role.EDGE:
            return value[edge_id]
        if role is Role.PAIR:
            return value[row]
        if role is Role.PAIR_INDEX:
            return local(owner.expand(2, -1), value[:, row])
        return nodes // size if role is Role.BATCH else value

    counts = {
        Role.NODE: nodes // size,
        Role.EDGE: edge_owner,
        Role.PAIR: owner,
        Role.GRAPH: torch.arange(number, device=row.device),
    }
    return Instances(
        x=inputs.x[node_id],
        edge_index=local(edge_owner.expand(2, -1), inputs.edge_index[:, edge_id]),
        args={name: cut(name, value) for name, value in inputs.kwargs.items()},
        roles=roles,
        ptr={role: pointers(holder.bincount(minlength=number)) for role, holder in counts.items()},
        outputs=outputs,
        row=explained[outputs],
        row_ptr=pointers(owner.bincount(minlength=number)),
        target=target,
        node_id=node_id,
        edge_id=edge_id,
        hops=distance,
        total=torch.tensor([inputs.total], device=row.device).expand(number, 2),
    )


def whole(graphs: Sequence[Inputs], outputs: Role, row: Sequence[Tensor], target: Sequence[Tensor]) -> Instances:
    """Whole graphs, one per instance, with the explained rows of each and their classes."""
    first = graphs[0]
    roles = roles_in(graphs)
    device = first.x.device

    def per_graph(size: Any) -> Tensor:
        return torch.tensor([size(g) for g in graphs], device=device)

    ptr = {
        Role.NODE: pointers(per_graph(lambda g: g.num_nodes)),
        Role.EDGE: pointers(per_graph(lambda g: g.num_edges)),
        Role.GRAPH: pointers(per_graph(lambda g: g.num_graphs)),
        Role.PAIR: pointers(per_graph(lambda g: 0 if g.pairs is None else g.pairs.size(1))),
    }

    def cat(name: str) -> Any:
        role, values = roles[name], [g.kwargs[name] for g in graphs]
        if role is Role.PAIR_INDEX:
            return torch.cat([v + o for v, o in zip(values, ptr[Role.NODE], strict=False)], 1)
        if role is Role.BATCH:
            return torch.cat([v + o for v, o in zip(values, ptr[Role.GRAPH], strict=False)])
        return values[0] if role in (Role.SHARED, Role.COUNT) else torch.cat(values)

    nodes, edges = ptr[Role.NODE].diff(), ptr[Role.EDGE].diff()
    return Instances(
        x=torch.cat([g.x for g in graphs]),
        edge_index=torch.cat([g.edge_index + o for g, o in zip(graphs, ptr[Role.NODE], strict=False)], 1),
        args={name: cat(name) for name in first.kwargs},
        roles=roles,
        ptr=ptr,
        outputs=outputs,
        row=torch.cat([r + o for r, o in zip(row, ptr[outputs], strict=False)]),
        row_ptr=pointers(torch.tensor([r.numel() for r in row], device=device)),
        target=torch.cat(list(target)),
        node_id=torch.cat([torch.arange(int(n), device=device) for n in nodes]),
        edge_id=torch.cat([torch.arange(int(n), device=device) for n in edges]),
        hops=torch.zeros(int(nodes.sum()), dtype=torch.long, device=device),
        total=torch.tensor([g.total for g in graphs], device=device),
    )
