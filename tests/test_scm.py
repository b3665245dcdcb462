"""The causal model: what it says of a world is what the model says of it, and the model comes back as it was."""

from __future__ import annotations

import contextlib

import pytest
import torch
from nseg.instances import Inputs
from nseg.scm import PLAIN, Scm, borrowed, probability
from nseg.source import Source
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.config import ModelConfig
from torch_geometric.nn import MessagePassing
from zoo import NODE_CONFIG, NODE_MODELS, arguments, explainer, graph, quick, seeded

from nseg import NSEG

KINDS = ("undirected", "directed", "loops", "all loops", "duplicates", "empty")
CONFIG = ModelConfig(**NODE_CONFIG)


def scms(model: torch.nn.Module, data, rows=(0, 5, 7)) -> tuple[Source, list[tuple[torch.Tensor, Scm]]]:
    source = Source(model, CONFIG, Inputs(data.x, data.edge_index, arguments(model, data)), True, True)
    row = torch.tensor(rows)
    target = source.targets(None, row)
    return source, list(source.scms(row, torch.arange(len(rows)), target))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NODE_MODELS)
def test_all_ones_is_the_untouched_model(name: str, kind: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(kind=kind)
    with borrowed(model), torch.no_grad():
        source, parts = scms(model, data)
        assert sorted(n for which, _ in parts for n in which.tolist()) == [0, 1, 2]
        for which, scm in parts:
            row = torch.tensor((0, 5, 7))[which]
            expected = probability(source.output[row], scm.instances.target, CONFIG)
            edge = torch.ones(2, scm.instances.num_edges)
            node = torch.ones(2, scm.instances.num_nodes, 1)
            for p in (scm.do(), scm.do(edge), scm.do(None, node), scm.do(edge, node)):
                torch.testing.assert_close(p, expected.expand_as(p), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["undirected", "directed", "loops", "duplicates"])
@pytest.mark.parametrize("name", NODE_MODELS)
def test_a_world_is_what_pyg_predicts_under_the_same_masks(name: str, kind: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(kind=kind)
    pyg = explainer(model, GNNExplainer())
    rng = torch.Generator().manual_seed(3)
    with borrowed(model), torch.no_grad():
        _, parts = scms(model, data)
        for which, scm in parts:
            edge = torch.rand(2, scm.instances.num_edges, generator=rng)
            node = torch.rand(2, scm.instances.num_nodes, 4, generator=rng)
            p = scm.do(edge, node)
            for b, number in enumerate(which.tolist()):
                mine = scm.instances.edge_owner == b
                own = scm.instances.node_owner == b
                for world in range(2):
                    full_edge = torch.rand(data.num_edges, generator=rng).index_copy(
                        0, scm.instances.edge_id[mine], edge[world, mine]
                    )
                    full_node = torch.ones(data.num_nodes, 4).index_copy(0, scm.instances.node_id[own], node[world, own])
                    output = pyg.get_masked_prediction(
                        data.x, data.edge_index, full_node, full_edge, **arguments(model, data)
                    )
                    row = (0, 5, 7)[number]
                    expected = output[row].softmax(-1)[scm.instances.target[b]]
                    torch.testing.assert_close(p[world, b], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gat", "gatv2", "gat, edge attributes"])
def test_self_loops_that_a_layer_makes_itself_are_not_masked(name: str) -> None:
    """Such a layer gives the same with and without self-loops in the input, whatever their weight and order."""
    plain, model = graph(kind="directed"), seeded(NODE_MODELS[name])
    loops = torch.arange(plain.num_nodes).expand(2, -1)
    looped = plain.clone()
    looped.edge_index = torch.cat([loops, plain.edge_index], 1)
    looped.edge_attr = torch.cat([torch.zeros(plain.num_nodes, 2), plain.edge_attr])
    plain.edge_attr = plain.edge_attr.clone()
    rng = torch.Generator().manual_seed(0)
    weight = torch.rand(plain.num_edges, generator=rng)
    weight_looped = torch.cat([torch.rand(plain.num_nodes, generator=rng), weight])
    if name == "gat, edge attributes":  # its loops get the mean attribute, whatever the input's had
        looped.edge_attr[: plain.num_nodes] = 7.0
    with borrowed(model), torch.no_grad():
        values = []
        for data, weights in ((plain, weight), (looped, weight_looped)):
            _, parts = scms(model, data)
            p = torch.empty(3)
            for which, scm in parts:
                p[which] = scm.do(weights[scm.instances.edge_id].unsqueeze(0))[0]
            values.append(p)
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "transformer", "cheb"])
def test_gradient_is_the_finite_difference(name: str) -> None:
    model, data = seeded(NODE_MODELS[name]).double(), graph().apply(lambda t: t.double() if t.is_floating_point() else t)
    with borrowed(model):
        _, parts = scms(model, data, rows=(2, 5))
        ((_, scm),) = parts
        rng = torch.Generator().manual_seed(1)
        edge = torch.rand(1, scm.instances.num_edges, generator=rng, dtype=torch.double).requires_grad_()
        node = torch.rand(1, scm.instances.num_nodes, 1, generator=rng, dtype=torch.double).requires_grad_()
        assert torch.autograd.gradcheck(scm.do, (edge, node), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "tag"])
def test_messages_that_cannot_reach_the_target_are_not_computed(name: str) -> None:
    """On a path, message passing c of C happens at most C - 1 - c hops away from the explained end."""
    nodes = 12
    data = graph(nodes=nodes)
    data.edge_index = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    model = seeded(NODE_MODELS[name])
    seen: list[int] = []
    with borrowed(model), torch.no_grad():
        _, parts = scms(model, data, rows=(nodes - 1,))
        ((_, scm),) = parts
        scm.do(torch.ones(1, scm.instances.num_edges))
        handles = [
            m.register_message_forward_hook(lambda _, __, out: seen.append(out.size(0)))
            for m in model.modules()
            if isinstance(m, MessagePassing)
        ]
        scm.do(torch.ones(1, scm.instances.num_edges))
        for handle in handles:
            handle.remove()
    loops = name in ("gcn", "gat")
    passings = len(seen)
    assert passings == (3 if name == "tag" else 2)
    assert seen == [(passings - c) * (2 if loops else 1) for c in range(passings)]


def test_the_worlds_of_a_model_that_mixes_its_batch_are_run_one_by_one() -> None:
    model, data = seeded(NODE_MODELS["global mean"]), graph()
    with borrowed(model), torch.no_grad():
        _, parts = scms(model, data)
        assert [len(scm.instances) for _, scm in parts] == [1, 1, 1]
        assert all(scm.way == PLAIN for _, scm in parts)
        assert all(scm.instances.num_edges == data.num_edges for _, scm in parts)


def test_a_model_that_needs_one_more_hop_gets_it() -> None:
    model, data = seeded(NODE_MODELS["degree as a feature"]), graph()
    with borrowed(model), torch.no_grad():
        _, parts = scms(model, data)
        assert len(parts) == 1
        assert int(parts[0][1].instances.hops.max()) == 2


# --- the model is borrowed -----------------------------------------------------------------------------------------------


def state(model: torch.nn.Module) -> dict[str, object]:
    """All that a caller could notice on a model."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_propagate_forward_pre_hooks")
    hooks += ("_message_forward_hooks", "_propagate_forward_hooks", "_aggregate_forward_hooks")
    return {
        "training": [m.training for m in model.modules()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "grad": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "parameters": [p.detach().clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "hooks": [len(getattr(m, h, ())) for m in model.modules() for h in hooks],
        "explain": [(m.explain, m._edge_mask) for m in model.modules() if isinstance(m, MessagePassing)],
        "cached": [(getattr(m, "cached", None), getattr(m, "_cached_edge_index", None)) for m in model.modules()],
        "names": [sorted(vars(m)) for m in model.modules()],
    }


def assert_same(before: object, after: object) -> None:
    if isinstance(before, torch.Tensor):
        assert isinstance(after, torch.Tensor)
        assert torch.equal(before, after)
    elif isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            assert_same(before[key], after[key])
    elif isinstance(before, list | tuple):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            assert_same(one, other)
    else:
        assert before == after


class Failing(torch.nn.Module):
    """Raises on its n-th call."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.inner, self.left = seeded(NODE_MODELS["gcn, cached"]), calls

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("the model fails")
        return self.inner(x, edge_index)


def lived_in(model: torch.nn.Module) -> torch.nn.Module:
    """A model in the middle of somebody's work: training, one parameter frozen, gradients there, one layer in eval mode."""
    model.train()
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    parameters[0].requires_grad_(False)
    list(model.modules())[-1].eval()
    return model


@pytest.mark.parametrize("name", NODE_MODELS)
def test_the_model_and_the_random_state_come_back_as_they_were(name: str) -> None:
    from nseg import explain_many

    model, data = lived_in(seeded(NODE_MODELS[name])), graph()
    explain = explainer(model, quick(steps=2), edge_mask_type="object", node_mask_type="object")
    before, random = state(model), torch.get_rng_state()
    explain_many(explain, data, [0, 5], **arguments(model, data))
    assert_same(before, state(model))
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize("calls", range(0, 14, 2))
def test_the_model_comes_back_also_when_it_raises(calls: int) -> None:
    from nseg import Explainer as SafeExplainer
    from nseg import explain_many

    data = graph()
    for run in (
        lambda e: explain_many(e, data, [0, 5]),
        lambda e: e(data.x, data.edge_index, index=0),
    ):
        model = lived_in(Failing(calls))
        explain = SafeExplainer(
            model, NSEG(steps=20), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object"
        )
        before, random = state(model), torch.get_rng_state()
        with pytest.raises(RuntimeError, match="the model fails"):
            run(explain)
        assert_same(before, state(model))
        assert torch.equal(random, torch.get_rng_state())


def test_it_works_on_a_model_that_another_explainer_ran_on_or_failed_on() -> None:
    data = graph()
    clean, used, masked = (seeded(NODE_MODELS["gcn"]) for _ in range(3))
    explainer(used, GNNExplainer(epochs=3))(data.x, data.edge_index, index=3)
    Explainer.get_masked_prediction(  # leaves nothing; then leave a mask on purpose
        explainer(masked, GNNExplainer()), data.x, data.edge_index, edge_mask=torch.ones(data.num_edges)
    )
    from torch_geometric.explain.algorithm.utils import set_masks

    set_masks(masked, torch.zeros(data.num_edges), data.edge_index, apply_sigmoid=False)
    found = [
        explainer(m, quick(steps=5), explanation_type="phenomenon", edge_mask_type="object")(
            data.x, data.edge_index, index=3, target=data.y
        )
        for m in (clean, used, masked)
    ]
    assert found[0].edge_mask.any()
    assert torch.equal(found[0].edge_mask, found[1].edge_mask)
    assert torch.equal(found[0].edge_mask, found[2].edge_mask)
    assert all(m.explain is True for m in masked.modules() if isinstance(m, MessagePassing))


@pytest.mark.parametrize("before", [False, True])
def test_tiny_numbers_count_again_afterwards(before: bool) -> None:
    """Denormal numbers are taken for 0 while a model is borrowed, and then as they were, also if something raises."""

    def counts() -> bool:
        return float(torch.tensor(1e-38) / 1e3) != 0

    torch.set_flush_denormal(before)
    try:
        with contextlib.suppress(ZeroDivisionError), borrowed(seeded(NODE_MODELS["gcn"])):
            assert not counts()
            raise ZeroDivisionError
        assert counts() is not before
    finally:
        torch.set_flush_denormal(False)
