"""The studio on heterogeneous graphs: answers equal direct calls of the model; edges have kinds, nodes have shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hetero_zoo import BY, CITES, NODE, WROTE, hetero_graph, make_net
from test_studio import LARGE, browser_needed, opened, wait_for
from torch import Tensor, nn
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv
from zoo import explainer, quick

from nseg import InputError
from nseg.graphs.large import LargeGraph
from nseg.live.edits import GraphEdits
from nseg.live.explanation_view import explanation_view, kept_pairs
from nseg.live.launch import make_studio
from nseg.live.session import replay
from nseg.live.subject import StudioSubject, drawn_nodes

pytest.importorskip("nseg.live.server", reason="the extra 'studio' is not installed", exc_type=ImportError)

PAPERS = 7  # authors are numbered after them


def case(net: str = "to_hetero", **masks: Any) -> tuple[Any, HeteroData]:
    data = hetero_graph()
    data["paper"].y = torch.arange(7) % 3
    return explainer(make_net(net), quick(steps=20), NODE, **(masks or {"edge_mask_type": "object"})), data


def without(data: HeteroData, kind: Any, pair: tuple[int, int]) -> None:
    """Remove the edge of two nodes and its reverse."""
    for key, ends in ((kind, pair), (BY if kind == WROTE else kind, pair[::-1])):
        edges = data[key].edge_index
        data[key].edge_index = edges[:, ~((edges[0] == ends[0]) & (edges[1] == ends[1]))]


@pytest.mark.parametrize("net", ["to_hetero", "hgt", "han"])
def test_every_answer_is_that_of_the_model_on_the_changed_graph(net: str, monkeypatch) -> None:
    monkeypatch.setattr("nseg.live.subject.MOST_TYPED_EDGES", 0)
    explain, data = case(net)
    subject = StudioSubject.of(explain, data)
    assert (subject.large is None) == (net == "han")  # it looks at all nodes, so no part is cut out
    asked = subject.questions(3)
    author, paper = data[WROTE].edge_index.T.tolist()[0]
    cited = data[CITES].edge_index.T.tolist()[0]
    changed = data.clone()
    without(changed, WROTE, (author, paper))
    without(changed, CITES, tuple(cited))
    changed["paper"].x[3] = 0
    changed["author"].x[1, 2] = 5.0
    new = next((a, 3) for a in range(9) if [a, 3] not in data[WROTE].edge_index.T.tolist())
    changed[WROTE].edge_index = torch.cat([changed[WROTE].edge_index, torch.tensor([[new[0]], [new[1]]])], 1)
    changed[BY].edge_index = torch.cat([changed[BY].edge_index, torch.tensor([[new[1]], [new[0]]])], 1)
    kinds = {one["name"]: one["kind"] for one in subject.view(3)["kinds"]}
    edits = GraphEdits.from_plain(
        {
            "removed": [[paper, PAPERS + author, kinds["wrote"]], [*cited, kinds["cites"]]],
            "added": [[3, PAPERS + new[0], kinds["wrote"]]],
            "hidden": [3],
            "values": [[PAPERS + 1, 2, 5.0]],
        }
    )
    with torch.no_grad():
        expected = explain.model(changed.x_dict, changed.edge_index_dict)[3].softmax(-1)
    assert asked.predict(edits).probabilities == pytest.approx(expected.tolist(), abs=1e-5)
    assert GraphEdits.from_plain(json.loads(json.dumps(edits.to_plain()))) == edits
    kept = kept_pairs(asked.explain(edits))
    assert not set(kept) & edits.removed
    steps = [{"edits": edits.to_plain(), "explanation": {"kept": [list(one) for one in kept]}}]
    again = replay(subject, {"nseg": "studio", "output": 3, "step": 0, "steps": steps})
    assert again["steps"][0]["probabilities"] == pytest.approx(expected.tolist(), abs=1e-5)
    assert again["differs"] == []


def test_a_view_has_types_kinds_and_classes_and_draws_what_can_reach_the_output() -> None:
    explain, data = case()
    view = StudioSubject.of(explain, data, node_names={"paper": [f"P{n}" for n in range(7)]}).view(3)
    assert (view["types"], view["widths"], view["target"], view["subject"]) == (["paper", "author"], [6, 4], 3, "P3")
    assert {(one["name"], *one["ends"]) for one in view["kinds"]} == {("cites", 0, 0), ("wrote", 1, 0)}
    assert [kind for (number, *_), kind in zip(view["nodes"], view["node_types"], strict=True) if number >= PAPERS] == [
        1 for number, *_ in view["nodes"] if number >= PAPERS
    ]
    assert all(label == f"author {n - PAPERS}" for n, _, _, label, _ in view["nodes"] if n >= PAPERS)
    assert (view["true_class"], view["outputs"], view["complete"]) == (0, 7, True)
    with pytest.raises(InputError, match="output must be between 0 and 6"):
        StudioSubject.of(explain, data).questions(7)


def test_the_smallest_change_names_types_and_what_was_changed_can_be_put_back() -> None:
    explain, data = case("hgt")
    subject = StudioSubject.of(explain, data)
    found = 0
    for output in (0, 1, 4):
        asked = subject.questions(output)
        before = asked.predict(GraphEdits()).predicted
        new = subject.new_edges(output, GraphEdits())
        edits, words = asked.smallest_change(GraphEdits(), features=True, new=new)
        assert set(new).isdisjoint(map(tuple, subject.view(output)["edges"]))
        if edits is None:
            continue
        found += 1
        after = asked.predict(edits).predicted
        assert after != before
        assert "paper" in words or "author" in words
        back, words = asked.smallest_change(edits, target=before)
        assert back is not None
        assert asked.predict(back).predicted == before
    assert found > 0


def test_features_that_were_changed_are_put_back() -> None:
    """Class 1 is said while the explained node's only feature is 1: nothing but putting it back makes it class 1 again."""

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = HeteroConv({("a", "to", "a"): SAGEConv(1, 1)})

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
            own: Tensor = x_dict["a"] + 0 * self.conv(x_dict, edge_index_dict)["a"]
            return torch.cat([torch.full_like(own, 0.5), own], 1)

    data = HeteroData()
    data["a"].x = torch.ones(2, 1)
    data["a", "to", "a"].edge_index = torch.tensor([[0, 1], [1, 0]])
    asked = StudioSubject.of(explainer(First(), quick(steps=2), NODE, edge_mask_type="object"), data).questions(0)
    hidden = GraphEdits(hidden=frozenset({0}))
    assert asked.predict(hidden).predicted == 0
    back, words = asked.smallest_change(hidden, target=1)
    assert (back, words.split(" and ")[0]) == (GraphEdits(), "Set feature 0 to 1 (from 0)")


def test_kept_features_have_the_numbers_of_all_nodes() -> None:
    explain, data = case(edge_mask_type=None, node_mask_type="attributes")
    found = StudioSubject.of(explain, data).questions(3).explain(GraphEdits())
    view = explanation_view(found)
    assert view["kept"] == []
    assert view["kept_features"] is not None
    for node, feature in view["kept_features"]:
        assert feature < (6 if node < PAPERS else 4)
    assert "paper 3" in view["words"]


def test_a_large_graph_with_types_is_asked_in_parts() -> None:
    explain, data = case()
    large = StudioSubject.of(explain, LargeGraph(data))
    whole = StudioSubject.of(explain, data)
    assert large.number == 7
    for output in (0, 3):
        one, other = (some.questions(output) for some in (large, whole))
        assert one.predict(GraphEdits()).probabilities == pytest.approx(other.predict(GraphEdits()).probabilities, abs=1e-5)
        assert drawn_nodes(one) == drawn_nodes(other)


@browser_needed
def test_a_person_switches_typed_edges_nodes_and_features() -> None:
    explain, data = case()
    del data["author"].x
    data["author"].num_nodes = 9
    torch.manual_seed(0)

    class Net(nn.Module):
        """Authors have no features of their own."""

        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = make_net("to_hetero").layers[0], nn.Linear(8, 3)
            self.people = nn.Parameter(torch.rand(9, 4))

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[Any, Tensor]) -> Tensor:
            scores: Tensor = 3 * self.head(self.conv({**x_dict, "author": self.people}, edge_index_dict)["paper"])
            return scores

    explain = explainer(Net(), quick(steps=20), NODE, edge_mask_type="object")
    studio = make_studio(explain, data).start()
    wait_for(studio)
    with opened(f"{studio.address}#output=3", LARGE) as (page,):
        view = StudioSubject.of(explain, data).view(3)
        wrote = next(one["kind"] for one in view["kinds"] if one["name"] == "wrote")
        paper, author = next((a, b) for a, b, *kind in view["edges"] if (kind or [0])[0] == wrote)
        drawn = len(view["nodes"])
        assert page.locator("svg.studio-graph:not(.type-swatch) .node").count() == drawn
        assert page.locator("svg.studio-graph:not(.type-swatch) circle.node").count() == view["node_types"].count(0)
        edge = page.get_by_role("checkbox", name=f"edge author {author - PAPERS} - wrote - paper {paper}", exact=True)
        edge.focus()
        page.keyboard.press("Enter")
        page.locator("#message").wait_for(state="attached")
        expected = StudioSubject.of(explain, data).questions(3)
        kind = [wrote] if wrote else []
        shown = expected.predict(GraphEdits(removed=frozenset({(paper, author, *kind)}))).probabilities
        now = "Number(document.querySelector('#probabilities td').textContent)"
        page.wait_for_function(f"() => Math.abs({now} - {shown[0]}) < 6e-4")
        page.get_by_role("button", name="Undo").click()
        page.get_by_role("checkbox", name=f"author {author - PAPERS}", exact=True).focus()
        page.keyboard.press("Enter")  # it has no features: all its edges go
        page.wait_for_function("() => document.querySelectorAll('.edge.off').length > 0")
        own = [one for one in view["edges"] if author in one[:2]]
        assert page.locator(".edge.off").count() == len(own)
        page.get_by_role("button", name="Explain this").click()
        page.get_by_text("The explanation keeps").wait_for()
        page.get_by_role("button", name="Smallest change").click()
        page.locator("#message", has_text="the model say").wait_for()
        with page.expect_download() as stored:
            page.get_by_role("button", name="Save as JSON").click()
        page.locator("#file").set_input_files(stored.value.path())
        page.get_by_text("The model answers as it did when the session was saved").wait_for()
    studio.stop()
