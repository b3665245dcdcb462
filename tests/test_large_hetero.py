"""Large heterogeneous graphs: explained on subgraphs, as on the whole graph."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hetero_zoo import NODE, WROTE, hetero_graph, make_net
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.transforms import ToSparseTensor

import nseg
from nseg import NSEG, Explainer, InputError, LargeGraph, explain_many
from nseg.runs import attach

pytestmark = pytest.mark.filterwarnings("ignore:Shortcuts are not exact")
TARGETS = [3, 0, 17, 29]


def graph() -> HeteroData:
    """Few papers know each other, so that subgraphs are small; a type has no features, and comes first."""
    data = HeteroData()
    data["venue"].num_nodes = 4
    rest = hetero_graph(2, papers=30, authors=12)
    for kind in rest.node_types:
        data[kind].x = rest[kind].x
    for kind in rest.edge_types:
        data[kind].edge_index = rest[kind].edge_index
    data["paper"].y = torch.arange(30) % 3
    return data


def explainer_of(name: str, nodes: str | None = "object", **changes: Any) -> Explainer:
    algorithm = NSEG(steps=3, **changes.pop("settings", {}))
    kinds = {"explanation_type": "model", "edge_mask_type": "object", "node_mask_type": nodes, **changes}
    return Explainer(make_net(name), algorithm, model_config=NODE, **kinds)


def same(one: Any, other: Any, data: HeteroData) -> None:
    assert one.output_id == other.output_id
    assert one.pns == pytest.approx(other.pns, abs=1e-5)
    for kind in data.edge_types:
        assert torch.equal(one[kind].edge_id, other[kind].edge_id)
        torch.testing.assert_close(one[kind].edge_mask, other[kind].edge_mask, atol=1e-4, rtol=1e-3)
    for kind in ("paper", "author"):
        assert torch.equal(one[kind].node_id, other[kind].node_id)
        assert torch.equal(one[kind].x, other[kind].x)
    assert one.words() == other.words()


@pytest.mark.parametrize("name", ["to_hetero", "mixed"])
def test_a_large_graph_in_memory_and_on_disk_is_explained_as_a_small_one(name: str, tmp_path: Path) -> None:
    data, explainer = graph(), explainer_of(name)
    small = explain_many(explainer, data, TARGETS)
    assert any(one.pns > 0.01 for one in small)
    written = LargeGraph.write(tmp_path / "graph", data.edge_index_dict, data.x_dict, {"y": {"paper": data["paper"].y}})
    for large in (LargeGraph(data), pickle.loads(pickle.dumps(written))):
        for one, other in zip(explain_many(explainer, large, TARGETS), small, strict=True):
            same(one, other, data)
            assert one.left_out == 0
    explain_many(explainer, written, TARGETS[:2], out=tmp_path / "run")
    for stored, other in zip(nseg.read(tmp_path / "run"), small, strict=False):
        same(attach(stored, written), other, data)
    few = LargeGraph(data, neighbours=1)
    with pytest.warns(nseg.NsegWarning, match="left out"):
        assert any(one.left_out for one in explain_many(explainer, few, range(30)))


def test_given_classes_are_those_of_the_explained_type() -> None:
    data, explainer = graph(), explainer_of("to_hetero", None, explanation_type="phenomenon")
    for target in (None, (data["paper"].y + 1) % 3):
        found = explain_many(explainer, LargeGraph(data), TARGETS, target=target)
        for one, other in zip(found, explain_many(explainer, data, TARGETS, target=target), strict=True):
            same(one, other, data)
            assert int(one.target[one.index]) == int(other.target[other.index])


def test_what_cannot_be_is_a_sentence(tmp_path: Path) -> None:
    data = graph()
    edges, x = data.edge_index_dict, data.x_dict
    bad: list[tuple[str, Any]] = [
        ("dictionaries by type", lambda: LargeGraph.write(tmp_path / "a", edges, data["paper"].x)),
        ("numbers of nodes of type 'author', 0 to 11", lambda: write_wrong(tmp_path, edges, x)),
        (
            "must be by types of the graph",
            lambda: LargeGraph.write(tmp_path / "c", edges, x, edge={"edge_attr": {("a", "b", "c"): x["paper"]}}),
        ),
        (
            "needs all features in memory",
            lambda: explain_many(explainer_of("hgt", settings={"baseline": "mean"}), LargeGraph(data), [0]),
        ),
        ("needs edge_index of each type", lambda: LargeGraph(ToSparseTensor()(graph()))),
        ("must be given as pairs of nodes", lambda: explain_many(links(), LargeGraph(data), [0])),
        ("Row 0 of edge_label_index", lambda: explain_many(links(), LargeGraph(data), [0], edge_label_index=PAIRS + 20)),
        (
            "must join node types of the graph",
            lambda: explain_many(links(), LargeGraph(data), [0], edge_label_index={("a", "b", "paper"): PAIRS}),
        ),
    ]
    for words, call in bad:
        with pytest.raises(InputError, match=words):
            call()


def write_wrong(folder: Path, edges: Any, x: Any) -> None:
    LargeGraph.write(folder / "b", edges | {WROTE: torch.tensor([[12], [0]])}, x)


PAIRS = torch.tensor([[3, 11, 0, 5], [17, 2, 29, 2]])


class Links(nn.Module):
    """Scores pairs of an author and a paper."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = make_net("to_hetero").layers

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_label_index: Any) -> Tensor:
        x = self.convs[0](x_dict, edge_index_dict)
        pairs = edge_label_index if isinstance(edge_label_index, Tensor) else edge_label_index[WROTE]
        scores: Tensor = 3 * (x["author"][pairs[0]] * x["paper"][pairs[1]]).sum(-1)
        return scores


def links() -> Explainer:
    config = {"mode": "binary_classification", "task_level": "edge", "return_type": "raw"}
    algorithm = NSEG(steps=3)
    return Explainer(Links().eval(), algorithm, explanation_type="model", edge_mask_type="object", model_config=config)


@pytest.mark.parametrize("pairs", [PAIRS, {WROTE: PAIRS}], ids=["found out", "said"])
def test_links_of_a_large_graph_are_explained_as_on_a_small_one(pairs: Any, tmp_path: Path) -> None:
    data, explainer = graph(), links()
    small = explain_many(explainer, data, edge_label_index=pairs)
    assert any(one.pns > 0.01 for one in small)
    large = LargeGraph(data)
    found = explain_many(explainer, large, edge_label_index=pairs)
    for one, other in zip(found, small, strict=True):
        same(one, other, data)
        given = one.edge_label_index
        ends = torch.stack([one["author"].node_id[given[0]], one["paper"].node_id[given[1]]])
        assert torch.equal(ends[:, one.index].flatten(), PAIRS[:, one.output_id])
    explain_many(explainer, large, [2, 0], edge_label_index=pairs, out=tmp_path)
    for stored, number in zip(nseg.read(tmp_path), (2, 0), strict=True):
        one = attach(stored, large, edge_label_index=pairs)
        same(one, small[number], data)
        assert torch.equal(one.edge_label_index[:, one.index], found[number].edge_label_index[:, found[number].index])
