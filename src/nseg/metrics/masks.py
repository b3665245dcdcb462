"""Masks of many explanations, one after another in one tensor: there may be thousands of small ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.errors import InputError
from nseg.search.parts import Masks

MaskKind = Literal["soft", "hard"] | float
"""Soft masks, hard masks, or soft masks cut at a threshold."""


class JoinedMasks:
    """Masks of B explanations.

    Args:
        joined: each part of all masks, one after another.
        rows: for each part, the rows of each explanation.
    """

    def __init__(self, joined: Masks, rows: dict[str, list[int]]) -> None:
        self.joined, self.rows = joined, rows

    @classmethod
    def of(cls, masks: JoinedMasks | Sequence[Masks]) -> JoinedMasks:
        """Masks, joined if they are not yet."""
        if isinstance(masks, JoinedMasks):
            return masks
        parts = {name: [one[name] for one in masks] for name in masks[0]}
        rows = {name: [one.size(0) for one in given] for name, given in parts.items()}
        return cls(Masks({name: torch.cat(given) for name, given in parts.items()}), rows)

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))

    def __getitem__(self, number: int) -> Masks:
        return Masks({name: some[number] for name, some in self._apart.items()})

    def __iter__(self) -> Iterator[Masks]:
        return (self[number] for number in range(len(self)))

    @cached_property
    def _apart(self) -> dict[str, tuple[Tensor, ...]]:
        return {name: torch.split(joined, self.rows[name]) for name, joined in self.joined.items()}

    def map(self, function: Callable[[Tensor, Tensor], Tensor]) -> JoinedMasks:
        """Apply a function to each part [rows, ...] and the number of the explanation of each row."""
        changed = {name: function(joined, self.owner(name)) for name, joined in self.joined.items()}
        found = JoinedMasks(Masks(changed), self.rows)
        found._owners = self._owners
        return found

    @cached_property
    def _owners(self) -> dict[str, Tensor]:
        return {}

    def owner(self, name: str) -> Tensor:
        """Number of the explanation of each row of a part."""
        if name not in self._owners:
            self._owners[name] = owners(self.rows[name], self.joined[name].device)
        return self._owners[name]


def owners(rows: Sequence[int], device: torch.device) -> Tensor:
    """Number of the explanation of each row, if the explanations have so many rows."""
    return torch.arange(len(rows), device=device).repeat_interleave(torch.tensor(rows, dtype=torch.long, device=device))


def sums(values: Tensor, owner: Tensor, number: int) -> Tensor:
    """Sum of all values of each of a number of explanations, [number].

    >>> sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([0, 2]), 3)
    tensor([3., 0., 7.])
    """
    rows = values.flatten(1).sum(1) if values.dim() > 1 else values
    return rows.new_zeros(number).index_add(0, owner, rows)


class JoinedIds:
    """The caller's numbers of all edges, or of all nodes, of B explanations, one after another.

    Args:
        ids: those of each explanation, sorted.
    """

    def __init__(self, ids: Sequence[Tensor]) -> None:
        self.rows = [one.numel() for one in ids]
        joined = torch.cat(list(ids))
        self._keys = _key(owners(self.rows, joined.device), joined)

    def positions(self, owner: Tensor, asked: Tensor) -> Tensor:
        """Position of each number among those of its explanation, in all of them; -1 if it is not there."""
        if not self._keys.numel():
            return torch.full_like(asked, -1)
        key = _key(owner, asked)
        position = torch.searchsorted(self._keys, key).clamp(max=self._keys.numel() - 1)
        return torch.where(self._keys[position] == key, position, -1)


def _key(owner: Tensor, number: Tensor) -> Tensor:
    return (owner << 40) + number


def masks_of(explanations: Sequence[Explanation], name: str, kind: MaskKind) -> list[Tensor]:
    """One mask of each explanation; a threshold cuts soft ones.

    Args:
        explanations: the explanations.
        name: ``"edge_mask"`` or ``"node_mask"``.
        kind: the kind of mask.
    """
    if isinstance(kind, str) and kind not in ("soft", "hard"):
        raise InputError(f"masks must be 'soft', 'hard' or a threshold (got {kind!r}).")
    soft: list[Tensor] = [one[name] for one in explanations]
    if kind != "hard":
        return soft
    hard: list[Tensor | None] = [one.get(f"hard_{name}") for one in explanations]
    known = [mask for mask in hard if mask is not None]
    if len(known) < len(hard):
        raise InputError("These explanations have no hard masks (got soft ones). Give a threshold: masks=0.5.")
    return known
