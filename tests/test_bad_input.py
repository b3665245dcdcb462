"""Bad input gets a sentence: what must hold, what was given, what to do; and nothing is half done."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, NODE_MODELS, Link, Molecule, explainer, graph, quick, seeded

from nseg import (
    NSEG,
    BudgetError,
    Explainer,
    InputError,
    ModelError,
    NsegError,
    Settings,
    SettingsError,
    explain_many,
    metrics,
)

DATA = graph()


def single(model=None, x=DATA.x, edge_index=DATA.edge_index, config=NODE_CONFIG, masks=None, **kwargs):
    model = seeded(NODE_MODELS["gcn"]) if model is None else model
    kwargs.setdefault("index", 5)
    masks = masks or {"edge_mask_type": "object"}
    return explainer(model, quick(steps=2), config, **masks)(x, edge_index, **kwargs)


def many(data=DATA, index=(5,), model=None, config=NODE_CONFIG, masks=None, **kwargs):
    model = seeded(NODE_MODELS["gcn"]) if model is None else model
    masks = masks or {"edge_mask_type": "object"}
    return explain_many(explainer(model, quick(steps=2), config, **masks), data, index, **kwargs)


def changed(**attributes):
    data = DATA.clone()
    for name, value in attributes.items():
        data[name] = value
    return data


def with_nan(x: torch.Tensor) -> torch.Tensor:
    return x.clone().index_fill(0, torch.tensor([3]), float("nan"))


PHENOMENON = {"explanation_type": "phenomenon", "edge_mask_type": "object"}


class Constant(nn.Module):
    """Has message passing whose result it throws away, or ignores the features."""

    def __init__(self, use: str) -> None:
        super().__init__()
        self.use, self.inner, self.weight = use, NODE_MODELS["gcn"](), nn.Parameter(torch.ones(24, 4))

    def forward(self, x, edge_index):
        if self.use == "edges":
            return self.inner(self.weight, edge_index)
        self.inner(x, edge_index)
        return x[:, :3] * 2


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = NODE_MODELS["gcn"]()

    def forward(self, x, edge_index):
        return self.inner(x, edge_index) / 0.0 * 0.0


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 3)

    def forward(self, x, edge_index):
        return self.lin(x)


class Tupled(Plain):
    def forward(self, x, edge_index):
        return (self.lin(x),)


INPUTS = {
    "nan features": (lambda: single(x=with_nan(DATA.x)), InputError, "x must be finite"),
    "nan features, many": (lambda: many(changed(x=with_nan(DATA.x))), InputError, "x must be finite"),
    "inf edge weight": (
        lambda: many(changed(edge_weight=DATA.edge_weight / 0), model=seeded(NODE_MODELS["gcn, edge weights"])),
        InputError,
        "edge_weight must be finite",
    ),
    "nan output": (lambda: single(seeded(Broken)), ModelError, "output must be finite"),
    "nan output, many": (lambda: many(model=seeded(Broken)), ModelError, "output must be finite"),
    "index too large": (lambda: single(index=24), InputError, "between 0 and 23"),
    "index too negative": (lambda: many(index=[-25]), InputError, "between 0 and 23"),
    "index empty": (lambda: many(index=[]), InputError, "at least one output"),
    "index empty, single": (lambda: single(index=torch.tensor([], dtype=torch.long)), InputError, "at least one"),
    "index fractional": (lambda: many(index=[0.5]), InputError, "whole numbers"),
    "boolean index of another size": (lambda: many(index=torch.tensor([True])), InputError, "24 entries"),
    "target missing": (lambda: many(changed(y=None), masks=PHENOMENON), InputError, "needs the class"),
    "target too large": (lambda: many(target=DATA.y + 3, masks=PHENOMENON), InputError, "class from 0 to 2"),
    "target too short": (lambda: single(target=DATA.y[:3], masks=PHENOMENON), InputError, "each of the model's 24 rows"),
    "target fractional": (lambda: single(target=DATA.y.float(), masks=PHENOMENON), InputError, "whole class number"),
    "target for model": (lambda: many(target=DATA.y), InputError, "target must be None"),
    "no message passing": (lambda: single(seeded(Plain)), ModelError, "pass messages"),
    "no message passing, many": (lambda: many(model=seeded(Plain)), ModelError, "pass messages"),
    "edges do not matter": (lambda: single(seeded(lambda: Constant("x"))), ModelError, "depend on the edges"),
    "features do not matter": (
        lambda: single(seeded(lambda: Constant("edges")), masks={"node_mask_type": "object"}),
        ModelError,
        "depend on the features",
    ),
    "other dtype": (lambda: many(changed(x=DATA.x.double())), InputError, "model's dtype"),
    "other device": (lambda: many(changed(x=DATA.x.to("meta"))), InputError, "one device"),
    "edge_index of floats": (lambda: many(changed(edge_index=DATA.edge_index.float())), InputError, "torch.long"),
    "matrix of another graph": (
        lambda: many(changed(edge_index=torch.eye(23).to_sparse())),
        InputError,
        "a row and a column per node, 24 each",
    ),
    "edge to a node that is not there": (lambda: many(changed(edge_index=DATA.edge_index + 5)), InputError, "from 0 to 23"),
    "x missing": (lambda: many(changed(x=None)), InputError, "x must be a dense tensor"),
    "budget of one byte": (lambda: many(budget=1), BudgetError, "Raise it: budget="),
    "budget negative": (lambda: many(budget=-5), BudgetError, "positive number of bytes"),
    "one graph at graph level": (lambda: many(config=GRAPH_CONFIG, model=seeded(Molecule)), InputError, "Put it in a list"),
    "many graphs at node level": (lambda: many([DATA, DATA]), InputError, "Call it once per graph"),
    "no graphs": (lambda: many([], None, seeded(Molecule), GRAPH_CONFIG), InputError, "at least one graph"),
    "arguments of graphs": (
        lambda: many([DATA], None, seeded(Molecule), GRAPH_CONFIG, batch=1),
        InputError,
        "must be attributes of the graphs",
    ),
    "wrong task level": (lambda: single(seeded(Molecule)), ModelError, "task_level"),
    "link model without pairs": (
        lambda: single(seeded(Molecule), config=LINK_CONFIG | {"mode": "multiclass_classification"}),
        ModelError,
        "edge_label_index",
    ),
    "binary model of two columns": (
        lambda: single(config={**NODE_CONFIG, "mode": "binary_classification"}),
        ModelError,
        "one value per row",
    ),
    "model that returns a tuple": (lambda: many(model=seeded(Tupled)), ModelError, "must return one tensor"),
    "heterogeneous graph": (
        lambda: explainer(seeded(Link), NSEG(), LINK_CONFIG).algorithm(seeded(Link), {"a": DATA.x}, {}, target=None),
        InputError,
        "must get its pairs as edge_label_index",
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_bad_input_gets_a_sentence(name: str) -> None:
    run, kind, words = INPUTS[name]
    with pytest.raises(kind, match=words) as caught:
        run()
    assert isinstance(caught.value, NsegError)
    assert re.search(r"\((got|found|it does)|needs", str(caught.value)), "say what was given"


SETTINGS = {
    "split": {"split": (0.9, 0.3, 0.3)},
    "split of two": {"split": (0.5, 0.5)},
    "negative split": {"split": (1.5, -0.25, -0.25)},
    "negative steps": {"steps": -1},
    "fractional steps": {"steps": 1.5},
    "negative lr": {"lr": -0.1},
    "nan lr": {"lr": float("nan")},
    "no samples": {"samples": 0},
    "unknown objective": {"objective": "pnz"},
    "unknown extraction": {"extract": "best"},
    "threshold": {"threshold": 1.5},
    "top-k without k": {"extract": "topk"},
    "seed": {"seed": "0"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_outside_its_range_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=r"\(got ") as caught:
        NSEG(**SETTINGS[name])
    assert isinstance(caught.value, ValueError)


def test_a_misspelt_setting_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="alpha_edge"):
        NSEG(alpha_edge=0.1)
    with pytest.raises(SettingsError, match=r"Known: .*tree-grid"):
        NSEG.paper("tree-gird")


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(AttributeError):
        Settings().steps = 3


# --- models that are not what they are said to be ------------------------------------------------------------------------


class Says(nn.Module):
    """A GCN whose scores are turned into something."""

    def __init__(self, turn) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.turn = GCNConv(4, 3), turn

    def forward(self, x, edge_index):
        return self.turn(self.conv(x, edge_index))


WRONG = {
    "scores as probabilities": (lambda z: 5 * z, {"return_type": "probs"}, "did you mean return_type='raw'"),
    "scores as logarithms": (lambda z: 5 * z, {"return_type": "log_probs"}, "did you mean return_type='raw'"),
    "probabilities that do not sum": (lambda z: z.sigmoid(), {"return_type": "probs"}, "that sum to 1"),
    "one class": (lambda z: z[:, :1], {}, "at least two classes"),
    "classes": (lambda z: z.argmax(-1), {}, "scores or probabilities"),
    "complex": (lambda z: z.to(torch.complex64), {}, "scores or probabilities"),
    "one value per node": (lambda z: z[:, 0], {}, r"must return \[rows, classes\]"),
    "two tensors": (lambda z: (z, z), {}, "must return one tensor"),
    "nodes as graphs": (lambda z: z, {"task_level": "graph"}, "must return 1 rows here"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_output_that_is_not_what_it_is_said_to_be_gets_a_sentence(name: str) -> None:
    turn, changes, words = WRONG[name]
    config = {**NODE_CONFIG, **changes}
    explain, data = explainer(Says(turn), quick(), config), graph()
    few = [data] if config["task_level"] == "graph" else data
    with pytest.raises(ModelError, match=f"(?i){words}"):
        explain_many(explain, few, [0])


@pytest.mark.parametrize("kind", ["softmax", "log_softmax"])
def test_probabilities_that_are_some_are_welcome(kind: str) -> None:
    turn = (lambda z: z.softmax(-1)) if kind == "softmax" else (lambda z: z.log_softmax(-1))
    config = {**NODE_CONFIG, "return_type": "probs" if kind == "softmax" else "log_probs"}
    (one,) = explain_many(explainer(Says(turn), quick(), config), graph(), [0])
    assert 0 <= one.pns <= min(one.pn, one.ps) <= 1


def test_an_explainer_of_nonsense_gets_a_sentence() -> None:
    good = {"explanation_type": "model", "edge_mask_type": "object", "model_config": NODE_CONFIG}
    for model, algorithm, changes in (
        (3, NSEG(), {}),
        (Says(abs), "nseg", {}),
        (Says(abs), NSEG(), {"model_config": None}),
        (Says(abs), NSEG(), {"model_config": {**NODE_CONFIG, "mode": "foo"}}),
        (Says(abs), NSEG(), {"edge_mask_type": "foo"}),
        (Says(abs), NSEG(), {"edge_mask_type": None}),
    ):
        with pytest.raises(InputError):
            Explainer(model, algorithm, **{**good, **changes})
    explain = Explainer(Says(lambda z: z), quick(), **good)
    for data in (None, "x", 3, [3]):
        with pytest.raises(InputError, match="data must be"):
            explain_many(explain, data, [0])
    with pytest.raises(InputError, match="explainer must be"):
        explain_many(None, graph(), [0])
    with pytest.raises(InputError, match="batch must give"):
        explain_many(explainer(seeded(Molecule), quick(), GRAPH_CONFIG), [changed(batch=torch.zeros(2))])
    with pytest.raises(InputError, match=r"\(got foo; Says.forward takes only x and edge_index\)"):
        explain(graph().x, graph().edge_index, index=0, foo=3)
    with pytest.raises(ModelError, match="must return one tensor"):
        Explainer(Says(lambda z: (z, z)), quick(), **good)(graph().x, graph().edge_index, index=0)
    for pairs in ([[1], [2]], torch.tensor([1, 2, 3])):
        with pytest.raises(InputError, match="edge_label_index must be"):
            explain_many(explainer(seeded(Link), quick(), LINK_CONFIG), graph(), edge_label_index=pairs)
    with pytest.raises(InputError, match="which has ground truth"):
        metrics.accuracy(graph(), explain_many(explain, graph(), [0]))
