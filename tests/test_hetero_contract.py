"""The contract of every method on heterogeneous graphs: as :mod:`test_contract` has it for others, classes and values."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hetero_zoo import NODE, PAPERS, WIDTHS, HeteroNet, hetero_graph, make_net
from test_contract import CATALOGUE, NUMBERS, TOLERANCE, assert_equal, in_use, make, most_masks, state
from torch import Tensor
from torch_geometric.data import HeteroData

from nseg import Explainer, NsegError, Within, explain_many
from nseg.metrics import Evaluator

pytestmark = pytest.mark.filterwarnings("ignore:Shortcuts are not exact")
CANNOT = {
    "pgexplainer": "embedding of every node",
    "grad_cam": "one row per node",
    "attention": "graphs of one type",
    "captum": "graphs of one type",
    "graphmask": "graphs of one type",
}
OF_VALUES = ("nseg", "gnnexplainer", "occlusion", "integrated_gradients")
METHODS = [name for name in CATALOGUE if name not in CANNOT]


class Network(HeteroNet):
    """A network of one layer that fails after some calls; a regression has one column.

    Args:
        values: whether it is a regression.
        calls: the model raises after this number of calls.
    """

    def __init__(self, values: bool = False, calls: int = 10**9) -> None:
        net = make_net("mixed")
        super().__init__(list(net.layers)[:1])
        self.head, self.values, self.calls_left = net.head, values, calls

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise RuntimeError("the model fails")
        scores = super().forward(x_dict, edge_index_dict)
        return scores[:, :1] if self.values else scores


def explainer_of(name: str, model: Network, **settings: Any) -> Explainer:
    config = {**NODE, "mode": "regression"} if model.values else NODE
    settings |= {"outcome": Within(0.3, scale=0.2)} if model.values else {}
    return Explainer(model, make(name, **settings), explanation_type="model", model_config=config, **most_masks(name))


@cache
def few_edges() -> list[int]:
    """The two papers that the fewest edges reach, at least two: some methods try all subsets."""
    data = hetero_graph()
    found = explain_many(explainer_of("random", Network()), data)
    reached = [sum(int(one[kind].reached.sum()) for kind in data.edge_types) for one in found]
    return sorted((n for n in range(PAPERS) if reached[n] > 1), key=reached.__getitem__)[:2]


@cache
def explained(name: str, values: bool = False) -> tuple[Explainer, list[Any]]:
    """An explainer, and what it explains in one batch."""
    explainer = explainer_of(name, Network(values))
    return explainer, explain_many(explainer, hetero_graph(), few_edges())


def same(one: Any, other: Any, data: HeteroData) -> None:
    """Two explanations of one target on their graphs have the same masks and numbers."""
    for kind in (*data.edge_types, *data.node_types):
        name, ids = ("edge_mask", "edge_id") if isinstance(kind, tuple) else ("node_mask", "node_id")
        if one[kind].get(name) is not None:
            mine = other[kind] if ids in other[kind] else {key: other[kind][key][one[kind][ids]] for key in masks(name)}
            for key in masks(name):
                torch.testing.assert_close(one[kind][key].float(), mine[key].float(), **TOLERANCE)
    for key in NUMBERS:
        assert one[key] == pytest.approx(other[key], abs=1e-4), key


def masks(name: str) -> tuple[str, str]:
    return name, f"hard_{name}"


@pytest.mark.parametrize(("name", "values"), [*((name, False) for name in METHODS), *((name, True) for name in OF_VALUES)])
def test_a_batch_equals_each_alone_and_numbers_are_right(name: str, values: bool) -> None:
    data, index = hetero_graph(), few_edges()
    explainer, batch = explained(name, values)
    assert [one.output_id for one in batch] == index
    same(batch[1], explainer(data.x_dict, data.edge_index_dict, index=index[1]), data)
    for one in batch:
        assert 0 <= one.pns <= min(one.pn, one.ps) + 1e-6 <= 1 + 2e-6
        assert one.validate()
        for kind in data.edge_types:
            assert one[kind].edge_mask.shape == one[kind].hard_edge_mask.shape == one[kind].edge_id.shape
            assert bool(((one[kind].edge_mask >= 0) & (one[kind].edge_mask <= 1)).all())
        for kind in WIDTHS if "node_mask_type" in most_masks(name) else ():
            assert one[kind].node_mask.shape == (one[kind].node_id.numel(), 1)
    each = Evaluator(explainer, data, batch).each("hard")
    assert each.p_factual.tolist() == pytest.approx([one.p_factual for one in batch], abs=1e-4)
    assert each.p_complement.tolist() == pytest.approx([one.p_complement for one in batch], abs=1e-4)


@pytest.mark.parametrize("name", ["nseg", "gnnexplainer", "integrated_gradients", "pgm_explainer", "subgraphx"])
def test_the_model_and_the_random_state_are_untouched_also_when_the_model_raises(name: str) -> None:
    """The calls of a run are counted; then the model fails in the middle. The global random state changes nothing."""
    data, index = hetero_graph(), few_edges()[1:]

    def run(calls: int) -> tuple[Any, int]:
        model = in_use(Network(calls=calls))
        before = state(model)
        try:
            (one,) = explain_many(explainer_of(name, model), data, index)
            return one, calls - model.calls_left
        finally:
            assert_equal(before, state(model))

    with torch.random.fork_rng():
        torch.manual_seed(99)
        one, used = run(10**9)
    same(one, explained(name)[1][1], data)
    with pytest.raises(RuntimeError, match="the model fails"):
        run(used // 2)


@pytest.mark.parametrize("name", CANNOT)
def test_methods_that_cannot_say_so(name: str) -> None:
    data = hetero_graph()
    explainer = Explainer(Network(), make(name), explanation_type="model", model_config=NODE, edge_mask_type="object")
    ask = getattr(explainer.algorithm, "fit", explain_many)  # one of them is trained first
    with pytest.raises(NsegError, match=CANNOT[name]):
        ask(explainer, data, [0])
