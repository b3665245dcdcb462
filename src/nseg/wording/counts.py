"""How many edges, nodes and features an explanation keeps, and of how many; the counts as text.

Edges count if a message over them can reach the output. Both directions of an edge are one edge if the explanation treats
them as one (``undirected=True``); otherwise each direction counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.explanation import ATTRIBUTE_MASK, edge_kinds, target_nodes, task_level
from nseg.graphs.subgraph import reverse_edges
from nseg.hetero_explanation import flat_view, node_kind
from nseg.wording.numbers import plural

DEFAULT_THRESHOLD = 0.5
"""Weight above which a soft mask counts as kept when the explanation has no hard mask."""

Unit = Literal["edges", "directed edges", "nodes", "node features", "features", "edge attributes", "attributes"]


@dataclass(frozen=True)
class PartSize:
    """How many elements of one kind an explanation keeps.

    Args:
        kept: number of kept elements.
        total: number of elements that can matter for the output.
        unit: what the elements are; ``"node features"`` are single features of single nodes, ``"features"`` belong to all
            nodes at once; ``"edge attributes"`` and ``"attributes"`` likewise, of edges.
        nodes: number of nodes of which a feature is kept, for ``"node features"``; of edges, for ``"edge attributes"``.
    """

    kept: int
    total: int
    unit: Unit
    nodes: int = 0

    def words(self, molecule: bool = False) -> str:
        """What is kept.

        >>> PartSize(7, 17, "edges").words(), PartSize(14, 72, "node features", 9).words()
        ('7 edges', '14 features of 9 nodes')
        >>> PartSize(1, 4, "features").words(), PartSize(2, 9, "directed edges").words(molecule=True)
        ('1 feature of all nodes', '2 directed bonds')
        """
        node = "atom" if molecule else "node"
        if self.unit == "node features":
            return f"{plural(self.kept, 'feature')} of {plural(self.nodes, node)}"
        if self.unit == "features":
            return f"{plural(self.kept, 'feature')} of all {node}s"
        if self.unit.endswith("attributes"):
            edge = "bond" if molecule else "edge"
            whose = f"all {edge}s" if self.unit == "attributes" else plural(self.nodes, edge)
            return f"{plural(self.kept, 'attribute')} of {whose}"
        return plural(self.kept, self._word(molecule))

    def share(self, molecule: bool = False, where: bool = True) -> str:
        """What is kept, and of how many; ``where`` says on how many nodes features are.

        >>> PartSize(7, 17, "edges").share(), PartSize(14, 72, "node features", 9).share()
        ('7 of 17 edges', '14 of 72 node features (on 9 nodes)')
        >>> PartSize(1, 4, "features").share(), PartSize(1, 1, "nodes").share(molecule=True)
        ('1 of 4 features (of all nodes)', '1 of 1 atom')
        """
        node = "atom" if molecule else "node"
        edge = "bond" if molecule else "edge"
        places = {
            "node features": f" (on {plural(self.nodes, node)})",
            "features": f" (of all {node}s)",
            "edge attributes": f" (on {plural(self.nodes, edge)})",
            "attributes": f" (of all {edge}s)",
        }
        place = places.get(self.unit, "") if where else ""
        return f"{self.kept} of {plural(self.total, self._word(molecule))}{place}"

    def _word(self, molecule: bool) -> str:
        word = self.unit.removesuffix("s")
        return word.replace("edge", "bond").replace("node", "atom") if molecule else word


def size_words(parts: Sequence[PartSize], molecule: bool = False) -> str:
    """What all parts keep, such as ``"7 edges and 3 nodes"``."""
    return " and ".join(part.words(molecule) for part in parts)


def share_words(parts: Sequence[PartSize], molecule: bool = False) -> str:
    """What all parts keep, and of how many, such as ``"7 of 17 edges and 3 of 18 nodes"``."""
    return " and ".join(part.share(molecule) for part in parts)


def kept_parts(explanation: Explanation, reached: Tensor | None = None, level: str | None = None) -> tuple[PartSize, ...]:
    """How many edges, nodes or features an explanation keeps, one size per mask.

    Args:
        explanation: of one output, by ``nseg`` or any PyG algorithm.
        reached: edges over which a message can reach the output, [E], if the explanation does not know them.
        level: ``"node"``, ``"edge"`` or ``"graph"``: the kind of output, if the explanation does not know.
    """
    explanation = flat_view(explanation)
    stored: tuple[PartSize, ...] | None = getattr(explanation, "_size", None)
    if stored is not None and explanation.get("edge_index") is None:  # without a graph, nothing can be counted again
        return stored
    found = []
    edge_mask = hard_mask(explanation, "edge_mask")
    if edge_mask is not None:
        values = element_values(explanation, edge_mask, reached)
        found.append(PartSize(int((values > 0).sum()), values.numel(), edge_unit(explanation, reached)))
    attributes = hard_mask(explanation, ATTRIBUTE_MASK)
    if attributes is not None and is_common(explanation):
        found.append(PartSize(int(attributes.sum()), int(attribute_cells(explanation).sum()), "attributes"))
    elif attributes is not None:
        near = reached_edges(explanation, reached)
        some, cells = attributes[near], attribute_cells(explanation)[near]
        found.append(PartSize(int(some.sum()), int(cells.sum()), "edge attributes", int(some.any(1).sum())))
    node_mask, kind = hard_mask(explanation, "node_mask"), node_mask_type(explanation)
    if node_mask is not None and kind is MaskType.common_attributes:
        found.append(PartSize(int(node_mask.sum()), int(mask_cells(explanation).sum()), "features"))
    elif node_mask is not None:
        nodes = reached_nodes(explanation, reached, level)
        kept, cells = node_mask[nodes], mask_cells(explanation)[nodes]
        at = int(kept.any(1).sum())
        if kind is MaskType.object:
            found.append(PartSize(at, int(cells.any(1).sum()), "nodes"))
        else:
            found.append(PartSize(int(kept.sum()), int(cells.sum()), "node features", at))
    return tuple(found)


def node_mask_type(explanation: Explanation) -> MaskType | None:
    """What the rows and columns of the node mask are: whole nodes, features of nodes, or features of all nodes.

    A single feature is the whole node. On a graph of one node, features are those of the node.
    """
    mask: Tensor | None = explanation.get("node_mask")
    if mask is None or node_kind(explanation) is not None:
        return node_kind(explanation)
    if mask.dim() < 2 or mask.size(1) == 1:
        return MaskType.common_attributes if mask.size(0) == 1 != _num_nodes(explanation) else MaskType.object
    return MaskType.common_attributes if mask.size(0) == 1 != _num_nodes(explanation) else MaskType.attributes


def is_common(explanation: Explanation) -> bool:
    """Whether the mask of edge attributes is one of columns of all edges."""
    return bool((explanation.get("settings") or {}).get("edge_attributes") == MaskType.common_attributes.value)


def attribute_cells(explanation: Explanation) -> Tensor:
    """Which entries of the mask of edge attributes stand for something: types of edges may have fewer than others."""
    known: Tensor | None = explanation.__dict__.get("_attribute_cells")
    return torch.ones(explanation[ATTRIBUTE_MASK].shape, dtype=torch.bool, device="cpu") if known is None else known


def mask_cells(explanation: Explanation) -> Tensor:
    """Which entries of the node mask stand for something, [N, w]: types of nodes may have fewer features than others."""
    known: Tensor | None = explanation.__dict__.get("_cells")
    mask = explanation.node_mask
    shape = len(mask), mask.numel() // max(len(mask), 1)
    return torch.ones(shape, dtype=torch.bool, device="cpu") if known is None else known


def hard_mask(explanation: Explanation, name: str) -> Tensor | None:
    """The hard mask of edges [E] or of nodes [N, w], on the CPU; the thresholded soft mask if there is none."""
    given: Tensor | None = explanation.get(f"hard_{name}")
    mask: Tensor | None = explanation.get(name) if given is None else given
    if mask is None:
        return None
    mask = mask.detach().cpu()
    hard = mask if mask.dtype is torch.bool else mask.float().nan_to_num() > DEFAULT_THRESHOLD
    return hard if name == "edge_mask" else hard.view(hard.size(0), -1)


def edge_unit(explanation: Explanation, reached: Tensor | None = None) -> Unit:
    """What an element of the edge mask is called: directed only where edges run in both directions and count twice."""
    edge_index: Tensor | None = explanation.get("edge_index")
    if edge_index is None:  # a stored explanation without its graph: what is stored is directed
        return "directed edges"
    if is_undirected(explanation):
        return "edges"
    source, end = edge_index.cpu()
    there, back = source * _num_nodes(explanation) + end, end * _num_nodes(explanation) + source
    two_way = (source != end) & torch.isin(there, back)
    return "directed edges" if bool((two_way & reached_edges(explanation, reached)).any()) else "edges"


def is_undirected(explanation: Explanation) -> bool:
    """Whether an explanation treats both directions of an edge as one."""
    return bool((explanation.get("settings") or {}).get("undirected", False))


def reached_edges(explanation: Explanation, reached: Tensor | None = None) -> Tensor:
    """Edges over which a message can reach the output, [E]; all if nobody knows."""
    known: Tensor | None = explanation.get("reached") if reached is None else reached
    if known is None:
        masks = (explanation.get(name) for name in ("edge_index", "edge_id", "edge_mask"))
        number = next((one.size(-1) for one in masks if one is not None), 0)
        return torch.ones(number, dtype=torch.bool)
    return known.cpu().bool()


def element_values(explanation: Explanation, mask: Tensor, reached: Tensor | None = None) -> Tensor:
    """The values of a mask of edges [E] by element: an edge within reach, or both its directions as one, [n]."""
    counts = reached_edges(explanation, reached)
    edge_index, values = explanation.get("edge_index"), mask.detach().cpu().float()[counts]
    if edge_index is None or not is_undirected(explanation) or not values.numel():
        return values
    kinds = edge_kinds(explanation)
    partner = reverse_edges(edge_index.cpu()[:, counts], _num_nodes(explanation), None if kinds is None else kinds[counts])
    first = torch.minimum(torch.arange(partner.numel()), partner)
    known, element = torch.unique(first, return_inverse=True)
    return torch.zeros(known.numel()).scatter_reduce(0, element, values, "amax", include_self=False)


def reached_nodes(explanation: Explanation, reached: Tensor | None = None, level: str | None = None) -> Tensor:
    """Positions of the nodes that can matter for the output, [n], sorted.

    All nodes for an output of a whole graph; otherwise the explained nodes and all ends of the edges within reach.

    Args:
        explanation: the explanation.
        reached, level: as in :func:`kept_parts`.
    """
    edge_index, number = explanation.get("edge_index"), _num_nodes(explanation)
    if edge_index is None or (level or task_level(explanation)) == "graph":
        return torch.arange(number)
    ends = edge_index.cpu()[:, reached_edges(explanation, reached)].flatten()
    nodes: Tensor = torch.unique(torch.cat([ends, target_nodes(explanation, level)]))
    return nodes


def _num_nodes(explanation: Explanation) -> int:
    node_id = explanation.get("node_id")
    return int(explanation.num_nodes or 0) if node_id is None else int(node_id.numel())
