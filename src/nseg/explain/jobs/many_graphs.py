"""Many graphs, each explained as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.errors import InputError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.jobs.base import MOST_INSTANCES, Answer, ExplainJob, chunks
from nseg.graphs.batch import pack_graphs
from nseg.graphs.checks import check_alike
from nseg.graphs.inputs import ModelInputs, Role
from nseg.model.causal import CausalModel
from nseg.model.hooks import bytes_per_member, predict
from nseg.model.traced_graph import causal_models_of_graphs, check_output_rows


class _GraphBlock(NamedTuple):
    """B graphs, the caller's classes of each, the model's output and the explained classes."""

    inputs: list[ModelInputs]
    given: list[Tensor | None]
    output: Tensor
    classes: Tensor


class ManyGraphsJob(ExplainJob):
    """Many graphs, each explained as a whole."""

    def number_of_outputs(self) -> int:
        if self.kwargs:
            raise InputError(
                f"Model arguments of graphs must be attributes of the graphs (got {', '.join(self.kwargs)} as keywords). "
                "Set them on each graph."
            )
        if len(self.data) == 0:
            raise InputError("explain_many needs at least one graph (got an empty sequence).")
        return len(self.data)

    def prepare(self) -> None:
        pass

    def causal_model_groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, CausalModel]]]]:
        for numbers in self._blocks(rows):
            block = self._load(numbers)
            yield len(block.inputs), self._causal_models(block)

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        for numbers in self._blocks(rows):
            block = self._load(numbers)
            answers: dict[int, Answer] = {}
            if isinstance(self.algorithm, BatchedAlgorithm):
                for which, causal in self._causal_models(block):
                    for part, answer in self._answers(causal):
                        answers.update({n: (answer, position) for position, n in enumerate(which[part].tolist())})
            else:
                answers = {n: self._call_once(one, None, block.given[n]) for n, one in enumerate(block.inputs)}
            for n, one in enumerate(block.inputs):
                mine = slice(n, n + 1)
                alone = pack_graphs([one], Role.GRAPH, [torch.zeros_like(block.classes[mine])], [block.classes[mine]])
                found = self._finish(alone, 0, block.output[mine], answers[n], block.given[n])
                found.output_id = numbers[n]
                yield found

    def _blocks(self, rows: Tensor) -> Iterator[list[int]]:
        """Numbers of explained graphs, as many at once as fit into memory."""
        numbers, data = rows.tolist(), self.data
        first = self._inputs(data[numbers[0]], {})
        sizes = torch.tensor([(one := self._inputs(data[n], {})).num_nodes + one.num_edges for n in numbers])
        each = bytes_per_member(self.model, first, self.outcome)
        for block in chunks(sizes * each, self.budget, MOST_INSTANCES):
            yield [numbers[b] for b in block.tolist()]

    def _load(self, numbers: list[int]) -> _GraphBlock:
        inputs = [self._inputs(self.data[n], {}) for n in numbers]
        check_alike(inputs, numbers)
        given = [self._given_classes(self.data[n], n) for n in numbers]
        outputs = [predict(self.model, one, self.outcome) for one in inputs]
        for one, output in zip(inputs, outputs, strict=True):
            check_output_rows(output, one, self.outcome)
        output = torch.cat(outputs)
        target = None if given[0] is None else torch.cat([t for t in given if t is not None]).to(output.device)
        return _GraphBlock(inputs, given, output, self.outcome.check_target(output, target))

    def _causal_models(self, block: _GraphBlock) -> Iterator[tuple[Tensor, CausalModel]]:
        return causal_models_of_graphs(self.model, self.outcome, block.inputs, block.output, block.classes, *self.masks)
