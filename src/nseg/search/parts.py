"""All parts of a mask, and the elements that they consist of.

A part (:mod:`nseg.search.part`) is what one tensor of a mask covers: the edges, the nodes, the features of nodes, the
attributes of edges. An *element* is what is kept or left out as one: an edge or both directions of it; a node, one feature
of a node, or one feature of all nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.graphs.baseline import nodes_vanish
from nseg.graphs.batch import InstanceBatch, offsets
from nseg.model.causal import CausalModel
from nseg.model.subset_worlds import CoveredWeights, count_kept
from nseg.search.feature_parts import AttributePart, NodePart
from nseg.search.formulas import size
from nseg.search.part import ATTRIBUTES, EDGES, NODES, EdgePart, Part
from nseg.search.settings import BaseSettings

__all__ = ["ATTRIBUTES", "EDGES", "NODES", "TRIVIAL_VALUES", "EdgePart", "MaskParts", "Masks", "NodePart", "Part"]

TRIVIAL_VALUES = {"all": 1.0, "none": 0.0, "half": 0.5}
"""Value of every element of a trivial explanation."""


class Masks(dict[str, Tensor]):
    """One tensor per part, by the part's name: values of its elements, or weights of what they cover."""

    def map(self, function: Callable[[Tensor], Tensor]) -> Masks:
        """Apply a function to every tensor."""
        return Masks({name: function(value) for name, value in self.items()})

    def times(self, other: Masks) -> Masks:
        """Product, element by element."""
        return Masks({name: value * other[name] for name, value in self.items()})

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, in the order of the parts."""
        return list(self.values())


@dataclass(frozen=True)
class MaskParts:
    """All parts of a mask, and one flat numbering of their elements, part after part.

    Args:
        instances: B instances.
        parts: the parts.
    """

    instances: InstanceBatch
    parts: tuple[Part, ...]

    @classmethod
    def of(
        cls,
        instances: InstanceBatch,
        edges: bool,
        nodes: MaskType | None = None,
        undirected: bool | None = False,
        attributes: MaskType | None = None,
    ) -> MaskParts:
        """The parts that mask types ask for: of edges, nodes, and edge attributes."""
        parts: list[Part] = [EdgePart(instances, undirected)] if edges else []
        if attributes is not None:
            parts.append(AttributePart(instances, attributes))
        if nodes is not None:
            parts.append(NodePart(instances, nodes))
        return cls(instances, tuple(parts))

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def __contains__(self, name: object) -> bool:
        return any(part.name == name for part in self.parts)

    def __getitem__(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)

    @property
    def edges(self) -> EdgePart:
        """The edge part."""
        part = self[EDGES]
        assert isinstance(part, EdgePart)
        return part

    @property
    def tied(self) -> bool:
        """Whether an edge outside an instance goes with its reverse; whole graphs have nothing outside."""
        return EDGES in self and self.edges.undirected is True

    @property
    def nodes_vanish(self) -> bool:
        """Whether nodes that are taken away are deleted with their edges."""
        return NODES in self and nodes_vanish(self.instances.baseline)

    @property
    def deletable(self) -> bool:
        """Whether anything can be deleted: edges, or nodes."""
        return EDGES in self or self.nodes_vanish

    @property
    def ties(self) -> Tensor:
        """Whether both directions of an edge are one element in each instance, [B]."""
        none = torch.zeros(len(self.instances), dtype=torch.bool, device=self.instances.x.device)
        return self.edges.ties if EDGES in self else none

    @property
    def unit(self) -> str:
        """What the elements are called."""
        return " and ".join(part.unit for part in self.parts)

    def on(self, instances: InstanceBatch) -> MaskParts:
        """The same parts of other instances."""
        return MaskParts(instances, tuple(part.on(instances) for part in self.parts))

    def select(self, which: Tensor, instances: InstanceBatch) -> MaskParts:
        """The same parts of ``instances``, which are those of the numbers ``which``."""
        return MaskParts(instances, tuple(part.select(which, instances) for part in self.parts))

    def repeat(self, times: int, instances: InstanceBatch) -> MaskParts:
        """The same parts of ``instances``, which are all instances ``times`` times."""
        if times == 1:
            return self
        return MaskParts(instances, tuple(part.repeat(times, instances) for part in self.parts))

    # --- sub-events of the complement ------------------------------------------------------------------------------------

    @property
    def events(self) -> tuple[tuple[bool, ...], ...]:
        """For each sub-event of the complement, whether each part stays as explained.

        If structure and features are masked these are 00 (neither stays), 01 (features stay) and 10 (Eq. 11); else there
        is one, in which nothing stays.
        """
        groups = [part.group for part in self.parts]
        if len(set(groups)) < 2:
            return (tuple(False for _ in groups),)
        return tuple(tuple(group == stays for group in groups) for stays in (None, 1, 0))

    def split(self, settings: BaseSettings) -> tuple[float, ...]:
        """Probability of each sub-event."""
        return settings.split if len(self.events) == 3 else (1.0,)

    # --- values and weights ----------------------------------------------------------------------------------------------

    @property
    def owners(self) -> Masks:
        """Instance of each row of the values, [n] per part."""
        return Masks({part.name: part.owner for part in self.parts})

    def to_weights(self, values: Masks) -> Masks:
        """Weights for the causal model from values of the elements; parts without values are left out."""
        return Masks({part.name: part.to_weights(values[part.name]) for part in self.parts if part.name in values})

    def from_weights(self, weights: Masks) -> Masks:
        """Values of the elements from weights: the inverse of :meth:`to_weights`."""
        return Masks({part.name: part.from_weights(weights[part.name]) for part in self.parts})

    def totals(self, values: Masks) -> Masks:
        """Sum of each instance's values, [..., B] per part."""
        return Masks({part.name: part.totals(values[part.name]) for part in self.parts})

    def size(self, values: Masks) -> Tensor:
        """Sum of each instance's values over all parts, [..., B]."""
        first, *rest = self.totals(values).tensors
        return sum(rest, first)

    def full(self, value: float, dtype: torch.dtype) -> Masks:
        """The same value for all elements."""
        device = self.instances.x.device
        return Masks({part.name: torch.full(part.shape, value, dtype=dtype, device=device) for part in self.parts})

    # --- one flat numbering of all elements --------------------------------------------------------------------------------

    @cached_property
    def owner(self) -> Tensor:
        """Instance of each element, [n]."""
        return torch.cat([p.owner.repeat_interleave(p.width) if len(p.shape) > 1 else p.owner for p in self.parts])

    @cached_property
    def count(self) -> Tensor:
        """Number of elements of each instance, [B]."""
        return self.owner.bincount(minlength=len(self.instances))

    @cached_property
    def position(self) -> Tensor:
        """Position of each element among those of its instance, [n]."""
        return self.number(torch.ones_like(self.owner, dtype=torch.bool))

    @cached_property
    def _by_instance(self) -> Tensor | None:
        """The elements instance by instance, [n]; None if they stand so, as those of one part do."""
        return None if len(self.parts) == 1 else torch.argsort(self.owner, stable=True)

    def number(self, chosen: Tensor) -> Tensor:
        """How many of the chosen elements of its instance stand before each element, [n]."""
        order = self._by_instance
        here, owner = (chosen, self.owner) if order is None else (chosen[order], self.owner[order])
        before = offsets(here.long())
        found = before[:-1] - before[offsets(self.count)][owner]
        return found if order is None else torch.empty_like(order).scatter_(0, order, found)

    @cached_property
    def covered(self) -> dict[str, CoveredWeights]:
        """The weights that the elements cover, by part."""
        found, start = {}, 0
        for part in self.parts:
            ptr = offsets(part.owner.bincount(minlength=len(self.instances))) * part.width
            found[part.name] = CoveredWeights(
                part.element_of_weight + start if start else part.element_of_weight, ptr + start
            )
            start += part.owner.numel() * part.width
        return found

    def sizes(self, values: Tensor) -> Tensor:
        """Sum of the values of each instance's elements [P, n]; of subsets, bool, the number of elements, [P, B]."""
        if values.dtype == torch.bool:
            return count_kept(values, self.covered.values())
        return size(values, self.owner, len(self.instances))

    def flatten(self, values: Masks) -> Tensor:
        """Values of all parts as one tensor, [..., n]."""
        flat = [values[p.name].flatten(-2) if len(p.shape) > 1 else values[p.name] for p in self.parts]
        return torch.cat(flat, -1)

    def unflatten(self, flat: Tensor) -> Masks:
        """Values by part from one tensor [..., n]."""
        found, start = Masks(), 0
        for part in self.parts:
            end = start + part.owner.numel() * part.width
            found[part.name] = flat[..., start:end].reshape(*flat.shape[:-1], *part.shape)
            start = end
        return found

    def grouped(self, causal: CausalModel, key: Tensor) -> Iterator[tuple[Tensor, Tensor, CausalModel, MaskParts]]:
        """Instances with equal keys together: their numbers, their elements, their causal model and their parts."""
        for value in torch.unique(key):
            chosen = key == value
            group = chosen.nonzero().flatten()
            if group.numel() == key.numel():
                yield group, torch.arange(self.owner.numel(), device=key.device), causal, self
            else:
                alone = causal.select(group)
                members = chosen[self.owner].nonzero().flatten()
                yield group, members, alone, self.select(group, alone.instances)
