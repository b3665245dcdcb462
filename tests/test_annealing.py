"""Annealing: a front that a plain loop finds too, never below the start, batch = alone, no seed, tolerances in order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_causal_model import causal_model
from torch_geometric.explain.config import MaskType
from zoo import GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, seeded

from nseg import NSEG, Settings, baselines, explain_many
from nseg.search.annealing import anneal
from nseg.search.deadline import time_limit
from nseg.search.formulas import size
from nseg.search.front import Front
from nseg.search.noise import uniform
from nseg.search.parts import MaskParts
from nseg.search.subsets import SubsetScorer

STEPS = 12
ROWS = [5, 0, 7, 9]


def random_subsets(parts: MaskParts, number: int) -> torch.Tensor:
    return uniform(torch.arange(parts.owner.numel()), number, (3,), torch.double).t() < 0.4


def explained(indices: list[int], seed: int = 0, **settings: Any) -> list[Any]:
    """Explanations of some molecules-like graphs by a search without enumeration that anneals."""
    graphs = [graph(nodes=10, edges=14, seed=s) for s in range(4)]
    algorithm = NSEG(exact=0, steps=4, **{"anneal": STEPS, "kicks": 2, "seed": seed, **settings})
    return explain_many(explainer(seeded(Molecule, 3), algorithm, GRAPH_CONFIG), [graphs[i] for i in indices])


# --- the front -----------------------------------------------------------------------------------------------------------


def test_the_front_has_the_first_best_subset_of_each_size() -> None:
    with causal_model(seeded(NODE_MODELS["gcn"]), graph(), ROWS) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
    front, kept = Front(parts, torch.double), random_subsets(parts, 60)
    merit = (uniform(torch.arange(len(ROWS)), 60, (4,), torch.double).t() * 8).round() / 8  # with many equals
    count = size(kept.double(), parts.owner, len(ROWS)).long()
    for some in range(0, 60, 20):
        front.add(kept[some : some + 20], merit[some : some + 20], count[some : some + 20])
    for b in range(len(ROWS)):
        mine, highest = parts.owner == b, -torch.inf
        for number in range(int(parts.count[b]) + 1):
            rows = [p for p in range(60) if count[p, b] == number]
            if not rows:
                assert front.merit[number, b] == -torch.inf
                assert not front.leading[number, b]
                continue
            best = max(rows, key=lambda p: float(merit[p, b]))  # of equals the first
            assert front.merit[number, b] == merit[best, b]
            assert torch.equal(front.kept[number, mine], kept[best, mine])
            assert bool(front.leading[number, b]) == (merit[best, b] > highest)
            highest = max(highest, float(merit[best, b]))


# --- annealing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [None, MaskType.object], ids=["e", "ef"])
@pytest.mark.parametrize("intervention", ["mask", "remove"])
def test_annealing_tells_the_truth_and_never_ends_below_its_start(nodes: MaskType | None, intervention: str) -> None:
    settings = Settings(anneal=STEPS, intervention=intervention)
    with causal_model(seeded(NODE_MODELS["gin"]), graph(), ROWS) as causal:
        parts = MaskParts.of(causal.instances, True, nodes)
        known = random_subsets(parts, 3)
        found, scorer = anneal(causal, parts, settings, known), SubsetScorer(causal, parts, settings)
        start, _ = scorer.measure(3, lambda p: known[p])
        merit, valid = scorer.measure(len(found.kept), lambda p: found.kept[p])
    assert bool((found.merit.amax(0) >= start.amax(0)).all())
    met = found.merit > -torch.inf
    assert torch.allclose(found.merit[met], merit[met], atol=2e-5)
    assert not bool((found.valid & ~valid & met).any()), "what is called valid is"
    best = torch.where(met, found.merit, -torch.inf).amax(0)
    assert bool((best > start.amax(0) + 1e-3).any()), "and it finds better ones"


def test_the_search_that_anneals_is_never_below_the_one_that_does_not_and_is_bounded_by_all_subsets() -> None:
    everything = baselines.make("exhaustive", most=14, intervention="remove", undirected=True)
    graphs = [graph(nodes=10, edges=14, seed=s) for s in range(4)]
    best = explain_many(explainer(seeded(Molecule, 3), everything, GRAPH_CONFIG), graphs)
    without, found = explained([0, 1, 2, 3], anneal=0, tolerance=0.0), explained([0, 1, 2, 3], tolerance=0.0)
    for top, one, plain in zip(best, found, without, strict=True):
        assert top.pns + 1e-5 >= one.pns >= plain.pns - 1e-5


def test_alone_or_in_a_batch_and_for_every_seed_the_masks_are_the_same() -> None:
    together, other_seed = explained([0, 1, 2, 3]), explained([3, 2, 1, 0], seed=5)
    for i, one in enumerate(together):
        for other in (*explained([i]), other_seed[3 - i]):
            assert torch.equal(one.hard_edge_mask, other.hard_edge_mask)


def test_a_smaller_tolerance_is_never_worse_where_annealing_is_on() -> None:
    found = [explained([0, 1, 2, 3], tolerance=tolerance) for tolerance in (0.0, 0.02, 0.05)]
    for best, some, usual in zip(*found, strict=True):
        assert best.pns >= max(some.pns, usual.pns) - 1e-4


def test_connected_explanations_stay_connected_and_whole_bonds_whole() -> None:
    for one in explained([0, 1], connected=True, undirected=True):
        edges = one.edge_index[:, one.hard_edge_mask]
        assert {(a, b) for a, b in edges.t().tolist()} == {(b, a) for a, b in edges.t().tolist()}
        reached, rest = {int(edges[0, 0])}, edges.t().tolist()
        for _ in rest:
            reached |= {b for a, b in rest if a in reached}
        assert reached == set(edges.flatten().tolist())


def test_annealing_ends_when_its_time_is_over() -> None:
    with causal_model(seeded(NODE_MODELS["gcn"]), graph(), ROWS) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
        known = random_subsets(parts, 2)
        with time_limit(0.0) as limit:
            found = anneal(causal, parts, Settings(anneal=10**9), known)
    assert limit.stopped == "annealing"
    assert bool((found.merit.amax(0) > -torch.inf).all()), "what it started from is known"
