"""Trivial, gradient and leave-one-out explainers: closed forms, and the same done plainly on the whole graph."""

from __future__ import annotations

import math
from functools import partial

import networkx as nx
import pytest
import torch
import torch.nn.functional as F
from scipy.special import roots_legendre
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.explain.config import MaskType, ModelConfig
from torch_geometric.nn import MessagePassing, global_mean_pool
from zoo import (
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_CONFIG,
    NODE_MODELS,
    Link,
    Molecule,
    Planted,
    arguments,
    explainer,
    graph,
    seeded,
)

from nseg import SettingsError, explain_many
from nseg.baselines.gradients import GradCAM, GuidedBackprop, IntegratedGradients, Saliency, attributions
from nseg.baselines.occlusion import Occlusion
from nseg.baselines.trivial import All, Nothing, PageRank, Random
from nseg.graphs.inputs import ModelInputs
from nseg.model.borrow import borrow
from nseg.model.outcomes import outcome_of
from nseg.model.traced_graph import TracedGraph
from nseg.search.parts import MaskParts

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
EDGES = {"edge_mask_type": "object"}
NODES = {"node_mask_type": "object"}
BOTH = {**EDGES, **NODES}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def star(weights: list[float]) -> tuple[Tensor, Tensor]:
    """A node 0 with one incoming edge from each of the others, which send ``weights``."""
    count = len(weights)
    x = torch.tensor([0.0, *weights]).unsqueeze(1)
    return x, torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.long)])


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


# --- trivial ---------------------------------------------------------------------------------------------------------------


def test_all_keeps_all_and_nothing_nothing() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    with torch.no_grad():
        p = model(data.x, data.edge_index).softmax(-1).amax(-1)
        empty = model(data.x * 0, data.edge_index[:, :0]).softmax(-1)
    everything = explain_many(explainer(model, All(), **BOTH), data, [2, 5])
    nothing = explain_many(explainer(model, Nothing(), **BOTH), data, [2, 5])
    for kept, left in zip(everything, nothing, strict=True):
        row = kept.output_id
        assert torch.equal(kept.hard_edge_mask, kept.reached)
        assert torch.equal(kept.edge_mask, kept.reached.float())
        assert kept.p_factual == pytest.approx(float(p[row]), abs=1e-5)
        assert not left.hard_edge_mask.any()
        assert not left.hard_node_mask.any()
        assert not left.edge_mask.any()
        assert left.p_factual == pytest.approx(float(empty[row, kept.target[kept.index]]), abs=1e-5)


def test_random_scores_are_uniform_differ_by_seed_and_keep_a_half() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=100, edges=2000)
    found = explain_many(explainer(model, Random(seed=1)), data, range(5))
    score = torch.cat([one.edge_mask[one.reached] for one in found]).sort().values
    grid = (torch.arange(len(score)) + 0.5) / len(score)
    assert len(score) > 5000
    assert float((score - grid).abs().max()) < 1.95 / math.sqrt(len(score))  # Kolmogorov-Smirnov at 0.1 %
    for one in found:
        assert torch.equal(one.hard_edge_mask, one.edge_mask > 0.5)
    other = explain_many(explainer(model, Random(seed=2)), data, range(5))
    both = torch.stack([torch.cat([one.edge_mask for one in some]) for some in (found, other)])
    assert abs(float(both[:, both[0] > 0].corrcoef()[0, 1])) < 0.05


# --- PageRank --------------------------------------------------------------------------------------------------------------


def by_networkx(edge_index: Tensor, seeds: dict[int, float] | None, nodes: int) -> tuple[Tensor, Tensor]:
    """Flow over edges and rank of nodes by networkx, on the graph with all edges turned round."""
    backwards = nx.MultiDiGraph()
    backwards.add_nodes_from(range(nodes))
    backwards.add_edges_from(edge_index.flip(0).t().tolist())
    rank = nx.pagerank(backwards, alpha=0.85, personalization=seeds, tol=1e-12, max_iter=1000)
    value = torch.tensor([rank[n] for n in range(nodes)], dtype=torch.double)
    return (value / edge_index[1].bincount(minlength=nodes).clamp_min(1))[edge_index[1]], value


@pytest.mark.parametrize("kind", ["undirected", "directed", "duplicates"])
def test_page_rank_of_nodes_is_networkx_on_the_computation_graph(kind: str) -> None:
    model, data = seeded(NODE_MODELS["sage"]), graph(kind=kind)
    for one in explain_many(explainer(model, PageRank(), **BOTH), data, range(8)):
        near = one.reached.nonzero().flatten()
        flow, rank = by_networkx(one.edge_index[:, near], {int(one.index): 1.0}, one.num_nodes)
        top = max(float(rank.max()), float(flow.max()) if near.numel() else 0.0)
        torch.testing.assert_close(one.edge_mask[near].double(), flow / top, **CLOSE)
        torch.testing.assert_close(one.node_mask.squeeze(1).double(), rank / top, **CLOSE)
        edges = explain_many(explainer(model, PageRank()), data, [one.output_id])[0].edge_mask
        if near.numel():
            assert float(edges.max()) == 1.0
            torch.testing.assert_close(edges[near].double(), flow / flow.max(), **CLOSE)


def test_page_rank_of_graphs_and_links_starts_at_all_nodes_and_at_both_ends() -> None:
    some = [graph(nodes=6 + s, edges=9, seed=s, kind="directed") for s in range(3)]
    for one in explain_many(explainer(seeded(Molecule), PageRank(), GRAPH_CONFIG), some):
        flow, _ = by_networkx(one.edge_index, None, one.num_nodes)
        torch.testing.assert_close(one.edge_mask.double(), flow / flow.max(), **CLOSE)
    data, pairs = graph(kind="directed"), torch.tensor([[0, 3, 7], [2, 9, 7]])
    for one in explain_many(explainer(seeded(Link), PageRank(), LINK_CONFIG), data, edge_label_index=pairs):
        seeds: dict[int, float] = {}
        for end in one.edge_label_index.flatten().tolist():
            seeds[end] = seeds.get(end, 0.0) + 0.5
        near = one.reached.nonzero().flatten()
        flow, _ = by_networkx(one.edge_index[:, near], seeds, one.num_nodes)
        torch.testing.assert_close(one.edge_mask[near].double(), flow / flow.max(), **CLOSE)


def test_page_rank_follows_the_messages_against_the_edges() -> None:
    """Edges 1 <- 0 <- 2 pass messages backwards, so node 2 hears of 1 through 0 and the walk from 2 crosses both."""
    model = seeded(NODE_MODELS["target to source"])
    x, edge_index = graph(nodes=3).x, torch.tensor([[2, 0], [0, 1]])
    found = explainer(model, PageRank())(x, edge_index, index=2)
    assert found.edge_mask.tolist() == pytest.approx([1.0, 0.85])
    assert not explainer(model, PageRank())(x, edge_index, index=1).edge_mask.any()


# --- gradients -------------------------------------------------------------------------------------------------------------


def plain_gradient(model: nn.Module, data: Data, row: int, kinds: dict, at: float = 1.0) -> tuple[Tensor, Tensor]:
    """Gradient of the class score on the whole graph under PyG's own masks, where all weights are ``at``."""
    kwargs = arguments(model, data)
    target = int(model(data.x, data.edge_index, **kwargs)[row].argmax())
    edge = torch.full((data.num_edges,), at if "edge_mask_type" in kinds else 1.0, requires_grad=True)
    node = torch.full((data.num_nodes, 1), at if "node_mask_type" in kinds else 1.0, requires_grad=True)
    set_masks(model, edge, data.edge_index, apply_sigmoid=False)
    score = model(data.x * node, data.edge_index, **kwargs)[row, target]
    clear_masks(model)
    found = torch.autograd.grad(score, (edge, node))
    return found[0], found[1]


def in_unit(edge: Tensor, node: Tensor, kinds: dict) -> tuple[Tensor | None, Tensor | None]:
    used = [edge if "edge_mask_type" in kinds else None, node if "node_mask_type" in kinds else None]
    top = max(float(one.max()) for one in used if one is not None)
    return tuple(None if one is None else one / top for one in used)


def assert_agree(found, edge: Tensor | None, node: Tensor | None) -> None:
    for mask, expected in ((found.get("edge_mask"), edge), (found.get("node_mask"), node)):
        assert (mask is None) == (expected is None)
        if mask is not None:
            torch.testing.assert_close(mask, expected, **CLOSE)


@pytest.mark.parametrize("kinds", [EDGES, NODES, BOTH], ids=["e", "f", "ef"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_saliency_is_plain_autograd_on_the_whole_graph(name: str, kinds: dict) -> None:
    model, data = seeded(NODE_MODELS[name]), graph()
    for row in (0, 5):
        edge, node = plain_gradient(model, data, row, kinds)
        found = explainer(model, Saliency(), **kinds)(data.x, data.edge_index, index=row)
        assert float((edge.abs() if kinds is not NODES else node.abs()).max()) > 0, "there is a gradient to agree on"
        assert_agree(found, *in_unit(edge.abs(), node.abs(), kinds))


def test_saliency_of_nodes_and_features_is_gradient_times_input() -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph()
    x = data.x.clone().requires_grad_()
    output = model(x, data.edge_index)[5]
    share = torch.autograd.grad(output[output.argmax()], x)[0] * data.x
    for kind, expected in (
        ("object", share.sum(1, keepdim=True)),
        ("attributes", share),
        ("common_attributes", share.sum(0, keepdim=True)),
    ):
        found = explainer(model, Saliency(), node_mask_type=kind)(data.x, data.edge_index, index=5)
        torch.testing.assert_close(found.node_mask, expected.abs() / expected.abs().max(), **CLOSE)


@pytest.mark.parametrize("kinds", [EDGES, NODES, BOTH], ids=["e", "f", "ef"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_integrated_gradients_are_plain_autograd_along_the_path(name: str, kinds: dict) -> None:
    model, data = seeded(NODE_MODELS[name]), graph()
    for row in (0, 5):
        edge, node = torch.zeros(data.num_edges), torch.zeros(data.num_nodes, 1)
        for point, weight in zip(*roots_legendre(7), strict=True):
            g = plain_gradient(model, data, row, kinds, (point + 1) / 2)
            edge, node = edge + weight * g[0], node + weight * g[1]
        found = explainer(model, IntegratedGradients(steps=7), **kinds)(data.x, data.edge_index, index=row)
        assert_agree(found, *in_unit(edge.clamp_min(0), node.clamp_min(0), kinds))


class Smooth(nn.Module):
    """A network without kinks, whose integral a few points give."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = NODE_MODELS["gcn"]()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for conv in self.inner.convs:
            x = conv(x, edge_index).tanh()
        return self.inner.head(x)


@pytest.mark.parametrize("nodes", [None, MaskType.object, MaskType.attributes, MaskType.common_attributes])
@pytest.mark.parametrize(("make", "steps", "error"), [(Smooth, 20, 1e-4), (NODE_MODELS["gin"], 400, 1e-2)])
def test_attributions_sum_to_what_everything_adds_to_nothing(make, steps: int, error: float, nodes) -> None:
    model, data = seeded(make), graph()
    rows = torch.tensor([0, 3, 5, 9])
    with borrow(model):
        inputs = ModelInputs(data.x, data.edge_index, {})
        traced = TracedGraph(model, outcome_of(ModelConfig(**NODE_CONFIG)), inputs, True, True)
        ((_, causal),) = traced.causal_models(traced.cuts(rows, torch.arange(4), traced.check_targets(None, rows)))
        parts = MaskParts.of(causal.instances, True, nodes)
        total = parts.size(attributions(causal, parts, steps))
        with torch.no_grad():
            ends = [parts.to_weights(parts.full(value, torch.float)) for value in (0.0, 1.0)]
            low, high = causal.score({name: torch.stack([one[name] for one in ends]) for name in ends[0]})
    assert float((high - low).abs().max()) > 0.1
    torch.testing.assert_close(total, high - low, rtol=error, atol=error)


def test_integrated_gradients_of_a_linear_score_are_its_terms() -> None:
    """f = -6 + 6 m_0 + 3 m_1 - 3 m_2, so the attributions are 6, 3 and -3, the last of which speaks against the class."""
    x, edge_index = star([6.0, 3.0, -3.0, 0.0])
    for algorithm, expected in ((IntegratedGradients(), [1.0, 0.5, 0.0, 0.0]), (Saliency(), [1.0, 0.5, 0.5, 0.0])):
        found = explainer(Planted(-6.0 + 4), algorithm, BINARY)(x, edge_index, index=0)
        assert found.edge_mask.tolist() == pytest.approx(expected)
    against = explainer(Planted(-9.0), IntegratedGradients(), BINARY)(x, edge_index, index=0)  # class 0: the sign turns
    assert against.edge_mask.tolist() == pytest.approx([0.0, 0.0, 1.0, 0.0])


def test_the_gradient_is_of_what_the_model_returns() -> None:
    """Of the probability if it returns that, of its logarithm if that: both differ from the raw score's."""

    class Ends(nn.Module):
        def __init__(self, last: nn.Module) -> None:
            super().__init__()
            self.inner, self.last = seeded(NODE_MODELS["gcn"]), last

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.last(self.inner(x, edge_index))

    data = graph()
    for kind, last in (("probs", nn.Softmax(-1)), ("log_probs", nn.LogSoftmax(-1))):
        model = Ends(last)
        found = explainer(model, Saliency(), {**NODE_CONFIG, "return_type": kind})(data.x, data.edge_index, index=5)
        edge, _ = plain_gradient(model, data, 5, EDGES)
        torch.testing.assert_close(found.edge_mask, edge.abs() / edge.abs().max(), **CLOSE)


# --- guided backpropagation ------------------------------------------------------------------------------------------------

RELUS = {
    "module": nn.ReLU(),
    "module, in place": nn.ReLU(inplace=True),
    "F.relu": F.relu,
    "F.relu, in place": partial(F.relu, inplace=True),
    "F.relu, in place by position": lambda z: F.relu(z, True),
    "F.relu, by name": lambda z: F.relu(input=z),
    "F.relu_": F.relu_,
    "torch.relu": torch.relu,
    "torch.relu_": torch.relu_,
    "method": lambda z: z.relu(),
    "method, in place": lambda z: z.relu_(),
}


class TwoLayers(MessagePassing):
    """With weights m of two edges: h = relu(2 m_0 + m_1, m_0 + 3 m_1, -m_0), and the score is
    3 relu(h_0 - h_1 + 2) - relu(h_0) + 9 h_2 + 1."""

    def __init__(self, relu) -> None:
        super().__init__(aggr="sum")
        self.relu = relu

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        m = self.propagate(edge_index, x=x)
        h = self.relu(m @ m.new_tensor([[2.0, 1.0, -1.0], [1.0, 3.0, 0.0]]))
        u = self.relu(torch.stack([h[:, 0] - h[:, 1] + 2, h[:, 0] + 0], 1))
        return 3 * u[:, 0] - u[:, 1] + 9 * h[:, 2] + 1


@pytest.mark.parametrize("name", RELUS)
def test_negative_gradients_stop_at_every_relu_however_it_is_spelt(name: str) -> None:
    """At m = 1, h = (3, 4, 0) and u = (1, 3). Backwards, u gets (3, -1), of which (3, 0) is left; h gets (3, -3, 9), of
    which (3, 0) is left and the third never fired; so m gets 3 (2, 1). The plain gradient is
    (3 - 1)(2, 1) - 3 (1, 3) = (1, -7)."""
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    edge_index = torch.tensor([[1, 2], [0, 0]])
    model = TwoLayers(RELUS[name])
    assert float(model(x, edge_index)[0].detach()) == 1.0
    guided = explainer(model, GuidedBackprop(), BINARY, **BOTH)(x, edge_index, index=0)
    assert guided.edge_mask.tolist() == pytest.approx([1.0, 0.5])
    assert guided.node_mask.flatten().tolist() == pytest.approx([0.0, 1.0, 0.5])
    plain = explainer(model, Saliency(), BINARY)(x, edge_index, index=0)
    assert plain.edge_mask.tolist() == pytest.approx([1 / 7, 1.0])


def test_guided_backpropagation_of_a_model_without_relu_is_the_positive_gradient() -> None:
    model, data = seeded(Smooth), graph()
    edge, node = plain_gradient(model, data, 5, BOTH)
    found = explainer(model, GuidedBackprop(), **BOTH)(data.x, data.edge_index, index=5)
    assert_agree(found, *in_unit(edge.clamp_min(0), node.clamp_min(0), BOTH))


def test_relu_is_itself_again_afterwards() -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph()
    explainer(model, GuidedBackprop())(data.x, data.edge_index, index=5)
    z = torch.tensor([1.0], requires_grad=True)
    assert torch.autograd.grad(-z.relu(), z)[0] == -1


# --- Grad-CAM --------------------------------------------------------------------------------------------------------------


def plain_grad_cam(model: nn.Module, data: Data, row: int | None) -> Tensor:
    """Grad-CAM Avg on the whole graph; a layer counts where what it puts out can still reach the explained row."""
    seen: list[tuple[Tensor, int]] = []
    steps = 0

    def count(*_) -> None:
        nonlocal steps
        steps += 1

    hooks = []
    for module in model.modules():
        if isinstance(module, MessagePassing):
            hooks.append(module.register_propagate_forward_pre_hook(count))
            hooks.append(module.register_forward_hook(lambda _m, _a, out: seen.append((out, steps))))
    output = model(data.x, data.edge_index)[0 if row is None else row]
    gradients = torch.autograd.grad(output.max(), [h for h, _ in seen])
    for hook in hooks:
        hook.remove()
    score = torch.zeros(data.num_nodes)
    backwards = nx.DiGraph(data.edge_index.flip(0).t().tolist())
    for (value, step), gradient in zip(seen, gradients, strict=True):
        layer = (value * gradient.mean(0)).sum(1).clamp_min(0).detach()
        if row is not None:
            near = list(nx.single_source_shortest_path_length(backwards, row, cutoff=steps - step))
            layer = torch.zeros_like(layer).index_copy(0, torch.tensor(near), layer[near])
        score += layer / len(seen)
    return score / score.max().clamp_min(1e-12)


@pytest.mark.parametrize(
    "name", ["gcn", "gin", "gat", "tag", "shared layer, jumping knowledge, batch norm, dropout", "degree as a feature"]
)
def test_grad_cam_is_the_same_on_the_whole_graph(name: str) -> None:
    model, data = seeded(NODE_MODELS[name], 3), graph()
    hot = 0
    for row in (0, 5, 9):
        expected = plain_grad_cam(model, data, row)
        found = explainer(model, GradCAM(), **NODES)(data.x, data.edge_index, index=row)
        torch.testing.assert_close(found.node_mask.squeeze(1), expected, **CLOSE)
        hot += int((expected > 0).sum())
        found = explainer(model, GradCAM())(data.x, data.edge_index, index=row)
        reached = found.reached
        ends = torch.where(reached, expected[data.edge_index].mean(0), 0)
        torch.testing.assert_close(found.edge_mask, ends / ends.max().clamp_min(1e-12), **CLOSE)
    assert hot >= 3


def test_grad_cam_of_graphs_counts_every_node() -> None:
    model, data = seeded(Molecule, 1), graph()
    found = explainer(model, GradCAM(), GRAPH_CONFIG, **NODES)(data.x, data.edge_index)
    torch.testing.assert_close(found.node_mask.squeeze(1), plain_grad_cam(model, data, None), **CLOSE)
    assert (found.node_mask > 0).sum() > 5


def test_grad_cam_reads_what_a_layer_returns_also_if_the_model_goes_on_in_place() -> None:
    class InPlace(Molecule):
        def forward(self, x, edge_index, batch=None):
            x = self.conv2(self.conv1(x, edge_index).relu_(), edge_index).relu_()
            return self.head(global_mean_pool(x, batch))

    data = graph()
    one, other = (
        explainer(seeded(make, 1), GradCAM(), GRAPH_CONFIG, **NODES)(data.x, data.edge_index) for make in (Molecule, InPlace)
    )
    assert one.node_mask.any()
    assert torch.equal(one.node_mask, other.node_mask)


def test_grad_cam_of_whole_number_features() -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.inner = nn.Embedding(5, 4), NODE_MODELS["gcn"]()

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.inner(self.table(x), edge_index)

    model, data = seeded(Embedded, 1), graph()
    kinds = torch.arange(24) % 5
    same = Data(x=model.table(kinds).detach(), edge_index=data.edge_index)
    found = explainer(model, GradCAM())(kinds, data.edge_index, index=5)
    expected = explainer(model.inner, GradCAM())(same.x, data.edge_index, index=5)
    assert found.edge_mask.any()
    torch.testing.assert_close(found.edge_mask, expected.edge_mask, **CLOSE)


# --- occlusion -------------------------------------------------------------------------------------------------------------


def test_occlusion_of_a_model_that_is_solved_by_hand() -> None:
    """p = sigmoid(-2 + 4 m_0 + m_1 - 3 m_2 + 3 m_3)."""
    sends = [4.0, 1.0, -3.0, 0.0, 3.0]
    x, edge_index = star(sends)
    found = explainer(Planted(-2.0), Occlusion(), BINARY, **BOTH)(x, edge_index, index=0)
    total = -2 + sum(sends)
    expected = [max(0.0, sigmoid(total) - sigmoid(total - w)) for w in sends]
    assert found.edge_mask.tolist() == pytest.approx(expected, abs=1e-6)
    assert found.node_mask.flatten().tolist() == pytest.approx([0.0, *expected], abs=1e-6)


@pytest.mark.parametrize("kinds", [EDGES, NODES, BOTH], ids=["e", "f", "ef"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_occlusion_is_a_plain_loop_with_pygs_masks(name: str, kinds: dict) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(nodes=40, edges=70)
    explain = explainer(model, Occlusion(), **kinds)
    for one in explain_many(explain, data, [1, 2, 5, 11, 30]):
        row = one.output_id
        label = int(explain.get_masked_prediction(data.x, data.edge_index)[row].argmax())
        edge, node = torch.ones(data.num_edges), torch.ones(data.num_nodes, 1)

        def p(edge: Tensor, node: Tensor, row: int = row, label: int = label) -> float:
            return float(explain.get_masked_prediction(data.x, data.edge_index, node, edge)[row].softmax(-1)[label])

        for mask, ids, whole in (("edge_mask", "edge_id", edge), ("node_mask", "node_id", node)):
            if one.get(mask) is None:
                continue
            for place, number in enumerate(one[ids].tolist()):
                whole[number] = 0
                fall = max(0.0, p(torch.ones(data.num_edges), torch.ones(data.num_nodes, 1)) - p(edge, node))
                whole[number] = 1
                assert float(one[mask][place]) == pytest.approx(fall, abs=2e-6)


def test_occlusion_takes_both_directions_of_an_edge_away_at_once() -> None:
    """Node 0 hears of node 1, and node 1 of node 0 in turn, so two steps use both directions."""
    model, data = seeded(NODE_MODELS["gin"]), graph()
    one = explainer(model, Occlusion(undirected=True))(data.x, data.edge_index, index=5)
    with torch.no_grad():
        p = model(data.x, data.edge_index)[5].softmax(-1)
        for u, v in data.edge_index.t().tolist():
            ends = {(u, v), (v, u)}
            kept = torch.tensor([tuple(e) not in ends for e in data.edge_index.t().tolist()])
            q = model(data.x, data.edge_index[:, kept])[5].softmax(-1)[p.argmax()]  # for GIN masking is removal
            mine = one.edge_mask[~kept]
            assert mine.tolist() == pytest.approx([max(0.0, float(p.max() - q))] * 2, abs=1e-5)


def test_more_elements_than_worlds_at_once() -> None:
    sends = torch.linspace(-1, 1, 150).tolist()
    x, edge_index = star(sends)
    found = explainer(Planted(1.5), Occlusion(), BINARY)(x, edge_index, index=0)
    expected = [max(0.0, sigmoid(1.5) - sigmoid(1.5 - w)) for w in sends]
    assert found.edge_mask.tolist() == pytest.approx(expected, abs=1e-5)


# --- all of them -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Saliency, IntegratedGradients, GuidedBackprop, Occlusion], ids=lambda c: c.__name__)
def test_a_planted_cause_is_ranked_first(make) -> None:
    x, edge_index = star([0.05, 8.0, 0.0, 0.02])
    found = explainer(Planted(-4.0), make(), BINARY)(x, edge_index, index=0)
    assert found.edge_mask.argmax() == 1
    assert found.hard_edge_mask.tolist() == [False, True, False, False]


def test_settings_are_checked() -> None:
    for make in (partial(PageRank, damping=1.5), partial(IntegratedGradients, steps=0), partial(Random, extract="best")):
        with pytest.raises(SettingsError, match="must be"):
            make()
    with pytest.raises(TypeError):
        Saliency(step=3)
