"""What :func:`nseg.counterfactual` may change, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from nseg.errors import InputError, UnsupportedError
from nseg.explain.change import FeatureChange, feature_changes, feature_place, values_to_try
from nseg.explain.typed_change import add_typed_edges, typed_cells
from nseg.graphs.checks import check_index
from nseg.graphs.inputs import ModelInputs, Role, common_roles
from nseg.names import Names

WORLDS = 20_000
"""Default number of sets of one size up to which all of them are tried."""

LARGEST = 50
"""Default largest number of changes that is looked for."""


def with_additions(inputs: ModelInputs, additions: Any, names: Names) -> ModelInputs:
    """The graph with all edges that may be added, after its own."""
    if additions is None:
        return inputs
    if names.types is not None:
        return add_typed_edges(inputs, additions, names.types)
    edges = additions.edge_index if isinstance(additions, Data) else torch.as_tensor(additions)
    whole = isinstance(edges, Tensor) and edges.dim() == 2 and len(edges) == 2 and not edges.is_floating_point()
    if not whole or (edges.numel() and not 0 <= int(edges.min()) <= int(edges.max()) < inputs.num_nodes):
        raise InputError(
            f"additions must be edges between nodes 0 to {inputs.num_nodes - 1}, [2, A] "
            f"(got {tuple(edges.shape) if isinstance(edges, Tensor) else type(edges).__name__}). "
            "Try torch.tensor([[source], [target]])."
        )
    kwargs = dict(inputs.kwargs)
    for name, role in common_roles([inputs]).items():
        if role is Role.EDGE:
            given = additions.get(name) if isinstance(additions, Data) else None
            if given is None or given.shape != (edges.size(1), *kwargs[name].shape[1:]):
                raise InputError(
                    f"additions must hold {name} for each added edge, because the model takes it (got "
                    f"{'none' if given is None else tuple(given.shape)}). Give Data(edge_index=..., {name}=...)."
                )
            kwargs[name] = torch.cat([kwargs[name], given.to(kwargs[name])])
    return replace(inputs, edge_index=torch.cat([inputs.edge_index, edges.to(inputs.edge_index)], 1), kwargs=kwargs)


@dataclass(frozen=True)
class ChangeRequest:
    """The options of :func:`counterfactual`, checked."""

    to: int | str | None
    remove: bool
    features: Mapping[Any, float | Sequence[float]] | None
    nodes: Sequence[int] | None
    undirected: bool
    most: int
    worlds: int

    def __post_init__(self) -> None:
        for name in ("most", "worlds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise InputError(f"{name} must be a positive whole number (got {value!r}). Try {LARGEST}.")
        if self.features is not None and not isinstance(self.features, Mapping):
            raise InputError(
                f"features must map features to values to try (got {type(self.features).__name__}). "
                'Try features={"device_new": 0}.'
            )

    def wanted(self, before: int, classes: int, names: Names) -> int | None:
        """Number of the class that the model should say."""
        if self.to is None:
            return None
        named = [n for n in range(classes) if names.class_name(n) == self.to]
        to = named[0] if named else self.to
        if isinstance(to, bool) or not isinstance(to, Integral) or not 0 <= int(to) < classes:
            known = ", ".join(names.class_name(n) for n in range(min(classes, 10)))
            raise InputError(
                f"to must be a class of the model: 0 to {classes - 1}, or its name (got {to!r}). Known: {known}."
            )
        if int(to) == before:
            raise InputError(f"to must differ from what the model says now (got {names.class_name(before)}).")
        return int(to)

    def cells(self, x: Tensor, reached: Tensor, names: Names) -> list[FeatureChange]:
        """All feature changes that are possible."""
        if self.features is None:
            return []
        if names.types is not None:
            return typed_cells(self.features, self.nodes, x, reached, names)
        if x.dim() != 2 or not x.is_floating_point():
            raise UnsupportedError(f"Only floating point features [N, F] can change (got {x.dtype}, {tuple(x.shape)}).")
        numbers = {names.feature(n): n for n in range(x.size(1))}
        nodes = reached.tolist() if self.nodes is None else check_index(self.nodes, x.size(0)).tolist()
        known = set(reached.tolist())
        nodes = [node for node in nodes if node in known]
        found = list[FeatureChange]()
        for key, given in self.features.items():
            (of, feature), values = feature_place(key, numbers), values_to_try(given)
            if not 0 <= feature < x.size(1) or values is None:
                raise InputError(
                    f"features must map columns of x (0 to {x.size(1) - 1}, or their names), or (node, column), to numbers "
                    f"(got {key!r}: {given!r})."
                )
            for node in nodes if of is None else [of] if of in known else []:
                found += feature_changes(x, node, feature, values)
        return found
