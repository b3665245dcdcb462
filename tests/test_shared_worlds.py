"""Instances that share passes of the whole graph are verified as if they had them to themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import NODE_MODELS, explainer, graph, quick, seeded

from nseg import explain_many, metrics
from nseg.explain import verification
from nseg.explain.shared_worlds import SharedMasks
from nseg.explain.verification import LARGE, SAMPLE, choose_sample
from nseg.metrics import evaluator, sources
from nseg.search.parts import EDGES, Masks


def test_masks_share_a_world_exactly_if_they_agree_where_they_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the world of a group, every instance finds its own mask on its own edges; each kept apart has a reason."""
    seen: list[tuple[SharedMasks, Masks, Any]] = []
    make = SharedMasks.of.__func__  # type: ignore[attr-defined]

    def watched(cls: type[SharedMasks], masks: Masks, instances: Any, *rest: Any) -> SharedMasks | None:
        found: SharedMasks | None = make(cls, masks, instances, *rest)
        if found is not None:
            seen.append((found, masks, instances))
        return found

    monkeypatch.setattr(SharedMasks, "of", classmethod(watched))
    explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick()), graph(), range(12))
    assert any(1 < one.number < 12 for one, *_ in seen), "some must share a world and some must not"
    for together, masks, instances in seen:
        worlds = [together.of_group(n, torch.float32)[EDGES] for n in range(together.number)]
        own = together.group[instances.edge_owner]
        placed = torch.stack(worlds)[own, instances.edge_id]
        assert torch.equal(placed, masks[EDGES].float())
        for b in range(len(instances)):
            mine = instances.edge_owner == b
            for earlier in range(int(together.group[b])):  # it fits into no group before its own
                theirs = (together.group == earlier)[instances.edge_owner]
                common = torch.isin(instances.edge_id, instances.edge_id[mine]) & theirs
                values = torch.zeros_like(worlds[0]).index_copy(0, instances.edge_id[mine], masks[EDGES][mine].float())
                assert not torch.equal(values[instances.edge_id[common]], masks[EDGES][common].float())


@pytest.mark.parametrize("wrong", [verification.SOFT, "mask", "remove", verification.EMPTY])
def test_one_wrong_number_of_one_instance_is_found(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own, redone = verification._own_numbers, []

    def off(answer: Any, kind: str) -> Tensor:
        found = own(answer, kind).clone()
        if kind == wrong and len(answer.instances) > 1:  # as the shortcuts of this batch would have it
            found[:, 2] += 0.01
            redone.append(kind)
        return found

    monkeypatch.setattr(verification, "_own_numbers", off)
    with pytest.warns(UserWarning, match="1 explanations were searched again"):
        explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick(steps=3)), graph(), range(6))
    assert redone


def test_the_sample_is_of_the_whole_call_and_in_one_shard_where_passes_are_long() -> None:
    shards = [list(range(n, 1000, 4)) for n in range(4)]
    for size, expected in ((1000, [8, 8, 8, 8]), (LARGE + 1, [SAMPLE, 0, 0, 0])):
        chosen = [choose_sample(n, rows, 1000, size) for n, rows in enumerate(shards)]
        assert [len(one) for one in chosen] == expected
        assert all(one <= set(rows) for one, rows in zip(chosen, shards, strict=True))
    assert choose_sample(0, [3, 5], 2, LARGE + 1) == {3, 5}


def test_metrics_ask_plainly_about_every_explanation_that_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    explain, data, asked = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2)), graph(), set[int]()
    found = explain_many(explain, data, range(8))
    plain = sources.OneGraphSource.plain

    def watched(self: Any, number: int) -> Any:
        asked.add(number)
        return plain(self, number)

    monkeypatch.setattr(sources.OneGraphSource, "plain", watched)
    monkeypatch.setattr(evaluator, "SAMPLE", 2)
    metrics.Evaluator(explain, data, found)
    assert len(asked) == 2, "nothing is in doubt: only the sample"
    monkeypatch.setattr(sources.OneGraphSource, "reference", lambda *_: None)
    metrics.Evaluator(explain, data, found)
    assert asked == set(range(8))
