"""What masked features become: closed forms, both doors, metrics, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv, global_add_pool
from zoo import FEATURES, graph, seeded

import nseg
from nseg import NSEG, Explainer, LargeGraph, Within, explain_many, metrics
from nseg.graphs.baseline import FeatureBaseline
from nseg.model.outcomes import outcome_of

ROW = (1.0, -2.0, 0.5, 3.0)
KINDS: list[str | tuple[float, ...]] = ["zero", "mean", "others", ROW]
REGRESSION = {"mode": "regression", "task_level": "node"}


class Sum(nn.Module):
    """A linear model of a node's own features and those of its neighbours: masked features can be put in by hand."""

    def __init__(self, level: str = "node") -> None:
        super().__init__()
        self.conv, self.level = GraphConv(FEATURES, 1), level

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        x = self.conv(x, edge_index)
        return global_add_pool(x, batch) if self.level == "graph" else x


def explainer(baseline: Any, level: str = "node", **masks: Any) -> Explainer:
    return Explainer(
        seeded(lambda: Sum(level)),
        NSEG(baseline=baseline, outcome=Within(1.0, scale=2.0), steps=4),
        explanation_type="model",
        model_config={**REGRESSION, "task_level": level},
        **(masks or {"node_mask_type": "attributes"}),
    )


def by_hand(explain: Any, data: Data, one: Any, mean: Tensor, kept: bool) -> float:
    """The prediction on features put in by hand."""
    mask = torch.zeros(data.num_nodes, FEATURES)
    mask[one.node_id] = one.hard_node_mask.float()
    mask = mask if kept else 1 - mask
    asked = explain.algorithm.settings.baseline
    fill = {"zero": torch.zeros(FEATURES), "mean": mean}.get(asked if isinstance(asked, str) else "", torch.tensor(ROW))
    if asked == "others":
        fill = FeatureBaseline("others").rows(data.x)
    x = torch.where(mask > 0, data.x, fill)
    return float(explain.model(x, data.edge_index).detach()[one.get("index") is not None and one.output_id])


@pytest.mark.parametrize("baseline", KINDS, ids=str)
def test_numbers_are_those_of_the_model_on_features_put_in_by_hand(baseline: Any) -> None:
    data, explain = graph(), explainer(baseline)
    found = explain_many(explain, data, [3, 5])
    each = metrics.Evaluator(explain, data, found).each("hard")
    reading = outcome_of(explain.model_config, found[0].outcome)
    for b, one in enumerate(found):
        value = explain.model(data.x, data.edge_index).detach()[one.output_id]
        expected = [
            float(reading.probability(torch.tensor([by_hand(explain, data, one, data.x.mean(0), kept)]), value))
            for kept in (True, False)
        ]
        assert [one.p_factual, one.p_complement] == pytest.approx(expected, abs=1e-4)
        assert float(each.p_factual[b]) == pytest.approx(one.p_factual, abs=1e-4)
        assert one.settings["baseline"] == (list(baseline) if isinstance(baseline, tuple) else baseline)
        alone = explain(data.x, data.edge_index, index=one.output_id)
        assert [alone.p_factual, alone.p_complement] == pytest.approx(expected, abs=1e-4)
        assert torch.equal(alone.hard_node_mask[one.node_id], one.hard_node_mask)


def test_baselines_differ_in_what_they_explain() -> None:
    data = graph()
    found = [explain_many(explainer(kind), data, [3])[0].p_complement for kind in KINDS]
    assert len({round(p, 4) for p in found}) == len(KINDS)


@pytest.mark.parametrize("baseline", ["mean", "others", ROW], ids=str)
def test_graphs_share_one_mean_and_batch_equals_alone(baseline: Any) -> None:
    graphs = [graph(nodes=5 + s, edges=8, seed=s) for s in range(3)]
    explain = explainer(baseline, "graph", node_mask_type="object", edge_mask_type="object")
    batch = explain_many(explain, graphs)
    (one,) = explain_many(explain, graphs, [2])
    assert [one.p_factual, one.p_complement] == pytest.approx([batch[2].p_factual, batch[2].p_complement], abs=1e-5)
    assert torch.equal(one.hard_node_mask, batch[2].hard_node_mask)
    evaluated = metrics.Evaluator(explain, graphs, batch)
    each, removed = evaluated.each("hard"), evaluated.each("hard", "remove")
    assert each.p_factual.tolist() == pytest.approx([found.p_factual for found in batch], abs=1e-4)
    assert removed.p_factual.tolist() == pytest.approx(each.p_factual.tolist(), abs=1e-4)  # GraphConv: masked = deleted


def test_the_mean_is_over_all_nodes_of_the_data_and_others_are_other_nodes() -> None:
    graphs = [graph(nodes=5 + s, edges=8, seed=s) for s in range(3)]
    mean = FeatureBaseline.of("mean", graphs).rows(graphs[0].x)
    torch.testing.assert_close(mean, torch.cat([one.x for one in graphs]).mean(0).expand(5, -1))
    x = torch.arange(30.0).view(30, 1)
    assert not bool((FeatureBaseline("others").rows(x) == x).any())
    assert FeatureBaseline("zero").rows(x) is None


def test_what_cannot_be_is_a_sentence() -> None:
    with pytest.raises(nseg.SettingsError, match="baseline must be 'zero', 'mean', 'others', 'absent' or a row"):
        NSEG(baseline="median")
    with pytest.raises(nseg.InputError, match="one number per feature, 4"):
        explain_many(explainer((1.0, 2.0)), graph(), [3])
    large = LargeGraph(Data(x=graph().x, edge_index=graph().edge_index))
    for kind in ("mean", "others"):
        with pytest.raises(nseg.InputError, match="needs all features in memory"):
            explain_many(explainer(kind), large, [3])
    (one,), (same,) = explain_many(explainer(ROW), large, [3]), explain_many(explainer(ROW), graph(), [3])
    assert one.p_complement == pytest.approx(same.p_complement, abs=1e-5)
