"""What masked features of each node type, or masked attributes of each edge type, become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from nseg.errors import InputError
from nseg.graph_types import TypeKey, type_text
from nseg.graphs.baseline import ABSENT, MEAN, ZERO, FeatureBaseline, attribute_columns
from nseg.graphs.hetero import Field, HeteroGraph
from nseg.graphs.inputs import EDGE_BASELINE, EDGE_TYPE, MASKED_ATTRIBUTES, NODE_TYPE, ModelInputs

ATTRIBUTES = ("edge_attr", "edge_weight")
"""Attributes of edges that can be masked, the preferred one first."""


@dataclass(frozen=True)
class TypedBaseline:
    """What the features of each node type (or the attributes of each edge type) become where they are masked.

    Args:
        asked: one baseline for all types, or a dictionary by type; types that are not in it become 0.
        means: the mean over the data of each type, where it is asked for.
        seed: of the draw of other nodes (or edges) of the same type.
    """

    asked: Any
    means: Mapping[TypeKey, Tensor]
    seed: int = 0

    @classmethod
    def of(cls, asked: Any, graphs: Iterable[Mapping[Any, Tensor]], seed: int = 0) -> TypedBaseline:
        """The baseline for data.

        Args:
            asked: the setting.
            graphs: the features (or attributes) of each graph by type; means are taken over all of them.
            seed: of the draw of others.
        """
        found: dict[TypeKey, list[Tensor]] = {}
        if asked == MEAN or (isinstance(asked, Mapping) and MEAN in [one for one in asked.values() if isinstance(one, str)]):
            for values in graphs:
                for key, value in values.items():
                    if isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (1, 2):
                        found.setdefault(key, []).append(attribute_columns(value))
        means = {key: FeatureBaseline.of(MEAN, [Data(x=one) for one in some]).mean for key, some in found.items()}
        return cls(ZERO if asked is None else asked, {key: mean for key, mean in means.items() if mean is not None}, seed)

    def rows(self, values: Tensor, kinds: Tensor, fields: Sequence[Field | None], types: Sequence[TypeKey]) -> Tensor | None:
        """What the values of a flat graph become, [n, F]; None for 0; [n, 0] if nodes are deleted.

        Args:
            values: features of all nodes (or attributes of all edges), [n, F].
            kinds: type of each, [n].
            fields: entry of each type, None for a type without.
            types: names of the types.
        """
        if self.asked == ZERO:
            return None
        if self.asked == ABSENT:
            return values.new_zeros(len(values), 0)
        self._check_types(fields, types)
        found = torch.zeros_like(values)
        for number, (field, key) in enumerate(zip(fields, types, strict=True)):
            asked = self.asked.get(type_text(key), ZERO) if isinstance(self.asked, Mapping) else self.asked
            if field is None or asked == ZERO:
                continue
            width, mine = field.width, kinds == number
            baseline = FeatureBaseline(asked, self.means.get(key) if asked == MEAN else None, self.seed)
            found[mine, :width] = _rows_of(baseline, values[mine, :width], key)
        return found

    def _check_types(self, fields: Sequence[Field | None], types: Sequence[TypeKey]) -> None:
        """Raise if a type that has nothing to mask, or that is not there, is given a baseline."""
        if not isinstance(self.asked, Mapping):
            return
        known = {type_text(key) for key, field in zip(types, fields, strict=True) if field is not None}
        for name, asked in self.asked.items():
            if name not in known:
                raise InputError(
                    f"A baseline by type must name types that have something to mask, {', '.join(sorted(known)) or 'none'} "
                    f"(got {name!r}). Leave it out."
                )
            if asked == ABSENT:
                raise InputError(
                    f"baseline='absent' must be that of all types (got it for {name!r} only), because nodes are deleted "
                    "with their edges. Give baseline='absent'."
                )


def _rows_of(baseline: FeatureBaseline, values: Tensor, key: TypeKey) -> Tensor:
    """What the values of one type become."""
    try:
        found = baseline.rows(values)
    except InputError as error:
        raise InputError(
            f"The baseline of {type_text(key)} does not fit: {error} Types differ, so give a dictionary: "
            "{type: row or name}."
        ) from None
    assert found is not None
    return found


def features_by_type(data: HeteroData) -> dict[TypeKey, Tensor]:
    """Features of each node type that has some."""
    return {kind: store.x for kind, store in data.node_items() if isinstance(store.get("x"), Tensor)}


def attributes_by_type(data: HeteroData) -> dict[TypeKey, Tensor]:
    """Attributes of the edges of each type that has some."""
    name = next((name for name in ATTRIBUTES if any(store.get(name) is not None for store in data.edge_stores)), None)
    return {} if name is None else {kind: store[name] for kind, store in data.edge_items() if store.get(name) is not None}


def given_attributes(kwargs: Mapping[str, Any]) -> dict[TypeKey, Tensor]:
    """Attributes of the edges of each type among the arguments of a call."""
    return next((dict(kwargs[f"{name}_dict"]) for name in ATTRIBUTES if kwargs.get(f"{name}_dict")), {})


def fill_in(graph: HeteroGraph, features: TypedBaseline | None, attributes: TypedBaseline | None) -> HeteroGraph:
    """The same graph, whose masked features and edge attributes become a baseline.

    Args:
        graph: the flat graph.
        features: None leaves 0.
        attributes: what edge attributes become; None if these are not masked.
    """
    schema, inputs = graph.schema, graph.inputs
    if features is not None:
        rows = features.rows(inputs.x, inputs.kwargs[NODE_TYPE], schema.maskable, schema.node_types)
        inputs = replace(inputs, baseline=rows)
    if attributes is not None:
        inputs = _mask_attributes(graph, inputs, attributes)
    return replace(graph, inputs=inputs)


def _mask_attributes(graph: HeteroGraph, inputs: ModelInputs, baseline: TypedBaseline) -> ModelInputs:
    """The same graph, whose edge attributes can be masked and then become a baseline."""
    fields, schema = graph.schema.edge_attributes, graph.schema
    column = next((field.column for field in fields if field is not None), None)
    if column is None:
        raise InputError(
            "A mask of edge attributes needs edge_attr_dict, floating point [edges, attributes] by edge type, or "
            "edge_weight_dict, that the model takes (got neither). Add it to the data or the call, or leave edge_attributes "
            "out."
        )
    values = attribute_columns(inputs.kwargs[column])
    rows = baseline.rows(values, inputs.kwargs[EDGE_TYPE], fields, schema.edge_types)
    known = {MASKED_ATTRIBUTES: column} | ({} if rows is None else {EDGE_BASELINE: rows})
    return replace(inputs, kwargs={**inputs.kwargs, **known})
