"""Events of the output: closed forms, independent references, every door, storage, words and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explanation
from torch_geometric.explain import GNNExplainer as PyGGNNExplainer
from torch_geometric.explain.config import ModelConfig, ModelReturnType, ModelTaskLevel
from torch_geometric.nn import GCNConv, GraphConv, global_add_pool
from zoo import FEATURES, NODE_CONFIG, NODE_MODELS, graph, seeded

import nseg
from nseg import (
    NSEG,
    Above,
    Below,
    Custom,
    Explainer,
    Label,
    LargeGraph,
    Not,
    Rather,
    Within,
    certify,
    explain_many,
    metrics,
)
from nseg.events import Event, event_from
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.model.outcomes import outcome_of
from nseg.model.outcomes.regression import STANDARD_LOGISTIC
from nseg.runs.parquet import decode, encode

REGRESSION = {"mode": "regression", "task_level": "node"}
GRAPH_REGRESSION = {"mode": "regression", "task_level": "graph"}
LABELS = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
EVENTS: list[Event] = [
    *(Within(0.5), Within(0.5, scale=0.25, output=1), Above(-2.0, scale=0.1), Below(3, output=2)),
    *(Rather(than=2), Not(1), Label(3), Custom(torch.sigmoid, name="it rains")),
]


class Value(nn.Module):
    """A regression of nodes or graphs with some numbers per row."""

    def __init__(self, level: str = "node", numbers: int = 1) -> None:
        super().__init__()
        self.conv, self.head, self.level = GCNConv(FEATURES, 8), nn.Linear(8, numbers), level

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv(x, edge_index).tanh()
        return self.head(global_add_pool(x, batch) if self.level == "graph" else x)


def asking(model: nn.Module, outcome: Event | None, config: dict[str, str], **settings: Any) -> Explainer:
    """An explainer of edges that asks for an event."""
    masks = {"edge_mask_type": "object", **{k: settings.pop(k) for k in list(settings) if k.endswith("_type")}}
    algorithm = NSEG(outcome=outcome, **{"steps": 5, **settings})
    return Explainer(model, algorithm, model_config=config, **{"explanation_type": "model", **masks})


def outcome(event: Event, mode: str = "regression", returns: str = "raw") -> Any:
    return outcome_of(ModelConfig(mode=mode, task_level="graph", return_type=returns), event)


def assert_equal_answers(one: Explanation, other: Explanation, same: float = 1e-5) -> None:
    assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)
    torch.testing.assert_close(one.edge_mask, other.edge_mask, atol=1e-4, rtol=1e-3)
    assert [one.p_factual, one.p_complement] == pytest.approx([other.p_factual, other.p_complement], abs=same)


# --- closed forms ----------------------------------------------------------------------------------------------------------


def logistic_cdf(z: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-z))


def test_probabilities_of_values_are_those_of_logistic_noise_of_the_stated_deviation() -> None:
    """Above and within by the distribution function; the deviation by a numeric integral of the density."""
    output, target = torch.linspace(-3, 3, 25).double(), torch.full((25,), 0.5).double()
    s = 0.7 / STANDARD_LOGISTIC
    within = logistic_cdf((target + 0.4 - output) / s) - logistic_cdf((target - 0.4 - output) / s)
    torch.testing.assert_close(outcome(Within(0.4, scale=0.7)).probability(output, target), within)
    above = 1 - logistic_cdf((1.0 - output) / s)
    torch.testing.assert_close(outcome(Above(1.0, scale=0.7)).probability(output, target), above)
    torch.testing.assert_close(outcome(Below(1.0, scale=0.7)).probability(output, target), 1 - above)
    z = torch.linspace(-20, 20, 100_001).double()
    density = outcome(Below(0.0, scale=0.7)).probability(-z, target[:1]).diff() / z.diff()
    middle = (z[1:] + z[:-1]) / 2
    assert math.sqrt(float((middle**2 * density.abs() * z.diff()).sum())) == pytest.approx(0.7, abs=1e-4)


@pytest.mark.parametrize("event", [Within(0.5, scale=1e-3), Within(1e3, scale=1.0), Above(0.1, scale=1e-4)])
def test_log_odds_stay_finite_and_keep_their_gradient_where_probabilities_round(event: Event) -> None:
    output, target = torch.tensor([-900.0, 0.3, 900.0], requires_grad=True), torch.zeros(3)
    z = outcome(event).log_odds(output, target)
    assert bool(torch.isfinite(z).all())
    torch.testing.assert_close(z.sigmoid(), outcome(event).probability(output, target))
    (slope,) = torch.autograd.grad(z.sum(), output)
    assert bool(torch.isfinite(slope).all())
    assert bool((slope[[0, 2]] != 0).all())


@pytest.mark.parametrize(("event", "at"), [(Within(0.5, scale=9.0), 0.5), (Above(1.0, scale=9.0), 1.0)])
def test_the_verdict_is_on_the_plain_value_whatever_the_noise(event: Event, at: float) -> None:
    near = torch.tensor([at - 1e-3, at + 1e-3])
    happens = outcome(event).holds(near, torch.zeros(2)).tolist()
    assert happens == [isinstance(event, Within), isinstance(event, Above)]


@pytest.mark.parametrize("returns", ["raw", "probs", "log_probs"])
def test_rather_and_not_in_closed_form_for_everything_a_model_may_return(returns: str) -> None:
    p = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.3, 0.6]])
    output, target = p if returns == "probs" else p.log(), torch.tensor([0, 1])
    rather = outcome(Rather(than=2), NODE_CONFIG["mode"], returns)
    torch.testing.assert_close(rather.probability(output, target), torch.tensor([0.5 / 0.8, 0.3 / 0.9]))
    torch.testing.assert_close(rather.log_odds(output, target), torch.tensor([0.5 / 0.3, 0.3 / 0.6]).log())
    assert rather.holds(output, target).tolist() == [True, False]
    why_not = outcome(Not(2), NODE_CONFIG["mode"], returns)
    torch.testing.assert_close(why_not.probability(output, target), torch.tensor([0.7, 0.4]))
    assert why_not.holds(output, target).tolist() == [True, False]


class TwoReasons(nn.Module):
    """Class scores of node 0 by hand: 2 for class 0 always, 3 for class 1 over edge 0, 4 for class 2 over edge 1."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GraphConv(3, 3, bias=False)
        self.conv.lin_rel.weight.data = torch.eye(3)
        self.conv.lin_root.weight.data = torch.eye(3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


def test_rather_finds_what_speaks_against_that_class_only() -> None:
    """Of two edges one raises class 1 and one class 2. Only the second matters for "class 2 rather than class 0 or 1"."""
    x = torch.tensor([[2.0, 0, 0], [0, 3.0, 0], [0, 0, 4.0]])
    data = Data(x=x, edge_index=torch.tensor([[1, 2], [0, 0]]))
    (rather,) = explain_many(asking(TwoReasons(), Rather(than=0), NODE_CONFIG), data, [0])
    assert rather.hard_edge_mask.tolist() == [False, True]
    assert rather.p_factual == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-6)  # 4 against 2
    assert rather.p_complement == pytest.approx(1 / (1 + math.exp(2)), abs=1e-6)  # 0 against 2
    (why_not,) = explain_many(asking(TwoReasons(), Not(0), NODE_CONFIG), data, [0])
    none = math.exp(2) / (math.exp(2) + 2)  # class 0 without any edge
    both = 1 - math.exp(2) / (math.exp(2) + math.exp(3) + math.exp(4))
    assert why_not.hard_edge_mask.tolist() == [True, True]  # either edge alone would do, so only both are necessary
    assert [why_not.p_factual, why_not.p_complement] == pytest.approx([both, 1 - none], abs=1e-6)


# --- independent references ------------------------------------------------------------------------------------------------


class Shifted(nn.Module):
    """The regression as a binary classifier of "above": the reference that people wrote by hand before."""

    def __init__(self, model: nn.Module, threshold: float, scale: float) -> None:
        super().__init__()
        self.model, self.threshold, self.unit = model, threshold, scale / STANDARD_LOGISTIC

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return (self.model(x, edge_index) - self.threshold) / self.unit


@pytest.mark.parametrize(
    "name", [name for name in nseg.baselines.CATALOGUE if name not in ("attention", "exhaustive", "pgexplainer")]
)
def test_above_equals_a_binary_classifier_by_hand(name: str) -> None:
    model, data = seeded(Value), graph(nodes=12, edges=14)
    high = int(model(data.x, data.edge_index).argmax())
    few = {"steps": 40} if name in ("nseg", "gnnexplainer", "cf_gnnexplainer", "cf2") else {}
    found = []
    for one, event, config in ((model, Above(0.1, scale=0.3), REGRESSION), (Shifted(model, 0.1, 0.3), None, LABELS)):
        algorithm = nseg.baselines.make(name, outcome=event, **few)
        explainer = Explainer(one, algorithm, explanation_type="model", model_config=config, edge_mask_type="object")
        found += explain_many(explainer, data, [high])
    torch.testing.assert_close(found[0].edge_mask, found[1].edge_mask, atol=1e-3, rtol=1e-3)
    assert torch.equal(found[0].hard_edge_mask, found[1].hard_edge_mask)
    assert [found[0].pns, found[0].pn, found[0].ps] == pytest.approx([found[1].pns, found[1].pn, found[1].ps], abs=1e-4)


def test_a_label_equals_the_binary_model_of_that_column_through_both_doors() -> None:
    model, data = seeded(lambda: Value(numbers=4)), graph()

    class Column(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.model(x, edge_index)[:, 2]

    (plain,) = explain_many(asking(Column(), None, LABELS), data, [5])
    explainer = asking(model, Label(2), LABELS)
    (asked,) = explain_many(explainer, data, [5])
    assert_equal_answers(asked, plain)
    whole = explainer(data.x, data.edge_index, index=5)
    assert torch.equal(whole.hard_edge_mask[asked.edge_id], asked.hard_edge_mask)
    for some in (asked, whole):
        found = metrics.Evaluator(explainer, data, [some]).each("hard")
        assert float(found.p_factual) == pytest.approx(asked.p_factual, abs=1e-5)
        assert int(nseg.explanation.explained_targets(some)[some.index]) == int(plain.target[plain.index])


def test_a_function_equals_the_event_that_it_writes_out() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    index = [int((model(data.x, data.edge_index).argmax(-1) != 1).nonzero()[0])]
    rest = Custom(
        lambda rows: 1 - rows.softmax(-1)[..., 1], holds=lambda rows: rows.argmax(-1) != 1, name="the class is not 1"
    )
    (asked,) = explain_many(asking(model, rest, NODE_CONFIG), data, index)
    (same,) = explain_many(asking(model, Not(1), NODE_CONFIG), data, index)
    assert_equal_answers(asked, same, 1e-4)
    assert asked.outcome.name == "the class is not 1"


# --- noise and distance that are not given ---------------------------------------------------------------------------------


def test_noise_comes_from_residuals_if_there_are_targets_and_from_the_spread_if_not() -> None:
    model, data = seeded(Value), graph()
    value = model(data.x, data.edge_index).detach().flatten()
    spread = float(value.double().std(correction=0))
    (by_spread,) = explain_many(asking(model, None, REGRESSION), data, [3])
    assert by_spread.outcome.distance == pytest.approx(spread / 2, rel=1e-3)
    assert by_spread.outcome.scale == pytest.approx(spread / 4, rel=1e-3)
    data.y = value + 0.125 * torch.tensor([1.0, -1.0]).repeat(12)
    data.y[7] = torch.nan  # unknown values do not count
    (by_residuals,) = explain_many(asking(model, Above(-9.0), REGRESSION), data, [3])
    assert by_residuals.outcome == Above(-9.0, scale=0.125)
    alone = asking(model, None, REGRESSION)(data.x, data.edge_index, index=3)
    assert alone.outcome == by_spread.outcome


def test_noise_does_not_depend_on_which_outputs_are_explained() -> None:
    model, graphs = seeded(lambda: Value("graph")), [graph(nodes=5 + s, edges=8, seed=s) for s in range(4)]
    explainer = asking(model, Within(0.2), GRAPH_REGRESSION)
    batch = explain_many(explainer, graphs)
    (one,) = explain_many(explainer, graphs, [2])
    assert one.outcome == batch[2].outcome
    assert_equal_answers(one, batch[2])
    single = explainer(graphs[2].x, graphs[2].edge_index)  # one prediction has no spread: its size takes its place
    size = float(model(graphs[2].x, graphs[2].edge_index).detach().abs())
    assert single.outcome.scale == pytest.approx(size / 4, rel=1e-3)


def test_methods_of_pyg_are_explained_and_measured_by_the_same_outcome() -> None:
    model, data = seeded(Value), graph()
    explainer = Explainer(
        model, PyGGNNExplainer(epochs=3), explanation_type="model", model_config=REGRESSION, edge_mask_type="object"
    )
    found = explain_many(explainer, data, [3, 4])
    assert found[0].outcome == explain_many(asking(model, None, REGRESSION), data, [3])[0].outcome
    each = metrics.Evaluator(explainer, data, found).each(0.5)
    assert float(each.p[0]) == pytest.approx(math.tanh(0.5 * found[0].outcome.distance / _unit(found[0])), abs=1e-5)


def _unit(one: Explanation) -> float:
    return float(one.outcome.scale) / STANDARD_LOGISTIC


# --- numbers are those of the untouched model, metrics use holds -----------------------------------------------------------


def above(value: Tensor, at: float, scale: float) -> Tensor:
    """Probability that a value with logistic noise of a standard deviation is above a threshold."""
    return logistic_cdf((value - at) * (math.pi / math.sqrt(3)) / scale)


ASKED: dict[
    str, tuple[Event, Any, Any]
] = {  # an event, its probability and its verdict by hand, of the value and the prediction
    "within": (
        Within(0.15, scale=0.1),
        lambda v, was: above(v, float(was) - 0.15, 0.1) - above(v, float(was) + 0.15, 0.1),
        lambda v, was: abs(v - was) <= 0.15,
    ),
    "above": (Above(-0.2, scale=0.1), lambda v, was: above(v, -0.2, 0.1), lambda v, was: v >= -0.2),
    "custom": (
        Custom(lambda rows: torch.exp(-rows[..., 0].square()), holds=lambda rows: rows[..., 0].abs() < 9),
        lambda v, was: torch.exp(-v.square()),
        lambda v, was: v.abs() < 9,
    ),
}


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("name", ASKED)
def test_numbers_and_verdicts_are_those_of_the_model_on_graphs_with_edges_deleted(name: str, level: str) -> None:
    """By PyG alone: the model itself on the rebuilt graph, and the probability written out by hand."""
    event, probability, holds = ASKED[name]
    model = seeded(lambda: Value(level))
    graphs = [graph(nodes=5 + seed, edges=6, seed=seed) for seed in range(5)] if level == "graph" else [graph()]
    with torch.no_grad():
        values = torch.cat([model(one.x, one.edge_index).flatten() for one in graphs])
    index = [n for n, value in enumerate(values.tolist()) if value > -0.2][:3]
    data = graphs if level == "graph" else graphs[0]
    explainer = asking(model, event, {"mode": "regression", "task_level": level})
    found = explain_many(explainer, data, index)
    each = metrics.Evaluator(explainer, data, found).each("hard", "remove")
    for b, one in enumerate(found):
        whole, row = (graphs[one.output_id], 0) if level == "graph" else (graphs[0], one.output_id)
        kept = torch.zeros(whole.num_edges, dtype=torch.bool).index_copy(0, one.edge_id, one.hard_edge_mask)
        with torch.no_grad():
            both = [model(whole.x, whole.edge_index[:, some])[row, 0] for some in (kept, ~kept)]
        was = values[one.output_id]
        assert [one.p_factual, one.p_complement] == pytest.approx([float(probability(v, was)) for v in both], abs=1e-4)
        changed = [bool(each.changed_with[b]), bool(each.changed_without[b])]
        assert changed == [not bool(holds(v, was)) for v in both]


# --- storage and words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_events_are_plain_data_and_come_back(event: Event) -> None:
    again = event_from(json.loads(json.dumps(event.as_plain_data())))
    assert repr(again) == repr(event)
    assert again == event or isinstance(event, Custom)


@pytest.mark.parametrize("level", ["node", "graph"])
def test_stored_explanations_keep_outcome_value_and_numbers(level: str, tmp_path: Path) -> None:
    model, config = seeded(lambda: Value(level)), {**REGRESSION, "task_level": level}
    data = [graph(nodes=6, edges=8, seed=s) for s in range(3)] if level == "graph" else graph()
    explainer = asking(model, Within(0.2), config)
    found = explain_many(explainer, data, [1, 2])
    stored = explain_many(explainer, data, [1, 2], out=tmp_path / "run")
    for one, other in zip(found, stored, strict=True):
        assert other.outcome == one.outcome
        assert torch.equal(other.target, one.target.flatten())
        again = nseg.runs.attach(other, data)
        evaluated = metrics.Evaluator(explainer, data, [again]).each("hard")
        assert float(evaluated.p_factual) == pytest.approx(one.p_factual, abs=1e-5)
    (alone,) = decode(encode([explainer(data.x, data.edge_index, index=3)])) if level == "node" else found[:1]
    assert alone.outcome == found[0].outcome
    with pytest.raises(nseg.StoreError, match="outcome"):
        explain_many(asking(model, Within(0.3), config), data, [1, 2], out=tmp_path / "run")


def test_words_of_a_regression_speak_of_values_and_never_of_classes(tmp_path: Path) -> None:
    model, graphs = seeded(lambda: Value("graph")), [graph(nodes=5 + s, edges=8, seed=s) for s in range(2)]
    explainer = asking(model, Within(0.25, scale=0.1), GRAPH_REGRESSION)
    found = explain_many(explainer, graphs)
    certificates = certify(explainer, graphs, found)
    value = float(model(graphs[0].x, graphs[0].edge_index).detach())
    words = certificates[0].words()
    assert f"the prediction stays within 0.25 of {value:.4g} (noise 0.1) with p = " in words
    assert "class" not in words
    assert certificates[0].as_plain_data()["outcome"] == {"kind": "Within", "distance": 0.25, "scale": 0.1}
    assert nseg.plot.scene(found[0]).title == f"graph 0: {value:.3g} ± 0.25"
    assert f"The model says {value:.3g} ± 0.25 for graph 0 (p 0.9" in found.sentences()[0]
    with pytest.raises(nseg.UnsupportedError, match="counterfactual looks for another class"):
        nseg.counterfactual(explainer, graphs, 0)
    page = tmp_path / "page.html"
    nseg.report({"NSEG": found}, page, data=graphs, explainer=explainer)
    text = page.read_text()
    assert "within 0.25 of the prediction" in text
    assert "class 0" not in text
    assert "class 1" not in text


# --- bad input -------------------------------------------------------------------------------------------------------------

BAD_EVENTS = {
    "scale must be a positive": lambda: Within(0.5, scale=0),
    "scale must be a positive number": lambda: Above(0.5, scale=math.nan),
    "distance must be a positive": lambda: Within(-1),
    "threshold must be a finite": lambda: Below("high"),  # type: ignore[arg-type]
    "than must be the number of a class": lambda: Rather(than=-1),
    "number must be the number of a label": lambda: Label(1.5),  # type: ignore[arg-type]
    "probability must be a function": lambda: Custom(3),  # type: ignore[arg-type]
    "outcome must be an event": lambda: NSEG(outcome=3),
    "outcome must look like within:0.5": lambda: NSEG(outcome="above"),
    "got 'nearby:3'": lambda: NSEG(outcome="nearby:3"),
    "got 'above:high'": lambda: NSEG(outcome="above:high"),
    "got 'above:1,2'": lambda: NSEG(outcome="above:1,2"),
    "got 'within:1,width=2'": lambda: NSEG(outcome="within:1,width=2"),
    r"scale must be a positive number.*\(got 0\)": lambda: NSEG(outcome="above:1,scale=0"),
    r"than must be the number of a class.*got 1.5": lambda: NSEG(outcome="rather:1.5"),
}


@pytest.mark.parametrize("text", BAD_EVENTS)
def test_events_that_cannot_be_are_sentences(text: str) -> None:
    with pytest.raises(nseg.SettingsError, match=text):
        BAD_EVENTS[text]()


TEXTS = {
    "within": Within(),
    "within:0.5,scale=0.2": Within(0.5, scale=0.2),
    "above:-2,output=1": Above(-2, output=1),
    "Below: 1e-3": Below(1e-3),
    "rather:2": Rather(than=2),
    "not:0": Not(0),
    "label:3": Label(3),
}


@pytest.mark.parametrize("text", TEXTS)
def test_an_outcome_may_be_given_as_text(text: str) -> None:
    assert NSEG(outcome=text).settings.outcome == TEXTS[text]


BAD_QUESTIONS = {
    "does not hold for 2 of 2 outputs": (Above(1e6, scale=1.0), REGRESSION, 1),
    "must be about one number per row": (Within(0.5), REGRESSION, 3),
    "Say which column, from 0 to 2": (Within(0.5, output=3), REGRESSION, 3),
    "must be a column of the model's output": (Label(5), LABELS, 3),
    r"outcome=nseg.Label\(number\) if they are binary labels": (None, LABELS, 3),
    "class must be one of the model's, 0 to 2": (Not(7), NODE_CONFIG, 3),
    "must be asked of outputs of another class": (Rather(than=0), NODE_CONFIG, 3),
    "must give probabilities between 0 and 1": (Custom(lambda rows: 5 + rows[..., 0].sigmoid()), NODE_CONFIG, 3),
    "must give one probability per row": (Custom(lambda rows: rows.softmax(-1)), NODE_CONFIG, 3),
    "must return a tensor": (Custom(lambda rows: 0.5), NODE_CONFIG, 3),
    "must give True or False": (
        Custom(lambda rows: rows[..., 0].sigmoid(), holds=lambda rows: rows[..., 0]),
        NODE_CONFIG,
        3,
    ),
}


@pytest.mark.parametrize("text", BAD_QUESTIONS)
def test_questions_that_the_model_cannot_answer_are_sentences_at_both_doors(text: str) -> None:
    event, config, numbers = BAD_QUESTIONS[text]
    model, data = seeded(lambda: Value(numbers=numbers)), graph()
    index = [3, 4]
    if isinstance(event, Rather):
        index = (model(data.x, data.edge_index).argmax(-1) == 0).nonzero().flatten()[:2].tolist()
    explainer = asking(model, event, config)
    with pytest.raises(nseg.NsegError, match=text):
        explain_many(explainer, data, index)
    with pytest.raises(nseg.NsegError, match=text):
        explainer(data.x, data.edge_index, index=torch.tensor(index))


def test_outputs_for_which_the_outcome_does_not_hold_have_a_reason_if_not_strict() -> None:
    model, data = seeded(Value), graph()
    value = model(data.x, data.edge_index).detach().flatten()
    low, high = int(value.argmin()), int(value.argmax())
    event = Above(float(value.mean()), scale=0.2)
    found = explain_many(asking(model, event, REGRESSION), data, [low, high], strict=False)
    assert "does not hold for 1 of 1 outputs" in found[0].reason
    assert found[1].get("reason") is None
    phenomenon = asking(model, event, REGRESSION, explanation_type="phenomenon")
    (given,) = explain_many(phenomenon, data, [low], target=value.detach())  # a phenomenon need not be predicted
    assert given.p_factual < 0.9


def test_a_large_graph_needs_an_outcome_that_says_everything() -> None:
    data = graph(nodes=60, edges=90)
    large = LargeGraph(Data(x=data.x, edge_index=data.edge_index))
    with pytest.raises(nseg.InputError, match=r"State distance and noise"):
        explain_many(asking(seeded(Value), Within(0.5), REGRESSION), large, [3])
    explainer = asking(seeded(Value), Within(0.1, scale=0.05), REGRESSION)
    (one,), (same,) = explain_many(explainer, large, [3]), explain_many(explainer, data, [3])
    assert one.pns == pytest.approx(same.pns, abs=1e-5)


def test_explanations_of_different_outcomes_are_not_evaluated_together() -> None:
    model, data = seeded(Value), graph()
    found = [explain_many(asking(model, Within(w, scale=0.1), REGRESSION), data, [3])[0] for w in (0.1, 0.2)]
    with pytest.raises(nseg.InputError, match="must be of one outcome"):
        metrics.Evaluator(asking(model, None, REGRESSION), data, found)


def test_a_stored_function_is_asked_of_the_explainer() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    event = Custom(lambda rows: rows.softmax(-1)[..., :2].sum(-1), name="class 0 or 1")
    index = [int((event.probability(model(data.x, data.edge_index)) > 0.5).nonzero()[0])]  # type: ignore[misc]
    explainer = asking(model, event, NODE_CONFIG)
    (one,) = explain_many(explainer, data, index)
    (stored,) = decode(encode([one]))
    again = nseg.runs.attach(stored, data)
    each = metrics.Evaluator(explainer, data, [again]).each("hard")
    assert float(each.p_factual) == pytest.approx(one.p_factual, abs=1e-5)
    with pytest.raises(nseg.InputError, match="function of a custom outcome is not stored"):
        metrics.Evaluator(asking(model, None, NODE_CONFIG), data, [again])


# --- every mask and level of PyG's own explainer ---------------------------------------------------------------------------


@pytest.mark.parametrize("node_mask_type", [None, "object", "attributes", "common_attributes"])
@pytest.mark.parametrize("edge_mask_type", [None, "object"])
@pytest.mark.parametrize("explanation_type", ["model", "phenomenon"])
@pytest.mark.parametrize("level", ["node", "edge", "graph"])
def test_regression_takes_every_mask_level_and_type_that_pyg_has(
    level: str, explanation_type: str, edge_mask_type: str | None, node_mask_type: str | None
) -> None:
    if edge_mask_type is None and node_mask_type is None:
        return  # PyG refuses an explainer without masks
    batch = torch.tensor([0] * 3 + [1] * 3 + [2] * 2)
    pairs = torch.tensor([[0, 1, 2], [3, 4, 5]])

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = GCNConv(FEATURES, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Any = None, edge_label_index: Any = None) -> Tensor:
            x = self.conv(x, edge_index).relu()
            if level == "edge":
                x = x[edge_label_index[0]] * x[edge_label_index[1]]
            return self.head(global_add_pool(x, batch) if level == "graph" else x)

    x, edge_index = graph(nodes=8, edges=1).x, torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5, 6, 7], [1, 0, 2, 1, 4, 3, 5, 4, 7, 6]])
    given = {"node": {}, "edge": {"edge_label_index": pairs}, "graph": {"batch": batch}}[level]
    explainer = Explainer(
        seeded(Net),
        NSEG(steps=2, rounds=0, exact=4, path_points=2, starts=(0.0,)),
        explanation_type=explanation_type,
        node_mask_type=node_mask_type,
        edge_mask_type=edge_mask_type,
        model_config=ModelConfig(mode="regression", task_level=level),
    )
    model_gives = explainer.get_prediction(x, edge_index, **given)
    target = model_gives if explanation_type == "phenomenon" else None
    for index in (None, 2, torch.tensor([0, 2])):
        one = explainer(x, edge_index, target=target, index=index, **given)
        assert (one.get("edge_mask") is None) == (edge_mask_type is None)
        assert (one.get("node_mask") is None) == (node_mask_type is None)
        assert 0 <= one.pns <= one.p_factual <= 1
        assert isinstance(one.outcome, Within)
        assert torch.equal(one.target, model_gives)


def test_every_method_says_which_outcome_it_explains() -> None:
    made = nseg.baselines.make("saliency", outcome=Above(0.5))
    assert isinstance(made, BatchedAlgorithm)
    assert repr(NSEG(outcome=Within(0.5))) == "NSEG(outcome=Within(distance=0.5), objective='pns')"
    assert NSEG(outcome=Rather(than=1)).settings.as_plain_data()["outcome"] == "Rather(than=1)"
    config = ModelConfig(mode="regression", task_level="node")
    assert outcome_of(config).returns is ModelReturnType.raw
    assert outcome_of(config).level is ModelTaskLevel.node
