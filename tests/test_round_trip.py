"""What is read back is what was written: every field, at every task level, for every kind of mask."""

from __future__ import annotations

import dataclasses
import math
from io import BytesIO
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.explain import GNNExplainer
from zoo import (
    CLASSES,
    GRAPH_CONFIG,
    LINK_CONFIG,
    NODE_CONFIG,
    NODE_MODELS,
    EdgeClassifier,
    EdgeStack,
    Link,
    Molecule,
    explainer,
    graph,
    quick,
    seeded,
)

import nseg
from nseg import Bernoulli, InputError, LargeGraph, NsegWarning, certify, explain_many, runs
from nseg.metrics import Evaluator
from nseg.runs import attach, parquet

PAIRS = torch.tensor([[0, 3, 7, 9], [5, 4, 1, 22]])
EDGE_CONFIG = {**NODE_CONFIG, "task_level": "edge"}
BINARY_NODES = {"mode": "binary_classification", "task_level": "node", "return_type": "probs"}


class Pairwise(Link):
    """Takes weights of edges, and a number per pair, besides the pairs."""

    def forward(self, x, edge_index, edge_label_index, bonus, scale):
        return super().forward(x * scale, edge_index, edge_label_index) + bonus.view(-1, 1)


class OneNumber(nn.Module):
    """One probability per node, without a second dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = NODE_MODELS["sage"]()

    def forward(self, x, edge_index):
        return self.inner(x, edge_index)[:, 0].sigmoid()


class WholeGraph(nn.Module):
    """Looks at all nodes, so that nothing can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Link()

    def forward(self, x, edge_index, edge_label_index):
        return self.inner(x - x.mean(0), edge_index, edge_label_index)


def with_pairs():
    data = graph()
    data.edge_label_index = PAIRS
    return data


MOLECULES = [graph(nodes=6 + n, edges=9, seed=n) for n in range(4)]
for _n, _one in enumerate(MOLECULES):
    _one.y = torch.tensor([_n % CLASSES])

LEVELS = {  # model, configuration, data, arguments besides those in the data
    "node": (NODE_MODELS["gcn"], NODE_CONFIG, graph(), {}),
    "node, edge weights": (NODE_MODELS["gcn, edge weights"], NODE_CONFIG, graph(), {}),
    "node, one number": (OneNumber, BINARY_NODES, graph(), {}),
    "node, directed": (NODE_MODELS["gat"], NODE_CONFIG, graph(kind="directed"), {}),
    "pairs in the data": (Link, LINK_CONFIG, with_pairs(), {}),
    "pairs as an argument": (Link, LINK_CONFIG, graph(), {"edge_label_index": PAIRS}),
    "pairs of three classes": (lambda: Link(CLASSES), EDGE_CONFIG, with_pairs(), {}),
    "pairs with arguments": (
        Pairwise,
        LINK_CONFIG,
        graph(),
        {"edge_label_index": PAIRS, "bonus": torch.arange(4.0), "scale": 0.5},
    ),
    "edges": (EdgeClassifier, EDGE_CONFIG, graph(), {}),
    "graph": (Molecule, GRAPH_CONFIG, MOLECULES, {}),
    "graph, edge attributes": (
        lambda: EdgeStack(NODE_MODELS["gine"]().convs, 8, level="graph", pass_on=("edge_attr",)),
        GRAPH_CONFIG,
        MOLECULES,
        {},
    ),
}
MASKS = {
    "edges": {"edge_mask_type": "object"},
    "nodes": {"node_mask_type": "object"},
    "joint": {"edge_mask_type": "object", "node_mask_type": "object"},
    "features of nodes": {"node_mask_type": "attributes"},
    "common features": {"edge_mask_type": "object", "node_mask_type": "common_attributes"},
}
SETTINGS = {
    "default": {},
    "undirected": {"undirected": True, "seed": 1 << 70},
    "split, NumPy numbers, a law": {
        "split": (0.2, 0.3, 0.5),
        "steps": np.int64(2),
        "lr": np.float32(0.5),
        "law": Bernoulli(0.25),
        "exact": 4,
        "patience": None,
        "seed": -3,
    },
}
KINDS = ("model", "phenomenon")
INDEX = [2, 0, 3]


def same(one: object, other: object) -> bool:
    if isinstance(one, Tensor):
        equal = isinstance(other, Tensor) and one.dtype is other.dtype and one.shape == other.shape
        return equal and torch.equal(one, other)
    return type(one) is type(other) and one == other


def assert_same(one, other) -> None:
    """Every attribute, public or not, and its type."""
    assert set(one.keys()) == set(other.keys())
    for name in one.keys():  # noqa: SIM118 - a graph, not a dictionary
        assert same(one[name], other[name]), name
    assert one._model_args == other._model_args
    assert vars(one._model_config) == vars(other._model_config)


def make(level: str, masks: str = "edges", algorithm=None, dtype=torch.float, **more):
    model, config, data, arguments = LEVELS[level]
    network = seeded(model).to(dtype)
    return explainer(network, algorithm or quick(steps=2), config, **MASKS[masks], **more), data, arguments


def round_trip(tmp_path: Path, explain, data, arguments, index=INDEX, **more):
    """Explanations, and the same ones written, read and attached; test_long_runs shows that ``out=`` writes the same."""
    found = explain_many(explain, data, index, **arguments, **more)
    runs.write(tmp_path / "run", found, {})
    assert "edge_index" not in nseg.read(tmp_path / "run")[0]
    given = {} if isinstance(data, list) else arguments
    return found, [attach(one, data, **given) for one in nseg.read(tmp_path / "run")]


def assert_measured_alike(explain, data, found, again) -> None:
    for masks in ("soft", "hard", 0.3):
        one, other = (Evaluator(explain, data, some).fidelity(masks) for some in (found, again))
        for field in dataclasses.fields(one):
            a, b = getattr(one, field.name), getattr(other, field.name)
            assert same(a, b) or (math.isnan(a) and math.isnan(b)), field.name
    one, other = (certify(explain, data, some[:1], Bernoulli(0.5), samples=5, exact=6) for some in (found, again))
    assert one == other


EVERY_LEVEL = [*zip(LEVELS, cycle(SETTINGS))]  # settings do not depend on the level, so they take turns


@pytest.mark.parametrize(("level", "settings"), [*EVERY_LEVEL, *(("node", name) for name in list(SETTINGS)[1:])])
def test_every_field_survives_at_every_level(tmp_path: Path, level: str, settings: str) -> None:
    algorithm = quick(**{"steps": 2, **SETTINGS[settings]})
    explain, data, arguments = make(level, algorithm=algorithm)
    found, again = round_trip(tmp_path, explain, data, arguments)
    for one, other in zip(found, again, strict=True):
        assert_same(one, other)
    if not arguments and settings == "default":  # metrics take arguments from the data
        assert_measured_alike(explain, data, found, again)


EVERY_MASK = [(level, masks) for level in ("node", "pairs in the data", "graph") for masks in MASKS]


@pytest.mark.parametrize(("level", "masks", "kind"), [(*one, kind) for one, kind in zip(EVERY_MASK, cycle(KINDS))])
def test_every_mask_survives(tmp_path: Path, level: str, masks: str, kind: str) -> None:
    explain, data, arguments = make(level, masks, explanation_type=kind)
    given = {"target": torch.tensor([1, 0, 1, 1])} if kind == "phenomenon" and level == "pairs in the data" else {}
    found, again = round_trip(tmp_path, explain, data, arguments, **given)
    for one, other in zip(found, again, strict=True):
        assert ("prediction" in one) == (kind == "model")
        assert_same(one, other)
    if level == "node":
        assert_measured_alike(explain, data, found, again)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_numbers_keep_their_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    explain, data, _ = make("node", "joint", dtype=dtype)
    data = data.clone()
    data.x = data.x.to(dtype)
    found, again = round_trip(tmp_path, explain, data, {})
    assert found[0].edge_mask.dtype is dtype
    for one, other in zip(found, again, strict=True):
        assert_same(one, other)


def test_explanations_of_a_large_graph_survive(tmp_path: Path) -> None:
    for level, index in (("node, edge weights", INDEX), ("pairs as an argument", INDEX)):
        explain, data, arguments = make(level)
        large = LargeGraph(data, neighbours=2)
        with pytest.warns(NsegWarning, match="left_out"):
            found = explain_many(explain, large, index, **arguments)
        with pytest.warns(NsegWarning, match="left_out"):
            explain_many(explain, large, index, out=tmp_path / level, **arguments)
        assert sum(one.left_out for one in found) > 0
        for one, other in zip(found, nseg.read(tmp_path / level), strict=True):
            assert_same(one, attach(other, large, **arguments))


@pytest.mark.filterwarnings("ignore::nseg.NsegWarning")
def test_an_explanation_on_the_whole_graph_keeps_all_pairs(tmp_path: Path) -> None:
    explain = explainer(seeded(WholeGraph), quick(steps=2), LINK_CONFIG)
    found, again = round_trip(tmp_path, explain, with_pairs(), {})
    for one, other in zip(found, again, strict=True):
        assert one.edge_label_index.size(1) == 4
        assert_same(one, other)


def test_algorithms_of_pyg_survive(tmp_path: Path) -> None:
    for level in ("node", "graph"):
        explain, data, arguments = make(level, "joint", GNNExplainer(epochs=2))
        torch.manual_seed(0)
        found, again = round_trip(tmp_path / level, explain, data, arguments)
        for one, other in zip(found, again, strict=True):
            assert_same(one, other)


def test_a_report_of_stored_explanations_is_that_of_the_originals(tmp_path: Path) -> None:
    for level in ("node, edge weights", "pairs in the data", "graph"):
        explain, data, arguments = make(level, "joint")
        found, again = round_trip(tmp_path / level, explain, data, arguments)
        for given in ({}, {"explainer": explain}):
            pages = [
                nseg.report(some, tmp_path / f"{n}.html", data=data, **given).read_bytes()
                for n, some in enumerate((found, again, nseg.read(tmp_path / level / "run")))
            ]
            assert pages[0] == pages[1] == pages[2]


def test_certificates_of_stored_explanations_keep_the_direction_of_edges(tmp_path: Path) -> None:
    """Fifteen undirected edges are fifteen elements, not the directed ones that happen to reach the output."""
    explain, data, _ = make("node", algorithm=quick(steps=2, undirected=True))
    found, again = round_trip(tmp_path, explain, data, {})
    plain = [one.clone() for one in again]
    for one in plain:
        del one.settings
    elements = [[one.elements for one in certify(explain, data, some)] for some in (found, again, plain)]
    assert elements[0] == elements[1] != elements[2]


def test_what_is_written_twice_is_the_same_file(tmp_path: Path) -> None:
    explain, data, _ = make("node", "joint", dtype=torch.double)
    data = data.clone()
    data.x = data.x.double()
    content = parquet.encode(explain_many(explain, data, INDEX))
    assert parquet.encode(parquet.decode(content)) == content


def test_a_missing_argument_is_named(tmp_path: Path) -> None:
    explain, data, arguments = make("pairs with arguments")
    explain_many(explain, data, INDEX, out=tmp_path / "run", **arguments)
    one = nseg.read(tmp_path / "run")[0]
    with pytest.raises(InputError, match="bonus must be known"):
        attach(one, data, **{k: v for k, v in arguments.items() if k != "bonus"})
    with pytest.raises(InputError, match="got other pairs"):
        attach(one, data, **{**arguments, "edge_label_index": PAIRS.flip(1) * 0 + 11})
    with pytest.raises(InputError, match="got other edges"):
        attach(one, graph(seed=5), **arguments)


OLD = ["seed", "index", "targets", "prediction", "prediction_width", "settings", "model_config", "arguments", "dtypes"]


@pytest.mark.parametrize("level", ["node, edge weights", "pairs in the data", "edges", "graph"])
def test_files_of_earlier_versions_are_still_read(level: str) -> None:
    explain, data, _ = make(level, algorithm=quick(steps=2, undirected=False))  # as in earlier versions
    found = explain_many(explain, data, INDEX)
    new = pq.read_table(BytesIO(parquet.encode(found)))
    content = BytesIO()
    pq.write_table(new.drop_columns(OLD), content)
    again = [attach(one, data, explainer=explain) for one in parquet.decode(content.getvalue())]
    for one, other in zip(found, again, strict=True):
        assert set(one.keys()) - set(other.keys()) <= {"prediction", "settings", "seed", "batch"}
        for name in set(other.keys()) - {"target"}:
            assert same(one[name], other[name]), name
        explained = (some.target if some.get("index") is None else some.target[some.index] for some in (one, other))
        assert same(*explained)
    for one, other in zip(certify(explain, data, found), certify(explain, data, again), strict=True):
        assert one == other


def test_settings_are_plain_and_equal_in_every_process() -> None:
    settings = quick(**SETTINGS["split, NumPy numbers, a law"]).settings.as_plain_data()
    assert settings["law"] == "Bernoulli(q=0.25)"
    assert (settings["steps"], type(settings["steps"])) == (2, int)
    assert (settings["lr"], type(settings["lr"])) == (0.5, float)
    assert quick(law=torch.lerp).settings.as_plain_data()["law"] == "torch._VariableFunctionsClass.lerp"
    assert "0x" not in quick(law=lambda mask, u: mask).settings.as_plain_data()["law"]
