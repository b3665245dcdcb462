"""Many graphs, each explained as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from nseg.errors import InputError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.jobs.base import MOST_INSTANCES, Answer, ExplainJob
from nseg.explain.jobs.known_data import known_values
from nseg.explain.jobs.memory import chunks
from nseg.explain.jobs.own_graph import OwnGraph
from nseg.explain.verification import REDONE, References
from nseg.graphs.checks import check_alike
from nseg.graphs.inputs import ModelInputs
from nseg.graphs.model_checks import forward_parameters
from nseg.model.causal import CausalModel
from nseg.model.hooks import bytes_per_member, call_model, keep_needed_batch, predict
from nseg.model.packed_graphs import causal_models_of_graphs, pack_causal_model
from nseg.model.strategy import GRAPH_STRATEGIES, PLAIN, UNTRACED, RunStrategy
from nseg.model.traced_graph import check_output_rows

MOST_PREDICTIONS = 1000
"""Graphs whose predictions are looked at to know their spread, evenly over the data."""


class _GraphBlock(NamedTuple):
    """B graphs, the caller's classes of each, the model's output and the explained classes."""

    inputs: list[ModelInputs]
    given: list[Tensor | None]
    output: Tensor
    classes: Tensor

    def select(self, which: list[int]) -> _GraphBlock:
        """Some of the graphs."""
        inputs, given = [self.inputs[n] for n in which], [self.given[n] for n in which]
        return _GraphBlock(inputs, given, self.output[which], self.classes[which])


ONE_BY_ONE = (
    "Several graphs cannot share a forward pass of {model}: together they give other outputs than alone. They are explained "
    "one by one, as a loop over single calls would, with the same answers."
)
NO_BATCH = " Its forward has no argument named batch: give it one, if the layers can tell graphs apart."


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

    def model_inputs(self, data: Data, kwargs: dict[str, Any]) -> ModelInputs:
        return keep_needed_batch(self.model, super().model_inputs(data, kwargs), self.outcome)

    def prepare(self) -> None:
        pass

    def known_predictions(self) -> tuple[Tensor, Tensor | None]:
        outputs, values = [], []
        for n in range(0, len(self.data), -(-len(self.data) // MOST_PREDICTIONS)):
            data = self.data[n]
            try:
                outputs.append(call_model(self.network, self.model_inputs(data, {}).copied(), self.outcome))
                values.append(known_values(data, self.outcome))
            except Exception:  # a graph that fails says so when it is explained
                continue
        known = [value for value in values if value is not None]
        all_known = len(known) == len(outputs) > 0
        return torch.cat(outputs) if outputs else torch.zeros(0), torch.cat(known) if all_known else None

    def causal_model_groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, CausalModel]]]]:
        for numbers, inputs in self._blocks(rows):
            block = self._load(numbers, inputs)
            yield len(block.inputs), self._causal_models(block)

    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        for numbers, inputs in self._blocks(rows):
            block = self._load(numbers, inputs)
            if isinstance(self.algorithm, BatchedAlgorithm):
                answers = self._answer_block(block, numbers)
            else:
                answers = {n: self._call_once(one, None, block.given[n]) for n, one in enumerate(block.inputs)}
            for n, one in enumerate(block.inputs):
                mine = slice(n, n + 1)
                found = self._finish(OwnGraph.of_graph(one), block.output[mine], answers[n], block.given[n])
                found.output_id = numbers[n]
                self._measure_later(found, answers[n], self._references(one, block.classes[mine]))
                yield found

    def _references(self, graph: ModelInputs, target: Tensor) -> Iterator[CausalModel]:
        """The causal model of one graph without shortcuts."""
        yield pack_causal_model(self.network, self.outcome, [graph], target, PLAIN)

    def _blocks(self, rows: Tensor) -> Iterator[tuple[list[int], list[ModelInputs]]]:
        """Numbers of explained graphs and the model's arguments, as many at once as fit into memory."""
        numbers = rows.tolist()
        inputs = [self.model_inputs(self.data[n], {}) for n in numbers]
        sizes = torch.tensor([one.num_nodes + one.num_edges for one in inputs])
        each = bytes_per_member(self.network, inputs[0], self.outcome)
        for block in chunks(sizes * each, self.budget, MOST_INSTANCES):
            yield [numbers[b] for b in block.tolist()], [inputs[b] for b in block.tolist()]

    def _load(self, numbers: list[int], inputs: list[ModelInputs]) -> _GraphBlock:
        check_alike(inputs, numbers)
        given = [self._given_classes(self.data[n], n) for n in numbers]
        # one graph shows whether the model is deterministic; of others, packed and single outputs are compared anyway
        outputs = [predict(self.network, one, self.outcome, twice=not n) for n, one in enumerate(inputs)]
        for n, one, output in zip(numbers, inputs, outputs, strict=True):
            check_output_rows(output, one, self.outcome)
            if one.num_graphs != 1:
                raise InputError(
                    f"Each element of data must be one graph (got {one.num_graphs} in element {n}, by its batch). Give the "
                    "graphs themselves, or a Batch made of them."
                )
        output = torch.cat(outputs)
        self.note_output(output)
        target = None if given[0] is None else torch.cat([t for t in given if t is not None]).to(output.device)
        classes = self.outcome.check_target(output, target)
        if target is None:
            self.outcome.require_event(output, classes)
        return _GraphBlock(inputs, given, output, classes)

    def _causal_models(
        self, block: _GraphBlock, strategies: Sequence[RunStrategy] = GRAPH_STRATEGIES
    ) -> Iterator[tuple[Tensor, CausalModel]]:
        return causal_models_of_graphs(
            self.network, self.outcome, block.inputs, block.output, block.classes, *self.masks, strategies
        )

    def _answer_block(
        self, block: _GraphBlock, numbers: Sequence[int], strategies: Sequence[RunStrategy] = GRAPH_STRATEGIES
    ) -> dict[int, Answer]:
        """The algorithm's verified answer for each graph of a block, by its position.

        Args:
            block: the graphs.
            numbers: the caller's numbers of the graphs.
            strategies: how worlds are run, fastest first; one world at a time if there is none.
        """

        def pack(which: list[int], strategy: RunStrategy) -> CausalModel:
            graphs = [block.inputs[n] for n in which]
            return pack_causal_model(self.network, self.outcome, graphs, block.classes[which], strategy)

        def note(models: Iterator[tuple[Tensor, CausalModel]]) -> Iterator[tuple[Tensor, CausalModel]]:
            for which, causal in models:
                if len(which) == 1 < len(block.inputs):
                    hint = "" if {"batch", "batch_dict"} & forward_parameters(self.model).keys() else NO_BATCH
                    self.notes.append(ONE_BY_ONE.format(model=type(self.model).__name__) + hint)
                yield which, causal

        found: dict[int, Answer] = {}
        sample = [n for n, number in enumerate(numbers) if number in self.sample]
        references = References(
            lambda which, _: pack(which.tolist(), UNTRACED) if len(which) > 1 else None,
            lambda n: pack([n], PLAIN),
        )
        if self.plain or not strategies:
            one_by_one = (
                (torch.tensor([n], device=block.output.device), pack([n], PLAIN)) for n in range(len(block.inputs))
            )
            wrong = self._answer_and_verify(one_by_one, references, sample, found)
        else:
            wrong = self._answer_and_verify(note(self._causal_models(block, strategies)), references, sample, found)
        if wrong and not self.plain:
            self.notes.append(REDONE.format(number=len(wrong)))
            again = self._answer_block(block.select(wrong), [numbers[n] for n in wrong], strategies[1:])
            found.update({wrong[n]: answer for n, answer in again.items()})
        return found
