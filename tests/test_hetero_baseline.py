"""Heterogeneous graphs: what masked features and edge attributes become, type by type, against the model called by hand."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hetero_zoo import BY, CITES, NODE, PAPERS, WROTE, hetero_graph, make_net
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, HeteroConv, SAGEConv, TransformerConv

import nseg
from nseg import NSEG, Explainer, NsegError, explain_many
from nseg.explain.jobs import make_job
from nseg.metrics import Evaluator
from nseg.runs import attach

CYCLE = torch.tensor([[0, 1], [1, 0]])
pytestmark = pytest.mark.filterwarnings("ignore:Shortcuts are not exact")


def explainer_of(model: nn.Module, nodes: str | None = None, edges: bool = False, **settings: Any) -> Explainer:
    masks: dict[str, Any] = {"edge_mask_type": "object" if edges else None, "node_mask_type": nodes}
    algorithm = NSEG(**{"steps": 3, "rounds": 1, "exact": 4, "path_points": 2, **settings})
    return Explainer(model, algorithm, explanation_type="model", model_config=NODE, **masks)


def blend(data: HeteroData, one: Any, keep: bool, becomes: dict[str, Tensor]) -> dict[str, Tensor]:
    """Features that are kept (or left out), and what the others become, by hand."""
    found = {}
    for kind, x in data.x_dict.items():
        mask = one[kind].hard_node_mask.float()
        mask = mask if keep else 1 - mask
        found[kind] = x * mask + becomes[kind] * (1 - mask)
    return found


@pytest.mark.parametrize(
    ("nodes", "baseline"),
    [
        ("object", "mean"),
        ("attributes", {"paper": "mean", "author": (1, 2, 3, 4)}),
        ("common_attributes", {"paper": [0.5] * 6}),
    ],
    ids=str,
)
def test_numbers_are_those_of_the_model_on_features_put_in_by_hand(nodes: str, baseline: Any) -> None:
    data, model = hetero_graph(), make_net("to_hetero")
    explainer = explainer_of(model, nodes, baseline=baseline)
    asked = dict.fromkeys(data.node_types, baseline) if isinstance(baseline, str) else {"author": (0.0,) * 4} | baseline
    becomes = {kind: data[kind].x.mean(0) if row == "mean" else torch.tensor(row) for kind, row in asked.items()}
    one = explainer(data.x_dict, data.edge_index_dict, index=2)
    with torch.no_grad():
        label = int(model(data.x_dict, data.edge_index_dict)[2].argmax())
        for keep, expected in ((True, one.p_factual), (False, one.p_complement)):
            output = model(blend(data, one, keep, becomes), data.edge_index_dict)[2]
            assert float(output.softmax(-1)[label]) == pytest.approx(expected, abs=1e-5)
    many = explain_many(explainer, data, [0, 2])
    assert many[1].pns == pytest.approx(one.pns, abs=1e-5)
    each = Evaluator(explainer, data, many).each("hard")
    assert each.p_factual.tolist() == pytest.approx([found.p_factual for found in many], abs=1e-5)
    assert each.p_complement.tolist() == pytest.approx([found.p_complement for found in many], abs=1e-5)


def test_means_are_over_all_graphs_and_others_are_of_the_same_type() -> None:
    graphs = [hetero_graph(seed) for seed in range(2)]
    explainer = explainer_of(make_net("to_hetero"), "object", baseline="others")
    job = make_job(explainer, graphs[0], None, 1 << 28, {})
    rows = job.inputs.baseline
    for kind, start, width in (("paper", 0, 6), ("author", PAPERS, 4)):
        x = graphs[0][kind].x
        for n, row in enumerate(rows[start : start + len(x), :width]):
            assert any(torch.equal(row, other) for m, other in enumerate(x) if m != n)
    config = {**NODE, "task_level": "graph"}
    whole = Explainer(
        Pooled(), NSEG(baseline="mean"), explanation_type="model", node_mask_type="object", model_config=config
    )
    job = make_job(whole, graphs, None, 1 << 28, {})
    mean = torch.cat([one["paper"].x for one in graphs]).mean(0)
    torch.testing.assert_close(job.model_inputs(graphs[1], {}).baseline[0], mean)


class Pooled(nn.Module):
    """The mean of all papers' scores."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net("to_hetero")

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        found: Tensor = self.net(x_dict, edge_index_dict).mean(0, keepdim=True)
        return found


def test_absent_nodes_of_all_types_are_deleted_with_their_edges() -> None:
    data, model, number = hetero_graph(), make_net("mixed"), 2
    few = {"rounds": 0, "exact": 0, "starts": (0.0,)}  # each world is a pass of its own
    explainer = explainer_of(model, "object", baseline="absent", **few)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*searched again")  # numbers of deleted nodes are verified by deletion
        one = explainer(data.x_dict, data.edge_index_dict, index=number)
        (alone,) = explain_many(explainer, data, index=[number])
    assert alone.pns == pytest.approx(one.pns, abs=1e-5)
    assert "deleted with their edges" in one.words()
    label = int(model(data.x_dict, data.edge_index_dict)[number].argmax())
    for flip, expected in ((False, one.p_factual), (True, one.p_complement)):
        keep = {kind: (one[kind].hard_node_mask.flatten() != flip) for kind in data.node_types}
        x = {kind: data[kind].x.clone() for kind in data.node_types}
        x["paper"][number] *= keep["paper"][number]  # the explained node stays, without features
        keep["paper"][number] = True
        at = {kind: mask.cumsum(0) - 1 for kind, mask in keep.items()}
        edges = {}
        for kind, ends in data.edge_index_dict.items():
            left = ends[:, keep[kind[0]][ends[0]] & keep[kind[2]][ends[1]]]
            edges[kind] = torch.stack([at[kind[0]][left[0]], at[kind[2]][left[1]]])
        with torch.no_grad():
            output = model({kind: x[kind][mask] for kind, mask in keep.items()}, edges)[at["paper"][number]]
        assert float(output.softmax(-1)[label]) == pytest.approx(expected, abs=1e-5)


# --- attributes of edges ---------------------------------------------------------------------------------------------------


class WithAttributes(nn.Module):
    """Two layers that take attributes of two edge types, three and two of them; the third type has none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.head = nn.ModuleList([self._layer(), self._layer()]), nn.Linear(8, 3)

    def _layer(self) -> HeteroConv:
        edge_dim = {CITES: 3, WROTE: 2}
        convs: dict[Any, nn.Module] = {k: TransformerConv((-1, -1), 8, edge_dim=d) for k, d in edge_dim.items()}
        return HeteroConv({**convs, BY: SAGEConv((-1, -1), 8)})

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Tensor:
        for layer in self.layers:
            x_dict = {kind: x.relu() for kind, x in layer(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict).items()}
        found: Tensor = 4 * self.head(x_dict["paper"])
        return found


def graph_with_attributes() -> HeteroData:
    data, rng = hetero_graph(), torch.Generator().manual_seed(1)
    data[CITES].edge_attr = torch.randn(data[CITES].num_edges, 3, generator=rng)
    data[WROTE].edge_attr = torch.randn(data[WROTE].num_edges, 2, generator=rng)
    return data


@pytest.mark.parametrize(
    ("kind", "baseline"), [("attributes", {CITES: (1.0, 0.0, -1.0)}), ("common_attributes", "mean")], ids=str
)
def test_masked_attributes_of_each_edge_type_are_those_put_in_by_hand(kind: str, baseline: Any, tmp_path: Path) -> None:
    data, model = graph_with_attributes(), WithAttributes().eval()
    given = data.edge_attr_dict
    becomes = {key: value.mean(0) if baseline == "mean" else 0 * value[0] for key, value in given.items()}
    becomes |= {key: torch.tensor(row) for key, row in baseline.items()} if isinstance(baseline, dict) else {}
    explainer = explainer_of(model, edges=True, edge_attributes=kind, edge_baseline=baseline)
    with torch.no_grad():
        label = model(data.x_dict, data.edge_index_dict, given).argmax(-1)
    many = explain_many(explainer, data, [0, 4], out=tmp_path / "run")
    for stored, number in zip(many, (0, 4), strict=True):
        one = explainer(data.x_dict, data.edge_index_dict, index=number, edge_attr_dict=given)
        assert one.pns == pytest.approx(stored.pns, abs=1e-5)
        for keep, expected in ((True, one.p_factual), (False, one.p_complement)):
            masks = {key: (one[key].hard_edge_attr_mask == keep).float() for key in given}
            put = {key: value * masks[key] + becomes[key] * (1 - masks[key]) for key, value in given.items()}
            with torch.no_grad():
                output = model(data.x_dict, data.edge_index_dict, put)[number]
            assert float(output.softmax(-1)[label[number]]) == pytest.approx(expected, abs=1e-5)
    for one, stored in zip(many, nseg.read(tmp_path / "run"), strict=True):
        for key in given:
            assert torch.equal(one[key].edge_attr_mask, stored[key].edge_attr_mask)
            assert torch.equal(one[key].hard_edge_attr_mask, stored[key].hard_edge_attr_mask)
        whole = attach(stored, data)
        assert torch.equal(whole[CITES].edge_attr, given[CITES][whole[CITES].edge_id])
        assert whole[BY].get("edge_attr_mask") is None
        assert whole.words().count("attribute") >= 2


# --- bad input -----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_a_sentence() -> None:
    data, net = hetero_graph(), make_net("to_hetero")
    bad: list[tuple[str, dict[str, Any]]] = [
        (r"one number per feature, 6 \(got 2\).*give a dictionary", {"baseline": (1.0, 2.0)}),
        (r"must name types that have something to mask, author, paper \(got 'venue'\)", {"baseline": {"venue": "mean"}}),
        ("must be that of all types", {"baseline": {"paper": "absent"}, "intervention": "remove"}),
        ("or a dictionary of these by type", {"baseline": {"paper": "median"}}),
    ]
    for words, settings in bad:
        with pytest.raises(NsegError, match=words):
            explain_many(explainer_of(net, "object", **settings), data)
    with pytest.raises(NsegError, match="needs edge_attr_dict"):
        explain_many(explainer_of(net, edges=True, edge_attributes="attributes"), data)
    with pytest.raises(NsegError, match="needs a heterogeneous graph"):
        explain_many(explainer_of(GCNConv(3, 2), "object", baseline={"paper": "mean"}), Data(torch.rand(2, 3), CYCLE))
