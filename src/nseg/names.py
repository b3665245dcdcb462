"""Names of nodes, features, classes and edges, and units of features: resolved and checked once, then used in every text.

:func:`resolve_names` takes them from arguments or from the data object and returns a :class:`NamedData`; its
:class:`Names` of one graph travel with explanations (``explanation.names``) and turn numbers into text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nseg.errors import InputError

ARGUMENTS = ("node_names", "feature_names", "class_names", "edge_names", "units")
"""Arguments that give names, and attributes of data objects that do."""

OF_A_GRAPH = ("node_names", "edge_names")  # may differ between graphs

Labels = tuple[str, ...] | Mapping[Any, str]
"""Names by number: of all numbers, or of some. Edges may also be named by (source, target)."""


@dataclass(frozen=True)
class Names:
    """Names of one graph; what has no name is shown by its number.

    Args:
        nodes: by the caller's node number.
        features: by column of ``x``.
        classes: by class number.
        edges: by the caller's edge number, or by (source, target).
        units: by column of ``x``.

    >>> names = Names(nodes=("tx-1", "tx-2"), features=("amount", "new"), classes=("legit", "fraud"), units={0: "EUR"})
    >>> names.node(1), names.node(7), names.class_name(1), names.edge(0, 0, 1), names.value(0, 12.5), names.value(1, 1.0)
    ('tx-2', 'node 7', 'fraud', 'tx-1 -> tx-2', 'amount = 12.5 EUR', 'new = 1')
    """

    nodes: Labels = ()
    features: Labels = ()
    classes: Labels = ()
    edges: Labels = ()
    units: Labels = ()

    def __bool__(self) -> bool:
        """Whether anything has a name."""
        return any((self.nodes, self.features, self.classes, self.edges, self.units))

    def node_label(self, number: int) -> str:
        """Name of a node for lists and labels, such as ``"tx-1"``; its number if it has none."""
        return _get(self.nodes, number) or str(number)

    def node(self, number: int) -> str:
        """Name of a node in a sentence, ``"node 7"`` if it has none."""
        return _get(self.nodes, number) or f"node {number}"

    def edge_name(self, number: int, source: int, target: int) -> str:
        """The edge's own name, by number or ends; ``""`` if it has none."""
        return _get(self.edges, number) or _get(self.edges, (source, target))

    def edge(self, number: int, source: int, target: int, undirected: bool = False) -> str:
        """Text of an edge: its own name if it has one, and the labels of its ends."""
        name = self.edge_name(number, source, target) or (_get(self.edges, (target, source)) if undirected else "")
        ends = f"{self.node_label(source)} {'-' if undirected else '->'} {self.node_label(target)}"
        return f"{name} ({ends})" if name else ends

    def feature(self, number: int) -> str:
        """Name of a feature, ``"feature 3"`` if it has none."""
        return _get(self.features, number) or f"feature {number}"

    def value(self, feature: int, value: float) -> str:
        """A feature with its value and unit, such as ``"amount = 12.5 EUR"``."""
        unit = self.unit(feature)
        return f"{self.feature(feature)} = {number_text(value)}{f' {unit}' if unit else ''}"

    def unit(self, feature: int) -> str:
        """Unit of a feature; ``""`` if it has none."""
        return _get(self.units, feature)

    def class_name(self, number: int) -> str:
        """Name of a class, ``"class 3"`` if it has none, ``""`` if the class is unknown (-1)."""
        return "" if number < 0 else _get(self.classes, number) or f"class {number}"

    def check_classes(self, number: int) -> None:
        """Raise unless the names fit a model of that many classes."""
        _check_numbers(self.classes, number, "class_names", "class of the model")

    def to_plain(self) -> dict[str, Any]:
        """These names as JSON-able data; :meth:`from_plain` reads them."""
        return {name: _to_plain(labels) for name, labels in vars(self).items() if labels}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Names:
        """Names from the data of :meth:`to_plain`."""
        return cls(**{name: _from_plain(labels) for name, labels in plain.items()})


NO_NAMES = Names()
"""Everything is shown by its number."""


@dataclass(frozen=True)
class NamedData:
    """The names of one graph or many, as they were given; each graph's are checked when they are asked for.

    Args:
        data: one graph, a sequence of graphs, or None if unknown.
        given: what was given by argument name.
    """

    data: Any
    given: Mapping[str, Any]
    _cache: dict[int, Names] = field(default_factory=dict, repr=False, compare=False)

    @property
    def several(self) -> bool:
        """Whether the data is a sequence of graphs."""
        return self.data is not None and hasattr(self.data, "__getitem__") and not hasattr(self.data, "num_edges")

    def graph(self, number: int = 0) -> Names:
        """The names of one graph; of the only graph whatever the number."""
        number = number if self.several else 0
        if number not in self._cache:
            if len(self._cache) > 4096:  # graphs of a run are asked for in order
                self._cache.clear()
            self._cache[number] = self._resolve(number)
        return self._cache[number]

    def _resolve(self, number: int) -> Names:
        graph = self.data[number] if self.several else self.data
        nodes, edges, width = (_size(graph, name) for name in ("num_nodes", "num_edges", "num_features"))
        chosen = {name: self._choose(name, graph, number) for name in ARGUMENTS}
        features = _labels(chosen["feature_names"], width, "feature_names", "column of x")
        return Names(
            nodes=_labels(chosen["node_names"], nodes, "node_names", _of_graph("node", number, self.several)),
            features=features,
            classes=_labels(chosen["class_names"], None, "class_names", "class"),
            edges=_labels(chosen["edge_names"], edges, "edge_names", _of_graph("edge", number, self.several), pairs=True),
            units=_units(chosen["units"], features, width),
        )

    def _choose(self, name: str, graph: Any, number: int) -> Any:
        """What was given for one graph: by argument, else on the graph, else on the data as a whole."""
        given = self.given.get(name)
        if given is None:
            given = _attribute(graph, name)
            if given is None and self.several and name not in OF_A_GRAPH:
                given = _attribute(self.data, name)
            return given(graph) if callable(given) else given
        if callable(given):
            return given(graph)
        if not self.several or name not in OF_A_GRAPH or not _is_nested(given):
            return given
        if isinstance(given, Mapping):
            return given.get(number)
        if len(given) != len(self.data):
            raise InputError(
                f"{name} must hold one list per graph, {len(self.data)} in all (got {len(given)} lists). Give a list for "
                "every graph, or a dictionary by graph number."
            )
        return given[number]


def resolve_names(
    data: Any = None,
    node_names: Any = None,
    feature_names: Any = None,
    class_names: Any = None,
    edge_names: Any = None,
    units: Any = None,
) -> NamedData:
    """Names for a graph or several: what is given, else attributes of the data of the same names.

    Each is a list with a name per element, a dictionary by number (or from name to number), or a function of the graph
    that returns one of these. For several graphs, ``node_names`` and ``edge_names`` are one list per graph, a dictionary
    by graph number, or one list for all. Edges may be named by (source, target), units by the name of the feature.

    Args:
        data: a graph, a sequence of graphs, or None; wrong lengths are then not noticed.
        node_names, feature_names, class_names, edge_names, units: names; None takes them from the data.

    >>> from torch_geometric.data import Data
    >>> names = resolve_names(Data(num_nodes=2, class_names=["legit", "fraud"]), node_names={1: "tx-1"}).graph()
    >>> names.node(0), names.node(1), names.class_name(1)
    ('node 0', 'tx-1', 'fraud')
    """
    given = dict(zip(ARGUMENTS, (node_names, feature_names, class_names, edge_names, units), strict=True))
    return NamedData(data, {name: value for name, value in given.items() if value is not None})


def to_run(names: NamedData, numbers: Iterable[int]) -> dict[str, Any]:
    """Names of some graphs as JSON-able data; what all graphs share is written once. Empty if nothing has a name."""
    plain = {number: names.graph(number).to_plain() for number in (numbers if names.several else [0])}
    first = next(iter(plain.values()), {})
    shared = {key: value for key, value in first.items() if all(one.get(key) == value for one in plain.values())}
    own = {str(n): {k: v for k, v in one.items() if k not in shared} for n, one in plain.items()}
    own = {number: one for number, one in own.items() if one}
    return {**({"all": shared} if shared else {}), **({"graphs": own} if own else {})}


def from_run(plain: Mapping[str, Any], number: int) -> Names:
    """The names of one graph from the data of :func:`to_run`."""
    return Names.from_plain({**plain.get("all", {}), **plain.get("graphs", {}).get(str(number), {})})


def number_text(value: float) -> str:
    """A feature's value in at most four significant digits.

    >>> number_text(1.0), number_text(0.931249), number_text(1234567.0), number_text(float("nan"))
    ('1', '0.9312', '1234567', 'unknown')
    """
    value = float(value)
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else f"{'-' if value < 0 else ''}infinity"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else f"{value:.4g}"


# --- checks --------------------------------------------------------------------------------------------------------------


def _labels(given: Any, number: int | None, argument: str, what: str, pairs: bool = False) -> Labels:
    """Names by number, checked."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        found: Labels = _by_number(given, argument, pairs)
    elif isinstance(given, str) or not isinstance(_plain_list(given), Iterable):
        raise InputError(
            f"{argument} must be a list with one name per {what}, or a dictionary by number (got {_short(given)}). "
            f'Try {argument}=["first", "second"].'
        )
    else:
        found = tuple(_text(name, argument, what) for name in _plain_list(given))
    _check_numbers(found, number, argument, what)
    return found


def _check_numbers(labels: Labels, number: int | None, argument: str, what: str) -> None:
    """Raise unless there is a name for each of the numbers, or the dictionary's numbers exist."""
    if number is None or not labels:
        return
    if isinstance(labels, Mapping):
        wrong = [key for key in labels if isinstance(key, int) and not 0 <= key < number]
        if wrong:
            raise InputError(
                f"{argument} must name numbers from 0 to {number - 1}, one per {what} (got {wrong[0]}). Leave it out."
            )
    elif len(labels) != number:
        raise InputError(
            f"{argument} must have one name per {what}, {number} in all (got {len(labels)}). "
            "Give all of them in order, or a dictionary by number for some."
        )


def _by_number(given: Mapping[Any, Any], argument: str, pairs: bool) -> dict[Any, str]:
    """A dictionary from numbers, or for edges from (source, target), to names; one from names to numbers is turned round."""
    keys = [_key(key, pairs) for key in given]
    if keys and all(key is None for key in keys) and all(_key(value, pairs) is not None for value in given.values()):
        return {_key(number, pairs): str(name) for name, number in given.items()}
    wrong = [key for key, good in zip(given, keys, strict=True) if good is None]
    if wrong:
        kinds = "edge numbers or pairs (source, target)" if pairs else "whole numbers"
        raise InputError(f"{argument} as a dictionary must go from {kinds} to names (got the key {_short(wrong[0])}).")
    return {key: _text(name, argument, "entry") for key, name in zip(keys, given.values(), strict=True)}


def _key(value: Any, pairs: bool) -> Any:
    """A number or, if allowed, a pair of numbers; None for anything else. Digits of a JSON key are a number."""
    if isinstance(value, tuple) and pairs and len(value) == 2:
        ends = tuple(_key(end, False) for end in value)
        return None if None in ends else ends
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _units(given: Any, features: Labels, width: int | None) -> Labels:
    """Units by column; a dictionary may also name features."""
    if isinstance(given, Mapping) and features:
        numbers = {str(name): number for number, name in _items(features)}
        unknown = [key for key in given if isinstance(key, str) and not key.isdigit() and key not in numbers]
        if unknown:
            raise InputError(
                f"units must name features that exist (got {_short(unknown[0])}). Known are {_short(list(numbers))}."
            )
        given = {numbers.get(key, key) if isinstance(key, str) else key: unit for key, unit in given.items()}
    return _labels(given, width, "units", "column of x")


def _text(name: Any, argument: str, what: str) -> str:
    """One name as text; None and NaN mean that there is none."""
    name = name.item() if hasattr(name, "item") else name
    if name is None or (isinstance(name, float) and math.isnan(name)):
        return ""
    if not isinstance(name, str | int | float):
        raise InputError(f"{argument} must be text or numbers, one per {what} (got {_short(name)}).")
    return str(name)


def _plain_list(given: Any) -> Any:
    """A list from what NumPy, pandas and torch hold."""
    return given.tolist() if hasattr(given, "tolist") else given


def _is_nested(given: Any) -> bool:
    """Whether something holds names per graph and not per element."""
    items = list(given.values()) if isinstance(given, Mapping) else _plain_list(given)
    first = next((one for one in items if one is not None), None) if isinstance(items, Iterable) else None
    several = isinstance(first, Mapping | Sequence) and not isinstance(first, str)
    return several or getattr(first, "ndim", 0) > 0


# --- small helpers on what is given --------------------------------------------------------------------------------------


def _attribute(data: Any, name: str) -> Any:
    """An attribute of a data object, a dataset or None."""
    if data is None or isinstance(data, list | tuple):
        return None
    found = getattr(data, name, None)
    return None if isinstance(found, tuple | list) and not len(found) else found


def _size(graph: Any, name: str) -> int | None:
    """Number of nodes, edges or features of a graph; None if it is unknown."""
    if graph is None or (name == "num_features" and getattr(graph, "x", None) is None):
        return None
    found = getattr(graph, name, None)
    return None if found is None else int(found)


def _of_graph(what: str, number: int, several: bool) -> str:
    return f"{what} of graph {number}" if several else f"{what} of the graph"


def _get(labels: Labels, number: Any) -> str:
    if isinstance(labels, Mapping):
        return labels.get(number, "")
    return labels[number] if isinstance(number, int) and 0 <= number < len(labels) else ""


def _items(labels: Labels) -> Iterable[tuple[Any, str]]:
    return labels.items() if isinstance(labels, Mapping) else enumerate(labels)


def _to_plain(labels: Labels) -> Any:
    if isinstance(labels, Mapping):  # as pairs, because keys of JSON are text
        return {"some": [[list(key) if isinstance(key, tuple) else key, name] for key, name in labels.items()]}
    return list(labels)


def _from_plain(plain: Any) -> Labels:
    if isinstance(plain, Mapping):
        return {tuple(key) if isinstance(key, list) else key: str(name) for key, name in plain["some"]}
    return tuple(map(str, plain))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
