"""One count and one rounding: the same facts read the same in the terminal, in pictures, on the page and in certificates."""

from __future__ import annotations

import html
import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_report import masked_output, payload
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation, GNNExplainer
from zoo import GRAPH_CONFIG, NODE_MODELS, Molecule, explainer, graph, quick, seeded

import nseg
from nseg import certify, datasets, explain_many, plot, runs
from nseg.cli.demo import predictions_table
from nseg.cli.results import scores_table
from nseg.plot.notebook import html as notebook_html
from nseg.plot.pictures import summary
from nseg.reports.page import HERE
from nseg.wording import (
    VERDICTS,
    PartSize,
    bound_text,
    kept_parts,
    probability_text,
    sentence,
    share_words,
    size_words,
    upper_bound_text,
)
from nseg.wording.sentences import MANY

MASKS = {
    "edges": {"edge_mask_type": "object"},
    "nodes": {"node_mask_type": "object"},
    "features of nodes": {"node_mask_type": "attributes"},
    "features": {"node_mask_type": "common_attributes"},
    "edges and nodes": {"edge_mask_type": "object", "node_mask_type": "object"},
    "edges and features of nodes": {"edge_mask_type": "object", "node_mask_type": "attributes"},
    "edges and features": {"edge_mask_type": "object", "node_mask_type": "common_attributes"},
}
BOUNDS = ("pns", "pn", "ps")
WORDING = json.loads((HERE / "web" / "test" / "wording.json").read_text())


CASES = [(masks, undirected) for masks in MASKS for undirected in ((False, True) if "edges" in masks else (False,))]


@cache
def explained(masks: str, undirected: bool = False) -> tuple[Explainer, Data, list[Explanation]]:
    explain = explainer(seeded(NODE_MODELS["gin"]), quick(steps=6, undirected=undirected), **MASKS[masks])
    data = graph()
    return explain, data, explain_many(explain, data, [3, 5, 11])


@cache
def certificates(masks: str, undirected: bool) -> list[nseg.Certificate]:
    return certify(*explained(masks, undirected))


def expected_size(one: Explanation, undirected: bool) -> list[tuple[int, int]]:
    """Kept and countable elements of each part, counted by hand from the masks."""
    found = []
    if one.get("hard_edge_mask") is not None:
        ends = [tuple(pair) for pair in one.edge_index.T.tolist()]
        ways = [tuple(sorted(pair)) if undirected else pair for pair in ends]
        reach = {way for way, on in zip(ways, one.reached, strict=True) if on}
        kept = {way for way, on in zip(ways, one.hard_edge_mask.bool() & one.reached, strict=True) if on}
        found.append((len(kept), len(reach)))
    if one.get("hard_node_mask") is not None:
        mask = one.hard_node_mask
        if mask.size(0) > 1:
            near = {n for edge, on in zip(one.edge_index.T.tolist(), one.reached, strict=True) if on for n in edge}
            mask = mask[sorted(near | {int(one.index)})]
        found.append((int(mask.sum()), mask.numel()))
    return found


# --- one text for a number, one for a size -------------------------------------------------------------------------------


def test_numbers_and_sizes_are_written_as_the_page_writes_them() -> None:
    """The page's own tests read the same table."""
    for case in WORDING["numbers"]:
        assert (probability_text(case["value"]), bound_text(case["value"])) == (case["nearest"], case["bound"])
    for case in WORDING["sizes"]:
        (edges, nodes, features), of = case["size"], case["of"]
        parts = [PartSize(edges, of[0], "directed edges" if case["directed"] else "edges")] if case["edges"] else []
        parts += {
            None: [],
            "object": [PartSize(nodes, of[1], "nodes")],
            "attributes": [PartSize(features, of[2], "node features", nodes)],
            "common_attributes": [PartSize(features, of[2], "features")],
        }[case["node_mask"]]
        assert size_words(parts, case["molecule"]) == case["words"]
        assert share_words(parts, case["molecule"]) == case["share"]


@given(st.floats(0, 1, width=32))
def test_a_written_number_is_near_and_a_written_bound_is_true(value: float) -> None:
    assert abs(float(probability_text(value)) - value) <= 0.0005 + 1e-6
    assert -0.001 < float(bound_text(value)) - value <= 1e-6
    assert -1e-6 <= float(upper_bound_text(value)) - value < 0.001
    for write in (probability_text, bound_text, upper_bound_text):
        assert re.fullmatch(r"[01]\.\d{3}", write(value))


# --- the same facts everywhere -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("masks", "undirected"), CASES)
def test_sizes_are_those_of_the_masks_and_of_the_certificate(masks: str, undirected: bool) -> None:
    for one, proof in zip(explained(masks, undirected)[2], certificates(masks, undirected), strict=True):
        parts = kept_parts(one)
        assert [(part.kept, part.total) for part in parts] == expected_size(one, undirected)
        assert (sum(part.kept for part in parts), sum(part.total for part in parts)) == (proof.kept, proof.elements)
        assert proof.size == parts
        units = {"nodes": "nodes", "features of nodes": "node features", "features": "features"}
        edges = "edges" if undirected else "directed edges"
        assert [part.unit for part in parts] == [units.get(word, edges) for word in masks.split(" and ")]


def test_the_whole_graph_and_the_cut_out_graph_have_one_count() -> None:
    explain, data, found = explained("edges and features of nodes")
    for one in found:
        whole = explain(data.x, data.edge_index, index=int(one.output_id))
        assert int(whole.num_nodes) > int(one.num_nodes)
        assert [part.total for part in kept_parts(whole)] == [part.total for part in kept_parts(one)]


@pytest.mark.parametrize(("masks", "undirected"), CASES)
def test_one_explanation_reads_the_same_everywhere(tmp_path: Path, masks: str, undirected: bool) -> None:
    explain, data, found = explained(masks, undirected)
    proofs = certificates(masks, undirected)
    page = payload(nseg.report(found, tmp_path / "why.html", data=data, explainer=explain, certificates=proofs))
    for one, row in zip(found, found.records(), strict=True):
        exported = [(row[f"{name}_kept"], row[name]) for name in ("edges", "nodes", "features") if row[name] is not None]
        assert exported == [(part.kept, part.total) for part in kept_parts(one)]
        assert row["sentence"] == sentence(one)
    for one, proof, instance in zip(found, proofs, page["instances"], strict=True):
        (answer,) = instance["answers"]
        share, caption = share_words(kept_parts(one)), summary(one, plot.scene(one))
        p, q = probability_text(one.p_factual), probability_text(one.p_complement)
        bounds = [bound_text(one[name]) for name in BOUNDS]
        said = sentence(one)
        assert said.startswith(f"The model says class {proof.target} for node {one.output_id} (p ")
        assert said.startswith(answer["reason"].split(" (p ")[0])
        assert VERDICTS[answer["verdict"]] == one.verdict
        if answer["verdict"] in ("both", "sufficient", "necessary"):
            assert f" {p})" in said
            assert f" {q})" in said
        drawn = html.unescape(notebook_html(one))
        for part in kept_parts(one):
            assert (f" {part.share(where=False)} (" in said) == (part.kept > 0 and answer["verdict"] != "unexplained")
            assert f"{part.share()} kept" in caption
            assert f"{part.share()} kept" in drawn
        assert caption.startswith(", ".join(f"{n.upper()} ≥ {b}" for n, b in zip(BOUNDS, bounds, strict=True)))
        words = proof.words()
        assert words.startswith(f"With only {share}, the model gives class {proof.target} with p = {p}.")
        assert f"p = {q}" in words
        assert f"PNS >= {bounds[0]}, PN >= {bounds[1]} and PS >= {bounds[2]}" in words
        assert page_share(page, answer) == share
        assert probability_text(answer["p_factual"]) == p
        assert probability_text(answer["p_complement"]) == q
        assert [bound_text(answer[name]) for name in BOUNDS] == bounds
        assert answer["stops"]["size"][-1] == answer["of"]


def page_share(page: dict[str, Any], answer: dict[str, Any]) -> str:
    """The page's words for the size of an answer, by the rules that the shared table pins down."""
    (edges, nodes, features), of, (method,) = answer["size"], answer["of"], page["methods"]
    parts = [PartSize(edges, of[0], "directed edges" if answer["directed"] else "edges")] if method["edges"] else []
    if method["node_mask"] == "object":
        parts.append(PartSize(nodes, of[1], "nodes"))
    elif method["node_mask"] == "attributes":
        parts.append(PartSize(features, of[2], "node features", nodes))
    elif method["node_mask"] == "common_attributes":
        parts.append(PartSize(features, of[2], "features"))
    return share_words(parts)


def test_the_demo_and_the_terminal_and_the_page_agree(tmp_path: Path) -> None:
    """Two of 854 edges in the demo were two of 1051 in ``nseg explain``, and the terminal rounded what the page floored."""
    from nseg import models
    from nseg.cli.subject import make_explainer

    data, model = datasets.load("ba-shapes"), models.pretrained("ba-shapes", "gcn")
    explain = make_explainer(model, data.model_config, "e", nseg.NSEG(undirected=True, steps=10))
    found = explain_many(explain, data.graphs[0], data.instances[:2])
    table = predictions_table(data, found)
    cells = list(zip(*(column.cells for column in table.columns), strict=True))
    page = payload(nseg.report(found, tmp_path / "why.html", data=data, explainer=explain))
    for row, one, instance in zip(cells, found, page["instances"], strict=True):
        kept, total = expected_size(one, undirected=True)[0]
        assert int(one.reached.sum()) > total  # the number that was shown for the edges in all
        assert row[-1] == f"{kept} of {total}"
        assert f"because of {kept} of {total} edges (" in sentence(one)
        (answer,) = instance["answers"]
        assert (answer["size"][0], answer["of"][0], answer["directed"]) == (kept, total, False)
        assert list(row[2:4]) == [probability_text(answer[name]) for name in ("p_factual", "p_complement")]
        assert row[4] == bound_text(answer["pns"])
        assert float(row[4]) <= one.pns + 1e-6
        assert sentence(one).count(" - ") == min(kept, MANY)  # more are not listed


def test_mean_bounds_are_rounded_down_in_the_terminal_and_on_the_page() -> None:
    table = scores_table({"explanation, hard": {"pns": 0.83996, "fid_plus": 0.83996}})
    shown = {str(column.header): list(column.cells) for column in table.columns}
    assert (shown["PNS"], shown["Fid+"]) == (["0.839"], ["0.840"])
    bound = {column["name"] for column in nseg.reports.payload.COLUMNS if column.get("bound")}
    assert bound == {"PNS", "PN", "PS"}


def test_explanations_of_pyg_count_all_edges_until_the_model_is_asked(tmp_path: Path) -> None:
    data = graph()
    explain = explainer(seeded(NODE_MODELS["gcn"]), GNNExplainer(epochs=3))
    one = explain(data.x, data.edge_index, index=3)
    (alone,) = kept_parts(one)
    assert (alone.total, alone.unit) == (data.num_edges, "directed edges")
    page = payload(nseg.report(one, tmp_path / "why.html", data=data, explainer=explain))
    (ours,) = explain_many(explainer(explain.model, quick(steps=2), edge_mask_type="object"), data, [3])
    assert page["instances"][0]["answers"][0]["of"][0] == int(ours.reached.sum())


def test_graphs_and_stored_explanations_are_counted_too(tmp_path: Path) -> None:
    graphs = [graph(6, 8, seed) for seed in range(2)]
    explain = explainer(seeded(Molecule), quick(steps=3), GRAPH_CONFIG, **MASKS["edges and features of nodes"])
    found = explain_many(explain, graphs)
    runs.write(tmp_path, found, {})
    for one, stored, given_graph in zip(found, runs.read(tmp_path), graphs, strict=True):
        edges, cells = kept_parts(one)
        assert (edges.total, cells.total) == (given_graph.num_edges // 2, given_graph.x.numel())  # bonds
        assert kept_parts(runs.attach(stored, graphs)) == (edges, cells)
        kept = notebook_html(stored)
        assert f"<td>{size_words((edges, cells))}</td>" in kept


# --- features are named as features --------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", MASKS)
def test_the_said_probability_is_that_of_the_named_elements(tmp_path: Path, masks: str) -> None:
    """A page said "Keeping only these 9 nodes gives p = 0.936"; that was the p of 14 features of these nodes."""
    explain, data, found = explained(masks)
    page = payload(nseg.report(found, tmp_path / "why.html", data=data, explainer=explain))
    (method,) = page["methods"]
    kinds = {None: None, **MASKS[masks]}
    assert method["node_mask"] == kinds.get("node_mask_type")
    for one, instance in zip(found, page["instances"], strict=True):
        (answer,) = instance["answers"]
        exactly = {
            part: one[name].float()
            for part, name in (("edges", "hard_edge_mask"), ("nodes", "hard_node_mask"))
            if one.get(name) is not None
        }
        p = float(masked_output(explain, data, one, exactly).softmax(-1)[instance["target"]])
        assert answer["p_factual"] == pytest.approx(p, abs=2e-6)
        assert answer["worlds"]["p"][0] == pytest.approx(p, abs=2e-6)
        sizes = expected_size(one, undirected=False)
        shown = [answer["size"][0]] if method["edges"] else []
        shown += [answer["size"][1 if method["node_mask"] == "object" else 2]] if method["node_mask"] else []
        assert shown == [kept for kept, _ in sizes]


def test_features_of_nodes_are_not_whole_nodes() -> None:
    """Whole nodes give another probability: the unit matters."""
    explain, data, found = explained("features of nodes")
    apart = 0
    for one in found:
        whole = one.hard_node_mask.any(1, keepdim=True).float().expand(-1, data.num_features)
        target = int(one.target[one.index])
        p = float(masked_output(explain, data, one, {"nodes": whole}).softmax(-1)[target])
        apart += abs(p - one.p_factual) > 1e-3
        assert "node feature" in summary(one, plot.scene(one))
        assert not re.search(r"\d nodes? (are )?kept", summary(one, plot.scene(one)) + sentence(one))
    assert apart


def test_a_drawing_shows_which_share_of_a_node_is_kept(tmp_path: Path) -> None:
    explain, data, found = explained("features of nodes")
    page = payload(nseg.report(found, tmp_path / "why.html", data=data, explainer=explain))
    partial = 0
    for one, instance in zip(found, page["instances"], strict=True):
        shown, (answer,) = plot.scene(one), instance["answers"]
        place = {n: row for row, n in enumerate(one.node_id.tolist())}
        for node in shown.nodes:
            kept = one.hard_node_mask[place[node.id]]
            assert node.share == pytest.approx(float(kept.float().mean()))
            assert list(node.features) == kept.nonzero().flatten().tolist()
            assert node.partial == (0 < int(kept.sum()) < kept.numel())
            partial += node.partial
        cells, ids = answer["cells"], instance["graph"]["node"]
        assert cells["number"] == [int(one.hard_node_mask[place[n]].sum()) for n in ids]
        assert sum(cells["number"]) == answer["size"][2]
        listed = {(ids[cells["node"][n]], cells["feature"][n]) for n in cells["kept"]}
        assert listed == {(node.id, feature) for node in shown.nodes for feature in node.features}
        for stop, numbers in enumerate(cells["number_at"]):
            assert sum(numbers) == answer["stops"]["size"][stop][2] == sum(int(stay, 36) <= stop for stay in cells["stay"])
        words = plot.figure_svg(plot.explanation(one))
        assert ">some features kept (filled share)<" in words
        assert ">kept node<" not in words
    assert partial


def test_features_of_all_nodes_are_listed_and_no_node_is_marked() -> None:
    found = explained("features")[2]
    for one in found:
        shown = plot.scene(one)
        numbers = one.hard_node_mask[0].nonzero().flatten().tolist()
        assert shown.features == tuple(numbers)
        assert {(n.kept, n.share) for n in shown.nodes} == {(None, None)}
        assert f"features kept: {', '.join(map(str, numbers)) or 'none'}" in plot.figure_svg(plot.explanation(one))
        assert "kept node" not in plot.figure_svg(plot.explanation(one))


def test_worlds_of_features_are_named_as_features() -> None:
    for masks, word in (("edges and features of nodes", "node features"), ("edges and features", "features")):
        explain, data, found = explained(masks)
        drawn = plot.figure_svg(plot.worlds(explain, data, found[0]))
        assert f">its {word}, but all other edges (01)<" in drawn
        for world in plot.worlds_of(explain, data, found)[0]:
            assert f"= {math.floor(1000 * round(world.probability, 6) + 0.5) / 1000:.3f}<" in drawn
        assert ">node in this world<" not in drawn


def test_a_mask_of_one_node_or_one_feature_is_named() -> None:
    one = Explanation(x=torch.ones(3, 1), node_mask=torch.tensor([[0.9], [0.1], [0.8]]))
    assert share_words(kept_parts(one)) == "2 of 3 nodes"  # a single feature is the whole node
    one = Explanation(x=torch.ones(1, 4), node_mask=torch.tensor([[0.9, 0.1, 0.8, 0.7]]))
    assert share_words(kept_parts(one)) == "3 of 4 node features (on 1 node)"
    one = Explanation(x=torch.ones(3, 4), node_mask=torch.tensor([[0.9, 0.1, 0.8, 0.7]]))
    assert share_words(kept_parts(one)) == "3 of 4 features (of all nodes)"
