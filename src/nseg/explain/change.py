"""The smallest change of a graph that changes a prediction, and its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from torch import Tensor

from nseg.molecules import ELEMENTS
from nseg.names import NO_NAMES, Names, number_text
from nseg.wording import plural, probability_text


@dataclass(frozen=True)
class FeatureChange:
    """A feature of a node that is set to another value.

    Args:
        node, feature: the caller's numbers.
        before, after: its value.
    """

    node: int
    feature: int
    before: float
    after: float


def feature_place(key: Any, numbers: Mapping[str, int]) -> tuple[int | None, int]:
    """The node (None for all) and the feature that a key of ``features`` names; -1 for a feature that is none.

    >>> feature_place("age", {"age": 2}), feature_place((7, "age"), {"age": 2}), feature_place("sex", {"age": 2})
    ((None, 2), (7, 2), (None, -1))
    """
    node, feature = key if isinstance(key, tuple) and len(key) == 2 else (None, key)
    number = numbers.get(feature, -1) if isinstance(feature, str) else feature
    return node, int(number) if isinstance(number, Integral) and not isinstance(number, bool) else -1


def values_to_try(given: Any) -> list[float] | None:
    """The values that a feature may get; None if they are not numbers."""
    values: list[Any] = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return [float(value) for value in values] if all(isinstance(value, Real) for value in values) else None


def feature_changes(x: Tensor, node: int, feature: int, values: Sequence[float]) -> list[FeatureChange]:
    """Changes of a feature to other values than its own."""
    now = float(x[node, feature])
    return [FeatureChange(node, feature, now, value) for value in values if value != now]


@dataclass(frozen=True)
class Counterfactual:
    """The smallest change found that changes what the model says, and what it says then.

    Edges are removed from the graph and added to it for real, and the model is run on the caller's own changed graph:
    degrees and normalisations change too, unlike under a mask. Numbers are those of the untouched model.

    Args:
        output_id: the output: node, pair or graph.
        level: ``"node"``, ``"edge"`` or ``"graph"``.
        changed: whether the model says something else after the change; if not, nothing that was tried helps.
        before, after: class that the model predicts.
        p_before, p_after: probability of the class ``before``.
        p_new_before, p_new_after: probability of the class ``after``.
        removed_edges: the caller's numbers of the removed edges.
        removed: their ends.
        added: ends of the added edges.
        added_edges: their positions among the given additions; of a heterogeneous graph, type after type.
        features: features that are set to other values.
        undirected: whether both directions of an edge count as one.
        size: number of changes.
        candidates: number of changes that were possible.
        tried_size: all sets of up to this many changes were tried.
        exact: whether no smaller set of the possible changes does it; if nothing helps, whether all sets were tried.
        wanted: the class that was asked for; None for any other.
        names: names of the graph.
    """

    output_id: int
    level: str
    changed: bool
    before: int
    after: int
    p_before: float
    p_after: float
    p_new_before: float
    p_new_after: float
    removed_edges: tuple[int, ...] = ()
    removed: tuple[tuple[int, int], ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    added_edges: tuple[int, ...] = ()
    features: tuple[FeatureChange, ...] = ()
    undirected: bool = False
    size: int = 0
    candidates: int = 0
    tried_size: int = 0
    exact: bool = False
    wanted: int | None = None
    names: Names = field(default=NO_NAMES, repr=False)

    def __str__(self) -> str:
        return self.words()

    def subject(self) -> str:
        """What the prediction is about: ``"tx-11"``, ``"Node 11"``, ``"Pair 3"`` or ``"Graph 3"``."""
        if self.level == "node":
            return self.names.node(self._node) if self.names.has_nodes else f"Node {self.output_id}"
        kind = "Pair" if self.level == "edge" else "Molecule" if self.names.molecule else "Graph"
        return f"{kind} {self.output_id}"

    @property
    def _node(self) -> int:
        """Number of the explained node in the flat graph."""
        types = self.names.types
        return self.output_id if types is None or types.output is None else types.node_number(types.output, self.output_id)

    def by_type(self) -> dict[str, list[Any]]:
        """The change of a heterogeneous graph: ``removed`` (edge type, number), ``added`` and ``features`` (type, number).

        Added edges are pairs of (node type, number); features are ((node type, number), feature, value). The attributes of
        the counterfactual itself number nodes and edges of all types through.
        """
        types = self.names.types
        if types is None:
            return {}
        return {
            "removed": [types.edge(number) for number in self.removed_edges],
            "added": [tuple(types.node(end) for end in ends) for ends in self.added],
            "features": [(types.node(one.node), one.feature, one.after) for one in self.features],
        }

    def words(self) -> str:
        """The change and its effect in one sentence, and how sure it is that no smaller one exists in a second."""
        return f"{self.sentence()} {self.certainty()}"

    def sentence(self, molecule: bool | None = None) -> str:
        """The change and its effect in one sentence; of a molecule (as the names say if None), edges are bonds.

        >>> Counterfactual(11, "node", True, 1, 0, 0.75, 0.003, 0.25, 0.997, (7,), ((2716, 11),), size=1).sentence()
        'Remove the edge 2716 -> 11 and the model says class 0 (p of class 1: 0.750 -> 0.003).'
        """
        molecule = self.names.molecule if molecule is None else molecule
        before, after = (self.names.class_name(one) for one in (self.before, self.after))
        p = f"p of {before}: {probability_text(self.p_before)} -> {probability_text(self.p_after)}"
        if self.changed:
            return f"{self._actions('bond' if molecule else 'edge')} and the model says {after} ({p})."
        other = "something else" if self.wanted is None else self.names.class_name(self.wanted)
        if not self.candidates:
            p_now = probability_text(self.p_before)
            return f"There is nothing to change: no edge can reach the output, and the model says {before} (p {p_now})."
        what = plural(self.candidates, "possible change")
        return f"Nothing found among the {what} makes the model say {other} instead of {before} ({p} with all of them)."

    def certainty(self) -> str:
        """How sure it is that no smaller change exists, in one sentence."""
        if not self.candidates:
            return "Try its features, or edges to add: features=..., additions=...."
        if self.exact:
            number = plural(self.candidates, "possible change")
            return f"No smaller set of the {number} does it." if self.changed else "All sets of changes were tried."
        tried = f"All sets of up to {plural(self.tried_size, 'change')} were tried; " if self.tried_size else ""
        rest = "a smaller change may exist." if self.changed else "larger sets were searched, not enumerated."
        return tried + rest if tried else rest[0].upper() + rest[1:]

    def _actions(self, edge: str) -> str:
        """What is done, as an order; ``edge`` is what an edge is called."""
        parts = [
            _edges_phrase(f"Remove the {edge}", self._edge_texts(self.removed, self.removed_edges)),
            _edges_phrase(f"Add the {edge}", self._edge_texts(self.added, ())),
            *(self._set_phrase(one) for one in self.features),
        ]
        said = [part for part in parts if part]
        return _join([said[0], *(part[0].lower() + part[1:] for part in said[1:])]) if said else "Do nothing"

    def _edge_texts(self, ends: Sequence[tuple[int, int]], numbers: Sequence[int]) -> list[str]:
        pairs = list(zip(ends, numbers or [-1] * len(ends), strict=True))
        if not self.undirected:
            return [self.names.edge(number, *pair) for pair, number in pairs]
        types, once = self.names.types, dict[tuple[int, ...], str]()
        for (a, b), number in reversed(pairs):
            kind = 0 if types is None or number < 0 else types.kind_of_edge(number)
            first, second = (min(a, b), max(a, b)) if types is None else (a, b)  # a type says who does what
            once[min(a, b), max(a, b), kind] = self.names.edge(number, first, second, undirected=True)
        return [text for _, text in sorted(once.items())]

    def _set_phrase(self, one: FeatureChange) -> str:
        value = self.names.of_node(one.node).value(one.feature, one.after)
        where = "" if self.level == "node" and one.node == self._node else f" of {self.names.node(one.node)}"
        feature, _, rest = value.partition(" = ")
        if self.names.molecule and feature in ELEMENTS and one.after == 0:
            return f"Hide the element{where or f' of {self.names.node(one.node)}'} from the model"
        return f"Set {feature}{where} to {rest} (from {number_text(one.before)})"

    def as_plain_data(self) -> dict[str, Any]:
        """The counterfactual as plain data that JSON can hold, with its sentence and the names in it."""
        plain = {k: v for k, v in vars(self).items() if k not in ("names", "features")}
        plain |= {
            k: [list(one) if isinstance(one, tuple) else one for one in v] for k, v in plain.items() if type(v) is tuple
        }
        return {
            **plain,
            "features": [vars(one) for one in self.features],
            "before_name": self.names.class_name(self.before),
            "after_name": self.names.class_name(self.after),
            "sentence": self.sentence(),
        }


def _edges_phrase(order: str, texts: Sequence[str]) -> str:
    return f"{order}{'s' if len(texts) > 1 else ''} {_join(texts)}" if texts else ""


def _join(parts: Sequence[str]) -> str:
    """Parts of a list in words.

    >>> _join(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
