"""Large graphs: explained on subgraphs, as on the whole graph, at a cost that does not depend on its size."""

from __future__ import annotations

import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.explain import GNNExplainer
from torch_geometric.utils import k_hop_subgraph
from zoo import LINK_CONFIG, NODE_MODELS, Link, explainer, graph, quick, seeded

import nseg
from nseg import BudgetError, InputError, LargeGraph, ModelError, NsegWarning, StoreError, explain_many
from nseg.graphs.large import TooLargeError
from nseg.graphs.large_files import SORTED_AT_ONCE
from nseg.runs.stored import attach

DATA = graph(nodes=40, edges=60)
TARGETS = [3, 0, 17, 39]


def written(folder: Path, data: Data = DATA) -> LargeGraph:
    return LargeGraph.write(
        folder,
        data.edge_index.numpy(),
        data.x,
        {"y": data.y},
        {"edge_weight": data.edge_weight, "edge_attr": data.edge_attr},
    )


def same(one, other) -> None:
    assert one.output_id == other.output_id
    assert torch.equal(one.edge_id, other.edge_id)
    assert torch.equal(one.node_id, other.node_id)
    assert torch.equal(one.edge_index, other.edge_index)
    torch.testing.assert_close(one.edge_mask, other.edge_mask, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(one.x, other.x)
    assert one.pns == pytest.approx(other.pns, abs=1e-4)


LOCAL = sorted(NODE_MODELS.keys() - {"global mean", "target to source", "both directions", "gcn, cached"})


@pytest.mark.parametrize("name", LOCAL)
def test_a_large_graph_is_explained_as_a_small_one(name: str, tmp_path: Path) -> None:
    explain = explainer(seeded(NODE_MODELS[name]), quick(steps=2))
    for one, other in zip(
        explain_many(explain, written(tmp_path / "graph"), TARGETS), explain_many(explain, DATA, TARGETS), strict=True
    ):
        same(one, other)
        assert one.left_out == 0


def test_links_and_other_algorithms_and_given_classes() -> None:
    large, pairs = LargeGraph(DATA), torch.tensor([[0, 3, 7, 5], [2, 9, 7, 11]])
    links = explainer(seeded(Link), quick(steps=2), LINK_CONFIG)
    found = explain_many(links, large, [2, 0], edge_label_index=pairs)
    for one, other in zip(found, explain_many(links, DATA, [2, 0], edge_label_index=pairs), strict=True):
        same(one, other)
    rival = explainer(seeded(NODE_MODELS["gin"]), GNNExplainer(epochs=2))
    assert [one.output_id for one in explain_many(rival, large, [4, 2])] == [4, 2]
    given_ = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2), explanation_type="phenomenon", edge_mask_type="object")
    for target in (None, (DATA.y + 1) % 3):
        found = explain_many(given_, large, TARGETS, target=target)
        for one, other in zip(found, explain_many(given_, DATA, TARGETS, target=target), strict=True):
            same(one, other)
            assert int(one.target[one.index]) == int(other.target[other.index])


def test_settings_that_depend_on_the_whole_graph_use_its_size() -> None:
    explain = explainer(seeded(NODE_MODELS["gin"]), quick(steps=2, whole_graph=True, beta_e=1.0))
    sparse = graph(nodes=90, edges=40)
    small = explain_many(explain, sparse, [1, 2])
    assert [one.output_id for one in small] == [1, 2]
    for one, other in zip(explain_many(explain, LargeGraph(sparse), [1, 2]), small, strict=True):
        same(one, other)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(0, 4), st.integers(1, 3))
def test_a_subgraph_holds_what_can_reach_the_seeds(seed: int, hops: int, seeds: int) -> None:
    data = graph(nodes=30, edges=50, seed=seed, kind="directed")
    start = torch.arange(seeds) * 7
    found = LargeGraph(data).subgraph(start, hops)
    node, _, _, mask = k_hop_subgraph(start, hops, data.edge_index, relabel_nodes=True, num_nodes=30)
    inside = mask.nonzero().flatten()
    assert torch.equal(found.node, node)
    assert set(found.edge.tolist()) <= set(inside.tolist()), "PyG also takes edges among the furthest nodes"
    reached = torch.isin(data.edge_index[1], k_hop_subgraph(start, max(hops - 1, 0), data.edge_index, num_nodes=30)[0])
    assert found.edge.tolist() == (reached & (hops > 0)).nonzero().flatten().tolist()
    assert torch.equal(found.node[found.data.edge_index], data.edge_index[:, found.edge])
    assert torch.equal(found.data.x, data.x[found.node])
    assert torch.equal(found.data.edge_attr, data.edge_attr[found.edge])


def test_graphs_on_disk_and_in_memory_hold_the_same_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nseg.graphs.large_files.SORTED_AT_ONCE", 7)  # sorted in many pieces
    disk, memory = written(tmp_path / "graph"), LargeGraph(DATA)
    assert SORTED_AT_ONCE > 7
    for name in ("ptr", "sender", "edge", "node.x", "node.y", "edge.edge_attr"):
        assert np.array_equal(disk._arrays[name], memory._arrays[name]), name
    again = pickle.loads(pickle.dumps(disk))
    assert len(pickle.dumps(disk)) < 2000, "a graph on disk is sent as the name of its folder"
    assert again.fingerprint() == disk.fingerprint() == LargeGraph(tmp_path / "graph").fingerprint()
    assert LargeGraph(tmp_path / "graph", neighbours=5).fingerprint() != disk.fingerprint()
    other = DATA.clone()
    other.x = other.x + 1
    assert written(tmp_path / "other", other).fingerprint() != disk.fingerprint()


def star(rays: int = 500) -> Data:
    """A hub that many send to, and that sends to a target."""
    edges = torch.cat(
        [torch.stack([torch.arange(2, rays + 2), torch.ones(rays, dtype=torch.long)]), torch.tensor([[1], [0]])], 1
    )
    x = torch.randn(rays + 2, 4, generator=torch.Generator().manual_seed(0))
    return Data(x=x, edge_index=edges)


def test_only_the_given_number_of_neighbours_of_a_hub_is_followed() -> None:
    explain, data = explainer(seeded(NODE_MODELS["sage"]), quick(steps=2)), star()
    with pytest.warns(NsegWarning, match="1 targets depend on nodes with more neighbours"):
        one, other = explain_many(explain, LargeGraph(data, neighbours=20), [0, 2])
    assert (one.left_out, other.left_out) == (480, 0)
    senders = one.node_id[one.edge_index[0]][one.node_id[one.edge_index[1]] == 1]
    assert senders.tolist() == list(range(2, 502, 25)), "evenly spread"
    (whole,) = explain_many(explain, LargeGraph(data, neighbours=None), [0])
    assert whole.left_out == 0
    assert whole.edge_id.numel() == 501
    with torch.no_grad():
        alone = explain.model(one.x, one.edge_index)[one.index]
    torch.testing.assert_close(
        alone, one.prediction[one.index]
    )  # the model's output without the edges left out is explained


def test_a_target_that_does_not_fit_into_memory_fails_and_the_others_do_not(tmp_path: Path) -> None:
    explain, data = explainer(seeded(NODE_MODELS["sage"]), quick(steps=2)), star(3000)
    large = LargeGraph(data, neighbours=None)
    with pytest.raises(TooLargeError, match="neighbours=100"):
        explain_many(explain, large, [0, 2], budget=500_000)
    with pytest.warns(NsegWarning, match="1 targets could not"):
        found = explain_many(explain, large, [0, 2], budget=500_000, out=tmp_path / "run")
    assert "must hold the computation graph" in found[0].reason
    assert "reason" not in found[1]
    assert issubclass(TooLargeError, BudgetError)


def test_models_that_need_all_nodes_or_send_backwards_are_refused() -> None:
    with pytest.raises(ModelError, match="depend on few hops"):
        explain_many(explainer(seeded(NODE_MODELS["global mean"]), quick(steps=2)), LargeGraph(DATA), [3])
    with pytest.raises(ModelError, match="from source to target"):
        explain_many(explainer(seeded(NODE_MODELS["target to source"]), quick(steps=2)), LargeGraph(DATA), [3])


def test_stored_explanations_of_a_large_graph_get_their_graphs_back(tmp_path: Path) -> None:
    model = seeded(NODE_MODELS["gcn, edge weights"])
    explain, large = explainer(model, quick(steps=2)), written(tmp_path / "graph")
    explain_many(explain, large, TARGETS, out=tmp_path / "run", shard=2)
    assert (tmp_path / "run" / "manifest.json").is_file()
    for one, other in zip(nseg.read(tmp_path / "run"), explain_many(explain, large, TARGETS), strict=True):
        from_large = attach(one, large, ["edge_weight"])
        for name in ("x", "edge_index", "edge_weight", "index"):
            assert torch.equal(from_large[name], other[name]), name
        from_data = attach(one, DATA, ["edge_weight"])
        assert torch.equal(from_data.edge_index, from_large.edge_index)
        assert torch.equal(from_data.edge_weight, from_large.edge_weight)
    with pytest.raises(StoreError, match=r"data\.content"):
        explain_many(explain, LargeGraph(tmp_path / "graph", neighbours=3), TARGETS, out=tmp_path / "run", shard=2)
    with pytest.raises(InputError, match="other edges"):
        attach(nseg.read(tmp_path / "run")[0], LargeGraph(graph(nodes=40, edges=60, seed=1)))


def test_memory_does_not_grow_with_the_graph(tmp_path: Path) -> None:
    """A graph of 240 MB on disk, of which a few kilobytes are touched."""
    edges, nodes = 1_000_000, 1_000_000
    rng = np.random.default_rng(0)
    large = LargeGraph.write(
        tmp_path / "graph",
        np.stack([rng.integers(nodes, size=edges), np.arange(edges)]),
        np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (nodes, 50)),
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = large.subgraph(torch.arange(0, nodes, nodes // 100), 3)
    assert found.node.numel() <= 404
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kilobytes


BAD = {
    "one end": (lambda f: LargeGraph.write(f, np.zeros((1, 3), int), np.zeros((3, 2))), "whole numbers"),
    "fractions": (lambda f: LargeGraph.write(f, np.zeros((2, 3)), np.zeros((3, 2))), "whole numbers"),
    "no such node": (lambda f: LargeGraph.write(f, np.full((2, 3), 3), np.zeros((3, 2))), "from 0 to 2"),
    "no nodes": (lambda f: LargeGraph.write(f, np.zeros((2, 0), int), np.zeros((0, 2))), "at least one node"),
    "labels of others": (lambda f: LargeGraph.write(f, np.zeros((2, 1), int), np.zeros((3, 2)), {"y": [1]}), "y must hold"),
    "objects": (lambda f: LargeGraph.write(f, np.zeros((2, 1), int), np.array([object()])), "x must hold numbers"),
    "no features": (lambda f: LargeGraph(Data(edge_index=DATA.edge_index)), "needs x"),
    "no folder": (lambda f: LargeGraph(f / "none"), "must hold a graph"),
    "no neighbours": (lambda f: LargeGraph(DATA, neighbours=0), "neighbours must be"),
    "links by number": (
        lambda f: explain_many(explainer(seeded(Link), quick(), LINK_CONFIG), LargeGraph(DATA), [0]),
        "given as pairs of nodes",
    ),
    "weights apart": (
        lambda f: explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick()), LargeGraph(DATA), [0], w=DATA.edge_weight),
        "part of the large graph",
    ),
    "index": (lambda f: explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick()), LargeGraph(DATA), [40]), "0 and 39"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_graphs_get_a_sentence(name: str, tmp_path: Path) -> None:
    make, words = BAD[name]
    with pytest.raises(InputError, match=words):
        make(tmp_path)


def test_a_damaged_or_used_folder_is_refused(tmp_path: Path) -> None:
    large = written(tmp_path / "graph")
    with pytest.raises(StoreError, match="must be empty"):
        written(tmp_path / "graph")
    sender = np.load(tmp_path / "graph" / "sender.npy")
    np.save(tmp_path / "graph" / "sender.npy", sender + 100)
    with pytest.raises(StoreError, match="damaged"):
        LargeGraph(tmp_path / "graph").subgraph(torch.tensor([3]), 2)
    np.save(tmp_path / "graph" / "sender.npy", sender[:-1])
    with pytest.raises(StoreError, match="do not fit together"):
        pickle.loads(pickle.dumps(large))
    for text in ("{", "[]", '{"nodes": 1, "edges": 0, "arrays": ["../x"]}', '{"nodes": 1, "edges": 0, "arrays": [7]}'):
        (tmp_path / "graph" / "graph.json").write_text(text)
        with pytest.raises(StoreError, match="must hold a graph"):
            LargeGraph(tmp_path / "graph")
