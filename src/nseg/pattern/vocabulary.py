"""Words for what graphs hold: kinds of nodes and edges, conditions on features, names of classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from nseg.names import NO_NAMES, Names, number_text
from nseg.pattern.typed_graph import ANY, Condition

FEW_VALUES = 5
"""A feature with at most this many values is compared with its values, any other with its median."""

_SYMBOLS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc "
    "Ru Rh Pd Ag Cd In Sn Sb Te I Xe"
)
ATOMIC_NUMBERS = {symbol: number for number, symbol in enumerate(_SYMBOLS.split(), 1)}
"""Atomic number of each chemical element up to xenon."""


@dataclass(frozen=True)
class Vocabulary:
    """How features and attributes become labels, and labels become words.

    Args:
        x: features of all nodes of the data, [n, F].
        kind_names: names of the kinds of nodes, by one-hot feature or by number in ``node_type``.
        names: names of features and classes, and units.
        bonds: for molecules, the bond order of each kind of edge.
        relations: for heterogeneous graphs, the name of each type of edges.
    """

    x: Tensor
    kind_names: tuple[str, ...] = ()
    names: Names = NO_NAMES
    bonds: tuple[float, ...] = ()
    relations: tuple[str, ...] = ()

    @cached_property
    def one_hot(self) -> bool:
        """Whether the features of each node say its kind."""
        x = self.x
        if x.dim() != 2 or x.size(1) < 2 or not x.size(0):
            return False
        hot = bool(((x == 0) | (x == 1)).all()) and bool((x.sum(1) == 1).all())
        return hot and bool((x != x[0]).any())

    @property
    def molecule(self) -> bool:
        """Whether nodes are atoms and edges are bonds."""
        return bool(self.bonds) and self.one_hot and bool(self.kind_names) and set(self.kind_names) <= ATOMIC_NUMBERS.keys()

    # --- labels ----------------------------------------------------------------------------------------------------------

    def node_kinds(self, x: Tensor, node_type: Tensor | None) -> list[str]:
        """Kind of each node: its type, or its one-hot feature; ``ANY`` without either."""
        if node_type is not None:
            return [self._kind(number) for number in node_type.tolist()]
        if self.one_hot:
            return [self._kind(number) for number in x.argmax(1).tolist()]
        return [ANY] * x.size(0)

    def _kind(self, number: int) -> str:
        return str(self.kind_names[number]) if number < len(self.kind_names) else f"type {number}"

    def edge_labels(self, attributes: Tensor | None, edge_type: Tensor | None) -> list[str] | None:
        """Label of each edge: its bond order, its type, or its one-hot attribute; None without any."""
        numbers = edge_type
        if numbers is None and attributes is not None and attributes.dim() == 2 and attributes.size(1) > 1:
            hot = ((attributes == 0) | (attributes == 1)).all() and (attributes.sum(1) == 1).all()
            numbers = attributes.argmax(1) if bool(hot) else None
        if numbers is None:
            return None
        return [self._edge_label(n) for n in numbers.tolist()]

    def _edge_label(self, number: int) -> str:
        if number < len(self.relations):
            return self.relations[number]
        return f"{self.bonds[number]:g}" if number < len(self.bonds) else f"type {number}"

    @cached_property
    def _conditions(self) -> dict[int, tuple[bool, float]]:
        return {}

    def condition(self, feature: int, value: float) -> Condition:
        """The condition on a feature that a value meets."""
        if feature not in self._conditions:
            column = self.x[:, feature]
            self._conditions[feature] = torch.unique(column).numel() <= FEW_VALUES, float(column.median())
        few, median = self._conditions[feature]
        if few:
            return Condition(feature, "=", value)
        return Condition(feature, ">" if value > median else "<=", median)

    def condition_text(self, condition: Condition) -> str:
        """A condition as text, such as ``amount > 12.5 EUR``."""
        unit = self.names.unit(condition.feature)
        number = f"{number_text(condition.value)}{f' {unit}' if unit else ''}"
        return f"{self.names.feature(condition.feature)} {condition.relation} {number}"


def meets(condition: Condition, x: Tensor) -> Tensor:
    """Whether each node meets a condition, [n]."""
    column = x[:, condition.feature]
    found: Tensor = {
        "=": column == condition.value,
        "!=": column != condition.value,
        ">": column > condition.value,
        "<=": column <= condition.value,
    }[condition.relation]
    return found


def number_per_entry(value: Any, size: int) -> Tensor | None:
    """A whole number for each node or edge; None if the attribute is something else."""
    good = isinstance(value, Tensor) and value.dim() == 1 and value.numel() == size and not value.is_floating_point()
    return value.cpu() if good else None
