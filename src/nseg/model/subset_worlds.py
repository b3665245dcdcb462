"""Worlds in which some elements of a mask are kept and all others are not: what hard explanations are judged in.

They are given as subsets, one byte per element, and turned into weights of edges and nodes only where a pass needs these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import Role
from nseg.model.kernel import load_kernel

EDGES, NODES, OUTSIDE = "edges", "nodes", "outside"
"""Names of weights that every pass knows: of edges, of the features of nodes, of the edges outside the instances."""


@dataclass(frozen=True)
class CoveredWeights:
    """The weights that the elements of a part of a mask cover.

    Args:
        element: number of the element that each weight is that of: [E] for edges, [N, 1] or [N, F] for nodes. Elements are
            numbered part after part, and within a part instance after instance.
        ptr: number of each instance's first element in this part, [B + 1].
    """

    element: Tensor
    ptr: Tensor


@dataclass(frozen=True)
class SubsetWorlds:
    """K = P * W worlds: W for each of P subsets, one after the other.

    Args:
        kept: the subsets, [P, n], bool.
        parts: what the elements cover, by part.
        keeps: for each of the W worlds of a subset and each part, whether the subset is kept; else all other elements are.
        outside: for each of the W worlds, whether what is outside the instances stays, by the name of its weight.
    """

    kept: Tensor
    parts: Mapping[str, CoveredWeights]
    keeps: Sequence[Sequence[bool]]
    outside: Mapping[str, Sequence[bool]]

    def __len__(self) -> int:
        return len(self.kept) * len(self.keeps)

    def weights(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """The weights of each part in all worlds, [K, ...]; and of what is outside, [K]."""
        found = {}
        for number, (name, part) in enumerate(self.parts.items()):
            mine = self.kept.index_select(1, part.element.flatten()).view(len(self.kept), *part.element.shape)
            worlds = [mine if kept[number] else ~mine for kept in self.keeps]
            found[name] = torch.stack(worlds, 1).flatten(0, 1).to(dtype)
        for name, stays in self.outside.items():
            found[name] = torch.tensor(stays, dtype=dtype, device=self.kept.device).repeat(len(self.kept))
        return found


def count_kept(kept: Tensor, parts: Iterable[CoveredWeights]) -> Tensor:
    """Number of elements of each instance in each of P subsets [P, n], [P, B]."""
    kernel, total = load_kernel(torch.float32) if kept.device.type == "cpu" else None, None
    for part in parts:
        number = len(part.ptr) - 1
        total = torch.zeros(len(kept), number, dtype=torch.long, device=kept.device) if total is None else total
        if kernel is None:
            owner = torch.arange(number, device=kept.device).repeat_interleave(part.ptr.diff())
            total.index_add_(1, owner, kept[:, int(part.ptr[0]) : int(part.ptr[-1])].long())
        else:
            kept, ptr = kept.contiguous(), part.ptr.contiguous()
            kernel.count_kept(kept.data_ptr(), *kept.shape, ptr.data_ptr(), number, total.data_ptr())
    assert total is not None
    return total


def random_worlds(instances: InstanceBatch, edges: bool, nodes: bool, outside: bool) -> SubsetWorlds:
    """Worlds to verify compiled passes with: elements are all edges and nodes; one subset is given twice."""
    count = {EDGES: instances.num_edges * edges, NODES: instances.num_nodes * nodes}
    share = torch.tensor([[1.0], [0.9], [0.5], [0.5], [0.1], [0.0]])
    kept = torch.rand(len(share), sum(count.values()), generator=torch.Generator().manual_seed(0)) < share
    parts = {}
    if edges:
        parts[EDGES] = CoveredWeights(torch.arange(count[EDGES]), instances.ptr[Role.EDGE])
    if nodes:
        element = torch.arange(count[EDGES], kept.size(1)).unsqueeze(1)
        parts[NODES] = CoveredWeights(element, instances.ptr[Role.NODE] + count[EDGES])
    keeps = [[True] * len(parts), [False] * len(parts)]
    return SubsetWorlds(torch.cat([kept, kept[1:2]]), parts, keeps, {OUTSIDE: [False, True]} if outside else {})


def random_weights(instances: InstanceBatch, edges: bool, nodes: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    """Weights of edges and nodes between 0 and 1 to verify compiled passes with, in a few worlds."""
    rng, outside = torch.Generator().manual_seed(0), torch.tensor([0, 1, 1], dtype=dtype)
    shapes = {EDGES: (instances.num_edges,) * edges, NODES: (instances.num_nodes, 1) * nodes}
    found = {name: torch.rand(len(outside), *shape, generator=rng, dtype=dtype) for name, shape in shapes.items() if shape}
    return {**found, OUTSIDE: outside}
