"""Heterogeneous graphs: nodes or links of one, or many of them, explained on flat graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType, ModelTaskLevel

from nseg.errors import InputError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.jobs.base import Answer, ExplainJob
from nseg.explain.jobs.known_data import known_values
from nseg.explain.jobs.many_graphs import ManyGraphsJob
from nseg.explain.jobs.one_graph import OneGraphJob
from nseg.explain.jobs.own_graph import OwnGraph
from nseg.explain.measurement import Remeasurement
from nseg.explain.typed import fill_graph, masks_to_flat, to_types
from nseg.graph_types import GraphTypes, TypeKey
from nseg.graphs.checks import check_index
from nseg.graphs.hetero import HeteroGraph, HeteroSchema
from nseg.graphs.hetero_checks import typed_edges_of
from nseg.graphs.inputs import EDGE_TYPE, NODE_TYPE, ModelInputs
from nseg.graphs.model_checks import forward_parameters
from nseg.graphs.typed_baseline import attributes_by_type, features_by_type, fill_in, given_attributes
from nseg.hetero_explanation import HeteroExplanation
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.hetero import HeteroModel, TypedEdges, adapt, sort_by_type
from nseg.model.hooks import predict
from nseg.search.settings import BaseSettings


def adapt_data(
    model: nn.Module,
    data: HeteroData,
    kwargs: Mapping[str, Any],
    level: ModelTaskLevel,
    nodes: bool,
    output: str | tuple[str, str] | None = None,
) -> tuple[HeteroModel, HeteroGraph]:
    """The model as one of flat graphs, and one graph flattened.

    Args:
        model: the model.
        data: the graph.
        kwargs: model arguments that are not in the graph.
        level: what the model's rows stand for.
        nodes: whether features will be masked.
        output: node type that the model's rows stand for, or both types that its pairs join, if that is known.
    """
    if not isinstance(data, HeteroData):
        raise InputError(
            f"The graphs must be all homogeneous or all heterogeneous (got a {type(data).__name__} among HeteroData). Call "
            "this once for each kind."
        )
    given = {**_arguments_of(model, data), **kwargs}
    edges = typed_edges_of(data, list(forward_parameters(model))[1:2] == ["adj_t_dict"])
    sizes = {kind: int(store.num_nodes or 0) for kind, store in data.node_items()}
    features = {kind: store.x for kind, store in data.node_items() if store.get("x") is not None}
    with torch.inference_mode(False), borrow(model):
        return adapt(model, features, edges, given, level, nodes, sizes, output=output)


class HeteroJob(ExplainJob):
    """What jobs of heterogeneous graphs share."""

    output_type: str | tuple[str, str] | None = None
    """Node type that the model's rows stand for, or both types that its pairs join, if it is known; else it is found out."""

    def _baselines(self, settings: BaseSettings) -> tuple[Any, Any]:
        if not isinstance(self.algorithm, BatchedAlgorithm):
            return None, None
        graphs = [self.data] if isinstance(self.data, HeteroData) else [self.data[n] for n in range(len(self.data))]
        typed = [one for one in graphs if isinstance(one, HeteroData)]
        return self.algorithm.typed_baselines(map(features_by_type, typed), map(self._attributes, typed))

    def _attributes(self, data: HeteroData) -> dict[TypeKey, Tensor]:
        """Attributes of the edges of a graph by type, from the data or the arguments."""
        return given_attributes(self.kwargs) or attributes_by_type(data)

    @abstractmethod
    def adapted_model(self) -> HeteroModel:
        """The model as one of flat graphs."""

    @abstractmethod
    def graph_types(self, typed: TypedEdges) -> GraphTypes:
        """The types of the caller's graph.

        Args:
            typed: nodes and edges of an explanation's graph by type.
        """

    @property
    def network(self) -> nn.Module:
        return self.adapted_model()

    def adapt(self, data: HeteroData, kwargs: Mapping[str, Any]) -> tuple[HeteroModel, HeteroGraph]:
        """The model as one of flat graphs, and one graph flattened."""
        model, graph = adapt_data(self.model, data, kwargs, self.outcome.level, self.masks[1], self.output_type)
        return model, fill_in(graph, self.feature_baseline, self.edge_baseline)

    @property
    def _common(self) -> bool:
        return self.explainer.node_mask_type is MaskType.common_attributes

    def _finish(self, graph: OwnGraph, output: Tensor, answer: Answer, target: Tensor | None) -> HeteroExplanation:
        flat = self._assemble(graph, output, answer, target)
        schema = self.adapted_model().schema
        typed = TypedEdges.of(schema, flat.edge_index, flat[NODE_TYPE], flat[EDGE_TYPE])
        known = {"x", "edge_index", "edge_id", "node_id", "prediction", "target", "index"}
        given = {name for name in flat._model_args if name.startswith(".") or name in ("batch", schema.pairs_name)}
        kept = flat.__class__(**{name: value for name, value in flat.to_dict().items() if name not in known | given})
        found = to_types(kept, typed, self._common)
        types = self.graph_types(typed)
        fill_graph(found, flat, typed, types)
        found.__dict__.update(
            _types=types, _model_config=self.explainer.model_config, _model_args=_given_names(flat, schema)
        )
        found.__dict__.update(_typed=typed, _flat=(flat.edge_id, flat.node_id))
        found.validate_masks()
        return found

    def _call_once(self, inputs: ModelInputs, row: int | None, target: Tensor | None) -> PyGExplanation:
        model = self.adapted_model()
        x, edges, given = model.arguments(inputs.x, inputs.edge_index, inputs.kwargs)
        index = {} if row is None else {"index": self.output_id(row)}
        found = self.explainer(x, edges, target=target, **index, **given)
        self.advance(1)
        flat = masks_to_flat(found, sort_by_type(model.schema, inputs), self._common)
        flat.x, flat.edge_index = inputs.x, inputs.edge_index
        return flat

    def _measure_later(self, one: Any, answer: Answer, references: Iterator[CausalModel]) -> None:
        typed, ids = one.__dict__.pop("_typed"), one.__dict__.pop("_flat")
        if isinstance(answer, PyGExplanation) or not isinstance(one, HeteroExplanation):
            return
        kind, intervention = self.explainer.node_mask_type, answer[0].intervention
        measure = Remeasurement(ids, references, answer[0].split, kind, intervention, self._distrust)
        common = self._common
        one.measured_by(lambda changed: measure(masks_to_flat(changed, typed, common)))


def _given_names(flat: PyGExplanation, schema: HeteroSchema) -> list[str]:
    """Names of the model's arguments besides features and edges, as the caller gave them."""
    others = ["batch_dict" if name == "batch" else name for name in flat._model_args if not name.startswith(".")]
    return [*schema.arguments, *others]


def _arguments_of(model: nn.Module, data: HeteroData) -> dict[str, Any]:
    """Attributes of a graph that the model takes besides features and edges."""
    found: dict[str, Any] = {}
    for name in list(forward_parameters(model))[2:]:
        stored = name.removesuffix("_dict")
        stores = [*data.node_items(), *data.edge_items()]
        by_type = {kind: store[stored] for kind, store in stores if store.get(stored) is not None}
        if name in data._global_store:
            found[name] = data._global_store[name]
        elif by_type and name.endswith("_dict"):
            found[name] = by_type
        elif name == "edge_label_index" and len(by_type) == 1:
            found[name] = next(iter(by_type.values()))
    return found


class HeteroGraphJob(HeteroJob, OneGraphJob):
    """Nodes of one type, or links, of one heterogeneous graph."""

    @cached_property
    def _adapted(self) -> tuple[HeteroModel, HeteroGraph]:
        return self.adapt(self.data, self.kwargs)

    def adapted_model(self) -> HeteroModel:
        return self._adapted[0]

    @cached_property
    def inputs(self) -> ModelInputs:
        return replace(self._adapted[1].inputs, original_size=self.original_size)

    def model_inputs(self, data: HeteroData, kwargs: dict[str, Any]) -> ModelInputs:
        return self.inputs

    def graph_types(self, typed: TypedEdges) -> GraphTypes:
        return self._adapted[1].types

    @property
    def _first_row(self) -> int:
        """Row of the flat output that stands for the caller's first output."""
        model, graph = self._adapted
        return 0 if model.schema.output is None else graph.starts[0][model.schema.type_number(model.schema.output)]

    def number_of_outputs(self) -> int:
        schema, graph = self._adapted[0].schema, self._adapted[1]
        if schema.output is not None:
            return graph.sizes[0][schema.type_number(schema.output)]
        return super().number_of_outputs()

    def known_predictions(self) -> tuple[Tensor, Tensor | None]:
        output = predict(self.network, self.inputs, self.outcome)[self._first_row :][: self.number_of_outputs()]
        schema = self._adapted[0].schema
        return output, None if schema.output is None else known_values(self.data[schema.output], self.outcome)

    def rows(self, index: Any) -> Tensor:
        return check_index(index, self.number_of_outputs()) + self._first_row

    def output_id(self, row: int) -> int:
        return row - self._first_row

    def _given_classes(self, data: HeteroData, number: int | None = None) -> Tensor | None:
        if not self.phenomenon:
            return None
        target, output = self.target, self._adapted[0].schema.output
        if target is None and output is not None:
            target = data[output].get("y")
        if target is None:
            where = "target=..." if output is None else f"target=... or data[{output!r}].y"
            raise InputError(f"explanation_type='phenomenon' needs the class of every output. Give {where}.")
        return torch.as_tensor(target).flatten().to(self.inputs.x.device)


class HeteroGraphsJob(HeteroJob, ManyGraphsJob):
    """Many heterogeneous graphs, each explained as a whole."""

    @cached_property
    def _first(self) -> tuple[HeteroModel, HeteroGraph]:
        return self.adapt(self.data[0], {})

    def adapted_model(self) -> HeteroModel:
        return self._first[0]

    def graph_types(self, typed: TypedEdges) -> GraphTypes:
        # an explanation's graph is the caller's graph
        nodes, edges = (tuple(len(one) for one in some) for some in (typed.nodes, typed.edges))
        return replace(self._first[1].types, nodes=nodes, edges=edges)

    def model_inputs(self, data: HeteroData, kwargs: dict[str, Any]) -> ModelInputs:
        graph = self.adapt(data, kwargs)[1]
        known = self.adapted_model().schema
        if graph.schema != known:
            names = [", ".join(map(str, (*one.node_types, *one.edge_types))) for one in (known, graph.schema)]
            raise InputError(
                "All heterogeneous graphs must have the same types, with the same features and arguments, in the same order "
                f"(got {names[0]} in the first graph and {names[1]} in another). Add empty types where they are missing, or "
                "explain the kinds one by one."
            )
        return graph.inputs

    def _given_classes(self, data: HeteroData, number: int | None = None) -> Tensor | None:
        if not self.phenomenon:
            return None
        if self.target is None:
            target = data._global_store.get("y")
        else:
            target = torch.as_tensor(self.target).flatten()
            if number is not None and number >= target.numel():
                raise InputError(f"target must hold a class for every graph (got {target.numel()} entries, graph {number}).")
            target = target if number is None else target[number]
        if target is None:
            raise InputError("explanation_type='phenomenon' needs the class of every output. Give target=... or data.y.")
        return torch.as_tensor(target).flatten()
