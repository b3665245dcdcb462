"""Cutting subgraphs, and packing them into batches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph
from zoo import graph

from nseg import LargeGraph
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import ModelInputs, Role
from nseg.graphs.subgraph import IncomingEdges, Neighbourhood, TargetCuts

KINDS = ("undirected", "directed", "loops", "duplicates", "empty")
EXPLAINED = [(kind, role) for kind in KINDS for role in (Role.NODE, Role.PAIR, Role.EDGE)]
EXPLAINED.remove(("empty", Role.EDGE))  # there is no edge to explain

graphs = st.builds(
    graph,
    nodes=st.integers(2, 15),
    edges=st.integers(0, 40),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["undirected", "directed", "loops", "duplicates"]),
)


def rows_of(data: Data, **size) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, data.num_nodes - 1), **size)


def cuts(data: Data, rows: list[int], receivers: tuple[int, ...] = (1,), outputs: Role = Role.NODE) -> TargetCuts:
    """Cuts around some rows, one instance each. Rows of pairs are those of ``data.edge_label_index``."""
    kwargs = {"edge_attr": data.edge_attr}
    if outputs is Role.PAIR:
        kwargs["edge_label_index"] = data.edge_label_index
    inputs = ModelInputs(data.x, data.edge_index, kwargs, "edge_label_index" if outputs is Role.PAIR else None)
    row = torch.tensor(rows)
    incoming = IncomingEdges.from_edge_index(data.edge_index, data.num_nodes, receivers)
    return TargetCuts(inputs, outputs, row, torch.arange(len(rows)), row % 3, incoming)


def cut(data: Data, rows: list[int], hops: int, receiver: int = 1) -> InstanceBatch:
    return cuts(data, rows, (receiver,)).at(hops)


def assert_equal_batches(one: InstanceBatch, other: InstanceBatch) -> None:
    """Every field of two batches is equal."""
    for name in ("x", "edge_index", "row", "node_id", "edge_id", "hops", "target", "row_ptr", "total"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert one.args.keys() == other.args.keys()
    assert all(torch.equal(one.args[name], other.args[name]) for name in other.args)
    assert one.ptr.keys() == other.ptr.keys()
    assert all(torch.equal(one.ptr[role], other.ptr[role]) for role in other.ptr)
    assert (one.roles, one.outputs) == (other.roles, other.outputs)


# --- the cutter ------------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(graphs, st.integers(0, 4), st.integers(0, 1), st.data())
def test_a_cut_holds_the_nodes_of_pygs_k_hop_subgraph_and_the_edges_into_inner_nodes(
    data: Data, hops: int, receiver: int, draw
) -> None:
    rows = draw.draw(rows_of(data, min_size=1, max_size=5))
    flow = "source_to_target" if receiver else "target_to_source"
    found = cut(data, rows, hops, receiver)
    for b, row in enumerate(rows):
        subset, *_ = k_hop_subgraph(row, hops, data.edge_index, num_nodes=data.num_nodes, flow=flow)
        mine = found.node_owner == b
        assert torch.equal(found.node_id[mine], subset)
        assert found.hops[mine].max() <= hops
        inner = found.node_id[mine & (found.hops < hops)]
        expected = torch.isin(data.edge_index[receiver], inner).nonzero().flatten()
        assert torch.equal(found.edge_id[found.edge_owner == b], expected)


@settings(max_examples=80, deadline=None)
@given(graphs, st.integers(0, 4), st.sampled_from([(1,), (0,), (0, 1)]), st.sampled_from([None, 1, 2]), st.data())
def test_widening_hop_by_hop_is_reaching_at_once(
    data: Data, hops: int, receivers: tuple[int, ...], limit: int | None, draw
) -> None:
    rows = draw.draw(rows_of(data, min_size=1, max_size=5))
    incoming = IncomingEdges.from_edge_index(data.edge_index, data.num_nodes, receivers)
    incoming.limit = limit
    node, owner = torch.tensor(rows), torch.arange(len(rows)) // 2  # some instances have two seeds
    found = incoming.start(node, owner)
    for wider in range(hops + 1):
        at_once = incoming.reach(node, owner, wider)
        for name in vars(at_once):
            assert torch.equal(torch.as_tensor(getattr(found, name)), torch.as_tensor(getattr(at_once, name))), name
        assert_is_neighbourhood(found, incoming, node, owner)
        expected = incoming.next_edges(found)
        before, found = found, incoming.widen(found)
        assert found.entry.numel() - before.entry.numel() == expected


def assert_is_neighbourhood(found: Neighbourhood, incoming: IncomingEdges, node: Tensor, owner: Tensor) -> None:
    """Nodes and distances are those of a breadth-first search, one instance at a time."""
    distance: dict[int, int] = {}
    frontier = {int(o) * incoming.num_nodes + int(n) for n, o in zip(node, owner, strict=True)}
    for hops in range(found.hops + 1):
        distance |= dict.fromkeys(frontier, hops)
        reached = set()
        for key in frontier:
            entry, _ = incoming.entries(torch.tensor([key % incoming.num_nodes]), incoming.limit)
            reached |= {key - key % incoming.num_nodes + sender for sender in incoming.senders(entry).tolist()}
        frontier = reached - distance.keys()
    assert found.nodes.tolist() == sorted(distance)
    assert found.distance.tolist() == [distance[key] for key in sorted(distance)]


@pytest.mark.parametrize("receivers", [(1,), (0,), (0, 1)], ids=["to target", "to source", "both"])
@pytest.mark.parametrize(("kind", "outputs"), EXPLAINED)
def test_a_cut_does_not_depend_on_the_widths_that_were_asked_for_before(
    kind: str, receivers: tuple[int, ...], outputs: Role
) -> None:
    data, rows = graph(kind=kind), [3, 0, 7]
    data.edge_label_index = torch.randint(0, 24, (2, 8), generator=torch.Generator().manual_seed(2))
    asked_before = cuts(data, rows, receivers, outputs)
    for hops in (2, 0, 4, 3, 1, 2):
        assert_equal_batches(asked_before.at(hops), cuts(data, rows, receivers, outputs).at(hops))


@settings(max_examples=40, deadline=None)
@given(graphs, st.integers(0, 3), st.sampled_from([None, 1, 2, 1000]), st.data())
def test_graphs_in_memory_and_on_disk_reach_the_same_nodes_and_edges(
    tmp_path_factory: pytest.TempPathFactory, data: Data, hops: int, limit: int | None, draw
) -> None:
    rows = torch.tensor(draw.draw(rows_of(data, min_size=1, max_size=4)))
    folder: Path = tmp_path_factory.mktemp("graph")
    LargeGraph.write(folder, data.edge_index, data.x, {"y": data.y}, {"edge_attr": data.edge_attr})
    in_memory = IncomingEdges.from_edge_index(data.edge_index, data.num_nodes)
    in_memory.limit = limit
    owner = torch.arange(rows.numel())
    expected = in_memory.reach(rows, owner, hops)
    together = in_memory.reach(rows, torch.zeros_like(rows), hops)
    for large in (LargeGraph(folder, neighbours=limit), LargeGraph(data, neighbours=limit)):
        found = large.incoming.reach(rows, owner, hops)
        for name in vars(expected):
            assert torch.equal(torch.as_tensor(getattr(found, name)), torch.as_tensor(getattr(expected, name))), name
        assert torch.equal(large.incoming.edge[found.entry], in_memory.edge[expected.entry])
        subgraph = large.subgraph(rows, hops)
        assert torch.equal(subgraph.node, together.nodes)
        assert torch.equal(subgraph.edge, in_memory.edge[together.entry].sort().values)
        assert torch.equal(subgraph.node[subgraph.data.edge_index], data.edge_index[:, subgraph.edge])
        assert torch.equal(subgraph.data.edge_attr, data.edge_attr[subgraph.edge])
        if limit is None or limit >= int(in_memory.degree.max()):
            batch = cuts(data, rows.tolist()).at(hops)
            assert torch.equal(subgraph.node, batch.node_id.unique())
            assert torch.equal(subgraph.edge, batch.edge_id.unique())
            assert not subgraph.left_out.any()


# --- batches ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(graphs, st.data())
def test_selecting_instances_is_cutting_only_them(data: Data, draw) -> None:
    rows = draw.draw(rows_of(data, min_size=2, max_size=6, unique=True))
    order = draw.draw(st.permutations(range(len(rows))))[:2]
    assert_equal_batches(cut(data, rows, 2).select(torch.tensor(order)), cut(data, [rows[o] for o in order], 2))


@settings(max_examples=50, deadline=None)
@given(graphs, st.integers(1, 3), st.data())
def test_a_world_batch_is_a_disjoint_union_whether_or_not_boundary_nodes_are_shared(data: Data, worlds: int, draw) -> None:
    rows = draw.draw(rows_of(data, min_size=1, max_size=4, unique=True))
    some = cut(data, rows, 2)
    for boundary in (None, 2):
        batch = some.repeat_worlds(worlds, boundary)
        ends = batch.node_id[batch.inputs.edge_index].view(2, worlds, -1)
        assert (ends == data.edge_index[:, some.edge_id].unsqueeze(1)).all()
        assert torch.equal(batch.inputs.x, data.x[batch.node_id])
        assert torch.equal(batch.node_id[batch.rows], torch.tensor(rows).expand(worlds, -1))
        if boundary is None:
            assert batch.inputs.num_nodes == worlds * some.num_nodes
        else:  # shared nodes receive nothing
            shared = batch.hops >= boundary
            assert not shared[batch.inputs.edge_index[1]].any()
            assert batch.node_id[shared].unique().numel() == int(shared.sum())


def test_a_single_instance_is_a_graph_of_its_own() -> None:
    data = graph()
    some = cut(data, [3, 9], 2)
    for b, row in enumerate((3, 9)):
        inputs, local = some.single(b)
        ids = some.node_id[some.members(Role.NODE, b)]
        assert torch.equal(inputs.x, data.x[ids])
        assert torch.equal(ids[inputs.edge_index], data.edge_index[:, some.edge_id[some.members(Role.EDGE, b)]])
        assert int(ids[local]) == row


@settings(max_examples=50, deadline=None)
@given(graphs, st.integers(1, 3), st.data())
def test_each_copy_in_a_repeated_batch_equals_the_batch(data: Data, times: int, draw) -> None:
    rows = draw.draw(rows_of(data, min_size=1, max_size=5))
    once = cut(data, rows, 2)
    many = once.repeat(times)
    assert len(many) == times * len(rows)
    for copy in range(times):
        assert_equal_batches(many.select(torch.arange(len(rows)) + copy * len(rows)), once)
