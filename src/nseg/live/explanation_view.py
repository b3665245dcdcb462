"""Explanations as JSON data for the page: what they keep, by the caller's numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.live.edits import Pair, as_pair
from nseg.wording import explanation_sentences, hard_mask, node_mask_type


def explanation_view(found: Explanation) -> dict[str, Any]:
    """An explanation as JSON data: what it keeps, by the caller's numbers, its numbers and its sentence."""
    numbers = {name: float(found[name]) for name in ("pns", "p_factual", "p_complement") if found.get(name) is not None}
    kept = [list(pair) for pair in kept_pairs(found)]
    return {"kept": kept, **kept_features(found), **numbers, "words": " ".join(explanation_sentences(found))}


def kept_pairs(explanation: Explanation) -> list[Pair]:
    """Pairs of nodes of the caller's graph that an explanation keeps an edge between; flat if it has types."""
    hard = hard_mask(explanation, "edge_mask")
    if hard is None:
        return []
    kept = (hard & explanation.reached).cpu()
    ends = explanation.node_id.cpu()[explanation.edge_index.cpu()[:, kept]].T.tolist()
    types = getattr(explanation.get("names"), "types", None)
    if types is None:
        return sorted({as_pair(a, b) for a, b in ends})
    kinds = [types.kind_of_edge(number) for number in explanation.edge_id.cpu()[kept].tolist()]
    return sorted({as_pair(a, b, kind) for (a, b), kind in zip(ends, kinds, strict=True)})


def kept_features(explanation: Explanation) -> dict[str, Any]:
    """Nodes of the caller's graph that an explanation keeps, and single features [node, feature]; None if not masked."""
    hard, kind = hard_mask(explanation, "node_mask"), node_mask_type(explanation)
    if hard is None:
        return {"kept_nodes": None, "kept_features": None}
    if kind is MaskType.object:
        return {"kept_nodes": explanation.node_id[hard.any(1).cpu()].tolist(), "kept_features": None}
    types = getattr(explanation.get("names"), "types", None)
    if hard.size(0) != explanation.node_id.numel():  # a row for all nodes, or for all of a type
        rows = [0 if types is None else types.type_of_node(n) for n in explanation.node_id.tolist()]
        hard = hard[rows]
    chosen = (hard.cpu() & (explanation.x.cpu() != 0)).nonzero()
    places = torch.stack([explanation.node_id.cpu()[chosen[:, 0]], chosen[:, 1]], 1)
    return {"kept_nodes": sorted(set(places[:, 0].tolist())), "kept_features": places.tolist()}
