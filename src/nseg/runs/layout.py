"""Which target is in which shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SHARD = 256
"""Default maximum number of targets that are explained, sent and stored together."""

TOGETHER = 1024
"""The same where they are neither sent nor stored, but explained in the calling process and returned."""

INTERLEAVED = 4
"""Neighbouring shards over which consecutive targets are interleaved."""


@dataclass(frozen=True)
class ShardLayout:
    """How targets are laid out in shards: consecutive targets go to four shards in turn.

    Consecutive targets are often alike, so the four shards take equally long.

    Args:
        total: number of targets.
        size: maximum number of targets in a shard.

    >>> layout = ShardLayout(10, 2)
    >>> [list(layout.targets(number)) for number in range(layout.shards)]
    [[0, 4], [1, 5], [2, 6], [3, 7], [8, 9]]
    >>> layout.position(6)
    (2, 1)
    """

    total: int
    size: int

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.total // self.size)

    def _interleaved(self, shard: int) -> tuple[int, int]:
        """First of the shards that are interleaved with a shard, and their number."""
        first = shard - shard % INTERLEAVED
        return first, min(INTERLEAVED, self.shards - first)

    def targets(self, shard: int) -> range:
        """The targets of a shard."""
        first, shards = self._interleaved(shard)
        end = min((first + shards) * self.size, self.total)
        return range(first * self.size + shard - first, end, shards)

    def position(self, target: int) -> tuple[int, int]:
        """The shard that holds a target, and its position there."""
        first, shards = self._interleaved(target // self.size)
        position, shard = divmod(target - first * self.size, shards)
        return first + shard, position


def in_target_order(shards: Sequence[Sequence[Any]]) -> list[Any]:
    """Results by shard, as one list in the order of the targets."""
    layout = ShardLayout(sum(map(len, shards)), len(shards[0]))
    return [shards[shard][position] for shard, position in map(layout.position, range(layout.total))]
