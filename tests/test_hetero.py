"""Heterogeneous graphs: every kind of model, masks by type, batches, and an independent reference."""

from __future__ import annotations

import copy
import pickle
import re
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from hetero_zoo import AUTHORS, BY, CITES, NETS, NODE, PAPERS, WIDTHS, WROTE, HeteroNet, hetero_graph, make_net
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import HeteroExplanation as PyGHeteroExplanation
from torch_geometric.nn import GCNConv, HeteroConv, MessagePassing, RGCNConv, SAGEConv, global_mean_pool

from nseg import NSEG, Explainer, NsegError, NsegWarning, certify, explain_many
from nseg.baselines import make
from nseg.explain.jobs import BUDGET, make_job
from nseg.metrics import Evaluator
from nseg.model.programs import Programs

pytestmark = pytest.mark.filterwarnings("ignore:Shortcuts are not exact")


def explainer_of(model: nn.Module, nodes: str | None = None, edges: bool = True, **changes: Any) -> Explainer:
    config = changes.pop("model_config", NODE)
    few = {"steps": 4, "starts": (0.0,), "rounds": 1, "path_points": 4, "exact": 8}  # quality is not the question here
    algorithm = NSEG(**{**few, **changes.pop("settings", {})})
    kind = "object" if edges else None
    chosen = {"explanation_type": "model", "edge_mask_type": kind, "node_mask_type": nodes, **changes}
    return Explainer(model, algorithm, model_config=config, **chosen)


def masked_output(model: HeteroNet, data: HeteroData, masks: dict[Any, Tensor]) -> Tensor:
    """The model's output if messages are weighed by hand, layer by layer, through PyG's public message hook.

    Independent of the package: each layer's messages are recognised by the type that its tensor of edges belongs to.
    """
    edges = {kind: data[kind].edge_index.clone() for kind in data.edge_types}
    seen: list[Tensor] = []

    def before(layer: MessagePassing, args: tuple[Any, ...]) -> None:
        (kind,) = [k for k, own in edges.items() if own.data_ptr() == args[0].data_ptr()]
        seen.append(masks[kind])

    def weigh(layer: MessagePassing, args: tuple[Any, ...], message: Tensor) -> Tensor:
        return message * seen[-1].view(-1, *[1] * (message.dim() - 1))

    layers = [m for m in model.modules() if isinstance(m, MessagePassing)]
    handles = [m.register_propagate_forward_pre_hook(before) for m in layers]
    handles += [m.register_message_forward_hook(weigh) for m in layers]
    try:
        with torch.no_grad():
            return model(data.x_dict, edges)
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("nodes", [None, "object", "attributes", "common_attributes"])
@pytest.mark.parametrize("name", NETS[:-1])
def test_masks_have_the_shapes_of_their_types(name: str, nodes: str | None) -> None:
    data, model = hetero_graph(), make_net(name)
    one = explainer_of(model, nodes)(data.x_dict, data.edge_index_dict, index=2)
    assert isinstance(one, PyGHeteroExplanation)
    assert one.validate_masks()
    assert 0 <= one.pns <= min(one.pn, one.ps) <= 1
    for kind in data.edge_types:
        for mask in (one[kind].edge_mask, one[kind].hard_edge_mask):
            assert mask.shape == (data[kind].num_edges,)
            assert ((mask >= 0) & (mask <= 1)).all()
    for kind, width in WIDTHS.items():
        number = data[kind].num_nodes
        shapes = {None: None, "object": (number, 1), "attributes": (number, width), "common_attributes": (1, width)}
        mask = one[kind].get("node_mask")
        assert (None if mask is None else tuple(mask.shape)) == shapes[nodes]


@pytest.mark.parametrize("name", ["to_hetero", "hgt"])
def test_a_batch_gives_what_each_target_gets_alone_and_from_the_explainer(name: str) -> None:
    data, explainer = hetero_graph(), explainer_of(make_net(name), "object")
    many = explain_many(explainer, data)
    assert [one.output_id for one in many] == list(range(PAPERS))
    for number in (6,):
        (alone,) = explain_many(explainer, data, index=[number])
        whole = explainer(data.x_dict, data.edge_index_dict, index=number)
        assert many[number].pns == pytest.approx(alone.pns, abs=1e-6)
        assert many[number].pns == pytest.approx(whole.pns, abs=1e-5)
        for kind in data.edge_types:
            mine = many[number][kind]
            torch.testing.assert_close(mine.edge_mask, alone[kind].edge_mask)
            full = torch.zeros(data[kind].num_edges).index_copy(0, mine.edge_id, mine.edge_mask)
            torch.testing.assert_close(full, whole[kind].edge_mask, atol=1e-4, rtol=1e-3)


def test_han_runs_many_worlds_at_once_and_gives_what_one_at_a_time_gives() -> None:
    """Its semantic attention averages over all nodes of a type, which must not mix worlds."""
    data, model = hetero_graph(), make_net("han")
    job = make_job(explainer_of(model, settings={"steps": 3}), data, None, BUDGET, {})
    with job.ready(), torch.no_grad():
        graph = job.graph
        assert graph.strategy.batched
        row, target = torch.tensor([2]), torch.tensor([0])
        plain = graph.plain_model(row, target)
        (_, fast), *_ = graph.causal_models(graph.cuts(row, torch.zeros_like(row), target))
        weights = {"edges": torch.rand(5, plain.instances.num_edges, generator=torch.Generator().manual_seed(0))}
        torch.testing.assert_close(fast.output(weights), plain.output(weights))
    assert not any(layer._forward_hooks for layer in model.modules())


@pytest.mark.parametrize("name", ["to_hetero", "hgt"])
def test_an_explanations_graph_gives_the_whole_graphs_prediction(name: str) -> None:
    data, model = hetero_graph(), make_net(name)
    with torch.no_grad():
        expected = model(data.x_dict, data.edge_index_dict)
    for one in explain_many(explainer_of(model), data):
        with torch.no_grad():
            found = model(one.x_dict, one.edge_index_dict)
        torch.testing.assert_close(found[one.index][0], expected[one.output_id])
        torch.testing.assert_close(one.prediction[one.index][0], expected[one.output_id])
        for kind in data.node_types:
            assert torch.equal(one[kind].x, data[kind].x[one[kind].node_id])
        for kind in data.edge_types:
            ends = [one[end].node_id[one[kind].edge_index[row]] for row, end in ((0, kind[0]), (1, kind[2]))]
            assert torch.equal(torch.stack(ends), data[kind].edge_index[:, one[kind].edge_id])


@pytest.mark.parametrize("intervention", ["mask", "remove"])
@pytest.mark.parametrize("name", ["to_hetero", "han"])
def test_numbers_are_those_of_the_untouched_model(name: str, intervention: str) -> None:
    data, model = hetero_graph(), make_net(name)
    explain = explainer_of(model, settings={"intervention": intervention})
    one = explain(data.x_dict, data.edge_index_dict, index=4)
    with torch.no_grad():
        label = int(model(data.x_dict, data.edge_index_dict)[4].argmax())
    hard = {kind: one[kind].hard_edge_mask.float() for kind in data.edge_types}
    rest = {kind: 1 - mask for kind, mask in hard.items()}
    for masks, expected in ((hard, one.p_factual), (rest, one.p_complement)):
        kept = {kind: data[kind].edge_index[:, mask > 0] for kind, mask in masks.items()}
        with torch.no_grad():
            output = masked_output(model, data, masks) if intervention == "mask" else model(data.x_dict, kept)
        assert float(output[4].softmax(-1)[label]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["to_hetero", "hgt", "han"])
def test_no_subset_of_edges_beats_the_answer_of_a_small_graph(name: str) -> None:
    """Brute force over all subsets of the edges that reach a paper, deleted from the graph that PyG's model gets."""
    data, model = hetero_graph(1), make_net(name, 1)
    for kind, number in ((CITES, 3), (WROTE, 3), (BY, 2)):
        data[kind].edge_index = data[kind].edge_index[:, :number]
    many = explain_many(explainer_of(model, settings={"exact": 10, "tolerance": 0.0, "undirected": False}), data)

    def reached_by(one: Any) -> list[tuple[Any, int]]:
        return [(kind, int(e)) for kind in data.edge_types for e in one[kind].edge_id[one[kind].reached]]

    one = max(many, key=lambda one: len(reached_by(one)))
    reached = reached_by(one)
    assert len(reached) >= 3
    label, best = int(one.target[one.index]), 0.0

    @cache
    def p(kept: frozenset[tuple[Any, int]]) -> float:
        gone = {kind: [e for k, e in reached if k == kind and (k, e) not in kept] for kind in data.edge_types}
        stay = {kind: torch.ones(data[kind].num_edges, dtype=torch.bool) for kind in data.edge_types}
        for kind, some in gone.items():
            stay[kind][some] = False
        with torch.no_grad():
            edges = {kind: data[kind].edge_index[:, stay[kind]] for kind in data.edge_types}
            return float(model(data.x_dict, edges)[one.output_id].softmax(-1)[label])

    for keep in product((False, True), repeat=len(reached)):
        kept = frozenset(edge for edge, on in zip(reached, keep, strict=True) if on)
        best = max(best, p(kept) - p(frozenset(reached) - kept) if kept else 0.0)
    assert one.pns == pytest.approx(best, abs=1e-5)


class OneType(nn.Module):
    """Two GCN layers; the same weights for a homogeneous graph and for one of a single type."""

    def __init__(self, typed: bool) -> None:
        super().__init__()
        self.first, self.second, self.typed = GCNConv(5, 8), GCNConv(8, 3), typed

    def forward(self, x: Any, edge_index: Any) -> Tensor:
        if self.typed:
            x, edge_index = x["node"], edge_index["node", "to", "node"]
        found: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return found


@pytest.mark.parametrize("nodes", [None, "object", "attributes", "common_attributes"])
def test_one_type_is_the_homogeneous_answer_to_the_bit(nodes: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the models' own passes: replayed ones, which only homogeneous models have, round differently (2e-8)."""
    monkeypatch.setattr(Programs, "find", lambda *_: None)
    rng = torch.Generator().manual_seed(0)
    data = Data(x=torch.rand(12, 5, generator=rng), edge_index=torch.randint(12, (2, 30), generator=rng).unique(dim=1))
    typed = HeteroData()
    typed["node"].x, typed["node", "to", "node"].edge_index = data.x, data.edge_index
    torch.manual_seed(0)
    plain, hetero = OneType(False), OneType(True)
    hetero.load_state_dict(plain.state_dict())
    one = explain_many(explainer_of(plain, nodes), data)
    other = explain_many(explainer_of(hetero, nodes), typed)
    for a, b in zip(one, other, strict=True):
        assert (a.pns, a.p_factual, a.p_complement) == (b.pns, b.p_factual, b.p_complement)
        assert torch.equal(a.edge_mask, b["node", "to", "node"].edge_mask)
        assert torch.equal(a.hard_edge_mask, b["node", "to", "node"].hard_edge_mask)
        if nodes is not None:
            assert torch.equal(a.node_mask, b["node"].node_mask)


class Relational(nn.Module):
    """RGCN on the typed homogeneous graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = RGCNConv(4, 6, 2), RGCNConv(6, 3, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        found: Tensor = self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)
        return found


class SameByType(nn.Module):
    """The same network as a SAGE layer per edge type."""

    def __init__(self, other: Relational) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for layer in (other.first, other.second):
            convs = {}
            for number, kind in enumerate((("u", "a", "u"), ("u", "b", "u"))):
                conv = SAGEConv(layer.in_channels, layer.out_channels, aggr="mean", bias=False)
                conv.lin_l.weight.data = layer.weight[number].detach().t().clone()
                conv.lin_r.weight.data = layer.root.detach().t().clone() / 2
                convs[kind] = conv
            self.layers.append(HeteroConv(convs))  # type: ignore[arg-type]
        self.biases = nn.ParameterList([other.first.bias, other.second.bias])

    def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
        x = {"u": self.layers[0](x_dict, edge_index_dict)["u"] + self.biases[0]}
        found: Tensor = self.layers[1]({"u": x["u"].relu()}, edge_index_dict)["u"] + self.biases[1]
        return found


def test_a_typed_homogeneous_graph_gives_the_same_explanations() -> None:
    """RGCN with an edge type per edge, and a SAGE layer per edge type: two engines, one answer."""
    torch.manual_seed(3)
    pairs = torch.combinations(torch.arange(8)).T[:, torch.randperm(28)[:14]]
    edge_index, edge_type = pairs, torch.arange(14) % 2
    order = torch.argsort(edge_type, stable=True)
    edge_index, edge_type = edge_index[:, order], edge_type[order]
    model = Relational().eval()
    for layer in (model.first, model.second):
        nn.init.normal_(layer.bias)
    data = Data(x=torch.rand(8, 4), edge_index=edge_index, edge_type=edge_type)
    typed = HeteroData()
    typed["u"].x = data.x
    typed["u", "a", "u"].edge_index = edge_index[:, edge_type == 0]
    typed["u", "b", "u"].edge_index = edge_index[:, edge_type == 1]
    twin = SameByType(model).eval()
    with torch.no_grad():
        torch.testing.assert_close(twin(typed.x_dict, typed.edge_index_dict), model(data.x, data.edge_index, data.edge_type))
    one = explain_many(explainer_of(model), data)
    other = explain_many(explainer_of(twin), typed)
    for a, b in zip(one, other, strict=True):
        assert a.pns == pytest.approx(b.pns, abs=1e-5)
        full = torch.zeros(14).index_copy(0, a.edge_id, a.hard_edge_mask.float())
        found = [torch.zeros(7).index_copy(0, b[k].edge_id, b[k].hard_edge_mask.float()) for k in typed.edge_types]
        assert torch.equal(full, torch.cat(found))


def test_the_model_is_given_back_and_the_random_state_is_untouched() -> None:
    data, model = hetero_graph(), make_net("hgt")
    model.train()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    explain_many(explainer_of(model), data, index=[0, 1])
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))
    assert not any(m._propagate_forward_pre_hooks for m in model.modules() if isinstance(m, MessagePassing))


# --- links and graphs ----------------------------------------------------------------------------------------------------


class Links(nn.Module):
    """Scores pairs of an author and a paper."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_net("to_hetero").layers[0]

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_label_index: Tensor) -> Tensor:
        x = self.net(x_dict, edge_index_dict)
        scores: Tensor = (x["author"][edge_label_index[0]] * x["paper"][edge_label_index[1]]).sum(-1)
        return scores


LINK = {"mode": "binary_classification", "task_level": "edge", "return_type": "raw"}


def test_links_between_types_are_explained_whatever_way_the_pairs_are_given() -> None:
    data, model = hetero_graph(), Links().eval()
    pairs = torch.tensor([[8, 2, 5], [0, 6, 6]])
    explainer = explainer_of(model, model_config=LINK)
    many = explain_many(explainer, data, edge_label_index=pairs)
    data[WROTE].edge_label_index = pairs
    for number, (one, other) in enumerate(zip(many, explain_many(explainer, data), strict=True)):
        whole = explainer(data.x_dict, data.edge_index_dict, index=number, edge_label_index=pairs)
        assert one.pns == pytest.approx(whole.pns, abs=1e-5)
        assert one.pns == other.pns
        with torch.no_grad():
            score = model(one.x_dict, one.edge_index_dict, one.edge_label_index)
            expected = model(data.x_dict, data.edge_index_dict, pairs)
        torch.testing.assert_close(score[0], expected[number])


class Pooled(nn.Module):
    """Classifies whole graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.head = make_net("to_hetero").layers[0], nn.Linear(16, 2)

    def forward(self, x_dict: Any, edge_index_dict: Any, batch_dict: Any = None) -> Tensor:
        x = self.net(x_dict, edge_index_dict)
        batch = batch_dict or {"paper": None, "author": None}
        found: Tensor = self.head(torch.cat([global_mean_pool(x[kind], batch[kind]) for kind in ("paper", "author")], 1))
        return found


GRAPH = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}


def test_many_graphs_are_each_as_alone() -> None:
    torch.manual_seed(0)
    model, graphs = Pooled().eval(), [hetero_graph(seed, 5 + seed, 6) for seed in range(3)]
    explainer = explainer_of(model, model_config=GRAPH)
    many = explain_many(explainer, graphs)
    for number, (one, data) in enumerate(zip(many, graphs, strict=True)):
        (alone,) = explain_many(explainer, [data])
        assert (one.output_id, alone.output_id) == (number, 0)
        assert one.pns == pytest.approx(alone.pns, abs=1e-6)
        for kind in data.edge_types:
            assert torch.equal(one[kind].hard_edge_mask, alone[kind].hard_edge_mask)
            assert torch.equal(one[kind].edge_index, data[kind].edge_index)
    again = explain_many(explainer, Batch.from_data_list(graphs))
    assert [one.pns for one in again] == pytest.approx([one.pns for one in many], abs=1e-6)


# --- kinds of input ------------------------------------------------------------------------------------------------------


class WithWeights(nn.Module):
    """Takes edge weights, whole numbers as features of one type, and nothing of another."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.topic = nn.Embedding(5, 4), nn.Parameter(torch.ones(4))
        self.convs = nn.ModuleList([GCNConv(4, 4, add_self_loops=False, normalize=False), SAGEConv((4, 4), 3)])

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Tensor:
        x = self.embed(x_dict["user"])
        x = self.convs[0](x, edge_index_dict["user", "knows", "user"], edge_weight_dict["user", "knows", "user"])
        topics = self.topic.expand(3, -1)
        found: Tensor = self.convs[1]((topics, x.tanh()), edge_index_dict["topic", "of", "user"])
        return found


def test_types_without_features_whole_numbers_and_edge_weights() -> None:
    torch.manual_seed(1)
    data = HeteroData()
    data["user"].x, data["topic"].num_nodes, data["alone"].x = torch.arange(6) % 5, 3, torch.rand(2, 3)
    data["user", "knows", "user"].edge_index = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    data["user", "knows", "user"].edge_weight = torch.rand(5) + 0.5
    data["topic", "of", "user"].edge_index = torch.tensor([[0, 1, 2, 0], [1, 2, 3, 4]])
    model = WithWeights().eval()
    explainer = explainer_of(model)
    whole = explainer(
        {"user": data["user"].x, "alone": data["alone"].x, "topic": None},
        data.edge_index_dict,
        index=2,
        edge_weight_dict=data.edge_weight_dict,
    )
    (one,) = explain_many(explainer, data, index=[2])
    assert one.pns == pytest.approx(whole.pns, abs=1e-6)
    kept = {kind: whole[kind].hard_edge_mask for kind in data.edge_types}
    assert not kept["user", "knows", "user"][2:].any(), "edges that cannot reach the target"
    with pytest.raises(NsegError, match="node mask needs a node type with features"):
        explainer_of(model, "object")({"user": data["user"].x}, data.edge_index_dict, edge_weight_dict=data.edge_weight_dict)


def test_an_edge_type_and_its_reverse_are_one_bond() -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("mixed"), settings={"undirected": True})
    for one in [explainer(data.x_dict, data.edge_index_dict, index=3), *explain_many(explainer, data, index=[3])]:
        forward, backward = one[WROTE], one[BY]
        weight = {tuple(end): float(w) for end, w in zip(forward.edge_index.T.tolist(), forward.edge_mask, strict=True)}
        ends = backward.edge_index.flip(0).T.tolist()
        other = {tuple(end): float(w) for end, w in zip(ends, backward.edge_mask, strict=True)}
        both = weight.keys() & other.keys()
        assert both
        assert all(weight[end] == other[end] for end in both)


def test_thresholds_measure_again_and_explanations_can_be_pickled() -> None:
    data, model = hetero_graph(), make_net("to_hetero")
    settings = {"intervention": "mask"}
    explainer = explainer_of(model, threshold_config={"threshold_type": "topk_hard", "value": 1}, settings=settings)
    one = explainer(data.x_dict, data.edge_index_dict, index=4)
    (many,) = explain_many(explainer, data, index=[4])
    hard = {kind: one[kind].edge_mask for kind in data.edge_types}
    assert all(int(mask.sum()) == 1 for mask in hard.values())
    label = int(one.target[4])
    assert one.p_factual == pytest.approx(float(masked_output(model, data, hard)[4].softmax(-1)[label]), abs=1e-5)
    again = pickle.loads(pickle.dumps(many))
    assert again.pns == many.pns
    assert torch.equal(again[WROTE].edge_mask, many[WROTE].edge_mask)


@pytest.mark.parametrize("name", ["to_hetero", "hgt"])
def test_metrics_agree_with_the_numbers_on_explanations(name: str) -> None:
    data, explainer = hetero_graph(), explainer_of(make_net(name), "object")
    many = explain_many(explainer, data)
    each = Evaluator(explainer, data, many).each("hard")
    assert each.p_factual.tolist() == pytest.approx([one.p_factual for one in many], abs=1e-5)
    assert each.p_complement.tolist() == pytest.approx([one.p_complement for one in many], abs=1e-5)


def test_connected_explanations_hold_the_explained_node_and_are_certified() -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("mixed"), settings={"connected": True})
    many = explain_many(explainer, data, [2, 4])
    assert [one.pns for one in certify(explainer, data, many)] == pytest.approx([one.pns for one in many], abs=1e-5)
    assert any(sum(int(one[kind].hard_edge_mask.sum()) for kind in data.edge_types) > 1 for one in many)
    for one in many:
        kept = {(kind[0], u, kind[2], v) for kind in data.edge_types for u, v in kept_pairs(one[kind])}
        reached = {("paper", int(one.index))}
        for _ in kept:
            reached |= {end for a, u, b, v in kept if {(a, u), (b, v)} & reached for end in ((a, u), (b, v))}
        assert {(a, u) for a, u, _, _ in kept} | {(b, v) for _, _, b, v in kept} <= reached


def kept_pairs(store: Any) -> list[list[int]]:
    return store.edge_index[:, store.hard_edge_mask].T.tolist()


@pytest.mark.parametrize("name", ["mixed", "hgt", "han"])
def test_a_type_without_edges_may_be_empty_or_missing(name: str) -> None:
    empty, model = hetero_graph(), make_net(name)
    empty[CITES].edge_index = empty[CITES].edge_index[:, :0]
    missing = empty.clone()
    del missing[CITES]  # which is another thing for some models: their layer of that type is left out
    for data in (empty, missing):
        (one,) = explain_many(explainer_of(model), data, [2])
        assert set(one.edge_types) == set(data.edge_types)
        for keep, p in ((True, one.p_factual), (False, one.p_complement)):
            edges = {}
            for kind in data.edge_types:
                mask = torch.zeros(data[kind].num_edges, dtype=torch.bool)
                mask[one[kind].edge_id] = one[kind].hard_edge_mask
                edges[kind] = data[kind].edge_index[:, mask == keep]
            with torch.no_grad():
                output = model(data.x_dict, edges)[2].softmax(-1)
            assert float(output[one.target[one.index]]) == pytest.approx(p, abs=1e-5)


@pytest.mark.parametrize("method", ["saliency", "occlusion", "pagerank", "random"])
def test_rivals_run_on_the_same_engine(method: str) -> None:
    data = hetero_graph()
    explainer = Explainer(
        make_net("mixed"), make(method), explanation_type="model", edge_mask_type="object", model_config=NODE
    )
    for one in explain_many(explainer, data, index=[0, 1]):
        assert one.validate_masks()
        assert 0 <= one.pns <= 1
        assert {kind for kind in data.edge_types if one[kind].get("hard_edge_mask") is not None} == set(data.edge_types)


def test_explanations_read_as_paths_from_the_explained_node() -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("to_hetero"))
    for number, one in enumerate(explain_many(explainer, data)):
        direct = {f"paper {number} - {kind[1]} - {kind[0]} " for kind in (CITES, WROTE)}
        kept = sum(int(one[kind].hard_edge_mask[one[kind].edge_index[1] == one.index].sum()) for kind in (CITES, WROTE))
        loops = int(one[CITES].hard_edge_mask[(one[CITES].edge_index == one.index).all(0)].sum())
        paths = one.paths()
        assert all(any(path.startswith(begin) for begin in direct) for path in paths)
        assert len({tuple(path.split(" - ")[:3]) for path in paths}) == kept - loops


# --- bad input -----------------------------------------------------------------------------------------------------------


def test_bad_input_gets_a_sentence() -> None:
    data, model = hetero_graph(), make_net("to_hetero")
    explainer, x, edges = explainer_of(model), data.x_dict, data.edge_index_dict
    bad: list[tuple[str, Any]] = [
        ("must both be dictionaries", lambda: explainer(x, data[CITES].edge_index)),
        ("keyed by", lambda: explainer(x, {"cites": data[CITES].edge_index})),
        ("integer tensor", lambda: explainer(x, edges | {CITES: torch.rand(2, 3)})),
        ("node numbers from 0 to", lambda: explainer(x, edges | {CITES: torch.tensor([[0], [PAPERS]])})),
        ("must be finite", lambda: explainer(x | {"paper": torch.full((PAPERS, 6), torch.nan)}, edges)),
        ("must be between 0 and", lambda: explainer(x, edges, index=PAPERS)),
        ("needs one graph", lambda: explain_many(explainer, [data])),
        ("all homogeneous or all heterogeneous", lambda: mixed_list(model, data)),
        (
            "no nodes of type 'autor'; known: paper, author). Did you mean author",
            lambda: explain_many(explainer, misspelt(data)),
        ),
        ("edge_label_index", lambda: explainer_of(Links(), model_config=LINK)(x, edges)),
        ("the model gets dictionaries by type", lambda: explain_many(explainer_of(SAGEConv(6, 3)), data)),
    ]
    for words, call in bad:
        with pytest.raises(NsegError, match=re.escape(words)):
            call()
    words = "type 'autor', which has no features. Did you mean author"  # types without features may be left out of x
    with pytest.warns(NsegWarning, match=words), pytest.raises(NsegError):
        explainer(x, misspelt(data).edge_index_dict, index=0)


def misspelt(data: HeteroData) -> HeteroData:
    other = data.clone()
    other["autor", "wrote", "paper"].edge_index = other[WROTE].edge_index
    del other[WROTE]
    return other


def mixed_list(model: nn.Module, data: HeteroData) -> None:
    explain_many(explainer_of(model, model_config=GRAPH), [data, Data(x=torch.rand(2, 3))])


def test_rows_of_types_of_equal_size_are_told_apart() -> None:
    data = hetero_graph(papers=6, authors=6)
    (one,) = explain_many(explainer_of(make_net("to_hetero")), data, index=[1])
    assert int(one["paper"].node_id[one.index]) == 1
    assert AUTHORS != PAPERS
