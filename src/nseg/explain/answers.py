"""What a batched method answers, and how one answer becomes an explanation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain.config import MaskType

from nseg.events import Event
from nseg.explain.measurement import Measured, numbers_of
from nseg.explanation import ATTRIBUTE_MASK, HARD, Explanation, Numbers
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import Role
from nseg.graphs.subgraph import reverse_edges
from nseg.search.alternatives import Alternatives
from nseg.search.feature_parts import edge_types
from nseg.search.parts import ATTRIBUTES, EDGES, NODES, Masks
from nseg.search.path import SizePath
from nseg.search.settings import BaseSettings


@dataclass(frozen=True)
class BatchAnswer:
    """Explanations of B instances, on the edges and nodes of ``instances``.

    Args:
        instances: what was explained.
        soft, hard: masks: of edges [E], of nodes [N, w], or [B, F] for features common to all nodes; of edge attributes
            [E, D] or [B, D] likewise.
        soft_p: p_factual and p_complement of the soft masks, [2, B].
        measured: what the model says about the hard ones.
        exact: whether each hard mask is the best there is, by enumeration, [B].
        split: probability of each sub-event of the complement.
        common: whether node masks are of features common to all nodes.
        ties: whether both directions of an edge are one in each instance, [B].
        path: bounds of other sizes.
        alternatives: other explanations that are about as good, if they were asked for.
        event: what was explained, if not simply the class.
        attributes: what the mask of edge attributes covers, if there is one.
        stopped: with a time limit, the stage of the search that was cut short, or an empty text.
    """

    instances: InstanceBatch
    soft: Masks
    hard: Masks
    soft_p: Tensor
    measured: Measured
    exact: Tensor
    split: tuple[float, ...]
    ties: Tensor
    common: bool = False
    path: SizePath | None = None
    alternatives: Alternatives | None = None
    event: Event | None = None
    attributes: MaskType | None = None
    stopped: str | None = None

    @cached_property
    def tied_instances(self) -> list[bool]:
        """``ties`` as Python's values, read once for all instances."""
        return self.ties.tolist()

    @cached_property
    def exact_instances(self) -> list[bool]:
        """``exact``, likewise."""
        return self.exact.tolist()

    @property
    def tied(self) -> bool:
        """Whether both directions of an edge are one in all instances."""
        return bool(self.ties.all())

    @cached_property
    def numbers(self) -> list[Numbers]:
        """What the explanation of each instance says about its masks."""
        return numbers_of(self.measured, self.soft_p)

    @property
    def intervention(self) -> str:
        """What the hard masks are judged by."""
        return self.measured.intervention

    @property
    def other_subsets(self) -> dict[str, Any]:
        """Subsets of other sizes and other explanations, as far as there are any."""
        found = {"path": self.path, "alternatives": self.alternatives}
        return {name: subsets for name, subsets in found.items() if subsets is not None}


def build_explanation(
    answer: BatchAnswer,
    number: int,
    edge_index: Tensor,
    edge_id: Tensor,
    node_id: Tensor,
    settings: BaseSettings,
    edge_kind: Tensor | None = None,
) -> Explanation:
    """One instance's explanation on a graph that contains it; masks are 0 outside the instance.

    Args:
        answer: answers to several instances.
        number: which of them.
        edge_index: the graph, [2, E].
        edge_id, node_id: the caller's numbers of its edges and nodes, sorted.
        settings: what made the answer.
        edge_kind: kind of each edge, shared with its reverse; None if there is one kind.
    """
    instances = answer.instances
    edges, nodes = (instances.members(role, number) for role in (Role.EDGE, Role.NODE))
    # those of an instance are sorted, so if there are as many they are the same
    all_edges, all_nodes = edges.stop - edges.start == len(edge_id), nodes.stop - nodes.start == len(node_id)
    edge_at = None if all_edges else torch.searchsorted(edge_id, instances.edge_id[edges])
    node_at = None if all_nodes else torch.searchsorted(node_id, instances.node_id[nodes])
    tied = answer.tied_instances[number]
    reverse = reverse_edges(edge_index, node_id.numel(), edge_kind) if tied and not all_edges else None

    def on_edges(mask: Tensor | None) -> Tensor | None:
        if mask is None or edge_at is None:
            return None if mask is None else mask[edges].clone()
        full = mask.new_zeros(edge_id.numel()).index_copy(0, edge_at, mask[edges])
        # an undirected edge also covers the direction over which no message reaches the output
        return full if reverse is None else torch.maximum(full, full[reverse])

    def on_nodes(mask: Tensor | None) -> Tensor | None:
        if mask is None or answer.common or node_at is None:
            types = instances.node_types
            here = slice(number * types, (number + 1) * types) if answer.common else nodes
            return None if mask is None else mask[here].clone()
        return mask.new_zeros(node_id.numel(), mask.size(1)).index_copy(0, node_at, mask[nodes])

    values = {
        "node_mask": on_nodes(answer.soft.get(NODES)),
        "edge_mask": on_edges(answer.soft.get(EDGES)),
        "reached": _reached(edge_at, edge_id),
        "hard_node_mask": on_nodes(answer.hard.get(NODES)),
        "hard_edge_mask": on_edges(answer.hard.get(EDGES)),
        **_attribute_masks(answer, number, edge_at, edge_id.numel()),
        **answer.numbers[number],
        "outcome": answer.event,
        "exact": answer.exact_instances[number],
        "settings": settings.as_plain_data() | _what_was_done(answer, tied),
        "seed": settings.seed,
        "stopped": answer.stopped,
    }
    for name, subsets in answer.other_subsets.items():
        values[f"edge_{name}"] = on_edges(subsets.member.get(EDGES))
        values[f"node_{name}"] = on_nodes(subsets.member.get(NODES))
    return Explanation().filled(values | _worth_of_others(answer, number))


def _worth_of_others(answer: BatchAnswer, number: int) -> dict[str, Tensor]:
    """What one instance's subsets of other sizes, and its other explanations, are worth."""
    found: dict[str, Tensor] = {}
    if answer.path is not None:
        sizes, pns = answer.path.points[number]
        found |= {"path_sizes": sizes, "path_pns": pns * (sizes > 0)}  # nothing shows nothing
    if (others := answer.alternatives) is not None:
        found["alternative_pns"] = others.pns[others.there[:, number], number]
    return found


def _reached(edge_at: Tensor | None, edge_id: Tensor) -> Tensor:
    """Which edges of a graph an instance holds, given their positions; None for all."""
    held = torch.full_like(edge_id, edge_at is None, dtype=torch.bool)
    return held if edge_at is None else held.index_fill(0, edge_at, True)


def _attribute_masks(answer: BatchAnswer, number: int, edge_at: Tensor | None, edges: int) -> dict[str, Tensor]:
    """One instance's masks of edge attributes on a graph with more edges: [E, D], or [1, D] for columns of all edges."""
    found, mine = {}, answer.instances.members(Role.EDGE, number)
    for name, masks in ((ATTRIBUTE_MASK, answer.soft), (HARD + ATTRIBUTE_MASK, answer.hard)):
        mask = masks.get(ATTRIBUTES)
        if mask is not None and answer.attributes is MaskType.common_attributes:
            types = edge_types(answer.instances)
            found[name] = mask[number * types : (number + 1) * types].clone()
        elif mask is not None:
            own = mask[mine]
            found[name] = own.clone() if edge_at is None else own.new_zeros(edges, own.size(1)).index_copy(0, edge_at, own)
    return found


def _what_was_done(answer: BatchAnswer, tied: bool) -> dict[str, Any]:
    """Settings that the graph and the model decided; nothing if no edges are explained."""
    return {"undirected": tied, "intervention": answer.intervention} if EDGES in answer.hard else {}


def restrict_masks(answer: PyGExplanation, edge_id: Tensor, node_id: Tensor) -> Explanation:
    """The masks of an explanation of the whole graph, on some of its edges and nodes."""
    found = Explanation()
    for name, ids, size in (("edge_mask", edge_id, answer.num_edges), ("node_mask", node_id, answer.num_nodes)):
        mask = answer.get(name)
        if mask is not None:
            found[name] = mask[ids] if mask.size(0) == size else mask
    return found
