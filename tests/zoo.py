"""Models and graphs that the laws are stated over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer
from torch_geometric.nn import (
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    JumpingKnowledge,
    MessagePassing,
    SAGEConv,
    TAGConv,
    TransformerConv,
    global_add_pool,
    global_mean_pool,
)

from nseg import NSEG

FEATURES, CLASSES = 4, 3


class Stack(nn.Module):
    """Layers with ReLU between them, at node, graph or link level."""

    def __init__(self, convs: list[nn.Module], width: int, level: str = "node", pass_on: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.head = nn.Linear(width, CLASSES)
        self.level, self.pass_on = level, pass_on

    def encode(self, x: Tensor, edge_index: Tensor, extra: dict[str, Any]) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index, **{k: extra[k] for k in self.pass_on}).relu()
        return x

    def forward(self, x: Tensor, edge_index: Tensor, batch: Any = None, **extra: Any) -> Tensor:
        x = self.encode(x, edge_index, extra)
        return self.head(global_add_pool(x, batch) if self.level == "graph" else x)


class EdgeStack(Stack):
    """The same, for models that take weights or attributes of edges by name."""

    def forward(self, x, edge_index, batch=None, edge_weight=None, edge_attr=None):
        return super().forward(x, edge_index, batch, edge_weight=edge_weight, edge_attr=edge_attr)


class Shared(nn.Module):
    """One layer called twice, jumping knowledge, batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = GCNConv(FEATURES, 8), GCNConv(8, 8)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.jump, self.head = JumpingKnowledge("cat"), nn.Linear(24, CLASSES)
        self.norm.running_mean.uniform_(-0.2, 0.2)
        self.norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        one = self.drop(self.norm(self.first(x, edge_index)).relu())
        two = self.again(one, edge_index).relu()
        three = self.again(two, edge_index).relu()
        return self.head(self.jump([one, two, three]))


class Link(nn.Module):
    """Scores pairs of nodes."""

    def __init__(self, classes: int = 1) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(FEATURES, 8), GCNConv(8, 8)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        x = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
        return self.head(torch.cat([x[edge_label_index[0]], x[edge_label_index[1]]], -1))


class EdgeClassifier(nn.Module):
    """Scores every edge of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = SAGEConv(FEATURES, 8), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index).relu()
        return self.head(torch.cat([x[edge_index[0]], x[edge_index[1]]], -1))


class Molecule(nn.Module):
    """A graph classifier with a mean read-out."""

    def __init__(self, conv: Callable[[int, int], nn.Module] = GCNConv, classes: int = CLASSES) -> None:
        super().__init__()
        self.conv1, self.conv2, self.head = conv(FEATURES, 8), conv(8, 8), nn.Linear(8, classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv2(self.conv1(x, edge_index).relu(), edge_index).relu()
        return self.head(global_mean_pool(x, batch))


class NoBatch(Molecule):
    """Takes one graph at a time."""

    def forward(self, x, edge_index):
        return super().forward(x, edge_index)


class DegreeFeature(nn.Module):
    """Uses a degree outside of any layer, so that one more hop is needed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = SAGEConv(FEATURES + 1, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        degree = torch.bincount(edge_index[1], minlength=x.size(0)).to(x.dtype).view(-1, 1)
        return self.head(self.conv(torch.cat([x, degree], 1), edge_index).relu())


class GlobalMean(nn.Module):
    """Mixes all nodes that it is given, so that nothing can be cut out or shared."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GCNConv(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv(x, edge_index).relu()
        return self.head(x - x.mean(0, keepdim=True))


def mlp(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Linear(b, b))


def reversed_sage(a: int, b: int) -> nn.Module:
    """Messages against the edges. (Not a subclass: PyG ignores masks in subclasses of a layer that it has compiled.)"""
    return SAGEConv(a, b, flow="target_to_source")


def two(conv: Callable[[int, int], nn.Module]) -> Stack:
    return Stack([conv(FEATURES, 8), conv(8, 8)], 8)


NODE_MODELS: dict[str, Callable[[], nn.Module]] = {
    "gcn": lambda: two(GCNConv),
    "gcn, no self-loops": lambda: two(lambda a, b: GCNConv(a, b, add_self_loops=False)),
    "gcn, cached": lambda: two(lambda a, b: GCNConv(a, b, cached=True)),
    "gcn, edge weights": lambda: EdgeStack([GCNConv(FEATURES, 8), GCNConv(8, 8)], 8, pass_on=("edge_weight",)),
    "gin": lambda: two(lambda a, b: GINConv(mlp(a, b))),
    "gine": lambda: EdgeStack(
        [GINEConv(mlp(FEATURES, 8), edge_dim=2), GINEConv(mlp(8, 8), edge_dim=2)], 8, pass_on=("edge_attr",)
    ),
    "sage": lambda: two(SAGEConv),
    "graph conv": lambda: two(GraphConv),
    "gat": lambda: Stack([GATConv(FEATURES, 4, heads=2), GATConv(8, 4, heads=2)], 8),
    "gat, edge attributes": lambda: EdgeStack(
        [GATConv(FEATURES, 4, heads=2, edge_dim=2), GATConv(8, 8, edge_dim=2)], 8, pass_on=("edge_attr",)
    ),
    "gatv2": lambda: Stack([GATv2Conv(FEATURES, 4, heads=2), GATv2Conv(8, 8)], 8),
    "transformer": lambda: Stack([TransformerConv(FEATURES, 4, heads=2), TransformerConv(8, 8)], 8),
    "tag": lambda: Stack([TAGConv(FEATURES, 8, K=2), TAGConv(8, 8, K=1)], 8),
    "cheb": lambda: Stack([ChebConv(FEATURES, 8, K=3), ChebConv(8, 8, K=2)], 8),
    "shared layer, jumping knowledge, batch norm, dropout": Shared,
    "target to source": lambda: two(reversed_sage),
    "both directions": lambda: Stack([SAGEConv(FEATURES, 8), reversed_sage(8, 8)], 8),
    "degree as a feature": DegreeFeature,
    "global mean": GlobalMean,
}

NODE_CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
GRAPH_CONFIG = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}
LINK_CONFIG = {"mode": "binary_classification", "task_level": "edge", "return_type": "raw"}


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A model with random weights, large enough that its predictions differ from node to node."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make()
        for parameter in model.parameters():
            parameter.data.mul_(1.5)
    return model.eval()


def graph(nodes: int = 24, edges: int = 40, seed: int = 0, kind: str = "undirected") -> Data:
    """A random graph with everything that a model may ask for."""
    rng = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, edges), generator=rng)
    if kind == "undirected":
        ends = ends[:, ends[0] != ends[1]].unique(dim=1)
        ends = torch.cat([ends, ends.flip(0)], 1).unique(dim=1)
    elif kind == "directed":
        ends = ends[:, ends[0] != ends[1]]
    elif kind == "loops":
        ends = torch.cat([ends, torch.arange(0, nodes, 3).expand(2, -1)], 1)
    elif kind == "all loops":
        ends = torch.cat([torch.arange(nodes).expand(2, -1), ends[:, ends[0] != ends[1]]], 1)
    elif kind == "duplicates":
        ends = ends[:, ends[0] != ends[1]]
        ends = torch.cat([ends, ends[:, ::2], ends[:, ::4]], 1)
    elif kind == "empty":
        ends = ends[:, :0]
    else:
        raise ValueError(kind)
    count = ends.size(1)
    return Data(
        x=torch.randn(nodes, FEATURES, generator=rng),
        edge_index=ends,
        edge_weight=torch.rand(count, generator=rng) + 0.5,
        edge_attr=torch.randn(count, 2, generator=rng),
        y=torch.randint(0, CLASSES, (nodes,), generator=rng),
    )


def arguments(model: nn.Module, data: Data) -> dict[str, Any]:
    return {k: data[k] for k in getattr(model, "pass_on", ())}


def explainer(model: nn.Module, algorithm: Any, config: dict[str, str] = NODE_CONFIG, **masks: Any) -> Explainer:
    masks = masks or {"edge_mask_type": "object"}
    kind = masks.pop("explanation_type", "model")
    return Explainer(model, algorithm, explanation_type=kind, model_config=config, **masks)


class Planted(MessagePassing):
    r"""A model whose PNS is known: the score of a node is a fixed weight times the sum of what its neighbours send.

    With one-hot neighbours, p = sigmoid(bias + sum of w_e m_e) for the masks m_e of its incoming edges.
    """

    def __init__(self, bias: float = -4.0) -> None:
        super().__init__(aggr="sum")
        self.bias = bias

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x).sum(-1) + self.bias


def quick(objective: str = "pns", **settings: Any) -> NSEG:
    """NSEG with one start, without the moves that follow the search, and with messages masked, where quality is not the
    question; tests of deletion and of the default say so."""
    usual = {"intervention": "mask", "starts": (0.0,), "path_points": 0, "rounds": 0, "exact": 0}
    return NSEG(objective, **{**usual, **settings})
