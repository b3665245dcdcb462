"""Groups whose members lie one after the other: ``ptr`` holds the offset of each group, [B + 1]."""

from __future__ import annotations

import torch
from torch import Tensor


def group_members(ptr: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """Members of some groups, and for each member its group's position in ``groups``.

    >>> group_members(torch.tensor([0, 2, 2, 5]), torch.tensor([2, 0]))
    (tensor([2, 3, 4, 0, 1]), tensor([0, 0, 0, 1, 1]))
    """
    begin = ptr[groups]
    count = ptr[groups + 1] - begin
    owner = torch.repeat_interleave(count)
    shift = begin - (torch.cumsum(count, 0) - count)
    return shift.index_select(0, owner) + torch.arange(owner.numel(), device=ptr.device), owner


def offsets(count: Tensor) -> Tensor:
    """Cumulative counts with a leading zero.

    >>> offsets(torch.tensor([2, 0, 3]))
    tensor([0, 2, 2, 5])
    """
    return torch.cat([count.new_zeros(1), torch.cumsum(count, 0)])


def owner_of(ptr: Tensor) -> Tensor:
    """Group of each member.

    >>> owner_of(torch.tensor([0, 2, 2, 5]))
    tensor([0, 0, 2, 2, 2])
    """
    return torch.repeat_interleave(ptr.diff())


def is_in_groups(owner: Tensor, groups: Tensor, number: int) -> Tensor:
    """Whether each member belongs to some groups, given its group and the number of all groups.

    Equal to ``torch.isin(owner, groups)``, which sorts.

    >>> is_in_groups(torch.tensor([0, 0, 2, 1]), torch.tensor([2, 1]), 3)
    tensor([False, False,  True,  True])
    """
    return torch.zeros(number, dtype=torch.bool, device=owner.device).index_fill(0, groups, True)[owner]


def positions_of(members: Tensor, size: int) -> Tensor:
    """Position of each member among ``members``; -1 for those not in it."""
    position = torch.full((size,), -1, dtype=torch.long, device=members.device)
    position[members] = torch.arange(members.numel(), device=members.device)
    return position
