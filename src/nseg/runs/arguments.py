"""The model's arguments on the graph of a stored explanation, cut from those on the caller's graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError
from nseg.explanation import Explanation
from nseg.graphs.checks import find_pairs
from nseg.graphs.inputs import ModelInputs, Role, common_roles


class GraphArguments:
    """Cuts the arguments that a model takes to the edges and nodes of an explanation.

    Args:
        one: the explanation, without its graph.
        graph: the graph that was explained, also a :class:`nseg.LargeGraph`.
        given: arguments that are no attributes of the graph.
    """

    def __init__(self, one: Explanation, graph: Any, given: Mapping[str, Any]) -> None:
        self.one, self.graph, self.given = one, graph, given
        config = getattr(one, "_model_config", None)
        self.level = None if config is None else config.task_level

    @cached_property
    def small(self) -> Data:
        """The edges and nodes of the explanation; of a large graph, with all its attributes."""
        one, graph = self.one, self.graph
        if not isinstance(graph, Data):
            found: Data = graph.induced(one.node_id, one.edge_id)
            return found
        if one.edge_id.numel() and int(one.edge_id.max()) >= graph.num_edges:
            raise InputError(f"data must be what was explained (got too few edges for output {one.output_id}).")
        return Data(x=graph.x[one.node_id], edge_index=self._local(graph.edge_index[:, one.edge_id], "edges"))

    @property
    def whole(self) -> bool:
        """Whether the explanation covers the whole graph, with all its outputs."""
        one = self.one
        return bool(one.node_id.numel() == self.graph.num_nodes and one.edge_id.numel() == self.graph.num_edges)

    @property
    def pairs(self) -> Tensor | None:
        """The pairs of nodes that a link model scores, [2, P]."""
        return self._named_pairs[1]

    @cached_property
    def _named_pairs(self) -> tuple[str | None, Tensor | None]:
        """The argument that holds these pairs, and the pairs."""
        if self.level not in (None, ModelTaskLevel.edge):
            return None, None
        stored = getattr(self.one, "_stored_args", None) or ()
        attributes = self.graph.to_dict() if isinstance(self.graph, Data) else {}
        chosen = {**{name: attributes[name] for name in stored if name in attributes}, **self.given}
        if not chosen and self.level is ModelTaskLevel.edge and "edge_label_index" in attributes and not stored:
            chosen = {"edge_label_index": attributes["edge_label_index"]}
        return find_pairs(chosen, int(self.graph.num_nodes))

    def cut(self, names: Sequence[str]) -> dict[str, Any]:
        """The arguments of some names, on the explanation's own graph."""
        values = {name: self._whole_value(name) for name in names if name not in self.small}
        roles = self._roles(values)
        return {name: self._cut(values[name], roles[name]) if name in values else self.small[name] for name in names}

    def _whole_value(self, name: str) -> Any:
        """An argument on the caller's graph."""
        if name in self.given:
            return self.given[name]
        if isinstance(self.graph, Data) and self.graph.get(name) is not None:
            return self.graph[name]
        if name == "batch":  # added for models of whole graphs
            return torch.zeros(int(self.graph.num_nodes), dtype=torch.long)
        raise InputError(
            f"{name} must be known, because the model took it (got neither an attribute of data nor an argument of that "
            f"name). Pass it as to explain_many: attach(..., {name}=...)."
        )

    def _roles(self, values: Mapping[str, Any]) -> dict[str, Role]:
        if not values:
            return {}
        name, pairs = self._named_pairs
        pairs_name = name if name in values else None
        if pairs_name is not None:
            values = {**values, pairs_name: pairs}
        if isinstance(self.graph, Data):
            return common_roles([ModelInputs(self.graph.x, self.graph.edge_index, values, pairs_name)])
        alone = ModelInputs(torch.empty(0), torch.empty(2, 0, dtype=torch.long), values, pairs_name)
        return common_roles([alone])  # what belongs to nodes and edges is part of a large graph

    def _cut(self, value: Any, role: Role) -> Any:
        one = self.one
        if role is Role.NODE:
            return value[one.node_id]
        if role is Role.EDGE:
            return value[one.edge_id]
        if role is Role.BATCH:
            return value if self.whole else torch.zeros_like(value[one.node_id])
        number = int(one.output_id)
        if role not in (Role.PAIR, Role.PAIR_INDEX) or self._all_pairs:
            return value
        if role is Role.PAIR:
            return value[number : number + 1]
        assert self.pairs is not None
        return self._local(self.pairs[:, number : number + 1], "pairs")

    @property
    def _all_pairs(self) -> bool:
        """Whether the explanation has all outputs of the model, and not one pair only."""
        return self.pairs is not None and self.one.target.numel() == self.pairs.size(1)

    def _local(self, ends: Tensor, what: str) -> Tensor:
        """Positions of some nodes in the explanation."""
        ids = self.one.node_id
        position = torch.searchsorted(ids, ends.contiguous()).clamp(max=max(ids.numel() - 1, 0))
        if ends.numel() and not torch.equal(ids[position], ends):
            raise InputError(f"data must be what was explained (got other {what} around output {self.one.output_id}).")
        return position
