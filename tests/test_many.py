"""Batch = loop: each answer equals the one that the instance gets alone, with noise, in any order and any batches."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import DummyExplainer, Explanation, GNNExplainer
from zoo import (
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_CONFIG,
    NODE_MODELS,
    EdgeClassifier,
    Link,
    Molecule,
    NoBatch,
    arguments,
    explainer,
    graph,
    quick,
    seeded,
)

from nseg import NSEG, NsegWarning, explain_many

MASKS = {
    "e": {"edge_mask_type": "object"},
    "f": {"node_mask_type": "object"},
    "ef": {"edge_mask_type": "object", "node_mask_type": "object"},
    "attributes": {"edge_mask_type": "object", "node_mask_type": "attributes"},
    "common": {"node_mask_type": "common_attributes"},
}
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}
NOISY = {"steps": 5, "samples": 2, "noise": 0.2, "patience": 2, "starts": (0.0, 2.0)}
NOISY |= {"path_points": 2, "rounds": 1, "kicks": 1, "exact": 6, "intervention": "mask"}  # test_removal.py deletes
"""Noise in the complement, two starts, instances that stop early, moves, kicks and small enumerations: all at once."""


def agree(one: Explanation, full: Explanation) -> None:
    """An explanation on a computation graph equals one on the whole graph."""
    if one.get("edge_mask") is not None:
        torch.testing.assert_close(one.edge_mask, full.edge_mask[one.edge_id], **TOLERANCE)
        outside = torch.ones(full.edge_mask.numel(), dtype=torch.bool)
        outside[one.edge_id] = False
        assert not full.edge_mask[outside].any()
    if one.get("node_mask") is not None:
        node = full.node_mask if full.node_mask.size(0) == 1 else full.node_mask[one.node_id]
        torch.testing.assert_close(one.node_mask, node, **TOLERANCE)
    for key in ("soft_p_factual", "soft_p_complement"):
        assert one[key] == pytest.approx(full[key], abs=1e-4)


def agree_also_hard(one: Explanation, full: Explanation) -> None:
    """So do the numbers of their hard masks."""
    agree(one, full)
    assert one.pns == pytest.approx(full.pns, abs=1e-4)
    assert one.exact == full.exact


ALL_MASKS = ("gcn", "gin", "gat")
LARGEST_MASKS = ("gine", "cheb", "both directions", "shared layer, jumping knowledge, batch norm, dropout")


def masks_of(name: str) -> list[str]:
    """All kinds for a normalised, a summing and an attentive layer; edges for every layer; the largest for some others."""
    return list(MASKS) if name in ALL_MASKS else ["e", *(["attributes"] if name in LARGEST_MASKS else [])]


@pytest.mark.parametrize(("name", "masks"), [(name, masks) for name in NODE_MODELS for masks in masks_of(name)])
def test_nodes_in_a_batch_are_explained_as_alone(name: str, masks: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph()
    moves = {} if name in ALL_MASKS else {"rounds": 0, "kicks": 0}  # moves know nothing of layers
    slow = {"exact": 0} if name == "global mean" else {}  # each world is a pass of its own there
    explain = explainer(model, NSEG(**{**NOISY, "seed": 3, **moves, **slow}), **MASKS[masks])
    rows = [5, 0, 5]
    kwargs = arguments(model, data)
    found = explain_many(explain, data, rows, **kwargs)
    assert [one.output_id for one in found] == rows
    for one in found[1:2]:
        agree_also_hard(one, explain(data.x, data.edge_index, index=one.output_id, **kwargs))
    assert found[0].pns == pytest.approx(found[-1].pns, abs=1e-4)  # the same node twice


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_batch_size_and_order_do_not_matter(draw) -> None:
    name = draw.draw(st.sampled_from(["gcn", "gin", "gat", "sage", "transformer", "tag"]))
    kind = draw.draw(st.sampled_from(["undirected", "directed", "loops", "duplicates"]))
    data = graph(nodes=9, edges=draw.draw(st.integers(0, 24)), seed=draw.draw(st.integers(0, 99)), kind=kind)
    masks = draw.draw(st.sampled_from(sorted(MASKS)))
    model = seeded(NODE_MODELS[name])
    explain = explainer(model, NSEG(**NOISY), **MASKS[masks])
    rows = draw.draw(st.permutations(range(9)))
    budget = draw.draw(st.sampled_from([1_200_000, 2_400_000, 2**28]))
    whole = {one.output_id: one for one in explain_many(explain, data, range(9))}
    for one in explain_many(explain, data, rows, budget=budget):
        other = whole[one.output_id]
        assert torch.equal(one.edge_id, other.edge_id)
        for key in ("edge_mask", "node_mask"):
            if one.get(key) is not None:
                torch.testing.assert_close(one[key], other[key], **TOLERANCE)
        assert one.soft_p_factual == pytest.approx(other.soft_p_factual, abs=1e-4)


def graphs(count: int = 7) -> list[Data]:
    return [graph(nodes=5 + s, edges=9, seed=s, kind="undirected" if s else "empty") for s in range(count)]


@pytest.mark.parametrize(("make", "masks"), [*((Molecule, masks) for masks in MASKS), (NoBatch, "e")], ids=str)
def test_graphs_in_a_batch_are_explained_as_alone(make, masks: str) -> None:
    slow = make is NoBatch  # each world is a pass of its own there
    model, few, some = seeded(make), {"steps": 3, "exact": 0} if slow else {}, graphs(3)
    explain = explainer(model, NSEG(**{**NOISY, **few}), GRAPH_CONFIG, **MASKS[masks])
    found = explain_many(explain, some)
    backwards = explain_many(explain, some[::-1], budget=700_000)[::-1]
    picked = explain_many(explain, some, index=[2, 0])
    assert [one.output_id for one in picked] == [2, 0]
    alone = [explain(one.x, one.edge_index) for one in some]
    for here, there, one in zip(found, backwards, alone, strict=True):
        agree_also_hard(here, one)
        agree_also_hard(there, one)
    agree(picked[0], alone[2])
    if make is Molecule:  # a batch of graphs, of which one is explained, and a batch given to explain_many
        batch = Batch.from_data_list(some)
        full = explain(batch.x, batch.edge_index, batch=batch.batch, index=2)
        own = batch.batch == 2
        if full.get("edge_mask") is not None:
            mine = own[batch.edge_index[0]]
            torch.testing.assert_close(full.edge_mask[mine], found[2].edge_mask, **TOLERANCE)
            assert not full.edge_mask[~mine].any()
        again = explain_many(explain, batch)
        assert again[2].p_factual == pytest.approx(found[2].p_factual, abs=1e-5)


@pytest.mark.parametrize("masks", MASKS)
def test_links_in_a_batch_are_explained_as_alone(masks: str) -> None:
    model, data = seeded(Link), graph()
    pairs = torch.tensor([[0, 3, 7, 5], [2, 9, 7, 11]])
    explain = explainer(model, NSEG(**NOISY), LINK_CONFIG, **MASKS[masks])
    found = explain_many(explain, data, [2, 0, 3], edge_label_index=pairs)
    assert [one.output_id for one in found] == [2, 0, 3]
    for one in found[:2]:
        agree(one, explain(data.x, data.edge_index, index=one.output_id, edge_label_index=pairs))


def test_edges_of_the_graph_can_be_explained_as_outputs() -> None:
    model, data = seeded(EdgeClassifier), graph(kind="directed")
    config = {**NODE_CONFIG, "task_level": "edge"}
    explain = explainer(model, NSEG(**NOISY), config)
    for one in explain_many(explain, data, [4, 17]):
        agree(one, explain(data.x, data.edge_index, index=one.output_id))
        assert one.edge_id[one.index].tolist() == [one.output_id]


@pytest.mark.parametrize("algorithm", [GNNExplainer(epochs=3), DummyExplainer()])
def test_algorithms_that_cannot_batch_are_called_once_per_instance(algorithm) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, algorithm, edge_mask_type="object", node_mask_type="attributes")
    torch.manual_seed(0)
    found = explain_many(explain, data, [5, 2])
    torch.manual_seed(0)
    for one in found:
        full = explain(data.x, data.edge_index, index=one.output_id)
        torch.testing.assert_close(one.edge_mask, full.edge_mask[one.edge_id])
        torch.testing.assert_close(one.node_mask, full.node_mask[one.node_id])
    model, some = seeded(Molecule), graphs(3)
    explain = explainer(model, algorithm, GRAPH_CONFIG, edge_mask_type="object")
    assert [one.edge_mask.numel() for one in explain_many(explain, some)] == [g.num_edges for g in some]


def test_the_model_gives_its_prediction_on_the_computation_graph_alone() -> None:
    data = graph(nodes=40, edges=50)
    for name in NODE_MODELS.keys() - {"gcn, cached"}:  # which takes any graph for the first one it saw
        model = seeded(NODE_MODELS[name])
        explain = explainer(model, quick(steps=0))
        kwargs = arguments(model, data)
        with torch.no_grad():
            full = model(data.x, data.edge_index, **kwargs)
        for one in explain_many(explain, data, [3, 30], **kwargs):
            extra = {k: one[k] for k in one._model_args}
            with torch.no_grad():
                here = model(one.x, one.edge_index, **extra)
            torch.testing.assert_close(here[one.index[0]], full[one.output_id], rtol=1e-3, atol=1e-3, msg=name)
            assert torch.equal(one.prediction.argmax(-1)[one.index], full.argmax(-1)[[one.output_id]])
            assert torch.equal(one.node_id[one.edge_index], data.edge_index[:, one.edge_id])


def test_phenomenon_explains_the_given_class() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, quick(steps=3), explanation_type="phenomenon", edge_mask_type="object")
    for found in (explain_many(explain, data, [2, 9]), explain_many(explain, data, [2, 9], target=data.y)):
        for one in found:
            assert int(one.target[one.index]) == int(data.y[one.output_id])
            agree(one, explain(data.x, data.edge_index, index=one.output_id, target=data.y))
    other = explain_many(explain, data, [2], target=(data.y + 1) % 3)[0]
    assert other.p_factual != pytest.approx(found[0].p_factual, abs=1e-4)
    some = graphs(3)
    labelled = [Data(x=g.x, edge_index=g.edge_index, y=torch.tensor([2])) for g in some]
    molecule = seeded(Molecule)
    explain = explainer(molecule, quick(steps=2), GRAPH_CONFIG, explanation_type="phenomenon", edge_mask_type="object")
    one = explain_many(explain, labelled)[1]
    with torch.no_grad():
        p = molecule(some[1].x, some[1].edge_index).softmax(-1)[0, 2]
    all_kept = explain_many(
        explainer(
            molecule,
            quick(steps=0, extract="threshold", threshold=0.0),
            GRAPH_CONFIG,
            explanation_type="phenomenon",
            edge_mask_type="object",
        ),
        labelled,
    )[1]
    assert all_kept.p_factual == pytest.approx(float(p), abs=1e-5)
    assert one.target.tolist() == [2]


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph()
    explain_many(explainer(model, quick(steps=3)), data, [1, 2], progress=True)
    assert "explaining" in capsys.readouterr().err
    explain_many(explainer(model, quick(steps=3)), data, [1, 2])
    assert capsys.readouterr().err == ""


class PassesOn(nn.Module):
    """A wrapper whose own signature says nothing."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.inner(*args, **kwargs)


def test_a_wrapper_that_passes_everything_on_is_run_like_what_it_wraps() -> None:
    graphs = [graph(6, 7, seed) for seed in range(3)]
    inner = seeded(Molecule)
    wrapped, plain = (explainer(model, NSEG(steps=3), GRAPH_CONFIG) for model in (PassesOn(PassesOn(inner)), inner))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # several graphs share a pass
        found = explain_many(wrapped, graphs)
    assert [one.pns for one in found] == [one.pns for one in explain_many(plain, graphs)]
    with pytest.warns(NsegWarning, match="Its forward has no argument named batch"):
        explain_many(explainer(PassesOn(seeded(NoBatch)), NSEG(steps=1), GRAPH_CONFIG), graphs[:2])
