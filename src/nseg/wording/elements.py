"""What an explanation keeps, element by element, with names, weights and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.explanation import ATTRIBUTE_MASK, edge_kinds
from nseg.hetero_explanation import flat_view
from nseg.names import Names
from nseg.wording.counts import (
    Unit,
    attribute_cells,
    hard_mask,
    is_common,
    is_undirected,
    mask_cells,
    node_mask_type,
    reached_edges,
    reached_nodes,
)
from nseg.wording.subject import caller_ids, names_of

Kind = Literal["edge", "node", "node feature", "feature", "edge attribute", "attribute"]

KINDS: dict[Unit, Kind] = {
    "edges": "edge",
    "directed edges": "edge",
    "nodes": "node",
    "node features": "node feature",
    "features": "feature",
    "edge attributes": "edge attribute",
    "attributes": "attribute",
}
"""What an element of each unit is called."""


@dataclass(frozen=True)
class Element:
    """One edge, node or feature that an explanation keeps or leaves out; numbers are the caller's.

    Args:
        kind: ``"edge"``, ``"node"``, ``"node feature"`` (of one node), ``"feature"`` (of all nodes), ``"edge attribute"``
            (of one edge) or ``"attribute"`` (of all edges).
        label: its name without what it belongs to, such as ``"tx-2716 -> tx-11"`` or ``"amount = 12.5 EUR"``.
        weight: in the soft mask; None if there is none.
        kept: whether the explanation keeps it.
        owner: name of the node or edge that a feature or attribute belongs to; the type, of a feature of all of its nodes.
        edge, source, target: of an edge; ends are None for a stored explanation without its graph.
        node: of a node or of one of its features.
        feature: column of ``x``, or of the edge attributes.
        value: of the feature; None if unknown.
        node_type: of a feature of all nodes of a type, in a heterogeneous graph.
    """

    kind: Kind
    label: str
    weight: float | None
    kept: bool
    owner: str = ""
    edge: int | None = None
    source: int | None = None
    target: int | None = None
    node: int | None = None
    feature: int | None = None
    value: float | None = None
    node_type: str | None = None

    @property
    def text(self) -> str:
        """With what it belongs to, such as ``"tx-11: amount = 12.5 EUR"`` or ``"node 5"``."""
        if self.kind == "node":
            return f"node {self.label}" if self.label == str(self.node) else self.label
        return f"{self.owner}: {self.label}" if self.owner else self.label


def elements(
    one: Explanation,
    left_out: bool = False,
    *,
    names: Names | None = None,
    reached: Tensor | None = None,
    level: str | None = None,
) -> list[Element]:
    """What an explanation keeps, among what can matter for its output: edges by weight, then nodes and features.

    Args:
        one: of one output, from :func:`nseg.explain_many`, :func:`nseg.read` or any PyG algorithm.
        left_out: whether to also list what it does not keep; a stored explanation then needs its graph
            (:func:`nseg.runs.attach`).
        names: names of the caller's graph; those that the explanation carries if None.
        reached: edges over which a message can reach the output, [E], if the explanation does not know them.
        level: ``"node"``, ``"edge"`` or ``"graph"``: the kind of output, if the explanation does not know.
    """
    if one.get("reason") is not None:
        return []
    one = flat_view(one)
    names = names_of(one) if names is None else names
    found = [*_edges(one, left_out, names, reached), *_attributes(one, left_out, names, reached)]
    found += [*_node_elements(one, left_out, names, reached, level)]
    return sorted(found, key=lambda element: (element.kind, not element.kept, -(element.weight or 0.0)))


def _edges(one: Explanation, left_out: bool, names: Names, reached: Tensor | None) -> Iterator[Element]:
    hard = hard_mask(one, "edge_mask")
    if hard is None:
        return
    counted, both = reached_edges(one, reached), is_undirected(one)
    listed = (counted if left_out else hard & counted).nonzero().flatten()
    ids = caller_ids(one, "edge_id", hard.numel())[listed].tolist()
    ends, weights = _listed_ends(one, listed), _weights(one, "edge_mask", listed)
    seen, kinds = set[tuple[int, int, int]](), edge_kinds(one)
    for number, position in enumerate(listed.tolist()):
        source, target = (None, None) if ends is None else ends[number]
        label = f"edge {ids[number]}"
        if source is not None and target is not None:
            kind = 0 if kinds is None else int(kinds[position])
            if both and (target, source, kind) in seen:
                continue
            seen.add((source, target, kind))
            label = names.edge(ids[number], source, target, both)
        weight = None if weights is None else weights[number]
        yield Element("edge", label, weight, bool(hard[position]), edge=ids[number], source=source, target=target)


def _attributes(one: Explanation, left_out: bool, names: Names, reached: Tensor | None) -> Iterator[Element]:
    """Attributes of edges, or of all edges at once."""
    hard, soft = hard_mask(one, ATTRIBUTE_MASK), one.get(ATTRIBUTE_MASK)
    if hard is None:
        return
    weight, cells = soft.detach().cpu().float(), attribute_cells(one)
    hard = hard & cells
    if is_common(one):
        for row, column in (cells if left_out else hard).nonzero().tolist():
            label = f"attribute {column}" + ("" if names.types is None else f" of {' '.join(names.types.edge_types[row])}")
            yield Element("attribute", label, float(weight[row, column]), bool(hard[row, column]), feature=column)
        return
    ids, values = caller_ids(one, "edge_id", hard.size(0)).tolist(), attribute_values(one)
    listed = (reached_edges(one, reached).unsqueeze(1) & cells & (hard | left_out)).nonzero()
    ends = _listed_ends(one, listed[:, 0]) if one.get("edge_index") is not None else None
    for number, (position, column) in enumerate(listed.tolist()):
        source, target = (None, None) if ends is None else ends[number]
        edge = ids[position]
        owner = _numbered_edge(edge, names)
        if source is not None and target is not None:
            owner = names.edge(edge, source, target, False)
        value = None if values is None else float(values[position, column])
        label = f"attribute {column}" + ("" if value is None else f" = {value:.4g}")
        found = Element("edge attribute", label, float(weight[position, column]), bool(hard[position, column]), owner, edge)
        yield replace(found, source=source, target=target, feature=column, value=value)


def _numbered_edge(edge: int, names: Names) -> str:
    """An edge whose ends are not known, by its number; of a heterogeneous graph by its type and its number there."""
    if names.types is None:
        return f"edge {edge}"
    kind, number = names.types.edge(edge)
    return f"edge {number} of {' '.join(kind)}"


def attribute_values(one: Explanation) -> Tensor | None:
    """The masked attributes of an explanation's edges, [E, D]; None if it has no graph."""
    mask = one.get(ATTRIBUTE_MASK)
    for name in ("edge_attr", "edge_weight"):
        value: Tensor | None = one.get(name)
        if mask is not None and value is not None and value.numel() == len(value) * mask.size(1):
            return value.detach().cpu().view(len(value), mask.size(1))
    return None


def _weights(one: Explanation, name: str, listed: Tensor) -> list[float] | None:
    soft: Tensor | None = one.get(name)
    if soft is None:
        return None
    found: list[float] = soft.detach().cpu().float().nan_to_num()[listed].tolist()
    return found


def _listed_ends(one: Explanation, listed: Tensor) -> list[list[int]] | None:
    """Source and target of some edges, by the caller's numbers; None if they are not known."""
    edges = one.get("edge_index")
    if edges is not None:
        nodes = caller_ids(one, "node_id")
        found: list[list[int]] = nodes[edges.cpu()[:, listed]].T.tolist()
        return found
    stored: Tensor | None = getattr(one, "_kept_ends", None)
    return None if stored is None or stored.size(1) != listed.numel() else stored.T.tolist()


def _node_elements(
    one: Explanation, left_out: bool, names: Names, reached: Tensor | None, level: str | None
) -> Iterable[Element]:
    hard, kind = hard_mask(one, "node_mask"), node_mask_type(one)
    if hard is None:
        return []
    soft = one.node_mask.detach().cpu().float().nan_to_num().view(hard.size(0), -1)
    if kind is MaskType.common_attributes:
        return _common_features(one, hard, soft, names, left_out)
    ids, nodes = caller_ids(one, "node_id", hard.size(0)).tolist(), reached_nodes(one, reached, level)
    nodes = nodes[mask_cells(one)[nodes].any(1)]
    if kind is MaskType.object:
        kept = hard.any(1)
        return [
            Element("node", names.node_label(ids[n]), float(soft[n].max()), bool(kept[n]), node=ids[n])
            for n in nodes.tolist()
            if left_out or bool(kept[n])
        ]
    return _features_of_nodes(one, hard, soft, names, ids, nodes, left_out)


def _common_features(one: Explanation, hard: Tensor, soft: Tensor, names: Names, left_out: bool) -> Iterator[Element]:
    """Features of all nodes; in a heterogeneous graph of all nodes of a type, a row for each type."""
    cells = mask_cells(one)
    for row, f in (cells if left_out else cells & hard).nonzero().tolist():
        kind = None if names.types is None else names.types.node_types[row]
        label = (names if kind is None else names.of_type(kind)).feature(f)
        weight, kept = float(soft[row, f]), bool(hard[row, f])
        yield Element("feature", label, weight, kept, kind or "", feature=f, node_type=kind)


def _features_of_nodes(
    one: Explanation, hard: Tensor, soft: Tensor, names: Names, ids: list[int], nodes: Tensor, left_out: bool
) -> Iterator[Element]:
    near = torch.zeros_like(hard)
    near[nodes] = mask_cells(one)[nodes]
    stored, x = _stored_values(one, hard), one.get("x")
    for n, f in (near if left_out else near & hard).nonzero().tolist():
        value = stored.get((n, f)) if x is None else float(x[n, f])
        own = names.of_node(ids[n])
        label = own.feature(f) if value is None else own.value(f, value)
        kept, owner = bool(hard[n, f]), names.node(ids[n])
        yield Element("node feature", label, float(soft[n, f]), kept, owner, node=ids[n], feature=f, value=value)


def _stored_values(one: Explanation, hard: Tensor) -> dict[tuple[int, int], float]:
    """Values of kept features by node and column, that a stored explanation has without its graph."""
    stored: Tensor | None = getattr(one, "_kept_values", None)
    at = [] if stored is None else hard.nonzero().tolist()
    if stored is None or len(at) != stored.numel():
        return {}
    return {(n, f): value for (n, f), value in zip(at, stored.tolist(), strict=True)}


def kept_texts(found: Sequence[Element], unit: Unit) -> list[str]:
    """Texts of the kept elements of one unit, the largest weight first; features of one node are one text.

    Args:
        found: from :func:`elements`.
        unit: what is listed.

    >>> new, old = (Element("node feature", name, 0.9, True, "tx-1") for name in ("new = 1", "amount = 3 EUR"))
    >>> kept_texts([new, old], "node features")
    ['tx-1: new = 1, amount = 3 EUR']
    """
    kept = [one for one in found if one.kept and one.kind == KINDS[unit]]
    if unit not in ("node features", "edge attributes"):
        return [one.label if unit != "features" else one.text for one in kept]
    by_owner: dict[tuple[int | None, int | None, str], list[str]] = {}
    for one in kept:
        by_owner.setdefault((one.node, one.edge, one.owner), []).append(one.label)
    return [f"{owner}: {', '.join(labels)}" for (_, _, owner), labels in by_owner.items()]
