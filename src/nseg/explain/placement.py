"""Masks of answers on other graphs that hold the same instances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.graphs.inputs import EDGE_KIND
from nseg.graphs.subgraph import reverse_edges
from nseg.model.causal import CausalModel
from nseg.search.feature_parts import edge_types
from nseg.search.parts import ATTRIBUTES, EDGES, NODES, Masks

if TYPE_CHECKING:
    from nseg.explain.answers import BatchAnswer


class Placement:
    """Where the edges and nodes of some answers stand in a reference.

    Args:
        reference: a causal model with an instance for each of these answers.
        answer: explanations of B instances.
        which: which of them, [b].
    """

    def __init__(self, reference: CausalModel, answer: BatchAnswer, which: Tensor) -> None:
        self.there, self.dtype, self.answer, self.which = reference.instances, reference.dtype, answer, which
        self.all = len(which) == len(answer.instances)
        self.here = answer.instances if self.all else answer.instances.select(which)
        self._at: dict[bool, Tensor] = {}

    def masks(self, masks: Masks) -> Masks:
        """Masks of B answers, on the edges and nodes of the reference."""
        answer, there, found = self.answer, self.there, Masks()
        if EDGES in masks:
            found[EDGES] = self._place(masks[EDGES], edges=True)
            ties = answer.ties[self.which][there.edge_owner]
            if bool(ties.any()):  # as on an explanation
                reverse = reverse_edges(there.edge_index, there.num_nodes, there.args.get(EDGE_KIND))
                found[EDGES] = torch.where(ties, torch.maximum(found[EDGES], found[EDGES][reverse]), found[EDGES])
        if ATTRIBUTES in masks:
            common, values = answer.attributes is MaskType.common_attributes, masks[ATTRIBUTES]
            found[ATTRIBUTES] = self._common(values, edge_types(self.here)) if common else self._place(values, edges=True)
        if NODES in masks and answer.common:
            found[NODES] = self._common(masks[NODES], self.here.node_types)
        elif NODES in masks:
            found[NODES] = self._place(masks[NODES], edges=False)
        return found.map(lambda mask: mask.to(self.dtype))

    def _common(self, values: Tensor, types: int) -> Tensor:
        """Values of columns that all nodes or edges of a type share, [b * types, F]."""
        return values.view(-1, types, values.size(1))[self.which].flatten(0, 1)

    def _place(self, values: Tensor, edges: bool) -> Tensor:
        """Values of the edges or nodes of B answers, on those of the reference; 0 for others."""
        if not self.all:
            owner = self.answer.instances.edge_owner if edges else self.answer.instances.node_owner
            values = values[torch.isin(owner, self.which)]
        if edges not in self._at:
            self._at[edges] = self._positions(edges)
        number = self.there.num_edges if edges else self.there.num_nodes
        return values.new_zeros(number, *values.shape[1:]).index_copy(0, self._at[edges], values)

    def _positions(self, edges: bool) -> Tensor:
        """Position of each edge or node in the reference, which has the same instances with more of them."""
        here, there = self.here, self.there
        ids, owner = (here.edge_id, here.edge_owner) if edges else (here.node_id, here.node_owner)
        other_ids, other_owner = (there.edge_id, there.edge_owner) if edges else (there.node_id, there.node_owner)
        most = int(max(ids.max() if ids.numel() else 0, other_ids.max() if other_ids.numel() else 0)) + 1
        return torch.searchsorted(other_owner * most + other_ids, owner * most + ids)
