"""Graphs without some of their nodes: these are deleted with their edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import ModelInputs, Role


def kept_nodes(instances: InstanceBatch, factor: Tensor) -> Tensor:
    """Nodes that are left if those of factor 0 [K, N, 1] are deleted, [K, N].

    An explained node, an end of an explained link and the first node of a graph of which no other is left stay, or there
    would be no output; only their features are taken away.
    """
    keep = factor.squeeze(-1) > 0.5
    explained = instances.explained_nodes
    if explained is not None:
        keep[:, explained.flatten()] = True
        return keep
    owner = instances.node_owner
    left = torch.zeros(len(keep), len(instances), dtype=torch.long, device=keep.device).index_add(1, owner, keep.long())
    first = torch.cat([owner.new_ones(1, dtype=torch.bool), owner[1:] != owner[:-1]]) if len(owner) else owner.bool()
    return keep | (first & (left == 0)[:, owner])


def without_nodes(
    inputs: ModelInputs, rows: Tensor, keep: Tensor, roles: Mapping[str, Role], outputs: Role
) -> tuple[ModelInputs, Tensor]:
    """The arguments of a call without some nodes and their edges, and the explained rows of its output.

    Args:
        inputs: arguments of the call.
        rows: explained rows of its output.
        keep: which nodes stay, [N].
        roles: what the entries of each argument stand for.
        outputs: what the rows of the output stand for.
    """
    number = torch.cumsum(keep, 0) - 1  # new number of each kept node
    edge = keep[inputs.edge_index].all(0)

    def cut(name: str, value: Any) -> Any:
        role = roles[name]
        if role is Role.PAIR_INDEX:
            return number.clamp_min(0)[value]  # ends of pairs that are not explained may be gone; nobody reads their rows
        if role in (Role.NODE, Role.BATCH):
            return value[keep]
        return value[edge] if role is Role.EDGE else value

    if outputs is Role.NODE:
        rows = number[rows]
    elif outputs is Role.EDGE:
        rows = (torch.cumsum(edge, 0) - 1)[rows]
    smaller = replace(
        inputs,
        x=inputs.x[keep],
        edge_index=number[inputs.edge_index[:, edge]],
        kwargs={name: cut(name, value) for name, value in inputs.kwargs.items()},
    )
    return smaller, rows
