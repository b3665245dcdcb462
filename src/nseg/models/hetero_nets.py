"""Two networks of heterogeneous graphs: a transformer over all types, and a SAGE layer per edge type."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv

from nseg.errors import InputError
from nseg.models.catalogue import HETERO_ARCHITECTURES

WIDTH, HEADS, LAYERS = 32, 2, 2

Metadata = tuple[list[str], list[tuple[str, str, str]]]
"""Node types and edge types, as ``HeteroData.metadata()`` gives them."""


class HGT(nn.Module):
    """A linear layer per node type, two ``HGTConv`` layers over all types, and a linear head on one of them.

    Args:
        metadata: node types and edge types.
        output: node type that is classified.
        num_features: width of the features of every type.
        num_classes: width of the output.
    """

    def __init__(self, metadata: Metadata, output: str, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.output = output
        self.embed = nn.ModuleDict({name: nn.Linear(num_features, WIDTH) for name in metadata[0]})
        self.convs = nn.ModuleList(HGTConv(WIDTH, WIDTH, metadata, HEADS) for _ in range(LAYERS))
        self.classify = nn.Linear(WIDTH, num_classes)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
        """Class scores of the nodes of one type, [N, C]."""
        x_dict = {name: self.embed[name](x).relu() for name, x in x_dict.items()}
        for conv in self.convs:
            x_dict = conv(x_dict, edge_index_dict)
        scores: Tensor = self.classify(x_dict[self.output])
        return scores


class HeteroSAGE(nn.Module):
    """Two ``HeteroConv`` layers, each with a ``SAGEConv`` per edge type, and a linear head on one node type.

    Args:
        metadata, output, num_features, num_classes: as for :class:`HGT`.
    """

    def __init__(self, metadata: Metadata, output: str, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.output = output
        widths = [num_features] + [WIDTH] * LAYERS
        self.convs = nn.ModuleList(
            HeteroConv({kind: SAGEConv((a, a), b) for kind in metadata[1]}) for a, b in pairwise(widths)
        )
        self.classify = nn.Linear(WIDTH, num_classes)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
        """Class scores of the nodes of one type, [N, C]."""
        for conv in self.convs:
            x_dict = {name: x.relu() for name, x in conv(x_dict, edge_index_dict).items()}
        scores: Tensor = self.classify(x_dict[self.output])
        return scores


_CLASSES: dict[str, type[HGT] | type[HeteroSAGE]] = {"hgt": HGT, "sage": HeteroSAGE}


def build_hetero(
    architecture: str, metadata: Metadata, output: str, num_features: int, num_classes: int
) -> HGT | HeteroSAGE:
    """An untrained network of heterogeneous graphs, by the name of its architecture."""
    if architecture not in _CLASSES:
        known = ", ".join(HETERO_ARCHITECTURES)
        raise InputError(f"There is no such network of heterogeneous graphs (got {architecture!r}). Known: {known}.")
    return _CLASSES[architecture](metadata, output, num_features, num_classes)
