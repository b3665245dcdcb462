"""Budgets, distant edges, agreement of methods, fine-tuning and retraining: the law that each measure obeys."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import SimpleConv, global_add_pool
from zoo import GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, quick, seeded

from nseg import InputError, explain_many, metrics
from nseg.baselines import make
from nseg.metrics import Evaluator
from nseg.metrics.distant import change_far_edges, core
from nseg.metrics.retraining import without_highest


@pytest.mark.parametrize("intervention", ["mask", "remove"])
def test_a_budget_of_the_own_size_is_necessity_and_of_everything_that_of_all(intervention: str) -> None:
    data = graph(nodes=30, edges=50)
    explain = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=5))
    found = explain_many(explain, data, range(12))
    own = Evaluator(explain, data, found).each("hard", intervention).changed_without
    everything = Evaluator(explain, data, metrics.trivial(found, "all")).each("hard", intervention).changed_without

    def within(budget: int, some=slice(None)):
        return metrics.necessity_at_budget(explain, data, found[some], budget, intervention)

    assert within(0).sum() == 0
    assert torch.equal(within(10**6), everything)
    for n, one in enumerate(found[:4]):
        assert within(int(one.hard_edge_mask.sum()), slice(n, n + 1))[0] == own[n]
    with pytest.raises(InputError, match="budget must be"):
        within(-1)


def test_edges_change_only_far_from_the_explanation() -> None:
    data, rng = graph(nodes=60, edges=70), torch.Generator().manual_seed(0)
    data = Data(x=data.x, edge_index=data.edge_index)
    explain = explainer(seeded(NODE_MODELS["gin"]), quick(steps=5))
    (one,) = explain_many(explain, data, [3])
    nodes = core(one, data)
    other = change_far_edges(data, nodes, 0.5, 2, rng)
    pairs, changed = (set(map(tuple, some.edge_index.T.tolist())) for some in (data, other))
    near = set(nodes.tolist())
    for _ in range(2):
        near |= {b for a, b in pairs if a in near} | {a for a, b in pairs if b in near}
    assert pairs != changed
    assert not near & {node for pair in pairs ^ changed for node in pair}
    assert all((b, a) in changed for a, b in changed)


def test_what_cannot_reach_the_output_changes_no_explanation() -> None:
    """Two layers of GIN see two steps, so edges more than two steps away from the explained node change nothing."""
    data = graph(nodes=60, edges=70)
    data = Data(x=data.x, edge_index=data.edge_index)
    explain = explainer(seeded(NODE_MODELS["gin"]), quick(steps=5))
    assert metrics.distant_stability(explain, data, [3], share=0.5, hops=2, times=1).tolist() == [1.0]
    some = [Data(x=one.x, edge_index=one.edge_index) for one in (graph(nodes=9, edges=12, seed=s) for s in range(2))]
    pooled = explainer(seeded(Molecule), quick(steps=5), GRAPH_CONFIG)
    assert metrics.distant_stability(pooled, some, [0, 1], share=0.0, times=1).tolist() == [1.0, 1.0]


def test_methods_agree_with_themselves_and_symmetrically() -> None:
    data = graph(nodes=30, edges=50)
    joined = data.edge_index[1].unique()[:5].tolist()
    runs = {
        name: explain_many(explainer(seeded(NODE_MODELS["gcn"]), make(name)), data, joined)
        for name in ("all", "none", "saliency")
    }
    found = metrics.method_agreement({**runs, "again": runs["saliency"]})
    assert found["saliency", "again"] == 1.0
    assert found["all", "none"] == 0.0
    assert (
        found["all", "saliency"]
        == metrics.method_agreement({"saliency": runs["saliency"], "all": runs["all"]})["saliency", "all"]
    )


def test_without_training_f_fidelity_is_robust_fidelity_and_the_network_is_never_changed() -> None:
    some = [graph(nodes=8 + s, edges=12, seed=s) for s in range(4)]
    model = seeded(Molecule)
    explain = explainer(model, quick(steps=5), GRAPH_CONFIG)
    found = explain_many(explain, some)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plain = Evaluator(explain, some, found).robust_fidelity()
    assert metrics.f_fidelity(explain, some, found, epochs=0) == plain
    seen: list[int] = []

    def forget(network: nn.Module, graphs: list[Data]) -> None:
        """The network that gives every graph one class: no explanation can change it."""
        seen.extend(int(one.num_edges) for one in graphs)
        for value in network.parameters():
            value.data.zero_()

    forgot = metrics.f_fidelity(explain, some, found, forget, share=0.5, epochs=3)
    assert (forgot["fid_plus"], forgot["fid_minus"]) == (0.0, 0.0)
    assert len(seen) == 12
    assert sum(seen) < 3 * sum(int(one.num_edges) for one in some)
    assert 0 <= metrics.f_fidelity(explain, some, found, epochs=2)["charact"] <= 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert found[0].prediction is not None


class Counts(nn.Module):
    """Class 1 if an edge joins two red nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv("sum")

    def forward(self, x, edge_index, batch=None):
        number = global_add_pool(x * self.conv(x, edge_index), batch)
        return torch.cat([0.5 - number, number - 0.5], 1)


def test_retraining_loses_what_the_cause_carried_and_nothing_else() -> None:
    """The class is whether two red nodes are joined: leaving these edges out costs all accuracy, leaving out others none."""
    ends = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    edge_index = torch.cat([ends, ends.flip(0)], 1)
    graphs = []
    for n in range(8):
        x = torch.zeros(5, 1)
        x[[0, 1 if n % 2 else 2]] = 1
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor([n % 2])))
    found = explain_many(explainer(Counts(), make("all", undirected=True), GRAPH_CONFIG), graphs)
    held_out = torch.arange(8) >= 4

    def drop(first: bool) -> list[float]:
        for one in found:
            cause = (one.edge_index < 2).all(0).float()
            one.edge_mask = cause if first else 1 - cause
        return metrics.retraining_drop(graphs, found, lambda some: Counts(), held_out, (0.0, 0.25)).tolist()

    assert drop(True) == [0.0, 0.5]
    assert drop(False) == [0.0, 0.0]
    assert without_highest(graphs[0], found[0], 0.5).num_edges == 4
    with pytest.raises(InputError, match="held out"):
        metrics.retraining_drop(graphs, found, lambda some: Counts(), held_out & False)
