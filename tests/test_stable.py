"""Explanations that hold and stay: no certificate above the search, no seed in the answer, one tolerance; alternatives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_causal_model import causal_model
from zoo import GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, seeded

from nseg import NSEG, certify, explain_many, runs
from nseg.metrics import Evaluator
from nseg.runs.exports import explanation_record
from nseg.search.parts import MaskParts
from nseg.search.subsets import canonical_choice

TOLERANCE = NSEG().settings.tolerance


def case(kind: str, **settings: Any) -> tuple[Any, Any, Any]:
    """An explainer that does not enumerate, its data, and what is explained."""
    if kind == "graph":
        graphs = [graph(nodes=10, edges=11, seed=s) for s in range(5)]
        return explainer(seeded(Molecule), NSEG(exact=0, **settings), GRAPH_CONFIG), graphs, range(5)
    return explainer(seeded(NODE_MODELS[kind], 2), NSEG(exact=0, **settings)), graph(edges=40, seed=3), [0, 3, 5, 7, 9]


@pytest.mark.parametrize("tolerance", [0.0, TOLERANCE])
@pytest.mark.parametrize("kind", ["gcn", "gat", "graph"])
def test_the_search_never_ends_below_what_the_certificate_finds(kind: str, tolerance: float) -> None:
    explain, data, index = case(kind, tolerance=tolerance)
    found = explain_many(explain, data, index)
    for one, certificate in zip(found, certify(explain, data, found, exact=0), strict=True):
        assert not certificate.ceiling_exact
        assert one.pns >= certificate.ceiling - tolerance - 5e-3  # moves that gain less than this are not made


@pytest.mark.parametrize("kind", ["gcn", "graph"])
def test_valid_and_smaller_explanations_together_cost_one_tolerance(kind: str) -> None:
    explain, data, index = case(kind)
    best = explain_many(case(kind, tolerance=0.0)[0], data, index)
    for one, other in zip(explain_many(explain, data, index), best, strict=True):
        assert other.pns + 1e-5 >= one.pns >= other.pns - TOLERANCE - 1e-4
        assert one.hard_edge_mask.sum() <= other.hard_edge_mask.sum() or one.changes > other.changes


def test_the_default_does_not_depend_on_the_seed_and_noise_does() -> None:
    def masks(**settings: Any) -> list[torch.Tensor]:
        explain, data, index = case("gcn", **settings)
        return [torch.cat([one.edge_mask, one.hard_edge_mask.float()]) for one in explain_many(explain, data, index)]

    assert all(map(torch.equal, masks(seed=0), masks(seed=1)))
    noisy = masks(noise=0.2, seed=0)
    assert all(map(torch.equal, noisy, masks(noise=0.2, seed=0)))
    assert not all(map(torch.equal, noisy, masks(noise=0.2, seed=1)))


def test_the_choice_among_equals_does_not_depend_on_their_order() -> None:
    with causal_model(seeded(NODE_MODELS["gcn"]), graph(), [0]) as causal:
        parts = MaskParts.of(causal.instances, edges=True)
    kept = torch.zeros(4, parts.owner.numel(), dtype=torch.bool)
    for row, elements in enumerate(([4, 5], [0, 7], [0, 6], [1, 2, 3])):
        kept[row, elements] = True
    merit, good = torch.tensor([[0.5], [0.6], [0.6], [0.9]]), torch.ones(4, 1, dtype=torch.bool)
    for order in torch.randperm(4, generator=torch.Generator().manual_seed(0)), torch.arange(4):
        which = canonical_choice(kept[order], merit[order], good, parts)
        assert kept[order][which[0]].nonzero().flatten().tolist() == [0, 6]  # smallest, then best, then earliest


@pytest.mark.parametrize("kind", ["gcn", "graph"])
def test_alternatives_are_different_explanations_within_tolerance_of_the_best(kind: str, tmp_path: Path) -> None:
    explain, data, index = case(kind, alternatives=3)
    found = explain_many(explain, data, index)
    assert sum(len(one.alternatives()) for one in found) >= 3
    best = explain_many(case(kind, tolerance=0.0)[0], data, index)
    runs.write(tmp_path, found, {})
    for number, (one, top) in enumerate(zip(found, best, strict=True)):
        others = one.alternatives()
        seen = {tuple(mask.tolist()) for mask in (one.hard_edge_mask, *(point.edge_mask for point in others))}
        assert len(seen) == 1 + len(others) <= 4
        for point in others:
            assert point.pns >= top.pns - TOLERANCE - 1e-4
            changed = one.clone()
            changed.hard_edge_mask = point.edge_mask
            each = Evaluator(explain, data, [changed]).each("hard", "remove")
            assert float(each.pns[0]) == pytest.approx(point.pns, abs=1e-4)
        stored = runs.attach(runs.read(tmp_path)[number], data)
        assert [p.pns for p in stored.alternatives()] == [p.pns for p in others]
        assert all(map(torch.equal, (p.edge_mask for p in stored.alternatives()), (p.edge_mask for p in others)))
        assert f"{len(others) or 'No'} other explanation" in one.words()
        assert len([text for text in explanation_record(one)["alternatives"].split(" | ") if text]) == len(others)
    (alone,) = explain_many(explain, data, [index[1]])
    assert torch.equal(alone.edge_alternatives, found[1].edge_alternatives)


def test_an_empty_explanation_shows_nothing() -> None:
    explain, data, index = case("gcn", extract="topk", k=0)
    found = explain_many(explain, data, index)
    for one, certificate in zip(found, certify(explain, data, found), strict=True):
        assert not one.hard_edge_mask.any()
        assert one.pns == one.pn == one.ps == one.pns_masked == one.pns_removed == 0
        assert certificate.pns == certificate.pn == certificate.ps == 0
        assert "at least 1" not in certificate.words()
