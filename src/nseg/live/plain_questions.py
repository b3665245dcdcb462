"""Questions about a graph of one type of nodes and edges; of a large one, about the part that matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.errors import InputError
from nseg.explain.change import Counterfactual
from nseg.explain.many import explain_many
from nseg.graphs.checks import argument_names, check_inputs, model_device
from nseg.graphs.inputs import ModelInputs, Role
from nseg.live.edits import Cell, GraphEdits, Pair, as_pair
from nseg.live.neighbourhood import GraphPart, Neighbourhoods
from nseg.live.questions import ChangedPart, Questions
from nseg.live.work import Work
from nseg.model.borrow import borrow, watch
from nseg.model.hooks import keep_needed_batch
from nseg.names import NO_NAMES, Names


class GraphQuestions(Questions):
    """Asks a model about one output of a graph, with changes.

    Args:
        explainer: the model, and how its predictions are explained.
        data: the graph; of a large one, :class:`Neighbourhoods`.
        output: the explained node; 0 for the whole graph.
        names: names of the graph.
        number: the caller's number of the output, for sentences.
    """

    def __init__(
        self,
        explainer: Explainer,
        data: Data | Neighbourhoods,
        output: int,
        names: Names = NO_NAMES,
        number: int | None = None,
    ) -> None:
        super().__init__(explainer, names, output if number is None else number)
        self.network, self.output = self.model, output
        self.large = data if isinstance(data, Neighbourhoods) else None
        self.num_nodes = int(data.graph.num_nodes if isinstance(data, Neighbourhoods) else data.num_nodes)
        rows = self.num_nodes if self.level.value == "node" else 1
        if not 0 <= output < rows:
            raise InputError(f"The output must be between 0 and {rows - 1} (got {output}).")
        self.part = data.part(output) if isinstance(data, Neighbourhoods) else GraphPart.whole(data)
        self.inputs = self._inputs_of(self.part)

    def _inputs_of(self, part: GraphPart) -> ModelInputs:
        data, device = part.data, model_device(self.model)
        kwargs = {name: data[name] for name in argument_names(self.model, data)}
        if self.large is not None:  # a large graph stays on the CPU
            kwargs = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in kwargs.items()}
            return check_inputs(self.model, data.x.to(device), data.edge_index.to(device), kwargs, self.level)
        inputs = check_inputs(self.model, data.x, data.edge_index, kwargs, self.level)
        return keep_needed_batch(self.model, inputs, self.outcome)

    def _asked_part(self, edits: GraphEdits) -> tuple[GraphPart, ModelInputs]:
        if self.large is None or not edits.added:
            return self.part, self.inputs
        part = self.large.part(self.output, frozenset(n for pair in edits.added for n in pair))  # it brings its surroundings
        return part, self._inputs_of(part)

    def width(self, node: int) -> int:
        return self.inputs.x.size(1) if self.inputs.x.dim() == 2 else 0

    def explain(self, edits: GraphEdits, work: Work | None = None) -> Explanation:
        work, changed = work or Work(), self._changed(edits)
        graph, row, names = self._as_data(changed)
        given: Any = graph if self.level.value == "node" else [graph]
        with borrow(self.model), watch(self.model, work.ask):
            (found,) = explain_many(self.explainer, given, [row], progress=work.advance, **names)
        found.node_id, found.output_id = changed.part.node[found.node_id.cpu()], self.number
        found.names = self.names
        return found

    def _as_data(self, changed: ChangedPart) -> tuple[Data, int, dict[str, Any]]:
        inputs = changed.inputs
        own = {name: value for name, value in inputs.kwargs.items() if name != "batch"}
        graph = Data(x=inputs.x, edge_index=inputs.edge_index, **own)
        nodes = None
        if self.names.has_nodes or self.large is not None:
            nodes = [self.names.node(number) for number in changed.part.node.tolist()]
        names = {"feature_names": self.names.features, "class_names": self.names.classes, "units": self.names.units}
        return graph, changed.row, {"node_names": nodes, **{key: value or None for key, value in names.items()}}

    def _additions(self, inputs: ModelInputs, chosen: Tensor) -> Data:
        own = {name: inputs.kwargs[name][chosen] for name in inputs.kwargs if inputs.possible_roles(name)[0] is Role.EDGE}
        return Data(edge_index=inputs.edge_index[:, chosen], **own)

    def _settable(self, changed: ChangedPart, zero: bool, back: Mapping[Cell, float]) -> Any:
        x = changed.inputs.x
        columns = (x != 0).any(0).nonzero().flatten().tolist() if zero and x.dim() == 2 else []
        return {**dict.fromkeys(columns, 0.0), **back} or None

    def _known_classes(self) -> tuple[Any, int]:
        return self.part.data.get("y"), self.part.position[self.output] if self.level.value == "node" else 0

    def _pair(self, found: Counterfactual, edge: int, ends: tuple[int, int]) -> Pair:
        return as_pair(*ends)
