"""Every convolution of PyG: numbers are those of the model itself on the graph with edges deleted."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import pytest
import torch
import torch_geometric.nn.conv as layers
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import DeepGCNLayer, GroupAddRev, LightGCN, SGFormer
from zoo import CLASSES, explainer, quick, seeded

from nseg import ModelError, explain_many

WIDTH, NODES = 8, 10


def ring() -> Data:
    """A ring with two chords and everything that a layer may ask for; edges sorted by receiver, as sequences want it."""
    rng = torch.Generator().manual_seed(0)
    ends = torch.stack([torch.arange(NODES), (torch.arange(NODES) + 1) % NODES])
    ends = torch.cat([ends, torch.tensor([[0, 2], [5, 7]])], 1)
    ends = torch.cat([ends, ends.flip(0)], 1)
    ends = ends[:, ends[1].argsort(stable=True)]
    edges = ends.size(1)
    return Data(
        x=torch.randn(NODES, WIDTH, generator=rng),
        edge_index=ends,
        edge_weight=torch.rand(edges, generator=rng) + 0.5,
        edge_attr=torch.rand(edges, 3, generator=rng),
        edge_type=torch.randint(0, 2, (edges,), generator=rng),
        node_type=torch.randint(0, 2, (NODES,), generator=rng),
        pos=torch.randn(NODES, 3, generator=rng),
        normal=nn.functional.normalize(torch.randn(NODES, 3, generator=rng), dim=1),
    )


def mlp(given: int, made: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(given, made), nn.ReLU(), nn.Linear(made, made))


class Around(nn.Module):
    """A layer and a head; the layer gets what its call names."""

    def __init__(self, layer: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.head, self.call, self.names = layer, nn.LazyLinear(CLASSES), call, [*signature(call).parameters][3:]

    def forward(self, x: Tensor, edge_index: Tensor, **given: Tensor) -> Any:
        return self.head(self.call(self.layer, x, edge_index, **{name: given[name] for name in self.names}))


def plain(layer: Any, x: Tensor, edge_index: Tensor) -> Any:
    return layer(x, edge_index)


def weighted(layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Any:
    return layer(x, edge_index, edge_weight)


def attributed(layer: Any, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
    return layer(x, edge_index, edge_attr)


def typed(layer: Any, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Any:
    return layer(x, edge_index, edge_type)


def placed(layer: Any, x: Tensor, edge_index: Tensor, pos: Tensor) -> Any:
    return layer(x, pos, edge_index)


W = WIDTH
LAYERS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "SimpleConv": (layers.SimpleConv, plain),
    "GCNConv": (lambda: layers.GCNConv(W, W), weighted),
    "ChebConv": (lambda: layers.ChebConv(W, W, K=3), plain),
    "SAGEConv": (lambda: layers.SAGEConv(W, W, aggr=["mean", "max", "std"]), plain),
    "GraphConv": (lambda: layers.GraphConv(W, W), weighted),
    "GatedGraphConv": (lambda: layers.GatedGraphConv(W, 2), plain),
    "ResGatedGraphConv": (lambda: layers.ResGatedGraphConv(W, W, edge_dim=3), attributed),
    "GATConv": (lambda: layers.GATConv(W, W, edge_dim=3), attributed),
    "GATv2Conv": (lambda: layers.GATv2Conv(W, W), plain),
    "TransformerConv": (lambda: layers.TransformerConv(W, W, edge_dim=3, beta=True), attributed),
    "AGNNConv": (layers.AGNNConv, plain),
    "TAGConv": (lambda: layers.TAGConv(W, W), plain),
    "GINConv": (lambda: layers.GINConv(mlp(W), train_eps=True), plain),
    "GINEConv": (lambda: layers.GINEConv(mlp(W), edge_dim=3), attributed),
    "ARMAConv": (lambda: layers.ARMAConv(W, W, num_stacks=2, num_layers=2), plain),
    "SGConv": (lambda: layers.SGConv(W, W, K=2), plain),
    "SSGConv": (lambda: layers.SSGConv(W, W, alpha=0.1, K=2), plain),
    "APPNP": (lambda: layers.APPNP(3, 0.1), plain),
    "MFConv": (lambda: layers.MFConv(W, W), plain),
    "RGCNConv": (lambda: layers.RGCNConv(W, W, 2, num_blocks=2), typed),
    "FastRGCNConv": (lambda: layers.FastRGCNConv(W, W, 2, num_bases=2), typed),
    "RGATConv": (lambda: layers.RGATConv(W, W, 2), typed),
    "SignedConv": (
        lambda: layers.SignedConv(W, W, True),
        lambda layer, x, edge_index, edge_type: layer(x, *(edge_index[:, edge_type == sign] for sign in (0, 1))),
    ),
    "DNAConv": (
        lambda: layers.DNAConv(W, heads=2),
        lambda layer, x, edge_index: layer(torch.stack([x, x.tanh()], 1), edge_index),
    ),
    "PointNetConv": (lambda: layers.PointNetConv(mlp(W + 3), mlp(W)), placed),
    "GMMConv": (lambda: layers.GMMConv(W, W, dim=3, kernel_size=2), attributed),
    "NNConv": (lambda: layers.NNConv(W, W, nn.Linear(3, W * W)), attributed),
    "CGConv": (lambda: layers.CGConv(W, dim=3, batch_norm=True), attributed),
    "EdgeConv": (lambda: layers.EdgeConv(mlp(2 * W)), plain),
    "PPFConv": (
        lambda: layers.PPFConv(mlp(W + 4)),
        lambda layer, x, edge_index, pos, normal: layer(x, pos, normal, edge_index),
    ),
    "FeaStConv": (lambda: layers.FeaStConv(W, W, heads=2), plain),
    "PointTransformerConv": (lambda: layers.PointTransformerConv(W, W), placed),
    "HypergraphConv": (lambda: layers.HypergraphConv(W, W), plain),
    "LEConv": (lambda: layers.LEConv(W, W), plain),
    "PNAConv": (
        lambda: layers.PNAConv(W, W, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([0, 0, 6, 4])),
        plain,
    ),
    "ClusterGCNConv": (lambda: layers.ClusterGCNConv(W, W), plain),
    "GENConv": (lambda: layers.GENConv(W, W, learn_t=True, edge_dim=3), attributed),
    "GCN2Conv": (lambda: layers.GCN2Conv(W, 0.1, 0.5, 1), lambda layer, x, edge_index: layer(x, x, edge_index)),
    "WLConvContinuous": (layers.WLConvContinuous, plain),
    "FiLMConv": (lambda: layers.FiLMConv(W, W, 2), typed),
    "SuperGATConv": (lambda: layers.SuperGATConv(W, W), plain),
    "FAConv": (lambda: layers.FAConv(W), lambda layer, x, edge_index: layer(x, x, edge_index)),
    "EGConv": (lambda: layers.EGConv(W, W, aggregators=["mean", "symnorm"], num_heads=4), plain),
    "PDNConv": (lambda: layers.PDNConv(W, W, 3, 4), attributed),
    "GeneralConv": (lambda: layers.GeneralConv(W, W, in_edge_channels=3, attention=True), attributed),
    "HEATConv": (
        lambda: layers.HEATConv(W, W, 2, 2, 4, 3, 4),
        lambda layer, x, edge_index, node_type, edge_type, edge_attr: layer(x, edge_index, node_type, edge_type, edge_attr),
    ),
    "LGConv": (layers.LGConv, plain),
    "PointGNNConv": (lambda: layers.PointGNNConv(mlp(W, 3), mlp(W + 3), mlp(W)), placed),
    "GPSConv": (lambda: layers.GPSConv(W, layers.GINConv(mlp(W)), heads=2), plain),
    "AntiSymmetricConv": (lambda: layers.AntiSymmetricConv(W, num_iters=2), plain),
    "DirGNNConv": (lambda: layers.DirGNNConv(layers.GCNConv(W, W)), plain),
    "MixHopConv": (lambda: layers.MixHopConv(W, W, [0, 1, 2]), plain),
}

ELSEWHERE = {
    "of heterogeneous graphs, in test_hetero.py": {"HGTConv", "HANConv", "HeteroConv"},
    "need a GPU or libraries that PyG does not install": {
        *("CuGraphSAGEConv", "CuGraphGATConv", "CuGraphRGCNConv", "FusedGATConv", "PANConv"),
        *("GravNetConv", "SplineConv", "DynamicEdgeConv", "XConv"),
    },
    "pass no messages of their own": {"MessagePassing", "WLConv"},
    "cannot lose edges: four per node": {"MeshCNNConv"},
}


def test_no_layer_is_forgotten() -> None:
    assert set(layers.__all__) == LAYERS.keys() | set().union(*ELSEWHERE.values())


@pytest.mark.parametrize("name", LAYERS)
def test_numbers_are_those_of_the_layer_on_the_graph_with_edges_deleted(name: str) -> None:
    data, (make, call) = ring(), LAYERS[name]
    edge = {key: data[key] for key in ("edge_weight", "edge_attr", "edge_type")}
    node = {key: data[key] for key in ("node_type", "pos", "normal")}

    def build() -> nn.Module:
        model = Around(make(), call).eval()
        with torch.no_grad():
            model(data.x, data.edge_index, **edge, **node)
        return model

    model = seeded(build)
    for one in explain_many(explainer(model, quick(steps=1, intervention="remove")), data, [3, 0], **edge, **node):
        kept = torch.zeros(data.num_edges, dtype=torch.bool).index_copy(0, one.edge_id, one.hard_edge_mask)
        p = []
        for some in (kept, ~kept):
            with torch.no_grad():
                output = model(data.x, data.edge_index[:, some], **{k: v[some] for k, v in edge.items()}, **node)
            p.append(float(output[one.output_id].softmax(-1)[int(one.target[one.index])]))
        assert one.intervention == "remove"
        assert [one.p_factual, one.p_complement] == pytest.approx(p, abs=1e-4)


class Checkpointed(nn.Module):
    """Computes its layer again on the way back, as deep networks do to save memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first = layers.GCNConv(WIDTH, WIDTH)
        self.second = DeepGCNLayer(layers.GCNConv(WIDTH, CLASSES), block="plain", ckpt_grad=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.second(self.first(x, edge_index), edge_index)


class Frees(nn.Module):
    """Frees its input, as reversible networks do to save memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = GroupAddRev(layers.GCNConv(WIDTH // 2, WIDTH // 2), num_groups=2), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.head(self.layer(x, edge_index))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Checkpointed, "must give gradients .* checkpointing"),
        (Frees, "a forward that frees their memory"),
        (lambda: LightGCN(NODES, WIDTH, 2), "must take x and edge_index, in this order .* Wrap it"),
        (lambda: SGFormer(WIDTH, WIDTH, CLASSES), "missing .*'batch'.* give those that are missing"),
    ],
)
def test_models_that_cannot_be_explained_say_why(make: Callable[[], nn.Module], words: str) -> None:
    data = ring()
    with pytest.raises(ModelError, match=words):
        explain_many(explainer(seeded(make), quick(steps=1)), Data(x=data.x, edge_index=data.edge_index), [0])
