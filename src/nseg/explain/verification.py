"""Every final answer is verified: its masks run once more without shortcuts.

Shortcuts (:mod:`nseg.model.strategy`) are verified on a few outputs before they are used, which a model can pass and
still treat other outputs differently. So the probabilities of the hard and soft masks of every explanation are computed
again on a wider subgraph, with all messages and nothing carried over from the whole graph, in one batch; and for a random
sample also alone on the caller's whole graph. The plain strategy decides in doubt.
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
from nseg.search.worlds import evaluate

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
        own = _probabilities(answer.soft_p, answer.measured)[:, which]
    except Exception:  # a model may raise anything on graphs that it does not expect; the plain strategy decides
        return none
    tolerance = 2 * torch.finfo(p.dtype).eps ** 0.6
    known = min(len(p), len(own))  # a model may not run on a smaller graph
    same: Tensor = ((p[:known] - own[:known]).abs() <= tolerance).all(0)
    return same


@torch.no_grad()
def reference_probabilities(answer: BatchAnswer, which: Tensor, reference: CausalModel) -> Tensor:
    """p_factual and p_complement of some answers in a reference: soft masks, hard masks, hard masks by deletion, [6, b].

    Edges and nodes outside the masks count as not explained, as on an explanation: 0 in the mask, 1 in its complement.
    """
    hard, soft = (_masks_in(reference, answer, which, masks) for masks in (answer.hard, answer.soft))
    parts = MaskParts.of(reference.instances, EDGES in hard, _node_mask_type(answer))
    found = evaluate(reference, parts, soft.map(lambda mask: mask.unsqueeze(0)), answer.split)
    measured = measure_hard(reference, parts, hard, answer.split, answer.measured.intervention)
    return _probabilities(torch.cat([found.p_factual, found.p_complement]), measured)


def _node_mask_type(answer: BatchAnswer) -> MaskType | None:
    if NODES not in answer.hard:
        return None
    if answer.common:
        return MaskType.common_attributes
    return MaskType.object if answer.hard[NODES].size(1) == 1 else MaskType.attributes


def _masks_in(reference: CausalModel, answer: BatchAnswer, which: Tensor, masks: Masks) -> Masks:
    """Masks of some answers, on the edges and nodes of a reference."""
    instances, there, found = answer.instances.select(which), reference.instances, Masks()
    if EDGES in masks:
        mine = torch.isin(answer.instances.edge_owner, which)
        found[EDGES] = _place(masks[EDGES][mine], instances, there, edges=True)
        if answer.tied:  # as on an explanation
            found[EDGES] = torch.maximum(found[EDGES], found[EDGES][reverse_edges(there.edge_index, there.num_nodes)])
    if NODES in masks and answer.common:
        per_type = masks[NODES].view(-1, instances.node_types, masks[NODES].size(1))  # [B, types, F]
        found[NODES] = per_type[which].flatten(0, 1)
    elif NODES in masks:
        mine = torch.isin(answer.instances.node_owner, which)
        found[NODES] = _place(masks[NODES][mine], instances, there, edges=False)
    return found.map(lambda mask: mask.to(reference.dtype))


def _probabilities(soft_p: Tensor, measured: Measured) -> Tensor:
    """p_factual and p_complement of soft masks, and of hard ones by all interventions that are known, [4 or 6, B]."""
    return torch.cat([soft_p, *(torch.stack([one.p_factual, one.p_complement]) for one in measured.by.values())])


def _place(values: Tensor, here: InstanceBatch, there: InstanceBatch, edges: bool) -> Tensor:
    """Values of edges or nodes of a batch, on a batch of the same instances with more of them; 0 for the others."""
    ids, owner = (here.edge_id, here.edge_owner) if edges else (here.node_id, here.node_owner)
    other_ids, other_owner = (there.edge_id, there.edge_owner) if edges else (there.node_id, there.node_owner)
    most = int(max(ids.max() if ids.numel() else 0, other_ids.max() if other_ids.numel() else 0)) + 1
    position = torch.searchsorted(other_owner * most + other_ids, owner * most + ids)
    return values.new_zeros(len(other_ids), *values.shape[1:]).index_copy(0, position, values)
