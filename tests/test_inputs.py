"""Whatever PyG takes, explainers take too, and explain all of it; what they refuse, they refuse for the true reason."""

from __future__ import annotations

import copy
import pickle
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.explain import Explainer as PyGExplainer
from torch_geometric.explain import Explanation
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, NODE_MODELS, Link, Molecule, explainer, graph, quick, seeded

import nseg
from nseg import (
    NSEG,
    Explainer,
    InputError,
    LargeGraph,
    ModelError,
    NsegError,
    NsegWarning,
    SettingsError,
    UnknownNameError,
    baselines,
    certify,
    explain_many,
    metrics,
)
from nseg.baselines.catalogue import CATALOGUE

DATA = graph()
DATA.edge_index = DATA.edge_index.contiguous()
GRAPHS = [graph(6, 7, seed=seed) for seed in range(5)]
NUMBERS = ("p_factual", "p_complement", "pns", "pn", "ps")


def gcn() -> nn.Module:
    return seeded(NODE_MODELS["gcn"])


def node_explainer(model=None, algorithm=None, config=NODE_CONFIG, **options):
    return explainer(gcn() if model is None else model, algorithm or quick(steps=3), config, **options)


def changed(**attributes) -> Data:
    data = DATA.clone()
    for name, value in attributes.items():
        data[name] = value
    return data


def assert_same(a, b) -> None:
    """The same explanation, bit for bit."""
    assert torch.equal(a.edge_mask, b.edge_mask)
    assert torch.equal(a.hard_edge_mask, b.hard_edge_mask)
    assert [a[name] for name in NUMBERS] == [b[name] for name in NUMBERS]


class Says(nn.Module):
    """A GCN whose scores are turned into something."""

    def __init__(self, turn) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.turn = GCNConv(4, 3), turn

    def forward(self, x, edge_index):
        return self.turn(self.conv(x, edge_index))


# --- several graphs, however they are given ------------------------------------------------------------------------------


class Stored(InMemoryDataset):
    """The graphs as a dataset of PyG."""

    def __init__(self) -> None:
        super().__init__()
        self.data, self.slices = self.collate(GRAPHS)


COLLECTIONS = {
    "loader of batches": lambda: DataLoader(GRAPHS, batch_size=2),
    "list of batches": lambda: [Batch.from_data_list(GRAPHS[:3]), Batch.from_data_list(GRAPHS[3:])],
    "graphs and batches": lambda: [GRAPHS[0], Batch.from_data_list(GRAPHS[1:3]), *GRAPHS[3:]],
    "batch of one": lambda: [Batch.from_data_list([one]) for one in GRAPHS],
    "batch": lambda: Batch.from_data_list(GRAPHS),
    "generator": lambda: (one for one in GRAPHS),
    "generator of batches": lambda: iter(DataLoader(GRAPHS, batch_size=3)),
    "tuple": lambda: tuple(GRAPHS),
    "dataset": Stored,
    "subset of a dataset": lambda: torch.utils.data.Subset(GRAPHS, range(5)),
}


@cache
def of_a_list() -> tuple[PyGExplainer, list[Explanation]]:
    """An explainer, and its explanations of the graphs in a list."""
    explain = explainer(seeded(Molecule), quick(steps=3), GRAPH_CONFIG)
    return explain, explain_many(explain, GRAPHS)


def all_that_is_said(data: Any, page: Path) -> tuple[object, Tensor, str, Tensor]:
    """Certificates, the evaluator's outputs, a page, and the losses of a method that learns."""
    explain, found = of_a_list()
    learner = explainer(seeded(Molecule), baselines.make("pgexplainer", epochs=2), GRAPH_CONFIG)
    return (
        certify(explain, data(), found),
        metrics.Evaluator(explain, data(), found).output,
        nseg.report(found, page, data=data(), explainer=explain).read_text(),
        learner.algorithm.fit(learner, data()),
    )


@pytest.fixture(scope="module")
def said_of_a_list(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, Tensor, str, Tensor]:
    return all_that_is_said(lambda: GRAPHS, tmp_path_factory.mktemp("pages") / "page.html")


@pytest.mark.parametrize("name", COLLECTIONS)
def test_all_graphs_are_explained_in_order_however_they_are_given(name: str) -> None:
    explain, expected = of_a_list()
    found = explain_many(explain, COLLECTIONS[name]())
    assert [one.output_id for one in found] == list(range(5))
    for one, other, data in zip(found, expected, GRAPHS, strict=True):
        assert torch.equal(one.edge_index, data.edge_index)
        assert_same(one, other)


@pytest.mark.parametrize("name", COLLECTIONS)
def test_metrics_certificates_training_and_reports_see_the_same_graphs(name: str, tmp_path, said_of_a_list) -> None:
    for found, expected in zip(all_that_is_said(COLLECTIONS[name], tmp_path / "page.html"), said_of_a_list, strict=True):
        assert torch.equal(found, expected) if isinstance(found, Tensor) else found == expected


@pytest.mark.parametrize("name", COLLECTIONS)
def test_counterfactuals_see_the_same_graphs(name: str) -> None:
    explain, make = of_a_list()[0], COLLECTIONS[name]
    for number in (1, -1):
        assert nseg.counterfactual(explain, make(), number, most=2) == nseg.counterfactual(explain, GRAPHS, number, most=2)
    with pytest.raises(InputError, match="which of the 5 graphs are meant"):
        nseg.counterfactual(explain, make())


@pytest.mark.parametrize("batch", ["x", torch.eye(24).to_sparse()], ids=["text", "sparse"])
def test_batch_must_be_a_dense_tensor(batch) -> None:
    with pytest.raises(InputError, match="batch must be a tensor with the graph of each node"):
        explain_many(node_explainer(seeded(NODE_MODELS["gcn"])), changed(batch=batch), [0])


def test_a_stored_run_of_a_loader_holds_all_graphs(tmp_path) -> None:
    explain = explainer(seeded(Molecule), quick(steps=3), GRAPH_CONFIG)
    assert len(explain_many(explain, DataLoader(GRAPHS, batch_size=2), out=tmp_path / "run")) == 5
    assert len(explain_many(explain, GRAPHS, out=tmp_path / "run")) == 5  # the same data, so the run is resumed


def test_a_graph_that_is_secretly_several_is_refused() -> None:
    both = Batch.from_data_list(GRAPHS[:2])
    several = Data(x=both.x, edge_index=both.edge_index, batch=both.batch)
    with pytest.raises(InputError, match=r"must be one graph \(got 2 in element 1"):
        explain_many(explainer(seeded(Molecule), quick(), GRAPH_CONFIG), [GRAPHS[0], several])
    with pytest.raises(InputError, match="must know the graphs"):
        explain_many(explainer(seeded(Molecule), quick(), GRAPH_CONFIG), Batch(x=both.x, edge_index=both.edge_index))


def test_a_loader_that_shuffles_is_mentioned() -> None:
    with pytest.warns(NsegWarning, match="shuffle=False"):
        explain_many(explainer(seeded(Molecule), quick(steps=1), GRAPH_CONFIG), DataLoader(GRAPHS, shuffle=True))


def test_homogeneous_and_heterogeneous_graphs_are_not_mixed() -> None:
    one = HeteroData()
    one["a"].x, one["a", "to", "a"].edge_index = DATA.x, DATA.edge_index
    explain = explainer(seeded(Molecule), quick(), GRAPH_CONFIG)
    for data in ([GRAPHS[0], one], [one, GRAPHS[0]]):
        with pytest.raises(InputError, match="all homogeneous or all heterogeneous"):
            explain_many(explain, data)
    with pytest.raises(InputError, match="needs a sequence of graphs"):
        explain_many(explain, one)
    with pytest.raises(ModelError, match="must run on its input"):
        explain_many(explain, [one, one])


# --- node numbers and indices --------------------------------------------------------------------------------------------


EDGE_INDICES = {
    "int32": DATA.edge_index.int,
    "EdgeIndex": lambda: EdgeIndex(DATA.edge_index, sparse_size=(24, 24)),
    "EdgeIndex of int32": lambda: EdgeIndex(DATA.edge_index.int(), sparse_size=(24, 24)),
    "not contiguous": lambda: DATA.edge_index.T.contiguous().T,
}


@cache
def of_node_5() -> Explanation:
    return explain_many(node_explainer(), DATA, 5)[0]


@cache
def alone_of_node_5(kind: type[PyGExplainer]) -> Explanation:
    explain = kind(gcn(), quick(steps=3), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object")
    return explain(DATA.x, DATA.edge_index, index=5)


@pytest.mark.parametrize("name", EDGE_INDICES)
def test_any_integer_edge_index_gives_the_explanation_of_a_long_one(name: str, tmp_path) -> None:
    given = changed(edge_index=EDGE_INDICES[name]())
    expected = of_node_5()
    (found,) = explain_many(node_explainer(), given, 5)
    assert_same(found, expected)
    assert_same(found, explain_many(node_explainer(), given, 5, out=tmp_path / "run")[0])
    assert type(found.edge_index) is torch.Tensor
    assert found.edge_index.dtype is torch.long
    assert certify(node_explainer(), given, [found]) == certify(node_explainer(), DATA, [expected])
    for kind in (Explainer, PyGExplainer):
        explain = kind(gcn(), quick(steps=3), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object")
        assert_same(explain(DATA.x, EDGE_INDICES[name](), index=5), alone_of_node_5(kind))


@pytest.mark.parametrize("dtype", [torch.long, torch.int32])
def test_a_single_pair_of_nodes_is_one_link(dtype: torch.dtype) -> None:
    explain = explainer(seeded(Link), quick(steps=3), LINK_CONFIG)
    pair = torch.tensor([0, 2])
    (expected,) = explain_many(explain, DATA, edge_label_index=pair.view(2, 1))
    (found,) = explain_many(explain, DATA, edge_label_index=pair.to(dtype))
    assert_same(found, expected)
    single = explain(DATA.x, DATA.edge_index, edge_label_index=pair.to(dtype))
    assert_same(single, explain(DATA.x, DATA.edge_index, edge_label_index=pair.view(2, 1)))
    large = LargeGraph(DATA)
    assert_same(explain_many(explain, large, edge_label_index=pair.to(dtype))[0], expected)


INDICES = {
    "last": (-1, [23]),
    "from the end": ([-24, -1], [0, 23]),
    "slice": (slice(3, 8), [3, 4, 5, 6, 7]),
    "slice from the end": (slice(-2, None), [22, 23]),
    "numpy integer": (np.int64(3), [3]),
    "numpy array": (np.array([3, -1]), [3, 23]),
    "tensor of int32": (torch.tensor([3], dtype=torch.int32), [3]),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_means_what_it_means_for_a_tensor(name: str) -> None:
    index, rows = INDICES[name]
    found = explain_many(node_explainer(), DATA, index)
    assert [one.output_id for one in found] == rows
    for kind in (Explainer, PyGExplainer):
        explain = kind(gcn(), quick(steps=3), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object")
        single = explain(DATA.x, DATA.edge_index, index=index)
        assert_same(single, explain(DATA.x, DATA.edge_index, index=torch.tensor(rows)))
        if len(rows) == 1:
            assert certify(explain, DATA, single)[0].pns == pytest.approx(single.pns, abs=1e-5)
            assert certify(explain, DATA, found)[0].pns == pytest.approx(single.pns, abs=1e-5)


@pytest.mark.parametrize("index", [24, -25, [0, -25], slice(30, 40), slice("a", None), slice(None, None, -1), "abc"])
def test_an_index_outside_the_outputs_is_refused(index) -> None:
    with pytest.raises(InputError, match=r"index|slice"):
        explain_many(node_explainer(), DATA, index)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_located(bad: float) -> None:
    x = DATA.x.clone()
    x[7, 2] = x[9, 0] = bad
    with pytest.raises(InputError, match=rf"x must be finite \(got {bad} in x\[7, 2\], the first of 2"):
        explain_many(node_explainer(), changed(x=x), 5)


# --- models --------------------------------------------------------------------------------------------------------------


def made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return gcn()


class NoGradient(Says):
    @torch.no_grad()
    def forward(self, x, edge_index):
        return super().forward(x, edge_index)


class InPlace(Says):
    """Changes an argument of the caller, who would get another output with every call."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda z: z)
        self.name = name

    def forward(self, x, edge_index):
        {"x": x, "edge_index": edge_index}[self.name].mul_(1)
        return super().forward(x, edge_index)


class TakesData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = gcn()

    def forward(self, data):
        return self.inner(data.x, data.edge_index)


class Swapped(TakesData):
    def forward(self, edge_index, x):
        return self.inner(x, edge_index)


class Autocast(Says):
    def forward(self, x, edge_index):
        with torch.autocast("cpu", torch.bfloat16):
            return torch.mm(super().forward(x, edge_index), torch.eye(3))


MODELS = {
    "lazy": (lambda: NODE_MODELS["gcn"]().__class__([GCNConv(-1, 8), GCNConv(-1, 8)], 8), "lazy layer that has not run"),
    "inference mode": (made_in_inference_mode, "made under torch.inference_mode"),
    "float16": (lambda: gcn().half(), "torch.float16"),
    "bfloat16": (lambda: gcn().bfloat16(), "torch.bfloat16"),
    "autocast": (lambda: Autocast(lambda z: z), "torch.bfloat16"),
    "no_grad": (lambda: NoGradient(lambda z: z), "must have a gradient .* depends on them"),
    "detach": (lambda: Says(lambda z: z.detach()), "must have a gradient .* depends on them"),
    "numpy": (lambda: Says(lambda z: torch.tensor(z.detach().numpy())), "must have a gradient .* depends on them"),
    "constant": (lambda: Says(torch.ones_like), "must depend on the edges"),
    "x in place": (lambda: InPlace("x"), "changes x in place"),
    "edges in place": (lambda: InPlace("edge_index"), "changes edge_index in place"),
    "forward(data)": (TakesData, r"got forward\(data\)"),
    "forward(edge_index, x)": (Swapped, r"got forward\(edge_index, x\)"),
}


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_cannot_be_explained_is_refused_for_the_true_reason(name: str, many: bool) -> None:
    make, words = MODELS[name]
    model = make()
    x = DATA.x.to(next(model.parameters()).dtype)
    explain = Explainer(model, quick(steps=2), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object")
    with pytest.raises(ModelError, match=words):
        explain_many(explain, changed(x=x), 5) if many else explain(x, DATA.edge_index, index=5)


@pytest.mark.parametrize("name", ["lazy", "inference mode", "float16", "forward(data)"])
def test_metrics_certificates_and_counterfactuals_refuse_such_models_for_the_same_reason(name: str) -> None:
    make, words = MODELS[name]
    found = explain_many(node_explainer(), DATA, 5)
    explain = node_explainer(make())
    for ask in (
        lambda: metrics.Evaluator(explain, DATA, found),
        lambda: certify(explain, DATA, found),
        lambda: nseg.counterfactual(explain, DATA, 5),
    ):
        with pytest.raises(ModelError, match=words):
            ask()


def test_a_large_graph_is_made_of_a_folder_or_one_graph() -> None:
    for source in ([DATA], None, 3):
        with pytest.raises(InputError, match="made of a folder or one graph, Data or HeteroData"):
            LargeGraph(source)
    with pytest.raises(InputError, match="at least one node"):
        LargeGraph(HeteroData())


class Multiplies(Says):
    """Multiplies by a sparse matrix beside its layers."""

    def forward(self, x, edge_index):
        ones, nodes = torch.ones(edge_index.size(1)), len(x)
        matrix = torch.sparse_coo_tensor(edge_index, ones, (nodes, nodes), check_invariants=False)
        return super().forward(x + 0.1 * torch.sparse.mm(matrix, x), edge_index)


def test_a_model_may_multiply_sparse_matrices() -> None:
    explain = node_explainer(Multiplies(lambda z: z))
    (one,) = explain_many(explain, DATA, [5])
    full = torch.zeros(DATA.num_edges).index_copy(0, one.edge_id, one.hard_edge_mask.float())
    pyg = node_explainer(explain.model)
    for mask, p in ((full, one.p_factual), (1 - full, one.p_complement)):
        output = pyg.get_masked_prediction(DATA.x, DATA.edge_index, None, mask)[5]
        assert float(output.softmax(-1)[int(one.target[one.index])]) == pytest.approx(p, abs=1e-4)


def test_the_remedies_work() -> None:
    lazy = MODELS["lazy"][0]()
    lazy(DATA.x, DATA.edge_index)
    loaded = gcn()
    loaded.load_state_dict(made_in_inference_mode().state_dict())
    for model in (lazy, loaded, copy.deepcopy(gcn().half()).float()):
        assert explain_many(node_explainer(model), DATA, 5)[0].pns >= 0


LOG_PROBS = {**NODE_CONFIG, "return_type": "log_probs"}
IMPOSSIBLE = {
    "class that is never possible": lambda z: z.index_fill(1, torch.tensor([2]), -torch.inf).log_softmax(-1),
    "probabilities that round to zero": lambda z: (300 * z).softmax(-1).log(),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_log_probability_may_be_minus_infinity(name: str) -> None:
    logs = Says(IMPOSSIBLE[name])
    probabilities = Says(lambda z: IMPOSSIBLE[name](z).exp())
    assert torch.isneginf(logs(DATA.x, DATA.edge_index)).any()
    found = explain_many(node_explainer(logs, NSEG(steps=3), LOG_PROBS), DATA, [1, 5])
    probs = node_explainer(probabilities, NSEG(steps=3), {**NODE_CONFIG, "return_type": "probs"})
    for one, certificate in zip(found, certify(probs, DATA, found), strict=True):  # the same model, read otherwise
        assert torch.isfinite(one.edge_mask).all()
        assert [one[n] for n in NUMBERS] == pytest.approx([getattr(certificate, n) for n in NUMBERS], abs=1e-5)
    for method in ("saliency", "gnnexplainer", "cf2"):
        few = {} if method == "saliency" else {"steps": 5}
        (one,) = explain_many(node_explainer(logs, baselines.make(method, **few), LOG_PROBS), DATA, [1])
        assert torch.isfinite(one.edge_mask).all()


def test_an_infinite_score_is_not_called_randomness() -> None:
    with pytest.raises(ModelError, match="output must be finite"):
        explain_many(node_explainer(Says(lambda z: z.index_fill(1, torch.tensor([2]), torch.inf))), DATA, 5)


# --- probabilities declared raw ------------------------------------------------------------------------------------------


BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}


@pytest.mark.parametrize(
    ("turn", "config"),
    [(lambda z: z.softmax(-1), NODE_CONFIG), (lambda z: z[:, 0].sigmoid(), BINARY)],
    ids=["softmax", "sigmoid"],
)
def test_probabilities_declared_raw_get_one_warning_per_call(turn, config) -> None:
    explain = node_explainer(Says(turn), config=config)
    calls = (
        lambda: explain_many(explain, DATA, range(6), shard=2),
        lambda: explain(DATA.x, DATA.edge_index, index=3),
        lambda: nseg.counterfactual(explain, DATA, 3, most=1),
    )
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert ["return_type='probs'" in str(one.message) for one in caught] == [True]
        assert caught[0].category is NsegWarning
    truly = node_explainer(Says(turn), config={**config, "return_type": "probs"})
    found = explain_many(truly, DATA, range(10))  # warnings are errors
    with pytest.warns(NsegWarning, match="look like probabilities"):
        metrics.Evaluator(explain, DATA, found)


class SaysOfGraphs(Molecule):
    def __init__(self, turn) -> None:
        super().__init__()
        self.turn = turn

    def forward(self, x, edge_index, batch=None):
        return self.turn(super().forward(x, edge_index, batch))


def test_probabilities_of_graphs_declared_raw_get_one_warning() -> None:
    softmax = explainer(seeded(lambda: SaysOfGraphs(lambda z: z.softmax(-1))), quick(steps=1), GRAPH_CONFIG)
    with pytest.warns(NsegWarning, match="look like probabilities") as caught:
        explain_many(softmax, GRAPHS)
    assert len(caught) == 1
    with pytest.warns(NsegWarning, match="look like probabilities"):
        softmax(GRAPHS[0].x, GRAPHS[0].edge_index)
    config = {**GRAPH_CONFIG, "mode": "binary_classification"}
    sigmoid = explainer(seeded(lambda: SaysOfGraphs(lambda z: z[:, 0].sigmoid())), quick(steps=1), config)
    explain_many(sigmoid, GRAPHS)  # five numbers between 0 and 1 may be scores
    with pytest.warns(NsegWarning, match="look like probabilities"):
        explain_many(sigmoid, GRAPHS * 2)


def test_scores_are_not_taken_for_probabilities() -> None:
    for turn in (lambda z: z, lambda z: z.sigmoid(), lambda z: z.softmax(-1) + 0.01):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            explain_many(node_explainer(Says(turn)), DATA, [1])
        assert [str(one.message) for one in said if "probabilities" in str(one.message)] == []


# --- thresholds ----------------------------------------------------------------------------------------------------------


THRESHOLDS = [
    ("hard", 0.5),
    ("topk", 3),
    ("topk_hard", 3),
    ("topk", 1),
    ("topk_hard", 1),
    ("topk", 10_000),
    ("topk_hard", 10_000),
]
MASKS = {
    "edges": {"edge_mask_type": "object"},
    "nodes": {"node_mask_type": "object"},
    "features of nodes": {"node_mask_type": "attributes"},
    "features": {"node_mask_type": "common_attributes"},
    "both": {"edge_mask_type": "object", "node_mask_type": "object"},
}


def check_threshold(one, untouched, kind: str, value: float, certificate) -> None:
    """What PyG's own tests ask of a thresholded explanation, and that all of its parts are of one explanation."""
    for name in ("edge_mask", "node_mask"):
        if one.get(name) is None:
            continue
        soft, hard, before = one[name], one[f"hard_{name}"], untouched[name]
        assert torch.equal(hard, soft > 0)
        if kind == "hard":
            assert torch.equal(soft, (before > value).float())
        else:
            assert int((soft > 0).sum()) == min(int(value), int((before > 0).sum()) if kind == "topk" else soft.numel())
        if kind == "topk":
            assert torch.equal(soft[hard], before[hard])
        else:
            assert bool(((soft == 0) | (soft == 1)).all())
    assert [one[n] for n in NUMBERS] == pytest.approx([getattr(certificate, n) for n in NUMBERS], abs=2e-5)
    if kind != "topk":  # the masks shown are the hard ones
        assert [one.soft_p_factual, one.soft_p_complement] == pytest.approx([one.p_factual, one.p_complement], abs=1e-6)


def with_masks(algorithm: str, masks: str, **options) -> PyGExplainer:
    method = quick(steps=3) if algorithm == "nseg" else baselines.make(algorithm)
    return explainer(gcn(), method, **MASKS[masks], **options)


@cache
def not_thresholded(algorithm: str, masks: str) -> tuple[PyGExplainer, list[Explanation], Explanation]:
    explain = with_masks(algorithm, masks)
    return explain, explain_many(explain, DATA, [5]), explain(DATA.x, DATA.edge_index, index=5)


def thresholds_of(algorithm: str, masks: str) -> list[tuple[str, float]]:
    """One of each kind; for edges and nodes of NSEG also one element, and more elements than there are."""
    return THRESHOLDS if (algorithm, masks) == ("nseg", "both") else THRESHOLDS[:3]


@pytest.mark.parametrize(
    ("algorithm", "masks", "threshold"),
    [
        (*case, threshold)
        for case in (*(("nseg", masks) for masks in MASKS), ("saliency", "both"))
        for threshold in thresholds_of(*case)
    ],
)
def test_a_thresholded_explanation_is_one_explanation(algorithm: str, masks: str, threshold: tuple[str, float]) -> None:
    plain, untouched, before = not_thresholded(algorithm, masks)
    cut = with_masks(algorithm, masks, threshold_config=threshold)
    found = [*explain_many(cut, DATA, [5]), cut(DATA.x, DATA.edge_index, index=5)]
    for one, other, certificate in zip(found, (*untouched, before), certify(plain, DATA, found), strict=True):
        check_threshold(one, other, *threshold, certificate)
    pickle.dumps(found)


@pytest.mark.parametrize("threshold", THRESHOLDS[:3], ids=str)
def test_thresholded_explanations_of_graphs_links_and_large_graphs(threshold: tuple[str, float]) -> None:
    pairs = changed(edge_label_index=torch.tensor([[0, 3], [2, 4]]))
    cases = (
        (seeded(Molecule), GRAPH_CONFIG, GRAPHS, GRAPHS),
        (seeded(Link), LINK_CONFIG, pairs, pairs),
        (gcn(), NODE_CONFIG, LargeGraph(DATA), DATA),
    )
    for model, config, data, small in cases:
        cut, plain = (
            explainer(model, quick(steps=3), config, edge_mask_type="object", **o)
            for o in ({"threshold_config": threshold}, {})
        )
        keywords = {"edge_label_index": pairs.edge_label_index} if model.__class__ is Link else {}
        index = None if config is not NODE_CONFIG else [1, 5]
        many, untouched = (explain_many(one, data, index, **keywords) for one in (cut, plain))
        for one, before, certificate in zip(many, untouched, certify(plain, small, many), strict=True):
            check_threshold(one, before, *threshold, certificate)


def test_a_threshold_that_changes_nothing_keeps_the_numbers() -> None:
    (one,) = explain_many(explainer(gcn(), NSEG(steps=10)), DATA, [5])
    assert one.threshold(None) is one
    assert one.pns is not None
    masks = {"edge_mask_type": "object"}
    exact, before = (
        explain_many(explainer(seeded(Molecule), baselines.make("exhaustive"), GRAPH_CONFIG, **masks, **options), GRAPHS)[0]
        for options in ({"threshold_config": ("hard", 0.5)}, {})
    )
    assert exact.exact
    assert [exact[n] for n in NUMBERS] == pytest.approx([before[n] for n in NUMBERS], abs=1e-6)


def test_a_threshold_without_the_model_removes_numbers_of_other_masks() -> None:
    (one,) = explain_many(node_explainer(), DATA, [5])
    cut = one.threshold("topk", 1)
    assert int(cut.hard_edge_mask.sum()) == 1
    assert all(cut.get(name) is None for name in (*NUMBERS, "soft_p_factual", "soft_p_complement"))
    assert not cut.exact
    assert all(one.get(name) is not None for name in NUMBERS)


# --- names of arguments and settings -------------------------------------------------------------------------------------


def test_a_misspelt_keyword_is_named_with_what_was_meant(tmp_path) -> None:
    explain = node_explainer(Says(lambda z: z))
    for name, meant in {"n_workers": "workers", "idx": "index", "shards": "shard", "outt": "out"}.items():
        with pytest.raises(InputError, match=rf"\(got {name};.*Did you mean {meant}\?"):
            explain_many(explain, DATA, [1], **{name: 2})
    with pytest.warns(NsegWarning, match=r"passed on to Stack.forward.*Did you mean workers\?"):
        explain_many(node_explainer(), DATA, [1], n_workers=2)  # this model takes anything
    own = Explainer(Says(lambda z: z), quick(), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object")
    with pytest.raises(InputError, match=r"Did you mean index\?"):
        own(DATA.x, DATA.edge_index, indx=1)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_misspelt_setting_is_named_with_what_was_meant(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"\(got sedd\). Did you mean seed\?") as caught:
        baselines.make(name, sedd=20)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, NsegError)
    with pytest.raises(UnknownNameError, match=r"Known: split, "):
        baselines.make(name, zzzzzz=20)


def test_step_means_steps() -> None:
    for make in (lambda: NSEG(step=20), lambda: NSEG.paper("tree-grid", step=20), lambda: baselines.make("cf2", step=20)):
        with pytest.raises(UnknownNameError, match=r"Did you mean steps\?"):
            make()


def test_enumeration_of_too_many_subsets_is_refused() -> None:
    for make in (lambda: NSEG(exact=40), lambda: NSEG(exact=21), lambda: baselines.make("cf2", exact=40)):
        with pytest.raises(SettingsError, match=r"exact must be a whole number from 0 to 20, because n elements have 2\^n"):
            make()
    with pytest.raises(SettingsError, match="most must be a whole number from 1 to 20"):
        baselines.make("exhaustive", most=40)
    assert NSEG(exact=20).settings.exact == 20


def test_arguments_in_the_wrong_order_get_a_sentence() -> None:
    explain = node_explainer()
    found = explain_many(explain, DATA, [1])
    with pytest.raises(InputError, match="explainer and data swapped"):
        explain_many(DATA, explain, [1])
    with pytest.raises(InputError, match="must get a ExplainerAlgorithm"):
        Explainer(NSEG(), gcn(), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object")
    own = Explainer(gcn(), quick(), explanation_type="model", model_config=NODE_CONFIG, edge_mask_type="object")
    with pytest.raises(InputError, match="x and edge_index swapped"):
        own(DATA.edge_index, DATA.x, index=1)
    with pytest.raises(InputError, match="explainer, data, explanations"):
        certify(explain, found, DATA)
    with pytest.raises(InputError, match="explainer, data, explanations"):
        metrics.Evaluator(explain, found, DATA)
