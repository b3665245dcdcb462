"""What every method of the catalogue owes its caller, whoever wrote it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from nseg.explainer import BatchedAlgorithm
from nseg.instances import Inputs
from nseg.scm import borrowed
from nseg.source import Source
from nseg.space import Space
from test_many import agree
from test_scm import Failing, assert_same, lived_in, state
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer as PyGsGNNExplainer
from torch_geometric.explain.config import ModelConfig
from zoo import (
    FEATURES,
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_CONFIG,
    NODE_MODELS,
    EdgeClassifier,
    Link,
    Molecule,
    Planted,
    explainer,
    graph,
    seeded,
)

from nseg import Explainer, SettingsError, UnsupportedError, baselines, explain_many
from nseg.baselines import CATALOGUE

QUICK: dict[str, dict[str, Any]] = {
    "nseg": {"steps": 5, "rounds": 2, "exact": 6},
    "integrated_gradients": {"steps": 5},
    "gnnexplainer": {"steps": 5},
    "pgexplainer": {"epochs": 3},
    "pgm_explainer": {"samples": 20, "drop": 0.01},  # or nothing changes, and all scores are 0
    "cf_gnnexplainer": {"steps": 5},
    "cf2": {"steps": 5},
    "exhaustive": {"undirected": False},
}
"""Settings under which a contract is checked soon."""

NODE_KINDS = ("object", "attributes", "common_attributes")
WHOLE_NODES = {"grad_cam", "pagerank", "pgm_explainer", "exhaustive"}  # no features
EDGES_ONLY = {"pgexplainer", "cf_gnnexplainer"}
DRAWN = {"nseg", "random", "gnnexplainer", "pgexplainer", "pgm_explainer", "cf_gnnexplainer", "cf2"}  # seeds matter
BLIND = {"random", "all", "none", "pagerank"}  # the model's output does not matter
BY_NODES = {"grad_cam", "pgm_explainer", "pgexplainer"}  # told by what is known of an edge's ends

SHAPES = {"object": (24, 1), "attributes": (24, FEATURES), "common_attributes": (1, FEATURES)}
BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}


def each_of(names: Any) -> Any:
    """Methods by name."""
    return pytest.mark.parametrize("name", list(names))


every = each_of(CATALOGUE)


def world(name: str, **kwargs: Any) -> Data:
    """A graph; one in which all subsets can be tried for the method that does."""
    return graph(**{"edges": 16, "seed": 1, **kwargs}) if name == "exhaustive" else graph(**kwargs)


def make(name: str, **settings: Any) -> BatchedAlgorithm:
    return baselines.make(name, **{**QUICK.get(name, {}), **settings})


def kinds(name: str) -> list[dict[str, str]]:
    """The masks that a method gives."""
    edge = {"edge_mask_type": "object"}
    if name in EDGES_ONLY:
        return [edge]
    nodes = [{"node_mask_type": kind} for kind in (NODE_KINDS[:1] if name in WHOLE_NODES else NODE_KINDS)]
    return [edge, *nodes, *({**edge, **node} for node in nodes)]


def most(name: str) -> dict[str, str]:
    """Edges, and nodes if the method can."""
    return (
        kinds(name)[0] if name in EDGES_ONLY | {"exhaustive"} else {"edge_mask_type": "object", "node_mask_type": "object"}
    )


def fitted(explain: Any, data: Data | list[Data], index: Any = None, **kwargs: Any) -> Any:
    """The explainer, which has learnt first if it is one that learns."""
    if hasattr(explain.algorithm, "fit"):
        explain.algorithm.fit(explain, data, index, **kwargs)
    return explain


# --- what comes out --------------------------------------------------------------------------------------------------------


@every
def test_shape_range_and_numbers(name: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), world(name)
    for masks in kinds(name):
        found = fitted(explainer(model, make(name), **masks), data, [5, 7])(data.x, data.edge_index, index=5)
        expected = {"edge_mask": (data.num_edges,)} if "edge_mask_type" in masks else {}
        expected |= {"node_mask": SHAPES[masks["node_mask_type"]]} if "node_mask_type" in masks else {}
        for key in ("edge_mask", "node_mask"):
            assert (found.get(key) is not None) == (key in expected)
        for key, shape in expected.items():
            assert found[key].shape == found[f"hard_{key}"].shape == shape
            assert found[key].dtype is torch.float
            assert 0 <= float(found[key].min()) <= float(found[key].max()) <= 1
            assert not found[key].requires_grad
            assert found[f"hard_{key}"].dtype is torch.bool
        assert 0 <= found.pns <= min(found.pn, found.ps) + 1e-6 <= 1 + 2e-6
        assert found.validate()
        assert found.settings["seed"] == 0


@every
def test_the_reported_numbers_are_what_pyg_predicts_under_the_hard_masks(name: str) -> None:
    model, data = seeded(NODE_MODELS["gin"]), world(name)
    explain = fitted(explainer(model, make(name)), data, [5, 7])
    found = explain(data.x, data.edge_index, index=5)
    edge, label = found.hard_edge_mask.float(), int(found.target[5])
    for mask, p in ((edge, found.p_factual), (1 - edge, found.p_complement)):
        output = explain.get_masked_prediction(data.x, data.edge_index, None, mask)
        assert p == pytest.approx(float(output[5].softmax(-1)[label]), abs=1e-5)


@every
def test_scores_are_not_all_the_same(name: str) -> None:
    """A method that looks at model or graph tells edges apart; the trivial ones do as they say."""
    model, data = seeded(NODE_MODELS["gin"]), world(name)
    one = fitted(explainer(model, make(name)), data, range(8))(data.x, data.edge_index, index=5)
    mine = one.edge_mask[one.reached]
    if name in ("all", "none"):
        assert mine.unique().tolist() == [float(name == "all")]
    else:
        assert float(mine.max() - mine.min()) > 1e-3


@each_of([name for name in CATALOGUE if name not in BLIND | BY_NODES])
def test_the_one_edge_that_matters_is_ranked_first(name: str) -> None:
    """p = sigmoid(-4 + 8 m_1): without the one cause p falls from sigmoid(4) to sigmoid(-4)."""
    x = torch.tensor([[0.0], [0.0], [8.0], [0.0], [0.0]])
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    algorithm = baselines.make(name)
    found = explainer(Planted(-4.0), algorithm, BINARY)(x, edge_index, index=0)
    assert int(found.edge_mask.argmax()) == 1
    assert float(found.edge_mask[1]) > float(found.edge_mask[[0, 2, 3]].max())
    assert found.hard_edge_mask[1]


# --- together and alone ----------------------------------------------------------------------------------------------------


@every
def test_nodes_together_are_nodes_alone(name: str) -> None:
    for model in ("gcn", "gat"):
        net, data, rows = seeded(NODE_MODELS[model]), world(name), [5, 0, 11, 7, 5]
        explain = fitted(explainer(net, make(name, seed=3), **most(name)), data, rows)
        found = explain_many(explain, data, rows)
        assert [one.output_id for one in found] == rows
        for one in found:
            agree(one, explain(data.x, data.edge_index, index=one.output_id))
        for one, other in zip(found, reversed(explain_many(explain, data, rows[::-1], budget=2_000_000)), strict=True):
            torch.testing.assert_close(one.edge_mask, other.edge_mask, rtol=1e-3, atol=1e-4)


@every
def test_graphs_together_are_graphs_alone(name: str) -> None:
    some = [graph(nodes=5 + s, edges=9, seed=s) for s in range(6)]
    explain = fitted(explainer(seeded(Molecule), make(name), GRAPH_CONFIG, **most(name)), some)
    found = explain_many(explain, some)
    assert [one.output_id for one in found] == list(range(len(some)))
    for one, alone in zip(found, some, strict=True):
        agree(one, explain(alone.x, alone.edge_index))


@every
def test_links_together_are_links_alone(name: str) -> None:
    data, pairs = world(name), torch.tensor([[0, 3, 7, 5], [2, 9, 7, 11]])
    explain = explainer(seeded(Link), make(name), LINK_CONFIG, **most(name))
    fitted(explain, data, [2, 0, 3], edge_label_index=pairs)
    found = explain_many(explain, data, [2, 0, 3], edge_label_index=pairs)
    assert [one.output_id for one in found] == [2, 0, 3]
    for one in found:
        agree(one, explain(data.x, data.edge_index, index=one.output_id, edge_label_index=pairs))


@every
def test_edges_of_the_graph_are_explained_as_outputs(name: str) -> None:
    data, config = world(name, kind="directed"), {**NODE_CONFIG, "task_level": "edge"}
    explain = fitted(explainer(seeded(EdgeClassifier), make(name), config), data, [4, 11])
    found = explain_many(explain, data, [4, 11])
    assert [one.output_id for one in found] == [4, 11]
    for one in found:
        agree(one, explain(data.x, data.edge_index, index=one.output_id))


@every
def test_one_mask_for_several_outputs(name: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), world(name)
    explain = fitted(explainer(model, make(name), **most(name)), data, [5, 9])
    both = explain(data.x, data.edge_index, index=torch.tensor([5, 9]))
    assert both.edge_mask.shape == (data.num_edges,)
    assert 0 <= float(both.edge_mask.min()) <= float(both.edge_mask.max()) <= 1


@every
def test_nodes_and_graphs_without_edges_are_explained(name: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), world(name)
    x = torch.cat([data.x, data.x[:1]])  # node 24 has no edge
    explain = fitted(explainer(model, make(name), **most(name)), Data(x=x, edge_index=data.edge_index), [5, 24])
    assert not explain(x, data.edge_index, index=24).edge_mask.any()
    lonely, full = explain_many(explain, Data(x=x, edge_index=data.edge_index), [24, 5])
    assert not lonely.edge_mask.any()
    agree(full, explain(x, data.edge_index, index=5))


@every
def test_undirected_masks_are_equal_in_both_directions(name: str) -> None:
    model, data = seeded(NODE_MODELS["gin"]), world(name)
    explain = fitted(explainer(model, make(name, undirected=True)), data, range(8))
    found = explain(data.x, data.edge_index, index=5)
    back = {(v, u): n for n, (u, v) in enumerate(data.edge_index.t().tolist())}
    other = torch.tensor([back[u, v] for u, v in data.edge_index.t().tolist()])
    assert torch.equal(found.edge_mask, found.edge_mask[other])
    assert torch.equal(found.hard_edge_mask, found.hard_edge_mask[other])
    for one in explain_many(explain, data, [5, 0]):
        full = explain(data.x, data.edge_index, index=one.output_id)
        torch.testing.assert_close(one.edge_mask, full.edge_mask[one.edge_id], rtol=1e-3, atol=1e-4)


@every
def test_double_precision_is_kept_and_gradients_may_be_off_outside(name: str) -> None:
    model, data = seeded(NODE_MODELS["gcn"]).double(), world(name)
    data = Data(x=data.x.double(), edge_index=data.edge_index)
    explain = fitted(explainer(model, make(name)), data, [5, 7])
    found = explain(data.x, data.edge_index, index=5)
    assert found.edge_mask.dtype is torch.double
    with torch.no_grad():
        assert torch.equal(explain(data.x, data.edge_index, index=5).edge_mask, found.edge_mask)


# --- randomness ------------------------------------------------------------------------------------------------------------


@every
def test_equal_seeds_give_equal_masks_and_other_seeds_others(name: str) -> None:
    model, data = seeded(NODE_MODELS["gat"]), world(name)

    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed + 99)  # the global random state must not matter
        explain = fitted(explainer(model, make(name, seed=seed)), data, [5, 7])
        return explain(data.x, data.edge_index, index=5).edge_mask

    assert torch.equal(run(1), run(1))
    assert torch.equal(run(1), run(2)) == (name not in DRAWN)


# --- the model is borrowed -------------------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("model", ["gcn, cached", "shared layer, jumping knowledge, batch norm, dropout"])
def test_model_and_random_state_come_back_as_they_were(name: str, model: str) -> None:
    net, data = lived_in(seeded(NODE_MODELS[model])), world(name)
    explain = explainer(net, make(name), **most(name))
    before, random = state(net), torch.get_rng_state()
    explain_many(fitted(explain, data, [0, 5]), data, [0, 5])
    assert_same(before, state(net))
    assert torch.equal(random, torch.get_rng_state())


@every
def test_the_model_comes_back_also_when_it_raises(name: str) -> None:
    """The calls of a whole run are counted, and then the model fails at the first, in the middle and at the last."""
    data, plenty = world(name), 10**9

    def run(model: Failing, alone: bool) -> None:
        explain = Explainer(model, make(name), explanation_type="model", model_config=NODE_CONFIG, **most(name))
        fitted(explain, data, [0, 5])
        if alone:
            explain(data.x, data.edge_index, index=0)
        else:
            explain_many(explain, data, [0, 5])

    for alone in (True, False):
        whole = Failing(plenty)
        run(whole, alone)
        calls = plenty - whole.left
        # the last call of explain_many tries a smaller graph, and may fail
        for fail in (0, calls // 2, calls - 1) if alone else (0, calls // 2):
            model = lived_in(Failing(fail))
            before, random = state(model), torch.get_rng_state()
            with pytest.raises(RuntimeError, match="the model fails"):
                run(model, alone)
            assert_same(before, state(model))
            assert torch.equal(random, torch.get_rng_state())


@every
def test_it_works_on_a_model_that_pygs_explainer_ran_on(name: str) -> None:
    data, masks = world(name), []
    for used in (False, True):
        model = seeded(NODE_MODELS["gcn"])
        if used:
            explainer(model, PyGsGNNExplainer(epochs=3))(data.x, data.edge_index, index=3)
        explain = fitted(explainer(model, make(name)), data, [3, 5])
        masks.append(explain(data.x, data.edge_index, index=3).edge_mask)
    assert torch.equal(*masks)


@every
def test_progress_is_told_as_often_as_was_said(name: str) -> None:
    model, data, rows, told = seeded(NODE_MODELS["gcn"]), world(name), torch.tensor([0, 5]), []
    algorithm = fitted(explainer(model, make(name)), data, rows).algorithm
    with borrowed(model):
        source = Source(model, ModelConfig(**NODE_CONFIG), Inputs(data.x, data.edge_index, {}), True, False)
        ((_, scm),) = source.scms(rows, torch.arange(2), source.targets(None, rows))
        algorithm.solve(scm, Space(scm.instances, True, None), lambda: told.append(1))
    assert len(told) == algorithm.ticks


# --- what cannot be done is said -------------------------------------------------------------------------------------------


@every
def test_regression_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(UnsupportedError, match="probability of a class"):
        explainer(seeded(NODE_MODELS["gcn"]), make(name), {"mode": "regression", "task_level": "node"})


@each_of(sorted(EDGES_ONLY | WHOLE_NODES))
def test_masks_that_a_method_does_not_give_are_refused_with_the_reason(name: str) -> None:
    for kind in NODE_KINDS if name in EDGES_ONLY else NODE_KINDS[1:]:
        for edge in (None, "object"):
            with pytest.raises(UnsupportedError, match=r"Use .*node_mask_type="):
                explainer(seeded(NODE_MODELS["gcn"]), make(name), edge_mask_type=edge, node_mask_type=kind)


@every
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(SettingsError, match="extract must be one of"):
        make(name, extract="best")
    with pytest.raises(TypeError):
        make(name, sed=3)


# --- the catalogue ---------------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(SettingsError, match=r"no method of that name \(got 'gnn'\). Known: nseg, random, all, none"):
        baselines.make("gnn")


@every
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
