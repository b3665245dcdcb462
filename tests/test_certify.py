"""Certificates: closed forms, enumeration by hand, intervals that hold as often as they say, ceilings that hold."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from functools import cache

import pytest
import torch
from scipy.stats import binom
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_MODELS, Link, Molecule, Planted, explainer, graph, quick, seeded

import nseg
from nseg import Bernoulli, InputError, NsegWarning, SettingsError, certify, explain_many
from nseg.baselines.exhaustive import Exhaustive
from nseg.metrics.certifier import Certifier
from nseg.metrics.intervals import empirical_bernstein, hoeffding, mean_interval
from nseg.metrics.sources import OneGraphSource
from nseg.model.causal import CausalModel
from nseg.search import formulas
from nseg.search.complement import literal
from nseg.search.enumeration import subset_probabilities
from nseg.search.sampling import other_subsets

BINARY = {"mode": "binary_classification", "task_level": "node", "return_type": "raw"}
E, F = {"edge_mask_type": "object"}, {"node_mask_type": "object"}
KINDS = {
    "e": E,
    "f": F,
    "ef": E | F,
    "attributes": {"node_mask_type": "attributes"},
    "common": E | {"node_mask_type": "common_attributes"},
}
SMALL = {"e": 4, "f": 5, "ef": 11, "attributes": 12, "common": 8}  # some instances have fewer elements, some more


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def stars(weights: Tensor, seed: int = 0) -> tuple[Data, Tensor]:
    """Stars of one graph, whose leaves send ``weights`` [B, k] over edges in random order, and their centres."""
    number, leaves = weights.shape
    centre = torch.arange(number) * (leaves + 1)
    x = torch.cat([torch.zeros(number, 1), weights], 1).view(-1, 1)
    rng = torch.Generator().manual_seed(seed)
    order = torch.stack([torch.randperm(leaves, generator=rng) for _ in range(number)]) + 1
    ends = torch.stack([(centre.unsqueeze(1) + order).flatten(), centre.repeat_interleave(leaves)])
    return Data(x=x, edge_index=ends), centre


def star(*weights: float) -> Data:
    count = len(weights)
    ends = torch.stack([torch.arange(1, count + 1), torch.zeros(count, dtype=torch.long)])
    return Data(x=torch.tensor([0.0, *weights]).unsqueeze(1), edge_index=ends)


def explained(model, data, index, kept=None, config=BINARY, masks=E, **settings):
    """An explainer, and explanations whose hard masks are ``kept``, or random."""
    explain = explainer(model, quick(steps=0, **settings), config, **masks)
    found = explain_many(explain, data, index)
    rng = torch.Generator().manual_seed(5)
    for number, one in enumerate(found):
        for name in ("hard_edge_mask", "hard_node_mask"):
            if one.get(name) is None:
                continue
            mask = torch.rand(one[name].shape, generator=rng) < 0.5
            if kept is not None:
                mask = torch.tensor(kept[number][name == "hard_node_mask"], dtype=torch.bool).view_as(one[name])
            elif settings.get("undirected") and name == "hard_edge_mask":
                mask = (one.edge_index.sum(0) % 3 > 0) | (one.edge_index.prod(0) % 2 > 0)  # the same for both directions
            one[name] = mask
    return explain, found


# --- enumeration by hand ---------------------------------------------------------------------------------------------------


def world_by_world(model, one) -> Callable[..., float]:
    """The probability of the class in a world, which is run alone with PyG's own masks, and only once."""
    row = int(one.index)
    score = model(one.x, one.edge_index)
    target = int(one.target[row])

    @cache
    def p(edge, node) -> float:
        set_masks(model, torch.tensor(edge, dtype=torch.float), one.edge_index, apply_sigmoid=False)
        x = one.x if node is None else one.x * torch.tensor(node, dtype=torch.float).view(-1, 1)
        with torch.no_grad():
            out = model(x, one.edge_index)[row]
        clear_masks(model)
        if score.dim() == 1:
            return float(torch.sigmoid(out if target else -out))
        return float(out.softmax(-1)[target])

    return p


def by_hand(p: Callable[..., float], one, q: float | None, split) -> tuple[float, float, float]:
    """p_factual, p_complement and the share of violations, from all worlds."""

    def law(kept: tuple[bool, ...]) -> dict[tuple[bool, ...], float]:
        if q is None:
            return {tuple(not k for k in kept): 1.0}
        weights = {}
        for world in itertools.product((False, True), repeat=len(kept)):
            if world != kept:
                weights[world] = math.prod(q if keep else 1 - q for keep in world)
        total = sum(weights.values())
        return {world: weight / total for world, weight in weights.items()}

    edge = tuple(one.hard_edge_mask.tolist())
    factual, complement, violated = 0.0, 0.0, 0.0
    if one.get("hard_node_mask") is None:
        factual = p(edge, None)
        events = [(1.0, law(edge), {None: 1.0})]
    else:
        node = tuple(one.hard_node_mask.flatten().tolist())
        factual = p(edge, node)
        events = [
            (split[0], law(edge), law(node)),
            (split[1], law(edge), {node: 1.0}),
            (split[2], {edge: 1.0}, law(node)),
        ]
    for share, edges, nodes in events:
        for (e, a), (n, b) in itertools.product(edges.items(), nodes.items()):
            here = p(e, n)
            complement += share * a * b * here
            violated += share * a * b * (here > factual + 1e-5)
    return factual, complement, violated


LAWS = (("literal", None), ("uniform", 0.5), (Bernoulli(0.2), 0.2))


def same(certificate, reference: tuple[float, float, float]) -> None:
    factual, complement, violated = reference
    a, b = torch.tensor(factual).double(), torch.tensor(complement).double()
    assert certificate.p_factual == pytest.approx(factual, abs=1e-5)
    assert certificate.p_complement == pytest.approx(complement, abs=1e-5)
    assert certificate.violations == pytest.approx(violated, abs=1e-5)
    for name in ("pns", "pn", "ps"):
        value = float(getattr(formulas, f"{name}_bound")(a, b)) * (certificate.kept > 0)  # nothing shows nothing
        assert getattr(certificate, name) == pytest.approx(value, abs=1e-4)
        assert getattr(certificate, f"{name}_interval") == (getattr(certificate, name),) * 2  # no width
    assert certificate.exact
    assert certificate.samples == 0


@pytest.mark.parametrize("masks", ["e", "ef"])
@pytest.mark.parametrize("name", ["planted", "gin", "gat"])
def test_small_instances_are_as_enumerated_by_hand(name: str, masks: str) -> None:
    """Of a random graph: the instances with two to five edges (and up to five nodes), explained by random subsets."""
    split = (0.5, 0.2, 0.3)
    if name == "planted":
        data, index = stars(torch.tensor([[3.0, 2.0, -1.0], [5.0, -2.0, 1.0]]))
        model, config = Planted(-2.0), BINARY
    else:
        data, index = graph(16, 18, seed=3, kind="directed"), None
        model = seeded(NODE_MODELS[name])
        config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explain, found = explained(model, data, index, None, config, KINDS[masks], split=split)
    small = [one for one in found if 2 <= one.edge_index.size(1) <= (5 if masks == "e" else 4) and one.x.size(0) <= 5]
    assert len(small) >= 2
    worlds = [world_by_world(model, one) for one in small]
    for law, q in LAWS:
        for one, p, certificate in zip(small, worlds, certify(explain, data, small, law), strict=True):
            same(certificate, by_hand(p, one, q, split))
            assert certificate.elements == one.edge_index.size(1) + (one.x.size(0) if masks == "ef" else 0)


def test_literal_and_uniform_of_a_star_in_closed_form() -> None:
    """p = sigmoid(-2 + 4 m_0 + 0 m_1): kept {0}; of the other subsets {0, 1} gives sigmoid(2), {1} and {} sigmoid(-2)."""
    data = star(4.0, 0.0)
    explain, found = explained(Planted(-2.0), data, [0], [((1, 0),)])
    high, low = sigmoid(2), sigmoid(-2)
    (one,) = certify(explain, data, found)
    assert one.pns == pytest.approx(high - low, abs=1e-6)
    assert one.pn == pytest.approx(1 - low / high, abs=1e-6)
    assert (one.kept, one.elements, one.unit, one.target) == (1, 2, "edges", 1)
    (one,) = certify(explain, data, found, "uniform")
    assert one.p_complement == pytest.approx((high + 2 * low) / 3, abs=1e-6)
    (one,) = certify(explain, data, found, Bernoulli(0.9))
    assert one.p_complement == pytest.approx((0.81 * high + 0.1 * low) / 0.91, abs=1e-6)


def test_the_literal_law_gives_the_numbers_of_the_explanation() -> None:
    data, model = graph(), seeded(NODE_MODELS["gcn"])
    for undirected in (False, True):
        explain = explainer(model, quick(steps=5, undirected=undirected), **KINDS["ef"])
        found = explain_many(explain, data, range(6))
        for one, certificate in zip(found, certify(explain, data, found), strict=True):
            for name in ("p_factual", "p_complement", "pns", "pn", "ps"):
                assert getattr(certificate, name) == pytest.approx(one[name], abs=1e-5)


def test_nothing_is_certified_where_the_explanation_is_the_only_world() -> None:
    """A node without edges; and q of 0 or 1 for an explanation that keeps nothing or everything."""
    data = star(3.0, 1.0)
    data.x = torch.cat([data.x, torch.ones(1, 1)])
    explain, found = explained(Planted(-2.0), data, [0, 0, 3], [((0, 0),), ((1, 1),), ((),)])
    for law in ("literal", "uniform", Bernoulli(0.3)):
        alone = certify(explain, data, found, law)[2]
        assert (alone.pns, alone.pn, alone.ps, alone.elements, alone.ceiling) == (0, 0, 0, 0, 0)
        assert alone.p_complement == alone.p_factual
    for exact in (0, 12):
        nothing, everything, _ = certify(explain, data, found, Bernoulli(0), exact=exact)
        assert nothing.pns == 0
        assert everything.pns == pytest.approx(sigmoid(2) - sigmoid(-2), abs=1e-6)
        assert everything.exact
        nothing, everything, _ = certify(explain, data, found, Bernoulli(1), exact=exact)
        assert everything.pns == 0
        assert nothing.pns == 0  # adding edges only helps
        assert not nothing.monotone
    explain, found = explained(Planted(-2.0), data, [3], [((), (1,))], masks=KINDS["ef"])
    (alone,) = certify(explain, data, found, "uniform", exact=0)  # of the joint complement, only the node can differ
    assert not alone.exact
    assert certify(explain, data, found, "uniform")[0].exact


# --- samples ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.5, 0.1])
def test_other_subsets_are_sampled_with_the_probabilities_of_the_law(q: float) -> None:
    kept, size = torch.tensor([False, False, False, True, False]), 40000
    owner, position = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 1, 2, 0, 1])
    rng = torch.Generator().manual_seed(0)
    u, v = torch.rand(size, 5, generator=rng).double(), torch.rand(2, size, generator=rng).double()
    worlds = other_subsets(kept, owner, position, q, u, v)
    for mine, count in ((worlds[:, :3], 3), (worlds[:, 3:], 2)):
        explanation = kept[:3] if count == 3 else kept[3:]
        bits = 1 << torch.arange(count)
        number = int((explanation * bits).sum())
        seen = (mine * bits).sum(1).bincount(minlength=1 << count) / size
        codes, all_bits = torch.arange(1 << count).unsqueeze(1), torch.tensor([(1 << count) - 1])
        expected = subset_probabilities(codes, all_bits, torch.tensor([number]), q)
        assert seen[number] == 0
        torch.testing.assert_close(seen.double(), expected[:, 0], atol=4 * math.sqrt(0.25 / size), rtol=0)


def test_intervals_cover_as_often_as_promised_and_samples_are_independent() -> None:
    """300 random models and explanations, each sampled 60 times; the truth is enumerated."""
    number, samples, confidence = 300, 60, 0.8
    rng = torch.Generator().manual_seed(1)
    data, centre = stars(2 * torch.randn(number, 7, generator=rng))
    explain, found = explained(Planted(0.3), data, centre)
    drawn = certify(explain, data, found, "uniform", samples, confidence, exact=0)
    known = certify(explain, data, found, "uniform", exact=7)
    assert not any(one.exact for one in drawn)
    assert all(one.exact for one in known)
    assert {one.samples for one in drawn} == {samples}
    hits = {}
    for name in ("p_complement", "pns", "pn", "ps"):
        pairs = [(getattr(a, name + "_interval"), getattr(b, name)) for a, b in zip(drawn, known, strict=True)]
        hits[name] = sum(low - 1e-6 <= value <= high + 1e-6 for (low, high), value in pairs)
    assert min(hits.values()) >= binom.ppf(1e-3, number, confidence)
    width = torch.tensor([one.p_complement_interval[1] - one.p_complement_interval[0] for one in drawn])
    assert width.max() <= 2 * hoeffding(samples, (1 - confidence) / 2) + 1e-9
    for samples in (60, 500):  # within a block of samples, and over several
        drawn = certify(explain, data, found, "uniform", samples, exact=0)
        error = torch.tensor([a.p_complement - b.p_complement for a, b in zip(drawn, known, strict=True)])
        spread = torch.tensor([variance(one) for one in found]) / samples
        assert (error.square() / spread).mean() == pytest.approx(1, abs=0.3)  # as independent samples scatter
        assert (error / spread.sqrt()).mean() == pytest.approx(0, abs=4 / math.sqrt(number))


def variance(one) -> float:
    """Variance of p over all other subsets of a star."""
    worlds = torch.tensor(list(itertools.product((0.0, 1.0), repeat=one.edge_index.size(1))))
    other = (worlds != one.hard_edge_mask.float()).any(1)
    p = torch.sigmoid(0.3 + worlds @ one.x[one.edge_index[0], 0])
    return float(p[other].var(unbiased=False))


def test_mean_intervals_cover_the_mean_of_few_and_rare_values() -> None:
    """Zeros and ones with few ones: the sample variance is often 0, and a normal interval would miss the mean."""
    rng = torch.Generator().manual_seed(0)
    for chance in (0.02, 0.1, 0.5, 0.97):
        for samples in (2, 10, 100, 1000):
            values = (torch.rand(samples, 2000, generator=rng) < chance).double()
            mean, low, high = mean_interval(values, 0.9)
            assert bool(((low >= 0) & (low <= mean) & (mean <= high) & (high <= 1)).all())
            covered = int(((low <= chance) & (chance <= high)).sum())
            assert covered >= binom.ppf(1e-4, 2000, 0.9)


def test_the_tighter_of_two_intervals_is_taken() -> None:
    flat, wide = torch.full((1000, 1), 0.3).double(), torch.tensor([0.0, 1.0]).double().repeat(500).unsqueeze(1)
    _, low, high = mean_interval(torch.cat([flat, wide], 1), 0.95)
    half = (high - low) / 2
    assert float(half[0]) == pytest.approx(float(empirical_bernstein(torch.zeros(1).double(), 1000, 0.025)), abs=1e-9)
    assert float(half[1]) == pytest.approx(hoeffding(1000, 0.025), abs=1e-9)
    assert half[0] < half[1] / 3


@pytest.mark.parametrize("masks", ["e", "ef"])
def test_more_samples_narrow_the_interval_around_the_truth(masks: str) -> None:
    data, centre = stars(torch.tensor([[3.0, -1.0, 2.0, 1.0]]))
    explain, found = explained(Planted(-1.0), data, centre, masks=KINDS[masks], split=(0.6, 0.3, 0.1))
    (truth,) = certify(explain, data, found, Bernoulli(0.3))
    last = 1.0
    for samples in (20, 200, 2000, 20000):
        (one,) = certify(explain, data, found, Bernoulli(0.3), samples, 0.999, exact=0)
        low, high = one.p_complement_interval
        assert high - low < last
        assert low <= truth.p_complement <= high
        last = high - low
    assert last < 0.04
    assert one.p_complement == pytest.approx(truth.p_complement, abs=0.01)
    assert one.violations == pytest.approx(truth.violations, abs=0.02)


def half(mask: Tensor, u: Tensor) -> Tensor:
    """Half of an instance's elements, whichever: a law that looks at all elements of an instance."""
    return u.argsort(-1).argsort(-1) < mask.size(-1) // 2


def test_a_users_law_is_sampled_instance_by_instance() -> None:
    weights = torch.tensor([[4.0, 1.0, -2.0, 0.5], [1.0, 2.0, 3.0, -4.0]])
    data, centre = stars(weights)
    explain, found = explained(Planted(-1.0), data, centre)
    many = certify(explain, data, found, half, samples=4000, confidence=0.999)
    for one, certificate in zip(found, many, strict=True):
        sent = one.x[one.edge_index[0], 0]
        by_pairs = [float(torch.sigmoid(-1 + sent[list(pair)].sum())) for pair in itertools.combinations(range(4), 2)]
        mean = sum(by_pairs) / 6
        mean = mean if int(one.target[one.index]) else 1 - mean
        low, high = certificate.p_complement_interval
        assert low <= mean <= high
        assert certificate.p_complement == pytest.approx(mean, abs=0.02)
        assert (certificate.law, certificate.exact, certificate.samples) == ("half", False, 4000)
    assert certify(explain, data, found, literal) == certify(explain, data, found, "literal")


# --- laws ------------------------------------------------------------------------------------------------------------------


def flat(certificate) -> list[float]:
    values = []
    plain = certificate.as_plain_data()
    sizes = [number for part in plain.pop("size") for number in (part["kept"], part["total"], part["nodes"])]
    for value in (*plain.values(), sizes):
        values += value if isinstance(value, list) else [value] if isinstance(value, int | float) else []
    return [float(v) for v in values]


@cache
def random_explanations(masks: str) -> tuple[Explainer, Data, list[Explanation]]:
    """Nodes of one graph with random hard masks: the explainer, the graph, and the explanations."""
    data, model = graph(14, 9, seed=1), seeded(NODE_MODELS["gin"])
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    undirected = masks in ("e", "common")
    explain, found = explained(model, data, [0, 3, 6, 7], None, config, KINDS[masks], undirected=undirected)
    return explain, data, found


@pytest.mark.parametrize(
    ("masks", "law"),
    [
        (masks, law)
        for masks in KINDS
        for law in ("literal", "uniform", *([Bernoulli(0.8), half] if masks in ("e", "ef") else []))
    ],
)
def test_laws_of_all_certificates(masks: str, law) -> None:
    """In order, in [0, 1], alone as in a batch, the same for equal seeds; small and large instances together."""
    explain, data, found = random_explanations(masks)
    asked = {"law": law, "samples": 150, "exact": SMALL[masks]}
    many = certify(explain, data, found, **asked)
    if law != half:
        assert {one.exact for one in many} == ({True} if law == "literal" else {True, False})
    for one in many:
        for name in ("p_complement", "pns", "pn", "ps"):
            low, high = getattr(one, name + "_interval")
            assert 0 <= low <= getattr(one, name) <= high <= 1
        assert one.pns <= min(one.pn, one.ps) + 1e-12
        assert 0 <= one.violations <= 1
        assert one.monotone == (one.violations == 0)
        if law == "literal":
            assert one.ceiling >= one.pns - 1e-6
            assert one.ceiling_pn >= one.pn - 1e-6
            assert one.ceiling_ps >= one.ps - 1e-6
        assert one.ceiling <= min(one.ceiling_pn, one.ceiling_ps) + 1e-12
    (by_itself,) = certify(explain, data, found[2], **asked)
    assert flat(by_itself) == pytest.approx(flat(many[2]), abs=1e-4)
    assert certify(explain, data, found, **asked) == many
    if law != "literal":
        others = certify(explain, data, found, **asked, seed=1)
        assert any(a.p_complement != b.p_complement for a, b in zip(many, others, strict=True) if not a.exact)


@pytest.mark.parametrize("level", ["graph", "link"])
def test_graphs_and_links_can_be_certified(level: str) -> None:
    if level == "graph":
        data, model, config = [graph(5, 5, seed=s) for s in range(3)], seeded(Molecule), GRAPH_CONFIG
    else:
        data, model, config = graph(12, 12), seeded(Link), LINK_CONFIG
        data.edge_label_index = torch.tensor([[0, 1], [2, 3]])
    explain = explainer(model, quick(steps=3, undirected=True), config)
    found = explain_many(explain, data)
    for one, certificate in zip(found, certify(explain, data, found), strict=True):
        assert certificate.pns == pytest.approx(one.pns, abs=1e-5)
    drawn, known = (certify(explain, data, found, "uniform", 3000, 0.999, exact=n) for n in (0, 14))
    assert any(one.exact for one in known)
    for a, b in zip(drawn, known, strict=True):
        assert a.p_complement_interval[0] <= b.p_complement_interval[1]
        assert a.p_complement_interval[1] >= b.p_complement_interval[0]


# --- monotonicity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [0, 12])
def test_only_a_message_that_speaks_against_the_class_violates_monotonicity(exact: int) -> None:
    """All edges that help are kept: nothing is likelier, unless one of the kept edges hinders or another one helps."""
    weights = torch.tensor([[3.0, 2.0, 0.0, 0.0], [3.0, 2.0, -1.0, -2.0], [3.0, 2.0, -1.0, 0.0], [3.0, 2.0, 0.0, 1.0]])
    data = Data(x=torch.cat([torch.zeros(4, 1), weights], 1).view(-1, 1))
    centre = torch.arange(4) * 5
    data.edge_index = torch.stack([(centre.view(-1, 1) + torch.arange(1, 5)).flatten(), centre.repeat_interleave(4)])
    kept = [((1, 1, 0, 0),), ((1, 1, 0, 0),), ((1, 1, 1, 0),), ((1, 1, 0, 0),)]
    explain, found = explained(Planted(-0.5), data, centre, kept)
    many = certify(explain, data, found, "uniform", samples=400, exact=exact)
    assert [one.monotone for one in many] == [True, True, False, False]
    if exact:  # {0, 1} and {0, 1, 3} without edge 2 of 15 others; {0, 1, 3} and {0, 1, 2, 3} with edge 3
        assert [one.violations for one in many] == pytest.approx([0, 0, 2 / 15, 2 / 15])


def test_without_violations_the_bound_is_the_pns_of_one_shared_noise() -> None:
    """PNS = E max(0, p_factual - p) where one number decides all worlds: the bound if monotone, else more."""
    data, centre = stars(torch.tensor([[3.0, 2.0, 0.5, 0.2], [3.0, -2.0, 1.0, -1.0]]))
    explain, found = explained(Planted(-1.0), data, centre)
    for one in found[:1]:
        one.hard_edge_mask = torch.ones(4, dtype=torch.bool)
    for one, certificate in zip(found, certify(explain, data, found, "uniform"), strict=True):
        sent, kept = one.x[one.edge_index[0], 0], one.hard_edge_mask.float()
        worlds = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4)))
        p = torch.sigmoid(-1 + worlds @ sent)[(worlds != kept).any(1)]
        factual = torch.sigmoid(-1 + kept @ sent)
        p, factual = (p, factual) if int(one.target[one.index]) else (1 - p, 1 - factual)
        pns = float((factual - p).clamp_min(0).mean())
        if certificate.monotone:
            assert certificate.pns == pytest.approx(pns, abs=1e-6)
        else:
            assert certificate.pns < pns
    assert certify(explain, data, found, "uniform")[0].monotone
    assert not certify(explain, data, found, "uniform")[1].monotone


# --- the ceiling -----------------------------------------------------------------------------------------------------------


def test_the_ceiling_is_the_optimum_of_exhaustive_search() -> None:
    data, model = graph(20, 18, seed=2), seeded(NODE_MODELS["gcn"])
    explain = explainer(model, Exhaustive(most=14))
    few = [n for n in range(20) if 1 <= explained_edges(model, data, n) <= 9]
    assert len(few) >= 5
    best = explain_many(explain, data, few)
    worse = [one.clone() for one in best]
    for one, other in zip(worse, best, strict=True):
        one._model_args = other._model_args
        one.hard_edge_mask = other.reached & ~other.hard_edge_mask  # edges that reach nothing would be elements too
    for law in ("literal", "uniform"):
        for some in (best, worse):
            for one, certificate in zip(best, certify(explain, data, some, law, exact=14), strict=True):
                assert certificate.ceiling_exact
                assert certificate.ceiling == pytest.approx(one.pns, abs=1e-6)
    not_exact = certify(explain, data, worse, exact=0)
    for one, certificate in zip(best, not_exact, strict=True):
        assert not certificate.ceiling_exact
        assert certificate.pns - 1e-6 <= certificate.ceiling <= one.pns + 1e-6
    climbed = [one.ceiling for one in not_exact]
    assert sum(climbed) >= 0.98 * sum(one.pns for one in best)


def explained_edges(model, data: Data, row: int) -> int:
    (one,) = explain_many(explainer(model, quick(steps=0, undirected=True)), data, [row])
    return int(one.reached.sum()) // 2


def test_nothing_is_necessary_where_the_empty_graph_gives_the_class() -> None:
    """p = sigmoid(4 + 1 m_0 - 0.5 m_1): the empty graph gives the class, and the PN is at most 1 - p({1}) / p({0})."""
    data = star(1.0, -0.5)
    explain, found = explained(Planted(4.0), data, [0], [((1, 1),)])
    (one,) = certify(explain, data, found)
    assert one.ceiling_exact
    assert one.ceiling_pn == pytest.approx(1 - sigmoid(3.5) / sigmoid(5), abs=1e-6)
    assert one.ceiling == pytest.approx(sigmoid(5) - sigmoid(3.5), abs=1e-6)
    assert one.ceiling_ps == pytest.approx(1 - (1 - sigmoid(5)) / (1 - sigmoid(3.5)), abs=1e-6)
    assert one.ceiling_pn < 0.03
    assert one.ceiling_ps > 0.7
    data = star(0.0, 0.0)
    explain, found = explained(Planted(4.0), data, [0], [((1, 1),)])
    (one,) = certify(explain, data, found)
    assert (one.ceiling, one.ceiling_pn, one.ceiling_ps) == (0, 0, 0)


# --- words, errors, side effects -------------------------------------------------------------------------------------------


def test_a_certificate_in_words_and_as_plain_data() -> None:
    data = star(8.0, 0.0, 0.0, -1.0)
    explain, found = explained(Planted(-4.0), data, [0], [((1, 0, 0, 0),)])
    (one,) = certify(explain, data, found)
    assert one.words() == (
        "With only 1 of 4 edges, the model gives class 1 with p = 0.982. Without them, p = 0.007. "
        "Hence PNS >= 0.975, PN >= 0.993 and PS >= 0.981. No violation of monotonicity was seen, so the bound is the PNS "
        "itself, as far as one world can show. With the literal complement, the best PNS bound of any explanation is "
        "0.975 (all 16 subsets tried)."
    )
    (sampled,) = certify(explain, data, found, "uniform", samples=500, exact=0)
    assert one.words("mutagen").split(" with p")[0].endswith("gives “mutagen”")
    assert "500 samples of the uniform law" in sampled.words()
    assert "with 95 % confidence" in sampled.words()
    assert "there may be better" in sampled.words()
    found[0].hard_edge_mask = torch.tensor([True, False, False, True])
    (violated,) = certify(explain, data, found, Bernoulli(0.5))
    assert "monotonicity is violated" in violated.words()
    assert "all other subsets under the Bernoulli(q=0.5) law" in violated.words()
    for certificate in (one, sampled, violated):
        plain = certificate.as_plain_data()
        again = json.loads(json.dumps(plain))
        assert again == plain
        assert again["pns_interval"] == list(certificate.pns_interval)
        assert isinstance(certificate, nseg.Certificate)


def test_bad_input_gets_a_sentence() -> None:
    data = star(8.0, 0.0)
    explain, found = explained(Planted(-4.0), data, [0])
    for wrong, sentence in [
        ({"law": "Uniform"}, "law must be 'literal', 'uniform', Bernoulli"),
        ({"law": 0.5}, "law must be"),
        ({"samples": 1}, "samples must be a whole number of at least 2"),
        ({"samples": 10.5}, "samples must be"),
        ({"confidence": 1.0}, "confidence must be greater than 0 and less than 1"),
        ({"confidence": True}, "confidence must be"),
        ({"confidence": float("nan")}, "confidence must be"),
        ({"exact": -1}, "exact must be"),
        ({"exact": 40}, "exact must be"),
        ({"seed": 0.5}, "seed must be"),
    ]:
        with pytest.raises(SettingsError, match=sentence):
            certify(explain, data, found, **wrong)
    for q in (-0.1, 1.1, float("nan"), "half", True):
        with pytest.raises(SettingsError, match="q must be a probability"):
            Bernoulli(q)
    for law in (
        lambda mask, u: u[:, :1],
        lambda mask, u: u * torch.nan,
        lambda mask, u: u / 0,
        lambda mask, u: 3,
    ):
        with pytest.raises(InputError, match="finite weights in the shape"):
            certify(explain, data, found, law)
    with pytest.raises(InputError, match="At least one explanation"):
        certify(explain, data, [])
    soft = explain_many(explainer(Planted(-4.0), GNNExplainer(epochs=2), BINARY), data, [0])
    with pytest.raises(InputError, match="Certificates need hard masks"):
        certify(explain, data, soft)
    soft[0].hard_edge_mask = soft[0].edge_mask > 0.5
    assert len(certify(explain, data, soft)) == 1
    soft[0].hard_edge_mask = torch.ones(5, dtype=torch.bool)
    with pytest.raises(InputError, match="same shape as the soft ones"):
        certify(explain, data, soft)


def test_explanations_with_different_settings_are_certified_as_alone() -> None:
    data, model = graph(), seeded(NODE_MODELS["gin"])
    explain, other = (explainer(model, quick(steps=0, undirected=u)) for u in (True, False))
    found = explain_many(explain, data, [0, 3]) + explain_many(other, data, [1])
    found = [found[0], found[2], found[1]]
    for together, one in zip(certify(explain, data, found, exact=0), found, strict=True):
        (alone,) = certify(explain, data, one, exact=0)
        for (name, value), other in zip(asdict(together).items(), asdict(alone).values(), strict=True):
            rounded = isinstance(value, float) or name.endswith("_interval")  # batches of other sizes round differently
            assert value == (pytest.approx(other, abs=1e-6) if rounded else other), name
    found[0].hard_edge_mask = found[0].edge_index[0] < found[0].edge_index[1]
    with pytest.raises(InputError, match="Both directions of an edge"):
        certify(explain, data, found[:1])


def test_certifying_leaves_model_and_random_state_alone() -> None:
    data, model = graph(), seeded(NODE_MODELS["shared layer, jumping knowledge, batch norm, dropout"]).train()
    explain = explainer(model, quick(steps=0))
    found = explain_many(explain, data, range(4))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    state = torch.get_rng_state()

    def fails(mask: Tensor, u: Tensor) -> Tensor:
        raise ZeroDivisionError

    with torch.inference_mode():
        inside = certify(explain, data, found, "uniform", samples=50)
    assert certify(explain, data, found, "uniform", samples=50) == inside
    with pytest.raises(ZeroDivisionError):
        certify(explain, data, found, fails)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(not m._forward_hooks and not getattr(m, "_message_forward_hooks", {}) for m in model.modules())


def test_a_certificate_that_the_model_does_not_confirm_is_made_again_without_shortcuts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both what the law's worlds are like and the subset that a ceiling comes from are asked again."""
    explain, data = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=3)), graph()
    found = explain_many(explain, data, range(3))
    right = certify(explain, data, found, law="uniform", samples=20, exact=0)
    climb, ask, plainly, one_by_one = Certifier._climb_ceiling, Certifier._evaluate, list[int](), OneGraphSource.plain

    def plain(self: OneGraphSource, number: int) -> CausalModel:
        plainly.append(number)
        return one_by_one(self, number)

    def too_high(self: Certifier) -> tuple[Tensor, Tensor]:
        value, best = climb(self)
        return value + 0.1 * self.causal.strategy.planned, best

    def off(self: Certifier, kept: Tensor) -> tuple[Tensor, Tensor]:
        p, complement = ask(self, kept)
        return p + 0.01 * (len(kept) == 4 and self.causal.strategy.planned), complement

    for name, wrong in (("_climb_ceiling", too_high), ("_evaluate", off)):
        with monkeypatch.context() as patch:
            patch.setattr(Certifier, name, wrong)
            patch.setattr(OneGraphSource, "plain", plain)
            with pytest.warns(NsegWarning, match=r"3 certificates were therefore verified alone .* and 3 made again"):
                again = certify(explain, data, found, law="uniform", samples=20, exact=0)
        for one, other in zip(again, right, strict=True):
            assert one.p_factual == pytest.approx(other.p_factual, abs=1e-5)
            assert one.ceiling == pytest.approx(other.ceiling, abs=0.05)
            assert one.p_complement_interval == pytest.approx(other.p_complement_interval, abs=0.3)
    assert all(plainly.count(number) >= 2 for number in range(3)), "each was in doubt both times"
