"""What every explainer returns: PyG's ``Explanation``, shown as a picture in notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain import Explanation as PyGExplanation

from nseg.adjacency import is_matrix, matrix_edges, without_duplicates
from nseg.errors import InputError, UnsupportedError

MASKS = ("edge_mask", "node_mask")
"""Masks that PyG knows."""

NO_THRESHOLD = "A threshold is of masks that PyG knows (got one of edge attributes). Leave it out."

ATTRIBUTE_MASK = "edge_attr_mask"
"""The mask of edge attributes, which PyG does not know: [E, D], or [1, D] for columns of all edges."""

HARD = "hard_"
"""Begins the names of their hard counterparts."""

Numbers = Mapping[str, Any]
"""What the model says about an explanation's masks, by name."""

NUMBERS = (
    *("p_factual", "p_complement", "pns", "pn", "ps", "soft_p_factual", "soft_p_complement"),
    *("pns_masked", "pns_removed", "p_empty"),
)
"""Names of the numbers among them."""

FLAGS = ("keeps", "changes", "keeps_empty", "holds_masked", "holds_removed")
"""Names of what is true or false."""

PATH = ("edge_path", "node_path", "path_sizes", "path_pns")
"""Names of what :meth:`Explanation.path` is made of."""

ALTERNATIVES = ("edge_alternatives", "node_alternatives", "alternative_pns")
"""Names of what :meth:`Explanation.alternatives` is made of."""

TEXTS = ("intervention", "verdict")
"""Names of the texts."""


class PathPoint(NamedTuple):
    """What a number of elements is worth.

    Attributes:
        size: number of elements: edges (or both directions of an edge), nodes, features.
        pns: lower bound of their PNS.
        edge_mask, node_mask: which they are, as in the hard masks of the explanation; None where it has none.
            Dictionaries by type for a heterogeneous graph.
    """

    size: int
    pns: float
    edge_mask: Any
    node_mask: Any


class Explanation(PyGExplanation):  # type: ignore[misc]
    """PyG's ``Explanation``, drawn by notebooks.

    Attributes:
        renderer: draws an explanation as HTML. The front door sets it, because drawing lives in a higher room.
        writer: puts an explanation into words; likewise.
    """

    renderer: ClassVar[Callable[[PyGExplanation], str] | None] = None
    writer: ClassVar[Callable[[PyGExplanation], str] | None] = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Keep the edges of a sparse matrix, which the masks are of, and beside them the matrix itself as ``adj_t``."""
        if name == "edge_index" and is_matrix(value):
            super().__setattr__("adj_t", value)
            value = matrix_edges(without_duplicates(value))[0]
        super().__setattr__(name, value)

    def filled(self, values: Mapping[str, Any]) -> Explanation:
        """The same explanation with attributes that it did not have, but those that are None.

        Equal to setting them one by one, which in PyG takes longer than computing them.
        """
        self._store._mapping.update({name: value for name, value in values.items() if value is not None})
        return self

    def words(self) -> str:
        """The prediction, what it rests on, what the model says with that alone and without it, and if edges are deleted."""
        return str(self.get("verdict")) if Explanation.writer is None else Explanation.writer(self)

    def path(self) -> list[PathPoint]:
        """The bound for fewer and more elements: for each size the best subset that was met.

        Read it to choose fewer edges for less certainty. One of the points is the explanation itself. Empty if nobody
        measured it, as for methods of others.
        """
        return path_points(self, [self.get(name) for name in ("edge_path", "node_path")])

    def alternatives(self) -> list[PathPoint]:
        """Other explanations within tolerance of the best, each unlike those before it.

        Empty unless they were asked for (``NSEG(alternatives=3)``), or if none was found.
        """
        return alternative_points(self, [self.get(name) for name in ("edge_alternatives", "node_alternatives")])

    def measured_by(self, measure: Callable[[PyGExplanation], Numbers]) -> Explanation:
        """The same explanation, whose next :meth:`threshold` measures its numbers again, on the model."""
        self.__dict__["_measure"] = measure
        return self

    def threshold(self, *args: Any, **kwargs: Any) -> Explanation:
        """PyG's ``threshold``; hard masks and numbers are then those of the masks that are left.

        Numbers can be measured while an ``Explainer`` or ``explain_many`` applies its ``threshold_config``. Later on there
        is no model, and the numbers are removed.
        """
        measure = self.__dict__.pop("_measure", None)
        found: Explanation = super().threshold(*args, **kwargs)
        if found is not self and self.get(ATTRIBUTE_MASK) is not None:
            raise UnsupportedError(NO_THRESHOLD)
        hard = [name for name in MASKS if self.get(HARD + name) is not None]
        if found is self or not hard:
            return found
        for name in hard:
            found[HARD + name] = found[name] > 0
        unchanged = all(torch.equal(found[HARD + name], self[HARD + name]) for name in hard)
        found["exact"] = unchanged and bool(self.get("exact"))
        if (found.get("settings") or {}).get("undirected") and _separates_directions(found):
            found["settings"] = {**found.settings, "undirected": False}
        for name in (*NUMBERS, *FLAGS, *TEXTS, *PATH, *ALTERNATIVES):
            found[name] = None
        for name, value in ({} if measure is None else measure(found)).items():
            found[name] = value
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_measure"}

    def _repr_html_(self) -> str | None:
        return None if Explanation.renderer is None else Explanation.renderer(self)


def _separates_directions(one: PyGExplanation) -> bool:
    """Whether the hard mask keeps one direction of an edge only."""
    edges, hard = one.get("edge_index"), one.get(HARD + "edge_mask")
    if edges is None or hard is None or not hard.numel():
        return False
    _, bond = torch.unique(edges.sort(0).values, dim=1, return_inverse=True)
    kept = torch.zeros_like(bond).index_add(0, bond, hard.long())
    return bool(((kept > 0) & (kept < bond.bincount(minlength=len(kept)))).any())


def path_points(one: Any, members: Sequence[Any]) -> list[PathPoint]:
    """What each number of elements is worth, with the subset that is worth it.

    Args:
        one: an explanation.
        members: of edges and of nodes, in which subsets each is, bit by bit (tensors, or dictionaries by type).
    """
    if one.get("path_sizes") is None:
        return []
    points = enumerate(zip(one.path_sizes.tolist(), one.path_pns.tolist(), strict=True))
    return [PathPoint(size, pns, *(_subset(member, bit) for member in members)) for bit, (size, pns) in points]


def alternative_points(one: Any, members: Sequence[Any]) -> list[PathPoint]:
    """Other explanations that are about as good; arguments as for :func:`path_points`.

    Sizes count both directions of an edge once where the explanation does.
    """
    if one.get("alternative_pns") is None:
        return []
    tied, found = bool((one.get("settings") or {}).get("undirected")), []
    for bit, pns in enumerate(one.alternative_pns.tolist()):
        edges, nodes = (_subset(member, bit) for member in members)
        found.append(PathPoint(_kept(edges) // (1 + tied) + _kept(nodes), pns, edges, nodes))
    return found


def _subset(member: Any, bit: int) -> Any:
    """What is in the subset of a bit: a mask, or masks by type."""
    if isinstance(member, Mapping):
        return {key: _subset(own, bit) for key, own in member.items()}
    return None if member is None else (member >> bit & 1).bool()


def _kept(mask: Any) -> int:
    """Number of kept elements of a mask, or of masks by type."""
    if isinstance(mask, Mapping):
        return sum(map(_kept, mask.values()))
    return 0 if mask is None else int(mask.sum())


def with_ids(one: PyGExplanation) -> PyGExplanation:
    """An explanation with ``output_id``, ``edge_id`` and ``node_id``.

    Those of :func:`nseg.explain_many` have them; one of PyG's ``Explainer`` covers the whole graph.
    """
    if "output_id" in one:
        return one
    index, device = one.get("index"), one.edge_index.device
    index = index.to(device) if isinstance(index, Tensor) else index  # PyG leaves it on the CPU
    outputs = 1 if index is None else explained_targets(one).numel()
    rows = torch.arange(outputs, device=device)[slice(None) if index is None else index].flatten()
    if rows.numel() != 1:
        raise InputError(
            f"Each explanation must be of one output (got one of {rows.numel()}). Explain them one by one with explain_many."
        )
    copy = copy_explanation(one)
    copy.output_id = int(rows)
    if index is not None:
        copy.index = index
    copy.edge_id = torch.arange(one.edge_index.size(1), device=device)
    copy.node_id = torch.arange(one.x.size(0), device=device)
    return copy


def given_edges(one: PyGExplanation) -> Any:
    """What the model took as its second argument: edges, or a sparse matrix."""
    matrix = one.get("adj_t")
    return matrix if is_matrix(matrix) else one.edge_index


def copy_explanation(one: PyGExplanation) -> PyGExplanation:
    """A copy that keeps the model's configuration and arguments, which ``clone`` drops."""
    copy = one.clone()
    for name in ("_model_args", "_model_config", "_stored_args", "_kept_ends", "_kept_values", "_size"):
        if getattr(one, name, None) is not None:
            setattr(copy, name, getattr(one, name))
    return copy


def explained_targets(one: PyGExplanation) -> Tensor:
    """Class (or value) of each output, [R]; of the column that is asked about, if outputs have several."""
    target, prediction, event = torch.as_tensor(one.target), one.get("prediction"), one.get("outcome")
    several = event is not None and isinstance(prediction, Tensor) and prediction.dim() == 2
    if several and target.numel() == prediction.numel():  # PyG flattens binary labels
        target = target.view_as(prediction)
    column = None if event is None else event.column
    return target[:, column or 0] if event is not None and target.dim() == 2 else target.flatten()


# --- what is explained ---------------------------------------------------------------------------------------------------


def task_level(one: PyGExplanation) -> str:
    """The kind of output: ``"node"``, ``"edge"`` or ``"graph"``; a guess for explanations without their model's config."""
    config = getattr(one, "_model_config", None)
    if config is not None:
        return str(config.task_level.value)
    return "graph" if one.get("index") is None else "node"


def row_numbers(index: Any) -> Tensor:
    """Row numbers from an integer, a sequence of integers, or a boolean mask."""
    index = torch.as_tensor(index).flatten().cpu()
    rows: Tensor = index.nonzero().flatten() if index.dtype is torch.bool else index
    return rows


def target_nodes(one: PyGExplanation, level: str | None = None) -> Tensor:
    """Positions of the explained nodes, or of both ends of the explained links; none for a whole graph."""
    index, level = one.get("index"), level or task_level(one)
    if level == "node":
        own = one.get("node_id")
        if index is not None or own is None:
            return row_numbers(0 if index is None else index)
        positions: Tensor = (own.cpu() == int(one.get("output_id", 0))).nonzero().flatten()
        return positions
    if level == "edge" and index is not None:
        nodes: Tensor = torch.unique(link_pairs(one)[:, row_numbers(index)])
        return nodes
    return torch.zeros(0, dtype=torch.long)


def link_pairs(one: PyGExplanation) -> Tensor:
    """Node pairs that a link model scores, [2, R]: one of the model's arguments, otherwise the edges."""
    for name in getattr(one, "_model_args", None) or ("edge_label_index",):
        pairs = one.get(name)
        if isinstance(pairs, Tensor) and pairs.dim() == 2 and pairs.size(0) == 2 and not pairs.is_floating_point():
            return pairs.cpu()
    edges: Tensor = one.edge_index.cpu()
    return edges


def edge_kinds(one: PyGExplanation) -> Tensor | None:
    """Kind of each edge of a flattened heterogeneous graph, [E], which a type shares with its reverse; None for others."""
    types = getattr(one.get("names"), "types", None)
    if types is None:
        return None
    kind = torch.bucketize(one.edge_id.cpu(), torch.tensor(types.edge_starts[1:]), right=True)
    return torch.tensor(types.kinds, dtype=torch.long)[kind]


def on_cpu(one: PyGExplanation) -> PyGExplanation:
    """An explanation with all its tensors on the CPU; itself if they are there already."""
    here = all(value.device.type == "cpu" for value in one.to_dict().values() if isinstance(value, Tensor))
    return one if here else copy_explanation(one).cpu()
