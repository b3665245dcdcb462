"""The search: closed forms, the paper's loop written out again, exhaustive enumeration."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from test_causal_model import causal_model
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.explain.config import MaskType
from zoo import NODE_MODELS, Planted, arguments, explainer, graph, seeded

from nseg import NSEG, Settings, explain_many
from nseg.explain.presets import PAPER
from nseg.search.climb import climb_bound
from nseg.search.complement import Shifted
from nseg.search.formulas import mix
from nseg.search.noise import mask_noise, uniform
from nseg.search.parts import MaskParts, Masks
from nseg.search.prefix import best_prefix
from nseg.search.worlds import ComplementDraw, evaluate, world_log_odds

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}


def star(weights: list[float]):
    """A node 0 with one incoming edge from each of the others, which send ``weights``."""
    count = len(weights)
    x = torch.tensor([0.0, *weights]).unsqueeze(1)
    return x, torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.long)])


# --- closed forms ----------------------------------------------------------------------------------------------------------


def test_pns_pn_and_ps_of_a_model_that_is_solved_by_hand() -> None:
    """p = sigmoid(-4 + 8 m_1): with the one cause p = sigmoid(4), without it sigmoid(-4); the other edges send nothing."""
    x, edge_index = star([8.0, 0.0, 0.0])
    found = explainer(Planted(-4.0), NSEG(), BINARY)(x, edge_index, index=0)
    high, low = 1 / (1 + math.exp(-4)), 1 / (1 + math.exp(4))
    assert found.hard_edge_mask.tolist() == [True, False, False]
    assert found.p_factual == pytest.approx(high, abs=1e-6)
    assert found.p_complement == pytest.approx(low, abs=1e-6)
    assert found.pns == pytest.approx(high - low, abs=1e-6)
    assert found.pn == pytest.approx(1 - low / high, abs=1e-6)
    assert found.ps == pytest.approx(1 - (1 - high) / (1 - low), abs=1e-6)


@pytest.mark.parametrize(("objective", "kept"), [("pns", {0, 1}), ("pn", {0, 1}), ("ps", {0, 1})], ids=["pns", "pn", "ps"])
def test_two_causes_that_are_needed_together_are_found_together(objective: str, kept: set[int]) -> None:
    """p = sigmoid(-6 + 6 m_0 + 6 m_1 - 3 m_2): either cause alone gives 1/2, edge 2 speaks against the class."""
    x, edge_index = star([6.0, 6.0, -3.0, 0.0])
    found = explainer(Planted(-6.0), NSEG(objective=objective, tolerance=0.01), BINARY)(x, edge_index, index=0)
    assert set(found.hard_edge_mask.nonzero().flatten().tolist()) == kept


def test_the_complement_is_an_expectation_over_the_law() -> None:
    """p = sigmoid(m_0 + m_1): the mean over the paper's noise is an integral, here taken on a grid."""
    x, edge_index = star([1.0, 1.0])
    with causal_model(Planted(0.0), Data(x=x, edge_index=edge_index), [0], BINARY) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
        draw = ComplementDraw(Shifted(0.5), 400, mask_noise(parts, 0, torch.float))
        factual, complement = world_log_odds(causal, parts, Masks(edges=torch.tensor([[0.3, 0.6]])), draw)
    p, q = factual.sigmoid(), mix(complement.sigmoid(), (1.0,))
    assert float(p) == pytest.approx(1 / (1 + math.exp(-0.9)), abs=1e-6)
    grid = torch.linspace(-0.5, 0.5, 401)
    exact = torch.sigmoid(1.1 + grid.view(-1, 1) + grid.view(1, -1)).mean()
    assert float(q) == pytest.approx(float(exact), abs=0.01)


# --- the paper's loop, written out again on the whole graph ----------------------------------------------------------------


def algorithm_1(model, data, row: int, settings: Settings, start: dict[str, Tensor], noise) -> dict[str, Tensor]:
    """Algorithm 1 without shortcuts: one instance, whole graph, PyG's own masks, one world at a time."""
    kwargs = arguments(model, data)
    target = int(model(data.x, data.edge_index, **kwargs)[row].argmax())
    logits = {k: v.clone().requires_grad_() for k, v in start.items()}
    optimiser = torch.optim.Adam(logits.values(), lr=settings.lr)

    def p(edge: Tensor | None, node: Tensor | None) -> Tensor:
        if edge is not None:
            set_masks(model, edge, data.edge_index, apply_sigmoid=False)
        out = model(data.x if node is None else data.x * node, data.edge_index, **kwargs)
        clear_masks(model)
        return out[row].softmax(-1)[target]

    masks: dict[str, Tensor] = {}
    for step in range(settings.steps):
        optimiser.zero_grad()
        m = {k: torch.sigmoid(v) for k, v in logits.items()}
        masks = {k: v.detach().clone() for k, v in m.items()}
        edge, node = m.get("edges"), m.get("nodes")
        factual = p(edge, node)
        complement = torch.tensor(0.0)
        events = [(0, 0), (0, 1), (1, 0)] if edge is not None and node is not None else [(0, 0)]
        weights = settings.split if len(events) == 3 else (1.0,)
        for number, ((keep_edge, keep_node), weight) in enumerate(zip(events, weights, strict=True)):
            for sample in range(settings.samples):
                e = edge if edge is None or keep_edge else 1 - edge + noise("edges", step, number, sample)
                n = node if node is None or keep_node else 1 - node + noise("nodes", step, number, sample)
                complement = complement + weight / settings.samples * p(e, n)
        value = {"pns": factual - complement, "pn": 1 - complement, "ps": factual}[settings.objective]
        loss = -value
        for kind, alpha, beta in (
            ("edges", settings.alpha_e, settings.beta_e),
            ("nodes", settings.alpha_f, settings.beta_f),
        ):
            if kind in m:
                mask = m[kind]
                entropy = -mask * mask.log() - (1 - mask) * (1 - mask).log()
                loss = loss + alpha * mask.sum() + beta * entropy.mean()
        loss.backward()
        optimiser.step()
    return masks


@pytest.mark.parametrize("objective", ["pns", "pn", "ps"])
@pytest.mark.parametrize("masks", ["e", "ef"])
@pytest.mark.parametrize("name", ["gcn", "gin", "gat"])
def test_the_search_on_subgraphs_equals_the_papers_loop_on_the_whole_graph(name: str, masks: str, objective: str) -> None:
    model, data, row = seeded(NODE_MODELS[name]), graph(), 5
    settings = Settings(**{**PAPER["tree-grid", masks], "steps": 12, "objective": objective, "lr": 0.1})
    with causal_model(model, data, [row]) as causal:
        some = causal.instances
        parts = MaskParts.of(some, True, MaskType.object if masks == "ef" else None)
        found = climb_bound(causal, parts, settings).soft
        numbers = mask_noise(parts, settings.seed, torch.float)

        def noise(kind: str, *draw: int) -> Tensor:
            ids, size = (some.edge_id, data.num_edges) if kind == "edges" else (some.node_id, data.num_nodes)
            u = numbers[kind].draw(*draw)
            full = torch.full((size, *u.shape[1:]), 0.5)  # outside the computation graph any noise will do
            return settings.noise * (2 * full.index_copy(0, ids, u) - 1)

        start = {"edges": torch.zeros(data.num_edges)}
        start["edges"][some.edge_id] = (2 * numbers["edges"].draw(-1) - 1) / math.sqrt(data.num_edges)
        if masks == "ef":
            start["nodes"] = torch.zeros(data.num_nodes, 1)
            start["nodes"][some.node_id] = (2 * numbers["nodes"].draw(-1) - 1) / math.sqrt(data.num_nodes)
        expected = algorithm_1(model, data, row, settings, start, noise)
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found["edges"], expected["edges"][some.edge_id], rtol=1e-4, atol=2e-5)
    if masks == "ef":
        torch.testing.assert_close(found["nodes"], expected["nodes"][some.node_id], rtol=1e-4, atol=2e-5)


def test_each_row_of_the_papers_table_is_a_preset() -> None:
    names = ("ba-shapes", "tree-cycles", "tree-grid", "ba-2motif", "mutagenicity", "msrc-21")
    assert set(PAPER) == set(itertools.product(names, ("e", "ef")))
    edges = [(s.alpha_e, s.beta_e) for s in (NSEG.paper(n, "e").settings for n in names)]
    assert edges == [(5e-3, 1), (1e-2, 1), (5e-2, 1), (1e-2, 1), (1e-4, 1e-3), (1e-3, 1)]
    joint = [(s.alpha_e, s.beta_e, s.alpha_f, s.beta_f) for s in (NSEG.paper(n, "ef").settings for n in names)]
    assert joint == [
        (5e-3, 1, 5e-3, 1),
        (1e-2, 1, 1e-3, 1),
        (1e-2, 1, 1e-2, 1),
        (1e-2, 1, 1e-2, 1),
        (1e-4, 1, 1e-4, 1),
        (5e-4, 1, 5e-4, 1),
    ]
    assert [NSEG.paper(n, "e").settings.steps for n in names] == [1000, 500, 500, 500, 500, 500]
    assert [NSEG.paper(n, "ef").settings.lr for n in names] == [0.01] * 5 + [0.05]


# --- exhaustive enumeration ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["pns", "pn", "ps"])
def test_the_search_never_beats_enumeration_and_comes_close(objective: str) -> None:
    gaps = []
    for seed in range(6):
        model, data = seeded(NODE_MODELS["gcn"], seed), graph(nodes=14, edges=14, seed=seed)
        with causal_model(model, data, [int(data.edge_index[1].mode().values)]) as causal:
            parts = MaskParts.of(causal.instances, edges=True, undirected=True)
            count = int(parts.count)
            if not 1 <= count <= 10:
                continue
            subsets = torch.tensor(list(itertools.product((0.0, 1.0), repeat=count)))
            p, q, *_ = evaluate(causal, parts, Masks(edges=subsets), (1.0,))
            algorithm = NSEG(objective=objective, undirected=True, tolerance=0.0, alpha_e=1e-3, intervention="mask")
            own_p, own_q = algorithm.answer(causal, parts).measured.p
        value = {"pns": p - q, "pn": 1 - q, "ps": p}[objective]
        mine = {"pns": own_p - own_q, "pn": 1 - own_q, "ps": own_p}[objective]
        assert float(mine) <= float(value.max()) + 1e-6
        gaps.append(float(value.max() - mine))
    assert len(gaps) >= 4
    assert sum(gaps) / len(gaps) < 0.1, gaps


# --- extraction ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [None, MaskType.object, MaskType.attributes, MaskType.common_attributes])
@pytest.mark.parametrize("tolerance", [0.0, 0.02])
def test_the_best_prefix_is_found_by_trying_all(nodes: MaskType | None, tolerance: float) -> None:
    model, data = seeded(NODE_MODELS["gin"]), graph()
    settings = Settings(tolerance=tolerance)
    with causal_model(model, data, [0, 3, 5, 9]) as causal, torch.no_grad():
        parts = MaskParts.of(causal.instances, True, nodes)
        soft = Masks()
        for part in parts:
            keys = torch.arange(part.owner.numel())
            soft[part.name] = uniform(keys, part.width, (5 + part.group,), torch.float).view(part.shape)
        hard = best_prefix(causal, parts, soft, settings)

        def gap(masks: Masks) -> Tensor:
            p, q, *_ = evaluate(causal, parts, masks.map(lambda mask: mask.float().unsqueeze(0)), parts.split(settings))
            return (p - q)[0]

        flat, kept = parts.flatten(soft), parts.flatten(hard)
        for b in range(4):
            mine = parts.owner == b
            thresholds = torch.cat([torch.tensor([2.0]), flat[mine].sort(descending=True).values])
            values = []
            for threshold in thresholds.tolist():  # one prefix at a time; other instances' elements do not matter
                values.append(float(gap(soft.map(lambda mask, at=threshold: mask >= at))[b]))
            value = torch.tensor([min(values[0], 0.0), *values[1:]])  # nothing shows nothing
            length = int((value >= value.max() - tolerance - 1e-6).nonzero()[0])
            if thresholds.numel() <= 65:
                assert int(kept[mine].sum()) == length
            # of a longer ranking not every prefix is scored, but no prefix is better than the best
            assert float(gap(hard)[b]) <= float(value.max()) + 1e-6


def test_threshold_and_top_k_keep_what_they_say() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    both = {"edge_mask_type": "object", "node_mask_type": "object"}
    for one in explain_many(explainer(model, NSEG(steps=5, extract="threshold", threshold=0.45), **both), data, [2, 5]):
        assert torch.equal(one.hard_edge_mask, one.edge_mask > 0.45)
        assert torch.equal(one.hard_node_mask, one.node_mask > 0.45)
    for one in explain_many(explainer(model, NSEG(steps=5, extract="topk", k=3), **both), data, [2, 5]):
        assert one.hard_edge_mask.sum() == 3
        assert one.hard_node_mask.sum() == 3
        assert one.edge_mask[one.hard_edge_mask].min() >= one.edge_mask[one.reached & ~one.hard_edge_mask].max()


# --- other laws ------------------------------------------------------------------------------------------------------------


def test_relabelling_the_nodes_changes_nothing() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(4))  # new number -> old number
    place = torch.argsort(order)
    # noise and start are drawn by the place of an element in its instance, so a relabelling must do without
    algorithm = NSEG(noise=0.0, spread=0.0)
    explain = explainer(model, algorithm, edge_mask_type="object", node_mask_type="object")
    one = explain(data.x, data.edge_index, index=5)
    other = explain(data.x[order], place[data.edge_index], index=int(place[5]))
    torch.testing.assert_close(one.edge_mask, other.edge_mask, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.node_mask[order], other.node_mask, rtol=1e-4, atol=1e-5)


def test_undirected_masks_are_equal_in_both_directions() -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph(kind="duplicates")
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)[:, ::2]], 1)
    data.edge_attr = data.edge_weight = None
    for one in explain_many(explainer(model, NSEG(undirected=True, steps=10)), data, [0, 5]):
        weights: dict[tuple[int, int], list[list[float]]] = {}
        for u, v, w, r in zip(*one.edge_index.tolist(), one.edge_mask.tolist(), one.reached.tolist(), strict=True):
            if r:
                weights.setdefault((min(u, v), max(u, v)), [[], []])[int(u > v)].append(w)
        tied = 0
        for there, back in weights.values():
            for a, b in zip(there, back, strict=False):
                assert a == b
                tied += 1
        assert tied > 3


def test_one_common_mask_for_several_outputs_climbs_their_mean() -> None:
    """A star with two centres: the edge that serves both is worth more than one that serves a single centre."""
    x = torch.tensor([0.0, 0.0, 8.0, 0.0]).unsqueeze(1)
    edge_index = torch.tensor([[2, 2, 3, 3], [0, 1, 0, 1]])
    explain = explainer(Planted(-4.0), NSEG(), BINARY)
    both = explain(x, edge_index, index=torch.tensor([0, 1]))
    assert both.hard_edge_mask.tolist() == [True, True, False, False]
    one = explain(x, edge_index, index=0)
    assert one.hard_edge_mask.tolist() == [True, False, False, False]
    assert both.p_factual == pytest.approx(one.p_factual, abs=1e-6)
