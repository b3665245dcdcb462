"""Explanations as tables, CSV, JSON and networkx graphs, with names, weights and values.

Columns of a table with one row per explanation (:data:`EXPLANATION_COLUMNS`):

- ``output_id``, ``output``: number and name of the explained node, pair or graph; ``level``: which of these;
- ``class``, ``class_name``: the explained class; ``p``: its probability on the whole graph;
- ``p_factual``, ``p_complement``: its probability with only the explanation, and without it; ``pns``, ``pn``, ``ps``: lower
  bounds; ``exact``, ``seed``: as on an explanation;
- ``edges_kept``, ``edges``, ``nodes_kept``, ``nodes``, ``features_kept``, ``features``: how many are kept, and of how many;
- ``kept``: names of what is kept, separated by ``; ``; ``sentence``: the explanation in words; ``reason``: why there is
  none.

Columns of a table with one row per kept element (:data:`ELEMENT_COLUMNS`):

- ``output_id``, ``output``, ``class``, ``class_name``: as above;
- ``kind``: edge, node, node feature (of one node) or feature (of all nodes); ``element``: its text; ``weight``: in the soft
  mask; ``kept``: whether the explanation keeps it;
- ``edge_id``, ``edge_name``, ``source``, ``source_name``, ``target``, ``target_name``: of an edge; ``node``, ``node_name``:
  of a node or its feature; ``feature``, ``feature_name``, ``value``, ``unit``: of a feature.

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
from nseg.explanation import task_level
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
    *("output_id", "output", "level", "class", "class_name", "p", "p_factual", "p_complement", "pns", "pn", "ps"),
    *("exact", "seed", "edges_kept", "edges", "nodes_kept", "nodes", "features_kept", "features"),
    *("kept", "sentence", "reason"),
)
ELEMENT_COLUMNS = (
    *("output_id", "output", "class", "class_name", "kind", "element", "weight", "kept"),
    *("edge_id", "edge_name", "source", "source_name", "target", "target_name", "node", "node_name"),
    *("feature", "feature_name", "value", "unit"),
)

Rows = Literal["explanations", "elements"]
"""One row per explanation, or one per kept element."""

Record = dict[str, Any]


def explanation_record(one: Explanation) -> Record:
    """One explanation as a row: a value for each of :data:`EXPLANATION_COLUMNS`, None where there is none."""
    found: Record = dict.fromkeys(EXPLANATION_COLUMNS)
    number = explained_class(one)
    found |= {"output_id": int(one.get("output_id", 0)), "output": subject_name(one), "sentence": sentence(one)}
    if one.get("reason") is not None:
        return found | {"reason": one.reason}
    found |= {name: one.get(name) for name in ("p_factual", "p_complement", "pns", "pn", "ps", "exact", "seed")}
    found |= {"level": task_level(one), "class": number, "p": predicted_probability(one)}
    found["class_name"] = None if number is None else names_of(one).class_name(number)
    for part in kept_parts(one):
        kind = _counted(part)
        found |= {f"{kind}_kept": part.kept, kind: part.total}
    return found | {"kept": "; ".join(element.text for element in elements(one))}


def _counted(part: PartSize) -> str:
    return {"directed edges": "edges", "node features": "features"}.get(part.unit, part.unit)


def element_records(one: Explanation, left_out: bool = False) -> Iterator[Record]:
    """The kept elements of one explanation as rows: a value for each of :data:`ELEMENT_COLUMNS`.

    Args:
        one: the explanation.
        left_out: whether to also list elements that are not kept.
    """
    number, names = explained_class(one), names_of(one)
    shared = {"output_id": int(one.get("output_id", 0)), "output": subject_name(one), "class": number}
    shared["class_name"] = None if number is None else names.class_name(number)
    for element in elements(one, left_out):
        yield dict.fromkeys(ELEMENT_COLUMNS) | shared | _element_cells(one, element)


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
    if element.feature is not None:
        found |= {"feature_name": names.feature(element.feature), "unit": names.unit(element.feature) or None}
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

    Nodes are the caller's numbers. Kept features of a node are in its ``features``, a dictionary from names to values. The
    graph itself has the explanation's row as attributes (``graph.graph["sentence"]``).

    Args:
        one: with its graph, from :func:`nseg.explain_many` or :func:`nseg.runs.attach`.
        left_out: whether nodes and edges that are not kept, but can matter, are in it.
    """
    import networkx as nx

    if one.get("edge_index") is None and left_out:
        raise InputError(
            "A networkx graph needs the explanation's graph (got one without edge_index, as nseg.read returns). Pass what "
            "was explained: data=..., or ask for what is kept only: left_out=False."
        )
    names, graph = names_of(one), nx.MultiDiGraph(**explanation_record(one))
    for element in elements(one, left_out):
        found = {"name": element.text, "weight": element.weight, "kept": element.kept}
        if element.kind == "edge":
            for end in (element.source, element.target):
                graph.add_node(end, name=names.node_label(int(end or 0)))
            graph.add_edge(element.source, element.target, key=element.edge, **found)
        elif element.kind == "node":
            graph.add_node(element.node, **found)
        elif element.kind == "node feature" and element.kept:
            graph.add_node(element.node, name=names.node_label(int(element.node or 0)))
            graph.nodes[element.node].setdefault("features", {})[names.feature(int(element.feature or 0))] = element.value
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
