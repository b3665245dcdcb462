"""Cheaper operations of recorded passes: the same values, and used where they pay."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from nseg.model.products import RowSums, SparsePattern
from nseg.model.recording import CONSTANT, SIZES
from nseg.model.rewriting import aten, multiply, simplify


@pytest.mark.parametrize("index", [[0, 0, 1, 3, 3], [3, 0, 1, 0, 3]], ids=["sorted", "unsorted"])
@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 2)])
def test_rows_are_added_up_by_index(index: list[int], shape: tuple[int, ...]) -> None:
    rows, place = torch.rand(shape), torch.tensor(index)
    expected = torch.stack([rows[place == n].sum(0) for n in range(5)])
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(RowSums(place.unsqueeze(1), 5).add_up(rows), expected)


def linear_layer(nodes: int, inner: int, outer: int) -> fx.Graph:
    """A (X W) + b, as it is recorded."""
    graph, shapes = fx.Graph(), {"x": (nodes, inner), "weight": (outer, inner), "bias": (outer,), "values": (nodes,)}
    given = {name: graph.placeholder(name) for name in ("pattern", *shapes)}
    sent = graph.call_function(aten.linear.default, (given["x"], given["weight"]))
    received = graph.call_function(multiply, (given["pattern"], given["values"], sent))
    result = graph.call_function(aten.add.Tensor, (received, given["bias"]))
    graph.output(result)
    for name, shape in shapes.items():
        given[name].meta[SIZES] = shape, shape
    for node in (sent, received, result):
        node.meta[SIZES] = ((nodes, outer),) * 2
    given["bias"].meta[CONSTANT] = None
    return graph


@pytest.mark.parametrize(("inner", "varied", "changed"), [(2, "x", True), (4, "x", False), (2, "values", False)])
def test_the_narrower_features_pass_messages(inner: int, varied: str, changed: bool) -> None:
    before, after = (linear_layer(4, inner, 3) for _ in range(2))
    simplify(after, [varied], [])
    targets = [node.target for node in after.nodes if node.op == "call_function"]
    assert targets == ([multiply, aten.linear.default] if changed else [aten.linear.default, multiply, aten.add.Tensor])
    pattern = SparsePattern(torch.tensor([1, 2, 3, 0]), torch.tensor([0, 0, 2, 3]), 4)
    given = pattern, torch.rand(4, inner), torch.rand(3, inner), torch.rand(3), torch.rand(4)
    one, other = (fx.GraphModule({}, graph)(*given) for graph in (before, after))
    torch.testing.assert_close(one, other)
