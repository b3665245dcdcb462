"""Measurements of a method turned into scores of elements in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.errors import UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.graphs.batch import InstanceBatch
from nseg.search.parts import EDGES, NODES, EdgePart, MaskParts, Masks


def divide_by_highest(parts: MaskParts, scores: Masks) -> Masks:
    """Divide non-negative scores by the highest score of their instance.

    Edges and nodes share one highest score. Where all scores are 0 they stay 0.
    """
    flat, owner = parts.flatten(scores), parts.owner
    highest = flat.new_zeros(len(parts.instances)).scatter_reduce(0, owner, flat, "amax")
    return parts.unflatten(flat / torch.where(highest > 0, highest, 1)[owner])


def mean_of_endpoints(instances: InstanceBatch, node_score: Tensor) -> Tensor:
    """Score of each edge: the mean over its two end nodes, [N] to [E]."""
    return node_score[instances.edge_index].mean(0)


def mean_of_directions(part: EdgePart, edge_score: Tensor) -> Tensor:
    """Score of each edge element: the mean over its directions, [E] to [n_e]."""
    element, number = part.element, part.owner.numel()
    return edge_score.new_zeros(number).index_add(0, element, edge_score) / element.bincount(minlength=number)


def element_scores(parts: MaskParts, edge_score: Tensor, node_score: Tensor) -> Masks:
    """Scores of the elements that are asked for, from those of all edges [E] and nodes [N]."""
    scores = {EDGES: mean_of_directions(parts.edges, edge_score)} if EDGES in parts else {}
    return Masks(scores | ({NODES: node_score.unsqueeze(1)} if NODES in parts else {}))


def refuse_feature_masks(algorithm: BatchedAlgorithm) -> None:
    """Raise if a method that scores whole nodes is asked for feature masks."""
    kind = algorithm.explainer_config.node_mask_type
    if kind not in (None, MaskType.object):
        raise UnsupportedError(
            f"{type(algorithm).__name__} scores nodes, not their features (got node_mask_type='{kind.value}'). "
            "Use node_mask_type='object' or None."
        )
