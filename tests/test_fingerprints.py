"""Fingerprints: equal content gives equal hashes in every process; other content gives others, or is refused."""

from __future__ import annotations

import enum
import functools
import json
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.explain import GNNExplainer
from zoo import NODE_MODELS, explainer, graph, quick, seeded

import nseg
from nseg import StoreError, explain_many
from nseg.runs import fingerprint
from nseg.runs.folder import differences
from nseg.storage.hashing import UnhashableError, digest, plain_data

SCALE = 3.0


def helper(mask):
    return mask * SCALE


def calls_helper(mask, u):
    return helper(mask) + u


class Mood(enum.Enum):
    GOOD = 1
    BAD = 2


@dataclass
class Config:
    width: int
    act: object = torch.relu


class Law:
    """A callable object."""

    def __init__(self, q: float) -> None:
        self.q = q

    def __call__(self, mask, u):
        return (u < self.q) * mask

    def other(self, mask, u):
        return mask


def scaled(factor):
    def law(mask, u):
        return factor * mask

    return law


def documented(mask, u):
    """What this does."""
    return mask + u


def undocumented(mask, u):
    return mask + u


LARGE = np.arange(5000.0)
CHANGED = LARGE.copy()
CHANGED[2500] = 0  # hidden by the dots of its repr


def chain(first):
    found = [first, 2]
    found.append(found)
    return found


DIFFERENT = {
    "lambdas": (lambda m, u: m, lambda m, u: 1 - m),
    "constants of lambdas": (lambda m, u: m + 0.1, lambda m, u: m + 0.2),
    "nested lambdas": (lambda: lambda u: u + 1, lambda: lambda u: u + 2),
    "names in lambdas": (lambda m: m.min(), lambda m: m.max()),
    "closures": (scaled(1.0), scaled(2.0)),
    "closures over tensors": (scaled(torch.zeros(2)), scaled(torch.ones(2))),
    "defaults": (lambda m, a=1: m, lambda m, a=2: m),
    "keyword defaults": (lambda m, *, a=1: m, lambda m, *, a=2: m),
    "functions of torch": (torch.relu, torch.tanh),
    "Python functions of torch": (F.relu, F.elu),
    "methods of tensors": (torch.Tensor.relu, torch.Tensor.tanh),
    "ufuncs": (np.exp, np.log),
    "partials": (functools.partial(F.leaky_relu, negative_slope=0.1), functools.partial(F.leaky_relu, negative_slope=0.2)),
    "bound methods": (Law(0.5).other, Law(0.25).other),
    "callable objects": (Law(0.5), Law(0.25)),
    "methods of one object": (Law(0.5).other, Law(0.5).__call__),
    "large arrays": (LARGE, CHANGED),
    "types of arrays": (np.zeros(2), np.zeros(2, dtype=np.float32)),
    "shapes of arrays": (np.zeros((2, 3)), np.zeros((3, 2))),
    "arrays of objects": (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    "sparse tensors": (torch.eye(3).to_sparse(), torch.eye(3).mul(2).to_sparse()),
    "a sparse and a dense tensor": (torch.eye(3).to_sparse(), torch.eye(3)),
    "enums": (Mood.GOOD, Mood.BAD),
    "dataclasses": (Config(1), Config(2)),
    "functions in dataclasses": (Config(1, torch.relu), Config(1, torch.tanh)),
    "keys": ({1: "a"}, {"1": "a"}),
    "nesting": ([1, [2]], [[1], 2]),
    "modules": (nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)),
    "weights": (nn.Linear(2, 2), nn.Linear(2, 2)),
    "types": (torch.float, torch.double),
    "classes": (nn.ReLU, nn.Tanh),
    "sets": ({1, 2}, {1, 3}),
    "lists that hold themselves": (chain(1), chain(3)),
    "cached functions": (functools.lru_cache(lambda: 1), functools.lru_cache(lambda: 2)),
    "states of random numbers": (np.random.default_rng(0), np.random.default_rng(1)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_content_has_another_hash(name: str) -> None:
    one, other = DIFFERENT[name]
    assert digest(one) != digest(other)
    assert digest(one) == digest(one)
    assert digest([one, other]) != digest([other, one])


EQUAL = {
    "whole numbers": (5, np.int64(5)),
    "small whole numbers": (5, np.uint8(5)),
    "numbers": (0.5, np.float32(0.5)),
    "truth": (True, np.bool_(True)),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "lambdas": (lambda m: m + 1, lambda m: m + 1),
    "closures": (scaled(2.0), scaled(2.0)),
    "words about a function": (documented, undocumented),
    "views": (LARGE[::2], LARGE[::2].copy()),
    "layouts of tensors": (torch.arange(6).view(2, 3).T, torch.arange(6).view(2, 3).T.contiguous()),
    "gradients": (torch.ones(2), torch.ones(2, requires_grad=True)),
    "partials": (functools.partial(F.elu, alpha=2.0), functools.partial(F.elu, alpha=2.0)),
    "bound methods": (Law(0.5).other, Law(0.5).other),
    "dataclasses": (Config(1), Config(1)),
    "sets": ({"a", "b", "c"}, {"c", "b", "a"}),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_content_has_an_equal_hash(name: str) -> None:
    one, other = EQUAL[name]
    assert digest(one) == digest(other)


def test_what_a_function_calls_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(calls_helper)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 4.0)
    assert digest(calls_helper) != before
    monkeypatch.undo()
    assert digest(calls_helper) == before
    monkeypatch.setattr(sys.modules[__name__], "helper", lambda mask: mask)
    assert digest(calls_helper) != before


def portable() -> dict[str, object]:
    return {
        "functions": [calls_helper, F.relu, torch.tanh, scaled(2.0), lambda x: x in {"a", "b", "c"}],
        "objects": [Law(0.5), Config(3), Mood.BAD, {"a", "b", "c"}, functools.partial(helper), Law(0.5).other],
        "values": [LARGE, torch.eye(2).to_sparse(), np.int64(3), {"k": (1, None)}],
        "layers": [nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU()).requires_grad_(False).apply(_ones)],
    }


def _ones(layer):
    for parameter in layer.parameters():
        parameter.fill_(1.0)


SCRIPT = """
import json, sys
sys.path.insert(0, {tests!r})
import test_fingerprints as t
print(json.dumps([t.digest(t.portable()), t.plain_data(t.Law(0.5)), t.fingerprint.of_model(t.Act(t.torch.tanh))]))
"""


def test_hashes_are_equal_in_every_process() -> None:
    here = [digest(portable()), plain_data(Law(0.5)), fingerprint.of_model(Act(torch.tanh))]
    script = SCRIPT.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "PYTHONHASHSEED": "1"}  # here it is 0 or random
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == here


def test_hashes_survive_pickling() -> None:
    model = Act(torch.tanh, extra=LARGE, config=Config(2), law=Law(0.5), bound=Law(0.5).other, pair=(1, Mood.GOOD))
    copy = pickle.loads(pickle.dumps(model))
    assert fingerprint.of_model(copy) == fingerprint.of_model(model)
    plain = [value for name, value in portable().items() if name != "functions"]
    assert digest(pickle.loads(pickle.dumps(plain))) == digest(plain)


class Act(nn.Module):
    """A model with whatever attributes it is given."""

    def __init__(self, act, **attributes) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.inner = NODE_MODELS["gcn"]()
        self.act = act
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x, edge_index):
        return self.act(self.inner(x, edge_index))


ATTRIBUTES = {
    **{name: pair for name, pair in DIFFERENT.items() if name not in ("weights", "modules")},
    "plain tensors": (torch.zeros(3), torch.ones(3)),
    "lists of layers": ([nn.LeakyReLU(0.1)], [nn.LeakyReLU(0.2)]),
    "tuples": ((1, 2), (1, 3)),
    "NumPy numbers": (np.float64(0.5), np.float64(0.25)),
    "words": ("a", "b"),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_models_that_differ_in_an_attribute_differ(name: str) -> None:
    one, other = (fingerprint.of_model(Act(torch.relu, extra=value)) for value in ATTRIBUTES[name])
    assert one != other
    assert one == fingerprint.of_model(Act(torch.relu, extra=ATTRIBUTES[name][0]))
    if not isinstance(ATTRIBUTES[name][0], bool | int | float | str):
        assert any(line.startswith("attributes.extra is ") for line in differences(one, other)), "the attribute is named"


def test_models_that_differ_in_other_ways_differ() -> None:
    plain = fingerprint.of_model(Act(torch.relu))
    assert fingerprint.of_model(Act(torch.tanh)) != plain
    assert fingerprint.of_model(Act(torch.relu, _act=torch.tanh)) != fingerprint.of_model(Act(torch.relu, _act=torch.relu))
    buffered = [Act(torch.relu), Act(torch.relu)]
    for n, model in enumerate(buffered):
        model.register_buffer("hidden", torch.full((2,), float(n)), persistent=False)
    assert fingerprint.of_model(buffered[0]) != fingerprint.of_model(buffered[1])
    exempt = Act(torch.relu)
    exempt.inner.convs[0].explain = False
    assert fingerprint.of_model(exempt) != plain
    patched = Act(torch.relu)
    patched.forward = lambda x, edge_index: -patched.inner(x, edge_index)
    assert fingerprint.of_model(patched) != plain
    bound = Act(torch.relu)
    bound.act = bound.inner.forward  # a method of a layer that the model holds anyway
    assert "unknown" not in fingerprint.of_model(bound)


def test_another_forward_is_another_model() -> None:
    def variant(sign):
        class Model(Act):
            if sign > 0:

                def forward(self, x, edge_index):
                    return self.inner(x, edge_index)
            else:

                def forward(self, x, edge_index):
                    return -self.inner(x, edge_index)

        return fingerprint.of_model(Model(torch.relu))

    assert variant(1) == variant(1) != variant(-1)
    assert differences(variant(1), variant(-1))[0].startswith("code is ")


def test_running_a_model_changes_nothing() -> None:
    for name in ("gcn, cached", "gat", "shared layer, jumping knowledge, batch norm, dropout"):
        model = seeded(NODE_MODELS[name])
        before = fingerprint.of_model(model)
        model.train().eval()(graph().x, graph().edge_index).sum().backward()
        explain_many(explainer(model, quick(steps=1)), graph(), [3])
        assert fingerprint.of_model(model) == before


def test_settings_are_compared_by_content() -> None:
    def settings(**given):
        return fingerprint.of_settings(quick(**given))

    assert settings(steps=5) == settings(steps=np.int64(5))
    assert settings(law=lambda m, u: m) != settings(law=lambda m, u: u)
    assert settings(law=lambda m, u: m) == settings(law=lambda m, u: m)
    assert settings(law=nseg.Bernoulli(0.5)) != settings(law=nseg.Bernoulli(0.25))
    assert settings(law=scaled(1.0)) != settings(law=scaled(2.0))
    assert json.loads(json.dumps(settings(law=scaled(1.0))))["law"].startswith("test_fingerprints.scaled.<locals>.law ")
    assert fingerprint.of_settings(GNNExplainer(epochs=np.int64(3))) == fingerprint.of_settings(GNNExplainer(epochs=3))
    assert fingerprint.of_settings(GNNExplainer(edge_size=1)) != fingerprint.of_settings(GNNExplainer())


def test_data_is_compared_by_content() -> None:
    assert fingerprint.of_data(graph(), {"table": LARGE}) != fingerprint.of_data(graph(), {"table": CHANGED})
    assert fingerprint.of_data(graph(), {"table": LARGE}) == fingerprint.of_data(graph(), {"table": LARGE.copy()})


def test_a_threshold_is_compared_by_content() -> None:
    def of(value):
        given = {"edge_mask_type": "object", "threshold_config": {"threshold_type": "topk", "value": value}}
        return fingerprint.of_explainer(explainer(seeded(NODE_MODELS["gcn"]), quick(), **given))

    assert of(3) == of(3) != of(4)


def test_what_cannot_be_hashed_can_be_stored_but_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(UnhashableError, match=r"got _thread\.lock"):
        digest(threading.Lock())
    with pytest.raises(UnhashableError, match="never run"):
        digest(nn.LazyLinear(3))
    made = explainer(Act(torch.relu, guard=threading.Lock()).eval(), quick(steps=1))
    found = explain_many(made, graph(), [0, 1], out=tmp_path / "run")
    assert len(found) == 2
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=r"can be compared \(got model\.guard: .*lock"):
        explain_many(made, graph(), [0, 1], out=tmp_path / "run")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_with_another_function_is_refused(tmp_path: Path) -> None:
    def run(act, law=None):
        explain_many(explainer(Act(act).eval(), quick(steps=1, law=law)), graph(), [0, 1], out=tmp_path / "run")

    run(torch.relu, lambda mask, u: mask)
    run(torch.relu, lambda mask, u: mask)
    with pytest.raises(StoreError, match=r"model\.attributes\.act is"):
        run(torch.tanh, lambda mask, u: mask)
    with pytest.raises(StoreError, match=r"settings\.law is"):
        run(torch.relu, lambda mask, u: 1 - mask)
