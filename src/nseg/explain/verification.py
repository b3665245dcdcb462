"""Every final answer is verified: its masks run once more without shortcuts.

Shortcuts (:mod:`nseg.model.strategy`) are verified on a few outputs before they are used, which a model can pass and
still treat other outputs differently. So the probabilities of the hard and soft masks of every explanation are computed
again with all messages and nothing carried over from the whole graph: on a wider subgraph, in batches, and for a random
sample also alone on the caller's whole graph with the plain strategy. Where that is as cheap, all are verified on the
whole graph. An instance in doubt gets passes of its own, one world at a time, which decide.

A pass of a large graph takes as long as many explanations. There the sample shares passes, and one of it is alone.
Of the sizes of a path, one per instance is verified, drawn at random, and all of them if any answer is found to be wrong;
of large graphs, one per instance of every fourth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.explain.placement import Placement
from nseg.explain.shared_worlds import SharedMasks
from nseg.graphs.batch import InstanceBatch
from nseg.model.causal import CausalModel
from nseg.search.formulas import mix, pns_bound
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.worlds import build_worlds, split_worlds

if TYPE_CHECKING:
    from nseg.explain.answers import BatchAnswer

SAMPLE = 32
"""Instances of a call that are also verified on the whole graph."""

LARGE = 100_000
"""Nodes and edges of a graph of which no pass is run that is not needed."""

SHARDS_PER_PASS = 4
"""Shards of such a graph of which one has an instance that is verified alone."""

INSTANCES_PER_PATH = 4
"""Instances of such a graph of which one has a size of its path verified."""

SOFT, EMPTY, PATH = "soft", "empty", "path"
"""What is verified besides hard masks by each intervention: soft masks, masks that keep nothing, one size of each path."""

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

    Where a pass of the whole graph takes long, they are in the first shard, so that they can share passes, and one more is
    in every fourth shard.

    Args:
        number: number of the shard.
        rows: its outputs.
        targets: outputs of the whole call.
        whole_size: nodes and edges of the graph that they share; 0 if each has its own.
    """
    size = min(len(rows), -(-SAMPLE * len(rows) // max(targets, 1)))
    if whole_size > LARGE:
        size = min(len(rows), 0 if number % SHARDS_PER_PASS else 1 if number else SAMPLE)
    rng = torch.Generator().manual_seed(number)
    if whole_size > LARGE:  # next to each other, so that they are in one batch; a shard is spread over the whole call
        start = int(torch.randint(len(rows) - size + 1, (), generator=rng, device="cpu"))
        return frozenset(rows[start : start + size])
    return frozenset(rows[n] for n in torch.randperm(len(rows), generator=rng, device="cpu")[:size].tolist())


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
    whole, wide = None if shared is None else shared(numbers), references.batched(numbers)
    large = whole is not None and int(whole.instances.sizes.sum()) > LARGE
    kinds = [kind for kind in _kinds(answer) if kind != PATH or not large or wide is None]
    good = _holds_together(answer, kinds, numbers, wide, whole)
    if PATH not in kinds and answer.path is not None:
        good &= _holds_batched(answer, [PATH], wide, (numbers % INSTANCES_PER_PATH == 0).nonzero().flatten())
    if wide is not None and not bool(good.all()):
        good &= _holds_batched(answer, _sizes_of_paths(answer), wide)
    alone, good_sample, in_full = sampled, torch.ones_like(sampled), not large
    if large and shared is not None:
        some = sampled.nonzero().flatten()
        alone = numbers == min(sample, default=-1)
        if len(some) > 1:
            good_sample[some] = _sample_holds(answer, some, wide, shared(numbers[some]))
    doubtful = ~(good & good_sample)
    wrong, all_in_doubt = list[int](), False
    for b in (doubtful | alone).nonzero().flatten().tolist():
        if bool(doubtful[b]):
            kinds = [*_kinds(answer), *_sizes_of_paths(answer)]
        else:
            kinds, in_full = _kinds(answer) if in_full else _judged_by(answer), False
        if not bool(_holds(answer, kinds, numbers.new_tensor([b]), references.plain(int(numbers[b])))):
            wrong.append(int(numbers[b]))
            all_in_doubt |= bool(good[b])
    return wrong, all_in_doubt


def _holds_together(
    answer: BatchAnswer, kinds: Sequence[str], numbers: Tensor, wide: CausalModel | None, whole: CausalModel | None
) -> Tensor:
    """Whether answers hold where every instance is verified, [B].

    That is on the wider subgraphs, or on the whole graph if it is shared and takes no more.
    """
    if whole is None:
        return _holds_batched(answer, kinds, wide)
    good, everything = torch.ones_like(numbers, dtype=torch.bool), torch.arange(len(numbers), device=numbers.device)
    on_subgraphs = list[str]()
    most = len(numbers) if wide is None else int(wide.instances.sizes.sum() // whole.instances.sizes.sum())
    for kind in kinds:
        together = _share(answer, kind, everything, wide, whole, most) if most else None
        if together is None:
            on_subgraphs.append(kind)
        else:
            good &= _holds_shared(answer, kind, everything, whole, together)
    return good & _holds_batched(answer, on_subgraphs, wide) if on_subgraphs else good


def _sample_holds(answer: BatchAnswer, some: Tensor, wide: CausalModel | None, whole: CausalModel) -> Tensor:
    """Whether some answers hold on the whole graph, of which their masks share passes, [b]."""
    good = torch.ones_like(some, dtype=torch.bool)
    for kind in _judged_by(answer):
        together = _share(answer, kind, some, wide, whole, len(some))
        assert together is not None
        good &= _holds_shared(answer, kind, some, whole, together)
    return good


def _share(
    answer: BatchAnswer, kind: str, which: Tensor, wide: CausalModel | None, whole: CausalModel, most: int
) -> SharedMasks | None:
    """The masks of some answers on the whole graph; None if they need too many worlds."""
    masks, instances = _masks_of(answer, kind), answer.instances
    removes = kind == "remove" or (kind.startswith(PATH) and "remove" in _judged_by(answer))
    if removes and wide is not None:  # edges around a subgraph count in the degrees of its nodes
        everything = torch.arange(len(instances), device=which.device)
        masks, instances = Placement(wide, answer, everything).masks(masks), wide.instances
    if len(which) < len(instances):
        masks, instances = _select(masks, instances, which), instances.select(which)
    return SharedMasks.of(masks, instances, whole.instances, answer.tied, most)


def _holds_batched(
    answer: BatchAnswer, kinds: Sequence[str], wide: CausalModel | None, which: Tensor | None = None
) -> Tensor:
    """Whether answers hold on wider subgraphs, [B]; not if there are none. Only those of ``which`` are asked, if given."""
    number, device = len(answer.instances), answer.exact.device
    if wide is None:
        return torch.zeros(number, dtype=torch.bool, device=device)
    which = torch.arange(number, device=device) if which is None else which
    wide.members_at_once = 8 * MEMBERS_AT_ONCE  # all worlds at once
    batch = torch.cumsum(wide.instances.sizes[which], 0) // MEMBERS_AT_ONCE
    good = torch.ones(number, dtype=torch.bool, device=device)
    for n in torch.unique(batch).tolist():
        part = which[batch == n]
        good[part] = _holds(answer, kinds, part, wide.select(part) if len(part) < number else wide)
    return good


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
        place = Placement(reference, answer, which)
        masks = {kind: place.masks(_masks_of(answer, kind)) for kind in kinds}
        for kind, p in _reference_numbers(answer, reference, parts, masks).items():
            same &= _equal(p, _own_numbers(answer, kind)[:, which])
    except Exception:  # a model may raise anything on graphs that it does not expect; the plain strategy decides
        return torch.zeros_like(same)
    return same


# --- the numbers of an answer --------------------------------------------------------------------------------------------


def _kinds(answer: BatchAnswer) -> list[str]:
    """All numbers that an answer has, but one size of each path; a model may not run on a smaller graph."""
    return [SOFT, *_interventions(answer), EMPTY, *([] if answer.path is None else [PATH])]


def _sizes_of_paths(answer: BatchAnswer) -> list[str]:
    """All sizes of the paths, each by its number."""
    return [] if answer.path is None else [f"{PATH} {number}" for number in range(len(answer.path.sizes))]


def _size_number(answer: BatchAnswer, kind: str) -> Tensor:
    """Which size of its path is meant for each instance, [B]: the one of a number, or one at random."""
    assert answer.path is not None
    sizes, number = answer.path.sizes, kind.removeprefix(PATH)
    if number:
        return torch.full_like(sizes[0], int(number))
    u = torch.rand(sizes.size(1), generator=torch.Generator().manual_seed(0), device="cpu").to(sizes.device)
    different = (sizes < sizes[-1:]).sum(0) + 1  # later ones are all elements of a smaller instance
    return (u * different).long().clamp(max=len(sizes) - 1)


def _interventions(answer: BatchAnswer) -> list[str]:
    return [name for name in answer.measured.by if name == "mask" or EDGES in answer.hard]


def _judged_by(answer: BatchAnswer) -> list[str]:
    """The interventions that hard masks are judged by."""
    asked = answer.intervention
    return [name for name in _interventions(answer) if asked in (name, "both")] or ["mask"]


def _masks_of(answer: BatchAnswer, kind: str) -> Masks:
    if kind == SOFT:
        return answer.soft
    if kind.startswith(PATH):
        return _subset_of_path(answer, _size_number(answer, kind))
    return answer.hard.map(torch.zeros_like) if kind == EMPTY else answer.hard


def _subset_of_path(answer: BatchAnswer, number: Tensor) -> Masks:
    """The subset of a size of each path, by the number of the size, [B]."""
    assert answer.path is not None
    instances, found = answer.instances, Masks()
    for name, code in answer.path.member.items():
        owner = instances.node_owner if name == NODES else instances.edge_owner
        if len(code) != len(owner):  # features that all nodes have in common
            owner = torch.arange(len(instances), device=code.device).repeat_interleave(len(code) // len(instances))
        found[name] = (code >> number[owner].view(-1, *[1] * (code.dim() - 1)) & 1).to(answer.soft_p.dtype)
    return found


def _own_numbers(answer: BatchAnswer, kind: str) -> Tensor:
    """The numbers of an answer: p_factual and p_complement, [2, B]; of empty masks the former, of paths PNS, [1, B]."""
    if kind == SOFT:
        return answer.soft_p
    if kind.startswith(PATH) and answer.path is not None:
        return answer.path.pns.gather(0, _size_number(answer, kind).unsqueeze(0))
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
    for intervention in ("mask", "remove"):
        always = (SOFT, "mask") if intervention == "mask" else ("remove",)
        asked = [k for k in masks if k in always or (intervention in judged and (k == EMPTY or k.startswith(PATH)))]
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
                continue
            factual, complement = split_worlds(own, parts)
            both = torch.cat([factual, mix(complement, answer.split)])
            if kind.startswith(PATH):
                pns = pns_bound(both[:1], both[1:])
                found[kind] = torch.minimum(found.get(kind, pns), pns)
            else:
                found[kind] = both
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
