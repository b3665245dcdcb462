"""Whatever makes an answer slow is a warning that says why and what it costs; a mistake of ours is never made up for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import degree
from zoo import CLASSES, FEATURES, GRAPH_CONFIG, NODE_MODELS, explainer, graph, quick, seeded

from nseg import InputError, NsegWarning, certify, counterfactual, explain_many, metrics
from nseg.explain import verification
from nseg.metrics import certifier, removal, sources, trust
from nseg.model import traced_graph
from nseg.model.causal import CausalModel
from nseg.model.slow_runs import SLOW, raise_own_fault


class OneGraph(nn.Module):
    """Raises on several graphs together."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GCNConv(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        if batch is not None and len(batch) and int(batch.max()):
            raise KeyError("one graph, please")
        return self.head(global_add_pool(self.conv(x, edge_index).relu(), batch))


class Lonely(nn.Module):
    """Adds something to all nodes of a graph in which a node has lost all its edges."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = NODE_MODELS["gcn"]()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        lonely = (degree(edge_index.flatten(), len(x)) == 0).any()
        return self.inner(x, edge_index) + lonely * torch.arange(CLASSES)


class Whole(nn.Module):
    """Sees how many nodes there are, wherever they are."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = NODE_MODELS["gcn"]()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.inner(x, edge_index) * len(x) / 10


class Asserting(Whole):
    """Raises if there are fewer."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if len(x) != 10:
            raise LookupError("ten nodes, please")
        return self.inner(x, edge_index)


def notes_of(call: Callable[[], Any]) -> list[str]:
    """What is said about slow runs in a call."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in said if str(one.message).startswith(SLOW.partition("{")[0])]


GIVES_OTHERS, RAISES = "its output changes when only the subgraph", r"it raises LookupError \('?ten nodes, please'?\)"
ALONE = r"2 explanations are therefore asked alone on the whole graph, in a pass for each of their worlds"


@pytest.mark.parametrize(("kind", "why"), [(Whole, GIVES_OTHERS), (Asserting, RAISES)])
def test_every_door_says_why_a_model_of_nodes_is_slow_and_what_it_costs(kind: Any, why: str) -> None:
    explain, data = explainer(seeded(kind), quick(steps=2)), graph(10, 16)
    found = explain_many(explain, data, [0, 5])
    doors: dict[str, Callable[[], Any]] = {
        r"runs the whole graph, one world at a time, often thousands of times": lambda: explain_many(explain, data, [0]),
        r"runs the whole graph, one world at a time, often thousands": lambda: explain(data.x, data.edge_index, index=0),
        ALONE: lambda: metrics.Evaluator(explain, data, found),
        ALONE + ".*": lambda: certify(explain, data, found),
    }
    for cost, door in doors.items():
        (note,) = set(notes_of(door))
        with pytest.warns(NsegWarning, match=f"{kind.__name__}: {why}.*{cost}.* answers are the same"):
            warnings.warn(note, NsegWarning, stacklevel=1)


def test_graphs_that_cannot_share_a_pass_are_named_by_metrics_counterfactuals_and_patterns() -> None:
    explain, graphs = explainer(seeded(OneGraph), quick(steps=2), GRAPH_CONFIG), [graph(6, 8, seed) for seed in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = explain_many(explain, graphs)
    (note,) = notes_of(lambda: metrics.Evaluator(explain, graphs, found))
    assert "2 explanations are therefore asked alone" in note
    (note,) = set(notes_of(lambda: counterfactual(explain, graphs, index=[0, 1])))
    assert "it raises KeyError ('one graph, please') on several changed graphs together" in note
    assert "run one at a time, up to" in note
    outcome = metrics.Evaluator(explain, graphs, found).outcome
    inputs, rows = [inputs_of(explain, graphs, found, n) for n in (0, 1)], [torch.zeros(1, dtype=torch.long)] * 2
    (note,) = notes_of(lambda: removal.outputs_of_graphs(explain.model, outcome, inputs, rows))
    assert "2 graphs were therefore run one by one" in note


def inputs_of(explain: Any, graphs: Any, found: Any, number: int) -> Any:
    return metrics.Evaluator(explain, graphs, found).inputs_of(found[number])


def test_slow_deletion_is_named() -> None:
    """In a ring all nodes have edges, and so they have in a part of it, until edges around it are deleted."""
    explain, nodes = explainer(seeded(Lonely), quick(steps=2, intervention="remove")), torch.arange(20)
    ring = torch.stack([nodes, (nodes + 1) % 20])
    data = Data(x=graph(20).x, edge_index=torch.cat([ring, ring.flip(0)], 1))
    (note,) = notes_of(lambda: explain_many(explain, data, [0, 5]))
    assert "with edges deleted, its output on a subgraph, or on several together, is not that on the whole graph" in note
    assert "deletes edges of the whole graph, one world at a time, often thousands of times" in note


def test_rows_that_need_the_whole_graph_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pilot rows pass, another one does not: here, because its output on the whole graph is changed."""
    explain, data, cut = (
        explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2)),
        graph(),
        traced_graph.TracedGraph.causal_models,
    )

    def off(self: Any, cuts: Any, *rest: Any) -> Any:
        _ = self.strategy
        true, self.output = self.output, self.output.clone()
        self.output[3] += 1
        found = list(cut(self, cuts, *rest))
        self.output = true
        return iter(found)

    monkeypatch.setattr(traced_graph.TracedGraph, "causal_models", off)
    (note,) = notes_of(lambda: explain_many(explain, data, range(6)))
    assert "1 of 6 explanations therefore run the whole graph, one world at a time" in note


def test_a_wrong_answer_of_a_metric_is_said_with_the_difference_and_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    explain, data = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2)), graph()
    found = explain_many(explain, data, range(4))
    judge = metrics.Evaluator(explain, data, found)
    right, output = judge.each("hard"), CausalModel.output

    def off(self: Any, *weights: Any) -> Tensor:
        return output(self, *weights) + self.strategy.planned * torch.tensor([0.25, 0, 0])

    with monkeypatch.context() as patch:
        patch.setattr(CausalModel, "output", off)
        (note,) = notes_of(lambda: judge.each("hard"))
        again = judge.each("hard")
        (other,) = notes_of(lambda: metrics.Evaluator(explain, data, found))
    assert "alone on the whole graph differ by up to 0.25 from those of the shortcut" in note
    assert "4 explanations were therefore asked alone on the whole graph, in 8 passes" in note
    torch.testing.assert_close(again.p_factual, right.p_factual)
    assert "4 explanations are therefore asked alone" in other


def test_answers_that_are_verified_one_by_one_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model raises where answers are verified together; they are right, only their verification is slow."""
    explain, data, output = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2)), graph(), CausalModel.output
    found = explain_many(explain, data, range(4))

    def raising(self: Any, *weights: Any) -> Tensor:
        if self.strategy.batched and not self.strategy.planned:
            raise ZeroDivisionError("no")
        return output(self, *weights)

    monkeypatch.setattr(CausalModel, "output", raising)
    (note,) = notes_of(lambda: explain_many(explain, data, range(4)))
    assert "it raises ZeroDivisionError (no) where explanations are verified together" in note
    assert "4 explanations are therefore verified alone, in about a dozen passes each" in note
    (note,) = notes_of(lambda: metrics.Evaluator(explain, data, found))
    assert "4 explanations were therefore verified alone, in 6 passes each" in note


# --- whose fault it is ---------------------------------------------------------------------------------------------------

OURS = [MemoryError(), ImportError("no"), NameError("no"), AttributeError("no"), InputError("no"), NsegWarning("no")]
WEAK_POINTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "metrics, references": (sources.OneGraphSource, "reference", metrics.Evaluator),
    "metrics, answers": (trust, "_Check", metrics.Evaluator),
    "certificates": (certifier, "_placed", certify),
    "explanations": (verification, "Placement", lambda explain, data, _: explain_many(explain, data, [0])),
    "strategies": (
        traced_graph.TracedGraph,
        "_output_together_and_alone",
        lambda explain, data, _: explain_many(explain, data, [0]),
    ),
}


@pytest.mark.parametrize("name", WEAK_POINTS)
@pytest.mark.parametrize("error", OURS, ids=lambda error: type(error).__name__)
def test_our_own_mistakes_and_a_lack_of_memory_are_not_made_up_for_by_slower_runs(
    name: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    explain, data = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=1)), graph(8, 10)
    found = explain_many(explain, data, [0])

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    where, what, call = WEAK_POINTS[name]
    monkeypatch.setattr(where, what, broken)
    with pytest.raises(type(error)):
        call(explain, data, found)


def test_what_a_model_raises_is_its_own_fault_except_for_memory() -> None:
    class Raising(nn.Module):
        def forward(self, error: Exception) -> None:
            raise error

    for error in (AttributeError("x"), NameError("y"), ImportError("z"), RuntimeError(), AssertionError()):
        try:
            Raising()(error)
        except Exception as caught:
            raise_own_fault(caught)
    with pytest.raises(MemoryError):
        raise_own_fault(MemoryError())
