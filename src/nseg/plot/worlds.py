"""Probability of the explained class in each world of an explanation (Fig. 8 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.metrics.fidelity import Evaluator


@dataclass(frozen=True)
class World:
    """One world of a hard explanation.

    Args:
        event: ``"11"`` keeps the explanation; ``"00"``, ``"01"`` and ``"10"`` are the sub-events of the complement (Eq. 11),
            first digit edges, second digit nodes. With only edges or only nodes masked, the events are ``"1"`` and ``"0"``.
        edges: True if the explanation's edges are kept, False if all other edges are; None if edges are not masked.
        nodes: the same for nodes.
        probability: probability of the explained class.
    """

    event: str
    edges: bool | None
    nodes: bool | None
    probability: float


def worlds_of(
    explainer: Explainer, data: Data | Sequence[Data], explanations: Explanation | Sequence[Explanation]
) -> list[list[World]]:
    """The factual world and the complement worlds of each explanation.

    The complement is the literal one: it takes away exactly the explanation and keeps everything else. Edges are masked or
    deleted as they were in the search.

    Args:
        explainer: the explainer that made the explanations, or any explainer of the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: one explanation, or several.
    """
    evaluator = Evaluator(explainer, data, explanations)
    outputs = evaluator.worlds_under(evaluator.default_masks, evaluator.intervention)
    p = evaluator.probability(outputs).T.tolist()  # [B, K]
    kept = _kept(evaluator.edges, evaluator.nodes)
    return [[World(_name(e, n), e, n, value) for (e, n), value in zip(kept, row, strict=True)] for row in p]


def _kept(edges: bool, nodes: bool) -> list[tuple[bool | None, bool | None]]:
    """Whether the explanation's edges and nodes are kept in each world, the factual world first."""
    if edges and nodes:
        return [(True, True), (False, False), (False, True), (True, False)]
    return [(kept if edges else None, kept if nodes else None) for kept in (True, False)]


def _name(*kept: bool | None) -> str:
    return "".join(str(int(k)) for k in kept if k is not None)
