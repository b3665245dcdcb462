"""Counterfactuals: as small as brute force, with the numbers of the untouched model on the really changed graph."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, MessagePassing, global_add_pool
from torch_geometric.utils import k_hop_subgraph

import nseg
from nseg import NSEG, Counterfactual, Explainer, InputError, UnsupportedError, counterfactual
from nseg.datasets import load
from nseg.explain.change_search import FEW_CHANGES
from nseg.explain.changed_graph import DeletedEdges
from nseg.explain.smallest_change import find_smallest
from nseg.models import pretrained


class Votes(MessagePassing):
    """Closed form: a node's score is the sum of its neighbours' x, minus 1.5; class 1 if that is positive."""

    def __init__(self) -> None:
        super().__init__(aggr="add")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        score = self.propagate(edge_index, x=x)[:, :1] - 1.5
        return torch.cat([-score, score], 1)


class Net(nn.Module):
    def __init__(self, layer: str, pooled: bool = False, weighted: bool = False) -> None:
        super().__init__()
        make = {"gcn": GCNConv, "gat": GATConv, "gin": lambda a, b: GINConv(nn.Linear(a, b))}[layer]
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.first, self.second = make(3, 8), make(8, 2)
        self.pooled, self.weighted = pooled, weighted

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        more = {"edge_weight": edge_weight} if self.weighted else {}
        h = self.second(self.first(x, edge_index, **more).relu(), edge_index, **more)
        return global_add_pool(h, batch) if self.pooled else h


class Normalised(nn.Module):
    """Depends on all nodes of the graph, so subgraphs and batches of worlds give other outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Net("gcn")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.inner(x, edge_index)
        return (h - h.mean(0)) * 3


def make(model: nn.Module, level: str = "node", **settings: Any) -> Explainer:
    config = {"mode": "multiclass_classification", "task_level": level, "return_type": "raw"}
    return Explainer(model, NSEG(**settings), explanation_type="model", edge_mask_type="object", model_config=config)


def random_graph(seed: int, nodes: int = 7, edges: int = 12) -> Data:
    rng = torch.Generator().manual_seed(seed)
    pairs = torch.randperm(nodes * nodes, generator=rng)[:edges]
    return Data(x=torch.randn(nodes, 3, generator=rng), edge_index=torch.stack([pairs // nodes, pairs % nodes]))


def predict(model: nn.Module, data: Data, keep: Tensor, row: int) -> Tensor:
    """The untouched model on the graph without some edges."""
    with torch.no_grad():
        return model(data.x, data.edge_index[:, keep])[row].softmax(-1)


def brute_force(model: nn.Module, data: Data, row: int, most: int) -> int | None:
    """Size of the smallest set of removals, of edges that carry messages to the output, that changes the class."""
    reaching = k_hop_subgraph(row, 2, data.edge_index, num_nodes=data.num_nodes)[3]
    near = k_hop_subgraph(row, 1, data.edge_index, num_nodes=data.num_nodes)[0]
    candidates = (reaching & torch.isin(data.edge_index[1], near)).nonzero().flatten().tolist()
    everything = torch.ones(data.num_edges, dtype=torch.bool)
    before = int(predict(model, data, everything, row).argmax())
    for size in range(1, most + 1):
        for removed in combinations(candidates, size):
            keep = everything.clone()
            keep[list(removed)] = False
            if int(predict(model, data, keep, row).argmax()) != before:
                return size
    return None


def check_numbers(model: nn.Module, data: Data, row: int, found: Counterfactual) -> None:
    keep = torch.ones(data.num_edges, dtype=torch.bool)
    before = predict(model, data, keep, row)
    keep[list(found.removed_edges)] = False
    after = predict(model, data, keep, row)
    assert int(before.argmax()) == found.before
    assert (int(after.argmax()) != found.before) == found.changed
    assert found.p_before == pytest.approx(float(before[found.before]), abs=1e-6)
    if found.changed:
        assert int(after.argmax()) == found.after
        assert found.p_after == pytest.approx(float(after[found.before]), abs=1e-6)
        assert found.p_new_after == pytest.approx(float(after[found.after]), abs=1e-6)
        assert [tuple(data.edge_index[:, n].tolist()) for n in found.removed_edges] == list(found.removed)


@pytest.mark.parametrize("layer", ["gcn", "gat", "gin"])
@pytest.mark.parametrize("seed", range(4))
def test_the_smallest_removal_is_that_of_brute_force(layer: str, seed: int) -> None:
    model, data = Net(layer).eval(), random_graph(seed)
    for row in (0, 3):
        expected, found = brute_force(model, data, row, 3), counterfactual(make(model), data, row, most=3)
        check_numbers(model, data, row, found)
        assert found.exact
        assert (found.size if found.changed else None) == expected


@pytest.mark.parametrize("layer", ["gcn", "gat", "gin"])
def test_many_possible_removals_are_tried_fast_and_found_as_by_brute_force(layer: str) -> None:
    model, data = Net(layer).eval(), random_graph(5, nodes=9, edges=45)  # enough for the search's own runs of worlds
    several = counterfactual(make(model), data, range(4), most=2)
    for row, found in enumerate(several):
        assert found.candidates >= FEW_CHANGES
        check_numbers(model, data, row, found)
        assert (found.size if found.changed else None) == brute_force(model, data, row, 2)
        assert found == counterfactual(make(model), data, row, most=2)
    tied = counterfactual(make(model), data, 0, undirected=True, worlds=1)
    check_numbers(model, data, 0, tied)


@pytest.mark.parametrize("seed", range(5))
def test_sets_of_additive_changes_are_grown_and_shrunk_to_a_minimum(seed: int) -> None:
    """Closed form: the outcome changes if the chosen values sum to the goal; the smallest set has the largest values."""
    rng = torch.Generator().manual_seed(seed)
    value, goal = torch.rand(300, generator=rng) ** 4, [0.5, 3.0, 9.0, 20.0, 40.0][seed]
    asked = 0

    def merit(on: Tensor) -> Tensor:
        nonlocal asked
        asked += len(on)
        return on.float() @ value - goal

    found = find_smallest(merit, 300, 300, 300, torch.device("cpu"))
    smallest = int((value.sort(descending=True).values.cumsum(0) <= goal).sum()) + 1
    assert found.found
    chosen = value[found.on]
    assert float(chosen.sum()) > goal >= float(chosen.sum() - chosen.min())  # nothing in it can go
    assert smallest <= len(chosen) <= 1.2 * smallest + 1
    assert found.exact == (len(chosen) == found.tried_size + 1)
    assert asked < 6000  # 300 ** 2 / 2 if it were shrunk one by one from all
    none = find_smallest(lambda on: on.float() @ value - 1e6, 300, 300, 300, torch.device("cpu"))
    assert not none.found
    assert not none.exact


def test_too_many_changes_to_try_all_are_chosen_by_the_guess() -> None:
    value = torch.zeros(9000).index_fill_(0, torch.tensor([8000, 8500]), 1.0)
    found = find_smallest(lambda on: on.float() @ value - 1.5, 9000, 50, 100, torch.device("cpu"), lambda: value)
    assert found.on.nonzero().flatten().tolist() == [8000, 8500]
    assert (found.tried_size, found.exact) == (0, False)


@pytest.mark.parametrize("seed", range(3))
def test_greedy_sets_change_the_outcome_and_cannot_be_shrunk(seed: int) -> None:
    model, data = Net("gin").eval(), random_graph(seed)
    for row in range(4):
        exact = counterfactual(make(model), data, row)
        greedy = counterfactual(make(model), data, row, worlds=1)
        check_numbers(model, data, row, greedy)
        assert greedy.tried_size == 0 or greedy.candidates == 1
        if greedy.changed:
            assert greedy.size >= exact.size
            assert not greedy.exact or greedy.size == 1
            for kept in greedy.removed_edges if greedy.size > 1 else ():
                keep = torch.ones(data.num_edges, dtype=torch.bool)
                keep[[n for n in greedy.removed_edges if n != kept]] = False
                assert int(predict(model, data, keep, row).argmax()) == greedy.before


def star(*values: float) -> Data:
    """Node 0 with one neighbour per value."""
    x = torch.tensor([0.0, *values]).view(-1, 1)
    return Data(x=x, edge_index=torch.stack([torch.arange(1, len(x)), torch.zeros(len(values), dtype=torch.long)]))


NAMES = {"node_names": ["tx-0", "tx-1", "tx-2", "tx-3"], "class_names": ["legit", "fraud"], "feature_names": ["risk"]}


def test_closed_form_and_its_sentence() -> None:
    found = counterfactual(make(Votes()), star(1.0, 1.0, 0.25), 0, **NAMES)
    assert (found.size, found.exact, found.candidates) == (1, True, 3)
    p = torch.tensor([2 * 0.75, 2 * -0.25]).sigmoid().tolist()
    assert (found.p_before, found.p_after) == pytest.approx(p, abs=1e-6)
    assert found.removed[0] in {(1, 0), (2, 0)}
    text = f"Remove the edge tx-{found.removed[0][0]} -> tx-0 and the model says legit (p of fraud: 0.818 -> 0.378)."
    assert found.sentence() == text
    assert str(found) == f"{text} No smaller set of the 3 possible changes does it."
    two = counterfactual(make(Votes()), star(1.0, 2.0, 2.0), 0, **NAMES)
    assert (
        two.sentence()
        == "Remove the edges tx-2 -> tx-0 and tx-3 -> tx-0 and the model says legit (p of fraud: 0.999 -> 0.269)."
    )
    assert two.sentence(molecule=True).startswith("Remove the bonds tx-2 -> tx-0 and tx-3 -> tx-0 and the model says")
    plain = two.as_plain_data()
    assert (plain["removed"], plain["after_name"], plain["sentence"]) == ([[2, 0], [3, 0]], "legit", two.sentence())


def test_nothing_that_helps_is_said_so() -> None:
    found = counterfactual(make(Votes()), star(-1.0, 0.5), 0, **NAMES | {"node_names": None})
    assert not found.changed
    assert (found.after, found.size, found.exact) == (0, 0, True)
    assert found.words() == (
        "Nothing found among the 2 possible changes makes the model say something else instead of legit (p of legit: 0.982 "
        "-> 0.953 with all of them). All sets of changes were tried."
    )


def test_edges_can_be_added_among_candidates() -> None:
    data, candidates = star(1.0), torch.tensor([[0, 1, 1], [0, 1, 0]])
    found = counterfactual(make(Votes()), data, 0, additions=candidates, to="fraud", class_names=["legit", "fraud"])
    assert (found.added, found.removed, found.after) == (((1, 0),), (), 1)
    changed = torch.cat([data.edge_index, candidates[:, 2:]], 1)
    with torch.no_grad():
        p = Votes()(data.x, changed)[0].softmax(-1)
    assert found.p_new_after == pytest.approx(float(p[1]), abs=1e-6)
    assert found.sentence() == "Add the edge 1 -> 0 and the model says fraud (p of legit: 0.731 -> 0.269)."


def test_additions_need_the_arguments_of_edges() -> None:
    data, edges = random_graph(0), torch.tensor([[0], [1]])
    data.edge_weight = torch.ones(data.num_edges)
    explainer = make(Net("gcn", weighted=True))
    with pytest.raises(InputError, match="additions must hold edge_weight for each added edge"):
        counterfactual(explainer, data, 1, additions=edges)
    found = counterfactual(explainer, data, 1, additions=Data(edge_index=edges, edge_weight=torch.ones(1)), most=2)
    assert found.candidates >= 1


def test_features_can_change() -> None:
    data = star(1.0, 1.0, 0.25)
    found = counterfactual(make(Votes()), data, 0, remove=False, features={"risk": [0.0, 0.9]}, **NAMES)
    (one,) = found.features
    assert (one.feature, one.before, one.after, found.removed) == (0, 1.0, 0.0, ())
    changed = data.x.clone()
    changed[one.node, 0] = 0.0
    with torch.no_grad():
        p = Votes()(changed, data.edge_index)[0].softmax(-1)
    assert found.p_after == pytest.approx(float(p[1]), abs=1e-6)
    assert (
        found.sentence() == f"Set risk of tx-{one.node} to 0 (from 1) and the model says legit (p of fraud: 0.818 -> 0.378)."
    )
    only = counterfactual(make(Votes()), data, 0, remove=False, features={0: 0.0}, nodes=[3])
    assert not only.changed
    assert only.candidates == 1


def test_both_directions_are_one_change_if_undirected() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    data = Data(x=torch.tensor([[0.0], [2.0], [0.25]]), edge_index=edges)
    found = counterfactual(make(Votes(), undirected=True), data, 0)
    assert (found.size, found.removed_edges, found.undirected) == (1, (0, 1), True)
    assert "Remove the edge 0 - 1 and" in found.sentence()
    assert counterfactual(make(Votes()), data, 0).removed_edges == (1,)


def test_graph_level_and_models_without_shortcuts() -> None:
    graphs = [random_graph(seed) for seed in range(3)]
    model = Net("gin", pooled=True).eval()
    for number, data in enumerate(graphs):
        found = counterfactual(make(model, "graph"), graphs, number, most=2)
        assert found.output_id == number
        keep = torch.ones(data.num_edges, dtype=torch.bool)
        keep[list(found.removed_edges)] = False
        with torch.no_grad():
            p = model(data.x, data.edge_index[:, keep], batch=torch.zeros(7, dtype=torch.long))[0].softmax(-1)
        assert (int(p.argmax()) != found.before) == found.changed
        assert not found.changed or found.p_after == pytest.approx(float(p[found.before]), abs=1e-5)
        alone = counterfactual(make(model, "graph"), data, most=2)
        assert alone.removed_edges == found.removed_edges
    awkward = Normalised().eval()
    for row in range(3):
        found = counterfactual(make(awkward), graphs[0], row, most=2)
        check_numbers(awkward, graphs[0], row, found)


def test_links_are_changed_around_their_pair() -> None:
    class Link(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net("gin")

        def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
            h = self.net(x, edge_index)
            return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(-1)

    config = {"mode": "binary_classification", "task_level": "edge", "return_type": "raw"}
    model, data, pairs = Link().eval(), random_graph(1), torch.tensor([[0, 2], [3, 4]])
    explainer = Explainer(model, NSEG(), explanation_type="model", edge_mask_type="object", model_config=config)
    found = counterfactual(explainer, data, 1, edge_label_index=pairs)
    keep = torch.ones(data.num_edges, dtype=torch.bool)
    keep[list(found.removed_edges)] = False
    with torch.no_grad():
        z = model(data.x, data.edge_index[:, keep], pairs)[1]
    assert (int(z > 0) != found.before) == found.changed


def test_a_trained_network_is_answered_and_left_untouched() -> None:
    data, model = load("tree-cycles"), pretrained("tree-cycles", "gcn")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    graph, row = data.graphs[0], int(data.instances[0])
    before = torch.random.get_rng_state()
    found = counterfactual(make(model, undirected=True), graph, row, worlds=2000)
    assert torch.equal(before, torch.random.get_rng_state())
    check_numbers(model, graph, row, found)
    assert found.changed
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.modules())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"index": None}, "index must name one node or pair"),
    ({"index": "0"}, "index must be a whole number, or several"),
    ({"index": []}, "index must name at least one output"),
    ({"index": 9}, "index must be between 0 and 2"),
    ({"index": 0, "to": 0}, "to must differ from what the model says now"),
    ({"index": 0, "to": "maybe"}, "to must be a class of the model"),
    ({"index": 0, "most": 0}, "most must be a positive whole number"),
    ({"index": 0, "features": ["risk"]}, "features must map features to values"),
    ({"index": 0, "features": {"risk": 0}}, "features must map columns of x"),
    ({"index": 0, "additions": torch.tensor([[0], [7]])}, "additions must be edges between nodes 0 to 2"),
    ({"index": 0, "class_names": ["one"]}, "class_names must have one name per class"),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG)
def test_bad_input_gets_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        counterfactual(make(Votes()), star(-1.0, 0.5), **arguments)


def test_other_data_is_refused_with_a_reason() -> None:
    with pytest.raises(InputError, match="needs a graph in memory"):
        counterfactual(make(Votes()), nseg.LargeGraph(star(1.0)), 0)
    with pytest.raises(InputError, match="swapped"):
        counterfactual(star(1.0), make(Votes()), 0)
    with pytest.raises(InputError, match="which of the 2 graphs"):
        counterfactual(make(Net("gin", pooled=True), "graph"), [random_graph(0), random_graph(1)])

    class Edges(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[edge_index[0]][:, :2]

    with pytest.raises(UnsupportedError, match="edge_label_index"):
        counterfactual(make(Edges(), "edge"), random_graph(0), 0)


def test_a_shortcut_that_errs_on_some_sets_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The centre of a star needs two edges less; fast runs that are wrong about pairs alone would have said three."""
    leaves = 20
    x = torch.tensor([0.0, 1.0, 1.0, 1.0] + [0.0] * (leaves - 3)).unsqueeze(1)
    star = Data(x=x, edge_index=torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.long)]))
    right = DeletedEdges.output

    def wrong(self: DeletedEdges, on: Tensor) -> Tensor:
        return right(self, on & (on.sum(1, keepdim=True) != 2))

    monkeypatch.setattr(DeletedEdges, "output", wrong)
    found = counterfactual(make(Votes()), star, 0)
    assert found.changed
    assert found.exact
    assert found.size == 2
