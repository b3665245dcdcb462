"""Metrics against independent sources: PyG where it is right, scikit-learn, brute force, cases solved by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, jaccard_score, precision_score, roc_auc_score
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from torch_geometric.explain.metric import fidelity as pyg_fidelity
from torch_geometric.explain.metric import unfaithfulness as pyg_unfaithfulness
from torch_geometric.utils import k_hop_subgraph
from zoo import (
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_MODELS,
    GlobalMean,
    Link,
    Molecule,
    arguments,
    explainer,
    graph,
    quick,
    seeded,
)

from nseg import InputError, explain_many, metrics
from nseg.datasets import Benchmark, load
from nseg.metrics import Evaluator, scores
from nseg.metrics.removal import outputs_after_removal
from nseg.models import pretrained

MASKS = {
    "e": {"edge_mask_type": "object"},
    "f": {"node_mask_type": "object"},
    "ef": {"edge_mask_type": "object", "node_mask_type": "object"},
    "common": {"node_mask_type": "common_attributes"},
}


# --- functions of tensors ------------------------------------------------------------------------------------------------

sets = st.lists(st.booleans(), min_size=1, max_size=30)


@given(st.data())
def test_set_scores_equal_scikit_learns(draw) -> None:
    kept = draw.draw(sets)
    truth = draw.draw(st.lists(st.booleans(), min_size=len(kept), max_size=len(kept)))
    a, b = torch.tensor(kept), torch.tensor(truth)
    assert scores.precision(a, b) == pytest.approx(precision_score(truth, kept, zero_division=0))
    assert scores.f1(a, b) == pytest.approx(f1_score(truth, kept, zero_division=0))
    if any(kept) or any(truth):
        assert scores.jaccard(a, b) == pytest.approx(jaccard_score(truth, kept, zero_division=0))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_roc_auc_equals_scikit_learns_also_with_ties(pairs) -> None:
    score = torch.tensor([s / 5 for s, _ in pairs])
    truth = torch.tensor([t for _, t in pairs])
    if truth.any() and not truth.all():
        assert scores.roc_auc(score, truth) == pytest.approx(roc_auc_score(truth.numpy(), score.numpy()))
    else:
        assert math.isnan(scores.roc_auc(score, truth))


def test_degenerate_cases_have_a_defined_value() -> None:
    none, nothing = torch.zeros(3, dtype=torch.bool), torch.zeros(0)
    assert scores.jaccard(none, none) == 1.0
    assert scores.precision(none, ~none) == 0.0
    assert scores.f1(none, none) == 0.0
    assert math.isnan(scores.recall_at_k(torch.rand(3), none, 2))
    assert scores.recall_at_k(torch.rand(3), ~none, 3) == 1.0
    assert scores.recall_at_k(torch.ones(8), torch.arange(8) < 2, 4) == 0.5  # a constant mask gets what chance gives
    assert scores.recall_at_k(torch.ones(8), torch.arange(8) >= 6, 4) == 0.5
    assert float(scores.sparsity(nothing)) == 1.0
    assert float(scores.entropy(nothing)) == 0.0
    assert float(scores.charact(torch.tensor(0.0), torch.tensor(1.0))) == 0.0
    assert float(scores.charact(torch.tensor(0.0), torch.tensor(0.5))) == 0.0  # where PyG's divides by zero
    assert float(scores.connectedness(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), 3)) == 1.0
    low, high = scores.bootstrap(torch.tensor([float("nan")]))
    assert math.isnan(low)
    assert math.isnan(high)
    assert scores.area(torch.tensor([0.5]), torch.tensor([0.25])) == 0.25


def test_recall_counts_ground_truth_out_of_reach() -> None:
    score, truth = torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True])
    assert scores.recall_at_k(score, truth, 2, total=4) == 0.25
    assert scores.recall_at_k(score, truth, 2) == 0.5


def test_bootstrap_covers_the_mean_as_often_as_promised() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for number in range(200):
        low, high = scores.bootstrap(torch.from_numpy(rng.normal(1.0, 2.0, 60)), 0.9, samples=300, seed=number)
        hits += low <= 1.0 <= high
    assert 0.82 <= hits / 200 <= 0.96


# --- measured on the model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("name", ["gcn", "gin", "gat", "gcn, edge weights", "global mean"])
def test_fidelity_is_the_mean_of_pygs_over_instances(name: str, masks: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(nodes=20, edges=30)
    explain = explainer(model, quick(steps=3), **MASKS[masks])
    found = explain_many(explain, data, range(3), **arguments(model, data))
    evaluator = Evaluator(explain, data, found)
    soft = evaluator.fidelity("soft")
    by_pyg = np.array([pyg_fidelity(explain, one) for one in found])
    assert soft.fid_plus == pytest.approx(by_pyg[:, 0].mean(), abs=1e-6)
    assert soft.fid_minus == pytest.approx(by_pyg[:, 1].mean(), abs=1e-6)
    assert (soft.masks, soft.intervention, soft.instances) == ("soft", "mask", 3)
    expected = np.mean([pyg_unfaithfulness(explain, one) for one in found])
    assert float(evaluator.unfaithfulness().mean()) == pytest.approx(expected, abs=1e-4)
    hard = evaluator.fidelity("hard")
    assert hard.pns == pytest.approx(np.mean([one.pns for one in found]), abs=1e-5)
    assert hard.pn == pytest.approx(np.mean([one.pn for one in found]), abs=1e-4)
    assert hard.ps == pytest.approx(np.mean([one.ps for one in found]), abs=1e-4)


def test_fidelity_of_graphs_and_links() -> None:
    some = [graph(nodes=6 + s, edges=9, seed=s) for s in range(5)]
    explain = explainer(seeded(Molecule), quick(steps=8), GRAPH_CONFIG)
    found = explain_many(explain, some)
    result = Evaluator(explain, some, found).fidelity()
    by_pyg = np.array([pyg_fidelity(explain, one) for one in found])
    assert (result.fid_plus, result.fid_minus) == pytest.approx(tuple(by_pyg.mean(0)))
    data = graph()
    data.edge_label_index = torch.tensor([[0, 3, 7], [2, 9, 11]])
    explain = explainer(seeded(Link), quick(steps=8), LINK_CONFIG)
    found = explain_many(explain, data)
    result = Evaluator(explain, data, found).fidelity()
    by_pyg = np.array([pyg_fidelity(explain, one) for one in found])
    assert (result.fid_plus, result.fid_minus) == pytest.approx(tuple(by_pyg.mean(0)))
    assert float(Evaluator(explain, data, found).unfaithfulness().min()) >= 0
    ones = metrics.trivial(found, "none")
    assert float(Evaluator(explain, data, ones).unfaithfulness().max()) > 0  # where PyG's is always 0


@pytest.mark.parametrize("name", ["gcn", "gin", "sage"])
def test_removal_is_deleting_edges(name: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(nodes=30, edges=50)
    explain = explainer(model, quick(steps=8))
    found = explain_many(explain, data, range(10))
    evaluator = Evaluator(explain, data, found)
    result = evaluator.fidelity("hard", "remove")
    with torch.no_grad():
        label = model(data.x, data.edge_index).argmax(-1)
        plus = minus = 0
        for one in found:
            gone = one.edge_id[one.hard_edge_mask]
            keep = torch.ones(data.num_edges, dtype=torch.bool)
            keep[gone] = False
            plus += int(model(data.x, data.edge_index[:, keep])[one.output_id].argmax() != label[one.output_id])
            minus += int(model(data.x, data.edge_index[:, ~keep])[one.output_id].argmax() != label[one.output_id])
    assert (result.fid_plus, result.fid_minus) == pytest.approx((plus / 10, minus / 10))
    assert result.intervention == "remove"
    if name == "gin":  # for sums, masking is removal
        masked = evaluator.fidelity("hard", "mask")
        assert (masked.fid_plus, masked.fid_minus) == pytest.approx((result.fid_plus, result.fid_minus))
    with pytest.raises(InputError, match="Masks must be hard"):
        evaluator.fidelity("soft", "remove")


def test_removal_from_a_model_that_mixes_nodes_runs_one_graph_at_a_time() -> None:
    model, data = seeded(GlobalMean), graph()
    explain = explainer(model, quick(steps=2))
    found = explain_many(explain, data, [3, 7])
    evaluator = Evaluator(explain, data, found)
    result = outputs_after_removal(evaluator, evaluator.masks("hard"))
    with torch.no_grad():
        for b, one in enumerate(found):
            expected = model(data.x, data.edge_index[:, one.edge_id[one.hard_edge_mask]])[one.output_id]
            torch.testing.assert_close(result[0, b], expected, rtol=1e-4, atol=1e-4)


def test_curves_equal_fidelity_point_by_point() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=30, edges=50)
    explain = explainer(model, quick(steps=8))
    evaluator = Evaluator(explain, data, explain_many(explain, data, range(8)))
    curve = evaluator.thresholds((0.2, 0.5, 0.8))
    for number, threshold in enumerate((0.2, 0.5, 0.8)):
        point = evaluator.fidelity(threshold)
        assert float(curve.charact[number]) == pytest.approx(point.charact)
        assert float(curve.sparsity[number]) == pytest.approx(point.sparsity)
    assert (curve.sparsity.diff() >= 0).all()
    along = evaluator.sparsities((0.0, 0.5, 0.9))
    assert float(along.fid_minus[0]) == 0.0  # everything is kept
    sizes = [int(one.reached.sum()) for one in evaluator.explanations]
    half = [1 - round(0.5 * n) / n if n else 1.0 for n in sizes]
    assert float(along.sparsity[1]) == pytest.approx(np.mean(half), abs=1e-6)
    assert 0 <= along.area <= 1


def test_a_curve_has_the_sparsities_that_were_asked_for_whatever_the_mask() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=30, edges=50)
    explain = explainer(model, quick(steps=2))
    found = explain_many(explain, data, data.edge_index[1].unique()[:8])
    for kind in ("all", "random"):
        curve = Evaluator(explain, data, metrics.trivial(found, kind)).sparsities((0.0, 0.5))
        assert float(curve.sparsity[0]) == 0.0
        assert float(curve.sparsity[1]) == pytest.approx(0.5, abs=0.1)
        assert float(curve.fid_minus[0]) == 0.0


def test_bad_arguments_get_a_sentence() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, quick(steps=2))
    found = explain_many(explain, data, [3, 5])
    evaluator = Evaluator(explain, data, found)
    for wrong, message in (
        (lambda: evaluator.fidelity("hard", "delete"), "'mask', 'remove', 'both'"),
        (lambda: evaluator.fidelity("Hard"), "'soft', 'hard' or a threshold"),
        (lambda: evaluator.thresholds(()), "ascending order"),
        (lambda: evaluator.thresholds((0.9, 0.1)), "ascending order"),
        (lambda: evaluator.robust_fidelity(alpha1=7), "must be probabilities"),
        (lambda: evaluator.robust_fidelity(samples=0), "at least 1"),
        (lambda: Evaluator(explain, data, []), "At least one"),
        (lambda: Evaluator(explain, graph(nodes=24, edges=3), found), "data must be what was explained"),
        (lambda: metrics.stability([found]), "at least two runs"),
        (lambda: metrics.perturbed_stability(explain, [data], [3]), "one graph"),
        (lambda: metrics.accuracy(planted_benchmark(), []), "At least one"),
        (lambda: metrics.trivial([], "all"), "At least one"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()
    nodes = explainer(model, quick(steps=2), node_mask_type="object")
    with pytest.raises(InputError, match="Only edges can be removed"):
        Evaluator(nodes, data, explain_many(nodes, data, [3])).fidelity("hard", "remove")


def test_robust_fidelity_does_not_depend_on_the_batch() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=30, edges=50)
    explain = explainer(model, quick(steps=4), edge_mask_type="object", node_mask_type="object")
    found = explain_many(explain, data, range(6))
    together = Evaluator(explain, data, found).robust_fidelity(0.5, 0.5, 10)["fid_plus"]
    alone = [Evaluator(explain, data, one).robust_fidelity(0.5, 0.5, 10)["fid_plus"] for one in reversed(found)]
    assert together == pytest.approx(np.mean(alone), abs=1e-6)


def test_robust_fidelity_of_a_phenomenon_is_about_its_class() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=30, edges=50)
    explain = explainer(model, quick(steps=8), explanation_type="phenomenon", edge_mask_type="object")
    evaluator = Evaluator(explain, data, explain_many(explain, data, range(8), target=(data.y + 1) % 3))
    hard, ends = evaluator.fidelity("hard"), evaluator.robust_fidelity(1.0, 0.0, samples=2)
    assert (ends["fid_plus"], ends["fid_minus"]) == pytest.approx((hard.fid_plus, hard.fid_minus))


def test_reachable_edges_are_found_for_other_algorithms() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=30, edges=50)
    explain = explainer(model, GNNExplainer(epochs=2))
    one = explain(data.x, data.edge_index, index=5)
    evaluator = Evaluator(explain, data, one)
    near = explain_many(explainer(model, quick(steps=0)), data, [5])[0]
    assert int(evaluator.reached[0].sum()) == int(near.reached.sum())
    expected = float(scores.sparsity((one.edge_mask[near.edge_id[near.reached]] > 0.5).float()))
    assert evaluator.fidelity(0.5).sparsity == pytest.approx(expected)
    assert metrics.trivial(one, "random")[0].output_id == 5
    assert metrics.stability([[one], [one]]).tolist() == [1.0]


def test_robust_fidelity_at_its_ends_is_fidelity_and_nothing() -> None:
    """If all of the explanation goes, or none of the rest stays, it is fidelity; if nothing goes, the graph itself."""
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=30, edges=50)
    explain = explainer(model, quick(steps=8))
    evaluator = Evaluator(explain, data, explain_many(explain, data, range(8)))
    hard = evaluator.fidelity("hard")
    ends = evaluator.robust_fidelity(1.0, 0.0, samples=3)
    assert (ends["fid_plus"], ends["fid_minus"]) == pytest.approx((hard.fid_plus, hard.fid_minus))
    ends = evaluator.robust_fidelity(0.0, 1.0, samples=3)
    assert (ends["fid_plus"], ends["fid_minus"]) == (0.0, 0.0)
    near = [evaluator.robust_fidelity(0.1, stays, samples=50)["fid_minus"] for stays in (1.0, 0.9, 0.1, 0.0)]
    assert near[0] == 0
    assert near[1] <= near[2]  # as in the paper, alpha2 = 0.9 is near the data
    assert evaluator.robust_fidelity(seed=1) == evaluator.robust_fidelity(seed=1)


def test_trivial_explanations_keep_all_or_nothing() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(nodes=30, edges=50)
    explain = explainer(model, quick(steps=2))
    found = explain_many(explain, data, data.edge_index[1].unique()[:8])  # nodes that messages reach
    everything = Evaluator(explain, data, metrics.trivial(found, "all")).fidelity("hard")
    assert (everything.fid_minus, everything.sparsity) == (0.0, 0.0)
    nothing = Evaluator(explain, data, metrics.trivial(found, "none")).fidelity("hard")
    assert (nothing.fid_plus, nothing.sparsity) == (0.0, 1.0)
    half = Evaluator(explain, data, metrics.trivial(found, "half")).fidelity("soft")
    assert half.fid_plus == half.fid_minus  # M and 1 - M are equal
    one, other = (metrics.trivial(found, "random", seed)[0].edge_mask for seed in (0, 1))
    assert not torch.equal(one, other)
    with pytest.raises(InputError, match="'all', 'none'"):
        metrics.trivial(found, "most")


def test_explanations_without_hard_masks_need_a_threshold() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, GNNExplainer(epochs=2))
    evaluator = Evaluator(explain, data, explain_many(explain, data, [3, 5]))
    assert 0 <= evaluator.fidelity(0.5).charact <= 1
    with pytest.raises(InputError, match="Give a threshold"):
        evaluator.fidelity("hard")
    with pytest.raises(InputError, match="must be of one output"):
        Evaluator(explain, data, explain(data.x, data.edge_index, index=torch.tensor([3, 5])))


def test_an_explanation_of_pygs_explainer_is_measured_like_one_of_many() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, quick(steps=8))
    one = explain(data.x, data.edge_index, index=5)
    many = explain_many(explain, data, [5])
    for masks in ("soft", "hard"):
        assert Evaluator(explain, data, one).fidelity(masks) == Evaluator(explain, data, many).fidelity(masks)
    alone = explainer(seeded(Molecule), quick(steps=8), GRAPH_CONFIG)
    found = alone(data.x, data.edge_index)
    assert Evaluator(alone, [data], found).fidelity() == Evaluator(alone, [data], explain_many(alone, [data])).fidelity()


# --- ground truth --------------------------------------------------------------------------------------------------------


def planted_benchmark() -> Benchmark:
    """A path 0-1-2-3-4-5; the motif of node 2 is 1-2-3."""
    ends = torch.stack([torch.arange(5), torch.arange(1, 6)])
    data = Data(x=torch.ones(6, 4), edge_index=torch.cat([ends, ends.flip(0)], 1), motif=torch.tensor([-1, 0, 0, 0, -1, -1]))
    return Benchmark("path", "node", [data], 2, torch.tensor([2]), k_edges=2, k_nodes=3)


def test_accuracy_by_hand() -> None:
    bench = planted_benchmark()
    data = bench.graphs[0]
    found = explain_many(explainer(seeded(NODE_MODELS["gin"]), quick(steps=1), **MASKS["ef"]), data, [2])
    one = found[0]
    ends = data.edge_index[:, one.edge_id]
    truth = ((ends >= 1) & (ends <= 3)).all(0)
    one.edge_mask = truth.float() * 0.5 + 0.1
    one.hard_edge_mask = truth.clone()
    result = metrics.accuracy(bench, found)
    assert [float(v) for v in vars(result).values()] == [1.0, 1.0, 1.0, 1.0, 1.0]
    one.edge_mask[truth.nonzero()[:1]] = 0.0  # one direction of a motif edge: the larger of both still counts for recall
    result = metrics.accuracy(bench, found)
    assert float(result.recall_at_k) == 1.0
    assert float(result.roc_auc) < 1.0
    one.node_mask = ((one.node_id >= 1) & (one.node_id <= 3)).float().unsqueeze(1)
    one.hard_node_mask = one.node_mask > 0.5
    assert float(metrics.accuracy(bench, found, "node").recall_at_k) == 1.0
    assert metrics.summarise(torch.tensor([1.0, 2.0, float("nan")]))["number"] == 2


@pytest.mark.parametrize("name", ["gcn", "gin"])
def test_accuracy_is_over_the_edges_of_the_l_hop_subgraph(name: str) -> None:
    """Against PyG's subgraph and scikit-learn's area, on random masks."""
    bench = load("tree-grid")
    data = bench.graphs[0]
    explain = explainer(pretrained("tree-grid", name), quick(steps=0, extract="threshold"), bench.model_config)
    found = metrics.trivial(explain_many(explain, data, bench.instances[:12]), "random")
    ours = metrics.accuracy(bench, found)
    for b, one in enumerate(found):
        _, _, _, near = k_hop_subgraph(one.output_id, 3, data.edge_index, num_nodes=data.num_nodes)
        truth = bench.truth(one.output_id).edge
        score = torch.zeros(data.num_edges).index_copy(0, one.edge_id, one.edge_mask)
        if truth[near].all():  # the whole neighbourhood is the motif
            assert math.isnan(float(ours.roc_auc[b]))
        else:
            area = roc_auc_score(truth[near].numpy(), score[near].numpy())
            assert float(ours.roc_auc[b]) == pytest.approx(area, abs=1e-6)
        weight: dict[tuple[int, int], float] = {}
        for edge in near.nonzero().flatten().tolist():
            pair = tuple(sorted(data.edge_index[:, edge].tolist()))
            weight[pair] = max(weight.get(pair, 0.0), float(score[edge]))
        motif = {tuple(sorted(e)) for e in data.edge_index[:, truth].T.tolist()}
        best = sorted(weight, key=lambda pair: -weight[pair])[: bench.k_edges]
        assert float(ours.recall_at_k[b]) == pytest.approx(len(motif & set(best)) / len(motif))


def test_no_ground_truth_is_nan() -> None:
    bench = planted_benchmark()
    found = explain_many(explainer(seeded(NODE_MODELS["gin"]), quick(steps=1)), bench.graphs[0], [5])
    assert all(math.isnan(float(v)) for v in vars(metrics.accuracy(bench, found)).values())


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 3))
def test_equal_seeds_are_perfectly_stable(seed: int) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    runs = [explain_many(explainer(model, quick(steps=5, seed=s)), data, [3, 5]) for s in (seed, seed)]
    assert metrics.stability(runs).tolist() == [1.0, 1.0]
    runs[1][0].hard_edge_mask = ~runs[1][0].hard_edge_mask
    assert float(metrics.stability(runs)[0]) == 0.0


def test_noise_of_zero_is_perfectly_stable() -> None:
    explain = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=5))
    assert metrics.perturbed_stability(explain, graph(), [3, 5], noise=0.0, times=2).tolist() == [1.0, 1.0]
