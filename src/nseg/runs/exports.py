"""Explanations as tables, CSV, JSON and networkx graphs, with names, weights and values.

Columns of a table with one row per explanation (:data:`EXPLANATION_COLUMNS`):

- ``output_id``, ``output``: number and name of the explained node, pair or graph; ``level``: which of these;
  ``output_type``: node type of an explained node of a heterogeneous graph;
- ``class``, ``class_name``: the explained class; ``p``: its probability on the whole graph;
- ``p_factual``, ``p_complement``: its probability with only the explanation, and without it; ``pns``, ``pn``, ``ps``: lower
  bounds; ``exact``, ``seed``: as on an explanation;
- ``edges_kept``, ``edges``, ``nodes_kept``, ``nodes``, ``features_kept``, ``features``, ``attributes_kept``,
  ``attributes``: how many are kept, and of how many;
- ``kept``: names of what is kept, separated by ``; ``; ``alternatives``: the same of other explanations that are about as
  good, separated by bars; ``sentence``: the explanation in words; ``reason``: why there is none.

Columns of a table with one row per kept element (:data:`ELEMENT_COLUMNS`):

- ``output_id``, ``output_type``, ``output``, ``class``, ``class_name``: as above;
- ``kind``: edge, node, node feature (of one node) or feature (of all nodes); ``element``: its text; ``weight``: in the soft
  mask; ``kept``: whether the explanation keeps it;
- ``edge_id``, ``edge_name``, ``source``, ``source_name``, ``target``, ``target_name``: of an edge; ``node``, ``node_name``:
  of a node or its feature; ``feature``, ``feature_name``, ``value``, ``unit``: of a feature. Of a heterogeneous graph,
  numbers are those of the type: ``source_type``, ``relation`` and ``target_type`` of an edge, ``node_type`` of a node or of
  a feature of all nodes of a type.

Cells that do not apply are empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from torch_geometric.explain import Explanation

from nseg.errors import InputError, MissingError
from nseg.explanation import copy_explanation, task_level
from nseg.hetero_explanation import flat_view
from nseg.names import Names
from nseg.storage import files
from nseg.wording import (
    Element,
    PartSize,
    elements,
    explained_class,
    kept_parts,
    names_of,
    predicted_probability,
    sentence,
    subject_name,
)

if TYPE_CHECKING:
    import networkx as nx

EXPLANATION_COLUMNS = (
    *(
        "output_id",
        "output_type",
        "output",
        "level",
        "class",
        "class_name",
        "p",
        "p_factual",
        "p_complement",
        "pns",
        "pn",
        "ps",
    ),
    *("exact", "seed", "edges_kept", "edges", "nodes_kept", "nodes", "features_kept", "features"),
    *("attributes_kept", "attributes"),
    *("kept", "alternatives", "sentence", "reason"),
)
ELEMENT_COLUMNS = (
    *("output_id", "output_type", "output", "class", "class_name", "kind", "element", "weight", "kept"),
    *("edge_id", "edge_name", "relation", "source", "source_type", "source_name", "target", "target_type", "target_name"),
    *("node", "node_type", "node_name"),
    *("feature", "feature_name", "value", "unit"),
)

Rows = Literal["explanations", "elements"]
"""One row per explanation, or one per kept element."""

Record = dict[str, Any]


def explanation_record(one: Explanation) -> Record:
    """One explanation as a row: a value for each of :data:`EXPLANATION_COLUMNS`, None where there is none."""
    found: Record = dict.fromkeys(EXPLANATION_COLUMNS)
    one = flat_view(one)
    number = explained_class(one)
    found |= {
        "output_id": _output_id(one),
        "output_type": _output_type(one),
        "output": subject_name(one),
        "sentence": sentence(one),
    }
    if one.get("reason") is not None:
        return found | {"reason": one.reason}
    found |= {name: one.get(name) for name in ("p_factual", "p_complement", "pns", "pn", "ps", "exact", "seed")}
    found |= {"level": task_level(one), "class": number, "p": predicted_probability(one)}
    found["class_name"] = None if number is None else names_of(one).class_name(number)
    for part in kept_parts(one):
        kind = _counted(part)
        found |= {f"{kind}_kept": part.kept, kind: part.total}
    return found | {"kept": "; ".join(element.text for element in elements(one)), "alternatives": _alternatives(one)}


def _alternatives(one: Explanation) -> str | None:
    """What other explanations keep that are about as good, separated by bars; None if nobody looked for them."""
    if one.get("alternative_pns") is None:
        return None
    texts = []
    for point in one.alternatives():
        other = copy_explanation(one)
        for name, mask in (("hard_edge_mask", point.edge_mask), ("hard_node_mask", point.node_mask)):
            if mask is not None:
                other[name] = mask
        texts.append("; ".join(element.text for element in elements(other)))
    return " | ".join(texts)


def _counted(part: PartSize) -> str:
    unit: str = part.unit
    return unit.removeprefix("directed ").removeprefix("node ").removeprefix("edge ")


def element_records(one: Explanation, left_out: bool = False) -> Iterator[Record]:
    """The kept elements of one explanation as rows: a value for each of :data:`ELEMENT_COLUMNS`.

    Args:
        one: the explanation.
        left_out: whether to also list elements that are not kept.
    """
    one = flat_view(one)
    number, names = explained_class(one), names_of(one)
    shared = {"output_id": _output_id(one), "output_type": _output_type(one), "output": subject_name(one), "class": number}
    shared["class_name"] = None if number is None else names.class_name(number)
    for element in elements(one, left_out):
        yield dict.fromkeys(ELEMENT_COLUMNS) | shared | _by_type(names, _element_cells(one, element))


def _output_id(one: Explanation) -> int:
    """The caller's number of the output, in its type if it is a node of a heterogeneous graph."""
    number, types = int(one.get("output_id", 0)), names_of(one).types
    return number if types is None or types.output is None else types.node(number)[1]


def _output_type(one: Explanation) -> str | None:
    types = names_of(one).types
    return None if types is None else types.output


def _by_type(names: Names, cells: Record) -> Record:
    """Cells of an element in which numbers are those of the type, if nodes and edges of all types are numbered through."""
    if names.types is None:
        return cells
    for name in ("source", "target", "node"):
        if cells[name] is not None:
            cells[f"{name}_type"], cells[name] = names.types.node(cells[name])
    if cells["edge_id"] is not None:
        cells["relation"] = names.types.edge(cells["edge_id"])[0][1]
        cells["edge_id"] = names.types.edge(cells["edge_id"])[1]
    return cells


def _element_cells(one: Explanation, element: Element) -> Record:
    names = names_of(one)
    found: Record = {"kind": element.kind, "element": element.text, "weight": element.weight, "kept": element.kept}
    found |= {"edge_id": element.edge, "source": element.source, "target": element.target}
    found |= {"node": element.node, "feature": element.feature, "value": element.value}
    for end in ("source", "target", "node"):
        if found[end] is not None:
            found[f"{end}_name"] = names.node_label(found[end])
    if element.edge is not None and element.source is not None and element.target is not None:
        found["edge_name"] = names.edge_name(element.edge, element.source, element.target) or None
    if element.feature is not None and element.kind in ("node feature", "feature"):
        own = names if element.node is None else names.of_node(element.node)
        own = own if element.node_type is None else names.of_type(element.node_type)
        found |= {"feature_name": own.feature(element.feature), "unit": own.unit(element.feature) or None}
        found["node_type"] = element.node_type
    return found


def records(explanations: Iterable[Explanation], rows: Rows = "explanations", left_out: bool = False) -> Iterator[Record]:
    """Rows of a table.

    Args:
        explanations: what is exported.
        rows: one row per explanation, or per element.
        left_out: whether elements that are not kept get a row too.
    """
    if rows not in ("explanations", "elements"):
        raise InputError(f'rows must be "explanations" or "elements" (got {rows!r}).')
    for one in explanations:
        if rows == "explanations":
            yield explanation_record(one)
        else:
            yield from element_records(one, left_out)


def explanation_graph(one: Explanation, left_out: bool = True) -> nx.MultiDiGraph:
    """One explanation as a networkx graph, whose nodes and edges have ``name``, ``weight`` and ``kept``.

    Nodes are the caller's numbers; of a heterogeneous graph, pairs of type and number, with ``type``, and edges have a
    ``relation``. Kept features of a node are in its ``features``, a dictionary from names to values. The
    graph itself has the explanation's row as attributes (``graph.graph["sentence"]``).

    Args:
        one: with its graph, from :func:`nseg.explain_many` or :func:`nseg.runs.attach`.
        left_out: whether nodes and edges that are not kept, but can matter, are in it.
    """
    import networkx as nx

    one = flat_view(one)
    if one.get("edge_index") is None and left_out:
        raise InputError(
            "A networkx graph needs the explanation's graph (got one without edge_index, as nseg.read returns). Pass what "
            "was explained: data=..., or ask for what is kept only: left_out=False."
        )
    names, graph = names_of(one), nx.MultiDiGraph(**explanation_record(one))
    types = names.types

    def add_node(number: int, **found: Any) -> Any:
        node, kind = (number, {}) if types is None else (types.node(number), {"type": types.node(number)[0]})
        graph.add_node(node, name=names.node_label(number), **kind)
        graph.nodes[node].update(found)
        return node

    for element in elements(one, left_out):
        found: Record = {"name": element.text, "weight": element.weight, "kept": element.kept}
        if element.kind == "edge":
            ends = [add_node(int(end or 0)) for end in (element.source, element.target)]
            key: Any = element.edge
            if types is not None and key is not None:
                found["relation"], key = types.edge(key)[0][1], types.edge(key)
            graph.add_edge(*ends, key=key, **found)
        elif element.kind == "node":
            add_node(int(element.node or 0), **found)
        elif element.kind == "node feature" and element.kept:
            node = add_node(int(element.node or 0))
            feature = names.of_node(int(element.node or 0)).feature(int(element.feature or 0))
            graph.nodes[node].setdefault("features", {})[feature] = element.value
    return graph


class Exportable(Sequence[Explanation]):
    """Explanations that can be written for other programs; columns: :mod:`nseg.runs.exports`."""

    def records(self, rows: Rows = "explanations", *, data: Any = None, left_out: bool = False) -> list[Record]:
        """Rows as dictionaries.

        Args:
            rows: ``"explanations"``, a row for each; or ``"elements"``, a row for each kept edge, node or feature.
            data: what was explained, for stored explanations of which more than the kept elements is asked for.
            left_out: whether elements that are not kept get a row too.
        """
        return list(records(self._with_graphs(data), rows, left_out))

    def sentences(self) -> list[str]:
        """Each explanation in plain words."""
        return [sentence(one) for one in self]

    def to_frame(self, rows: Rows = "explanations", *, data: Any = None, left_out: bool = False) -> Any:
        """A pandas ``DataFrame``; the arguments are those of :meth:`records`."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingError(
                'to_frame needs pandas (it is not installed). Install it: pip install "nseg[frames]". Or use to_csv.'
            ) from None
        columns = EXPLANATION_COLUMNS if rows == "explanations" else ELEMENT_COLUMNS
        return pd.DataFrame(self.records(rows, data=data, left_out=left_out), columns=list(columns))

    def to_csv(
        self, path: str | Path | None = None, rows: Rows = "explanations", *, data: Any = None, left_out: bool = False
    ) -> str:
        """CSV text, also written to ``path`` if given; the other arguments are those of :meth:`records`."""
        text = csv_text(records(self._with_graphs(data), rows, left_out), rows)
        if path is not None:
            files.write_text(Path(path), text)
        return text

    def to_json(self, path: str | Path | None = None, *, data: Any = None, left_out: bool = False) -> str:
        """JSON text, also written to ``path`` if given: a list of explanations, each with its ``elements``."""
        found = [
            {**explanation_record(one), "elements": [_without_none(cells) for cells in element_records(one, left_out)]}
            for one in self._with_graphs(data)
        ]
        text = files.json_text({"format": 1, "explanations": found})
        if path is not None:
            files.write_text(Path(path), text)
        return text

    def to_networkx(self, *, data: Any = None, left_out: bool = True) -> list[nx.MultiDiGraph]:
        """A networkx graph per explanation (:func:`explanation_graph`); those without an explanation are left out."""
        good = (one for one in self._with_graphs(data) if one.get("reason") is None)
        return [explanation_graph(one, left_out) for one in good]

    def _with_graphs(self, data: Any) -> Iterable[Explanation]:
        """The explanations, with their graphs if the data is given."""
        return self


def csv_text(found: Iterable[Record], rows: Rows) -> str:
    """Rows as CSV, with a header; cells without a value are empty."""
    buffer = io.StringIO()
    columns = EXPLANATION_COLUMNS if rows == "explanations" else ELEMENT_COLUMNS
    writer = csv.DictWriter(buffer, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return buffer.getvalue()


def _without_none(cells: Record) -> Record:
    return {name: value for name, value in cells.items() if value is not None}


class ExplanationList(list[Explanation], Exportable):
    """What :func:`nseg.explain_many` returns: a list of explanations that can also be exported."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> ExplanationList: ...
    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return ExplanationList(found) if isinstance(index, slice) else found
