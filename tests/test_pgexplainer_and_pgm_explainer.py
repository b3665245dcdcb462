"""PGExplainer and PGM-Explainer: planted causes, closed forms, and embeddings of the whole graph."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import chi2_contingency
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain.config import ModelConfig
from torch_geometric.nn import MessagePassing, global_add_pool
from zoo import (
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_CONFIG,
    NODE_MODELS,
    EdgeClassifier,
    Link,
    Molecule,
    NoBatch,
    Planted,
    arguments,
    explainer,
    graph,
    seeded,
)

from nseg import InputError, ModelError, SettingsError, explain_many
from nseg.baselines.pgexplainer import AUTHORS, EdgeNetwork, PGExplainer, PGExplainerSettings, TrainingBatch, edge_inputs
from nseg.baselines.pgm_explainer import PGMExplainer, chi_square, confidence
from nseg.explain.many import open_causal_models
from nseg.graphs.checks import check_inputs
from nseg.graphs.inputs import ModelInputs
from nseg.model.borrow import borrow
from nseg.model.causal import CausalModel
from nseg.model.outcomes import outcome_of
from nseg.model.packed_graphs import causal_models_of_graphs
from nseg.model.traced_graph import TracedGraph
from nseg.search.noise import PartNoise
from nseg.search.parts import MaskParts

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
EDGES: dict[str, Any] = {"edge_mask_type": "object"}
BOTH: dict[str, Any] = {"edge_mask_type": "object", "node_mask_type": "object"}
NODES: dict[str, Any] = {"node_mask_type": "object"}


def graphs(count: int) -> list[Data]:
    """Graphs of different sizes, the first without edges."""
    return [graph(nodes=5 + s, edges=9, seed=s, kind="undirected" if s else "empty") for s in range(count)]


# --- embeddings ------------------------------------------------------------------------------------------------------------


def last_layer_output(model: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
    """Output of the last message passing layer in a plain pass over the whole graph."""
    outputs: list[Tensor] = []
    layers = [m for m in model.modules() if isinstance(m, MessagePassing)]
    handles = [m.register_forward_hook(lambda module, args, out: outputs.append(out)) for m in layers]
    with torch.no_grad():
        model(*args, **kwargs)
    for handle in handles:
        handle.remove()
    return outputs[-1]


def assert_embeddings(causal: CausalModel, expected: Tensor) -> None:
    found = causal.embeddings()
    assert not found.requires_grad
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", NODE_MODELS)
def test_embeddings_of_cut_instances_are_those_of_the_whole_graph(name: str) -> None:
    model, data = seeded(NODE_MODELS[name]), graph(nodes=60, edges=80)
    kwargs = arguments(model, data)
    expected = last_layer_output(seeded(NODE_MODELS[name]), data.x, data.edge_index, **kwargs)
    rows = torch.tensor([5, 0, 11, 7])
    with borrow(model):
        inputs = ModelInputs(data.x, data.edge_index, kwargs)
        traced = TracedGraph(model, outcome_of(ModelConfig(**NODE_CONFIG)), inputs, True, True)
        seen = 0
        for owner in (torch.arange(4), torch.tensor([0, 0, 1, 1])):  # one row each, and two rows per instance
            for which, causal in traced.causal_models(traced.cuts(rows, owner, traced.check_targets(None, rows))):
                assert_embeddings(causal, expected[causal.instances.node_id])
                last = causal.select(torch.tensor([len(which) - 1]))
                assert_embeddings(last, expected[last.instances.node_id])
                seen += len(which)
    assert seen == 6


@pytest.mark.parametrize("make", [Molecule, NoBatch])
def test_embeddings_of_packed_graphs_are_those_of_each_alone(make) -> None:
    model, some = seeded(make), graphs(5)
    outcome = outcome_of(ModelConfig(**GRAPH_CONFIG))
    alone = [last_layer_output(model, g.x, g.edge_index) for g in some]
    with borrow(model):
        inputs = [check_inputs(model, g.x, g.edge_index, {}, outcome.level) for g in some]
        with torch.no_grad():
            calls = [one.call_arguments() for one in inputs]
            output = torch.cat([model(*given, **named) for given, named in calls])
        seen = 0
        for which, causal in causal_models_of_graphs(model, outcome, inputs, output, output.argmax(-1), True, True):
            assert_embeddings(causal, torch.cat([alone[n] for n in which.tolist()]))
            assert_embeddings(causal.select(torch.tensor([len(which) - 1])), alone[int(which[-1])])
            seen += len(which)
        assert seen == 5
        if make is Molecule:  # one graph of a batch
            batch = Batch.from_data_list(some)
            whole = check_inputs(model, batch.x, batch.edge_index, {"batch": batch.batch}, outcome.level)
            traced = TracedGraph(model, outcome, whole, True, False)
            cuts = traced.cuts(torch.tensor([3]), torch.tensor([0]), torch.tensor([0]))
            ((_, causal),) = traced.causal_models(cuts)
            assert_embeddings(causal, alone[3])


def test_the_input_of_an_edge_holds_its_end_nodes_and_the_explained_nodes() -> None:
    data = graph()
    pairs = torch.tensor([[0, 3, 7], [2, 9, 7]])
    for model, config, kwargs, ends in (
        (seeded(NODE_MODELS["gcn"]), NODE_CONFIG, {}, lambda row: [row]),
        (seeded(Link), LINK_CONFIG, {"edge_label_index": pairs}, lambda row: pairs[:, row].tolist()),
        (seeded(EdgeClassifier), {**NODE_CONFIG, "task_level": "edge"}, {}, lambda row: data.edge_index[:, row].tolist()),
    ):
        z = last_layer_output(model, data.x, data.edge_index, **kwargs)
        with borrow(model):
            outcome = outcome_of(ModelConfig(**config))
            inputs = check_inputs(model, data.x, data.edge_index, kwargs, outcome.level)
            traced = TracedGraph(model, outcome, inputs, True, False)
            rows = torch.tensor([1, 2])
            cuts = traced.cuts(rows, torch.arange(2), traced.check_targets(None, rows))
            for which, causal in traced.causal_models(cuts):
                instances = causal.instances
                found = edge_inputs(instances, causal.embeddings())
                for e, (edge, owner) in enumerate(zip(instances.edge_id, instances.edge_owner, strict=True)):
                    nodes = [*data.edge_index[:, edge].tolist(), *ends(int(rows[which[owner]]))]
                    torch.testing.assert_close(found[e], z[nodes].flatten())


# --- PGExplainer: planted causes -------------------------------------------------------------------------------------------


class FeatureAndSum(MessagePassing):
    """Returns the feature of each node and the sum of its neighbours' features."""

    def __init__(self) -> None:
        super().__init__(aggr="sum")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return torch.cat([x, self.propagate(edge_index, x=x)], 1)


class PlantedEmbeddings(nn.Module):
    """p = sigmoid(bias + sum of kept messages), as ``Planted``, with embeddings that show who sends something."""

    def __init__(self, bias: float = -4.0, graphs: bool = False) -> None:
        super().__init__()
        self.conv, self.bias, self.graphs = FeatureAndSum(), bias, graphs

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        score = self.conv(x, edge_index)[:, 1:]
        return (global_add_pool(score, batch) if self.graphs else score).squeeze(-1) + self.bias


def stars(count: int = 12, leaves: int = 5) -> tuple[list[Data], Data, range, Tensor]:
    """Stars whose centre hears 8 from one leaf and nothing from others, alone and as one graph, and which edges cause."""
    some = []
    for number in range(count):
        x = torch.zeros(leaves + 1, 1)
        x[1 + number * 3 % leaves] = 8.0
        edge_index = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)])
        some.append(Data(x=x, edge_index=edge_index, y=torch.zeros(1, dtype=torch.long)))
    batch = Batch.from_data_list(some)
    together = Data(x=batch.x, edge_index=batch.edge_index)
    return some, together, range(0, count * (leaves + 1), leaves + 1), batch.x[batch.edge_index[0], 0] > 0


TRAINING = {**AUTHORS, "epochs": 200, "size": 0.5, "entropy": 0.1}


def test_pgexplainer_finds_the_cause_in_stars_that_it_has_not_seen() -> None:
    _, data, centres, cause = stars()
    explain = explainer(PlantedEmbeddings(), PGExplainer(**TRAINING), BINARY)
    trace = explain.algorithm.fit(explain, data, centres[:8])
    assert trace.shape == (200,)
    assert trace[-1] < trace[0] / 2
    for one in explain_many(explain, data, centres[8:]):
        assert one.hard_edge_mask[one.reached].tolist() == cause[one.edge_id][one.reached].tolist()
        mine = cause[one.edge_id] & one.reached
        assert one.edge_mask[mine].min() > 0.8
        assert one.edge_mask[~mine].max() < 0.2


def test_many_edges_do_not_empty_the_masks_unless_each_is_paid_for() -> None:
    """One of 60 edges is the cause, without which -log p is 4. By share, all edges cost 0.5; at 5 for each, even that one
    costs more than it is worth, and the empty mask is the minimum."""
    _, data, centres, cause = stars(count=6, leaves=60)
    kept = []
    for settings in ({}, {"share": 0.0, "size": 5.0}):
        explain = explainer(PlantedEmbeddings(), PGExplainer(extract="threshold", **settings), BINARY)
        explain.algorithm.fit(explain, data, centres)
        found = explain_many(explain, data, centres)
        kept.append([bool((one.hard_edge_mask & cause[one.edge_id]).any()) for one in found])
    assert all(kept[0])
    assert not any(kept[1])


def test_pgexplainer_explains_the_class_that_it_is_given() -> None:
    """What speaks for class 1 speaks against class 0, so it is what an explanation of class 0 leaves out first."""
    _, data, centres, cause = stars()
    explain = explainer(
        PlantedEmbeddings(), PGExplainer(**{**TRAINING, "size": 0.0}), BINARY, explanation_type="phenomenon", **EDGES
    )
    explain.algorithm.fit(explain, data, centres, target=torch.zeros(data.num_nodes, dtype=torch.long))
    for one in explain_many(explain, data, centres[:3], target=torch.zeros(data.num_nodes, dtype=torch.long)):
        mine = cause[one.edge_id]
        assert one.edge_mask[mine & one.reached].max() < one.edge_mask[~mine & one.reached].min()
        assert one.edge_mask[mine].max() < 0.2


def test_pgexplainer_explains_graphs() -> None:
    some, _, _, _ = stars()
    explain = explainer(PlantedEmbeddings(graphs=True), PGExplainer(**TRAINING, batch=3), {**BINARY, "task_level": "graph"})
    explain.algorithm.fit(explain, some[:8])
    for one, data in zip(explain_many(explain, some[8:]), some[8:], strict=True):
        assert one.hard_edge_mask.tolist() == (data.x[data.edge_index[0], 0] > 0).tolist()
    unlabelled = explainer(
        PlantedEmbeddings(graphs=True),
        PGExplainer(**TRAINING),
        {**BINARY, "task_level": "graph"},
        explanation_type="phenomenon",
        **EDGES,
    )
    unlabelled.algorithm.fit(unlabelled, some)  # y = 0 everywhere, against the models's own opinion
    assert explain_many(unlabelled, some[:1])[0].edge_mask.argmin() == int(some[0].x[1:].argmax())


@pytest.mark.parametrize("growing", [False, True])
def test_the_loss_is_that_of_the_sampled_mask(growing: bool) -> None:
    """A network that says 0 of every edge samples m = sigmoid(logit(u) / tau); p = sigmoid(bias + sum of w m)."""
    weights = torch.tensor([8.0, 1.0, -2.0])
    x, edge_index = torch.tensor([[0.0], *weights.unsqueeze(1).tolist()]), torch.tensor([[1, 2, 3], [0, 0, 0]])
    prices = {"size": 0.3, "share": 0.4, "entropy": 0.7}
    model, settings = Planted(-4.0), PGExplainerSettings(epochs=10, warm=5.0, cool=2.0, growing=growing, **prices)
    network = EdgeNetwork(3, 4, 0)
    nn.init.zeros_(network.last.weight)
    with borrow(model):
        traced = TracedGraph(model, outcome_of(ModelConfig(**BINARY)), ModelInputs(x, edge_index, {}), True, False)
        cuts = traced.cuts(torch.tensor([0]), torch.tensor([0]), torch.tensor([1]))
        ((_, causal),) = traced.causal_models(cuts)
        parts = MaskParts.of(causal.instances, True)
        noise = PartNoise.of(parts.edges, 0, torch.float)
        edges = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
        found = TrainingBatch(causal, parts, edges, noise).loss(network, settings, 5).detach()
    tau = math.sqrt(5.0 * 2.0)  # half-way
    m = torch.sigmoid(torch.logit(noise.draw(5)) / tau)
    m = m[causal.instances.edge_id.argsort()]
    entropy = -(m * m.log() + (1 - m) * (1 - m).log()).mean()
    paid = 0.5 if growing else 1.0  # half-way
    expected = -torch.sigmoid((weights * m).sum() - 4).log() + paid * (0.3 * m.sum() + 0.4 * m.mean() + 0.7 * entropy)
    assert float(found) == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("undirected", [False, True])
def test_all_edges_together_cost_the_share(undirected: bool) -> None:
    """Whether the directions of an edge are one element or two."""
    data = graph()
    explain = explainer(seeded(NODE_MODELS["gcn"]), PGExplainer(undirected=undirected, standardise=False))
    with open_causal_models(explain, data, [1, 2]) as models:
        ((batch,),) = explain.algorithm._training_batches(models)
        network = EdgeNetwork(batch.edges.size(1), 4, 0, start=50.0).requires_grad_(False)
        nn.init.zeros_(network.last.weight)
        free, paid = (batch.loss(network, PGExplainerSettings(share=share, growing=False), 0) for share in (0.0, 0.7))
    torch.testing.assert_close(paid - free, torch.full((2,), 0.7))


def test_the_scale_of_embeddings_does_not_matter() -> None:
    edges = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    edges[:, 2] = 5.0  # constant: no scale
    found = []
    for some in (edges, 100 * edges - 3):
        network = EdgeNetwork(3, 8, 0).requires_grad_(False)
        network.standardise([some[:10], some[10:]])
        found.append(network(some))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)
    assert found[0].std() > 0.1


# --- PGExplainer: state ----------------------------------------------------------------------------------------------------


def fitted(seed: int = 0, **settings: Any):
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    explain = explainer(model, PGExplainer(seed=seed, epochs=4, **settings))
    explain.algorithm.fit(explain, data, range(12))
    return explain, data


def masks(explain, data: Data) -> Tensor:
    return torch.cat([one.edge_mask for one in explain_many(explain, data, range(24))])


def test_equal_seeds_give_equal_networks_and_memory_does_not_matter() -> None:
    for batch in (None, 5):
        explain, data = fitted(3, batch=batch)
        torch.manual_seed(17)
        again, _ = fitted(3, batch=batch)
        other, _ = fitted(4, batch=batch)
        assert torch.equal(masks(explain, data), masks(again, data))
        assert not torch.allclose(masks(explain, data), masks(other, data), atol=1e-3)
        before = masks(explain, data)
        explain.algorithm.fit(explain, data, range(12), budget=600_000)  # from scratch, in small pieces
        torch.testing.assert_close(masks(explain, data), before, rtol=1e-3, atol=1e-4)
    assert not torch.allclose(before, masks(fitted(3)[0], data), atol=1e-3)


def test_it_must_be_fitted_first_and_objects_share_nothing() -> None:
    explain, data = fitted()
    before = masks(explain, data)
    fresh = explainer(explain.model, PGExplainer())
    for call in (
        lambda: explain_many(fresh, data, [1]),
        lambda: fresh(data.x, data.edge_index, index=1),
        lambda: fresh.algorithm.save("nowhere"),
    ):
        with pytest.raises(InputError, match="fit"):
            call()
    fresh.algorithm.fit(fresh, data, [1, 2])
    assert torch.equal(masks(explain, data), before)
    with pytest.raises(InputError, match="holds this PGExplainer"):
        explain.algorithm.fit(fresh, data)


def test_a_failed_fit_leaves_the_old_network() -> None:
    explain, data = fitted()
    before = masks(explain, data)
    with pytest.raises(InputError, match="index must be between"):
        explain.algorithm.fit(explain, data, [99])
    assert torch.equal(masks(explain, data), before)


def test_saving_and_loading_gives_equal_masks(tmp_path) -> None:
    explain, data = fitted(hidden=7, undirected=True)
    path = tmp_path / "pg.safetensors"
    explain.algorithm.save(path)
    loaded = PGExplainer.load(path)
    assert loaded.settings == explain.algorithm.settings
    assert torch.equal(masks(explainer(explain.model, loaded), data), masks(explain, data))
    wider = explainer(seeded(NODE_MODELS["gatv2"]), PGExplainer.load(path))
    assert explain_many(wider, data, [1])  # as wide, so it cannot be told apart
    other, some = explainer(seeded(Molecule), PGExplainer.load(path), GRAPH_CONFIG), graphs(2)
    with pytest.raises(InputError, match="fitted on the model that it explains"):
        explain_many(other, some)


def test_what_is_no_pgexplainer_is_not_loaded(tmp_path) -> None:
    path = tmp_path / "x.safetensors"
    explain, _ = fitted()
    explain.algorithm.save(path)
    good = path.read_bytes()
    state = explain.algorithm.network.state_dict()
    note = {"kind": "nseg.baselines.PGExplainer", "width": "24"}

    def written(content: bytes) -> None:
        path.write_bytes(content)

    for spoil in (
        lambda: written(b"garbage"),
        lambda: written(b""),
        lambda: written(good[:-40]),
        lambda: written(pickle.dumps({"a": 1})),
        lambda: save_file(seeded(Molecule).state_dict(), path),
        lambda: save_file(state, path, metadata=note),
        lambda: save_file(state, path, metadata={**note, "settings": "{}", "width": "5"}),
        lambda: save_file(state, path, metadata={**note, "settings": '{"epochz": 3}'}),
    ):
        spoil()
        with pytest.raises(InputError, match=r"must be a file that PGExplainer\.save wrote"):
            PGExplainer.load(path)
    for none in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="must be a file"):
            PGExplainer.load(none)


def test_the_papers_settings() -> None:
    names = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motif", "mutagenicity", "msrc-21")
    some = [PGExplainer.paper(name).settings for name in names]
    assert [(s.size, s.share) for s in some] == [(0.01, 0.0), *[(0.0, 0.5)] * 5]  # the paper's price where masks survive it
    authors, *ours = [(s.entropy, s.lr, s.epochs, s.warm, s.cool, s.start, s.hidden) for s in some]
    assert authors == (1.0, 0.003, 30, 5.0, 2.0, 0.0, 64)
    assert [(s.standardise, s.growing) for s in some] == [(False, False), *[(True, True)] * 5]
    assert set(ours) == {(0.0, 0.01, 100, 1.0, 1.0, 3.0, 64)}
    assert all(s.undirected and s.extract == "threshold" for s in some)
    assert PGExplainer.paper("tree-grid", seed=3).settings.seed == 3
    with pytest.raises(SettingsError, match="no settings of PGExplainer for 'cora'"):
        PGExplainer.paper("cora")
    paper = PGMExplainer.paper().settings
    assert (paper.samples, paper.perturb, paper.drop, paper.threshold) == (50, 0.5, 0.1, 0.95)


# --- PGM-Explainer ---------------------------------------------------------------------------------------------------------


def test_the_statistic_and_its_p_value_are_scipys() -> None:
    rng = torch.Generator().manual_seed(0)
    z = torch.rand(40, 30, generator=rng) < torch.rand(30, generator=rng)
    y = torch.rand(40, 30, generator=rng) < 0.3 + 0.3 * z
    z[:, 0], y[:, 1] = True, False  # what never varies says nothing
    statistic = chi_square(z, y)
    score = confidence(statistic)
    assert statistic[:2].tolist() == score[:2].tolist() == [0.0, 0.0]
    for n in range(2, 30):
        table = [[int(((z[:, n] == a) & (y[:, n] == b)).sum()) for b in (0, 1)] for a in (0, 1)]
        if 0 in [*map(sum, table), *map(sum, zip(*table, strict=True))]:
            assert statistic[n] == 0
            continue
        expected = chi2_contingency(table, correction=False)
        assert float(statistic[n]) == pytest.approx(expected.statistic, abs=1e-9)
        assert 1 - float(score[n]) == pytest.approx(expected.pvalue, abs=1e-12)


def test_pgm_ranks_the_node_first_whose_features_are_the_cause() -> None:
    """p falls from sigmoid(4) to sigmoid(-4) when leaf 2 is perturbed, and by nothing else: the statistic is S."""
    x, edge_index = torch.tensor([[0.0], [0.0], [8.0], [0.0], [0.0]]), torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    for seed in range(5):
        explain = explainer(Planted(-4.0), PGMExplainer(seed=seed), BINARY, **BOTH)
        found = explain(x, edge_index, index=0)
        score = found.node_mask[:, 0]
        assert float(score[2]) == pytest.approx(float(confidence(torch.tensor(50.0).double())), abs=1e-6)
        assert score.argsort(descending=True)[0] == 2
        assert score[[0, 1, 3, 4]].max() < 0.9999
        torch.testing.assert_close(found.edge_mask, (score[1:] + score[0]) / 2)
        assert found.edge_mask.argmax() == 1
        assert torch.equal(found.hard_node_mask, found.node_mask > 0.95)
    certain = explainer(Planted(-4.0), PGMExplainer(drop=0.99), BINARY, **NODES)(x, edge_index, index=0)
    assert not certain.node_mask.any()  # nothing ever changes that much


def test_pgm_finds_the_causes_of_graphs_and_of_given_classes() -> None:
    some = stars()[0]
    config = {**BINARY, "task_level": "graph"}
    for one in explain_many(explainer(PlantedEmbeddings(graphs=True), PGMExplainer(samples=100), config, **NODES), some):
        assert one.node_mask[:, 0].argmax() == one.x[:, 0].argmax()
        assert one.node_mask.max() > 1 - 1e-6
    given = explainer(PlantedEmbeddings(graphs=True), PGMExplainer(), config, explanation_type="phenomenon", **NODES)
    assert not explain_many(given, some)[0].node_mask.any()  # class 0 only gains when the cause goes


def test_pgm_perturbs_features_also_where_edges_are_asked_for() -> None:
    model, data = seeded(NODE_MODELS["sage"]), graph()
    both = explain_many(explainer(model, PGMExplainer(), **BOTH), data, [5, 9])
    for one, other in zip(explain_many(explainer(model, PGMExplainer(), **EDGES), data, [5, 9]), both, strict=True):
        assert torch.equal(one.edge_mask, other.edge_mask)
        ends = other.node_mask[one.edge_index, 0].mean(0)
        torch.testing.assert_close(one.edge_mask[one.reached], ends[one.reached])
        assert one.edge_mask.std() > 0.01

    class Typed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.inner = nn.Embedding(5, 4), seeded(NODE_MODELS["gcn"])

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.inner(self.table(x), edge_index)

    with pytest.raises(ModelError, match="x must be floating"):
        explainer(seeded(Typed), PGMExplainer(), **EDGES)(torch.arange(24) % 5, data.edge_index, index=5)


# --- settings --------------------------------------------------------------------------------------------------------------


def test_bad_settings_are_named() -> None:
    for wrong in ({"batch": 0}, {"warm": 0}, {"lr": -1}, {"hidden": 0}, {"epochs": 2.5}):
        with pytest.raises(SettingsError, match=f"{next(iter(wrong))} must be"):
            PGExplainer(**wrong)
    for wrong in ({"samples": 0}, {"perturb": 1.5}, {"drop": -0.1}):
        with pytest.raises(SettingsError, match=f"{next(iter(wrong))} must be"):
            PGMExplainer(**wrong)
