"""Names of nodes, features, classes and edges, and units of features: resolved and checked once, then used in every text.

:func:`resolve_names` takes them from arguments or from the data object and returns a :class:`NamedData`; its
:class:`Names` of one graph travel with explanations (``explanation.names``) and turn numbers into text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from nseg.errors import InputError
from nseg.graph_types import REVERSE, GraphTypes, TypeKey, relation_words
from nseg.labels import (
    Labels,
    as_labels,
    as_units,
    check_numbers,
    check_pairs,
    get_label,
    is_by_type,
    is_nested,
    labels_from_plain,
    labels_to_plain,
    names_by_function,
    shorten,
)
from nseg.molecules import ELEMENTS, are_atoms, atoms_of

ARGUMENTS = ("node_names", "feature_names", "class_names", "edge_names", "units")
"""Arguments that give names, and attributes of data objects that do."""

LABELS = ("nodes", "features", "classes", "edges", "units", "atoms")
"""Attributes of :class:`Names` that hold names."""

OF_A_GRAPH = ("node_names", "edge_names")  # may differ between graphs


@dataclass(frozen=True)
class Names:
    """Names of one graph; what has no name is shown by its number.

    Args:
        nodes: by the caller's node number.
        features: by column of ``x``.
        classes: by class number.
        edges: by the caller's edge number, or by (source, target).
        units: by column of ``x``.
        by_type: of a heterogeneous graph, names of each node type (nodes, features, units) and of each edge type (edges), in
            the numbers of the type.
        types: which numbers belong to which type, if nodes and edges of all types are numbered through.
        atoms: chemical elements of the nodes of a molecule, which has SMILES.

    >>> names = Names(nodes=("tx-1", "tx-2"), features=("amount", "new"), classes=("legit", "fraud"), units={0: "EUR"})
    >>> names.node(1), names.node(7), names.class_name(1), names.edge(0, 0, 1), names.value(0, 12.5), names.value(1, 1.0)
    ('tx-2', 'node 7', 'fraud', 'tx-1 -> tx-2', 'amount = 12.5 EUR', 'new = 1')
    """

    nodes: Labels = ()
    features: Labels = ()
    classes: Labels = ()
    edges: Labels = ()
    units: Labels = ()
    by_type: Mapping[TypeKey, Names] = field(default_factory=dict)
    types: GraphTypes | None = None
    atoms: Labels = ()

    def __bool__(self) -> bool:
        """Whether anything has a name."""
        return any((self.nodes, self.features, self.classes, self.edges, self.units, self.by_type, self.atoms))

    @property
    def has_nodes(self) -> bool:
        """Whether nodes are called something else than their number."""
        return bool(self.nodes or self.atoms) or self.types is not None

    @cached_property
    def molecule(self) -> bool:
        """Whether nodes are atoms, because there are SMILES or because chemical elements are their names."""
        return bool(self.atoms) or (not isinstance(self.nodes, Mapping) and are_atoms(self.nodes))

    @cached_property
    def _times(self) -> Counter[str]:
        return Counter(self.nodes.values() if isinstance(self.nodes, Mapping) else self.nodes)

    def _own_label(self, number: int) -> str:
        """A name of its own: ``"grass 3"`` where two are called grass, ``"N7"`` for an atom; ``""`` if there is none."""
        given, atom = get_label(self.nodes, number), get_label(self.atoms, number)
        if not given or given == atom or (given in ELEMENTS and self.molecule):
            return f"{given or atom}{number}" if given or atom else self._typed_label(number)
        return given if self._times[given] == 1 else f"{given} {number}"

    def node_label(self, number: int) -> str:
        """Name of a node for lists and texts, such as ``"tx-1"`` or ``"N7"``; its number, and type, if it has none."""
        return self._own_label(number) or str(number)

    def node(self, number: int) -> str:
        """Name of a node in a sentence, ``"node 7"`` if it has none."""
        return self._own_label(number) or f"node {number}"

    def shown(self, number: int) -> str:
        """What is written at a node of a picture, which other nodes may be called too: ``"N"`` for an atom."""
        return get_label(self.nodes, number) or get_label(self.atoms, number) or self._typed_label(number) or str(number)

    def _typed_label(self, number: int) -> str:
        if self.types is None:
            return ""
        kind, local = self.types.node(number)
        return get_label(self.of_type(kind).nodes, local) or f"{kind} {local}"

    def of_type(self, key: TypeKey) -> Names:
        """Names of one type of a heterogeneous graph."""
        return self.by_type.get(key, NO_NAMES)

    def of_node(self, number: int) -> Names:
        """Names of the features of a node, which depend on its type in a heterogeneous graph."""
        return self if self.types is None else self.of_type(self.types.node(number)[0])

    def edge_name(self, number: int, source: int, target: int) -> str:
        """The edge's own name, by number or ends; ``""`` if it has none."""
        if self.types is not None and number >= 0:
            kind, number = self.types.edge(number)
            ends = (self.types.node(source)[1], self.types.node(target)[1])
            return get_label(self.of_type(kind).edges, number) or get_label(self.of_type(kind).edges, ends)
        return get_label(self.edges, number) or get_label(self.edges, (source, target))

    def relation(self, number: int) -> str:
        """What an edge of a heterogeneous graph says, such as ``"presented at"``; ``""`` if there are no types."""
        return "" if self.types is None or number < 0 else relation_words(self.types.edge(number)[0][1])

    def edge(self, number: int, source: int, target: int, undirected: bool = False) -> str:
        """Text of an edge: its own name if it has one, and the labels of its ends.

        Of a heterogeneous graph, ``"author 17 - wrote -> paper 12"``, and for the reverse
        ``"author 17 <- wrote - paper 12"``: arrows are messages.
        """
        if self.types is not None and number >= 0:
            name, a, b = self.edge_name(number, source, target), self.node_label(source), self.node_label(target)
            arrow = ("-", "-") if undirected else ("-", "->")
            if self.types.edge(number)[0][1].startswith(REVERSE):
                a, b, arrow = b, a, ("-" if undirected else "<-", "-")
            text = f"{a} {arrow[0]} {self.relation(number)} {arrow[1]} {b}"
            return f"{name} ({text})" if name else text
        name = self.edge_name(number, source, target) or (get_label(self.edges, (target, source)) if undirected else "")
        ends = f"{self.node_label(source)} {'-' if undirected else '->'} {self.node_label(target)}"
        return f"{name} ({ends})" if name else ends

    def feature(self, number: int) -> str:
        """Name of a feature, ``"feature 3"`` if it has none."""
        return get_label(self.features, number) or f"feature {number}"

    def value(self, feature: int, value: float) -> str:
        """A feature with its value and unit, such as ``"amount = 12.5 EUR"``."""
        unit = self.unit(feature)
        return f"{self.feature(feature)} = {number_text(value)}{f' {unit}' if unit else ''}"

    def unit(self, feature: int) -> str:
        """Unit of a feature; ``""`` if it has none."""
        return get_label(self.units, feature)

    def class_name(self, number: int) -> str:
        """Name of a class, ``"class 3"`` if it has none, ``""`` if the class is unknown (-1)."""
        return "" if number < 0 else get_label(self.classes, number) or f"class {number}"

    def check_classes(self, number: int) -> None:
        """Raise unless the names fit a model of that many classes."""
        check_numbers(self.classes, number, "class_names", "class of the model")

    def to_plain(self) -> dict[str, Any]:
        """These names as JSON-able data; :meth:`from_plain` reads them."""
        found = {name: labels_to_plain(getattr(self, name)) for name in LABELS if getattr(self, name)}
        typed = [[key, one.to_plain()] for key, one in self.by_type.items()]
        return found | ({"by_type": typed} if typed else {})

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Names:
        """Names from the data of :meth:`to_plain`."""
        typed = {tuple(key) if isinstance(key, list) else key: cls.from_plain(one) for key, one in plain.get("by_type", ())}
        labels: dict[str, Any] = {name: labels_from_plain(plain[name]) for name in LABELS if name in plain}
        return cls(**labels, by_type=typed)


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
        if is_typed(graph, self.given):
            return self._resolve_types(graph, number)
        nodes, edges, width = (_size(graph, name) for name in ("num_nodes", "num_edges", "num_features"))
        chosen = {name: self._choose(name, graph, number) for name in ARGUMENTS}
        features = as_labels(chosen["feature_names"], width, "feature_names", "column of x")
        named = as_labels(chosen["edge_names"], edges, "edge_names", _of_graph("edge", number, self.several), pairs=True)
        return Names(
            nodes=as_labels(chosen["node_names"], nodes, "node_names", _of_graph("node", number, self.several)),
            features=features,
            classes=as_labels(chosen["class_names"], None, "class_names", "class"),
            edges=check_pairs(named, getattr(graph, "edge_index", None)),
            units=as_units(chosen["units"], features, width),
            atoms=() if graph is None else atoms_of(graph),
        )

    def _resolve_types(self, graph: Any, number: int) -> Names:
        """Names of a heterogeneous graph: each argument but that of classes is a dictionary by type."""
        given = {name: self._choose(name, graph, number) for name in ARGUMENTS}
        classes = as_labels(given.pop("class_names"), None, "class_names", "class")
        return Names(classes=classes, by_type=names_by_type(graph, given))

    def _choose(self, name: str, graph: Any, number: int) -> Any:
        """What was given for one graph: by argument, else on the graph, else on the data as a whole."""
        given = self.given.get(name)
        if given is None:
            given = _attribute(graph, name)
            if given is None and self.several and name not in OF_A_GRAPH:
                given = _attribute(self.data, name)
            return names_by_function(given, graph, name) if callable(given) else given
        if callable(given):
            return names_by_function(given, graph, name)
        if not self.several or name not in OF_A_GRAPH or not is_nested(given) or is_by_type(given):
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
    by graph number, or one list for all. Edges may be named by (source, target), units by the name of the feature. Of a
    heterogeneous graph all but the classes are dictionaries by type: ``node_names={"conference": ["KDD", ...]}``.

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
    try:
        found = getattr(graph, name, None)
    except Exception:  # features or edges that are no features or edges, which the checks of the input report
        return None
    return None if found is None else int(found)


def _of_graph(what: str, number: int, several: bool) -> str:
    return f"{what} of graph {number}" if several else f"{what} of the graph"


# --- heterogeneous graphs ------------------------------------------------------------------------------------------------


def is_typed(graph: Any, given: Mapping[str, Any]) -> bool:
    """Whether names are those of a heterogeneous graph, judged by the graph, or without one by what is given."""
    if graph is not None:
        return hasattr(graph, "node_types") and hasattr(graph, "edge_types")
    return any(is_by_type(value) for name, value in given.items() if name != "class_names")


def names_by_type(graph: Any, given: Mapping[str, Any]) -> dict[TypeKey, Names]:
    """Names of each type that has some.

    Args:
        graph: the heterogeneous graph, or None; names may also be attributes of its types, ``data["author"].node_names``.
        given: dictionaries by type, by argument name; or None.
    """
    stores: dict[TypeKey, Any] = {} if graph is None else {**dict(graph.node_items()), **dict(graph.edge_items())}
    keys = dict.fromkeys([*stores, *(key for one in given.values() if is_by_type(one) for key in one)])
    for name, value in given.items():
        unknown = [key for key in value if graph is not None and key not in stores] if is_by_type(value) else []
        if unknown or (value is not None and not is_by_type(value)):
            known = ", ".join(repr(key) for key in stores if isinstance(key, tuple) == (name == "edge_names"))
            raise InputError(
                f"{name} of a heterogeneous graph must be a dictionary by type{f', of {known}' if known else ''} (got "
                f"{shorten(unknown[0] if unknown else value)}). Try {name}={{{next(iter(stores), 'author')!r}: [...]}}."
            )
    found = {}
    for key in keys:
        own = {name: _of_one_type(name, value, key, stores.get(key)) for name, value in given.items()}
        labels = _names_of_type(key, own, stores.get(key))
        if labels:
            found[key] = labels
    return found


def _of_one_type(name: str, given: Any, key: TypeKey, store: Any) -> Any:
    """What is given for one type: by argument, else as an attribute of the type."""
    found = None if given is None else given.get(key)
    return store.get(name) if found is None and store is not None else found


def _names_of_type(key: TypeKey, given: Mapping[str, Any], store: Any) -> Names:
    if isinstance(key, tuple):
        number = None if store is None else int(store.num_edges)
        return Names(edges=as_labels(given["edge_names"], number, "edge_names", f"edge of type {key}", pairs=True))
    number = None if store is None or store.num_nodes is None else int(store.num_nodes)
    x = None if store is None else store.get("x")
    width = x.size(1) if x is not None and x.dim() == 2 else None
    features = as_labels(given["feature_names"], width, "feature_names", f"feature of type {key!r}")
    return Names(
        nodes=as_labels(given["node_names"], number, "node_names", f"node of type {key!r}"),
        features=features,
        units=as_units(given["units"], features, width),
    )
