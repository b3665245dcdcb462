"""All subsets of instances with few elements: every world in a table, and the best subset by trying all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import torch
from torch import Tensor

from nseg.graphs.groups import is_in_groups
from nseg.graphs.inputs import Role
from nseg.model.causal import CausalModel
from nseg.model.subset_worlds import OUTSIDE, SubsetWorlds
from nseg.search.objective import objective_of
from nseg.search.parts import EDGES, MaskParts
from nseg.search.pieces import is_connected
from nseg.search.settings import BaseSettings
from nseg.search.subsets import DECIMALS, ENTRIES_AT_ONCE, acceptable, blocks
from nseg.search.worlds import Evaluation


def popcount(code: Tensor) -> Tensor:
    """Number of set bits of each number.

    >>> popcount(torch.tensor([0, 1, 6, 7]))
    tensor([0, 1, 2, 3])
    """
    bits = int(code.max()).bit_length() if code.numel() else 0
    return sum(((code >> i) & 1 for i in range(bits)), torch.zeros_like(code))


@dataclass(frozen=True)
class WorldTable:
    """Every world of B instances that all have n elements.

    Bit i of a world's code says whether element i of the instance is kept.

    Args:
        parts: the parts of the masks.
        p: probability of the class in each world, [2^n, B].
        holds: share of the explained rows that have their class in each world, [2^n, B].
        p_around, holds_around: the same if the edges outside the instances stay, which only matters if edges are deleted.
    """

    parts: MaskParts
    p: Tensor
    holds: Tensor
    p_around: Tensor
    holds_around: Tensor

    @cached_property
    def codes(self) -> Tensor:
        """Codes of all worlds, [2^n, 1]."""
        return torch.arange(len(self.p), device=self.p.device).unsqueeze(1)

    @cached_property
    def part_codes(self) -> list[Tensor]:
        """For each part, the code of the world that keeps this part alone, [B] each."""
        found, start, number = [], 0, self.parts.owner.numel()
        position = torch.arange(number, device=self.p.device)
        for part in self.parts:
            end = start + part.owner.numel() * part.width
            found.append(self.code((start <= position) & (position < end)))
            start = end
        return found

    def code(self, kept: Tensor) -> Tensor:
        """Code of the world that keeps these elements [n] of each instance, [B]."""
        return torch.zeros_like(self.parts.count).index_add(0, self.parts.owner, kept.long() << self.parts.position)

    def kept(self, code: Tensor) -> Tensor:
        """Elements [n] that the world of each instance keeps, from codes [B]."""
        return ((code[self.parts.owner] >> self.parts.position) & 1).bool()

    @property
    def remains(self) -> Tensor:
        """Share of the rows that have their class if all other elements are kept, [2^n, B]."""
        return self.holds_around.flip(0)

    def p_complement(self, split: Sequence[float]) -> Tensor:
        """Probability of the class in the literal complement of each world, read off other worlds, [2^n, B]."""
        total = torch.zeros_like(self.p)
        for share, event in zip(split, self.parts.events, strict=True):
            flipped = sum(part for part, stays in zip(self.part_codes, event, strict=True) if not stays)
            alone = any(
                s for part, s in zip(self.parts, event, strict=True) if part.name == EDGES or self.parts.nodes_vanish
            )
            total += share * (self.p if alone else self.p_around).gather(0, self.codes ^ flipped)
        return total

    def evaluation(self, split: Sequence[float]) -> Evaluation:
        """The model's answer to every subset as an explanation."""
        return Evaluation(self.p, self.p_complement(split), self.holds, self.remains)


@torch.no_grad()
def enumerate_worlds(
    causal: CausalModel, parts: MaskParts, most: int, remove: bool = False
) -> Iterator[tuple[Tensor, Tensor, WorldTable]]:
    """The worlds of all instances with at most ``most`` elements: their numbers, their elements, and the table.

    Args:
        causal, parts: B instances and the parts of their masks.
        most: largest number of elements.
        remove: whether edges are deleted instead of weighed.
    """
    device = parts.owner.device
    remove = remove and EDGES in parts
    for group, members, some, its in parts.grouped(causal, torch.where(parts.count <= most, parts.count, -1)):
        number = int(parts.count[group[0]])
        if number > most:
            continue
        for block in blocks(group.numel(), max(1, ENTRIES_AT_ONCE // ((1 << number) * max(number, 1))), device):
            small = some if block.numel() == group.numel() else some.select(block)
            here = its if small is some else its.select(block, small.instances)
            code = torch.arange(1 << number, device=device).unsqueeze(1)
            bits = ((code >> torch.arange(number, device=device)) & 1).bool()  # [2^n, n], of any instance
            kept, keeps = bits.index_select(1, here.position), [[True] * len(here.parts)]
            worlds = SubsetWorlds(kept, here.covered, keeps, {OUTSIDE: [True]})
            if remove:
                small = small.removing(parts.tied)
            around = alone = small.do_and_agree(worlds)
            if remove and small.instances.outputs is not Role.GRAPH:  # around a whole graph there is nothing
                alone = small.do_and_agree(replace(worlds, outside={OUTSIDE: [False]}))
            yield group[block], members[is_in_groups(its.owner, block, len(group))], WorldTable(here, *alone, *around)


@torch.no_grad()
def best_subset(causal: CausalModel, parts: MaskParts, settings: BaseSettings, most: int) -> tuple[Tensor, Tensor]:
    """The smallest subset within ``tolerance`` of the best of all, for instances with at most ``most`` elements.

    If the settings ask for connected ones, it is the smallest of these.

    Returns:
        which elements are kept, [n]; and which instances were small enough, [B].
    """
    most = -1 if parts.nodes_vanish and settings.intervention != "mask" else most  # tables know of edges outside only
    kept = torch.zeros_like(parts.owner, dtype=torch.bool)
    kinds = {"mask": (False,), "remove": (True,), "both": (False, True)}[settings.intervention]
    for tables in zip(*(enumerate_worlds(causal, parts, most, remove) for remove in kinds), strict=True):
        found = [table.evaluation(parts.split(settings)) for *_, table in tables]
        kept[tables[0][1]] = _best_of_table(tables[0][2], reduce(Evaluation.smaller, found), settings)
    return kept, parts.count <= most


def _best_of_table(table: WorldTable, found: Evaluation, settings: BaseSettings) -> Tensor:
    """The best subset of each instance, [n]."""
    objective = objective_of(settings)
    merit = objective.merit(found.p_factual, found.p_complement).round(decimals=DECIMALS)
    valid = objective.valid(found.keeps, found.remains)
    merit[0], valid[0] = merit[0].clamp(max=0), False  # nothing shows nothing
    if settings.connected and EDGES in table.parts:
        subsets = table.parts.unflatten(((table.codes >> table.parts.position) & 1).bool())[EDGES]
        merit[~is_connected(table.parts.edges, subsets)] = -torch.inf
    good = acceptable(merit, valid, settings.tolerance)
    number = popcount(table.codes)
    good = good & (number == torch.where(good, number, table.codes.numel()).amin(0))
    good = good & (merit == torch.where(good, merit, -torch.inf).amax(0))
    return table.kept(good.long().argmax(0))  # of equally good ones the first code


# --- laws of which every world is known ----------------------------------------------------------------------------------


def subset_probabilities(code: Tensor, part: Tensor, kept: Tensor, q: float) -> Tensor:
    r"""Probability of each world if every element is kept with probability q, given it is not the explanation, [K, B].

    .. math:: P(S) = \frac{q^{|S|} (1-q)^{n-|S|}}{1 - q^{|S'|} (1-q)^{n-|S'|}}, \quad S \ne S'

    If the explanation S' is the only possible world (no element, or q of 0 or 1), it stands for its complement.

    Args:
        code: codes of the worlds, [K, 1], whose bits say what is kept.
        part: elements that are drawn, as bits, [B]; the others are free.
        kept: elements of the explanation, as bits, [B].
        q: probability.

    >>> subset_probabilities(torch.arange(4).unsqueeze(1), torch.tensor([3, 3]), torch.tensor([0, 3]), 0.5).T
    tensor([[0.0000, 0.3333, 0.3333, 0.3333],
            [0.3333, 0.3333, 0.3333, 0.0000]], dtype=torch.float64)
    """
    number, total, same = popcount(code & part), popcount(part), code & part == kept & part
    q_ = torch.tensor(q, dtype=torch.double, device=code.device)
    p = torch.where(same, 0, q_**number * (1 - q_) ** (total - number))
    p = torch.where(p.sum(0) > 0, p, same.double())
    copies = 2.0 ** (popcount(code[-1]) - total)  # each subset of the part comes with all subsets of the rest
    return p / p.sum(0) * copies


def complement_probabilities(table: WorldTable, kept: Tensor, q: float, split: Sequence[float]) -> Tensor:
    """Probability of each world in the complement under a Bernoulli law, all sub-events together, [2^n, B]."""
    explained = table.code(kept)
    total = torch.zeros_like(table.p, dtype=torch.double)
    for share, event in zip(split, table.parts.events, strict=True):
        p = torch.ones_like(total)
        for part, stays in zip(table.part_codes, event, strict=True):
            if stays:
                p *= table.codes & part == explained & part
            else:
                p *= subset_probabilities(table.codes, part, explained, q)
        total += share * p
    return total
