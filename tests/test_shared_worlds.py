"""Instances that share passes of the whole graph are verified as if they had them to themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GraphConv
from torch_geometric.utils import degree, scatter
from zoo import CLASSES, FEATURES, NODE_MODELS, explainer, graph, quick, seeded

from nseg import explain_many, metrics
from nseg.explain import reported, verification
from nseg.explain.reported import ALTERNATIVE, EMPTY, PATH, SOFT
from nseg.explain.shared_worlds import SharedMasks
from nseg.explain.verification import LARGE, SAMPLE, choose_sample
from nseg.metrics import sources, trust
from nseg.search.parts import EDGES, Masks


def test_masks_share_a_world_exactly_if_they_agree_where_they_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the world of a group, every instance finds its own mask on its own edges; each kept apart has a reason."""
    seen: list[tuple[SharedMasks, Masks, Any]] = []
    make = SharedMasks.of.__func__  # type: ignore[attr-defined]

    def watched(cls: type[SharedMasks], masks: Masks, instances: Any, whole: Any, tied: bool, most: int, which: Any) -> Any:
        found: SharedMasks = make(cls, masks, instances, whole, tied, most, which)
        if most:
            seen.append((found, masks, instances))
        return found

    monkeypatch.setattr(SharedMasks, "of", classmethod(watched))
    monkeypatch.setattr(verification, "FEWEST_GROUPS", 1)
    explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick()), graph(), range(12))
    assert any(1 < one.number < 12 for one, *_ in seen), "some must share a world and some must not"
    for together, masks, instances in seen:
        worlds = together.of_groups(0, together.number, torch.float32)[EDGES]
        own = together.group[instances.edge_owner]
        placed = worlds[own, instances.edge_id]
        assert torch.equal(placed[own >= 0], masks[EDGES][own >= 0].float())
        for b in range(len(instances)):
            mine, group = instances.edge_owner == b, int(together.group[b])
            for earlier in range(together.number if group < 0 else group):  # it fits into no group before its own
                theirs = (together.group == earlier)[instances.edge_owner]
                common = torch.isin(instances.edge_id, instances.edge_id[mine]) & theirs
                values = torch.zeros_like(worlds[0]).index_copy(0, instances.edge_id[mine], masks[EDGES][mine].float())
                assert not torch.equal(values[instances.edge_id[common]], masks[EDGES][common].float())


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("wrong", [SOFT, "mask", "remove", EMPTY, PATH, f"{ALTERNATIVE} 1"])
def test_one_wrong_number_of_one_instance_is_found(wrong: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    own, redone = reported.own_numbers, []

    def off(answer: Any, kind: str) -> Tensor:
        found = own(answer, kind).clone()
        if kind == wrong and len(answer.instances) > 1:  # as the shortcuts of this batch would have it
            found[:, 2] += 0.01
            redone.append(kind)
        return found

    monkeypatch.setattr(reported, "own_numbers", off)
    monkeypatch.setattr(verification, "FEWEST_GROUPS", 1 if shared else 100)
    with pytest.warns(UserWarning, match="1 explanations were searched again"):
        explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick(steps=3, alternatives=2)), graph(), range(6))
    assert redone


def test_the_sample_is_of_the_whole_call_and_mostly_in_one_shard_where_passes_are_long() -> None:
    shards = [list(range(n, 1000, 5)) for n in range(5)]
    for size, expected in ((1000, [7, 7, 7, 7, 7]), (LARGE + 1, [SAMPLE, 0, 0, 0, 1])):
        chosen = [choose_sample(n, rows, 1000, size) for n, rows in enumerate(shards)]
        assert [len(one) for one in chosen] == expected
        assert all(one <= set(rows) for one, rows in zip(chosen, shards, strict=True))
    assert choose_sample(0, [3, 5], 2, LARGE + 1) == {3, 5}


@pytest.mark.parametrize("large", [False, True])
def test_the_sample_is_verified_alone_on_the_whole_graph(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small graph, every output of the sample gets passes of its own; of a large one, one does, and others share."""
    data, sizes, sharing = graph(), list[tuple[int, int]](), list[SharedMasks]()
    model, run = seeded(NODE_MODELS["gcn"]), verification._Verification._hold_shared
    hold = verification._Verification.sample_holds

    def watched(self: Any, kind: str, together: SharedMasks, whole: Any) -> Tensor:
        sharing.append(together)
        handle = model.register_forward_pre_hook(lambda _, args: sizes.append((len(together.which), len(args[0]))))
        found = run(self, kind, together, whole)
        handle.remove()
        return found

    def only_the_sample(self: Any, sampled: Tensor) -> Tensor:
        monkeypatch.setattr(verification._Verification, "_hold_shared", watched)
        return hold(self, sampled)

    monkeypatch.setattr(verification._Verification, "sample_holds", only_the_sample)
    monkeypatch.setattr(verification, "SAMPLE", 3)
    monkeypatch.setattr(verification, "LARGE", 10 if large else LARGE)
    explain_many(explainer(model, quick(steps=3)), data, range(12))
    assert {nodes for _, nodes in sizes} == {data.num_nodes}, "the whole graph, one world per pass"
    size = 2 if large else 3
    (several,) = (one for one in sharing if len(one.which) == size)
    assert (several.number == size) is not large, "alone, if the graph is not large"
    assert sum(number == size for number, _ in sizes) == 2 * several.number
    assert any(one.number == len(one.which) == 1 for one in sharing), "one is alone in any case, of a small graph in full"


def test_all_sizes_of_all_paths_are_verified_once_an_answer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that was not drawn is wrong for one instance; another number is for another instance, and gives it away."""
    own, path, redone = reported.own_numbers, None, set[int]()

    def off(answer: Any, kind: str) -> Tensor:
        nonlocal path
        found = own(answer, kind).clone()
        if len(answer.instances) == 12:  # as the shortcuts of this batch would have it
            drawn = int(reported.size_number(answer, PATH)[2])
            path = f"{PATH} {(drawn + 1) % 5}"
            found[:, 2] += 0.01 * (kind == path)
            found[:, 7] += 0.01 * (kind == "remove")
        elif len(answer.instances) == 2:
            redone.update(answer.instances.node_id[answer.instances.hops == 0].tolist())
        return found

    monkeypatch.setattr(reported, "own_numbers", off)
    with pytest.warns(UserWarning, match="2 explanations were searched again"):
        explain_many(explainer(seeded(NODE_MODELS["gcn"]), quick(steps=3)), graph(), range(12))
    assert redone == {2, 7}


def test_metrics_ask_plainly_about_every_explanation_that_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    explain, data, asked = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=2)), graph(), set[int]()
    found = explain_many(explain, data, range(8))
    plain = sources.OneGraphSource.plain

    def watched(self: Any, number: int) -> Any:
        asked.add(number)
        return plain(self, number)

    monkeypatch.setattr(sources.OneGraphSource, "plain", watched)
    monkeypatch.setattr(trust, "SAMPLE", 2)
    metrics.Evaluator(explain, data, found)
    assert len(asked) == 2, "nothing is in doubt: only the sample"
    monkeypatch.setattr(sources.OneGraphSource, "reference", lambda *_: None)
    metrics.Evaluator(explain, data, found)
    assert asked == set(range(8))


class SendersShare(nn.Module):
    """Messages weigh what their sender receives, of which every node has one to share: less if it serves several worlds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphConv(FEATURES, 8), GraphConv(8, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, end = edge_index
        share = 1 / degree(source, len(x)).clamp(min=1)
        weight = (0.5 + scatter(share[source], end, dim_size=len(x)))[source]
        found: Tensor = self.second(self.first(x, edge_index, weight).relu(), edge_index, weight)
        return found


def test_outermost_nodes_are_not_shared_if_the_model_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a tree every node sends to its parent alone, so that subgraphs are exact unless worlds share nodes."""
    parent = torch.stack([torch.arange(1, 40), (torch.arange(1, 40) - 1) // 2])
    data = Data(x=torch.randn(40, FEATURES, generator=torch.Generator().manual_seed(0)), edge_index=parent)
    alone, hold = list[int](), verification._Verification.holds_alone

    def watched(self: Any, b: int, kinds: Any) -> bool:
        alone.append(b)
        return hold(self, b, kinds)

    monkeypatch.setattr(verification._Verification, "holds_alone", watched)
    explain_many(explainer(seeded(SendersShare), quick(steps=3, intervention="remove")), data, range(8))
    assert alone == [], "nothing is in doubt"
