"""What a person changes in a graph: edges off and on, new edges, nodes without features, other values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.graph_types import GraphTypes
from nseg.graphs.inputs import EDGE_KIND, EDGE_TYPE, ModelInputs, Role

Pair = tuple[int, ...]
"""Two nodes that are joined, the smaller number first; in a heterogeneous graph also the kind of edge, if it is not 0."""

Cell = tuple[int, int]
"""A node and one of its features."""

MAX_EDITS = 10_000
"""Maximum number of changes of one graph."""


@dataclass(frozen=True)
class GraphEdits:
    """Changes of a graph, by the numbers of its nodes and features.

    Args:
        removed: pairs of nodes whose edges are deleted, in both directions; of one kind in a heterogeneous graph.
        added: pairs of nodes that are joined, in both directions.
        hidden: nodes whose features are all set to 0.
        values: values of single features, by node and feature; they count for hidden nodes too.
    """

    removed: frozenset[Pair] = frozenset()
    added: frozenset[Pair] = frozenset()
    hidden: frozenset[int] = frozenset()
    values: Mapping[Cell, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.removed) + len(self.added) + len(self.hidden) + len(self.values)

    @property
    def nodes(self) -> frozenset[int]:
        """All nodes that the changes name."""
        ends = {n for pair in (*self.removed, *self.added) for n in pair[:2]}
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
                "Changes must be lists: removed and added of pairs of nodes (and the kind of edge, if there are types), "
                "hidden of nodes, values of node, feature and number (got something else)."
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
            inside = [one for one in given if one[0] in numbers and one[1] in numbers]
            return frozenset(as_pair(numbers[a], numbers[b], *kind) for a, b, *kind in inside)

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
    a, b, *kind = map(_whole, value)
    return as_pair(a, b, *kind)


def as_pair(a: int, b: int, kind: int = 0) -> Pair:
    """A pair in its only form.

    >>> as_pair(3, 1), as_pair(1, 3, 2)
    ((1, 3), (1, 3, 2))
    """
    return (min(a, b), max(a, b), kind) if kind else (min(a, b), max(a, b))


def kind_of(pair: Pair) -> int:
    """The kind of edge of a pair."""
    return pair[2] if len(pair) > 2 else 0


def check_edits(edits: GraphEdits, num_nodes: int, width: Callable[[int], int]) -> None:
    """Raise unless the changes name nodes and features that exist.

    Args:
        edits: the changes.
        num_nodes: number of nodes.
        width: number of features of a node.
    """
    if edits.nodes and max(edits.nodes) >= num_nodes:
        raise InputError(f"Changes must name nodes from 0 to {num_nodes - 1} (got {max(edits.nodes)}).")
    for node, feature in edits.values:
        if feature >= width(node):
            raise InputError(f"Changes must name features from 0 to {width(node) - 1} (got {feature}).")


def changed_inputs(inputs: ModelInputs, edits: GraphEdits, types: GraphTypes | None = None) -> ModelInputs:
    """A graph after some changes.

    New edges get attributes of 1 if the model takes one number per edge; if it takes several, no edge can be added.

    Args:
        inputs: the graph, flat if it is heterogeneous.
        edits: the changes, in its numbers.
        types: types of a heterogeneous graph.
    """
    x, keep = inputs.x, ~_edge_mask(inputs, edits.removed)
    if edits.hidden or edits.values:
        x = x.clone()
        x[sorted(edits.hidden)] = 0
        for (node, feature), value in edits.values.items():
            x[node, feature] = value
    ends, edge_types = _new_edges(edits.added, types)
    new = torch.tensor(ends, dtype=torch.long, device=x.device).view(-1, 2).T

    def per_edge(name: str) -> Any:
        value = inputs.kwargs[name]
        if inputs.possible_roles(name)[0] is not Role.EDGE:
            return value
        if new.size(1) and value.dim() > 1:
            raise InputError(f"No edge can be added, because the model takes several numbers per edge ({name}).")
        more = value.new_ones(new.size(1), *value.shape[1:])
        if types is not None and name in (EDGE_TYPE, EDGE_KIND):
            more = value.new_tensor(edge_types if name == EDGE_TYPE else [types.kinds[one] for one in edge_types])
        return torch.cat([value[keep], more])

    kwargs = {name: per_edge(name) for name in inputs.kwargs}
    return replace(inputs, x=x, edge_index=torch.cat([inputs.edge_index[:, keep], new], 1), kwargs=kwargs)


def _new_edges(pairs: frozenset[Pair], types: GraphTypes | None) -> tuple[list[Cell], list[int]]:
    """Ends of the edges that join some pairs, and of a heterogeneous graph the number of the type of each.

    Both directions are joined, as far as there are types of edges for them.
    """
    both = [(a, b, kind_of(one)) for one in sorted(pairs) for a, b in dict.fromkeys([one[:2], one[1::-1]])]
    if types is None:
        return [(a, b) for a, b, _ in both], []
    found = [
        ((a, b), number)
        for a, b, kind in both
        for number, (source, _, target) in enumerate(types.edge_types)
        if types.kinds[number] == kind and (types.node(a)[0], types.node(b)[0]) == (source, target)
    ]
    missing = {one for one in pairs if not any({a, b} == set(one[:2]) for (a, b), _ in found)}
    if missing:
        a, b = (types.node(n)[0] for n in min(missing)[:2])
        raise InputError(f"An edge must be of a type of the graph (got one between {a} and {b}, which none joins so).")
    return [ends for ends, _ in found], [number for _, number in found]


def edge_pairs(inputs: ModelInputs) -> list[Pair]:
    """The pair that each edge joins."""
    kinds = inputs.kwargs.get(EDGE_KIND)
    if kinds is None:
        return [as_pair(a, b) for a, b in inputs.edge_index.T.tolist()]
    return [as_pair(a, b, kind) for (a, b), kind in zip(inputs.edge_index.T.tolist(), kinds.tolist(), strict=True)]


def _edge_mask(inputs: ModelInputs, pairs: frozenset[Pair]) -> Tensor:
    """Whether each edge joins one of the pairs, in either direction, [E]."""
    ends, size, kind = inputs.edge_index.sort(0).values, inputs.num_nodes, inputs.kwargs.get(EDGE_KIND)
    place = ends[0] * size + ends[1]
    chosen = [a * size + b for a, b, *_ in pairs]
    if kind is not None:
        place = place + kind * size * size
        chosen = [one + kind_of(pair) * size * size for one, pair in zip(chosen, pairs, strict=True)]
    return torch.isin(place, torch.tensor(chosen, dtype=torch.long, device=ends.device))
