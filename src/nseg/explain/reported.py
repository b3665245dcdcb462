"""The numbers that answers report, and the same numbers asked of a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.graphs.baseline import nodes_vanish
from nseg.graphs.batch import InstanceBatch
from nseg.model.causal import CausalModel
from nseg.search.formulas import mix, pns_bound
from nseg.search.parts import EDGES, NODES, MaskParts, Masks
from nseg.search.worlds import build_worlds, split_worlds

if TYPE_CHECKING:
    from nseg.explain.answers import BatchAnswer

SOFT, EMPTY, PATH, ALTERNATIVE = "soft", "empty", "path", "alternative"
"""What answers report besides hard masks by each intervention: soft masks, masks that keep nothing, sizes of paths, other
explanations."""


def kinds_of(answer: BatchAnswer) -> list[str]:
    """All numbers that an answer has, but one size of each path; a model may not run on a smaller graph."""
    others = 0 if answer.alternatives is None else len(answer.alternatives.pns)
    path = [] if answer.path is None else [PATH]
    return [SOFT, *_interventions(answer), EMPTY, *path, *(f"{ALTERNATIVE} {number}" for number in range(others))]


def sizes_of_paths(answer: BatchAnswer) -> list[str]:
    """All sizes of the paths, each by its number."""
    return [] if answer.path is None else [f"{PATH} {number}" for number in range(len(answer.path.sizes))]


def size_number(answer: BatchAnswer, kind: str) -> Tensor:
    """Which size of its path is meant for each instance, [B]: the one of a number, or one at random."""
    assert answer.path is not None
    sizes, number = answer.path.sizes, kind.removeprefix(PATH)
    if number:
        return torch.full_like(sizes[0], int(number))
    u = torch.rand(sizes.size(1), generator=torch.Generator().manual_seed(0), device="cpu").to(sizes.device)
    different = (sizes < sizes[-1:]).sum(0) + 1  # later ones are all elements of a smaller instance
    return (u * different).long().clamp(max=len(sizes) - 1)


def _interventions(answer: BatchAnswer) -> list[str]:
    """The interventions by which numbers are measured; without edges to delete, or nodes, deletion is masking."""
    deletes = EDGES in answer.hard or (NODES in answer.hard and nodes_vanish(answer.instances.baseline))
    return [name for name in answer.measured.by if name == "mask" or deletes]


def judged_by(answer: BatchAnswer) -> list[str]:
    """The interventions that hard masks are judged by."""
    asked = answer.intervention
    return [name for name in _interventions(answer) if asked in (name, "both")] or ["mask"]


def is_judged(kind: str) -> bool:
    """Whether a number is one of what the answer is judged by, and of nothing else."""
    return kind.startswith((EMPTY, PATH, ALTERNATIVE))


def removes(answer: BatchAnswer, kind: str) -> bool:
    """Whether edges are deleted for a number."""
    return kind == "remove" or (is_judged(kind) and "remove" in judged_by(answer))


def masks_of(answer: BatchAnswer, kind: str) -> Masks:
    """The masks that a number is of."""
    if kind == SOFT:
        return answer.soft
    if kind.startswith(PATH) and answer.path is not None:
        return _decoded(answer, answer.path.member, answer.path.bit(size_number(answer, kind)))
    if kind.startswith(ALTERNATIVE) and answer.alternatives is not None:
        number = torch.full_like(answer.exact, int(kind.removeprefix(ALTERNATIVE)), dtype=torch.long)
        return _decoded(answer, answer.alternatives.member, number)
    return answer.hard.map(torch.zeros_like) if kind == EMPTY else answer.hard


def _decoded(answer: BatchAnswer, member: Masks, number: Tensor) -> Masks:
    """One subset per instance, by its number [B], from codes whose bits say in which subsets an element is."""
    instances, found = answer.instances, Masks()
    for name, code in member.items():
        owner = instances.node_owner if name == NODES else instances.edge_owner
        if len(code) != len(owner):  # features that all nodes have in common
            owner = torch.arange(len(instances), device=code.device).repeat_interleave(len(code) // len(instances))
        found[name] = (code >> number[owner].view(-1, *[1] * (code.dim() - 1)) & 1).to(answer.soft_p.dtype)
    return found


def own_numbers(answer: BatchAnswer, kind: str) -> Tensor:
    """The numbers of an answer: p_factual and p_complement, [2, B]; of empty masks the former, of others PNS, [1, B]."""
    if kind == SOFT:
        return answer.soft_p
    if kind.startswith(PATH) and answer.path is not None:
        return answer.path.pns.gather(0, size_number(answer, kind).unsqueeze(0))
    if kind.startswith(ALTERNATIVE) and answer.alternatives is not None:
        number = int(kind.removeprefix(ALTERNATIVE))
        return answer.alternatives.pns[number : number + 1]
    measured = answer.measured
    if kind == EMPTY:
        return measured.empty.p_factual.unsqueeze(0)
    return torch.stack([measured.by[kind].p_factual, measured.by[kind].p_complement])


@torch.no_grad()
def reference_numbers(
    answer: BatchAnswer, causal: CausalModel, parts: MaskParts, masks: Mapping[str, Masks]
) -> dict[str, Tensor]:
    """The same numbers in a reference, by kind, [2, P, B] or [1, P, B]; all worlds of an intervention are run at once.

    Edges and nodes outside the masks count as not explained, as on an explanation: 0 in the mask, 1 in its complement.

    Args:
        answer: the answer.
        causal, parts: the reference, and the parts of masks there.
        masks: P masks by kind, [P, ...] per part.
    """
    found: dict[str, Tensor] = {}
    judged = judged_by(answer)
    for intervention in ("mask", "remove"):
        always = (SOFT, "mask") if intervention == "mask" else ("remove",)
        asked = [kind for kind in masks if kind in always or (intervention in judged and is_judged(kind))]
        worlds = [_worlds(parts, masks[kind], kind) for kind in asked]
        if not worlds:
            continue
        together = worlds[0] if len(worlds) == 1 else {k: torch.cat([one[k] for one in worlds]) for k in worlds[0]}
        p = (causal if intervention == "mask" else causal.removing()).do(together)
        counts = [len(next(iter(one.values()))) for one in worlds]
        for kind, own in zip(asked, torch.split(p, counts), strict=True):
            value = own.unsqueeze(0) if kind == EMPTY else _mixed(own, parts, answer.split)
            if is_judged(kind) and kind != EMPTY:
                value = pns_bound(value[:1], value[1:])
            # of both interventions the smaller number is reported
            found[kind] = torch.minimum(found[kind], value) if kind in found else value
    return found


def _worlds(parts: MaskParts, masks: Masks, kind: str) -> Masks:
    """The worlds of P masks; of empty ones the factual worlds, because nothing is changed in their complements."""
    found, each = build_worlds(parts, masks), 1 + len(parts.events)
    return found.map(lambda weight: weight[::each]) if kind == EMPTY else found


def _mixed(p: Tensor, parts: MaskParts, split: Sequence[float]) -> Tensor:
    """Probabilities in the worlds of P masks as p_factual and p_complement, [2, P, B]."""
    factual, complement = split_worlds(p, parts)
    return torch.stack([factual, mix(complement, tuple(split))])


def same_numbers(p: Tensor, own: Tensor) -> Tensor:
    """Whether all numbers of each instance are equal up to rounding, [b]."""
    same: Tensor = ((p - own).abs() <= 2 * torch.finfo(p.dtype).eps ** 0.6).all(0)
    return same


def parts_on(answer: BatchAnswer, instances: InstanceBatch) -> MaskParts:
    """The parts of an answer's masks, of other instances."""
    return MaskParts.of(instances, EDGES in answer.hard, _node_mask_type(answer), attributes=answer.attributes)


def _node_mask_type(answer: BatchAnswer) -> MaskType | None:
    if NODES not in answer.hard:
        return None
    if answer.common:
        return MaskType.common_attributes
    return MaskType.object if answer.hard[NODES].size(1) == 1 else MaskType.attributes
