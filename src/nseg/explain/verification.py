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

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nseg.explain import reported
from nseg.explain.placement import Placement
from nseg.explain.reported import PATH, SOFT, judged_by, kinds_of, masks_of, parts_on, same_numbers, sizes_of_paths
from nseg.explain.shared_worlds import SharedMasks
from nseg.model.causal import CausalModel
from nseg.model.slow_runs import raise_own_fault, raised, slow_note
from nseg.model.strategy import PLAIN

if TYPE_CHECKING:
    from nseg.explain.answers import BatchAnswer

SAMPLE = 32
"""Instances of a call that are also verified on the whole graph."""

LARGE = 100_000
"""Nodes and edges of a graph of which no pass is run that is not needed."""

SHARDS_PER_PASS = 4
"""Shards of such a graph of which one has an instance that is verified alone."""

SPARED, SPARED_SHARE = (SOFT, PATH), 4
"""Numbers besides those of hard masks that are verified for one of so many instances, where there are many."""

FEWEST_GROUPS = 8
"""How many times as large as the whole graph all subgraphs must be, for it to be shared."""

MEMBERS_OF_WORLDS = 1 << 20
"""Nodes and edges of shared worlds whose weights are made at once."""

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
        batched: returns the causal model of some instances on wider subgraphs, without shortcuts, in which they may share
            the outermost nodes or not; None if there is none.
        plain: returns the causal model of one instance on the caller's whole graph, with the plain strategy.
        shared: returns the causal model of that graph for some instances of one row each, which answers row by row, with
            one world per pass or with several; None if each instance is a graph of its own.
        notes: warnings for the caller, which verification adds to.
    """

    batched: Callable[[Tensor, bool], CausalModel | None]
    plain: Callable[[int], CausalModel]
    shared: Callable[[Tensor, bool], CausalModel] | None = None
    notes: list[str] = field(default_factory=list)


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
    check = _Verification(answer, numbers, references)
    good = check.all_hold()
    sampled = torch.isin(numbers, numbers.new_tensor(list(sample))).nonzero().flatten()
    good_sample = check.sample_holds(sampled)
    every = [*kinds_of(answer), *sizes_of_paths(answer)]
    wrong, all_in_doubt = list[int](), False
    for b in (~(good & good_sample)).nonzero().flatten().tolist():
        if not check.holds_alone(b, every):
            wrong.append(int(numbers[b]))
            all_in_doubt |= bool(good[b])
    return wrong, all_in_doubt


class _Verification:
    """Compares the numbers of B answers with those of references.

    Args:
        answer, numbers, references: as :func:`find_wrong` takes them.
    """

    def __init__(self, answer: BatchAnswer, numbers: Tensor, references: References) -> None:
        self.answer, self.numbers, self.references = answer, numbers, references
        self.wide = references.batched(numbers, True)
        shared = references.shared if not answer.common and answer.attributes is None else None
        self.whole = None if shared is None else shared(numbers, True)
        self.whole_size = 0 if self.whole is None else int(self.whole.instances.sizes.sum())
        self.large = self.whole_size > LARGE

    @cached_property
    def _everything(self) -> Tensor:
        return torch.arange(len(self.numbers), device=self.numbers.device)

    @cached_property
    def _placement(self) -> Placement:
        assert self.wide is not None
        return Placement(self.wide, self.answer, self._everything)

    def _note(self, error: Exception, reference: CausalModel) -> None:
        """Say that answers are verified one by one, because the model raises where they are verified together."""
        raise_own_fault(error)
        if reference.strategy != PLAIN:
            cost = f"{len(self.numbers)} explanations are therefore verified alone, in about a dozen passes each."
            why = raised(error, "where explanations are verified together")
            self.references.notes.append(slow_note(reference.model, why, cost))

    # --- decisions -------------------------------------------------------------------------------------------------------

    def all_hold(self) -> Tensor:
        """Whether the answers hold where every instance is verified, [B]."""
        answer, numbers = self.answer, self.numbers
        kinds, spared = kinds_of(answer), list[str]()
        if self.wide is not None and (len(numbers) > SAMPLE or self.large):
            kinds, spared = ([k for k in kinds if (k in SPARED) == rare] for rare in (False, True))
        good = self._hold_together(kinds)
        good &= self._hold_batched(spared, (numbers % SPARED_SHARE == 0).nonzero().flatten())
        if self.wide is not None and not bool(good.all()):
            rest = [kind for kind in spared if kind != PATH]
            good &= self._hold_batched([*rest, *sizes_of_paths(answer)], self._everything)
        return good

    def sample_holds(self, sampled: Tensor) -> Tensor:
        """Whether the answers of a sample hold on the caller's whole graph; True for others, [B].

        Each is asked alone by what it is judged by, and one of them in full. On a large graph they share passes, but one.
        """
        good, judged = torch.ones_like(self.numbers, dtype=torch.bool), judged_by(self.answer)
        if not len(sampled):
            return good
        if self.whole is None or self.references.shared is None:
            full = [kinds_of(self.answer), *[judged] * len(sampled)]
            for b, kinds in zip(sampled.tolist(), full, strict=False):
                good[b] &= self.holds_alone(b, kinds)
            return good
        plain = self.references.shared(self.numbers, False)
        alone, others = (sampled[:1], sampled[1:]) if self.large else (sampled, sampled[:0])
        for kind in judged if len(others) else ():
            good[others] &= self._hold_shared(kind, self._share(kind, others, len(others)), plain)
        for kind in judged if self.large else kinds_of(self.answer):
            some = alone if kind in judged else alone[:1]
            good[some] &= self._hold_shared(kind, self._share(kind, some, 0), plain)
        return good

    def holds_alone(self, b: int, kinds: Sequence[str]) -> bool:
        """Whether one answer holds alone on the caller's whole graph, with the plain strategy."""
        return bool(self._hold(kinds, self._everything[b : b + 1], self.references.plain(int(self.numbers[b]))))

    def _hold_together(self, kinds: Sequence[str]) -> Tensor:
        """Whether answers hold on the wider subgraphs, or on the whole graph where it is shared and takes no more, [B]."""
        good, whole, most = torch.ones_like(self.numbers, dtype=torch.bool), self.whole, self._most_groups
        on_subgraphs = defaultdict[tuple[int, ...], list[str]](list)
        for kind in kinds:
            rest = self._everything
            if whole is not None and most:
                together = self._share(kind, rest, most)
                if self.wide is not None:
                    together = together.dropping(self.wide.instances.sizes, self.whole_size)
                good &= self._hold_shared(kind, together, whole)
                rest = (together.group < 0).nonzero().flatten()
            on_subgraphs[tuple(rest.tolist())].append(kind)
        for some, asked in on_subgraphs.items():
            good &= self._hold_batched(asked, self.numbers.new_tensor(some))
        return good

    @property
    def _most_groups(self) -> int:
        """Worlds of the whole graph that are as large as all subgraphs; 0 if so few that sharing them gains nothing."""
        if self.wide is None:
            return len(self.numbers)
        most = int(self.wide.instances.sizes.sum()) // max(self.whole_size, 1)
        return most if most >= FEWEST_GROUPS else 0

    # --- passes ----------------------------------------------------------------------------------------------------------

    def _share(self, kind: str, which: Tensor, most: int) -> SharedMasks:
        """The masks of some answers on the whole graph, in at most so many groups; 0 keeps all apart."""
        answer, whole = self.answer, self.whole
        assert whole is not None
        masks, instances = masks_of(answer, kind), answer.instances
        if most and self.wide is not None and reported.removes(answer, kind):
            # edges around a subgraph count in the degrees of its nodes
            masks, instances = self._placement.masks(masks), self.wide.instances
        return SharedMasks.of(masks, instances, whole.instances, answer.tied, most, which)

    def _hold_batched(self, kinds: Sequence[str], which: Tensor) -> Tensor:
        """Whether answers hold on wider subgraphs, [B]; not if there are none. Only those of ``which`` are asked.

        A model that looks at what its nodes send differs where they share the outermost nodes, and is asked without that.
        """
        good, wide = torch.ones_like(self.numbers, dtype=torch.bool), self.wide
        if wide is None:
            good[which] = False
        elif kinds and len(which):
            good = self._hold_on(wide, kinds, which)
            if wide.strategy.hops is not None and not bool(good.all()):
                apart, wrong = self.references.batched(self.numbers, False), (~good).nonzero().flatten()
                good = good if apart is None else self._hold_on(apart, kinds, wrong)
        return good

    def _hold_on(self, wide: CausalModel, kinds: Sequence[str], which: Tensor) -> Tensor:
        """Whether answers hold on the subgraphs of a reference; True for those that are not asked, [B]."""
        good = torch.ones_like(self.numbers, dtype=torch.bool)
        wide.members_at_once = 8 * MEMBERS_AT_ONCE  # all worlds at once
        batch = torch.cumsum(wide.instances.sizes[which], 0) // MEMBERS_AT_ONCE
        for n in torch.unique(batch).tolist():
            part = which[batch == n]
            good[part] = self._hold(kinds, part, wide.select(part) if len(part) < len(good) else wide)
        return good

    def _hold_shared(self, kind: str, together: SharedMasks, whole: CausalModel) -> Tensor:
        """Whether some answers hold in shared worlds of the whole graph; not if the model raises, True if not asked, [b]."""
        group, same = together.group, together.group < 0
        parts, own = parts_on(self.answer, whole.instances), reported.own_numbers(self.answer, kind)[:, together.which]
        step = max(1, MEMBERS_OF_WORLDS // self.whole_size)
        try:
            for first in range(0, together.number, step):
                last = min(first + step, together.number)
                masks = {kind: together.of_groups(first, last, whole.dtype)}
                p = reported.reference_numbers(self.answer, whole, parts, masks)[kind]  # [2, P, B]
                mine = ((group >= first) & (group < last)).nonzero().flatten()
                same[mine] = same_numbers(p[:, group[mine] - first, together.which[mine]], own[:, mine])
        except (
            Exception
        ) as error:  # a model may raise anything in a world that it does not expect; the plain strategy decides
            self._note(error, whole)
            return group < 0
        return same

    def _hold(self, kinds: Sequence[str], which: Tensor, reference: CausalModel) -> Tensor:
        """Whether some answers hold in a reference that has an instance for each of them, [b]; not if it raises."""
        answer = self.answer
        parts, same = parts_on(answer, reference.instances), torch.ones_like(which, dtype=torch.bool)
        try:
            place = Placement(reference, answer, which)
            masks = {kind: place.masks(masks_of(answer, kind)).map(lambda mask: mask.unsqueeze(0)) for kind in kinds}
            for kind, p in reported.reference_numbers(answer, reference, parts, masks).items():
                same &= same_numbers(p.squeeze(1), reported.own_numbers(answer, kind)[:, which])
        except (
            Exception
        ) as error:  # a model may raise anything on graphs that it does not expect; the plain strategy decides
            self._note(error, reference)
            return torch.zeros_like(same)
        return same
