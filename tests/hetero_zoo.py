"""Small heterogeneous graphs and models of every kind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, GCNConv, GraphConv, HANConv, HeteroConv, HGTConv, SAGEConv, to_hetero
from torch_geometric.utils import coalesce

WIDTHS = {"paper": 6, "author": 4}
NODE = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
PAPERS, AUTHORS = 7, 9
CITES, BY, WROTE = ("paper", "cites", "paper"), ("paper", "rev_wrote", "author"), ("author", "wrote", "paper")


def hetero_graph(seed: int = 0, papers: int = PAPERS, authors: int = AUTHORS) -> HeteroData:
    """Papers that cite papers, and authors that wrote them."""
    rng = torch.Generator().manual_seed(seed)
    data = HeteroData()
    data["paper"].x = torch.rand(papers, WIDTHS["paper"], generator=rng)
    data["author"].x = torch.rand(authors, WIDTHS["author"], generator=rng)

    def edges(senders: int, receivers: int, number: int) -> Tensor:
        ends = torch.rand(2, number, generator=rng) * torch.tensor([[senders], [receivers]])
        found: Tensor = coalesce(ends.long())
        return found

    data[CITES].edge_index = edges(papers, papers, 9)
    data[WROTE].edge_index = edges(authors, papers, 11)
    data[BY].edge_index = data[WROTE].edge_index.flip(0)
    return data


class SAGE(nn.Module):
    """Two layers, for ``to_hetero``."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 8), SAGEConv((-1, -1), 8)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        found: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return found


def _mixed() -> HeteroConv:
    convs = {CITES: GCNConv(-1, 8), BY: SAGEConv((-1, -1), 8), WROTE: GATConv((-1, -1), 8, add_self_loops=False)}
    return HeteroConv(convs)


def _attention() -> HeteroConv:
    convs = {CITES: GATConv(-1, 8), BY: GraphConv((-1, -1), 8), WROTE: GraphConv((-1, -1), 8, aggr="max")}
    return HeteroConv(convs, aggr="mean")


class HeteroNet(nn.Module):
    """Layers of dictionaries and a linear head on papers."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(8, 3)

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        for layer in self.layers:
            x_dict = {name: x.relu() for name, x in layer(x_dict, edge_index_dict).items()}
        scores: Tensor = 3 * self.head(x_dict["paper"])
        return scores


def make_net(name: str, seed: int = 0) -> HeteroNet:
    """A network with random weights, by name."""
    torch.manual_seed(seed)
    data = hetero_graph()
    makers = {
        "to_hetero": lambda: [to_hetero(SAGE(), data.metadata())],
        "mixed": lambda: [_mixed(), _mixed()],
        "attention": lambda: [_attention(), _attention()],
        "hgt": lambda: [HGTConv(WIDTHS, 8, data.metadata(), 2), HGTConv(8, 8, data.metadata(), 2)],
        "han": lambda: [HANConv(WIDTHS, 8, data.metadata(), 2)],
    }
    model = HeteroNet(makers[name]()).eval()
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)  # lazy layers get their weights
    return model


NETS = ("to_hetero", "mixed", "attention", "hgt", "han")
