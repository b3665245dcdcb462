"""Recorded passes: what is replayed is what the model does, and what cannot be recorded is left to the model."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from test_causal_model import causal_models
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv
from zoo import CLASSES, FEATURES, GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, mlp, quick, seeded

from nseg import NSEG, explain_many
from nseg.explain.many import open_causal_models
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.programs import Programs, _kept, record
from nseg.model.recording import NotRecordableError

PLANNED = [name for name in NODE_MODELS if name != "global mean"]  # that one is run as it is


def both_ways(causal: CausalModel, worlds: int, masked: bool, seed: int) -> list[list[Tensor]]:
    """Output, and gradients of its sum, in random worlds: by the model, and replayed."""
    rng, here, found = torch.Generator().manual_seed(seed), causal.instances, list[list[Tensor]]()
    edge, node = (torch.rand(worlds, n, generator=rng) for n in (here.num_edges, here.num_nodes))
    runner = causal._runner
    for program in (None, record(runner, True, masked)):
        runner._programs = Programs()
        runner._programs._found[True, masked] = program
        free = [edge.clone().requires_grad_(), node.unsqueeze(2).clone().requires_grad_()]
        output = runner.run(free[0], free[1] if masked else None, worlds)
        slopes = torch.autograd.grad(output.sum(), free[: 1 + masked], materialize_grads=True)
        with torch.no_grad():
            again = runner.run(free[0], free[1] if masked else None, worlds)
        assert runner._programs._found[True, masked] is program  # not given up
        found.append([output.detach(), again, *slopes])
    assert program is not None
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", PLANNED)
def test_a_replayed_pass_of_any_size_is_the_models_own(name: str, masked: bool) -> None:
    model = seeded(NODE_MODELS[name])
    with borrow(model):
        for _, causal in causal_models(model, graph(kind="loops"), (0, 5, 7, 9, 11))[1]:
            for one, other in zip(*both_ways(causal, 4, masked, 1), strict=True):
                torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("conv", [GCNConv, GATConv, lambda a, b: GINConv(mlp(a, b))], ids=["gcn", "gat", "gin"])
@pytest.mark.parametrize("masked", [False, True])
def test_graphs_are_replayed_too(conv, masked: bool) -> None:
    model = seeded(lambda: Molecule(conv))
    with open_causal_models(
        explainer(model, NSEG(), GRAPH_CONFIG), [graph(6 + n, 8 + n, seed=n) for n in range(5)]
    ) as models:
        for _, causal in models:
            for one, other in zip(*both_ways(causal, 3, masked, 2), strict=True):
                torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


class Odd(nn.Module):
    """A GCN that does something between its layers."""

    def __init__(self, between) -> None:
        super().__init__()
        self.one, self.two, self.between = GCNConv(FEATURES, 8), GCNConv(8, CLASSES), between

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.two(self.between(self.one(x, edge_index)), edge_index)


def written_over(x: Tensor) -> Tensor:
    first = x[:, 0]
    x.mul_(2)
    return x + first.unsqueeze(1)


REFUSED = {
    "branches on values": lambda x: x * 2 if bool(x.detach().sum() > 0) else x,
    "writes over what it also looks at": written_over,
    "random numbers": lambda x: x + 0 * torch.rand_like(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_python_decides_is_not_recorded(name: str) -> None:
    model = seeded(lambda: Odd(REFUSED[name]))
    with borrow(model):
        causal = causal_models(model, graph())[1][0][1]
        with pytest.raises(NotRecordableError):
            record(causal._runner, True, False)


def test_gradients_that_a_recording_would_change_keep_the_model() -> None:
    def half_hidden(x: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = x * 3
        return x + hidden

    model = seeded(lambda: Odd(half_hidden))
    with borrow(model):
        causal = causal_models(model, graph())[1][0][1]
        assert record(causal._runner, True, False) is None


def test_a_replay_that_fails_is_left_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()

    def explain() -> list[Data]:
        return explain_many(explainer(model, quick()), data, [0, 5, 7], progress=False)

    expected = explain()

    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("nseg.model.replay.Program.run", fail)
    for one, other in zip(explain(), expected, strict=True):
        assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
        assert one.pns == pytest.approx(other.pns, abs=1e-5)


def _trained_further(model: nn.Module) -> None:
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(1.5)


def _with_other_parameters(model: nn.Module) -> None:
    for module in model.modules():
        for name, value in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(-value.detach()))


def _with_another_layer(model: nn.Module) -> None:
    model.first = seeded(lambda: GINConv(mlp(FEATURES, 8)))


class _TwoSteps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(FEATURES, 8), GCNConv(8, CLASSES)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        derived = self.scale.exp() + 1  # a recording takes it for constant
        out: Tensor = self.second((derived * self.first(x, edge_index)).tanh(), edge_index)
        return out


@pytest.mark.parametrize("change", [_trained_further, _with_other_parameters, _with_another_layer])
def test_a_model_that_changed_since_it_was_explained_is_explained_as_it_is_now(change) -> None:
    used, data = seeded(_TwoSteps), graph()
    method = NSEG(exact=0)
    explain_many(explainer(used, method), data, [0, 3], progress=False)
    change(used)
    fresh = seeded(_TwoSteps)
    change(fresh)
    ours, expected = (explain_many(explainer(one, method), data, [0, 3], progress=False) for one in (used, fresh))
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one.edge_mask, other.edge_mask)
        assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
        assert one.pns == pytest.approx(other.pns, abs=1e-5)


def test_a_kept_recording_is_used_again_and_goes_with_its_model() -> None:
    model, data = seeded(_TwoSteps), graph()
    explain = explainer(model, NSEG(exact=0))
    first = explain_many(explain, data, [0, 3], progress=False)
    kept = list(_kept[model].values())
    again = explain_many(explain, data, [0, 3], progress=False)
    assert kept
    assert list(_kept[model].values()) == kept
    assert all(torch.equal(one.hard_edge_mask, other.hard_edge_mask) for one, other in zip(first, again, strict=True))
    gone = weakref.ref(model)
    del model, explain, first, again
    gc.collect()
    assert gone() is None
