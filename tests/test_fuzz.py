"""Bad input of any kind gives a result or an NsegError: no other exception, no hang, no crash, no write outside ``out``.

``NSEG_FUZZ=2000 pytest tests/test_fuzz.py`` tries so many cases of each; a few are tried by default.
"""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch_geometric.data import Data
from zoo import GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, quick, seeded

import nseg
from nseg import NSEG, Explainer, LargeGraph, NsegError, explain_many, models
from nseg.cli.options import parse_numbers
from nseg.cli.own import load_data
from nseg.runs.folder import shard_name
from nseg.runs.parquet import decode, encode
from nseg.study import plan

fuzzed = settings(
    max_examples=int(os.environ.get("NSEG_FUZZ", "10")),
    derandomize="NSEG_FUZZ" not in os.environ,  # new cases each time if many are asked for
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


def assert_works_or_says_why(call: Callable[[], object]) -> None:
    """A result or an NsegError; anything else fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = None
        try:
            call()
        except NsegError as error:
            said = str(error)
    assert said is None or len(said.split()) >= 5, "an error is a sentence"


# --- tensors -------------------------------------------------------------------------------------------------------------

DTYPES = [torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.bool, torch.complex64, torch.bfloat16]
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3e38, float("nan"), float("inf"), 7.0])


@st.composite
def features(draw, nodes: int) -> object:
    kind = draw(st.sampled_from(["good", "good", "good", "dtype", "values", "shape", "other"]))
    good = torch.randn(nodes, 4, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    if kind == "dtype":
        return good.to(draw(st.sampled_from(DTYPES)))
    if kind == "values":
        return torch.full((nodes, 4), draw(NUMBERS)) * good
    if kind == "shape":
        return torch.zeros(draw(st.lists(st.integers(0, 5), max_size=3)))
    if kind == "other":
        return draw(
            st.sampled_from([None, "x", good.numpy(), good.to_sparse(), [[1.0]], {"a": good}, good.requires_grad_()])
        )
    return good


@st.composite
def edges(draw, nodes: int) -> object:
    kind = draw(st.sampled_from(["good", "good", "good", "range", "dtype", "shape", "other"]))
    count = draw(st.integers(0, 30))
    low, high = (-3, nodes + 3) if kind == "range" else (0, max(nodes, 1))
    ends = torch.randint(low, high, (2, count), generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    if kind == "dtype":
        return ends.to(draw(st.sampled_from(DTYPES)))
    if kind == "shape":
        return ends.flatten()[: draw(st.integers(0, 5))].reshape(draw(st.sampled_from([(-1,), (1, -1), (-1, 1)])))
    if kind == "other":
        return draw(st.sampled_from([None, "e", ends.numpy(), torch.eye(4).to_sparse(), [[0], [1]]]))
    return ends


INDEX = st.one_of(
    st.none(),
    st.integers(-3, 15),
    st.lists(st.integers(-2, 12), max_size=4),
    st.sampled_from(["3", 1.5, [0.5], range(3), slice(2), {1, 2}, object(), [[1], [2]]]),
    st.sampled_from([torch.tensor([1, 2]), torch.tensor([True] * 8), torch.tensor(3), torch.empty(0)]),
)
ODD = st.sampled_from([None, 0, -1, 1, 3, 1.5, True, "2", float("nan"), float("inf"), 10**30, [], object()])


@fuzzed
@given(st.data())
def test_graphs_indices_and_limits(data) -> None:
    draw, nodes = data.draw, data.draw(st.integers(0, 9))
    many = draw(st.booleans())
    explain = explainer(seeded(Molecule if many else NODE_MODELS["gcn"]), quick(steps=1), *([GRAPH_CONFIG] if many else []))
    one = Data(x=draw(features(nodes)), edge_index=draw(edges(nodes)))
    for name in draw(st.sets(st.sampled_from(["edge_weight", "batch", "y", "odd"]))):
        one[name] = draw(st.one_of(features(nodes), edges(nodes)))
    given_ = [one, graph(nodes=6, edges=5)] if many else one
    more = {"budget": 2**28, "shard": 256}
    for name in draw(st.sets(st.sampled_from(["budget", "shard", "target", "backend", "workers"]), max_size=1)):
        more[name] = draw(ODD)
    assert_works_or_says_why(lambda: explain_many(explain, given_, draw(INDEX), **more))
    if not many:
        checked = Explainer(explain.model, quick(steps=1), explanation_type="model", edge_mask_type="object", **config())
        assert_works_or_says_why(lambda: checked(one.x, one.edge_index, index=draw(INDEX)))
        assert_works_or_says_why(
            lambda: explain_many(explain, LargeGraph(one, draw(st.sampled_from([None, 1, 5]))), draw(INDEX))
        )


def config() -> dict[str, object]:
    return {"model_config": {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}}


FIELDS = sorted(vars(NSEG().settings))
VALUES = st.one_of(
    ODD, st.floats(), st.integers(-5, 5), st.text(max_size=3), st.tuples(st.floats(), st.floats(), st.floats())
)


@fuzzed
@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3))
def test_settings(changes) -> None:
    made = []
    assert_works_or_says_why(lambda: made.append(NSEG(**changes)))
    if made and made[0].settings.steps <= 5 and len(made[0].settings.starts) <= 5 and made[0].settings.samples <= 5:
        assert_works_or_says_why(
            lambda: explain_many(explainer(seeded(NODE_MODELS["gcn"]), made[0]), graph(nodes=8, edges=6), [1])
        )


# --- files ---------------------------------------------------------------------------------------------------------------


@st.composite
def mutated(draw, content: bytes) -> bytes:
    """A file with some bytes changed, cut off, or doubled."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(len(changed) - 1, 0)))
        what = draw(st.sampled_from(["flip", "cut", "double", "zero"]))
        if what == "flip" and changed:
            changed[place] ^= draw(st.integers(1, 255))
        elif what == "cut":
            del changed[place:]
        elif what == "double":
            changed[place:place] = changed[place : place + 40]
        else:
            changed[place : place + 16] = bytes(len(changed[place : place + 16]))
    return bytes(changed)


def found():
    return explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick(steps=1)), graph(), [1, 2])


PARQUET = encode(found())
KEYS = ["targets", "number", "shard", "format"]
FITTING = '{"targets": {"number": 2}, "shard": 2}'
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=6,
)


@fuzzed
@given(st.data())
def test_stored_explanations(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("stored")
    content = data.draw(st.one_of(mutated(PARQUET), st.binary(max_size=60), st.just(PARQUET)))
    manifest = data.draw(st.one_of(JSON.map(json.dumps), st.text(max_size=9), st.just(FITTING)))
    (folder / "manifest.json").write_text(manifest, errors="replace")
    (folder / "explanations").mkdir()
    names = [shard_name(0, content), shard_name(7, content), "0-0.parquet", "x-y.parquet"]
    name = data.draw(st.sampled_from(names))
    (folder / "explanations" / name).write_bytes(content)
    assert_works_or_says_why(lambda: list(nseg.read(folder)))
    assert_works_or_says_why(lambda: decode(content))
    assert_works_or_says_why(
        lambda: explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick(steps=1)), graph(), [1], out=folder)
    )


class Bomb:
    """What must not be run when a file is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


WEIGHTS = save({"a": torch.ones(3), "b": torch.zeros(2, 2)})


@fuzzed
@given(st.data())
def test_weights_and_graphs_in_files(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("files")
    mark = folder / "boom"
    torch.save(Bomb(mark), folder / "bomb.pt")
    torch.save(Data(x=torch.ones(2, 4), edge_index=torch.zeros(2, 1, dtype=torch.long)), folder / "good.pt")
    contents = st.one_of(
        mutated(WEIGHTS),
        mutated((folder / "good.pt").read_bytes()),
        st.just((folder / "bomb.pt").read_bytes()),
        st.just(pickle.dumps(Bomb(mark))),
        st.binary(max_size=50),
        st.just(b"\xff" * 8 + b"{}"),
    )
    path = folder / f"file{data.draw(st.sampled_from(['.pt', '.safetensors', '']))}"
    path.write_bytes(data.draw(contents))
    assert_works_or_says_why(lambda: models.read_weights(path))
    assert_works_or_says_why(lambda: load_data(path))
    assert not mark.exists()


GRAPH = {f"{name}.npy": None for name in ("ptr", "sender", "edge", "node.x")}


@fuzzed
@given(st.data())
def test_graphs_on_disk(tmp_path_factory, data) -> None:
    folder = tmp_path_factory.mktemp("graph") / "graph"
    LargeGraph.write(folder, graph().edge_index, graph().x)
    victim = folder / data.draw(st.sampled_from(sorted([*GRAPH, "graph.json"])))
    if data.draw(st.booleans()):
        victim.write_bytes(data.draw(mutated(victim.read_bytes())))
    else:
        kind = data.draw(st.sampled_from([np.int64, np.float32, np.int8]))
        np.save(victim.with_suffix(".npy"), np.full(data.draw(st.lists(st.integers(0, 30), max_size=2)), 3, kind))
    explain = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=1))
    assert_works_or_says_why(lambda: explain_many(explain, LargeGraph(folder), [1, 5]))


SMOKE = (Path(plan.__file__).parent / "studies" / "smoke.toml").read_bytes()


@fuzzed
@given(st.one_of(mutated(SMOKE), st.binary(max_size=60)), st.text(max_size=8))
def test_studies_and_numbers(toml, text) -> None:
    assert_works_or_says_why(lambda: plan.read(toml.decode(errors="replace"), "fuzzed"))
    assert_works_or_says_why(lambda: parse_numbers(text))


def test_nothing_is_written_outside_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside").mkdir()
    explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick(steps=1)), graph(), [1, 2], out="out/./run")
    assert {p.name for p in tmp_path.iterdir()} == {"beside", "out"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"run"}
    assert not list((tmp_path / "beside").iterdir())
