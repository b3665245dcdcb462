"""What a person changes in a graph: edges off and on, new edges, nodes without features, other values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.graphs.inputs import ModelInputs, Role

Pair = tuple[int, int]

MAX_EDITS = 10_000
"""Maximum number of changes of one graph."""


@dataclass(frozen=True)
class GraphEdits:
    """Changes of a graph, by the numbers of its nodes and features.

    Args:
        removed: pairs of nodes whose edges are deleted, in both directions.
        added: pairs of nodes that are joined, in both directions.
        hidden: nodes whose features are all set to 0.
        values: values of single features, by node and feature; they count for hidden nodes too.
    """

    removed: frozenset[Pair] = frozenset()
    added: frozenset[Pair] = frozenset()
    hidden: frozenset[int] = frozenset()
    values: Mapping[Pair, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.removed) + len(self.added) + len(self.hidden) + len(self.values)

    @property
    def nodes(self) -> frozenset[int]:
        """All nodes that the changes name."""
        ends = {n for pair in (*self.removed, *self.added) for n in pair}
        return frozenset(ends | self.hidden | {n for n, _ in self.values})

    @classmethod
    def from_plain(cls, plain: Any) -> GraphEdits:
        """Changes from JSON data, checked.

        >>> GraphEdits.from_plain({"removed": [[2, 1]], "values": [[0, 3, 0.5]]}).removed
        frozenset({(1, 2)})
        """
        try:
            found = cls(
                removed=frozenset(_pair(one) for one in plain.get("removed", ())),
                added=frozenset(_pair(one) for one in plain.get("added", ())),
                hidden=frozenset(_whole(one) for one in plain.get("hidden", ())),
                values={(_whole(n), _whole(f)): _finite(v) for n, f, v in plain.get("values", ())},
            )
        except (AttributeError, TypeError, ValueError):
            raise InputError(
                "Changes must be lists: removed and added of pairs of nodes, hidden of nodes, values of node, feature and "
                "number (got something else)."
            ) from None
        if len(found) > MAX_EDITS:
            raise InputError(f"At most {MAX_EDITS} changes can be made at once (got {len(found)}).")
        return found

    def to_plain(self) -> dict[str, Any]:
        """The changes as JSON data; :meth:`from_plain` reads it."""
        return {
            "removed": sorted(map(list, self.removed)),
            "added": sorted(map(list, self.added)),
            "hidden": sorted(self.hidden),
            "values": [[n, f, value] for (n, f), value in sorted(self.values.items())],
        }

    def renumbered(self, numbers: Mapping[int, int]) -> GraphEdits:
        """The same changes in other numbers of nodes; changes of nodes without a number are left out."""

        def pairs(given: frozenset[Pair]) -> frozenset[Pair]:
            inside = [(numbers[a], numbers[b]) for a, b in given if a in numbers and b in numbers]
            return frozenset((min(pair), max(pair)) for pair in inside)

        return GraphEdits(
            pairs(self.removed),
            pairs(self.added),
            frozenset(numbers[n] for n in self.hidden if n in numbers),
            {(numbers[n], f): value for (n, f), value in self.values.items() if n in numbers},
        )


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(float(value)):
        raise ValueError
    return float(value)


def _pair(value: Any) -> Pair:
    a, b = map(_whole, value)
    return min(a, b), max(a, b)


def check_edits(edits: GraphEdits, num_nodes: int, x: Tensor) -> None:
    """Raise unless the changes name nodes and features that exist."""
    features = {f for _, f in edits.values}
    if edits.nodes and max(edits.nodes) >= num_nodes:
        raise InputError(f"Changes must name nodes from 0 to {num_nodes - 1} (got {max(edits.nodes)}).")
    if features and (x.dim() != 2 or max(features) >= x.size(1)):
        raise InputError(f"Changes must name features from 0 to {x.size(-1) - 1} (got {max(features)}).")


def changed_inputs(inputs: ModelInputs, edits: GraphEdits) -> ModelInputs:
    """A graph after some changes.

    New edges get attributes of 1 if the model takes one number per edge; if it takes several, no edge can be added.
    """
    check_edits(edits, inputs.num_nodes, inputs.x)
    x, keep = inputs.x, ~_edge_mask(inputs, edits.removed)
    if edits.hidden or edits.values:
        x = x.clone()
        x[sorted(edits.hidden)] = 0
        for (node, feature), value in edits.values.items():
            x[node, feature] = value
    new = torch.tensor(sorted(edits.added), dtype=torch.long, device=x.device).view(-1, 2).T
    new = torch.cat([new, new.flip(0)[:, new[0] != new[1]]], 1)

    def per_edge(name: str) -> Any:
        value = inputs.kwargs[name]
        if inputs.possible_roles(name)[0] is not Role.EDGE:
            return value
        if new.size(1) and value.dim() > 1:
            raise InputError(f"No edge can be added, because the model takes several numbers per edge ({name}).")
        return torch.cat([value[keep], value.new_ones(new.size(1), *value.shape[1:])])

    kwargs = {name: per_edge(name) for name in inputs.kwargs}
    return replace(inputs, x=x, edge_index=torch.cat([inputs.edge_index[:, keep], new], 1), kwargs=kwargs)


def _edge_mask(inputs: ModelInputs, pairs: frozenset[Pair]) -> Tensor:
    """Whether each edge joins one of the pairs, in either direction, [E]."""
    ends = inputs.edge_index.sort(0).values
    chosen = torch.tensor(sorted(pairs), dtype=torch.long, device=ends.device).view(-1, 2)
    return torch.isin(ends[0] * inputs.num_nodes + ends[1], chosen[:, 0] * inputs.num_nodes + chosen[:, 1])
