"""Every method of the catalogue: what its scores mean, which inputs it takes, and what it refuses.

Laws that all methods share (batch equals alone, the model comes back untouched, seeds, shapes) are in test_contract.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_contract import (
    EDGES_ONLY,
    NODE_KINDS,
    WHOLE_NODES_ONLY,
    assert_same_explanation,
    assert_shapes_and_ranges,
    every_method,
    fit,
    make,
    most_masks,
    small,
)
from torch_geometric.data import Data
from torch_geometric.explain.config import ModelConfig
from zoo import NODE_CONFIG, NODE_MODELS, Planted, explainer, seeded

from nseg import Above, SettingsError, UnsupportedError, baselines, explain_many
from nseg.baselines import CATALOGUE
from nseg.graphs.inputs import ModelInputs
from nseg.model.borrow import borrow
from nseg.model.outcomes import outcome_of
from nseg.model.traced_graph import TracedGraph
from nseg.search.parts import MaskParts

IGNORE_THE_MODEL = {"attention", "random", "all", "none", "pagerank"}
SCORE_BY_NODES = {"grad_cam", "pgm_explainer", "pgexplainer"}  # an edge's score comes from its end nodes
NORMALISES_MESSAGES = {"graphmask"}  # in PyG itself; of messages of width 1, as Planted sends, nothing is left
BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}


def each_of(names: Any) -> Any:
    """Methods by name."""
    return pytest.mark.parametrize("name", list(names))


# --- scores and numbers ----------------------------------------------------------------------------------------------------


@every_method
def test_the_reported_numbers_are_what_pyg_predicts_under_the_hard_masks(name: str) -> None:
    model, data = seeded(NODE_MODELS["gin"]), small(name)
    explain = fit(explainer(model, make(name)), data, [5, 7])
    found = explain(data.x, data.edge_index, index=5)
    edge, label = found.hard_edge_mask.float(), int(found.target[5])
    for mask, p in ((edge, found.p_factual), (1 - edge, found.p_complement)):
        output = explain.get_masked_prediction(data.x, data.edge_index, None, mask)
        assert p == pytest.approx(float(output[5].softmax(-1)[label]), abs=1e-5)


@every_method
def test_scores_are_not_all_the_same(name: str) -> None:
    """Scores of edges differ, except for the methods that keep everything or nothing."""
    model, data = seeded(NODE_MODELS["gin"]), small(name)
    one = fit(explainer(model, make(name)), data, range(8))(data.x, data.edge_index, index=5)
    mine = one.edge_mask[one.reached]
    if name in ("all", "none"):
        assert mine.unique().tolist() == [float(name == "all")]
    else:
        assert float(mine.max() - mine.min()) > 1e-3


def test_greedy_deletion_changes_the_class_with_no_edge_to_spare() -> None:
    """Judged by PyG's own masks: without the explanation the class is another, and with any of its edges it is the same."""
    data, model = small("greedy_deletion"), seeded(NODE_MODELS["gin"])
    explain = explainer(model, baselines.make("greedy_deletion", deletions=20))
    changed = 0
    for one in explain_many(explain, data, progress=False):
        node, mask = int(one.output_id), torch.ones(data.num_edges)

        def label(mask: torch.Tensor, node: int = node) -> int:
            return int(explain.get_masked_prediction(data.x, data.edge_index, None, mask)[node].argmax())

        before, away = label(mask), one.edge_id[one.hard_edge_mask]
        mask[away] = 0
        if label(mask) == before:
            assert len(away) == min(20, int(one.reached.sum()))  # it gave up
            continue
        changed += 1
        for edge in away.tolist():
            assert label(mask.index_fill(0, torch.tensor([edge]), 1)) == before
    assert changed


def test_attention_ranks_what_a_layer_attends_to_and_needs_such_a_layer() -> None:
    """The score of an edge is its largest coefficient over layers and heads, over the largest of the instance."""
    data, model = small("attention"), seeded(NODE_MODELS["gat"])
    (found,) = explain_many(explainer(model, baselines.make("attention")), data, [5], progress=False)
    assert_shapes_and_ranges(found, {"edge_mask": (found.num_edges,)})
    assert float(found.edge_mask.max()) == pytest.approx(1)
    assert float(found.edge_mask.min()) > 0  # a softmax is never 0
    with pytest.raises(UnsupportedError, match="Attention needs a model whose layers attend"):
        explain_many(explainer(seeded(NODE_MODELS["gcn"]), baselines.make("attention")), data, [5], progress=False)


@each_of([name for name in CATALOGUE if name not in IGNORE_THE_MODEL | SCORE_BY_NODES | NORMALISES_MESSAGES])
def test_the_one_edge_that_matters_is_ranked_first(name: str) -> None:
    """p = sigmoid(-4 + 8 m_1): without the one cause p falls from sigmoid(4) to sigmoid(-4)."""
    x = torch.tensor([[0.0], [0.0], [8.0], [0.0], [0.0]])
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    algorithm = baselines.make(name)
    found = explainer(Planted(-4.0), algorithm, BINARY)(x, edge_index, index=0)
    assert int(found.edge_mask.argmax()) == 1
    assert float(found.edge_mask[1]) > float(found.edge_mask[[0, 2, 3]].max())
    assert found.hard_edge_mask[1]


# --- what can be explained -------------------------------------------------------------------------------------------------


@every_method
def test_one_mask_for_several_outputs(name: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), small(name)
    explain = fit(explainer(model, make(name), **most_masks(name)), data, [5, 9])
    both = explain(data.x, data.edge_index, index=torch.tensor([5, 9]))
    assert both.edge_mask.shape == (data.num_edges,)
    assert 0 <= float(both.edge_mask.min()) <= float(both.edge_mask.max()) <= 1


@every_method
def test_a_node_without_edges_has_no_edges_in_its_explanation(name: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), small(name)
    x = torch.cat([data.x, data.x[:1]])  # node 24 has no edge
    explain = fit(explainer(model, make(name), **most_masks(name)), Data(x=x, edge_index=data.edge_index), [5, 24])
    assert not explain(x, data.edge_index, index=24).edge_mask.any()
    isolated, other = explain_many(explain, Data(x=x, edge_index=data.edge_index), [24, 5])
    assert not isolated.edge_mask.any()
    assert_same_explanation(other, explain(x, data.edge_index, index=5))


@every_method
def test_undirected_masks_are_equal_in_both_directions(name: str) -> None:
    model, data = seeded(NODE_MODELS["gin"]), small(name)
    explain = fit(explainer(model, make(name, undirected=True)), data, range(8))
    found = explain(data.x, data.edge_index, index=5)
    back = {(v, u): n for n, (u, v) in enumerate(data.edge_index.t().tolist())}
    other = torch.tensor([back[u, v] for u, v in data.edge_index.t().tolist()])
    assert torch.equal(found.edge_mask, found.edge_mask[other])
    assert torch.equal(found.hard_edge_mask, found.hard_edge_mask[other])


@every_method
def test_double_precision_is_kept_and_gradients_may_be_off_outside(name: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]).double(), small(name)
    data = Data(x=data.x.double(), edge_index=data.edge_index)
    explain = fit(explainer(model, make(name)), data, [5, 7])
    found = explain(data.x, data.edge_index, index=5)
    assert found.edge_mask.dtype is torch.double
    with torch.no_grad():
        assert torch.equal(explain(data.x, data.edge_index, index=5).edge_mask, found.edge_mask)


@every_method
def test_progress_is_reported_as_often_as_announced(name: str) -> None:
    model, data, rows, reports = seeded(NODE_MODELS["gcn"]), small(name), torch.tensor([0, 5]), []
    algorithm = fit(explainer(model, make(name)), data, rows).algorithm
    with borrow(model):
        inputs = ModelInputs(data.x, data.edge_index, {})
        traced = TracedGraph(model, outcome_of(ModelConfig(**NODE_CONFIG)), inputs, True, False)
        cuts = traced.cuts(rows, torch.arange(2), traced.check_targets(None, rows))
        ((_, causal),) = traced.causal_models(cuts)
        algorithm.solve(causal, MaskParts.of(causal.instances, True), lambda: reports.append(1))
    assert len(reports) == algorithm.ticks


# --- what is refused -------------------------------------------------------------------------------------------------------


@every_method
def test_an_outcome_that_the_model_cannot_have_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"got Above.*is for mode='regression'"):
        explainer(seeded(NODE_MODELS["gcn"]), make(name, outcome=Above(1.0)))


@each_of(sorted(EDGES_ONLY | WHOLE_NODES_ONLY))
def test_masks_that_a_method_does_not_give_are_refused_with_the_reason(name: str) -> None:
    for kind in NODE_KINDS if name in EDGES_ONLY else NODE_KINDS[1:]:
        for edge in (None, "object"):
            with pytest.raises(UnsupportedError, match=r"Use .*node_mask_type="):
                explainer(seeded(NODE_MODELS["gcn"]), make(name), edge_mask_type=edge, node_mask_type=kind)


@every_method
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(SettingsError, match="extract must be one of"):
        make(name, extract="best")
    with pytest.raises(TypeError):
        make(name, sed=3)


# --- the catalogue ---------------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"no method of that name \(got 'gnn'\). Known: nseg, random, all, none"):
        baselines.make("gnn")


@every_method
def test_each_class_says_what_it_does(name: str) -> None:
    """Its idea in a sentence, its cost, and, if somebody published it, where."""
    text = str(baselines.find(name).__doc__)
    assert "." in text.split("\n\n", maxsplit=1)[0]
    assert "Cost" in text
    assert ("Reference" in text) == (name not in {"random", "all", "none", "exhaustive"})


def test_the_papers_settings_of_a_dataset() -> None:
    sizes = {name: baselines.make("gnnexplainer", name).settings.edge_size for name in ("ba-shapes", "mutagenicity")}
    assert sizes == {"ba-shapes": 0.01, "mutagenicity": 0.005}
    assert baselines.make("cf_gnnexplainer", "tree-grid").settings.beta == 0.05
    assert baselines.make("cf2", "msrc-21", seed=3).settings.strength == 1000
    assert baselines.make("pgexplainer", "msrc-21", size=0.1).settings.size == 0.1
    assert baselines.make("pgm_explainer", "msrc-21").settings.samples == 50
    assert baselines.make("nseg", "tree-grid", masks="ef").settings.alpha_f == 1e-2
    assert baselines.make("saliency", "tree-grid", seed=2).settings.seed == 2  # the paper has none
