"""Explained predictions: what each explanation keeps, and the graph around it, as graphs with labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain import Explanation, HeteroExplanation
from torch_geometric.explain.config import MaskType

from nseg.explanation import row_numbers, target_nodes
from nseg.pattern.typed_graph import ANY, NO_HOPS, Condition, Edge, NodeLabel, TypedGraph
from nseg.pattern.vocabulary import Vocabulary, meets, number_per_entry
from nseg.wording import hard_mask, node_mask_type, reached_edges


class KeptPart(NamedTuple):
    """One connected part of what an explanation keeps.

    Args:
        graph: the part.
        nodes: position of each of its nodes in the explanation's graph; none for features of all nodes.
    """

    graph: TypedGraph
    nodes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ExplainedPrediction:
    """An explanation with its graph, read as labels.

    Args:
        explanation: the explanation, with its graph, on the CPU.
        level: ``"node"``, ``"edge"`` or ``"graph"``: the kind of output.
        vocabulary: how features become labels.
        directed: whether the direction of edges matters.
        attributes, edge_type, node_type: one-hot attributes or numbers of the explanation's edges, and types of its nodes.
        true_class: the true class, if known.
        node_names: names of nodes that are told apart from others of their kind, ``""`` for the others; or none at all.
        by_type: of a heterogeneous graph, the explanation by type, of which ``explanation`` is the flat one.
    """

    explanation: Explanation
    level: str
    vocabulary: Vocabulary
    directed: bool
    attributes: Tensor | None = None
    edge_type: Tensor | None = None
    node_type: Tensor | None = None
    true_class: int | None = None
    node_names: Sequence[str] = ()
    by_type: HeteroExplanation | None = None

    @property
    def number(self) -> int:
        """Number of the explained output; in a heterogeneous graph, among those of its type."""
        number, types = int(self.explanation.output_id), getattr(self.explanation.get("names"), "types", None)
        return number if types is None or types.output is None else int(types.node(number)[1])

    @cached_property
    def target_class(self) -> int:
        """The explained class."""
        one = self.explanation
        target = torch.as_tensor(one.target).flatten()
        index = one.get("index")
        return int(target[0 if index is None or self.level == "graph" else int(row_numbers(index)[0])])

    @property
    def pns(self) -> float | None:
        """The bound of PNS, if known."""
        value = self.explanation.get("pns")
        return None if value is None else float(value)

    @property
    def right(self) -> bool | None:
        """Whether the prediction is correct, if known."""
        return None if self.true_class is None else self.true_class == self.target_class

    # --- the graph -------------------------------------------------------------------------------------------------------

    @cached_property
    def targets(self) -> frozenset[int]:
        """Positions of the explained nodes."""
        return frozenset(target_nodes(self.explanation, self.level).tolist())

    @cached_property
    def _ends(self) -> Tensor:
        """Ends of each edge as they are in the typed graph, [2, E]."""
        ends: Tensor = self.explanation.edge_index
        return ends if self.directed else ends.sort(0).values

    @cached_property
    def plain(self) -> TypedGraph:
        """All edges that can matter, with the kinds of nodes, but without conditions."""
        one = self.explanation
        kinds = self.vocabulary.node_kinds(one.x, number_per_entry(self.node_type, one.x.size(0)))
        labels = self.vocabulary.edge_labels(self.attributes, number_per_entry(self.edge_type, one.edge_index.size(1)))
        edges: dict[Edge, str] = {}
        reached = reached_edges(one).nonzero().flatten()
        for (a, b), number in zip(self._ends[:, reached].T.tolist(), reached.tolist(), strict=True):
            edges.setdefault((a, b), "" if labels is None else labels[number])
        bare = TypedGraph(tuple(NodeLabel(kind) for kind in kinds), edges, self.directed)
        hops = bare.distances(self.targets)
        names = self.node_names or [""] * len(kinds)
        nodes = [NodeLabel(kind, hops=hops[n], target=n in self.targets, name=names[n]) for n, kind in enumerate(kinds)]
        return TypedGraph(tuple(nodes), edges, self.directed)

    def host(self, conditions: Iterable[Condition]) -> TypedGraph:
        """All edges that can matter; nodes have those of the conditions that they meet."""
        met = [(one, meets(one, self.explanation.x).tolist()) for one in conditions]
        if not met:
            return self.plain
        nodes = [
            label._replace(conditions=frozenset(one for one, where in met if where[n]))
            for n, label in enumerate(self.plain.nodes)
        ]
        return TypedGraph(tuple(nodes), self.plain.edges, self.directed)

    def edge_mask(self, edges: Iterable[Edge]) -> Tensor:
        """Whether each edge of the explanation's graph, in either direction, is among some edges, [E]."""
        chosen = torch.tensor(sorted(edges), dtype=torch.long).view(-1, 2)
        base = max(self.explanation.x.size(0), 1)
        return torch.isin(self._ends[0] * base + self._ends[1], chosen[:, 0] * base + chosen[:, 1])

    # --- what is kept ----------------------------------------------------------------------------------------------------

    @cached_property
    def kept(self) -> list[KeptPart]:
        """Connected parts of what the explanation keeps; nodes of parts without the target know their distance to it."""
        one = self.explanation
        kind, mask = node_mask_type(one), hard_mask(one, "node_mask")
        parts: list[KeptPart] = []
        if kind is MaskType.common_attributes and mask is not None:
            for feature in mask[0].nonzero().flatten().tolist():
                label = NodeLabel(ANY, frozenset({Condition(feature, "!=", 0.0)}), NO_HOPS, None)
                parts.append(KeptPart(TypedGraph((label,), {}, self.directed), ()))
            mask = None
        labels = self._kept_labels(mask, kind)
        edges = self._kept_edges(labels if mask is not None and kind is MaskType.object else {})
        nodes = sorted({n for edge in edges for n in edge} | (labels.keys() if mask is not None else set()))
        drawn = TypedGraph(
            tuple(labels.get(n, self.plain.nodes[n]._replace(kind=ANY)) for n in range(len(self.plain.nodes))),
            self.plain.edges,
            self.directed,
        )
        graph = drawn.part(nodes, edges)
        for members in graph.components():
            inside = set(members)
            some = graph.part(members, [edge for edge in graph.edges if edge[0] in inside])
            parts.append(KeptPart(_without_hops(some), tuple(nodes[n] for n in members)))
        return parts

    def _kept_labels(self, mask: Tensor | None, kind: MaskType | None) -> dict[int, NodeLabel]:
        """Labels of the nodes whose features the explanation keeps; of all nodes if features are not masked."""
        everything = dict(enumerate(self.plain.nodes))
        if mask is None:
            return everything
        if kind is MaskType.object:
            return {n: everything[n] for n in mask.any(1).nonzero().flatten().tolist()}
        found: dict[int, NodeLabel] = {}
        for n, feature in (mask & (self.explanation.x != 0)).nonzero().tolist():  # a mask cannot change a zero
            label = found.get(n, everything[n] if self.vocabulary.one_hot else everything[n]._replace(kind=ANY))
            if not self.vocabulary.one_hot:
                one = self.vocabulary.condition(feature, float(self.explanation.x[n, feature]))
                label = label._replace(conditions=label.conditions | {one})
            found[n] = label
        return found

    def _kept_edges(self, nodes: dict[int, NodeLabel]) -> list[Edge]:
        """Edges that the mask keeps; without a mask of edges, those between kept nodes."""
        mask = hard_mask(self.explanation, "edge_mask")
        if mask is None:
            return [edge for edge in self.plain.edges if edge[0] in nodes and edge[1] in nodes]
        kept = self._ends[:, mask & reached_edges(self.explanation)]
        return list(dict.fromkeys((a, b) for a, b in kept.T.tolist()))


def _without_hops(part: TypedGraph) -> TypedGraph:
    """A part in which the distance to the target counts only if the target is not in it."""
    if any(node.target for node in part.nodes):
        return TypedGraph(tuple(node._replace(hops=NO_HOPS) for node in part.nodes), part.edges, part.directed)
    return part


def all_conditions(predictions: Sequence[ExplainedPrediction]) -> list[Condition]:
    """Every condition in what some explanations keep, sorted."""
    kept = (part for one in predictions for part in one.kept)
    return sorted({condition for part in kept for node in part.graph.nodes for condition in node.conditions})
