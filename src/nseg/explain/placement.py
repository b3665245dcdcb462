"""Masks of answers on other graphs that hold the same instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.graphs.batch import group_members
from nseg.graphs.inputs import EDGE_KIND, Role
from nseg.graphs.subgraph import reverse_edges
from nseg.model.causal import CausalModel
from nseg.search.feature_parts import edge_types
from nseg.search.parts import ATTRIBUTES, EDGES, NODES, Masks

if TYPE_CHECKING:
    from nseg.explain.answers import BatchAnswer


class _Positions(NamedTuple):
    """The edges or nodes of some answers.

    Attributes:
        members: their positions among those of all answers; None if it is all of them.
        at: their positions in the reference; None if it has no others.
    """

    members: Tensor | None
    at: Tensor | None


class Placement:
    """Where the edges and nodes of some answers stand in a reference.

    Args:
        reference: a causal model with an instance for each of these answers.
        answer: explanations of B instances.
        which: which of them, [b].
    """

    def __init__(self, reference: CausalModel, answer: BatchAnswer, which: Tensor) -> None:
        self.there, self.dtype, self.answer, self.which = reference.instances, reference.dtype, answer, which
        self._known: dict[Role, _Positions] = {}

    def masks(self, masks: Masks) -> Masks:
        """Masks of B answers, on the edges and nodes of the reference."""
        answer, there, found = self.answer, self.there, Masks()
        if EDGES in masks:
            found[EDGES] = self._place(masks[EDGES], Role.EDGE)
            ties = answer.ties[self.which]
            if self._positions(Role.EDGE).at is not None and bool(ties.any()):  # as on an explanation
                ties = ties[there.edge_owner]
                reverse = reverse_edges(there.edge_index, there.num_nodes, there.args.get(EDGE_KIND))
                found[EDGES] = torch.where(ties, torch.maximum(found[EDGES], found[EDGES][reverse]), found[EDGES])
        if ATTRIBUTES in masks:
            common, values = answer.attributes is MaskType.common_attributes, masks[ATTRIBUTES]
            found[ATTRIBUTES] = self._common(values, edge_types(there)) if common else self._place(values, Role.EDGE)
        if NODES in masks and answer.common:
            found[NODES] = self._common(masks[NODES], there.node_types)
        elif NODES in masks:
            found[NODES] = self._place(masks[NODES], Role.NODE)
        return found.map(lambda mask: mask.to(self.dtype))

    def _common(self, values: Tensor, types: int) -> Tensor:
        """Values of columns that all nodes or edges of a type share, [b * types, F]."""
        return values.view(-1, types, values.size(1))[self.which].flatten(0, 1)

    def _place(self, values: Tensor, role: Role) -> Tensor:
        """Values of the edges or nodes of B answers, on those of the reference; 0 for others."""
        members, at = self._positions(role)
        values = values if members is None else values.index_select(0, members)
        if at is None:
            return values
        return values.new_zeros(self.there.count(role), *values.shape[1:]).index_copy(0, at, values)

    def _positions(self, role: Role) -> _Positions:
        if role not in self._known:
            self._known[role] = self._find_positions(role)
        return self._known[role]

    def _find_positions(self, role: Role) -> _Positions:
        """Where the edges or nodes stand in the reference, which has the same instances with more of them."""
        here, there = self.answer.instances, self.there
        members, owner = None, here.edge_owner if role is Role.EDGE else here.node_owner
        if len(self.which) < len(here):
            members, owner = group_members(here.ptr[role], self.which)
        if len(owner) == there.count(role):  # those of an instance are sorted, so they are the same
            return _Positions(members, None)
        ids, other_ids = (here.edge_id, there.edge_id) if role is Role.EDGE else (here.node_id, there.node_id)
        ids = ids if members is None else ids[members]
        other_owner = there.edge_owner if role is Role.EDGE else there.node_owner
        most = int(max(ids.max() if ids.numel() else 0, other_ids.max() if other_ids.numel() else 0)) + 1
        return _Positions(members, torch.searchsorted(other_owner * most + other_ids, owner * most + ids))
