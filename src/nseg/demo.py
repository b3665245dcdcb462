"""A trained network and real data that need no download: Zachary's karate club."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import GCNConv


class ClubGCN(nn.Module):
    """Two graph convolutions that tell the communities of the club apart."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(34, 16), GCNConv(16, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Class scores of each member."""
        hidden: Tensor = self.first(x, edge_index).relu()
        scores: Tensor = self.second(hidden, edge_index)
        return scores


def trained_on_karate_club(seed: int = 0, epochs: int = 200) -> tuple[ClubGCN, Data]:
    """A network trained on one labelled member per community, and the club; takes about a second."""
    data = KarateClub()[0]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = ClubGCN()
        optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
        for _ in range(epochs):
            optimiser.zero_grad()
            output = model(data.x, data.edge_index)
            loss = F.cross_entropy(output[data.train_mask], data.y[data.train_mask])
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return model.eval(), data
