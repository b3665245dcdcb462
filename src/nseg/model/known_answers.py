"""Memory in which the kernel keeps what it answered: searches ask for many of their subsets again."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import Role
from nseg.model import kernel
from nseg.model.subset_worlds import EDGES, NODES, SubsetWorlds

MOST_KNOWN, LEAST_KNOWN = 1024, 64
"""Subsets of an instance whose answers are kept, at most; where there is memory for fewer than the second, none are."""

MOST_MEMORY = 1 << 25
"""Bytes that they may take together. What is not needed is not touched, so that it takes none."""

WORD = 64
"""Elements of a subset per word."""


class KnownAnswers:
    """Answers for subsets of the instances of a batch, as long as questions are of the same kind.

    Args:
        instances: the batch.
        worlds: a question.
        width: numbers that an answer has for each explained row and world.
        dtype: of these.

    Attributes:
        address: where the kernel finds them; None if there is not enough memory.
        answers: memory of their numbers.
    """

    def __init__(self, instances: InstanceBatch, worlds: SubsetWorlds, width: int, dtype: torch.dtype) -> None:
        self._kind, self._kept = kind_of(worlds), list[Any]()
        words = sum(-(-int(part.ptr.diff().max()) // WORD) for part in worlds.parts.values())
        numbers = int(instances.row_ptr.diff().max()) * len(worlds.keeps) * width
        each = np.dtype(np.uint64).itemsize * (1 + words) + numbers * dtype.itemsize
        entries = min(MOST_KNOWN, MOST_MEMORY // (each * max(len(instances), 1)))
        self.address: Any = None
        self.answers = np.zeros(0)
        if entries < LEAST_KNOWN:
            return
        entries = 1 << (entries.bit_length() - 1)
        total, factors = len(instances) * entries, worlds.parts[NODES].element.size(1) if NODES in worlds.parts else 0
        self.answers = np.zeros(total * numbers, instances.x.new_empty(0, dtype=dtype).numpy().dtype)
        known = kernel.Known(
            sets=entries // kernel.WAYS,
            words=words,
            numbers=numbers,
            turn=0,
            key=self._memory(total, np.uint64),
            subset=self._memory(total * words, np.uint64),
            answer=self.answers.ctypes.data,
            count=self._memory(2 * len(instances), np.int64),
            edge=self._memory(instances.count(Role.EDGE) * (EDGES in worlds.parts), np.int32),
            node=self._memory(instances.num_nodes * factors, np.int32),
        )
        self.address = ctypes.pointer(known)

    def fits(self, worlds: SubsetWorlds) -> bool:
        """Whether a question is of the kind whose answers are kept."""
        return kind_of(worlds) == self._kind

    def _memory(self, number: int, dtype: Any) -> int:
        """Address of zeros, which take memory only when they are written to."""
        self._kept.append(np.zeros(max(number, 1), dtype))
        return int(self._kept[-1].ctypes.data)


def kind_of(worlds: SubsetWorlds) -> tuple[object, ...]:
    """All that answers depend on besides the subsets and what their elements cover."""
    shapes = {name: part.element.shape[1:] for name, part in worlds.parts.items()}
    return shapes, [list(kept) for kept in worlds.keeps], {name: list(stays) for name, stays in worlds.outside.items()}
