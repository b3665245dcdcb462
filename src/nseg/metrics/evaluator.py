"""Explanations on their model again: what the model says with and without them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, Explanation, HeteroExplanation
from torch_geometric.explain.config import MaskType

from nseg.errors import InputError, NsegWarning, UnsupportedError
from nseg.events import Custom
from nseg.explanation import ATTRIBUTE_MASK, explained_targets, given_edges, with_ids
from nseg.graphs.baseline import ABSENT
from nseg.graphs.checks import check_inputs, edges_of
from nseg.graphs.inputs import ModelInputs
from nseg.graphs.model_checks import check_model
from nseg.graphs.separate import separate_graphs
from nseg.metrics.groups import EvaluatedGroup
from nseg.metrics.hetero import flatten_for_metrics, missing_features
from nseg.metrics.masks import JoinedIds, JoinedMasks, MaskKind, masks_of
from nseg.metrics.sources import ManyGraphsSource, ModelSource, OneGraphSource
from nseg.metrics.trust import SAMPLE, ask, warn_slow, why_wrong
from nseg.model.borrow import borrow, unwrap_compiled
from nseg.model.causal import CausalModel
from nseg.model.hetero import HeteroModel
from nseg.model.hooks import call_model
from nseg.model.outcomes import Outcome, outcome_of
from nseg.model.strategy import PLAIN
from nseg.model.subset_worlds import OUTSIDE
from nseg.model.traced_graph import TracedGraph
from nseg.search.noise import uniform
from nseg.search.parts import EDGES, NODES, MaskParts, Masks, Part
from nseg.search.settings import BaseSettings
from nseg.search.worlds import build_worlds
from nseg.wording import is_undirected

MASK_NAMES = {EDGES: "edge_mask", NODES: "node_mask"}
"""Attribute of an explanation that holds each part of its mask."""

WorldMaker = Callable[[Tensor, Tensor], Tensor]
"""Makes worlds [K, m] from a flat mask [m] and one key per entry, which does not depend on the batch."""


class WorldEvaluator:
    """Asks the model about explanations, all of them in the same forward passes.

    Args:
        explainer: the explainer that made them, or any for the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: one of a single output, or the result of :func:`nseg.explain_many`.
        removes: verify from the start what the causal models give if edges are deleted.

    The target is the predicted class, or the given one if a phenomenon is explained.
    """

    def __init__(
        self,
        explainer: Explainer,
        data: Data | Sequence[Data],
        explanations: Explanation | Sequence[Explanation],
        removes: bool = False,
    ) -> None:
        self._removes = removes
        found = [explanations] if isinstance(explanations, Explanation | HeteroExplanation) else list(explanations)
        if not found:
            raise InputError("At least one explanation is needed (got none).")
        model = unwrap_compiled(explainer.model)
        settings, given = getattr(found[0], "settings", None) or {}, data
        self.deletes_nodes = settings.get("baseline") == ABSENT
        if all(isinstance(one, HeteroExplanation) for one in found):
            model, data, found = flatten_for_metrics(explainer, data, found)
        if not all(isinstance(one, Explanation) for one in found):
            raise InputError(
                f"explanations must be what explain_many or an Explainer returns (got {type(explanations).__name__}). The "
                "order of arguments is explainer, data, explanations."
            )
        if not isinstance(data, Data) or (isinstance(data, Batch) and explainer.model_config.task_level.value == "graph"):
            data = separate_graphs(data)
        check_model(model)
        if any(one.get(ATTRIBUTE_MASK) is not None for one in found):
            raise UnsupportedError("Metrics are of edges and features (got masks of edge attributes). See pns and words().")
        self.explainer, self.data, self.explanations = explainer, data, [with_ids(one) for one in found]
        self._missing = missing_features(model, given if isinstance(model, HeteroModel) else data, settings)
        self._whole = data if isinstance(data, Data) else None
        self.model, self.outcome = model, self._asked()
        self.edges, self.nodes = (found[0].get(name) is not None for name in MASK_NAMES.values())
        self._masks: dict[MaskKind, JoinedMasks] = {}
        self._sampled: dict[tuple[int, ...], EvaluatedGroup | None] = {}
        with borrow(self.model), torch.no_grad():
            self.source = self._make_source(data)
            self.groups = self._trusted_groups()
            self.output = self.in_order([group.causal.output()[0] for group in self.groups])  # [B, C]
        self._complete_outcome()
        self.target = self.in_order([group.causal.instances.target for group in self.groups])
        self.label = self.outcome.predicted(self.output)  # [B]
        if (note := self.outcome.note(self.output)) is not None:
            warnings.warn(note, NsegWarning, stacklevel=3)

    # --- causal models ---------------------------------------------------------------------------------------------------

    def _make_source(self, data: Data | Sequence[Data]) -> ModelSource:
        names = getattr(self.explanations[0], "_model_args", None)
        if names is None:
            raise InputError("Explanations must have their graphs (got stored ones). Add them with nseg.runs.attach.")
        self._check_data(data)
        if isinstance(data, Data):
            return self._source_on_graph(data, names)
        graphs = [self.inputs_of(one) for one in self.explanations]
        output = torch.cat(
            [
                call_model(self.model, graph, self.outcome) if one.get("prediction") is None else self._rows(one.prediction)
                for one, graph in zip(self.explanations, graphs, strict=True)
            ]
        )
        return ManyGraphsSource(self.model, self.outcome, graphs, output, self._classes(), self.edges, self.nodes)

    def _asked(self) -> Outcome:
        """What the explanations are of: as they say themselves, else as the explainer's method says."""
        settings = getattr(self.explainer.algorithm, "settings", None)
        usual = getattr(settings, "outcome", None)
        events = {one.get("outcome") for one in self.explanations}
        if len({repr(event) for event in events}) > 1:
            raise InputError(
                f"Explanations that are evaluated together must be of one outcome (got {', '.join(map(repr, events))}). "
                "Evaluate them apart."
            )
        (event,) = events
        stored = event is None or (isinstance(event, Custom) and event.probability is None)
        return outcome_of(self.explainer.model_config, usual or event if stored else event)

    def _complete_outcome(self) -> None:
        """Explanations of other packages do not say what noise the prediction has: it is taken from these predictions."""
        if not self.outcome.is_complete:
            self.outcome = self.outcome.complete(self.output)
            for group in self.groups:
                group.causal.outcome = self.outcome

    def _rows(self, prediction: Tensor) -> Tensor:
        """The prediction on an explanation as the outcome reads it; it may already be the one column that is asked about."""
        column = None if self.outcome.event is None else self.outcome.event.column
        return prediction if column is not None and prediction.dim() == 1 else self.outcome.as_rows(prediction)

    def _trusted_groups(self) -> list[EvaluatedGroup]:
        """Explanations by causal model, with the fastest strategy that gives what the model gives without shortcuts."""
        groups: list[EvaluatedGroup] = []
        why = ""
        for models in self.source.candidates():
            groups = [self.group(*one) for one in models]
            wrong = "" if all(group.causal.strategy == PLAIN for group in groups) else self._why_wrong(groups)
            why = wrong or why
            if not wrong:
                break
        slow = sum(len(group.numbers) for group in groups if self.source.is_slow(group.causal))
        if slow:
            cost = f"{slow} explanations are therefore asked alone on the whole graph, in a pass for each of their worlds."
            warn_slow(self.model, why or self.source.obstacle, cost)
        return groups

    def _why_wrong(self, groups: list[EvaluatedGroup]) -> str:
        """What groups get wrong in the worlds of hard and soft masks, and in two random worlds; empty if nothing."""
        hard = self.default_masks
        wrong = why_wrong(self, groups, lambda group: group.causal.output(self._test_weights(group)))
        if wrong or not self._removes:
            return wrong
        return why_wrong(self, groups, lambda group: group.output_after_removal(hard, self.tied))

    def plain_groups(self) -> Iterator[EvaluatedGroup]:
        """The explanations one by one, each on the caller's whole graph, one world at a time."""
        device = self.groups[0].numbers.device
        for number in range(len(self.explanations)):
            yield self.group(torch.tensor([number], device=device), self.source.plain(number))

    def wide_groups(self) -> list[EvaluatedGroup]:
        """The explanations on wider subgraphs, with all edges that a mask can keep."""
        numbers = torch.arange(len(self.explanations), device=self.groups[0].numbers.device)
        reference = self.source.reference(numbers)
        return list(self.plain_groups()) if reference is None else [self.group(numbers, reference)]

    @cached_property
    def tied(self) -> bool:
        """Whether both directions of an edge are one in all explanations."""
        return all(map(is_undirected, self.explanations))

    def _test_weights(self, group: EvaluatedGroup) -> Masks:
        """Weights of the worlds that a causal model is verified in."""
        packed, soft = group.pack(self.default_masks), group.pack(self.masks("soft"))
        both = Masks({name: torch.stack([mask, soft[name].to(mask.dtype)]) for name, mask in packed.items()})
        worlds = build_worlds(group.parts, both)
        worlds.pop(OUTSIDE, None)
        for part in group.parts:
            u = uniform(self._keys(group, part), 2, (0,), worlds[part.name].dtype).T  # [2, m]
            inside = packed[part.name].flatten() > 0  # worlds of the certificates: any subset, elements left out at random
            random = ((u < 0.5) | inside & (u < 0.75)).to(u.dtype).view(2, *worlds[part.name].shape[1:])
            worlds[part.name] = torch.cat([worlds[part.name], random])
        return worlds

    def _check_data(self, data: Data | Sequence[Data]) -> None:
        for one in self.explanations:
            number = int(one.output_id)
            graph = data if isinstance(data, Data) else data[number] if number < len(data) else None
            edges = 0 if graph is None else int(graph.num_edges)
            if graph is None or (one.edge_id.numel() and int(one.edge_id.max()) >= edges):
                raise InputError(
                    f"data must be what was explained (got {edges} edges for an explanation of output {one.output_id}, "
                    "which has more, or too few graphs). Give the same graph or list of graphs as to explain_many."
                )

    def _source_on_graph(self, data: Data, names: Sequence[str]) -> ModelSource:
        kwargs = {name: self._argument(name, data) for name in names}
        inputs = check_inputs(self.model, data.x, edges_of(self.model, data), kwargs, self.outcome.level)
        inputs = replace(inputs, baseline=self._missing(inputs.x, inputs.kwargs))
        graph = TracedGraph(self.model, self.outcome, inputs, self.edges, self.nodes)
        row = graph.check_rows([int(one.output_id) for one in self.explanations])
        return OneGraphSource(graph, graph.cuts(row, torch.arange(len(row), device=row.device), self._classes()))

    def _argument(self, name: str, data: Data) -> Any:
        """A model argument on the whole graph; one without a size is the same there as in an explanation."""
        if data.get(name) is not None:
            return data[name]
        own = self.explanations[0].get(name)
        if isinstance(own, Tensor) and own.dim():
            raise InputError(
                f"The graph must hold all arguments that the model took (got none called {name}). Set data.{name} to what "
                "explain_many was given."
            )
        return own

    def group(self, numbers: Tensor, causal: CausalModel) -> EvaluatedGroup:
        """Some explanations on a causal model that has an instance for each."""
        here, (edge_ids, node_ids) = causal.instances, self._ids
        edge_at = edge_ids.positions(numbers[here.edge_owner], here.edge_id)
        node_at = node_ids.positions(numbers[here.node_owner], here.node_id)
        kind = None
        if self.nodes:
            kind = MaskType.object if self.explanations[0].node_mask.size(1) == 1 else MaskType.attributes
        return EvaluatedGroup(numbers, causal, MaskParts.of(here, self.edges, kind), edge_at, node_at)

    @cached_property
    def _ids(self) -> tuple[JoinedIds, JoinedIds]:
        """The caller's numbers of the edges and of the nodes of all explanations."""
        edges, nodes = ([one[name] for one in self.explanations] for name in ("edge_id", "node_id"))
        return JoinedIds(edges), JoinedIds(nodes)

    def reference_group(self, numbers: Tensor) -> EvaluatedGroup | None:
        """Some explanations on a causal model without shortcuts; made once for the sample, which is asked many times."""
        key = tuple(numbers.tolist())
        if key in self._sampled:
            return self._sampled[key]
        reference = self.source.reference(numbers)
        found = None if reference is None else self.group(numbers, reference)
        if len(key) <= SAMPLE:
            self._sampled[key] = found
        return found

    def _classes(self) -> Tensor:
        found = [(explained_targets(one), one.get("index")) for one in self.explanations]
        return torch.cat([(target if index is None else target[index]).view(-1) for target, index in found])

    def inputs_of(self, one: Explanation) -> ModelInputs:
        """The model's arguments for an explanation's own graph."""
        kwargs = {name: one[name] for name in one._model_args}
        inputs = check_inputs(self.model, one.x, given_edges(one), kwargs, self.outcome.level)
        rows = self._missing(*((one.x, kwargs) if self._whole is None else (self._whole.x, self._whole)))
        return replace(inputs, baseline=rows if rows is None or self._whole is None else rows[one.node_id])

    def in_order(self, values: list[Tensor], dim: int = 0, groups: Sequence[EvaluatedGroup] | None = None) -> Tensor:
        """Values of all groups in the order of the explanations."""
        order = torch.argsort(torch.cat([group.numbers for group in groups or self.groups]))
        return torch.cat(values, dim).index_select(dim, order)

    @cached_property
    def reached(self) -> list[Tensor]:
        """Edges of each explanation over which a message can reach its output."""
        return list(torch.split(self.reached_flat, self._ids[0].rows))

    @cached_property
    def reached_flat(self) -> Tensor:
        """The same of all explanations, one after another."""
        reached = self.groups[0].edge_at.new_zeros(sum(self._ids[0].rows), dtype=torch.bool)
        for group in self.groups:
            reached[group.edge_at[group.edge_at >= 0]] = True
        return reached

    @cached_property
    def intervention(self) -> str:
        """What the explanations were searched under; ``"mask"`` if nobody knows, or if they differ."""
        found = {one.get("intervention") or "mask" for one in self.explanations}
        return found.pop() if len(found) == 1 and (self.edges or self.deletes_nodes) else "mask"

    @cached_property
    def split(self) -> Tensor:
        """Probability of each sub-event of the complement for each explanation, [A, B]."""
        usual = BaseSettings().split
        given = [(one.get("settings") or {}).get("split") or usual for one in self.explanations]
        events = len(self.groups[0].parts.events)
        return self.output.new_tensor(given).T if events > 1 else self.output.new_ones(1, len(given))

    # --- masks -----------------------------------------------------------------------------------------------------------

    def masks(self, kind: MaskKind) -> JoinedMasks:
        """The masks of each explanation."""
        if kind not in self._masks:
            parts = [part for part, on in ((EDGES, self.edges), (NODES, self.nodes)) if on]
            given = {part: masks_of(self.explanations, MASK_NAMES[part], kind) for part in parts}
            rows = {part: [mask.size(0) for mask in masks] for part, masks in given.items()}
            joined = JoinedMasks(Masks({part: torch.cat(masks) for part, masks in given.items()}), rows)
            if kind != "soft":
                joined = joined.map(lambda mask, _: (mask if kind == "hard" else mask > kind).to(self._mask_dtype))
            self._masks[kind] = joined
        return self._masks[kind]

    @cached_property
    def _mask_dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.explanations[0]["edge_mask" if self.edges else "node_mask"].dtype
        return dtype

    @property
    def default_masks(self) -> JoinedMasks:
        """Hard masks, or soft ones cut at 0.5 if the explanations have none."""
        hard = any(self.explanations[0].get(f"hard_{name}") is not None for name in MASK_NAMES.values())
        return self.masks("hard" if hard else 0.5)

    # --- worlds ----------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def worlds(self, masks: JoinedMasks) -> Tensor:
        """The model's output in the worlds of each mask, [1 + A, B, ...].

        First the factual world, then the sub-events of the literal complement: 00, or 00, 01 and 10 if both edges and
        nodes are masked.
        """
        with borrow(self.model):
            return ask(self, lambda group: group.causal.output(group.worlds(masks)), False, self.groups)

    @torch.no_grad()
    def custom_worlds(self, masks: JoinedMasks, make: WorldMaker) -> Tensor:
        """The model's output in worlds that ``make`` builds from each part of each mask, [K, B, ...]."""

        def output(group: EvaluatedGroup) -> Tensor:
            packed, weights = group.pack(masks), Masks()
            for part in group.parts:
                worlds = make(packed[part.name].flatten(), self._keys(group, part))
                weights[part.name] = worlds.reshape(len(worlds), *part.shape)
            return group.causal.output(group.parts.to_weights(weights))

        with borrow(self.model):
            return ask(self, output, False, self.groups)

    def _keys(self, group: EvaluatedGroup, part: Part) -> Tensor:
        """One key per entry of a packed mask, from the explained output and the caller's number of the edge or node."""
        here, width = group.causal.instances, part.width
        ids, owner = (here.node_id, here.node_owner) if part.group else (here.edge_id, here.edge_owner)
        output = ids.new_tensor([int(self.explanations[number].output_id) for number in group.numbers.tolist()])
        key = (output[owner] << 40) ^ (part.group << 39) ^ (ids * width)
        return (key.unsqueeze(1) + torch.arange(width, device=ids.device)).flatten()

    def probability(self, output: Tensor) -> Tensor:
        """Probability of each explanation's class or event in outputs [..., B, C], [..., B]."""
        return self.outcome.probability(output, self.target)

    def answers(self, output: Tensor) -> Tensor:
        """The predicted class in outputs [..., B, C]; 1 where an event happens and 0 where not, [..., B]."""
        if self.outcome.event is None:
            return self.outcome.predicted(output)
        return self.outcome.holds(output, self.target).long()
