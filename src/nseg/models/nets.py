"""GCN and GIN as in the paper: three layers of 16, 32 and 16, ReLU, a linear head, a sum over the nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, global_add_pool

from nseg.models.catalogue import check_architecture

HIDDEN = (16, 32, 16)


class _Net(nn.Module):
    """Layers, a read-out if graphs are classified, a head.

    Args:
        conv: makes a layer from its width before and after.
        num_features: width of the input.
        num_classes: width of the output.
        level: ``"node"`` or ``"graph"``.
        dropout: before the head, in training.
    """

    def __init__(
        self, conv: Callable[[int, int], nn.Module], num_features: int, num_classes: int, level: str, dropout: float
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(conv(a, b) for a, b in pairwise((num_features, *HIDDEN)))
        self.classify = nn.Linear(HIDDEN[-1], num_classes)
        self.level, self.dropout = level, dropout

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Scores of the classes, [N, C] or [graphs, C]."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        if self.level == "graph":
            x = global_add_pool(x, batch)
        scores: Tensor = self.classify(F.dropout(x, self.dropout, self.training))
        return scores


class GCN(_Net):
    """Graph convolutions without self-loops, as the paper's networks have them."""

    def __init__(self, num_features: int, num_classes: int, level: str = "node", dropout: float = 0.0) -> None:
        super().__init__(_gcn_layer, num_features, num_classes, level, dropout)


class GIN(_Net):
    """Isomorphism layers, each with two linear maps."""

    def __init__(self, num_features: int, num_classes: int, level: str = "node", dropout: float = 0.0) -> None:
        super().__init__(_gin_layer, num_features, num_classes, level, dropout)


def _gcn_layer(before: int, after: int) -> nn.Module:
    layer: nn.Module = GCNConv(before, after, add_self_loops=False)
    return layer


def _gin_layer(before: int, after: int) -> nn.Module:
    layer: nn.Module = GINConv(nn.Sequential(nn.Linear(before, after), nn.ReLU(), nn.Linear(after, after)))
    return layer


_CLASSES: dict[str, type[GCN] | type[GIN]] = {"gcn": GCN, "gin": GIN}


def build(architecture: str, num_features: int, num_classes: int, level: str, dropout: float = 0.0) -> GCN | GIN:
    """A network by the name of its architecture."""
    check_architecture(architecture)
    return _CLASSES[architecture](num_features, num_classes, level, dropout)
