"""Cutting and packing."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nseg.instances import Inputs, Neighbours, Role, around
from torch_geometric.utils import k_hop_subgraph
from zoo import graph

graphs = st.builds(
    graph,
    nodes=st.integers(2, 15),
    edges=st.integers(0, 40),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["undirected", "directed", "loops", "duplicates"]),
)


def cut(data, rows: list[int], hops: int, receiver: int = 1):
    inputs = Inputs(data.x, data.edge_index, {"edge_attr": data.edge_attr})
    row = torch.tensor(rows)
    neighbours = Neighbours(inputs, (receiver,))
    return around(inputs, Role.NODE, row, torch.arange(len(rows)), row, neighbours, hops)


@settings(max_examples=80, deadline=None)
@given(graphs, st.integers(0, 4), st.integers(0, 1), st.data())
def test_the_nodes_within_reach_are_pygs(data, hops: int, receiver: int, draw) -> None:
    rows = draw.draw(st.lists(st.integers(0, data.num_nodes - 1), min_size=1, max_size=5))
    flow = "source_to_target" if receiver else "target_to_source"
    found = cut(data, rows, hops, receiver)
    for b, row in enumerate(rows):
        subset, *_ = k_hop_subgraph(row, hops, data.edge_index, num_nodes=data.num_nodes, flow=flow)
        mine = found.node_owner == b
        assert torch.equal(found.node_id[mine], subset)
        assert found.hops[mine].max() <= hops
        # every edge into a node that is nearer than the rim is there, and no other
        near = found.node_id[mine & (found.hops < hops)]
        expected = torch.isin(data.edge_index[receiver], near).nonzero().flatten()
        assert torch.equal(found.edge_id[found.edge_owner == b], expected)


@settings(max_examples=50, deadline=None)
@given(graphs, st.data())
def test_selecting_is_cutting_the_selected(data, draw) -> None:
    rows = draw.draw(st.lists(st.integers(0, data.num_nodes - 1), min_size=2, max_size=6, unique=True))
    order = draw.draw(st.permutations(range(len(rows))))[:2]
    some, direct = cut(data, rows, 2).select(torch.tensor(order)), cut(data, [rows[o] for o in order], 2)
    for name in ("x", "edge_index", "row", "node_id", "edge_id", "hops", "target", "row_ptr", "total"):
        assert torch.equal(getattr(some, name), getattr(direct, name)), name
    assert torch.equal(some.args["edge_attr"], direct.args["edge_attr"])
    assert all(torch.equal(some.ptr[role], direct.ptr[role]) for role in direct.ptr)


@settings(max_examples=50, deadline=None)
@given(graphs, st.integers(1, 3), st.data())
def test_a_tile_is_a_disjoint_union_whether_or_not_leaves_are_shared(data, worlds: int, draw) -> None:
    rows = draw.draw(st.lists(st.integers(0, data.num_nodes - 1), min_size=1, max_size=4, unique=True))
    some = cut(data, rows, 2)
    for leaf in (None, 2):
        tile = some.tile(worlds, leaf)
        ends = tile.node_id[tile.inputs.edge_index].view(2, worlds, -1)
        assert (ends == data.edge_index[:, some.edge_id].unsqueeze(1)).all()
        assert torch.equal(tile.inputs.x, data.x[tile.node_id])
        assert torch.equal(tile.node_id[tile.rows], torch.tensor(rows).expand(worlds, -1))
        if leaf is None:
            assert tile.inputs.num_nodes == worlds * some.num_nodes
        else:  # shared nodes receive nothing
            shared = tile.hops >= leaf
            assert not shared[tile.inputs.edge_index[1]].any()
            assert tile.node_id[shared].unique().numel() == int(shared.sum())


def test_alone_gives_back_the_instance() -> None:
    data = graph()
    some = cut(data, [3, 9], 2)
    for b, row in enumerate((3, 9)):
        inputs, local = some.alone(b)
        ids = some.node_id[some.members(Role.NODE, b)]
        assert torch.equal(inputs.x, data.x[ids])
        assert torch.equal(ids[inputs.edge_index], data.edge_index[:, some.edge_id[some.members(Role.EDGE, b)]])
        assert int(ids[local]) == row


@settings(max_examples=50, deadline=None)
@given(graphs, st.integers(1, 3), st.data())
def test_each_repetition_is_all_of_it(data, number: int, draw) -> None:
    rows = draw.draw(st.lists(st.integers(0, data.num_nodes - 1), min_size=1, max_size=5))
    once = cut(data, rows, 2)
    many = once.repeated(number)
    assert len(many) == number * len(rows)
    for copy in range(number):
        some = many.select(torch.arange(len(rows)) + copy * len(rows))
        for name in ("x", "edge_index", "row", "node_id", "edge_id", "hops", "target", "row_ptr", "total"):
            assert torch.equal(getattr(some, name), getattr(once, name)), name
        assert torch.equal(some.args["edge_attr"], once.args["edge_attr"])
        assert all(torch.equal(some.ptr[role], once.ptr[role]) for role in once.ptr)
