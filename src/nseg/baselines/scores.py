"""From what a method measures to scores in [0, 1]."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.explain.config import MaskType

from nseg.errors import UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.graphs.batch import InstanceBatch
from nseg.search.parts import EDGES, NODES, EdgePart, MaskParts, Masks


def scaled(parts: MaskParts, scores: Masks) -> Masks:
    """Non-negative scores divided by the highest of their instance, edges and nodes together; 0 where all are 0."""
    value, owner = parts.flatten(scores), parts.owner
    top = value.new_zeros(len(parts.instances)).scatter_reduce(0, owner, value, "amax")
    return parts.unflatten(value / torch.where(top > 0, top, 1)[owner])


def mean_of_ends(instances: InstanceBatch, node: Tensor) -> Tensor:
    """Score of each edge from those of its two ends, [N] to [E]."""
    return node[instances.edge_index].mean(0)


def mean_of_directions(part: EdgePart, edge: Tensor) -> Tensor:
    """Score of each edge element: the mean over the directions that share it, [E] to [n_e]."""
    element, number = part.element, part.owner.numel()
    return edge.new_zeros(number).index_add(0, element, edge) / element.bincount(minlength=number)


def on_elements(parts: MaskParts, edge: Tensor, node: Tensor) -> Masks:
    """Scores of edges [E] and nodes [N] as those of the elements."""
    scores = {EDGES: mean_of_directions(parts.edges, edge)} if EDGES in parts else {}
    return Masks(scores | ({NODES: node.unsqueeze(1)} if NODES in parts else {}))


def refuse_features(algorithm: BatchedAlgorithm) -> None:
    """Raise if a method that scores nodes as a whole is asked for their features."""
    kind = algorithm.explainer_config.node_mask_type
    if kind not in (None, MaskType.object):
        raise UnsupportedError(
            f"{type(algorithm).__name__} scores nodes, not their features (got node_mask_type='{kind.value}'). "
            "Use node_mask_type='object' or None."
        )
