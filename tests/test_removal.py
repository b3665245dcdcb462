"""Edges really deleted: worlds are smaller graphs, whatever the layers make of them, and explanations say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_causal_model import ROWS, causal_model, causal_models
from torch import Tensor, nn
from zoo import (
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_CONFIG,
    NODE_MODELS,
    EdgeClassifier,
    Link,
    Molecule,
    Planted,
    arguments,
    explainer,
    graph,
    quick,
    seeded,
)

from nseg import NSEG, InputError, SettingsError, baselines, certify, explain_many
from nseg.explanation import copy_explanation
from nseg.metrics import Evaluator
from nseg.model.borrow import borrow
from nseg.model.removal import OneAtATime, SmallerGraphs
from nseg.model.rescaling import RescaledMessages
from nseg.search.enumeration import best_subset
from nseg.search.parts import MaskParts, Masks
from nseg.search.settings import INTERVENTIONS, Settings
from nseg.search.worlds import evaluate
from nseg.wording import VERDICTS, verdict

MOLECULES = [graph(nodes=6 + n, edges=9, seed=n) for n in range(4)]
GIVEN = 4
SHARES = torch.tensor([0.2, 0.6, 0.95, 0.0]).unsqueeze(1)
OUTSIDE = torch.tensor([0.0, 1.0, 0.0, 1.0])


def rebuilt(model: nn.Module, data: Any, keep: Tensor) -> Tensor:
    """The output on a graph that has only the kept edges."""
    kept = {name: value[keep] for name, value in arguments(model, data).items()}
    return model(data.x, data.edge_index[:, keep], **kept)


def kinds_of(name: str) -> list[str]:
    """All kinds of graphs for one model of each way to delete edges; those with loops and repeated edges for the others."""
    every = ["undirected", "directed", "loops", "all loops", "duplicates", "empty"]
    return every if name in ("gcn", "gat", "cheb") else ["loops", "duplicates"]


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in NODE_MODELS for kind in kinds_of(name)])
def test_a_world_without_edges_is_the_graph_rebuilt_without_them(name: str, kind: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(kind=kind)
    with borrow(model), torch.no_grad():
        for which, causal in causal_models(model, data)[1]:
            here, rng = causal.instances, torch.Generator().manual_seed(5)
            edge = (torch.rand(GIVEN, here.num_edges, generator=rng) < SHARES).float()
            p = causal.removing().do({"edges": edge, "outside": OUTSIDE})
            for b, number in enumerate(which.tolist()):
                mine = here.edge_owner == b
                for world in range(GIVEN):
                    full = OUTSIDE[world].expand(data.num_edges).clone()
                    keep = full.index_copy(0, here.edge_id[mine], edge[world, mine]) > 0.5
                    expected = rebuilt(model, data, keep)[ROWS[number]].softmax(-1)[here.target[b]]
                    torch.testing.assert_close(p[world, b], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "kind"), [("gcn", RescaledMessages), ("sage", RescaledMessages), ("gat", SmallerGraphs), ("cheb", OneAtATime)]
)
def test_the_fast_way_is_used_where_it_is_exact(name: str, kind: type) -> None:
    with causal_model(seeded(NODE_MODELS[name]), graph(), ROWS) as causal:
        assert isinstance(causal._remover_of(False), kind)


@pytest.mark.parametrize("name", ["gcn", "gcn, no self-loops", "sage", "gat", "cheb"])
def test_some_instances_or_copies_are_as_in_the_batch(name: str) -> None:
    with causal_model(seeded(NODE_MODELS[name]), graph(), ROWS) as causal, torch.no_grad():
        here, rng = causal.instances, torch.Generator().manual_seed(0)
        edge = (torch.rand(GIVEN, here.num_edges, generator=rng) < SHARES).float()
        p = causal.removing().do({"edges": edge, "outside": OUTSIDE})
        some = torch.tensor([2, 0])
        members = torch.cat([(here.edge_owner == b).nonzero().flatten() for b in some.tolist()])
        fewer = causal.select(some).removing().do({"edges": edge[:, members], "outside": OUTSIDE})
        torch.testing.assert_close(fewer, p[:, some])
        twice = causal.repeat(2).removing().do({"edges": edge.repeat(1, 2), "outside": OUTSIDE})
        torch.testing.assert_close(twice, p.repeat(1, 2))


@pytest.mark.parametrize("name", ["gin", "gine", "graph conv"])
def test_masking_is_removing_for_sums(name: str) -> None:
    explain, data = explainer(seeded(NODE_MODELS[name]), quick(steps=5)), graph()
    for one in explain_many(explain, data, range(4)):
        assert one.pns_masked == pytest.approx(one.pns_removed, abs=1e-5)
        assert one.holds_masked == one.holds_removed


@pytest.mark.parametrize("name", ["gcn", "gat", "sage"])
def test_both_is_the_smaller_of_the_two(name: str) -> None:
    with causal_model(seeded(NODE_MODELS[name]), graph(), ROWS) as causal:
        parts, rng = MaskParts.of(causal.instances, True), torch.Generator().manual_seed(1)
        masks = Masks(edges=(torch.rand(20, causal.instances.num_edges, generator=rng) < 0.5).float())
        mask, remove, both = (evaluate(causal, parts, masks, (1.0,), one) for one in INTERVENTIONS)
        gaps = [one.p_factual - one.p_complement for one in (mask, remove, both)]
        assert torch.equal(gaps[2], torch.minimum(gaps[0], gaps[1]))
        assert torch.equal(both.keeps, torch.minimum(mask.keeps, remove.keeps))
        assert torch.equal(both.remains, torch.maximum(mask.remains, remove.remains))


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("intervention", ["remove", "both"])
@pytest.mark.parametrize("name", ["gcn, no self-loops", "gat"])
def test_numbers_are_those_of_the_graph_with_edges_deleted(name: str, intervention: str, undirected: bool) -> None:
    model, data = seeded(NODE_MODELS[name]), graph()
    explain = explainer(model, NSEG(intervention=intervention, undirected=undirected, steps=3, exact=4, rounds=1))
    rows = [0, 11]
    for one in explain_many(explain, data, rows):
        kept = torch.zeros(data.num_edges, dtype=torch.bool)
        kept[one.edge_id] = one.hard_edge_mask.bool()
        target = int(one.target[one.index])
        with torch.no_grad():
            p, q = (rebuilt(model, data, keep)[one.output_id].softmax(-1) for keep in (kept, ~kept))
        assert one.pns_removed == pytest.approx(max(0.0, float(p[target] - q[target])), abs=1e-4)
        assert one.holds_removed == bool(p.argmax() == target and q.argmax() != target)
        assert one.pns == pytest.approx(min(one.pns_masked, one.pns_removed) if intervention == "both" else one.pns_removed)
    alone = explain(data.x, data.edge_index, index=one.output_id)
    assert torch.equal(alone.hard_edge_mask[one.edge_id], one.hard_edge_mask)
    assert alone.pns == pytest.approx(one.pns, abs=1e-5)


@pytest.mark.parametrize("intervention", INTERVENTIONS)
def test_a_smaller_tolerance_is_never_worse(intervention: str) -> None:
    model, data, found = seeded(NODE_MODELS["gat"]), graph(), []
    for tolerance in (0.0, 0.05):
        algorithm = NSEG(intervention=intervention, tolerance=tolerance, steps=5, exact=0)
        found.append(explain_many(explainer(model, algorithm), data, range(3)))
    for best, some in zip(*found, strict=True):
        assert best.pns >= some.pns - 1e-4


@pytest.mark.parametrize("intervention", INTERVENTIONS)
def test_enumeration_finds_the_best_subset(intervention: str) -> None:
    """Each subset is asked for on its own, so that factual and complement worlds differ in the edges outside."""
    with causal_model(seeded(NODE_MODELS["gcn"]), graph(20, 18, seed=2), range(20)) as every_node:
        small = (MaskParts.of(every_node.instances, True).count <= 6).nonzero().flatten()
        causal = every_node.select(small)
        parts = MaskParts.of(causal.instances, True)
        settings = Settings(intervention=intervention, tolerance=0.0)
        kept, exact = best_subset(causal, parts, settings, 6)
        assert bool(exact.all())
        code = torch.arange(1 << 6).unsqueeze(1)
        every = Masks(edges=((code >> parts.position) & 1).float())
        everything = evaluate(causal, parts, every, (1.0,), intervention)
        value, nothing = everything.p_factual - everything.p_complement, parts.size(every) == 0
        best = torch.where(nothing, value.clamp(max=0), value).amax(0)  # what keeps nothing shows nothing
        own = evaluate(causal, parts, Masks(edges=kept.float().unsqueeze(0)), (1.0,), intervention)
        gap = (own.p_factual - own.p_complement)[0]
        torch.testing.assert_close(torch.where(parts.size(Masks(edges=kept.float())) == 0, gap.clamp(max=0), gap), best)


@pytest.mark.parametrize(
    ("model", "config", "data"),
    [
        (Molecule, GRAPH_CONFIG, MOLECULES),
        (Link, LINK_CONFIG, graph()),
        (EdgeClassifier, {**NODE_CONFIG, "task_level": "edge"}, graph()),
    ],
)
def test_every_level_can_be_explained(model: Any, config: dict[str, str], data: Any) -> None:
    pairs = {"edge_label_index": torch.tensor([[0, 3, 7], [5, 4, 1]])} if model is Link else {}
    for masks in ({"edge_mask_type": "object"}, {"edge_mask_type": "object", "node_mask_type": "object"}):
        explain = explainer(seeded(model), NSEG(intervention="remove", steps=2, exact=4, rounds=1), config, **masks)
        for one in explain_many(explain, data, [0, 2], **pairs):
            assert one.intervention == "remove"
            assert one.pns == one.pns_removed
            assert one.pns_masked is not None


@pytest.mark.parametrize("method", ["occlusion", "gnnexplainer", "exhaustive"])
def test_every_method_can_be_judged_by_removal(method: str) -> None:
    model, data = seeded(NODE_MODELS["gat"]), graph(20, 18, seed=2)
    found = {}
    for intervention in ("mask", "remove"):
        explain = explainer(model, baselines.make(method, intervention=intervention))
        found[intervention] = explain_many(explain, data, [1, 4, 9])
    assert sum(one.pns_removed for one in found["remove"]) >= sum(one.pns_removed for one in found["mask"]) - 0.05
    assert {one.intervention for one in found["remove"]} == {"remove"}


def test_metrics_and_certificates_agree_with_the_explanation() -> None:
    data, model = graph(), seeded(NODE_MODELS["gcn"])
    for intervention in INTERVENTIONS:
        explain = explainer(model, NSEG(intervention=intervention, steps=3, rounds=1))
        found = explain_many(explain, data, range(3))
        each = Evaluator(explain, data, found).each("hard", intervention)
        assert each.pns.tolist() == pytest.approx([one.pns for one in found], abs=1e-4)
        holds = (each.changed_with == 0) & (each.changed_without == 1)
        assert holds.tolist() == [bool(one.keeps and one.changes) for one in found]
        certificates = certify(explain, data, found)
        assert [one.pns for one in certificates] == pytest.approx([one.pns for one in found], abs=1e-4)
        assert all(one.ceiling >= one.pns - 1e-5 for one in certificates)


def test_bad_names_get_a_sentence() -> None:
    with pytest.raises(SettingsError, match="intervention must be one of 'mask', 'remove', 'both'"):
        NSEG(intervention="delete")
    data, explain = graph(), explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2))
    with pytest.raises(InputError, match="intervention must be"):
        Evaluator(explain, data, explain_many(explain, data, [1])).each("hard", "delete")


# --- verdicts --------------------------------------------------------------------------------------------------------------


def test_verdicts_follow_from_what_the_model_does() -> None:
    expected = {(True, True): "both", (True, False): "sufficient", (False, True): "necessary", (False, False): "neither"}
    for (keeps, changes), key in expected.items():
        assert verdict(keeps, changes, False) == key
        assert verdict(keeps, changes, True) == (key if changes else "unexplained")


def test_a_class_that_is_given_anyway_is_said_so() -> None:
    """With a bias of 4 the model gives the class whatever is kept: nothing can be necessary."""
    data = graph()
    data.x = torch.ones(data.num_nodes, 1)
    config = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
    explain = explainer(Planted(bias=4.0), NSEG(steps=5), config)
    (one,) = explain_many(explain, data, [int(data.edge_index[1, 0])])
    assert (one.keeps, one.changes, one.keeps_empty) == (True, False, True)
    assert one.p_empty == pytest.approx(float(torch.sigmoid(torch.tensor(4.0))), abs=1e-5)
    assert one.verdict == VERDICTS["unexplained"]
    assert "Edges do not explain this prediction: the model says class 1 without any of them too (p 0.982)." in one.words()
    assert "Try its features" in one.words()
    (certificate,) = certify(explain, data, [one])
    if not certificate.kept:
        assert "PS >=" not in certificate.words()


def test_words_say_whether_an_explanation_survives_deletion() -> None:
    data, model = graph(), seeded(NODE_MODELS["gat"])
    for intervention, words in (("mask", "really deleted: PNS at least"), ("remove", "Edges were really deleted")):
        explain = explainer(model, NSEG(intervention=intervention, steps=3, rounds=1))
        for one in explain_many(explain, data, range(4)):
            assert (words in one.words()) == (one.holds_masked or one.holds_removed)
            assert one.verdict in VERDICTS.values()


# --- paths -----------------------------------------------------------------------------------------------------------------


EDGES, NODES = {"edge_mask_type": "object"}, {"node_mask_type": "object"}


@pytest.mark.parametrize(
    ("intervention", "undirected", "masks"),
    [*((one, False, EDGES) for one in INTERVENTIONS), ("remove", True, EDGES), ("remove", False, EDGES | NODES)],
)
def test_a_path_holds_the_bound_of_each_of_its_subsets(intervention: str, undirected: bool, masks: dict[str, str]) -> None:
    data, model = graph(), seeded(NODE_MODELS["gcn"])
    explain = explainer(model, NSEG(intervention=intervention, undirected=undirected, steps=3, rounds=1), **masks)
    changed, points = [], []
    for one in explain_many(explain, data, [0, 11]):
        path = one.path()
        sizes = [point.size for point in path]
        assert sizes == sorted(set(sizes))
        assert any(point.pns == pytest.approx(one.pns, abs=1e-5) and same(point, one) for point in path)
        for point in path:
            copy = copy_explanation(one)
            copy.hard_edge_mask = point.edge_mask
            if point.node_mask is not None:
                copy.hard_node_mask = point.node_mask
            changed.append(copy)
            points.append(point)
    each = Evaluator(explain, data, changed).each("hard", intervention)
    assert each.pns.tolist() == pytest.approx([point.pns for point in points], abs=1e-4)


def same(point: Any, one: Any) -> bool:
    """Whether a point of a path is the explanation itself."""
    nodes = point.node_mask is None or torch.equal(point.node_mask, one.hard_node_mask)
    return nodes and torch.equal(point.edge_mask, one.hard_edge_mask)
