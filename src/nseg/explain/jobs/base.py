"""What all jobs share: shards, memory, failures, and writing explanations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.config import ExplanationType

from nseg.errors import BudgetError, InputError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.answers import BatchAnswer, build_explanation, restrict_masks
from nseg.explain.fallback import answer_all
from nseg.explain.jobs.memory import chunks, saved_bytes
from nseg.explain.jobs.own_graph import OwnGraph
from nseg.explain.measurement import Remeasurement
from nseg.explain.progress import Advance, no_progress
from nseg.explain.time_budget import TimeBudget, limit_search
from nseg.explain.verification import References, choose_sample, find_wrong
from nseg.explanation import Explanation as OwnExplanation
from nseg.graphs.baseline import FeatureBaseline, mask_attributes
from nseg.graphs.checks import argument_names, check_index, check_inputs, edges_of
from nseg.graphs.inputs import EDGE_KIND, ModelInputs
from nseg.model.borrow import borrow, one_thread, unwrap_compiled
from nseg.model.causal import CausalModel
from nseg.model.outcomes import Outcome, outcome_of
from nseg.model.strategy import PLAIN
from nseg.runs import fingerprint
from nseg.runs.layout import SHARD, ShardLayout, in_target_order
from nseg.search.settings import BaseSettings
from nseg.storage.hashing import digest

BUDGET = 256 * 2**20
"""Default memory of a search, in bytes."""

MOST_INSTANCES = 1024  # instances that are cut or packed at once
MEMORY_OVERHEAD = 4.5  # peak bytes per byte saved for the backward pass; measured on a GCN of width 512
WORKING_SET = 12 * 2**20  # saved bytes of one pass that fit the caches; larger passes cost up to three times more per world
LONGEST_REASON = 1000  # characters

Shard = tuple[int, list[int]]
"""Number of a shard, and its targets."""


class ShardResult(NamedTuple):
    """The explanations of a shard, and what the caller should know about them.

    Attributes:
        explanations: in the order of the shard's targets.
        notes: warnings.
        plain: whether they were made without shortcuts, because a verified sample showed that these are wrong.
    """

    explanations: list[Explanation]
    notes: tuple[str, ...]
    plain: bool


Answer: TypeAlias = Explanation | tuple[BatchAnswer, int]
"""An explanation on the whole graph, or a position in a batched answer."""


class ExplainJob(ABC):
    """A function of shards that can be sent to workers.

    Args:
        explainer, data, target, budget, kwargs: as :func:`nseg.explain_many` takes them.
        strict: raise if a target cannot be explained; else its explanation says why.
    """

    SENT = (
        *("explainer", "data", "target", "budget", "kwargs", "strict", "phenomenon", "seed", "original_size"),
        *("targets", "plain", "outcome", "feature_baseline", "edge_baseline", "time"),
    )
    """Attributes that travel to workers; everything else is worked out there."""
    anywhere = True  # shards are short enough that the calling process may explain some itself

    def __init__(
        self, explainer: Explainer, data: Any, target: Any, budget: int, kwargs: dict[str, Any], strict: bool = True
    ) -> None:
        self.explainer, self.data, self.target, self.budget = explainer, data, target, budget
        self.kwargs, self.strict = kwargs, strict
        self.phenomenon = explainer.explanation_type is ExplanationType.phenomenon
        self.seed = torch.initial_seed()
        self.original_size: tuple[int, int] | None = None
        self.targets, self.plain = 1, False
        settings = self.algorithm.settings if isinstance(self.algorithm, BatchedAlgorithm) else BaseSettings()
        self.outcome: Outcome = outcome_of(explainer.model_config, settings.outcome)
        self.feature_baseline, self.edge_baseline = self._baselines(settings)
        self.time: TimeBudget | None = None
        self._reset()
        if isinstance(budget, bool) or not isinstance(budget, Real) or not 0 < budget < math.inf:
            raise BudgetError(f"budget must be a positive number of bytes (got {budget!r}). Try {BUDGET}.")
        if target is not None and not self.phenomenon:
            raise InputError(
                "target must be None for explanation_type='model', which explains the model's prediction (got a target). "
                "Use explanation_type='phenomenon' to explain given classes."
            )

    def _baselines(self, settings: BaseSettings) -> tuple[Any, Any]:
        """What masked features and edge attributes become; None for the latter if they are not masked."""
        edges = self.algorithm.edge_baseline(self.data) if isinstance(self.algorithm, BatchedAlgorithm) else None
        return FeatureBaseline.of(settings.baseline, self.data, settings.seed), edges

    def __getstate__(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.SENT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def _reset(self) -> None:
        """State that does not travel to workers."""
        self.advance: Advance = no_progress
        self.dependence_checked = False
        self.notes: list[str] = []
        self.sample: frozenset[int] = frozenset()

    @property
    def model(self) -> torch.nn.Module:
        return unwrap_compiled(self.explainer.model)

    @property
    def network(self) -> torch.nn.Module:
        """What is called with a graph's tensors: the model, or an adapter around it."""
        return self.model

    def output_id(self, row: int) -> int:
        """The caller's number of an explained row."""
        return row

    @property
    def whole_size(self) -> int:
        """Nodes and edges of the graph that all targets are in; 0 if each target has its own."""
        return 0

    @property
    def algorithm(self) -> Any:
        return self.explainer.algorithm

    @property
    def gpus(self) -> int:
        """Number of GPUs that a worker needs."""
        return int(any(p.is_cuda for p in self.model.parameters()))

    @property
    def masks(self) -> tuple[bool, bool]:
        """Whether edges and whether nodes are masked."""
        if isinstance(self.algorithm, BatchedAlgorithm):
            return self.algorithm.masks
        return self.explainer.edge_mask_type is not None, self.explainer.node_mask_type is not None

    @abstractmethod
    def number_of_outputs(self) -> int:
        """Number of outputs that could be explained."""

    @abstractmethod
    def prepare(self) -> None:
        """Work out once what concerns all targets; errors here are not the fault of one target."""

    @abstractmethod
    def known_predictions(self) -> tuple[Tensor, Tensor | None]:
        """Predictions on the data [R], and their true values if the data hold them: what noise is taken from."""

    @abstractmethod
    def explanations(self, rows: Tensor) -> Iterator[Explanation]:
        """The explanations of some rows, in their order."""

    @abstractmethod
    def causal_model_groups(self, rows: Tensor) -> Iterator[tuple[int, Iterator[tuple[Tensor, CausalModel]]]]:
        """Causal models of some rows, group by group, with the number of rows in each group."""

    # --- shards ----------------------------------------------------------------------------------------------------------

    def rows(self, index: Any) -> Tensor:
        """Explained rows from an index."""
        return check_index(index, self.number_of_outputs())

    def shards(self, index: Any, most: int) -> list[Shard]:
        """Explained rows in shards of equal size, which depends on nothing but the number of rows."""
        if isinstance(most, bool) or not isinstance(most, Integral) or most < 1:
            raise InputError(f"shard must be a positive number of targets (got {most!r}). Try {SHARD}.")
        rows = self.rows(index)
        self.targets = len(rows)
        layout = ShardLayout(len(rows), -(-len(rows) // -(-len(rows) // int(most))))
        return [(n, rows[list(layout.targets(n))].tolist()) for n in range(layout.shards)]

    def manifest(self, shards: list[Shard]) -> dict[str, Any]:
        """What the results of this run depend on, as plain data."""
        rows = in_target_order([rows for _, rows in shards])
        seed = {} if isinstance(self.algorithm, BatchedAlgorithm) else {"torch_seed": self.seed}
        return {
            "format": 2,
            "versions": fingerprint.versions(),
            "model": fingerprint.of_model(self.model),
            "data": fingerprint.of_data(self.data, self.kwargs),
            "explainer": fingerprint.of_explainer(self.explainer),
            "settings": fingerprint.of_settings(self.algorithm) | seed,
            "targets": {
                "number": len(rows),
                "rows": digest(torch.tensor(rows)),
                "classes": None if self.target is None else digest(torch.as_tensor(self.target)),
            },
            "shard": len(shards[0][1]),
        }

    def __call__(self, shard: Shard) -> ShardResult:
        number, rows = shard
        self.notes, plain = [], self.plain
        self.sample = choose_sample(number, rows, self.targets, self.whole_size)
        if self.time is not None:
            self.time.begin_shard(number)
        with self.ready():
            if not isinstance(self.algorithm, BatchedAlgorithm):  # PyG's algorithms use torch's random state
                torch.manual_seed(self.seed if number == 0 else (self.seed + number) % (1 << 63))
            found = self._explain_or_say_why(torch.tensor(rows))
            if self.plain and not plain:  # a sample has shown that shortcuts cannot be trusted: all again without them
                found = self._explain_or_say_why(torch.tensor(rows))
        return ShardResult(found, tuple(dict.fromkeys(self.notes)), self.plain)

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Borrow the model, use one thread, and work out what concerns all targets."""
        with torch.inference_mode(False), torch.enable_grad(), borrow(self.model), one_thread():
            self.prepare()
            yield

    def note_output(self, output: Tensor) -> None:
        """Remember a warning if the model's output is probably not what its configuration says."""
        self.notes += filter(None, [self.outcome.note(output)])

    def _measure_later(self, one: Explanation, answer: Answer, references: Iterator[CausalModel]) -> None:
        """Let an explanation be measured again if ``threshold_config`` changes its masks; the last reference decides."""
        if isinstance(one, OwnExplanation) and not isinstance(answer, Explanation):
            ids, kind = (one.edge_id, one.node_id), self.explainer.node_mask_type  # a large graph renumbers them later
            one.measured_by(Remeasurement(ids, references, answer[0].split, kind, answer[0].intervention, self._distrust))

    def _distrust(self) -> None:
        """Explain without shortcuts from now on, because they are wrong for this model."""
        self.plain = True

    def _explain_or_say_why(self, rows: Tensor) -> list[Explanation]:
        """The explanations of some rows; if not strict, with a reason where there is none."""
        self.dependence_checked = False
        try:
            return [one.threshold(self.explainer.threshold_config) for one in self.explanations(rows)]
        except Exception as error:
            if self.strict:
                raise
            if len(rows) == 1:
                reason = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
                return [OwnExplanation(output_id=self.output_id(int(rows)), reason=reason)]
        half = len(rows) // 2  # one of them fails: find it by halving
        return self._explain_or_say_why(rows[:half]) + self._explain_or_say_why(rows[half:])

    # --- chunks that fit into memory -------------------------------------------------------------------------------------

    def causal_models(self, rows: Tensor) -> Iterator[tuple[Tensor, CausalModel]]:
        """The causal models in which explanations are searched, with the numbers of their instances."""
        before = 0
        for number, models in self.causal_model_groups(rows):
            for which, causal in models:
                yield from ((before + which[part], small) for part, small in self._chunks(causal))
            before += number

    def _answer_and_verify(
        self,
        models: Iterable[tuple[Tensor, CausalModel]],
        references: References,
        sample: Sequence[int],
        found: dict[int, Answer],
    ) -> list[int]:
        """Answer all instances of some causal models; returns the numbers of those whose answer is wrong.

        Args:
            models: causal models with the numbers of their instances.
            references: where answers are verified.
            sample: numbers of the instances that are verified alone on the whole graph.
            found: where answers are put, by number.
        """
        wrong: list[int] = []
        for which, causal in models:
            for part, answer in self._answers(causal):
                numbers = which[part]
                found |= {number: (answer, position) for position, number in enumerate(numbers.tolist())}
                if causal.strategy != PLAIN:
                    bad, sample_failed = find_wrong(answer, numbers, references, sample)
                    wrong += bad
                    self.plain |= sample_failed
            self.notes += causal.slow_notes
        self.notes += references.notes
        return wrong

    def _answers(self, causal: CausalModel) -> Iterator[tuple[Tensor, BatchAnswer]]:
        """Batched answers that together hold all instances, with the numbers of their instances, in order."""
        algorithm = self.algorithm
        for part, small in self._chunks(causal):
            tick = partial(self.advance, len(part) / algorithm.ticks)
            with limit_search(self.time, len(part)) as limit:
                found, note = answer_all(algorithm, small, tick)
            self.notes += [] if note is None else [note]
            for some, answer in found:
                yield part[some], answer if limit is None else replace(answer, stopped=limit.stopped)

    def _chunks(self, causal: CausalModel) -> Iterator[tuple[Tensor, CausalModel]]:
        """Causal models that fit into memory and together hold all instances, with the numbers of their instances."""
        algorithm, batched = self.algorithm, causal.strategy.batched
        most = min(3, len(causal.instances)) if batched else 1
        largest = causal.select(causal.instances.sizes.topk(most).indices.sort().values)
        if not self.dependence_checked:
            largest.require_dependence(*self.masks)
            self.dependence_checked = True
        saved = saved_bytes(algorithm, largest) / int(largest.instances.sizes.sum())
        per_world = MEMORY_OVERHEAD * saved
        need = per_world * algorithm.worlds(algorithm.parts(largest.instances)) * causal.instances.sizes
        if float(need.max()) > self.budget:
            raise BudgetError(
                f"The memory budget must hold one instance, which needs about {int(need.max())} bytes here "
                f"(got {int(self.budget)}). Raise it: budget={int(need.max()) + 1}."
            )
        causal.members_at_once = max(int(min(WORKING_SET / saved, self.budget / per_world)), 1)
        for part in chunks(need, self.budget, len(need) if batched else 1):
            yield (here := part.to(causal.instances.x.device)), causal.select(here)

    def _call_once(self, inputs: ModelInputs, row: int | None, target: Tensor | None) -> Explanation:
        """One call of an algorithm that cannot batch."""
        index = {} if row is None else {"index": row}
        given, named = inputs.call_arguments()
        found = self.explainer(*given, target=target, **index, **named)
        self.advance(1)
        return found

    # --- in and out ------------------------------------------------------------------------------------------------------

    def model_inputs(self, data: Data, kwargs: dict[str, Any]) -> ModelInputs:
        """The model's arguments on one graph, checked."""
        found = {name: data[name] for name in argument_names(self.model, data)} | kwargs
        inputs = check_inputs(self.model, data.x, edges_of(self.model, data), found, self.outcome.level)
        inputs = replace(inputs, original_size=self.original_size, baseline=self.feature_baseline.rows(inputs.x))
        return inputs if self.edge_baseline is None else mask_attributes(inputs, self.edge_baseline)

    def _given_classes(self, data: Data, number: int | None = None) -> Tensor | None:
        """The caller's classes of all outputs on one graph, if a phenomenon is explained."""
        if not self.phenomenon:
            return None
        if self.target is None:
            target = data.get("y")
        else:
            target = self.outcome.target_rows(torch.as_tensor(self.target)).to(data.x.device)
            if number is not None and number >= target.numel():
                raise InputError(f"target must hold a class for every graph (got {target.numel()} entries, graph {number}).")
            target = target if number is None else target[number]
        if target is None:
            raise InputError("explanation_type='phenomenon' needs the class of every output. Give target=... or data.y.")
        return self.outcome.target_rows(torch.as_tensor(target))

    def _finish(self, graph: OwnGraph, output: Tensor, answer: Answer, target: Tensor | None) -> Explanation:
        """The explanation of one instance on its own graph, with everything that PyG puts into one."""
        found = self._assemble(graph, output, answer, target)
        if isinstance(answer, Explanation):  # masks of others; ours are built to fit
            found.validate_masks()
        return found

    def _assemble(self, graph: OwnGraph, output: Tensor, answer: Answer, target: Tensor | None) -> OwnExplanation:
        """The explanation of one instance on its own graph."""
        inputs, edge_id, node_id, rows = graph
        if isinstance(answer, Explanation):
            found = restrict_masks(answer, edge_id, node_id)
            found.outcome = self.outcome.event
        else:
            batch, position = answer
            kinds = inputs.kwargs.get(EDGE_KIND)
            settings = self.algorithm.settings
            found = build_explanation(batch, position, inputs.edge_index, edge_id, node_id, settings, kinds)
        (_, edges), named = inputs.call_arguments()
        found._model_config, found._model_args = self.explainer.model_config, list(named)
        values = {
            "prediction": None if self.phenomenon else output,
            "target": self.explainer.get_target(output) if target is None else target,
            "index": rows,
            "x": inputs.x,
        }
        found.filled(values).edge_index = edges  # may be a sparse matrix
        return found.filled({**named, "edge_id": edge_id, "node_id": node_id})
