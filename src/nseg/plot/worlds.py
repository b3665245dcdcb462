"""Probability of the explained class in each world of an explanation (Fig. 8 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.metrics import Judge
from nseg.plot.explained_graph import DEFAULT_THRESHOLD
from nseg.scm import borrowed


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

    The complement is the literal one: it removes exactly the explanation and keeps everything else.

    Args:
        explainer: the explainer that made the explanations, or any explainer of the same model and masks.
        data: the graph, or the graphs, that were explained.
        explanations: one explanation, or several.
    """
    judge = Judge(explainer, data, explanations)
    hard = any(judge.found[0].get(name) is not None for name in ("hard_edge_mask", "hard_node_mask"))
    masks = judge.masks("hard" if hard else DEFAULT_THRESHOLD)
    events = _events(judge.edges, judge.nodes)
    parts = []
    with borrowed(judge.model), torch.no_grad():
        for part, (_, scm) in enumerate(judge.parts):
            edge, node = judge.packed(masks, part)
            parts.append(scm.do(_world_masks(edge, [e for e, _ in events]), _world_masks(node, [n for _, n in events])))
    order = torch.argsort(torch.cat([which for which, _ in judge.parts]))
    probabilities = torch.cat(parts, 1)[:, order].T.tolist()  # [B, K]
    return [[World(_name(e, n), e, n, p) for (e, n), p in zip(events, row, strict=True)] for row in probabilities]


def _events(edges: bool, nodes: bool) -> list[tuple[bool | None, bool | None]]:
    """Whether the explanation's edges and nodes are kept in each world, the factual world first."""
    if edges and nodes:
        return [(True, True), (False, False), (False, True), (True, False)]
    return [(kept if edges else None, kept if nodes else None) for kept in (True, False)]


def _name(*kept: bool | None) -> str:
    return "".join(str(int(k)) for k in kept if k is not None)


def _world_masks(mask: Tensor | None, kept: list[bool | None]) -> Tensor | None:
    """The mask or its complement for each world, [K, ...]."""
    return None if mask is None else torch.stack([mask if k else 1 - mask for k in kept])
