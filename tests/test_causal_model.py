"""The causal model: its answer for a world is the model's answer, and the model is given back as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.config import ModelConfig
from torch_geometric.nn import MessagePassing
from zoo import NODE_CONFIG, NODE_MODELS, arguments, explainer, graph, quick, seeded

from nseg.graphs.inputs import ModelInputs
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.outcomes import outcome_of
from nseg.model.strategy import PLAIN
from nseg.model.traced_graph import TracedGraph

ROWS = (0, 5, 7)


def causal_models(
    model: torch.nn.Module, data, rows: Sequence[int] = ROWS, config: dict[str, str] = NODE_CONFIG
) -> tuple[TracedGraph, list[tuple[torch.Tensor, CausalModel]]]:
    """A traced graph, and causal models of its predictions for ``rows``, one instance each; the model must be borrowed."""
    inputs = ModelInputs(data.x, data.edge_index, arguments(model, data))
    traced = TracedGraph(model, outcome_of(ModelConfig(**config)), inputs, True, True)
    row = torch.tensor(rows)
    cuts = traced.cuts(row, torch.arange(row.numel()), traced.check_targets(None, row))
    return traced, list(traced.causal_models(cuts))


@contextlib.contextmanager
def causal_model(
    model: torch.nn.Module, data, rows: Sequence[int], config: dict[str, str] = NODE_CONFIG
) -> Iterator[CausalModel]:
    """The one causal model of all ``rows``, while the model is borrowed."""
    with borrow(model):
        ((_, causal),) = causal_models(model, data, rows, config)[1]
        yield causal


def assert_ones_change_nothing(traced: TracedGraph, models: list[tuple[torch.Tensor, CausalModel]]) -> None:
    """Weights of one give the model's own output."""
    assert sorted(n for which, _ in models for n in which.tolist()) == [0, 1, 2]
    for which, causal in models:
        row = torch.tensor(ROWS)[which]
        expected = traced.outcome.probability(traced.output[row], causal.instances.target)
        edges = {"edges": torch.ones(2, causal.instances.num_edges)}
        nodes = {"nodes": torch.ones(2, causal.instances.num_nodes, 1)}
        for weights in ({}, edges, nodes, edges | nodes):
            p = causal.do(weights)
            torch.testing.assert_close(p, expected.expand_as(p), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["all loops", "empty"])
@pytest.mark.parametrize("name", NODE_MODELS)
def test_weights_of_one_give_the_models_own_output(name: str, kind: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(kind=kind)
    with borrow(model), torch.no_grad():
        assert_ones_change_nothing(*causal_models(model, data))


@pytest.mark.parametrize("kind", ["undirected", "directed", "loops", "duplicates"])
@pytest.mark.parametrize("name", NODE_MODELS)
def test_a_world_gives_what_pyg_predicts_with_the_same_masks_and_with_ones_the_models_output(name: str, kind: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(kind=kind)
    pyg = explainer(model, GNNExplainer())
    rng = torch.Generator().manual_seed(3)
    with borrow(model), torch.no_grad():
        traced, models = causal_models(model, data)
        assert_ones_change_nothing(traced, models)
        for which, causal in models:
            here = causal.instances
            edge = torch.rand(2, here.num_edges, generator=rng)
            node = torch.rand(2, here.num_nodes, 4, generator=rng)
            p = causal.do({"edges": edge, "nodes": node})
            for b, number in enumerate(which.tolist()):
                mine = here.edge_owner == b
                own = here.node_owner == b
                for world in range(2):
                    outside = torch.rand(data.num_edges, generator=rng)  # weights there do not matter
                    full_edge = outside.index_copy(0, here.edge_id[mine], edge[world, mine])
                    full_node = torch.ones(data.num_nodes, 4).index_copy(0, here.node_id[own], node[world, own])
                    output = pyg.get_masked_prediction(
                        data.x, data.edge_index, full_node, full_edge, **arguments(model, data)
                    )
                    expected = output[ROWS[number]].softmax(-1)[here.target[b]]
                    torch.testing.assert_close(p[world, b], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gat", "gatv2", "gat, edge attributes"])
def test_self_loops_that_a_layer_adds_are_not_masked(name: str) -> None:
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
    with borrow(model), torch.no_grad():
        values = []
        for data, weights in ((plain, weight), (looped, weight_looped)):
            p = torch.empty(3)
            for which, causal in causal_models(model, data)[1]:
                p[which] = causal.do({"edges": weights[causal.instances.edge_id].unsqueeze(0)})[0]
            values.append(p)
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "transformer", "cheb"])
def test_gradient_is_the_finite_difference(name: str) -> None:
    model, data = seeded(NODE_MODELS[name]).double(), graph().apply(lambda t: t.double() if t.is_floating_point() else t)
    with causal_model(model, data, (2, 5)) as causal:
        rng = torch.Generator().manual_seed(1)
        edge = torch.rand(1, causal.instances.num_edges, generator=rng, dtype=torch.double).requires_grad_()
        node = torch.rand(1, causal.instances.num_nodes, 1, generator=rng, dtype=torch.double).requires_grad_()

        def do(edges: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
            return causal.do({"edges": edges, "nodes": nodes})

        assert torch.autograd.gradcheck(do, (edge, node), eps=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "tag"])
def test_messages_that_cannot_reach_the_target_are_not_computed(name: str) -> None:
    """On a path, message passing step c of C happens at most C - 1 - c hops away from the explained end."""
    nodes = 12
    data = graph(nodes=nodes)
    data.edge_index = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    model = seeded(NODE_MODELS[name])
    with causal_model(model, data, (nodes - 1,)) as causal, torch.no_grad():
        causal.do({"edges": torch.ones(1, causal.instances.num_edges)})
        seen = [call.edge_index.size(1) for call in causal._runner.plan(1, share=True).calls]
    loops = name in ("gcn", "gat")
    steps = len(seen)
    assert steps == (3 if name == "tag" else 2)
    assert seen == [(steps - c) * (2 if loops else 1) for c in range(steps)]


def test_worlds_of_a_model_that_mixes_its_batch_run_one_at_a_time() -> None:
    model, data = seeded(NODE_MODELS["global mean"]), graph()
    with borrow(model), torch.no_grad():
        models = [causal for _, causal in causal_models(model, data)[1]]
        assert [len(causal.instances) for causal in models] == [1, 1, 1]
        assert all(causal.strategy == PLAIN for causal in models)
        assert all(causal.instances.num_edges == data.num_edges for causal in models)


def test_a_model_that_needs_one_more_hop_gets_it() -> None:
    model, data = seeded(NODE_MODELS["degree as a feature"]), graph()
    with causal_model(model, data, ROWS) as causal:
        assert int(causal.instances.hops.max()) == 2


# --- the model is borrowed -----------------------------------------------------------------------------------------------


def state(model: torch.nn.Module) -> dict[str, object]:
    """Everything on a model that a caller could notice."""
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


def lived_in(model: torch.nn.Module) -> torch.nn.Module:
    """A model in use: in training mode, one parameter frozen, with gradients, one layer in evaluation mode."""
    model.train()
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 0.5)
    parameters[0].requires_grad_(False)
    list(model.modules())[-1].eval()
    return model


@pytest.mark.parametrize("name", NODE_MODELS)
def test_model_and_random_state_are_restored(name: str) -> None:
    from nseg import explain_many

    model, data = lived_in(seeded(NODE_MODELS[name])), graph()
    explain = explainer(model, quick(steps=2), edge_mask_type="object", node_mask_type="object")
    before, random = state(model), torch.get_rng_state()
    explain_many(explain, data, [0, 5], **arguments(model, data))
    assert_same(before, state(model))
    assert torch.equal(random, torch.get_rng_state())


def test_masks_that_another_explainer_left_on_the_model_change_nothing() -> None:
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
def test_denormal_numbers_are_flushed_only_while_the_model_is_borrowed(before: bool) -> None:
    """Afterwards the setting is as before, also if something raises."""

    def counts() -> bool:
        return float(torch.tensor(1e-38) / 1e3) != 0

    torch.set_flush_denormal(before)
    try:
        with contextlib.suppress(ZeroDivisionError), borrow(seeded(NODE_MODELS["gcn"])):
            assert not counts()
            raise ZeroDivisionError
        assert counts() is not before
    finally:
        torch.set_flush_denormal(False)
