"""Explanations of heterogeneous graphs on disk, with names, in tables, and from other processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hetero_zoo import BY, CITES, NODE, PAPERS, hetero_graph, make_net
from test_hetero import GRAPH, LINK, Links, Pooled, explainer_of
from torch import Tensor, nn
from torch_geometric.data import Data

import nseg
from nseg import NSEG, Explainer, NsegError, StoreError, explain_many
from nseg.hetero_explanation import HeteroExplanation
from nseg.runs import attach
from nseg.wording import elements

NAMES: dict[str, Any] = {
    "node_names": {"author": {0: "Ann", 1: "Bob"}, "paper": [f"p{n}" for n in range(PAPERS)]},
    "feature_names": {"paper": list("abcdef")},
    "units": {"paper": {"a": "km"}},
    "edge_names": {CITES: {0: "first"}},
    "class_names": ["x", "y", "z"],
}


def assert_same(a: Any, b: Any, where: tuple[Any, ...] = ()) -> None:
    """Whether two explanations hold the same, type by type, to the bit."""
    if isinstance(a, dict):
        assert set(a) == set(b), where
        for key in a:
            assert_same(a[key], b[key], (*where, key))
    elif isinstance(a, Tensor):
        assert a.dtype == b.dtype, where
        assert torch.equal(a, b), where
    else:
        assert a == b, where


@pytest.mark.parametrize("nodes", [None, "object", "attributes", "common_attributes"])
def test_what_is_read_with_its_graph_is_what_was_found(tmp_path: Path, nodes: str | None) -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("to_hetero"), nodes)
    many = explain_many(explainer, data, [0, 3, 5], **NAMES)
    stored = explain_many(explainer, data, [0, 3, 5], out=tmp_path / "run", **NAMES)
    for one, other in zip(many, stored, strict=True):
        assert isinstance(other, HeteroExplanation)
        assert_same(one.to_dict(), attach(other, data).to_dict())
        assert [point.pns for point in one.path()] == [point.pns for point in other.path()]
        assert one.paths() == other.paths()
    assert many.to_csv() == stored.to_csv()
    assert many.to_csv(rows="elements") == stored.to_csv(rows="elements")
    assert many.to_json(left_out=True) == stored.to_json(left_out=True, data=data)


def test_a_run_is_resumed_and_refused_like_any_other(tmp_path: Path) -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("to_hetero"))
    first = explain_many(explainer, data, out=tmp_path / "run", shard=2)
    shards = sorted((tmp_path / "run" / "explanations").iterdir())
    content = {path.name: path.read_bytes() for path in shards}
    shards[1].unlink()
    data["author"].node_names = ["someone"] * data["author"].num_nodes  # names change no result
    again = explain_many(explainer, data, out=tmp_path / "run", shard=2)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run" / "explanations").iterdir()} == content
    assert [one.pns for one in first] == [one.pns for one in again]
    assert "someone" in again.to_csv(rows="elements")
    changed = hetero_graph()
    changed["paper"].x = changed["paper"].x + 1
    with pytest.raises(StoreError, match=r"data\.content"):
        explain_many(explainer, changed, out=tmp_path / "run", shard=2)
    with pytest.raises(NsegError, match="must be what was explained"):
        attach(first[0], hetero_graph(papers=5))


class Shared(nn.Module):
    """Takes an argument that belongs to no type."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net("mixed")

    def forward(self, x_dict: Any, edge_index_dict: Any, factor: float) -> Tensor:
        scores: Tensor = factor * self.net(x_dict, edge_index_dict)
        return scores


def test_links_graphs_and_further_arguments_come_back(tmp_path: Path) -> None:
    data, pairs = hetero_graph(), torch.tensor([[8, 2, 5], [0, 6, 6]])
    links = explainer_of(Links().eval(), model_config=LINK)
    torch.manual_seed(0)
    whole = explainer_of(Pooled().eval(), model_config=GRAPH)
    graphs = [hetero_graph(seed, 5 + seed, 6) for seed in range(2)]
    runs: list[tuple[Explainer, Any, dict[str, Any]]] = [
        (links, data, {"edge_label_index": pairs}),
        (whole, graphs, {}),
        (explainer_of(Shared().eval()), data, {"factor": 2.0}),
    ]
    for number, (explainer, graph, kwargs) in enumerate(runs):
        index = [0, 1]
        many = explain_many(explainer, graph, index, **kwargs)
        stored = explain_many(explainer, graph, index, out=tmp_path / str(number), **kwargs)
        for one, other in zip(many, stored, strict=True):
            assert_same(one.to_dict(), attach(other, graph, **kwargs).to_dict())
        if explainer is not links:  # without its graph, a stored explanation does not know its pair
            assert many.to_csv(rows="elements") == stored.to_csv(rows="elements")
        assert [one.words() for one in many] == [attach(one, graph, **kwargs).words() for one in stored]


def test_names_are_by_type_and_read_aloud() -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("to_hetero"), "attributes")
    (one,) = explain_many(explainer, data, [3], **NAMES)
    assert one.paths() == ["p3 - wrote - author 5"]
    texts = {element.text for element in elements(one, left_out=True)}
    assert "Bob - wrote -> p3" in texts
    assert "Bob <- wrote - p3" in texts
    assert any(text.startswith("p3: a = ") and text.endswith(" km") for text in texts)
    (row,) = nseg.ExplanationList([one]).records()
    assert (row["output_id"], row["output_type"], row["output"], row["class_name"]) == (3, "paper", "p3", "z")
    (graph,) = nseg.ExplanationList([one]).to_networkx()
    assert graph.nodes["author", 1].items() >= {"name": "Bob", "type": "author"}.items()
    assert {kind[1] for _, _, (kind, _) in graph.edges(keys=True)} == {"wrote", "rev_wrote"}
    (plain,) = json.loads(nseg.ExplanationList([one]).to_json())["explanations"]
    assert {(e["source_type"], e["relation"]) for e in plain["elements"] if e["kind"] == "edge"} >= {("author", "wrote")}
    for bad, words in (
        ({"node_names": ["a"] * PAPERS}, "dictionary by type"),
        ({"node_names": {"nobody": ["a"]}}, "of 'paper', 'author'"),
        ({"node_names": {"paper": ["a"]}}, "one name per node of type 'paper'"),
        ({"class_names": ["a"]}, "class of the model"),
    ):
        with pytest.raises(NsegError, match=words):
            explain_many(explainer, data, [3], **bad)


def test_an_edge_type_and_its_reverse_count_as_one_edge() -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("mixed"), settings={"undirected": True})
    for one in explain_many(explainer, data, [1, 3]):
        flat = one.flat()
        bonds = {
            (kind[1].removeprefix("rev_"), *(ends if kind != BY else ends[::-1]))
            for kind in data.edge_types
            for ends in one[kind].edge_index[:, one[kind].hard_edge_mask.bool() & one[kind].reached].T.tolist()
        }
        loops = {bond for bond in bonds if bond[0] == "cites" and (bond[0], bond[2], bond[1]) in bonds and bond[1] < bond[2]}
        listed = [element for element in elements(one) if element.kind == "edge"]
        assert len(listed) == len(bonds) - len(loops)
        assert all(" - " in element.text and "->" not in element.text for element in listed)
        assert torch.equal(
            flat.node_id[flat.edge_index[0, : one[CITES].num_edges]], one["paper"].node_id[one[CITES].edge_index[0]]
        )


def test_other_packages_explanations_have_a_flat_view() -> None:
    from torch_geometric.explain import GNNExplainer

    data = hetero_graph()
    explainer = Explainer(
        make_net("to_hetero"),
        GNNExplainer(epochs=3),
        explanation_type="model",
        node_mask_type="attributes",
        model_config=NODE,
    )
    one = explainer(data.x_dict, data.edge_index_dict, index=2)
    texts = [element.text for element in elements(one, left_out=True)]
    assert any(text.startswith("author 0: feature 3 = ") for text in texts)
    assert not any(text.startswith("author 0: feature 4") for text in texts), "authors have four features"


def test_one_type_tells_what_the_homogeneous_explanation_tells() -> None:
    from test_hetero import OneType
    from torch_geometric.data import HeteroData

    rng = torch.Generator().manual_seed(0)
    data = Data(x=torch.rand(9, 5, generator=rng), edge_index=torch.randint(9, (2, 20), generator=rng).unique(dim=1))
    typed = HeteroData()
    typed["node"].x, typed["node", "to", "node"].edge_index = data.x, data.edge_index
    torch.manual_seed(0)
    plain, hetero = OneType(False), OneType(True)
    hetero.load_state_dict(plain.state_dict())
    config = {"explanation_type": "model", "edge_mask_type": "object", "node_mask_type": "attributes"}
    lists = [
        explain_many(Explainer(model, NSEG(steps=5), model_config=NODE, **config), graph, [0, 4])
        for model, graph in ((plain, data), (hetero, typed))
    ]
    same = ("output_id", "level", "class", "p", "pns", "edges_kept", "edges", "features_kept", "features")
    for a, b in zip(lists[0].records(), lists[1].records(), strict=True):
        assert {name: a[name] for name in same} == {name: b[name] for name in same}
    cells = ("kind", "weight", "kept", "edge_id", "source", "target", "node", "feature", "value")
    for a, b in zip(lists[0].records("elements"), lists[1].records("elements"), strict=True):
        assert {name: a[name] for name in cells} == {name: b[name] for name in cells}
