"""Every final answer is verified: its hard masks run once more without shortcuts.

Shortcuts (:mod:`nseg.model.strategy`) are verified on a few outputs before they are used, which a model can pass and
still treat other outputs differently. So the probabilities of every hard explanation are computed again on a wider
subgraph, with all messages and nothing carried over from the whole graph, in one batch; and for a random sample also
alone on the caller's whole graph. The plain strategy decides in doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.explain.measurement import Measured, measure_hard
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.subgraph import reverse_edges
from nseg.model.causal import CausalModel
from nseg.search.parts import EDGES, NODES, MaskParts, Masks

if TYPE_CHECKING:
    from nseg.explain.answers import BatchAnswer

SAMPLE = 32
"""Instances of a call that are also verified alone on the whole graph."""

REDONE = (
    "{number} explanations were searched again without shortcuts, because the model gave other probabilities for them than "
    "the shortcuts did (its messages depend on values that seemed to depend on the graph alone, or reach further than its "
    "layers). The answers are right; the search took longer."
)


@dataclass(frozen=True)
class References:
    """Where the answers of a batch are verified.

    Args:
        batched: returns the causal model of some instances on wider subgraphs, without shortcuts; None if there is none.
        plain: returns the causal model of one instance on the caller's whole graph, with the plain strategy.
    """

    batched: Callable[[Tensor], CausalModel | None]
    plain: Callable[[int], CausalModel]


def find_wrong(
    answer: BatchAnswer, numbers: Tensor, references: References, sample: Sequence[int]
) -> tuple[list[int], bool]:
    """Numbers of the instances whose answer is not what the model gives, and whether one of the sample is among them.

    Args:
        answer: explanations of B instances.
        numbers: numbers of these instances, [B].
        references: where to verify them.
        sample: numbers of instances that are verified alone on the whole graph in any case.
    """
    everything = torch.arange(len(numbers), device=numbers.device)
    doubtful = ~_agrees(answer, everything, references.batched(numbers))
    wrong, sample_failed = [], False
    for b, number in enumerate(numbers.tolist()):
        if not bool(doubtful[b]) and number not in sample:
            continue
        if not bool(_agrees(answer, everything[b : b + 1], references.plain(number))):
            wrong.append(number)
            sample_failed |= not bool(doubtful[b])
    return wrong, sample_failed


def _agrees(answer: BatchAnswer, which: Tensor, reference: CausalModel | None) -> Tensor:
    """Whether the probabilities of some answers are those of a reference, [b]; not if there is none or it raises."""
    none = torch.zeros_like(which, dtype=torch.bool)
    if reference is None:
        return none
    try:
        p = reference_probabilities(answer, which, reference)
        own = _probabilities(answer.measured)[:, which]
    except Exception:  # a model may raise anything on graphs that it does not expect; the plain strategy decides
        return none
    tolerance = 2 * torch.finfo(p.dtype).eps ** 0.6
    known = min(len(p), len(own))  # a model may not run on a smaller graph
    same: Tensor = ((p[:known] - own[:known]).abs() <= tolerance).all(0)
    return same


@torch.no_grad()
def reference_probabilities(answer: BatchAnswer, which: Tensor, reference: CausalModel) -> Tensor:
    """p_factual and p_complement of the hard masks of some answers in a reference, with masks and with deletion, [4, b].

    Edges and nodes outside the masks count as not explained, as on an explanation: 0 in the mask, 1 in its complement.
    """
    instances = answer.instances.select(which)
    there = reference.instances
    masks, kind = Masks(), None
    if EDGES in answer.hard:
        mine = torch.isin(answer.instances.edge_owner, which)
        values = answer.hard[EDGES][mine].to(reference.dtype)
        masks[EDGES] = _place(values, instances, there, edges=True)
        if answer.tied:  # as on an explanation
            masks[EDGES] = torch.maximum(masks[EDGES], masks[EDGES][reverse_edges(there.edge_index, there.num_nodes)])
    if NODES in answer.hard:
        hard = answer.hard[NODES]
        if answer.common:
            per_type = hard.view(-1, instances.node_types, hard.size(1))  # [B, types, F]
            kind, masks[NODES] = MaskType.common_attributes, per_type[which].flatten(0, 1).to(reference.dtype)
        else:
            kind = MaskType.object if hard.size(1) == 1 else MaskType.attributes
            mine = torch.isin(answer.instances.node_owner, which)
            masks[NODES] = _place(hard[mine].to(reference.dtype), instances, there, edges=False)
    parts = MaskParts.of(there, EDGES in masks, kind)
    return _probabilities(measure_hard(reference, parts, masks, answer.split, answer.measured.intervention))


def _probabilities(measured: Measured) -> Tensor:
    """p_factual and p_complement by all interventions that are known, masks first, [2 or 4, B]."""
    return torch.cat([torch.stack([one.p_factual, one.p_complement]) for one in measured.by.values()])


def _place(values: Tensor, here: InstanceBatch, there: InstanceBatch, edges: bool) -> Tensor:
    """Values of edges or nodes of a batch, on a batch of the same instances with more of them; 0 for the others."""
    ids, owner = (here.edge_id, here.edge_owner) if edges else (here.node_id, here.node_owner)
    other_ids, other_owner = (there.edge_id, there.edge_owner) if edges else (there.node_id, there.node_owner)
    most = int(max(ids.max() if ids.numel() else 0, other_ids.max() if other_ids.numel() else 0)) + 1
    position = torch.searchsorted(other_owner * most + other_ids, owner * most + ids)
    return values.new_zeros(len(other_ids), *values.shape[1:]).index_copy(0, position, values)
