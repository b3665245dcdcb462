"""The base of every method: a method scores elements, and everything else is shared."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.explain import ExplainerAlgorithm
from torch_geometric.explain.config import MaskType, ModelMode

from nseg.errors import UnsupportedError
from nseg.explanation import Explanation
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.checks import check_inputs
from nseg.graphs.inputs import Role
from nseg.graphs.subgraph import reverse_edges
from nseg.model.borrow import borrow, unwrap_compiled
from nseg.model.causal import CausalModel
from nseg.model.outcomes import outcome_of
from nseg.model.traced_graph import TracedGraph
from nseg.search import formulas
from nseg.search.descent import Tick
from nseg.search.harden import SearchResult, harden
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.settings import BaseSettings
from nseg.search.worlds import evaluate


@dataclass(frozen=True)
class BatchAnswer:
    """Explanations of B instances, on the edges and nodes of ``instances``.

    Args:
        instances: what was explained.
        soft, hard: masks: of edges [E], of nodes [N, w], or [B, F] for features common to all nodes.
        soft_p, hard_p: p_factual and p_complement of these masks, [2, B] each.
        exact: whether each hard mask is the best there is, by enumeration, [B].
        common: whether node masks are of features common to all nodes.
    """

    instances: InstanceBatch
    soft: Masks
    hard: Masks
    soft_p: Tensor
    hard_p: Tensor
    exact: Tensor
    common: bool = False


class BatchedAlgorithm(ExplainerAlgorithm):  # type: ignore[misc]
    """An explainer that answers many instances at once; :func:`nseg.explain_many` needs nothing else.

    A method defines its settings and how it scores elements (:meth:`solve`). How the scores become a hard explanation,
    and what that is worth, is the same for all methods.
    """

    Settings: ClassVar[type[BaseSettings]]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.settings: Any = self.Settings(**settings)

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

        def p(masks: Masks) -> Tensor:
            found = evaluate(causal, parts, masks.map(lambda mask: mask.unsqueeze(0).to(causal.dtype)), split)
            return torch.cat([found.p_factual, found.p_complement])

        def on_graph(masks: Masks) -> Masks:
            return Masks({**masks, **parts.to_weights(Masks({k: v for k, v in masks.items() if k == EDGES}))})

        common = NODES in parts and self.explainer_config.node_mask_type is MaskType.common_attributes
        return BatchAnswer(causal.instances, on_graph(result.soft), on_graph(hard), p(result.soft), p(hard), exact, common)

    def parts(self, instances: InstanceBatch) -> MaskParts:
        """The parts of the masks that the connected ``Explainer`` asks for."""
        config = self.explainer_config
        edges = config.edge_mask_type is not None
        return MaskParts.of(instances, edges, config.node_mask_type, self.settings.undirected)

    def forward(
        self, model: torch.nn.Module, x: Tensor, edge_index: Tensor, *, target: Tensor, index: Any = None, **kwargs: Any
    ) -> Explanation:
        """Explain the outputs ``index`` by one common mask; called by PyG's ``Explainer``."""
        model = unwrap_compiled(model)
        with torch.inference_mode(False), torch.enable_grad(), borrow(model):
            inputs = check_inputs(model, x, edge_index, kwargs, self.model_config.task_level)
            graph = TracedGraph(model, outcome_of(self.model_config), inputs, *self.masks)
            row = graph.check_rows(index)
            cuts = graph.cuts(row, torch.zeros_like(row), graph.check_targets(target, row))
            ((_, causal),) = graph.causal_models(cuts)
            causal.require_dependence(*self.masks)
            answer = self.answer(causal, self.parts(causal.instances))
        edges = torch.arange(inputs.num_edges, device=row.device)
        nodes = torch.arange(inputs.num_nodes, device=row.device)
        return build_explanation(answer, 0, inputs.edge_index, edges, nodes, self.settings)

    @property
    def masks(self) -> tuple[bool, bool]:
        """Whether edges and whether nodes are masked."""
        return self.explainer_config.edge_mask_type is not None, self.explainer_config.node_mask_type is not None

    def supports(self) -> bool:
        """Whether model and masks are supported: classification at any level, every mask type of PyG."""
        if self.model_config.mode is ModelMode.regression:
            raise UnsupportedError(
                f"{type(self).__name__} explains the probability of a class, which a regression model does not have. "
                "Use mode='binary_classification' or 'multiclass_classification', e.g. on a thresholded output."
            )
        return True

    def __repr__(self) -> str:
        plain = {f.name: f.default for f in fields(self.settings)}
        changed = {k: v for k, v in vars(self.settings).items() if v != plain[k] or k == "objective"}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in changed.items())})"


def build_explanation(
    answer: BatchAnswer, number: int, edge_index: Tensor, edge_id: Tensor, node_id: Tensor, settings: BaseSettings
) -> Explanation:
    """One instance's explanation on a graph that contains it; masks are 0 outside the instance.

    Args:
        answer: answers to several instances.
        number: which of them.
        edge_index: the graph, [2, E].
        edge_id, node_id: the caller's numbers of its edges and nodes, sorted.
        settings: what made the answer.
    """
    instances = answer.instances
    edges, nodes = instances.members(Role.EDGE, number), instances.members(Role.NODE, number)
    edge_at = torch.searchsorted(edge_id, instances.edge_id[edges])
    node_at = torch.searchsorted(node_id, instances.node_id[nodes])
    reverse = reverse_edges(edge_index, node_id.numel()) if settings.undirected else None

    def on_edges(mask: Tensor | None) -> Tensor | None:
        if mask is None:
            return None
        full = mask.new_zeros(edge_id.numel()).index_copy(0, edge_at, mask[edges])
        # an undirected edge also covers the direction over which no message reaches the output
        return full if reverse is None else torch.maximum(full, full[reverse])

    def on_nodes(mask: Tensor | None) -> Tensor | None:
        if mask is None or answer.common:
            return None if mask is None else mask[number : number + 1].clone()
        return mask.new_zeros(node_id.numel(), mask.size(1)).index_copy(0, node_at, mask[nodes])

    p_factual, p_complement = answer.hard_p[:, number]
    soft_factual, soft_complement = answer.soft_p[:, number]
    found = Explanation(node_mask=on_nodes(answer.soft.get(NODES)), edge_mask=on_edges(answer.soft.get(EDGES)))
    reached = torch.zeros(edge_id.numel(), dtype=torch.bool, device=edge_id.device)
    reached[edge_at] = True
    values = {
        "reached": reached,
        "hard_node_mask": on_nodes(answer.hard.get(NODES)),
        "hard_edge_mask": on_edges(answer.hard.get(EDGES)),
        "p_factual": float(p_factual),
        "p_complement": float(p_complement),
        "pns": float(formulas.pns_bound(p_factual, p_complement)),
        "pn": float(formulas.pn_bound(p_factual, p_complement)),
        "ps": float(formulas.ps_bound(p_factual, p_complement)),
        "soft_p_factual": float(soft_factual),
        "soft_p_complement": float(soft_complement),
        "exact": bool(answer.exact[number]),
        "seed": settings.seed,
        "settings": settings.as_plain_data(),
    }
    for name, value in values.items():
        if value is not None:
            found[name] = value
    return found
