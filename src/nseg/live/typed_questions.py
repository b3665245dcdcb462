"""Questions about a heterogeneous graph, whose nodes and edges are numbered through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.explain import Explainer, Explanation

from nseg.errors import InputError, ModelError
from nseg.explain.change import Counterfactual
from nseg.explain.jobs import BUDGET, make_job
from nseg.explain.jobs.hetero import HeteroJob
from nseg.explain.jobs.large_hetero import LargeHeteroJob
from nseg.explain.many import explain_many
from nseg.graph_types import EdgeType, GraphTypes
from nseg.graphs.checks import model_device
from nseg.graphs.hetero import HeteroGraph
from nseg.graphs.inputs import EDGE_KIND, EDGE_TYPE, ModelInputs, Role
from nseg.hetero_explanation import flat_view
from nseg.live.edits import Cell, GraphEdits, Pair, as_pair
from nseg.live.neighbourhood import GraphPart, Neighbourhoods
from nseg.live.questions import ChangedPart, Questions
from nseg.live.work import Work
from nseg.model.borrow import borrow, watch
from nseg.model.hetero import HeteroModel, sort_by_type
from nseg.model.traced_graph import TracedGraph
from nseg.names import Names


class TypedQuestions(Questions):
    """Asks a model about one output of a heterogeneous graph, with changes.

    Args:
        explainer: the model, and how its predictions are explained.
        data: the graph; :class:`Neighbourhoods` if the model looks at parts of it only.
        output: number of the explained node among those of its type; 0 for the whole graph.
        names: names of the graph.
        number: the caller's number of the output, for sentences.
    """

    network: HeteroModel

    def __init__(
        self, explainer: Explainer, data: HeteroData | Neighbourhoods, output: int, names: Names, number: int | None = None
    ) -> None:
        super().__init__(explainer, names, output if number is None else number)
        self.large, self.index = data if isinstance(data, Neighbourhoods) else None, output
        if isinstance(data, Neighbourhoods):
            self.part = data.part(int(data.job.rows([output])))
        else:
            self.part = GraphPart.whole(data)
        job = self._job_on(self.part)
        self.network, self.inputs = job.adapted_model(), job.model_inputs(self.part.data, {})
        types = self._types_of(self.inputs)
        if isinstance(data, Neighbourhoods):
            assert data.graph.types is not None
            types = replace(types, nodes=data.graph.types.nodes)
        self.types, self.num_nodes = types, sum(types.nodes)
        rows = 1 if types.output is None else types.nodes[types.node_types.index(types.output)]
        if not 0 <= output < rows:
            raise InputError(f"The output must be between 0 and {rows - 1} (got {output}).")
        self.output = output if types.output is None else types.node_number(types.output, output)
        # no names of edges, which have other numbers after a change
        of_nodes: dict[Any, Names] = {key: one for key, one in names.by_type.items() if isinstance(key, str)}
        self.names = replace(names, types=types, by_type=of_nodes)

    def _job_on(self, part: GraphPart) -> HeteroJob:
        level, data = self.level.value, part.data
        if self.large is not None:
            data = copy(data).to(model_device(self.model))
        job = make_job(self.explainer, [data] if level == "graph" else data, None, BUDGET, {})
        assert isinstance(job, HeteroJob)
        if self.large is not None and isinstance(self.large.job, LargeHeteroJob):
            job.output_type = self.large.job.output_type
        return job

    def _types_of(self, inputs: ModelInputs) -> GraphTypes:
        typed = sort_by_type(self.network.schema, inputs)
        nodes, edges = (tuple(len(one) for one in some) for some in (typed.nodes, typed.edges))
        return HeteroGraph(self.network.schema, inputs, (nodes, edges)).types

    def _asked_part(self, edits: GraphEdits) -> tuple[GraphPart, ModelInputs]:
        if self.large is None or not edits.added:
            return self.part, self.inputs
        part = self.large.part(self.output, frozenset(n for pair in edits.added for n in pair[:2]))
        return part, self._job_on(part).model_inputs(part.data, {})

    @cached_property
    def near(self) -> Sequence[int]:
        """The caller's numbers of nodes whose messages can reach the output; of all if that is unknown."""
        everything: list[int] = self.part.node.tolist()
        if self.types.output is None:
            return everything
        row = torch.tensor([self.part.position[self.output]], device=self.inputs.x.device)
        try:
            with torch.no_grad(), borrow(self.model):
                traced = TracedGraph(self.network, self.outcome, self.inputs, edges=True, nodes=False)
                found = traced.cuts(row, row * 0, row * 0).at(traced.hops).node_id.cpu()
        except ModelError:  # a layer whose messages are not over its edges
            return everything
        near: list[int] = self.part.node[found].tolist()
        return near

    def width(self, node: int) -> int:
        return self.types.widths[self.types.type_of_node(node)]

    def _known_classes(self) -> tuple[Any, int]:
        if self.types.output is None:
            return self.part.data._global_store.get("y"), 0
        return self.part.data[self.types.output].get("y"), self._row(ChangedPart(self.part, self.inputs, self.inputs, 0))

    def _row(self, changed: ChangedPart) -> int:
        """Number of the output among the nodes of its type in a part."""
        types = self._types_of(changed.inputs)
        return 0 if types.output is None else types.node(changed.part.position[self.output])[1]

    # --- answers ---------------------------------------------------------------------------------------------------------

    def explain(self, edits: GraphEdits, work: Work | None = None) -> Explanation:
        work, changed = work or Work(), self._changed(edits)
        graph, row, _ = self._as_data(changed)
        given: Any = graph if self.level.value == "node" else [graph]
        with borrow(self.model), watch(self.model, work.ask):
            (found,) = explain_many(self.explainer, given, [row], progress=work.advance)
        flat = flat_view(found)
        flat.node_id = changed.part.node[flat.node_id.cpu()]
        flat.output_id = self.output if self.types.output is not None else self.number
        flat.names = self._names_on(flat.names.types)
        return flat

    def _names_on(self, types: GraphTypes) -> Names:
        """Names in the caller's numbers of nodes, for edges as they are numbered in a changed part."""
        return replace(self.names, types=replace(types, nodes=self.types.nodes))

    def _said(self, changed: ChangedPart, found: Counterfactual) -> Counterfactual:
        node = changed.part.node.tolist()
        assert found.names.types is not None
        return replace(
            found,
            output_id=self.index if self.types.output is not None else self.number,
            removed=tuple((node[a], node[b]) for a, b in found.removed),
            added=tuple((node[a], node[b]) for a, b in found.added),
            features=tuple(replace(one, node=node[one.node]) for one in found.features),
            names=self._names_on(found.names.types),
        )

    def _as_data(self, changed: ChangedPart) -> tuple[HeteroData, int, dict[str, Any]]:
        (x, edge_index), kwargs = changed.inputs.call_arguments()
        features, edges, given = self.network.arguments(x, edge_index, kwargs)
        graph, types = HeteroData(), self._types_of(changed.inputs)
        for kind, size in zip(types.node_types, types.nodes, strict=True):
            graph[kind].num_nodes = size
            if features.get(kind) is not None:
                graph[kind].x = features[kind]
        for edge_type, ends in edges.items():
            graph[edge_type]["edge_index" if ends.layout == torch.strided else "adj_t"] = ends
        for name, value in given.items():
            if name.endswith("_dict") and name != "batch_dict" and isinstance(value, Mapping):
                for key, one in value.items():
                    graph[key][name.removesuffix("_dict")] = one
            elif name != "batch_dict":
                graph[name] = value
        return graph, self._row(changed), {}

    # --- what may change -------------------------------------------------------------------------------------------------

    def _additions(self, inputs: ModelInputs, chosen: Tensor) -> dict[EdgeType, Tensor] | None:
        if any(inputs.possible_roles(n)[0] is Role.EDGE for n in inputs.kwargs if n not in (EDGE_TYPE, EDGE_KIND)):
            return None  # edges that have further values cannot come back
        types, kinds = self._types_of(inputs), inputs.kwargs[EDGE_TYPE][chosen]
        local = torch.tensor([types.node(n)[1] for n in inputs.edge_index[:, chosen].flatten().tolist()]).view(2, -1)
        return {types.edge_types[kind]: local[:, (kinds == kind).cpu()] for kind in kinds.unique().tolist()}

    def _settable(self, changed: ChangedPart, zero: bool, back: Mapping[Cell, float]) -> Any:
        found: dict[str, dict[Any, float]] = {}
        types = self._types_of(changed.inputs)
        for kind, start, size, width in zip(types.node_types, types.node_starts, types.nodes, types.widths, strict=False):
            used = (changed.inputs.x[start : start + size, :width] != 0).any(0).nonzero().flatten().tolist() if zero else []
            own = {(n - start, f): value for (n, f), value in back.items() if start <= n < start + size and f < width}
            if used or own:
                found[kind] = {**dict.fromkeys(used, 0.0), **own}
        return found or None

    def _pair(self, found: Counterfactual, edge: int, ends: tuple[int, int]) -> Pair:
        assert found.names.types is not None
        return as_pair(*ends, found.names.types.kind_of_edge(edge))
