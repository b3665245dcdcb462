"""The one cutter of subgraphs, for graphs in memory and on disk.

Incoming edges are stored per receiver (CSR), so cutting a subgraph costs what it holds, not what the graph holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.graphs.batch import InstanceBatch, group_members, offsets
from nseg.graphs.inputs import ModelInputs, Role, common_roles

MAX_PARALLEL_EDGES = 1 << 16  # between the same two nodes


def edge_keys(edge_index: Tensor, nodes: int) -> Tensor:
    """One key per edge; parallel edges differ: the first, the second, ... between the same nodes."""
    if nodes * nodes >= (1 << 63) // MAX_PARALLEL_EDGES:
        raise InputError(
            f"A forward pass may hold at most {int(((1 << 63) // MAX_PARALLEL_EDGES) ** 0.5)} nodes (got {nodes}). "
            "Lower budget=..."
        )
    key = edge_index[0] * nodes + edge_index[1]
    order = torch.argsort(key, stable=True)
    _, count = torch.unique_consecutive(key[order], return_counts=True)
    first = torch.repeat_interleave(torch.cumsum(count, 0) - count, count)
    rank = torch.empty_like(key)
    rank[order] = torch.arange(key.numel(), device=key.device) - first
    return key * MAX_PARALLEL_EDGES + rank


def reverse_edges(edge_index: Tensor, nodes: int, kind: Tensor | None = None) -> Tensor:
    """Position of each edge's reverse, [E]; an edge without a reverse gets its own position.

    Args:
        edge_index: edges, [2, E].
        nodes: number of nodes.
        kind: kind of each edge, [E]; an edge and its reverse are of one kind.

    >>> reverse_edges(torch.tensor([[0, 1, 0], [1, 0, 2]]), 3)
    tensor([1, 0, 2])
    """
    position = torch.arange(edge_index.size(1), device=edge_index.device)
    if kind is not None and kind.numel():
        kinds = int(kind.max()) + 1
        edge_index, nodes = edge_index * kinds + kind, nodes * kinds
    forward, backward = (ends[0] * nodes + ends[1] for ends in (edge_index, edge_index.flip(0)))
    known, order = forward.sort()
    if bool((known[1:] == known[:-1]).any()):  # parallel edges
        forward, backward = edge_keys(edge_index, nodes), edge_keys(edge_index.flip(0), nodes)
        known, order = forward.sort()
    partner = torch.searchsorted(known, backward).clamp(max=max(known.numel() - 1, 0))
    return torch.where(known[partner] == backward, order[partner], position)


@dataclass(frozen=True)
class Neighbourhood:
    """Everything that reaches some seeds within ``hops`` steps, for several instances at once.

    A key is ``owner * num_nodes + node``.

    Args:
        hops: number of steps.
        nodes: keys of the nodes, sorted, [n].
        distance: hops from each of them to the nearest seed, [n].
        frontier: keys of the nodes that the last step found.
        entry: positions in the CSR arrays of the edges that were followed, [m].
        owner, receiver: instance and receiving node of each, [m].
    """

    hops: int
    nodes: Tensor
    distance: Tensor
    frontier: Tensor
    entry: Tensor
    owner: Tensor
    receiver: Tensor


class IncomingEdges:
    """Incoming edges of each node (CSR).

    Args:
        ptr: offset of each node's incoming edges, [N + 1].
        sender: other end of each edge, sorted by receiver, [E].
        edge: the caller's number of each edge, [E].
        num_edges: number of different edges.
        limit: most incoming edges of a node that are followed, evenly spread over them; None follows all.
    """

    def __init__(self, ptr: Tensor, sender: Tensor, edge: Tensor, num_edges: int, limit: int | None = None) -> None:
        self.ptr, self.sender, self.edge, self.limit = ptr, sender, edge, limit
        self.num_nodes, self.num_edges = ptr.numel() - 1, max(num_edges, 1)

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, nodes: int, receivers: Sequence[int] = (1,)) -> IncomingEdges:
        """Sort the edges of a graph in memory by receiver.

        Args:
            edge_index: edges, [2, E].
            nodes: number of nodes.
            receivers: rows of ``edge_index`` that messages go to: (1,) for PyG's default flow.
        """
        receiver = torch.cat([edge_index[end] for end in receivers])
        sender = torch.cat([edge_index[1 - end] for end in receivers])
        order = torch.argsort(receiver, stable=True)
        edges = edge_index.size(1)
        return cls(offsets(receiver.bincount(minlength=nodes)), sender[order], order % max(edges, 1), edges)

    @property
    def degree(self) -> Tensor:
        """Number of incoming edges of each node, [N]."""
        return self.ptr.diff()

    def reach(self, node: Tensor, owner: Tensor, hops: int) -> Neighbourhood:
        """Everything that reaches the seeds in ``hops`` steps.

        Args:
            node: seeds, [R].
            owner: instance of each seed, [R].
            hops: number of steps.
        """
        found = self.start(node, owner)
        for _ in range(hops):
            found = self.widen(found)
        return found

    def start(self, node: Tensor, owner: Tensor) -> Neighbourhood:
        """The seeds alone."""
        seeds = torch.unique(owner * self.num_nodes + node)
        none = seeds[:0]
        return Neighbourhood(0, seeds, torch.zeros_like(seeds), seeds, none, none, none)

    def widen(self, found: Neighbourhood) -> Neighbourhood:
        """The same neighbourhood, one hop wider."""
        node = found.frontier % self.num_nodes
        entry, position = self.entries(node, self.limit)
        owner = (found.frontier // self.num_nodes)[position]
        reached = torch.unique(owner * self.num_nodes + self.senders(entry))
        new = reached[~torch.isin(reached, found.nodes)]
        nodes, order = torch.cat([found.nodes, new]).sort()
        distance = torch.cat([found.distance, torch.full_like(new, found.hops + 1)])[order]
        return Neighbourhood(
            found.hops + 1,
            nodes,
            distance,
            new,
            torch.cat([found.entry, entry]),
            torch.cat([found.owner, owner]),
            torch.cat([found.receiver, node[position]]),
        )

    def next_edges(self, found: Neighbourhood) -> int:
        """Number of edges that :meth:`widen` would add."""
        begin, end = self.ranges(found.frontier % self.num_nodes)
        count = end - begin
        return int((count if self.limit is None else count.clamp(max=self.limit)).sum())

    def ranges(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """Where the incoming edges of some nodes begin and end."""
        return self.ptr[node], self.ptr[node + 1]

    def senders(self, entry: Tensor) -> Tensor:
        """Senders of the edges at some positions."""
        return self.sender[entry]

    def entries(self, node: Tensor, limit: int | None) -> tuple[Tensor, Tensor]:
        """Positions of the incoming edges of some nodes, and for each position its place in ``node``."""
        begin, end = self.ranges(node)
        degree = end - begin
        count = degree if limit is None else degree.clamp(max=limit)
        within, owner = group_members(offsets(count), torch.arange(node.numel(), device=node.device))
        within = within - offsets(count)[owner]
        return begin[owner] + within * degree[owner] // count[owner].clamp(min=1), owner


class TargetCuts:
    """Subgraphs around explained outputs, one per instance: cut once, widened when more hops are asked for.

    Args:
        inputs: the whole graph.
        outputs: what the rows of the model's output stand for: NODE, EDGE or PAIR; graphs are never cut.
        row: explained rows, [R].
        owner: instance of each row, sorted, [R].
        target: class of each row, [R].
        incoming: the graph's incoming edges.
    """

    def __init__(
        self, inputs: ModelInputs, outputs: Role, row: Tensor, owner: Tensor, target: Tensor, incoming: IncomingEdges
    ) -> None:
        self.inputs, self.outputs, self.row, self.owner, self.target = inputs, outputs, row, owner, target
        self.incoming = incoming
        self._found: list[Neighbourhood] = []  # by number of hops
        self._batches: dict[int, InstanceBatch] = {}

    def at(self, hops: int) -> InstanceBatch:
        """The subgraphs that are ``hops`` hops wide."""
        if not self._found:
            self._found.append(self.incoming.start(*self._seeds()))
        while len(self._found) <= hops:
            self._found.append(self.incoming.widen(self._found[-1]))
        if hops not in self._batches:
            self._batches[hops] = self._pack(self._found[hops])
        return self._batches[hops]

    def _seeds(self) -> tuple[Tensor, Tensor]:
        """The nodes that the explained rows are computed for, and their instances."""
        if self.outputs is Role.NODE:
            return self.row, self.owner
        ends = self.inputs.edge_index if self.outputs is Role.EDGE else self.inputs.pairs
        assert ends is not None
        return ends[:, self.row].flatten(), self.owner.repeat(2)

    def _pack(self, found: Neighbourhood) -> InstanceBatch:
        inputs, row, owner, incoming = self.inputs, self.row, self.owner, self.incoming
        nodes, edges = found.nodes, torch.unique(found.owner * incoming.num_edges + incoming.edge[found.entry])
        if self.outputs is Role.EDGE:  # the explained edges stay, whatever their direction
            edges = torch.unique(torch.cat([edges, owner * incoming.num_edges + row]))
        number, size = int(owner.max()) + 1, inputs.num_nodes
        node_id, edge_owner, edge_id = nodes % size, edges // incoming.num_edges, edges % incoming.num_edges

        def local(holder: Tensor, node: Tensor) -> Tensor:
            return torch.searchsorted(nodes, (holder * size + node).contiguous())

        owners = {
            Role.NODE: nodes // size,
            Role.EDGE: edge_owner,
            Role.PAIR: owner,
            Role.GRAPH: torch.arange(number, device=row.device),
        }
        explained: dict[Role, Tensor] = {
            Role.NODE: local(owner, row) if self.outputs is Role.NODE else row,
            Role.EDGE: torch.searchsorted(edges, owner * incoming.num_edges + row),
            Role.PAIR: torch.arange(row.numel(), device=row.device),
        }
        roles = common_roles([inputs])

        def cut(name: str, value: Any) -> Any:
            kept = {Role.NODE: node_id, Role.EDGE: edge_id, Role.PAIR: row}
            role = roles[name]
            if role is Role.PAIR_INDEX:
                return local(owner.expand(2, -1), value[:, row])
            if role is Role.BATCH:
                return owners[Role.NODE]
            return value[kept[role]] if role in kept else value

        return InstanceBatch(
            x=inputs.x[node_id],
            edge_index=local(edge_owner.expand(2, -1), inputs.edge_index[:, edge_id]),
            args={name: cut(name, value) for name, value in inputs.kwargs.items()},
            roles=roles,
            ptr={role: offsets(holder.bincount(minlength=number)) for role, holder in owners.items()},
            outputs=self.outputs,
            row=explained[self.outputs],
            row_ptr=offsets(owner.bincount(minlength=number)),
            target=self.target,
            node_id=node_id,
            edge_id=edge_id,
            hops=found.distance,
            total=torch.tensor([inputs.total], device=row.device).expand(number, 2),
            baseline=None if inputs.baseline is None else inputs.baseline[node_id],
        )
