"""Gradients by the kernel: they are torch's, for weights of edges and of features, in a batch and alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator

import pytest
import torch
from test_compiled import NETS, READ_OUTS, Net, explain, gin, in_dtype, make, opened, small_graphs, without_kernel
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GINConv
from zoo import LINK_CONFIG, Link, explainer, graph, seeded

from nseg import NSEG
from nseg.explain.many import open_causal_models
from nseg.model.causal import CausalModel
from nseg.model.rescaling import RescaledMessages
from nseg.model.subset_worlds import EDGES, NODES, OUTSIDE
from nseg.model.weighed_batch import WIDEST, WeighedBatch

pytestmark = pytest.mark.skipif(shutil.which(os.environ.get("CC", "cc")) is None, reason="there is no C compiler")

WIDE = torch.float64

BY_TORCH = {
    *("sage, unit rows", "gine", "gated by both ends", "edge conv", "le", "layer norm", "layer norm of PyG"),
    *("gelu", "gelu by tanh", "silu", "softplus", "selu", "relu6"),
}
"""Networks whose outputs the kernel computes, and whose gradients it does not."""


def weights_of(causal: CausalModel, edges: bool = True, factors: int = 0, seed: int = 0) -> dict[str, Tensor]:
    """Weights of edges, and factors of features, in a few worlds; some are 0, and some are 1."""
    rng, worlds = torch.Generator().manual_seed(seed), 4
    shapes = {EDGES: (causal.instances.num_edges,)} if edges else {}
    shapes |= {NODES: (causal.instances.num_nodes, factors)} if factors else {}
    drawn = {name: torch.rand(worlds, *shape, generator=rng, dtype=causal.dtype) for name, shape in shapes.items()}
    found = {name: (1.4 * one - 0.2).clamp(0, 1) for name, one in drawn.items()}
    return {**found, OUTSIDE: torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=causal.dtype)}


def slopes(output: Tensor, weights: dict[str, Tensor]) -> list[Tensor]:
    share = torch.rand(output.shape, generator=torch.Generator().manual_seed(1), dtype=output.dtype)
    return [*torch.autograd.grad((output * share).sum(), [one for one in weights.values() if one.requires_grad])]


def by_torch(causal: CausalModel, weights: dict[str, Tensor], remover: RescaledMessages | None) -> Tensor:
    worlds = len(weights[OUTSIDE])
    if remover is not None:
        return remover.run(weights, worlds)
    return causal._runner.run(weights.get(EDGES), weights.get(NODES), worlds)


def by_kernel(
    causal: CausalModel, weights: dict[str, Tensor], remover: RescaledMessages | None, odds: bool = False
) -> Tensor | None:
    causal.expect_many_passes()
    return causal._runner.run_weighed(weights, remover if EDGES in weights else None, odds)


def removers(causal: CausalModel, tied: bool = False) -> Iterator[RescaledMessages | None]:
    """Messages are masked; and if that can be done by weighing messages, edges are deleted."""
    yield None
    remover = causal._remover_of(tied)
    if isinstance(remover, RescaledMessages):
        yield remover


@torch.enable_grad()
def assert_slopes_are_torchs(causal: CausalModel, edges: bool = True, factors: int = 0, tied: bool = False) -> None:
    weights = weights_of(causal, edges, factors)
    free = {name: one.requires_grad_(name != OUTSIDE) for name, one in weights.items()}
    for remover in removers(causal, tied):
        right, found = by_torch(causal, free, remover), by_kernel(causal, free, remover)
        assert found is not None, "the kernel does not know the gradient of this network"
        loose = {"rtol": 1e-9, "atol": 1e-11} if right.dtype == WIDE else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(found, right, **loose)
        for one, other in zip(slopes(found, free), slopes(right, free), strict=True):
            torch.testing.assert_close(one, other, rtol=loose["rtol"], atol=loose["atol"] * float(other.abs().max()))


@torch.enable_grad()
def assert_odds_are_torchs(causal: CausalModel, edges: bool = True, factors: int = 0) -> None:
    free = {name: one.requires_grad_(name != OUTSIDE) for name, one in weights_of(causal, edges, factors).items()}
    for remover in removers(causal):
        right = causal.outcome.log_odds(by_torch(causal, free, remover), causal.instances.target)
        found = by_kernel(causal, free, remover, odds=True)
        assert found is not None, "the kernel does not compute these log-odds"
        torch.testing.assert_close(found, right, rtol=1e-9, atol=1e-11)
        for one, other in zip(slopes(found, free), slopes(right, free), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11 * float(other.abs().max()))


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("name", sorted({*NETS} - BY_TORCH))
def test_slopes_are_torchs(name: str, level: str) -> None:
    data = [graph()] if level == "node" else small_graphs(kind="duplicates")
    data = [in_dtype(one, WIDE) for one in data]
    with opened(make(name, level, WIDE), data[0] if level == "node" else data) as causal:
        for edges, factors in ((True, 0), (True, 1)):
            assert_slopes_are_torchs(causal, edges, factors)
            if name != "log-softmax":  # torch makes the last values
                assert_odds_are_torchs(causal, edges, factors)


@pytest.mark.parametrize("scores", [[3e4, 0.0, 0.0], [-3e4, 5.0, 7.0], [90.0, 89.0, 91.0], [1e4, 0.0, -1e9]])
def test_log_odds_of_extreme_scores_and_their_slopes_are_torchs(scores: list[float]) -> None:
    """Classes that are nearly certain, or nearly impossible, and odds that are cut off."""
    model = seeded(lambda: Net(gin)).to(WIDE)
    model.level = "graph"
    with torch.no_grad():
        model.head[-1].bias.copy_(torch.tensor(scores))
    with opened(model, [in_dtype(one, WIDE) for one in small_graphs()]) as causal:
        for target in range(3):
            causal.instances.target.fill_(target)
            assert_odds_are_torchs(causal)


@pytest.mark.parametrize("dtype", [torch.float32, WIDE], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize("kind", ["undirected", "directed", "loops"])
@pytest.mark.parametrize("name", ["gcn", "gin with batch norm", "sage"])
def test_slopes_are_torchs_on_every_kind_of_graph(name: str, kind: str, dtype: torch.dtype) -> None:
    data = in_dtype(graph(kind=kind), dtype)
    with opened(make(name, "node", dtype), data) as causal:
        assert_slopes_are_torchs(causal, True, causal.instances.x.size(1), tied=kind == "undirected")
        assert_slopes_are_torchs(causal, False, 1)


@pytest.mark.parametrize("name", ["sum", "mean"])
def test_slopes_pass_through_read_outs(name: str) -> None:
    model = seeded(lambda: Net(gin, read_out=READ_OUTS[name], after=lambda x: x.log_softmax(-1)))
    model.level = "graph"
    with opened(model.to(WIDE), [in_dtype(one, WIDE) for one in small_graphs()]) as causal:
        assert_slopes_are_torchs(causal, True, 1)


def test_slopes_are_torchs_for_pairs_of_nodes() -> None:
    pairs = torch.tensor([[0, 5, 7, 5], [3, 2, 9, 5]])
    asked = explainer(seeded(Link).to(WIDE), NSEG(), LINK_CONFIG)
    with open_causal_models(asked, in_dtype(graph(), WIDE), [0, 1, 2, 3], edge_label_index=pairs) as models:
        for _, causal in models:
            assert_slopes_are_torchs(causal, True, 1)


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("name", ["gcn", "gin with batch norm", "sage"])
def test_selected_and_repeated_instances_have_the_same_slopes_bit_for_bit(name: str, deletes: bool) -> None:
    with opened(make(name, "graph"), small_graphs()) as causal, torch.enable_grad():
        weights = {key: one.requires_grad_(key != OUTSIDE) for key, one in weights_of(causal, True, 1).items()}

        def run(some: CausalModel, its: dict[str, Tensor]) -> tuple[Tensor, list[Tensor]]:
            found = by_kernel(some, its, some._remover_of(False) if deletes else None)
            assert found is not None
            return found.detach(), [*torch.autograd.grad(found.square().sum(), [its[EDGES], its[NODES]])]

        output, (edge, node) = run(causal, weights)
        owners = causal.instances.edge_owner, causal.instances.node_owner
        for number in range(len(causal.instances)):
            alone = causal.select(torch.tensor([number])).repeat(2)
            its = {key: weights[key].detach()[:, owner == number] for key, owner in zip((EDGES, NODES), owners, strict=True)}
            its = {key: torch.cat([one, one], 1).requires_grad_() for key, one in its.items()}
            own_output, own = run(alone, {**its, OUTSIDE: weights[OUTSIDE]})
            assert torch.equal(own_output, output[:, [number, number]])
            for found, all_of_them, owner in zip(own, (edge, node), owners, strict=True):
                right = all_of_them[:, owner == number]
                assert torch.equal(found, torch.cat([right, right], 1))


@pytest.mark.parametrize("name", sorted(BY_TORCH))
def test_other_gradients_are_left_to_torch(name: str) -> None:
    with opened(make(name), graph()) as causal, torch.enable_grad():
        weights = {key: one.requires_grad_(key != OUTSIDE) for key, one in weights_of(causal).items()}
        assert by_kernel(causal, weights, None) is None
        assert causal.output(weights).requires_grad


def test_a_wrong_gradient_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = WeighedBatch.ask

    def wrong(self: WeighedBatch, question: object, **tensors: Tensor | None) -> None:
        ask(self, question, **tensors)
        if (slope := tensors.get("edge_slope")) is not None:
            slope *= 1.01

    monkeypatch.setattr(WeighedBatch, "ask", wrong)
    with opened(make("gcn"), graph()) as causal, torch.enable_grad():
        weights = {key: one.requires_grad_(key != OUTSIDE) for key, one in weights_of(causal).items()}
        assert by_kernel(causal, weights, None) is None


@pytest.mark.parametrize("level", ["node", "graph"])
def test_explanations_are_the_same_by_torchs_gradients(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, ask = [], WeighedBatch.ask
    monkeypatch.setattr(WeighedBatch, "ask", lambda *args, **tensors: calls.append(None) or ask(*args, **tensors))
    found = explain(level)
    assert len(calls) > 10
    calls.clear()
    without_kernel(monkeypatch)
    for one, other in zip(found, explain(level), strict=True):
        assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
        torch.testing.assert_close(one.edge_mask, other.edge_mask, rtol=1e-3, atol=1e-4)
    assert not calls


def wide(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Linear(a, WIDEST + 1), nn.ReLU(), nn.Linear(WIDEST + 1, b))


@pytest.mark.parametrize("conv", [GATConv, lambda a, b: GINConv(wide(a, b))], ids=["attention", "wide"])
def test_attention_and_wide_layers_are_left_to_torch(conv: Callable[[int, int], nn.Module]) -> None:
    with opened(seeded(lambda: Net(conv)), graph()) as causal, torch.enable_grad():
        weights = {key: one.requires_grad_(key != OUTSIDE) for key, one in weights_of(causal).items()}
        assert by_kernel(causal, weights, None) is None
