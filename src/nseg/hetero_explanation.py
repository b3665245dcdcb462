"""What comes back for a heterogeneous graph: masks by type, and the same as one explanation of a flat graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.explain import HeteroExplanation as PyGHeteroExplanation
from torch_geometric.explain.config import MaskType

from nseg.adjacency import is_matrix, matrix_edges, without_duplicates
from nseg.errors import UnsupportedError
from nseg.explanation import (
    ALTERNATIVES,
    ATTRIBUTE_MASK,
    FLAGS,
    HARD,
    MASKS,
    NO_THRESHOLD,
    NUMBERS,
    PATH,
    TEXTS,
    Explanation,
    Numbers,
    PathPoint,
    alternative_points,
    path_points,
    row_numbers,
)
from nseg.graph_types import GraphTypes, TypeKey
from nseg.names import NO_NAMES, Names

PER_EDGE = ("edge_mask", "hard_edge_mask", "reached", "edge_path", "edge_alternatives")
PER_NODE = ("node_mask", "hard_node_mask", "node_path", "node_alternatives")
PER_ATTRIBUTE = (ATTRIBUTE_MASK, HARD + ATTRIBUTE_MASK)
"""Attributes of an explanation with an entry per edge, per node, or per attribute of an edge, of each type."""

HIDDEN = ("_model_args", "_stored_args", "_kept_ends", "_kept_values", "_size")
"""Attributes of an explanation that PyG does not know."""


class HeteroExplanation(PyGHeteroExplanation):  # type: ignore[misc]
    """PyG's ``HeteroExplanation``: masks by type, numbers for the whole."""

    def flat(self) -> Explanation:
        """The same explanation of the flat graph, in which nodes and edges of all types are numbered through."""
        found: Explanation = flat_view(self)
        return found

    def words(self) -> str:
        """What is kept, what the model says with and without it, the verdict, and whether it holds if edges are deleted."""
        return self.flat().words()

    def path(self) -> list[PathPoint]:
        """The bound for fewer and more elements, as :meth:`Explanation.path`; masks are dictionaries by type."""
        return path_points(self, self._by_type("edge_path", "node_path"))

    def alternatives(self) -> list[PathPoint]:
        """Other explanations that are about as good, as :meth:`Explanation.alternatives`; masks are dictionaries by type."""
        return alternative_points(self, self._by_type("edge_alternatives", "node_alternatives"))

    def _by_type(self, of_edges: str, of_nodes: str) -> list[dict[Any, Any] | None]:
        """Values of the edges and of the nodes, by type; None where there are none."""
        found = [
            {one._key: one[name] for one in stores if one.get(name) is not None}
            for name, stores in ((of_edges, self.edge_stores), (of_nodes, self.node_stores))
        ]
        return [each or None for each in found]

    def set_value_dict(self, key: str, value_dict: dict[Any, Any]) -> HeteroExplanation:
        """PyG's ``set_value_dict``; of sparse matrices the edges, which the masks are of."""
        edges = {kind: matrix_edges(without_duplicates(v))[0] for kind, v in value_dict.items() if is_matrix(v)}
        found: HeteroExplanation = super().set_value_dict(key, {**value_dict, **edges})
        return found

    def paths(self, most: int = 20) -> list[str]:
        """Kept edges as text, path by path from the explained node: ``author 17 - wrote - paper 12 - presented at - KDD``.

        Paths go against the messages, and end where no kept edge brings anything new.

        Args:
            most: largest number of paths.
        """
        return kept_paths(self.flat(), most)

    def measured_by(self, measure: Callable[[PyGHeteroExplanation], Numbers]) -> HeteroExplanation:
        """The same explanation, whose next :meth:`threshold` measures its numbers again, on the model."""
        self.__dict__["_measure"] = measure
        return self

    def threshold(self, *args: Any, **kwargs: Any) -> HeteroExplanation:
        """PyG's ``threshold``, type by type; hard masks and numbers are then those of the masks that are left."""
        measure = self.__dict__.pop("_measure", None)
        found: HeteroExplanation = super().threshold(*args, **kwargs)
        if found is self:
            return found
        if any(store.get(ATTRIBUTE_MASK) is not None for store in self.edge_stores):
            raise UnsupportedError(NO_THRESHOLD)
        unchanged = True
        for store in (*found.node_stores, *found.edge_stores):
            for name in MASKS:
                if store.get(name) is None:  # PyG sets masks that there are none of
                    store.pop(name, None)
                elif store.get(HARD + name) is not None:
                    unchanged &= torch.equal(store[name] > 0, store[HARD + name])
                    store[HARD + name] = store[name] > 0
            for name in (*PATH, *ALTERNATIVES):
                store.pop(name, None)
        found["exact"] = unchanged and bool(self.get("exact"))
        numbers: Numbers = {} if measure is None else measure(found)
        for name in (*NUMBERS, *FLAGS, *TEXTS, *PATH, *ALTERNATIVES):
            found._global_store.pop(name, None)
            if numbers.get(name) is not None:
                found[name] = numbers[name]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_measure"}

    def _repr_html_(self) -> str | None:
        return self.flat()._repr_html_()


def graph_types(one: PyGHeteroExplanation) -> GraphTypes:
    """The types of an explanation's graph; of another package's explanation, those that it holds."""
    known: GraphTypes | None = one.__dict__.get("_types")
    if known is not None:
        return known
    nodes, edges = _sizes(one, one.node_types, one.edge_types)
    index, level = one.get("index"), getattr(one, "_model_config", None)
    fitting = [kind for kind, size in zip(one.node_types, nodes, strict=True) if _is_rows_of(one, size)]
    output = fitting[0] if index is not None and level is not None and level.task_level.value == "node" and fitting else None
    masks = [one[kind].get("node_mask") for kind in one.node_types]
    widths = tuple(0 if mask is None else mask.size(-1) for mask in masks)
    return GraphTypes(tuple(one.node_types), nodes, tuple(one.edge_types), edges, widths, tuple(range(len(edges))), output)


def _is_rows_of(one: PyGHeteroExplanation, size: int) -> bool:
    target = one.get("target")
    return isinstance(target, Tensor) and target.dim() > 0 and len(target) == size


def _sizes(one: Any, node_types: Sequence[str], edge_types: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Number of nodes and edges of each type in an explanation."""

    def size(store: Any, names: Sequence[str]) -> int:
        known = (store.get(name) for name in names)
        return next((value.size(-1) for value in known if value is not None), 0)

    nodes = []
    for kind in node_types:
        own = one[kind].get("node_id")
        nodes.append(int(one[kind].num_nodes or 0) if own is None else own.numel())
    return tuple(nodes), tuple(size(one[kind], ("edge_id", "edge_index", "edge_mask")) for kind in edge_types)


# --- one flat graph ------------------------------------------------------------------------------------------------------


def flat_view(one: Any) -> Any:
    """An explanation of a heterogeneous graph as one of the flat graph; any other as it is.

    Texts, tables, pictures and reports work on it: nodes and edges of all types are numbered through (also ``output_id`` at
    node level), features of narrower types are padded, and its names know the types.
    """
    if not isinstance(one, PyGHeteroExplanation):
        return one
    types, flat = graph_types(one), Explanation()
    nodes, edges = _sizes(one, types.node_types, types.edge_types)
    at = list(accumulate(nodes, initial=0))
    special = {"prediction", "target", "index", "output_id", "names", types.pairs_name}
    for name, value in one._global_store.items():
        if name not in special:
            flat[name] = value
    flat.node_id = _join_ids(one, types.node_types, "node_id", types.node_starts, nodes)
    flat.edge_id = _join_ids(one, types.edge_types, "edge_id", types.edge_starts, edges)
    _add_edges(flat, one, types, at)
    _add_nodes(flat, one, types, nodes)
    _add_outputs(flat, one, types, at)
    names = one.get("names")
    flat.names = replace(names if isinstance(names, Names) else NO_NAMES, types=types)
    for name in HIDDEN:
        if one.__dict__.get(name) is not None:
            setattr(flat, name, one.__dict__[name])
    flat._model_config = getattr(one, "_model_config", None)
    return flat


def _join_ids(one: Any, kinds: Sequence[TypeKey], name: str, starts: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """The caller's numbers of all nodes or edges, numbered through."""
    own = [one[kind].get(name) for kind in kinds]
    device = next((ids.device for ids in own if ids is not None), None)
    found = [
        (torch.arange(size, device=device) if ids is None else ids) + start
        for ids, start, size in zip(own, starts, sizes, strict=False)
    ]
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.long)


def _add_edges(flat: Explanation, one: Any, types: GraphTypes, at: Sequence[int]) -> None:
    kinds = types.edge_types
    if any(one[kind].get("edge_index") is not None for kind in kinds):
        number = dict(zip(types.node_types, at, strict=False))
        ends = [one[k].edge_index + one[k].edge_index.new_tensor([[number[k[0]]], [number[k[2]]]]) for k in kinds]
        flat.edge_index = torch.cat(ends, 1)
    for name in PER_EDGE:
        masks = [one[kind].get(name) for kind in kinds]
        known = next((mask for mask in masks if mask is not None), None)
        if known is not None:
            sizes = _sizes(one, (), kinds)[1]
            flat[name] = torch.cat(
                [known.new_zeros(n) if mask is None else mask for mask, n in zip(masks, sizes, strict=True)]
            )
    if any(one[kind].get(ATTRIBUTE_MASK) is not None for kind in kinds):
        _add_attributes(flat, [one[kind] for kind in kinds], _sizes(one, (), kinds)[1])


def _add_attributes(flat: Explanation, stores: Sequence[Any], edges: Sequence[int]) -> None:
    """Attributes of edges and their masks, padded to the widest type; and which of their cells exist."""
    rows = [1] * len(edges) if _of_all_edges(flat) else edges
    for name in PER_ATTRIBUTE:
        own = [store.get(name) for store in stores]
        if any(mask is not None for mask in own):
            flat[name], flat.__dict__["_attribute_cells"] = _pad(own, rows)
    for name in ("edge_attr", "edge_weight"):
        given = [store.get(name) for store in stores]
        if any(value is not None for value in given):
            wide = [one.unsqueeze(1) if one is not None and one.dim() == 1 else one for one in given]
            flat[name] = _pad(wide, edges)[0]
            return


def _add_nodes(flat: Explanation, one: Any, types: GraphTypes, nodes: Sequence[int]) -> None:
    """Features and masks of nodes, padded to the widest type; and which of their cells exist."""
    stores = [one[kind] for kind in types.node_types]
    masks = [store.get("node_mask") for store in stores]
    shared = any(m is not None and len(m) == 1 != n for m, n in zip(masks, nodes, strict=True))
    rows = [1] * len(nodes) if shared else list(nodes)
    for name in PER_NODE:
        own = [store.get(name) for store in stores]
        if any(mask is not None for mask in own):
            flat[name], exists = _pad(own, rows)
            if name == "node_mask":
                flat.__dict__["_cells"] = exists
                single = flat[name].size(1) == 1
                kind = MaskType.common_attributes if shared else MaskType.object if single else MaskType.attributes
                flat.__dict__["_node_mask_type"] = kind
    x = [store.get("x") for store in stores]
    plain = [one if one is not None and one.dim() == 2 and one.is_floating_point() else None for one in x]
    if any(one is not None for one in x):
        flat.x = _pad(plain, nodes)[0] if any(one is not None for one in plain) else torch.zeros(sum(nodes), 1)


def _pad(values: Sequence[Tensor | None], rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Rows of all types one below the other, with zeros where a type has fewer columns or none; and where it has some."""
    known = next(one for one in values if one is not None)
    width = max(one.size(1) for one in values if one is not None)
    found, exists = known.new_zeros(sum(rows), width), known.new_zeros(sum(rows), width, dtype=torch.bool)
    for one, start, number in zip(values, accumulate(rows, initial=0), rows, strict=False):
        if one is not None:
            found[start : start + number, : one.size(1)] = one.detach()
            exists[start : start + number, : one.size(1)] = True
    return found, exists


def _add_outputs(flat: Explanation, one: Any, types: GraphTypes, at: Sequence[int]) -> None:
    """Predictions and classes; at node level with a row for each node of the flat graph."""
    index, number = one.get("index"), one.get("output_id")
    if types.output is None:
        for name in ("prediction", "target", "index"):
            if one.get(name) is not None:
                flat[name] = one[name]
        if types.pair_types is not None and types.pairs_name is not None and one.get(types.pairs_name) is not None:
            pairs = one[types.pairs_name]
            starts = [at[types.node_types.index(kind)] for kind in types.pair_types]
            flat[types.pairs_name] = pairs + pairs.new_tensor(starts).view(2, 1)
        flat.output_id = (0 if index is None else int(row_numbers(index)[0])) if number is None else number
        return
    start = at[types.node_types.index(types.output)]
    for name, empty in (("prediction", 0), ("target", -1)):
        value = one.get(name)
        if value is not None:
            value = torch.as_tensor(value)
            whole = value.new_full((at[-1], *value.shape[1:]), empty)
            whole[start : start + len(value)] = value
            flat[name] = whole
    if index is not None:
        flat.index = row_numbers(index) + start
        number = int(row_numbers(index)[0]) if number is None else number
    if number is not None:
        flat.output_id = types.node_number(types.output, int(number))


def from_flat(flat: Explanation, types: GraphTypes, common: bool) -> HeteroExplanation:
    """The explanation by type of which the flat one holds masks and numbers, but no graph, as it is stored.

    Args:
        flat: ``output_id``, ``index``, ``target`` and ``prediction`` are already those of the output's type.
        types: the types.
        common: whether node masks are of features common to all nodes of a type.
    """
    found = HeteroExplanation()
    deleted = (flat.get("settings") or {}).get("baseline") == "absent"  # then nodes without features have masks, too
    layout: dict[str, tuple[str, bool, Sequence[int]]] = {
        **dict.fromkeys(PER_EDGE, ("edge", False, [1] * len(types.edges))),
        **dict.fromkeys(PER_NODE, ("node", common, [max(width, int(deleted)) for width in types.widths])),
        **dict.fromkeys(PER_ATTRIBUTE, ("edge", _of_all_edges(flat), types.edge_widths)),
    }
    kinds: dict[str, list[Any]] = {"edge": list(types.edge_types), "node": list(types.node_types)}
    parts = {}
    for what, starts in (("edge", types.edge_starts), ("node", types.node_starts)):
        ids = flat[f"{what}_id"]
        bounds = torch.searchsorted(ids, torch.tensor(starts))
        parts[what] = [slice(int(a), int(b)) for a, b in pairwise(bounds)]
        for kind, part, start in zip(kinds[what], parts[what], starts, strict=False):
            found[kind][f"{what}_id"] = ids[part] - start
    for name, value in flat.to_dict().items():
        if name in layout:
            what, shared, widths = layout[name]
            for number, (kind, width) in enumerate(zip(kinds[what], widths, strict=True)):
                if width:
                    part = slice(number, number + 1) if shared else parts[what][number]
                    found[kind][name] = value[part] if value.dim() == 1 or value.size(1) == 1 else value[part, :width]
        elif name not in ("edge_id", "node_id"):
            found[name] = value
    for name in (*HIDDEN, "_model_config"):
        if getattr(flat, name, None) is not None:
            found.__dict__[name] = getattr(flat, name)
    found.__dict__["_types"] = types
    return found


def _of_all_edges(one: Any) -> bool:
    """Whether masks of edge attributes are of columns that all edges of a type share."""
    return bool((one.get("settings") or {}).get("edge_attributes") == MaskType.common_attributes.value)


def node_kind(flat: PyGExplanation) -> MaskType | None:
    """What the rows and columns of the node mask of a flat explanation are; None for any other explanation."""
    known: MaskType | None = flat.__dict__.get("_node_mask_type")
    return known


# --- paths ---------------------------------------------------------------------------------------------------------------


def kept_paths(flat: PyGExplanation, most: int = 20, names: Names | None = None) -> list[str]:
    """Kept edges of a flat explanation as text, path by path from what is explained.

    Args:
        flat: from :func:`flat_view`; any other explanation has no paths.
        most: largest number of paths.
        names: names of the flat graph; its own if None.
    """
    names = flat.get("names") if names is None else names
    if not isinstance(names, Names) or names.types is None:
        return []
    incoming: dict[int, list[tuple[str, int]]] = {}
    for number, sender, receiver in _kept_edges(flat):
        incoming.setdefault(receiver, []).append((names.relation(number), sender))
    found: list[str] = []
    pending = [([node], names.node_label(node)) for node in reversed(_beginnings(flat, names.types, list(incoming)))]
    while pending and len(found) < most:
        visited, text = pending.pop()
        onward = [(name, node) for name, node in incoming.get(visited[-1], []) if node not in visited]
        pending += [([*visited, node], f"{text} - {name} - {names.node_label(node)}") for name, node in reversed(onward)]
        if not onward and len(visited) > 1:
            found.append(text)
    return found


def _kept_edges(flat: PyGExplanation) -> list[tuple[int, int, int]]:
    """Number, source and target of each kept edge over which a message can reach the output, by the caller's numbers."""
    hard, edges = flat.get(HARD + "edge_mask"), flat.get("edge_index")
    stored: Any = getattr(flat, "_kept_ends", None)
    if hard is None and flat.get("edge_mask") is not None:
        hard = flat.edge_mask > 0.5
    if hard is None or (edges is None and stored is None):
        return []
    kept = (hard.bool() if flat.get("reached") is None else hard.bool() & flat.reached).cpu()
    ends: Tensor = stored if edges is None else flat.node_id.cpu()[edges.cpu()[:, kept]]
    return list(zip(flat.edge_id.cpu()[kept].tolist(), *ends.tolist(), strict=True))


def _beginnings(flat: PyGExplanation, types: GraphTypes, receivers: list[int]) -> list[int]:
    """The explained nodes, or both ends of the explained pairs; all receivers of kept edges if a graph is explained."""
    index, pairs = flat.get("index"), None if types.pairs_name is None else flat.get(types.pairs_name)
    if index is None or (types.output is None and pairs is None):
        return receivers
    rows = row_numbers(index)
    found: list[int] = flat.node_id.cpu()[rows if pairs is None else pairs.cpu()[:, rows].flatten()].tolist()
    return found
