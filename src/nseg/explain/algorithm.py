"""The base of every method: a method scores elements, and everything else is shared."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain.config import ExplanationType, MaskType, ModelConfig, ModelTaskLevel

from nseg.errors import NsegWarning, SettingsError
from nseg.explain.answers import BatchAnswer, build_explanation
from nseg.explain.fallback import answer_all
from nseg.explain.measurement import Remeasurement, measure_hard
from nseg.explain.typed import masks_to_flat, to_types
from nseg.explain.verification import REDONE, References, find_wrong
from nseg.explanation import Explanation
from nseg.graphs.baseline import ABSENT, ZERO, FeatureBaseline, mask_attributes
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.checks import check_inputs
from nseg.graphs.hetero import is_hetero
from nseg.graphs.inputs import EDGE_KIND, ModelInputs
from nseg.graphs.model_checks import check_model
from nseg.graphs.typed_baseline import TypedBaseline, fill_in, given_attributes
from nseg.hetero_explanation import HeteroExplanation
from nseg.model.borrow import borrow, one_thread, unwrap_compiled
from nseg.model.causal import CausalModel
from nseg.model.hetero import adapt, sort_by_type
from nseg.model.outcomes import outcome_of
from nseg.model.slow_runs import raise_own_fault
from nseg.model.traced_graph import TracedGraph
from nseg.search.alternatives import find_alternatives
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult, harden
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.path import measure_path
from nseg.search.settings import BaseSettings
from nseg.search.worlds import evaluate

ROWS_OF_NODES = (
    "The model is declared to be of task level '{level}', but returns one row per node of type '{type}'. Each row is "
    "explained as that of its node. Set task_level='node' in model_config."
)


ROWS_OF_GRAPHS = (
    "The model is declared to be of task level 'node', but returns one row per graph of the batch. Each row is explained as "
    "that of its graph. Set task_level='graph' in model_config."
)


class BatchedAlgorithm(ExplainerAlgorithm):  # type: ignore[misc]
    """An explainer that answers many instances at once; :func:`nseg.explain_many` needs nothing else.

    A method defines its settings and how it scores elements (:meth:`solve`). How the scores become a hard explanation,
    and what that is worth, is the same for all methods.
    """

    Settings: ClassVar[type[BaseSettings]]

    node_mask = edge_mask = None
    """Masks that are being learnt, as PyG's explainers call them: none between calls, because nothing is kept here."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings: Any = self.Settings.from_names(type(self).__name__, settings)
        if self.settings.baseline == ABSENT and self.settings.intervention == "mask":
            raise SettingsError(
                "baseline='absent' deletes nodes, so intervention must be 'remove' or 'both' (got 'mask'). Try 'remove'."
            )

    @abstractmethod
    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        """Score the elements of all instances; ``tick`` is called :attr:`ticks` times."""

    @property
    def ticks(self) -> int:
        """Number of progress reports of :meth:`solve`."""
        return max(int(getattr(self.settings, "steps", 1)), 1)

    def worlds(self, parts: MaskParts) -> int:
        """Number of worlds that :meth:`solve` runs at once with a gradient."""
        return 1

    def answer(self, causal: CausalModel, parts: MaskParts, tick: Tick = lambda: None) -> BatchAnswer:
        """Explain all instances of a causal model."""
        result = self.solve(causal, parts, tick)
        hard, exact = harden(causal, parts, result, self.settings)
        split = parts.split(self.settings)

        found = evaluate(causal, parts, result.soft.map(lambda mask: mask.unsqueeze(0).to(causal.dtype)), split)
        soft_p = torch.cat([found.p_factual, found.p_complement])
        measured = measure_hard(causal, parts, hard, split, self.settings.intervention if parts.deletable else "mask")

        def on_graph(masks: Masks) -> Masks:
            return Masks({**masks, **parts.to_weights(Masks({k: v for k, v in masks.items() if k == EDGES}))})

        common = NODES in parts and self._common
        path = measure_path(causal, parts, result, hard, self.settings)
        others = None
        if self.settings.alternatives:
            others = find_alternatives(causal, parts, result, hard, self.settings)
            others = replace(others, member=on_graph(others.member))
        return BatchAnswer(
            instances=causal.instances,
            soft=on_graph(result.soft),
            hard=on_graph(hard),
            soft_p=soft_p,
            measured=measured,
            exact=exact,
            split=split,
            common=common,
            ties=parts.ties,
            path=replace(path, member=on_graph(path.member)),
            alternatives=others,
            event=causal.outcome.event,
            attributes=self.attribute_mask_type,
        )

    @property
    def deletes(self) -> bool:
        """Whether explanations are searched on graphs from which edges, or nodes, are deleted."""
        return self.settings.intervention != "mask" and (self.masks[0] or self.settings.baseline == ABSENT)

    def masking(self) -> BatchedAlgorithm:
        """The same algorithm, which masks messages instead of deleting edges."""
        other = copy(self)
        baseline = ZERO if self.settings.baseline == ABSENT else self.settings.baseline
        other.settings = replace(self.settings, intervention="mask", baseline=baseline)
        return other

    def parts(self, instances: InstanceBatch) -> MaskParts:
        """The parts of the masks that the connected ``Explainer`` asks for."""
        config = self.explainer_config
        edges, undirected = self.masks[0], self.settings.undirected
        return MaskParts.of(instances, edges, config.node_mask_type, undirected, self.attribute_mask_type)

    def forward(
        self, model: torch.nn.Module, x: Any, edge_index: Any, *, target: Tensor, index: Any = None, **kwargs: Any
    ) -> Explanation | HeteroExplanation:
        """Explain the outputs ``index`` by one common mask; called by PyG's ``Explainer``."""
        model = unwrap_compiled(model)
        check_model(model)
        with torch.inference_mode(False), torch.enable_grad(), borrow(model), one_thread():
            if not is_hetero(x, edge_index):
                config = self.model_config
                inputs = check_inputs(model, x, edge_index, kwargs, config.task_level)
                if _gives_rows_of_graphs(model, inputs, config.task_level):
                    warnings.warn(ROWS_OF_GRAPHS, NsegWarning, stacklevel=3)
                    config = ModelConfig(config.mode, ModelTaskLevel.graph, config.return_type)
                missing = FeatureBaseline.of(self.settings.baseline, Data(x=inputs.x), self.settings.seed)
                inputs = replace(inputs, baseline=missing.rows(inputs.x))
                attributes = self.edge_baseline(Data(**inputs.kwargs))
                if attributes is not None:
                    inputs = mask_attributes(inputs, attributes)
                found, measure = self._explain(model, inputs, target, index, config)
                return found.measured_by(measure)
            level = self.model_config.task_level
            adapted, graph = adapt(model, x, edge_index, kwargs, level, self.masks[1], lenient=True)
            graph = fill_in(graph, *self.typed_baselines([x], [given_attributes(kwargs)]))
            if graph.schema.output is not None and level is not ModelTaskLevel.node:
                note = ROWS_OF_NODES.format(level=level.value, type=graph.schema.output)
                warnings.warn(note, NsegWarning, stacklevel=3)
            found, measure = self._explain(adapted, graph.inputs, target, index, self.model_config)
        typed, common = sort_by_type(graph.schema, graph.inputs), self._common
        one = to_types(found, typed, common)
        one.__dict__["_types"] = graph.types
        return one.measured_by(lambda changed: measure(masks_to_flat(changed, typed, common)))

    def _explain(
        self, model: torch.nn.Module, inputs: ModelInputs, target: Any, index: Any, config: ModelConfig
    ) -> tuple[Explanation, Remeasurement]:
        """Explain some outputs of a graph by one common mask; also returns what measures changed masks."""
        graph = TracedGraph(model, outcome_of(config, self.settings.outcome), inputs, *self.masks)
        graph.outcome = graph.outcome.complete(graph.output)
        row = graph.check_rows(index)
        given = self.explainer_config.explanation_type is ExplanationType.phenomenon
        cuts = graph.cuts(row, torch.zeros_like(row), graph.check_targets(target if given else None, row))
        ((_, causal),) = graph.causal_models(cuts)
        causal.require_dependence(*self.masks)
        ((_, answer),), masked = answer_all(self, causal)
        slow = graph.slow_note
        if slow is None and causal.strategy != graph.strategy:
            slow = graph.slow_rows_note(1, 1)
        for note in (slow, *causal.slow_notes, graph.outcome.note(graph.output), masked):
            if note is not None:
                warnings.warn(note, NsegWarning, stacklevel=3)
        plain = graph.plain_model(row, cuts.target)
        wrong, _ = find_wrong(answer, torch.zeros_like(row[:1]), References(lambda *_: plain, lambda _: plain), ())
        if wrong:
            warnings.warn(REDONE.format(number=1), NsegWarning, stacklevel=3)
            ((_, answer),), _ = answer_all(self, plain)
        edges = torch.arange(inputs.num_edges, device=row.device)
        nodes = torch.arange(inputs.num_nodes, device=row.device)
        kinds = inputs.kwargs.get(EDGE_KIND)
        found = build_explanation(answer, 0, inputs.edge_index, edges, nodes, self.settings, kinds)
        kind = self.explainer_config.node_mask_type
        return found, Remeasurement((edges, nodes), [plain], answer.split, kind, answer.intervention)

    @property
    def _common(self) -> bool:
        """Whether node masks are of features common to all nodes."""
        return self.explainer_config.node_mask_type is MaskType.common_attributes

    @property
    def masks(self) -> tuple[bool, bool]:
        """Whether edges and whether nodes are masked."""
        edges = self.explainer_config.edge_mask_type is not None and self.attribute_mask_type is None
        return edges, self.explainer_config.node_mask_type is not None

    @property
    def attribute_mask_type(self) -> MaskType | None:
        """What the mask of edge attributes covers, if there is one in place of the edge mask."""
        asked = getattr(self.settings, "edge_attributes", None)
        return None if asked is None or self.explainer_config.edge_mask_type is None else MaskType(asked)

    def edge_baseline(self, data: Any) -> FeatureBaseline | None:
        """What masked edge attributes become, given the data; None if they are not masked."""
        if self.attribute_mask_type is None:
            return None
        return FeatureBaseline.of(self.settings.edge_baseline, data, self.settings.seed, edges=True)

    def typed_baselines(
        self, features: Iterable[Mapping[Any, Tensor]], attributes: Iterable[Mapping[Any, Tensor]]
    ) -> tuple[TypedBaseline, TypedBaseline | None]:
        """What masked features, and masked edge attributes, of each type become; None if the latter are not masked.

        Args:
            features, attributes: those of each graph, by type.
        """
        seed, masked = self.settings.seed, self.attribute_mask_type is not None
        edges = TypedBaseline.of(self.settings.edge_baseline, attributes, seed) if masked else None
        return TypedBaseline.of(self.settings.baseline, features, seed), edges

    def supports(self) -> bool:
        """Whether model and masks are supported: every mode, level and mask type of PyG; raises if the outcome is not."""
        outcome_of(self.model_config, self.settings.outcome)
        if self.settings.baseline == ABSENT and self.explainer_config.node_mask_type is not MaskType.object:
            raise SettingsError(
                "baseline='absent' deletes whole nodes, so it needs node_mask_type='object' (got "
                f"{self.explainer_config.node_mask_type}). Leave baseline out, or explain whole nodes."
            )
        return True

    def connect(self, *args: Any, **kwargs: Any) -> None:
        """Connect to an explainer, as PyG does; raises if masks of attributes are asked of one that masks no edges."""
        super().connect(*args, **kwargs)
        if getattr(self.settings, "edge_attributes", None) is not None and self.explainer_config.edge_mask_type is None:
            raise SettingsError(
                "edge_attributes needs edge_mask_type='object' in the Explainer, because it replaces that mask (got None)."
            )

    def __repr__(self) -> str:
        usual = {f.name: f.default for f in fields(self.settings)}
        given = {name: getattr(self.settings, name) for name in usual}  # vars() would also hold cached properties
        changed = {k: v for k, v in given.items() if v != usual[k] or k == "objective"}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


def _gives_rows_of_graphs(model: torch.nn.Module, inputs: ModelInputs, level: ModelTaskLevel) -> bool:
    """Whether a model that is said to be of nodes returns one row per graph of its batch, as PyG lets it."""
    graphs = inputs.num_graphs
    if level is not ModelTaskLevel.node or "batch" not in inputs.kwargs or graphs == inputs.num_nodes:
        return False
    given, named = inputs.copied().call_arguments()
    try:
        with torch.no_grad():
            output = model(*given, **named)
    except Exception as error:  # what is wrong is said where the model is called in earnest
        raise_own_fault(error)
        return False
    return isinstance(output, Tensor) and output.dim() > 0 and len(output) == graphs
