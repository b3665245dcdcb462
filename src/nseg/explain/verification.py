"""Every final answer is verified: its masks run once more without shortcuts.

Shortcuts (:mod:`nseg.model.strategy`) are verified on a few outputs before they are used, which a model can pass and
still treat other outputs differently. So the probabilities of the hard and soft masks of every explanation are computed
again with all messages and nothing carried over from the whole graph: on a wider subgraph, in batches, and for a random
sample also on the caller's whole graph with the plain strategy. Where that is as cheap, all are verified on the whole
graph. An instance in doubt gets passes of its own, one world at a time, which decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.explain.shared_worlds import SharedMasks
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import EDGE_KIND
from nseg.graphs.subgraph import reverse_edges
from nseg.model.causal import CausalModel
from nseg.search.feature_parts import edge_types
from nseg.search.formulas import mix
from nseg.search.parts import ATTRIBUTES, EDGES, NODES, MaskParts, Masks
from nseg.search.worlds import build_worlds, split_worlds

if TYPE_CHECKING:
    from nseg.explain.answers import BatchAnswer

SAMPLE = 32
"""Instances of a call that are also verified on the whole graph."""

LARGE = 100_000
"""Nodes and edges of a graph of which no pass is run that is not needed."""

SOFT, EMPTY = "soft", "empty"
"""What is verified besides hard masks by each intervention: soft masks, and masks that keep nothing."""

MEMBERS_AT_ONCE = 1 << 14
"""Nodes and edges of the subgraphs that are verified in one batch, so that their messages fit into the cache."""

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
        shared: returns the causal model of that graph for some instances of one row each, which answers row by row; None
            if each instance is a graph of its own.
    """

    batched: Callable[[Tensor], CausalModel | None]
    plain: Callable[[int], CausalModel]
    shared: Callable[[Tensor], CausalModel] | None = None


def choose_sample(number: int, rows: Sequence[int], targets: int, whole_size: int) -> frozenset[int]:
    """Outputs of a shard that are verified on the whole graph: 32 of the whole call, at least one per shard.

    Where a pass of the whole graph takes long, all are in the first shard, so that they can share passes.

    Args:
        number: number of the shard.
        rows: its outputs.
        targets: outputs of the whole call.
        whole_size: nodes and edges of the graph that they share; 0 if each has its own.
    """
    size = min(len(rows), -(-SAMPLE * len(rows) // max(targets, 1)))
    if whole_size > LARGE:
        size = min(len(rows), SAMPLE) if number == 0 else 0
    chosen = torch.randperm(len(rows), generator=torch.Generator().manual_seed(number), device="cpu")[:size]
    return frozenset(rows[n] for n in chosen.tolist())


def find_wrong(
    answer: BatchAnswer, numbers: Tensor, references: References, sample: Sequence[int]
) -> tuple[list[int], bool]:
    """Numbers of the instances whose answer is not what the model gives, and whether all other answers are in doubt too.

    They are if an instance of the sample is wrong and what verifies every instance did not notice.

    Args:
        answer: explanations of B instances.
        numbers: numbers of these instances, [B].
        references: where to verify them.
        sample: numbers of instances that are verified on the whole graph in any case.
    """
    sampled = torch.isin(numbers, numbers.new_tensor(list(sample)))
    shared = references.shared if not answer.common and answer.attributes is None else None
    good, good_sample = _holds_together(answer, numbers, sampled, references.batched(numbers), shared)
    doubtful, alone = ~(good & good_sample), sampled if shared is None else torch.zeros_like(sampled)
    wrong, all_in_doubt = list[int](), False
    for position, b in enumerate((doubtful | alone).nonzero().flatten().tolist()):
        kinds = _kinds(answer) if bool(doubtful[b]) or not position else _judged_by(answer)
        if not bool(_holds(answer, kinds, numbers.new_tensor([b]), references.plain(int(numbers[b])))):
            wrong.append(int(numbers[b]))
            all_in_doubt |= bool(good[b])
    return wrong, all_in_doubt


def _holds_together(
    answer: BatchAnswer,
    numbers: Tensor,
    sampled: Tensor,
    wide: CausalModel | None,
    shared: Callable[[Tensor], CausalModel] | None,
) -> tuple[Tensor, Tensor]:
    """Whether answers hold where every instance is verified, and where only the sample is, [B] each.

    Every instance is verified on the wider subgraphs, or on the whole graph if that takes no more.
    """
    good, good_sample = torch.ones_like(sampled), torch.ones_like(sampled)
    everything, some = torch.arange(len(numbers), device=numbers.device), sampled.nonzero().flatten()
    if shared is None:
        return _holds_batched(answer, _kinds(answer), wide), good_sample
    whole, on_subgraphs = shared(numbers), list[str]()
    most = len(numbers) if wide is None else int(wide.instances.sizes.sum() // whole.instances.sizes.sum())
    for kind in _kinds(answer):
        together = _share(answer, kind, everything, wide, whole, most)
        if together is None:
            on_subgraphs.append(kind)
        else:
            good &= _holds_shared(answer, kind, everything, whole, together)
    if on_subgraphs:
        good &= _holds_batched(answer, on_subgraphs, wide)
    whole = shared(numbers[some])
    for kind in _judged_by(answer) if len(some) else ():
        if kind in on_subgraphs:
            few = _share(answer, kind, some, wide, whole, len(some))
            assert few is not None
            good_sample[some] &= _holds_shared(answer, kind, some, whole, few)
    return good, good_sample


def _share(
    answer: BatchAnswer, kind: str, which: Tensor, wide: CausalModel | None, whole: CausalModel, most: int
) -> SharedMasks | None:
    """The masks of some answers on the whole graph; None if they need too many worlds."""
    masks, instances = _masks_of(answer, kind), answer.instances
    if kind == "remove" and wide is not None:  # edges around a subgraph count in the degrees of its nodes
        masks, instances = _masks_in(wide, answer, torch.arange(len(instances), device=which.device), masks), wide.instances
    if len(which) < len(instances):
        masks, instances = _select(masks, instances, which), instances.select(which)
    return SharedMasks.of(masks, instances, whole.instances, answer.tied, most)


def _holds_batched(answer: BatchAnswer, kinds: Sequence[str], wide: CausalModel | None) -> Tensor:
    """Whether answers hold on wider subgraphs, [B]; not if there are none."""
    number = len(answer.instances)
    if wide is None:
        return torch.zeros(number, dtype=torch.bool, device=answer.exact.device)
    batch = torch.cumsum(wide.instances.sizes, 0) // MEMBERS_AT_ONCE
    parts = [(batch == n).nonzero().flatten() for n in torch.unique(batch).tolist()]
    return torch.cat([_holds(answer, kinds, part, wide.select(part) if len(parts) > 1 else wide) for part in parts])


def _holds_shared(answer: BatchAnswer, kind: str, which: Tensor, whole: CausalModel, together: SharedMasks) -> Tensor:
    """Whether some answers hold on the whole graph, in shared worlds, [b]; not if the model raises."""
    parts = _parts(answer, whole.instances)
    own, same = _own_numbers(answer, kind)[:, which], torch.ones_like(which, dtype=torch.bool)
    try:
        for group in range(together.number):
            p = _reference_numbers(answer, whole, parts, {kind: together.of_group(group, whole.dtype)})
            same &= (together.group != group) | _equal(p[kind], own)
    except Exception:  # a model may raise anything in a world that it does not expect; the plain strategy decides
        return torch.zeros_like(same)
    return same


def _holds(answer: BatchAnswer, kinds: Sequence[str], which: Tensor, reference: CausalModel) -> Tensor:
    """Whether some answers hold in a reference that has an instance for each of them, [b]; not if it raises."""
    parts = _parts(answer, reference.instances)
    same = torch.ones_like(which, dtype=torch.bool)
    try:
        masks = {kind: _masks_in(reference, answer, which, _masks_of(answer, kind)) for kind in kinds}
        for kind, p in _reference_numbers(answer, reference, parts, masks).items():
            same &= _equal(p, _own_numbers(answer, kind)[:, which])
    except Exception:  # a model may raise anything on graphs that it does not expect; the plain strategy decides
        return torch.zeros_like(same)
    return same


# --- the numbers of an answer --------------------------------------------------------------------------------------------


def _kinds(answer: BatchAnswer) -> list[str]:
    """All numbers that an answer has; a model may not run on a smaller graph."""
    return [SOFT, *_interventions(answer), EMPTY]


def _interventions(answer: BatchAnswer) -> list[str]:
    return [name for name in answer.measured.by if name == "mask" or EDGES in answer.hard]


def _judged_by(answer: BatchAnswer) -> list[str]:
    """The interventions that hard masks are judged by."""
    asked = answer.intervention
    return [name for name in _interventions(answer) if asked in (name, "both")] or ["mask"]


def _masks_of(answer: BatchAnswer, kind: str) -> Masks:
    if kind == SOFT:
        return answer.soft
    return answer.hard.map(torch.zeros_like) if kind == EMPTY else answer.hard


def _own_numbers(answer: BatchAnswer, kind: str) -> Tensor:
    """The numbers of an answer: p_factual and p_complement, [2, B]; of empty masks the former, [1, B]."""
    if kind == SOFT:
        return answer.soft_p
    measured = answer.measured
    if kind == EMPTY:
        return measured.empty.p_factual.unsqueeze(0)
    return torch.stack([measured.by[kind].p_factual, measured.by[kind].p_complement])


@torch.no_grad()
def _reference_numbers(
    answer: BatchAnswer, causal: CausalModel, parts: MaskParts, masks: Mapping[str, Masks]
) -> dict[str, Tensor]:
    """The same numbers in a reference, by kind; all worlds of an intervention are run at once.

    Edges and nodes outside the masks count as not explained, as on an explanation: 0 in the mask, 1 in its complement.
    """
    found: dict[str, Tensor] = {}
    judged = _judged_by(answer)
    for intervention, names in (("mask", (SOFT, "mask", EMPTY)), ("remove", ("remove", EMPTY))):
        asked = [kind for kind in names if kind in masks and (kind != EMPTY or intervention in judged)]
        worlds = [build_worlds(parts, masks[kind].map(lambda mask: mask.unsqueeze(0))) for kind in asked]
        # nothing is changed in the complement of the empty mask
        worlds = [one.map(lambda w: w[:1]) if kind == EMPTY else one for kind, one in zip(asked, worlds, strict=True)]
        if not worlds:
            continue
        together = {name: torch.cat([one[name] for one in worlds]) for name in worlds[0]}
        p = (causal if intervention == "mask" else causal.removing()).do(together)
        counts = [len(next(iter(one.values()))) for one in worlds]
        for kind, own in zip(asked, torch.split(p, counts), strict=True):
            if kind == EMPTY:
                found[kind] = torch.minimum(found.get(kind, own), own)
            else:
                factual, complement = split_worlds(own, parts)
                found[kind] = torch.cat([factual, mix(complement, answer.split)])
    return found


def _equal(p: Tensor, own: Tensor) -> Tensor:
    """Whether all numbers of each instance are equal up to rounding, [b]."""
    same: Tensor = ((p - own).abs() <= 2 * torch.finfo(p.dtype).eps ** 0.6).all(0)
    return same


# --- masks on other graphs -----------------------------------------------------------------------------------------------


def _parts(answer: BatchAnswer, instances: InstanceBatch) -> MaskParts:
    """The parts of an answer's masks, of other instances."""
    return MaskParts.of(instances, EDGES in answer.hard, _node_mask_type(answer), attributes=answer.attributes)


def _node_mask_type(answer: BatchAnswer) -> MaskType | None:
    if NODES not in answer.hard:
        return None
    if answer.common:
        return MaskType.common_attributes
    return MaskType.object if answer.hard[NODES].size(1) == 1 else MaskType.attributes


def _select(masks: Masks, instances: InstanceBatch, which: Tensor) -> Masks:
    """Masks of the instances ``which``."""
    owner = {EDGES: instances.edge_owner, NODES: instances.node_owner}
    return Masks({name: mask[torch.isin(owner[name], which)] for name, mask in masks.items()})


def _masks_in(reference: CausalModel, answer: BatchAnswer, which: Tensor, masks: Masks) -> Masks:
    """Masks of some answers, on the edges and nodes of a reference."""
    instances, there, found = answer.instances.select(which), reference.instances, Masks()
    if EDGES in masks:
        mine = torch.isin(answer.instances.edge_owner, which)
        found[EDGES] = _place(masks[EDGES][mine], instances, there, edges=True)
        ties = answer.ties[which][there.edge_owner]
        if bool(ties.any()):  # as on an explanation
            reverse = reverse_edges(there.edge_index, there.num_nodes, there.args.get(EDGE_KIND))
            found[EDGES] = torch.where(ties, torch.maximum(found[EDGES], found[EDGES][reverse]), found[EDGES])
    if ATTRIBUTES in masks and answer.attributes is MaskType.common_attributes:
        found[ATTRIBUTES] = _select_common(masks[ATTRIBUTES], edge_types(instances), which)
    elif ATTRIBUTES in masks:
        mine = torch.isin(answer.instances.edge_owner, which)
        found[ATTRIBUTES] = _place(masks[ATTRIBUTES][mine], instances, there, edges=True)
    if NODES in masks and answer.common:
        found[NODES] = _select_common(masks[NODES], instances.node_types, which)
    elif NODES in masks:
        mine = torch.isin(answer.instances.node_owner, which)
        found[NODES] = _place(masks[NODES][mine], instances, there, edges=False)
    return found.map(lambda mask: mask.to(reference.dtype))


def _select_common(values: Tensor, types: int, which: Tensor) -> Tensor:
    """Values of columns that all nodes or edges of a type share, of some instances, [B * types, F]."""
    return values.view(-1, types, values.size(1))[which].flatten(0, 1)


def _place(values: Tensor, here: InstanceBatch, there: InstanceBatch, edges: bool) -> Tensor:
    """Values of edges or nodes of a batch, on a batch of the same instances with more of them; 0 for the others."""
    ids, owner = (here.edge_id, here.edge_owner) if edges else (here.node_id, here.node_owner)
    other_ids, other_owner = (there.edge_id, there.edge_owner) if edges else (there.node_id, there.node_owner)
    most = int(max(ids.max() if ids.numel() else 0, other_ids.max() if other_ids.numel() else 0)) + 1
    position = torch.searchsorted(other_owner * most + other_ids, owner * most + ids)
    return values.new_zeros(len(other_ids), *values.shape[1:]).index_copy(0, position, values)
