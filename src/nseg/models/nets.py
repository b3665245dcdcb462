"""The paper's GCN and GIN: layers of width 16, 32 and 16, ReLU, sum pooling at graph level, a linear head."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, global_add_pool

from nseg.models.catalogue import check_architecture

HIDDEN_WIDTHS = (16, 32, 16)


class _Classifier(nn.Module):
    """Message-passing layers, pooling at graph level, and a linear head.

    Args:
        make_layer: creates a layer from its input and output width.
        num_features: width of the input.
        num_classes: width of the output.
        level: ``"node"`` or ``"graph"``.
        dropout: dropout rate before the head.
    """

    def __init__(
        self, make_layer: Callable[[int, int], nn.Module], num_features: int, num_classes: int, level: str, dropout: float
    ) -> None:
        super().__init__()
        self.convs = nn.ModuleList(make_layer(a, b) for a, b in pairwise((num_features, *HIDDEN_WIDTHS)))
        self.classify = nn.Linear(HIDDEN_WIDTHS[-1], num_classes)
        self.level, self.dropout = level, dropout

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Class scores, [N, C] at node level or [B, C] at graph level."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        if self.level == "graph":
            x = global_add_pool(x, batch)
        scores: Tensor = self.classify(F.dropout(x, self.dropout, self.training))
        return scores


class GCN(_Classifier):
    """Three graph convolutions without self-loops, as in the paper."""

    def __init__(self, num_features: int, num_classes: int, level: str = "node", dropout: float = 0.0) -> None:
        super().__init__(_gcn_layer, num_features, num_classes, level, dropout)


class GIN(_Classifier):
    """Three graph isomorphism layers, each with a two-layer perceptron."""

    def __init__(self, num_features: int, num_classes: int, level: str = "node", dropout: float = 0.0) -> None:
        super().__init__(_gin_layer, num_features, num_classes, level, dropout)


def _gcn_layer(width_in: int, width_out: int) -> nn.Module:
    layer: nn.Module = GCNConv(width_in, width_out, add_self_loops=False)
    return layer


def _gin_layer(width_in: int, width_out: int) -> nn.Module:
    layer: nn.Module = GINConv(nn.Sequential(nn.Linear(width_in, width_out), nn.ReLU(), nn.Linear(width_out, width_out)))
    return layer


_CLASSES: dict[str, type[GCN] | type[GIN]] = {"gcn": GCN, "gin": GIN}


def build(architecture: str, num_features: int, num_classes: int, level: str, dropout: float = 0.0) -> GCN | GIN:
    """An untrained network, by the name of its architecture."""
    check_architecture(architecture)
    return _CLASSES[architecture](num_features, num_classes, level, dropout)
