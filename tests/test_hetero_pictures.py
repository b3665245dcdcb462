"""Pictures and reports of heterogeneous graphs: types as shapes and colours, relations and paths by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hetero_zoo import hetero_graph, make_net
from test_hetero import GRAPH, Pooled, explainer_of

import nseg
from nseg import explain_many, plot
from nseg.metrics import Evaluator

pytestmark = pytest.mark.filterwarnings("ignore:Shortcuts are not exact")


def payload_of(path: Path) -> dict[str, Any]:
    (text,) = re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_types_are_groups_and_shapes_and_edges_say_their_relation() -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("to_hetero"))
    (one,) = explain_many(explainer, data, [3], class_names=["x", "y", "z"], node_names={"author": {1: "Bob"}})
    shown = plot.scene(one, data)
    assert shown.groups == ("paper", "author")
    assert shown.grouping == "type"
    assert {(node.group, node.shape) for node in shown.nodes} == {(0, 0), (1, 1)}
    assert {node.label for node in shown.nodes} >= {"paper 3", "Bob"}
    assert [node.label for node in shown.nodes if node.target] == ["paper 3"]
    assert {edge.relation for edge in shown.edges} <= {"cites", "wrote"}
    assert shown.title == "paper 3: z"
    assert list(shown.paths) == one.paths()
    svg = plot.draw.figure_svg(plot.explanation(one, data))
    assert [text for text in (">paper<", ">author<", "wrote", "paper 3 - wrote - Bob") if text not in svg] == []
    assert "Bob" in str(one._repr_html_())
    plot.worlds(explainer, data, one, data)
    with pytest.raises(nseg.NsegError, match="must be what was explained"):
        plot.scene(one, hetero_graph(papers=5))


@pytest.mark.parametrize("nodes", [None, "attributes", "common_attributes"])
def test_a_page_shows_types_relations_and_paths(tmp_path: Path, nodes: str | None) -> None:
    data, explainer = hetero_graph(), explainer_of(make_net("to_hetero"), nodes)
    names = {"feature_names": {"paper": list("abcdef")}, "node_names": {"author": {1: "Bob"}}}
    run = explain_many(explainer, data, [1, 3], out=tmp_path / "run", **names)
    found = payload_of(nseg.report(list(run), tmp_path / "page.html", data=data, explainer=explainer))
    assert (found["grouping"], found["groups"]) == ("type", ["paper", "author"])
    first, other = found["instances"]
    assert (first["id"], other["id"], other["name"]) == (1, 3, "paper 3")
    assert {found["names"][n] for n in other["graph"]["edge"]} <= {"cites", "wrote"}
    each = Evaluator(explainer, data, explain_many(explainer, data, [1, 3])).each("hard")
    for n, one in enumerate(found["instances"]):
        (answer,) = one["answers"]
        assert answer["p_factual"] == pytest.approx(float(each.p_factual[n]), abs=1e-4)
        if nodes == "attributes":
            widths = {0: 6, 1: 4}  # papers and authors
            assert answer["cells"]["width"] == [widths[group] for group in one["graph"]["group"]]
            assert answer["of"][2] == sum(answer["cells"]["width"])
            assert {"a", "feature 0"} <= set(answer["cells"]["name"])
        if nodes == "common_attributes":
            assert answer["of"][2] == 10
            assert found["feature_names"][::6] == ["paper: a", "author: feature 0"]


def test_graphs_are_drawn_and_reported_too(tmp_path: Path) -> None:
    graphs = [hetero_graph(seed, 5 + seed, 6) for seed in range(2)]
    explainer = explainer_of(Pooled().eval(), model_config=GRAPH)
    many = explain_many(explainer, graphs)
    assert plot.scene(many[1], graphs).title.startswith("graph 1")
    found = payload_of(nseg.report(many, tmp_path / "page.html", data=graphs, explainer=explainer))
    assert [len(one["graph"]["node"]) for one in found["instances"]] == [11, 12]
