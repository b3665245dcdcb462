"""What an explanation keeps, counted and in words, and how its numbers are written: one rule for everything people read.

Edges count if a message over them can reach the output. Both directions of an edge are one edge if the explanation treats
them as one (``undirected=True``); otherwise each direction counts. The report's page has the same rules in
``reports/web/src/words.ts``; a table of examples, which both test, keeps them equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.explanation import target_nodes, task_level
from nseg.graphs.subgraph import reverse_edges

DEFAULT_THRESHOLD = 0.5
"""Weight above which a soft mask counts as kept when the explanation has no hard mask."""

DECIMALS = 6
"""Decimal places that a probability in single precision is worth. Texts are made of numbers rounded to this many."""

TINY = 1e-6
"""Thousandths that the product of 1000 and a number of six decimals may be off."""

Unit = Literal["edges", "directed edges", "nodes", "node features", "features"]

# --- numbers -------------------------------------------------------------------------------------------------------------


def probability_text(value: float) -> str:
    """A probability with three decimals, rounded to the nearest, halves up.

    >>> probability_text(0.9364), probability_text(0.0625)
    ('0.936', '0.063')
    """
    return _thousandths(value, lambda n: math.floor(n + 0.5))


def bound_text(value: float) -> str:
    """A lower bound with three decimals, rounded down so that it stays a lower bound.

    >>> bound_text(0.8379), bound_text(0.84), bound_text(0.9999999)
    ('0.837', '0.840', '1.000')
    """
    return _thousandths(value, lambda n: math.floor(n + TINY))


def upper_bound_text(value: float) -> str:
    """An upper bound with three decimals, rounded up so that it stays an upper bound.

    >>> upper_bound_text(0.8371), upper_bound_text(0.84)
    ('0.838', '0.840')
    """
    return _thousandths(value, lambda n: math.ceil(n - TINY))


def _thousandths(value: float, whole: Callable[[float], int]) -> str:
    return f"{whole(1000 * round(float(value), DECIMALS)) / 1000:.3f}" if math.isfinite(value) else "unknown"


# --- sizes ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartSize:
    """How many elements of one kind an explanation keeps.

    Args:
        kept: number of kept elements.
        total: number of elements that can matter for the output.
        unit: what the elements are; ``"node features"`` are single features of single nodes, ``"features"`` belong to all
            nodes at once.
        nodes: number of nodes of which a feature is kept, for ``"node features"``.
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
        return plural(self.kept, self._word(molecule))

    def share(self, molecule: bool = False) -> str:
        """What is kept, and of how many.

        >>> PartSize(7, 17, "edges").share(), PartSize(14, 72, "node features", 9).share()
        ('7 of 17 edges', '14 of 72 node features (on 9 nodes)')
        >>> PartSize(1, 4, "features").share(), PartSize(1, 1, "nodes").share(molecule=True)
        ('1 of 4 features (of all nodes)', '1 of 1 atom')
        """
        node = "atom" if molecule else "node"
        where = {"node features": f" (on {plural(self.nodes, node)})", "features": f" (of all {node}s)"}.get(self.unit, "")
        return f"{self.kept} of {plural(self.total, self._word(molecule))}{where}"

    def _word(self, molecule: bool) -> str:
        word = self.unit.removesuffix("s")
        return word.replace("edge", "bond").replace("node", "atom") if molecule else word


def plural(number: int, word: str) -> str:
    """A number and a word.

    >>> plural(1, "edge"), plural(0, "edge")
    ('1 edge', '0 edges')
    """
    return f"{number} {word}{'' if number == 1 else 's'}"


def size_words(parts: Sequence[PartSize], molecule: bool = False) -> str:
    """What all parts keep, such as ``"7 edges and 3 nodes"``."""
    return " and ".join(part.words(molecule) for part in parts)


def share_words(parts: Sequence[PartSize], molecule: bool = False) -> str:
    """What all parts keep, and of how many, such as ``"7 of 17 edges and 3 of 18 nodes"``."""
    return " and ".join(part.share(molecule) for part in parts)


# --- counts --------------------------------------------------------------------------------------------------------------


def kept_parts(explanation: Explanation, reached: Tensor | None = None, level: str | None = None) -> tuple[PartSize, ...]:
    """How many edges, nodes or features an explanation keeps, one size per mask.

    Args:
        explanation: of one output, by ``nseg`` or any PyG algorithm.
        reached: edges over which a message can reach the output, [E], if the explanation does not know them.
        level: ``"node"``, ``"edge"`` or ``"graph"``: the kind of output, if the explanation does not know.
    """
    stored: tuple[PartSize, ...] | None = getattr(explanation, "_size", None)
    if stored is not None and explanation.get("edge_index") is None:  # without a graph, nothing can be counted again
        return stored
    found = []
    edge_mask = hard_mask(explanation, "edge_mask")
    if edge_mask is not None:
        values = element_values(explanation, edge_mask, reached)
        found.append(PartSize(int((values > 0).sum()), values.numel(), edge_unit(explanation, reached)))
    node_mask, kind = hard_mask(explanation, "node_mask"), node_mask_type(explanation)
    if node_mask is not None and kind is MaskType.common_attributes:
        found.append(PartSize(int(node_mask.sum()), node_mask.numel(), "features"))
    elif node_mask is not None:
        kept = node_mask[reached_nodes(explanation, reached, level)]
        at = int(kept.any(1).sum())
        whole = kind is MaskType.object
        found.append(
            PartSize(at, len(kept), "nodes") if whole else PartSize(int(kept.sum()), kept.numel(), "node features", at)
        )
    return tuple(found)


def node_mask_type(explanation: Explanation) -> MaskType | None:
    """What the rows and columns of the node mask are: whole nodes, features of nodes, or features of all nodes.

    A single feature is the whole node. On a graph of one node, features are those of the node.
    """
    mask: Tensor | None = explanation.get("node_mask")
    if mask is None:
        return None
    if mask.dim() < 2 or mask.size(1) == 1:
        return MaskType.common_attributes if mask.size(0) == 1 != _num_nodes(explanation) else MaskType.object
    return MaskType.common_attributes if mask.size(0) == 1 != _num_nodes(explanation) else MaskType.attributes


def hard_mask(explanation: Explanation, name: str) -> Tensor | None:
    """The hard mask of edges [E] or of nodes [N, w], on the CPU; the thresholded soft mask if there is none."""
    given: Tensor | None = explanation.get(f"hard_{name}")
    mask: Tensor | None = explanation.get(name) if given is None else given
    if mask is None:
        return None
    hard = mask.detach().cpu().float().nan_to_num() > DEFAULT_THRESHOLD
    return hard.view(hard.size(0), -1) if name == "node_mask" else hard


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
    partner = reverse_edges(edge_index.cpu()[:, counts], _num_nodes(explanation))
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


# --- verdicts --------------------------------------------------------------------------------------------------------------


def verdict_text(found: Mapping[str, Any], masks: Sequence[str], what: str = "class") -> str:
    """Whether an explanation is necessary and sufficient, in one sentence.

    Args:
        found: ``keeps`` and ``changes`` (the class stays with the explanation alone, and changes without it),
            ``keeps_empty`` and ``p_empty`` (the same, and the class's probability, if nothing is kept), and ``pns``.
        masks: what explains: ``"edges"``, ``"nodes"`` or both.
        what: what is explained: the class, or another outcome.

    >>> verdict_text({"keeps": True, "changes": True}, ["edges"])
    'Necessary and sufficient: with these edges alone the class stays, and without them it changes.'
    >>> verdict_text({"keeps": True, "changes": False, "keeps_empty": True, "p_empty": 0.8}, ["edges"])
    'Only sufficient: the model gives this class without these edges too, and even without any edge (p 0.800).'
    """
    kept = " and ".join(masks)
    if found["keeps"] and found["changes"]:
        return f"Necessary and sufficient: with these {kept} alone the {what} stays, and without them it changes."
    if found["keeps"] and found["keeps_empty"]:
        any_of, p = " or ".join(part.removesuffix("s") for part in masks), probability_text(found["p_empty"])
        return (
            f"Only sufficient: the model gives this {what} without these {kept} too, and even without any {any_of} (p {p})."
        )
    if found["keeps"]:
        return f"Only sufficient: with these {kept} alone the {what} stays, but without them it stays too."
    if found["changes"]:
        return f"Only necessary: without these {kept} the {what} changes, but with them alone it does not stay."
    best = max(found["pns"], found.get("ceiling") or 0.0)
    return (
        f"Neither necessary nor sufficient: with these {kept} alone the {what} does not stay, and without them it does not "
        f"change. The best PNS bound found is {bound_text(best)}."
    )


def deletion_text(explanation: Explanation) -> str:
    """Whether an explanation of edges holds if edges are really deleted, in one sentence; nothing if nobody knows.

    >>> deletion_text(Explanation(intervention="mask", holds_masked=True, holds_removed=False, pns_removed=0.1))
    'It does not hold if edges are really deleted: PNS at least 0.100 then.'
    """
    removed, by = explanation.get("pns_removed"), explanation.get("intervention")
    if removed is None or explanation.get("hard_edge_mask", True) is None:
        return ""
    holds = bool(explanation.get("holds_removed"))
    if by == "mask":
        does = "also holds" if holds and explanation.get("holds_masked") else "holds" if holds else "does not hold"
        return f"It {does} if edges are really deleted: PNS at least {bound_text(removed)} then."
    masked = f"with messages over them masked instead, PNS is at least {bound_text(explanation.pns_masked)}"
    return f"Edges were really deleted, and it {'holds' if holds else 'does not hold'}; {masked}."


ANYWAY = "To see why, explain features instead of edges, or another class as a contrast."
"""What may help where the model gives the class anyway."""


def explanation_words(explanation: Explanation) -> str:
    """What is kept, what the model says with and without it, the verdict, and whether it holds if edges are deleted."""
    one = explanation
    if one.get("verdict") is None:
        return f"{share_words(kept_parts(one))} are kept."
    with_it, without = probability_text(one.p_factual), probability_text(one.p_complement)
    sentences = [
        f"{share_words(kept_parts(one))} are kept: p {with_it} with them alone, {without} without them; PNS at least "
        f"{bound_text(one.pns)}.",
        one.verdict,
    ]
    if one.keeps and not one.changes and one.get("keeps_empty"):
        sentences.append(ANYWAY)
    return " ".join(text for text in (*sentences, deletion_text(one)) if text)
