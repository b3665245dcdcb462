"""Pictures: laws of the scene, every drawing on awkward input, and no change of matplotlib's settings."""

from __future__ import annotations

import builtins
import copy
import dataclasses
import json
import math
import pickle
import xml.etree.ElementTree as ET
from functools import cache

import matplotlib as mpl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import DummyExplainer, GNNExplainer
from torch_geometric.explain import Explanation as PyGExplanation
from torch_geometric.nn import GCNConv
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_CONFIG, EdgeClassifier, Link, Molecule, explainer, graph, quick, seeded, two

from nseg import InputError, certify, explain_many, metrics, plot, runs, wording
from nseg.datasets import Benchmark, load
from nseg.errors import MissingError
from nseg.explanation import Explanation
from nseg.plot import chemistry, colours, layout

MASKS = {
    "e": {"edge_mask_type": "object"},
    "f": {"node_mask_type": "object"},
    "ef": {"edge_mask_type": "object", "node_mask_type": "object"},
    "attributes": {"edge_mask_type": "object", "node_mask_type": "attributes"},
    "common": {"node_mask_type": "common_attributes"},
}


def make_explainer(level: str, masks: str, algorithm=None):
    """An explainer of a model with random weights, and data for it."""
    make, config = {"node": (lambda: two(GCNConv), NODE_CONFIG), "graph": (Molecule, GRAPH_CONFIG)}[level]
    data = graph(30, 45) if level == "node" else [graph(9, 12, seed=n) for n in range(4)]
    return explainer(seeded(make), algorithm or quick(steps=5), config, **MASKS[masks]), data


@cache
def found(level: str, masks: str = "e") -> tuple[Explanation, ...]:
    return tuple(explain_many(*make_explainer(level, masks), index=[1, 3]))


@cache
def bench(level: str) -> Benchmark:
    """The same data as a dataset, with names that look like markup."""
    _, data = make_explainer(level, "e")
    graphs = [data] if level == "node" else data
    names = ("<script>alert(1)</script>", "$x^{", "_hidden")
    return Benchmark(
        "own",
        level,
        graphs,
        3,
        torch.arange(4),
        class_names=names,
        node_names=() if level == "node" else ("a&b", "c", "d", "e"),
    )


@cache
def methylamine() -> tuple[Benchmark, Explanation]:
    """CH3-NH2 with its hydrogens, and an explanation that keeps C-N and one N-H."""
    atoms = ("C", "N", "H")
    kind = torch.tensor([0, 1, 2, 2, 2, 2, 2])
    ends = torch.tensor([[0, 1], [0, 2], [0, 3], [0, 4], [1, 5], [1, 6]]).T
    data = Data(
        x=torch.eye(3)[kind],
        edge_index=torch.cat([ends, ends.flip(0)], 1),
        edge_attr=torch.eye(2)[torch.tensor([0] * 12)],
        y=torch.tensor([1]),
    )
    known = Benchmark("own", "graph", [data], 2, torch.arange(1), node_names=atoms, bonds=(1.0, 2.0))
    mask = torch.zeros(12)
    mask[[0, 4, 10]] = 1.0
    made = Explanation(x=data.x, edge_index=data.edge_index, edge_mask=mask, hard_edge_mask=mask.bool(), output_id=0)
    return known, made


# --- the scene -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("level", ["node", "graph"])
def test_a_scene_keeps_what_the_hard_masks_keep(level: str, masks: str) -> None:
    for one in found(level, masks):
        shown = plot.scene(one)
        ends = one.node_id[one.edge_index]
        if one.get("edge_mask") is None:
            assert {e.kept for e in shown.edges} == {e.weight for e in shown.edges} == {None}
        else:
            kept = {tuple(sorted(pair)) for pair in ends[:, one.hard_edge_mask.bool()].T.tolist()}
            assert {(shown.nodes[e.source].id, shown.nodes[e.end].id) for e in shown.edges if e.kept} == kept
        if one.get("node_mask") is None or one.node_mask.size(0) == 1:
            assert {n.kept for n in shown.nodes} == {n.weight for n in shown.nodes} == {None}
        else:
            place = {n: at for at, n in enumerate(one.node_id.tolist())}
            for node in shown.nodes:
                assert node.kept == bool(one.hard_node_mask[place[node.id]].any())
                assert node.weight == pytest.approx(float(one.node_mask[place[node.id]].mean()))


@pytest.mark.parametrize("level", ["node", "graph"])
def test_a_scene_shows_the_graph_within_reach_and_no_more(level: str) -> None:
    for one in found(level):
        shown = plot.scene(one)
        reached = one.node_id[one.edge_index[:, one.reached]]
        pairs = {tuple(sorted(pair)) for pair in reached.T.tolist()}
        assert [(shown.nodes[e.source].id, shown.nodes[e.end].id) for e in shown.edges] == sorted(pairs)
        nodes = set(reached.flatten().tolist()) | {one.output_id} if level == "node" else set(one.node_id.tolist())
        assert [n.id for n in shown.nodes] == sorted(nodes)
        assert [n.id for n in shown.nodes if n.target] == ([one.output_id] if level == "node" else [])
        assert shown.left_out == shown.hidden == 0


@pytest.mark.parametrize("level", ["node", "graph"])
def test_positions_do_not_depend_on_masks(level: str) -> None:
    seen = set()
    for masks in MASKS:
        one = found(level, masks)[0]
        other = copy.copy(one)
        for name in ("edge_mask", "node_mask"):
            if one.get(name) is not None:
                other[name], other[f"hard_{name}"] = torch.rand_like(one[name]), torch.rand_like(one[name]) > 0.5
        seen |= {tuple((n.id, n.x, n.y) for n in plot.scene(each).nodes) for each in (one, other)}
    assert len(seen) == 1


def test_explain_many_and_explainer_give_one_scene() -> None:
    explain, data = make_explainer("node", "e")
    alone = explain(data.x, data.edge_index, index=3)
    whole, part = plot.scene(alone), plot.scene(found("node")[1])
    assert [(n.id, n.x, n.y, n.target) for n in whole.nodes] == [(n.id, n.x, n.y, n.target) for n in part.nodes]
    assert [(e.source, e.end) for e in whole.edges] == [(e.source, e.end) for e in part.edges]
    assert whole.title.split(" (")[0] == part.title


def test_both_directions_are_one_edge_with_the_larger_weight() -> None:
    one = Explanation(
        x=torch.ones(3, 1),
        edge_index=torch.tensor([[0, 1, 2, 2], [1, 0, 1, 2]]),
        edge_mask=torch.tensor([0.2, 0.7, 0.4, 0.1]),
        hard_edge_mask=torch.tensor([True, False, False, False]),
    )
    edges = [(e.source, e.end, round(e.weight, 3), e.kept) for e in plot.scene(one).edges]
    assert edges == [(0, 1, 0.7, True), (1, 2, 0.4, False), (2, 2, 0.1, False)]


def test_without_a_hard_mask_the_soft_mask_is_thresholded() -> None:
    ends = torch.tensor([[0, 1, 2], [1, 2, 3]])
    one = PyGExplanation(x=torch.ones(4, 1), edge_index=ends, edge_mask=torch.tensor([0.9, 0.5, float("nan")]))
    assert plot.scene(one).title == "graph 0"
    assert [(e.kept, round(e.weight, 3)) for e in plot.scene(one).edges] == [(True, 0.9), (False, 0.5), (False, 0.0)]


def test_a_scene_is_plain_data() -> None:
    shown = plot.scene(found("node", "ef")[0], bench("node"))
    again = json.loads(json.dumps(dataclasses.asdict(shown), allow_nan=False))
    assert again["nodes"][0]["id"] == shown.nodes[0].id
    assert all(0 <= n.x <= 1 and 0 <= n.y <= 1 for n in shown.nodes)


def test_names_classes_and_correctness() -> None:
    one, known = found("node")[0], bench("node")
    shown = plot.scene(one, known)
    y = known.graphs[0].y
    assert [n.group for n in shown.nodes] == y[[n.id for n in shown.nodes]].tolist()
    assert shown.groups == known.class_names
    target = int(one.target[one.index])
    assert (shown.target, shown.target_name, shown.label) == (target, known.class_names[target], int(y[1]))
    assert ("(correct)" in shown.title) == (target == int(y[1]))
    assert ("(wrong, true class: " in shown.title) == (target != int(y[1]))
    own = plot.scene(one, names=[f"n{n}" for n in range(30)], classes=torch.arange(30), class_names=["first"])
    assert [n.name for n in own.nodes] == [f"n{n.id}" for n in own.nodes]
    assert [own.groups[n.group] for n in own.nodes] == ["first" if n.id == 0 else f"class {n.id}" for n in own.nodes]
    assert plot.scene(found("graph")[1], bench("graph")).nodes[0].name in bench("graph").node_names


def test_predicted_classes_colour_nodes_only_where_they_are_valid() -> None:
    """On a cut-out computation graph, the model's output is correct for the explained node only."""
    explain, data = make_explainer("node", "e")
    cut, whole = plot.scene(found("node")[1]), plot.scene(explain(data.x, data.edge_index, index=3))
    assert {n.id: n.group for n in cut.nodes if n.group >= 0} == {3: cut.target}
    predicted = explain.get_prediction(data.x, data.edge_index).argmax(-1)
    assert [n.group for n in whole.nodes] == predicted[[n.id for n in whole.nodes]].tolist()


def test_ground_truth_is_that_of_the_instance() -> None:
    data = load("tree-cycles")
    explain = explainer(seeded(lambda: two(lambda a, b: GCNConv(10 if a == 4 else a, b))), DummyExplainer())
    shown = plot.scene(explain_many(explain, data.graphs[0], [600])[0], data)
    truth, motif = data.truth(600), data.graphs[0].motif
    assert {n.id for n in shown.nodes if n.truth} == {n.id for n in shown.nodes if motif[n.id] == motif[600]}
    ends = {tuple(sorted(pair)) for pair in data.graphs[0].edge_index[:, truth.edge].T.tolist()}
    drawn = {(shown.nodes[e.source].id, shown.nodes[e.end].id) for e in shown.edges if e.truth}
    assert drawn
    assert drawn == ends & {(shown.nodes[e.source].id, shown.nodes[e.end].id) for e in shown.edges}


def test_links_mark_both_ends() -> None:
    data, pairs = graph(20, 30), torch.tensor([[0, 4], [7, 2]])
    data.edge_label_index = pairs
    explain = explainer(seeded(Link), quick(steps=3), LINK_CONFIG)
    for number, one in enumerate(explain_many(explain, data)):
        shown = plot.scene(one)
        assert [n.id for n in shown.nodes if n.target] == sorted(pairs[:, number].tolist())
        assert shown.title.startswith(f"link {number}: ")
        assert "explained link" in plot.figure_svg(plot.explanation(one))
    classify = explainer(seeded(EdgeClassifier), quick(steps=3), {**LINK_CONFIG, "mode": "multiclass_classification"})
    one = explain_many(classify, graph(20, 30), [5])[0]
    assert [n.id for n in plot.scene(one).nodes if n.target] == sorted(graph(20, 30).edge_index[:, 5].tolist())


def test_several_outputs_are_all_marked() -> None:
    explain, data = make_explainer("node", "e", DummyExplainer())
    shown = plot.scene(explain(data.x, data.edge_index, index=torch.tensor([2, 5])))
    assert [n.id for n in shown.nodes if n.target] == [2, 5]
    assert shown.title == "2 nodes"


def test_stored_explanations_are_drawn_with_their_dataset(tmp_path) -> None:
    for level in ("node", "graph"):
        runs.write(tmp_path / level, found(level, "ef"), {})
        for one, kept in zip(runs.read(tmp_path / level), found(level, "ef"), strict=True):
            assert plot.scene(one, bench(level)) == plot.scene(kept, bench(level))
            whole = bench(level).graphs[0] if level == "node" else bench(level).graphs
            assert plot.scene(runs.attach(one, whole), bench(level)) == plot.scene(kept, bench(level))
            with pytest.raises(InputError, match="without edge_index"):
                plot.scene(one)


def test_bad_input_raises_an_error_with_a_remedy() -> None:
    one = found("graph")[1]
    with pytest.raises(InputError, match="has other edges"):
        plot.scene(one, Benchmark("other", "graph", [graph(40, 60, seed=n) for n in range(4)], 2, torch.arange(4)))
    with pytest.raises(InputError, match="must be a torch_geometric Explanation"):
        plot.scene(HeteroData())
    with pytest.raises(InputError, match="names must have an entry"):
        plot.scene(one, names=["a"])
    with pytest.raises(InputError, match=r"got outputs \[1, 3\]"):
        plot.compare(dict(zip("ab", found("graph"), strict=True)))
    for nothing in (lambda: plot.compare({}), lambda: plot.predictions([], bench("graph"))):
        with pytest.raises(InputError, match="got"):
            nothing()
    with pytest.raises(InputError, match="chemical elements"):
        plot.molecule(one, bench("graph"))


def test_too_many_edges_are_reduced_to_the_kept_and_the_strongest() -> None:
    data, rng = graph(400, 7000), torch.Generator().manual_seed(0)
    soft = torch.rand(data.num_edges, generator=rng)
    one = Explanation(x=data.x, edge_index=data.edge_index, edge_mask=soft, hard_edge_mask=soft < 0.01)
    full, shown = plot.scene(one, max_edges=10**6), plot.scene(one)
    assert len(full.edges) > len(shown.edges) == 5000
    assert shown.left_out == len(full.edges) - 5000

    def ends(scene: plot.Scene, edges) -> set[tuple[int, int]]:
        return {(scene.nodes[e.source].id, scene.nodes[e.end].id) for e in edges}

    assert ends(full, (e for e in full.edges if e.kept)) <= ends(shown, shown.edges)
    weakest = min(e.weight for e in shown.edges if not e.kept)
    assert ends(full, (e for e in full.edges if e.weight > weakest)) <= ends(shown, shown.edges)
    at = {n.id: (n.x, n.y) for n in full.nodes}
    few = plot.scene(one, max_edges=20)
    assert all(at[n.id] == (n.x, n.y) for n in few.nodes)
    assert few.hidden == len(full.nodes) - len(few.nodes) > 0
    assert isinstance(plot.explanation(one), Figure)
    assert f"{shown.left_out:,} lines not drawn" in plot.figure_svg(plot.explanation(one))


@pytest.mark.parametrize("nodes", [100, 400])
def test_many_highlighted_nodes_are_drawn_small(nodes: int) -> None:
    ends = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    one = Explanation(x=torch.ones(nodes, 1), edge_index=ends, edge_mask=torch.ones(nodes))
    (ax,) = plot.explanation(one).axes
    drawn = [dots for dots in ax.collections if hasattr(dots, "get_sizes") and len(dots.get_offsets())]
    widest = max(float(size) for dots in drawn for size in dots.get_sizes())
    assert (widest < 40) == (nodes == 400)  # points squared: below it edges between them can be seen


# --- positions -------------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=20), st.booleans())
def test_every_graph_has_positions_apart_and_the_same_each_time(nodes: int, pairs, near: bool) -> None:
    pairs = sorted({(u % nodes, v % nodes) for u, v in pairs})
    found = layout.positions(nodes, pairs, focus=[0] if near else [])
    assert found == layout.positions(nodes, pairs, focus=[0] if near else [])
    assert len(set(found)) == nodes
    assert all(0 <= value <= 1 for point in found for value in point)


def test_distances_in_a_picture_are_those_in_the_graph() -> None:
    path = layout.positions(5, [(n, n + 1) for n in range(4)])
    assert [round(x, 2) for x, _ in path] in ([0, 0.25, 0.5, 0.75, 1], [1, 0.75, 0.5, 0.25, 0])
    ring = torch.tensor(layout.positions(6, [(n, (n + 1) % 6) for n in range(6)]))
    side = (ring - ring.roll(1, 0)).norm(dim=1)
    torch.testing.assert_close(side, side.mean().expand(6), rtol=0.02, atol=0)


def test_a_large_graph_is_drawn_larger_near_the_explained_node() -> None:
    star = [(0, n) for n in range(1, 150)] + [(0, 150), (150, 151), (151, 152)]
    at = torch.tensor(layout.positions(153, star, focus=[152]))
    length = {pair: float((at[pair[0]] - at[pair[1]]).norm()) for pair in star}
    assert length[151, 152] > length[150, 151] > 1.2 * max(length[0, n] for n in range(1, 150))


def test_small_graphs_are_drawn_alike_however_their_nodes_are_numbered() -> None:
    """Relabelling the nodes of a tree moves its set of points nowhere, and equal numbers stay joined as they were."""
    tree, rng = [(0, 1), (0, 2), (2, 3), (2, 4), (4, 5), (4, 6)], torch.Generator().manual_seed(0)
    points = layout.positions(7, tree)
    for _ in range(5):
        new = torch.randperm(7, generator=rng).tolist()
        moved = layout.positions(7, [(new[a], new[b]) for a, b in tree])
        assert sorted(moved) == sorted(points)
        lines = {frozenset((moved[new[a]], moved[new[b]])) for a, b in tree}
        assert lines == {frozenset((points[a], points[b])) for a, b in tree}


def test_very_large_graphs_get_positions() -> None:
    data = graph(3000, 9000)
    at = layout.positions(3000, data.edge_index.T.tolist(), focus=[0])
    assert len(set(at)) > 2500


# --- molecules -------------------------------------------------------------------------------------------------------------


def test_a_molecule_is_drawn_atom_by_atom_and_hydrogens_can_be_left_out() -> None:
    known, one = methylamine()
    full, bare = plot.scene(one, known), plot.scene(one, known, hydrogens=False)
    assert full.molecule
    assert [n.name for n in full.nodes] == list("CNHHHHH")
    assert {e.order for e in full.edges} == {1.0}
    assert [n.id for n in bare.nodes] == [0, 1, 5]  # the hydrogen atom of the kept bond stays
    assert [n.hydrogens for n in bare.nodes] == [3, 1, 0]
    assert bare.hidden == bare.left_out == 4
    assert [e.kept for e in bare.edges] == [True, True]
    assert [(n.x, n.y) for n in bare.nodes] == [(full.nodes[n.id].x, full.nodes[n.id].y) for n in bare.nodes]
    words = plot.figure_svg(plot.explanation(one, known, hydrogens=False))
    assert ">NH<" in words
    assert f"{int(one.hard_edge_mask.sum())} of 12 directed bonds kept, 4 bonds not drawn" in words
    double = Benchmark(**{**vars(known), "bonds": (2.0, 1.0)})
    assert {e.order for e in plot.scene(one, double).edges} == {2.0}


def test_rdkit_highlights_what_is_kept() -> None:
    known, one = methylamine()
    none = one.clone()
    none.edge_mask, none.hard_edge_mask = torch.zeros(12), torch.zeros(12)

    def highlighted(svg: str) -> set[str]:
        lines = [line.attrib for line in ET.fromstring(svg).iter() if colours.BAND in line.get("style", "").upper()]
        return {line["class"] for line in lines}

    assert highlighted(plot.molecule(none, known)) == set()
    assert highlighted(plot.molecule(one, known)) == {"bond-0 atom-0 atom-1", "bond-4 atom-1 atom-5"}
    assert plot.molecule(one, known, hydrogens=False) != plot.molecule(one, known)


def test_atoms_without_bonds_lie_beside_the_molecule() -> None:
    at = torch.tensor(layout.positions(60, [(0, 1), (1, 2)], symbols=["C"] * 3 + ["Na"] * 57, orders=[1.0, 1.0]))
    away = torch.cdist(at, at) + torch.eye(60)
    assert float(away.min()) > 0.05  # not all in one long row, as RDKit has them
    torch.testing.assert_close(away[0, 1], away[1, 2], rtol=0.01, atol=0)


def test_molecules_that_chemistry_forbids_are_drawn_too() -> None:
    star = [(0, n) for n in range(1, 8)]
    assert chemistry.coordinates(["C"] * 8, star, [3.0] * 7) is not None
    assert chemistry.coordinates(["C", "O"], [], []) is not None
    assert chemistry.coordinates(["no element"], [], []) is None


# --- drawings --------------------------------------------------------------------------------------------------------------


def bare(nodes: int, ends=(), **masks) -> Explanation:
    edge_index = torch.tensor(ends, dtype=torch.long).view(-1, 2).T
    return Explanation(x=torch.ones(nodes, 2), edge_index=edge_index, **masks)


AWKWARD = {
    "one node": bare(1, edge_mask=torch.zeros(0)),
    "no node": bare(0, edge_mask=torch.zeros(0)),
    "no edges": bare(4, edge_mask=torch.zeros(0), hard_edge_mask=torch.zeros(0)),
    "no mask": bare(3, [(0, 1), (1, 2)]),
    "all ones": bare(3, [(0, 1), (1, 2)], edge_mask=torch.ones(2), node_mask=torch.ones(3, 1)),
    "all zeros": bare(3, [(0, 1), (1, 2)], edge_mask=torch.zeros(2), node_mask=torch.zeros(3, 1)),
    "not a number": bare(2, [(0, 1)], edge_mask=torch.tensor([float("nan")]), pns=float("nan")),
    "huge weights": bare(2, [(0, 1)], edge_mask=torch.tensor([1e30])),
    "loops and copies": bare(2, [(0, 0), (0, 1), (0, 1), (1, 0)], edge_mask=torch.rand(4)),
    "two parts": bare(5, [(0, 1), (2, 3)], edge_mask=torch.rand(2)),
    "features of nodes": bare(2, [(0, 1)], node_mask=torch.rand(2, 2)),
    "features of all": bare(2, [(0, 1)], node_mask=torch.rand(1, 2)),
    "a gradient": bare(2, [(0, 1)], edge_mask=torch.rand(1, requires_grad=True)),
    "a node, on its own": bare(2, [], edge_mask=torch.zeros(0), index=torch.tensor([1]), target=torch.tensor([0, 2])),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_every_drawing_takes_awkward_explanations(name: str) -> None:
    one = AWKWARD[name]
    for figure in (plot.explanation(one, truth=True), plot.compare({"a": one, "$b_": one})):
        assert isinstance(figure, Figure)
        assert ET.fromstring(plot.figure_svg(figure)).tag.endswith("svg")
    assert "<svg" in one._repr_html_()


@pytest.mark.parametrize("level", ["node", "graph"])
def test_names_from_data_are_text(level: str) -> None:
    nasty = '<script>alert("1")</script>' + chr(7) + " & $y^"
    one = found(level, "ef")[0]
    how = {"names": [nasty] * bench(level).graph(int(one.output_id)).num_nodes, "class_names": [nasty] * 3}
    pictures = [plot.explanation(one, bench(level), truth=True, **how), plot.compare({nasty: one}, bench(level), **how)]
    for svg in map(plot.figure_svg, pictures):
        words = [text.text or "" for text in ET.fromstring(svg).iter() if text.tag.endswith("text")]
        assert "<script>" not in svg
        assert any("<script>" in word and "$y^" in word for word in words)


def test_pictures_say_what_they_show() -> None:
    one, known = found("node", "ef")[0], bench("node")
    shown = plot.scene(one, known)
    words = plot.figure_svg(plot.explanation(one, known))
    bounds = (f"{name} ≥ {math.floor(1000 * one[name.lower()]) / 1000:.3f}" for name in ("PNS", "PN", "PS"))
    assert ", ".join(bounds) in words
    kept = int((one.hard_edge_mask.bool() & one.reached).sum())
    assert f"{kept} of {int(one.reached.sum())} directed edges kept" in words
    assert f"{sum(n.kept for n in shown.nodes)} of {len(shown.nodes)} nodes kept" in words
    for word in ("explained node", "kept edge", "other edge", "kept node", "_hidden"):
        assert f">{word}<" in words
    assert "ground truth" not in words


def test_axes_of_the_caller_are_drawn_on() -> None:
    page = Figure()
    ax = page.add_subplot(1, 2, 2)
    assert plot.explanation(found("node")[0], ax=ax) is page
    assert ax.get_title().startswith("node 1: ")
    assert len(page.axes) == 1


def test_methods_side_by_side_are_on_one_graph() -> None:
    """PyG's algorithms do not know which edges are reached; what another method knows holds for them."""
    ours = found("node")[1]
    explain, data = make_explainer("node", "e", GNNExplainer(epochs=2))
    with torch.random.fork_rng():
        theirs = explain_many(explain, data, [3])[0]
        whole = explain(data.x, data.edge_index, index=3)
    assert "reached" not in theirs
    figure = plot.compare({"nseg": ours, "GNNExplainer": theirs, "on the whole graph": whole})
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["nseg", "GNNExplainer", "on the whole graph"]
    segments = [
        sum(len(c.get_paths()) for c in ax.collections if type(c).__name__ == "LineCollection") for ax in figure.axes
    ]
    assert len(set(segments)) == 1
    assert segments[0] == len(plot.scene(ours).edges)


def test_correct_and_wrong_predictions_are_separated() -> None:
    explain, data = make_explainer("node", "e")
    every = explain_many(explain, data, range(12))
    titles = [ax.get_title() for ax in plot.predictions(every, bench("node"), each=2).axes]
    y = data.y
    right = [f"node {o.output_id}:" for o in every if int(o.target[o.index]) == int(y[o.output_id])][:2]
    wrong = [f"node {o.output_id}:" for o in every if int(o.target[o.index]) != int(y[o.output_id])][:2]
    assert len(right) == len(wrong) == 2
    assert [title.split(" ", 2)[0] + " " + title.split(" ", 2)[1] for title in titles] == right + wrong
    assert ["(correct)" in title for title in titles] == [True, True, False, False]


def test_a_given_class_is_neither_correct_nor_wrong() -> None:
    _, data = make_explainer("node", "e")
    explain = explainer(seeded(lambda: two(GCNConv)), quick(steps=3), explanation_type="phenomenon", edge_mask_type="object")
    assert plot.scene(explain_many(explain, data, [1])[0], bench("node")).label is None


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("level", ["node", "graph"])
def test_worlds_have_the_probabilities_of_the_explanation(level: str, masks: str) -> None:
    explain, data = make_explainer(level, masks)
    for one, row in zip(found(level, masks), plot.worlds_of(explain, data, found(level, masks)), strict=True):
        p = {world.event: world.probability for world in row}
        assert list(p) == (["11", "00", "01", "10"] if masks in ("ef", "attributes") else ["1", "0"])
        first, *rest = p.values()
        assert first == pytest.approx(one.p_factual, abs=1e-5)
        assert sum(rest) / len(rest) == pytest.approx(one.p_complement, abs=1e-5)


def test_worlds_are_drawn_with_what_is_in_them() -> None:
    explain, data = make_explainer("node", "ef")
    one = found("node", "ef")[0]
    figure = plot.worlds(explain, data, one, bench("node"))
    assert [ax.get_title().split(" (")[1][:2] for ax in figure.axes] == ["11", "00", "01", "10"]
    (certificate,) = certify(explain, data, [one], law="literal")
    assert f"= {certificate.p_factual:.2f}" in figure.axes[0].get_title()
    explain, data = make_explainer("graph", "e")
    assert len(plot.worlds(explain, data, found("graph")[0]).axes) == 2


def test_a_pair_kept_in_one_direction_is_in_both_worlds() -> None:
    explain, data = make_explainer("graph", "e")
    one = copy.copy(found("graph")[0])
    one.hard_edge_mask = torch.zeros_like(one.hard_edge_mask)
    one.hard_edge_mask[0] = 1
    assert [_lines_in(ax, colours.KEPT) for ax in plot.worlds(explain, data, one).axes] == [1, len(plot.scene(one).edges)]


def _lines_in(ax, colour: str) -> int:
    """How many edges are drawn in a colour."""
    lines = [c for c in ax.collections if type(c).__name__ == "LineCollection"]
    return sum(len(c.get_paths()) for c in lines if mpl.colors.to_hex(c.get_color()[0]).upper() == colour)


def test_nothing_of_matplotlib_is_changed() -> None:
    import matplotlib.pyplot as plt

    settings_before, backend = dict(mpl.rcParams), mpl.get_backend()
    explain, data = make_explainer("node", "ef")
    one = found("node", "ef")[0]
    plot.figure_svg(plot.explanation(one))
    plot.figure_svg(plot.worlds(explain, data, one))
    one._repr_html_()
    assert dict(mpl.rcParams) == settings_before
    assert mpl.get_backend() == backend
    assert plt.get_fignums() == []


def test_a_picture_is_the_same_each_time() -> None:
    one = found("node", "ef")[0]
    assert plot.figure_svg(plot.explanation(one)) == plot.figure_svg(plot.explanation(one))


# --- notebooks -------------------------------------------------------------------------------------------------------------


def test_explanations_draw_themselves_and_stay_pyg_explanations(tmp_path) -> None:
    explain, data = make_explainer("node", "e")
    looped = explain_many(*make_explainer("node", "e", DummyExplainer()), index=[3])[0]
    made = {
        "explain_many": found("node")[1],
        "Explainer": explain(data.x, data.edge_index, index=3),
        "a PyG algorithm": looped,
        "trivial": metrics.trivial(list(found("node")), "all")[0],
    }
    for one in made.values():
        for again in (
            one,
            one.clone(),
            copy.copy(one),
            one.threshold("topk", 2),
            one.to("cpu"),
            pickle.loads(pickle.dumps(one)),
        ):
            assert isinstance(again, PyGExplanation)
            assert type(again) is Explanation
            assert again.validate_masks()
        assert "<svg" in one.clone()._repr_html_()
        assert type(one.get_explanation_subgraph()) is Explanation
    both = Batch.from_data_list([made["a PyG algorithm"]] * 2)
    assert isinstance(both[1], PyGExplanation)
    assert repr(made["explain_many"]).startswith("Explanation(")


def test_without_matplotlib_there_is_a_hint_and_a_table(monkeypatch) -> None:
    real = builtins.__import__

    def without(name: str, *args, **kwargs):
        if name.split(".", maxsplit=1)[0] in ("matplotlib", "rdkit"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    one, (known, amine) = found("node")[0], methylamine()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingError, match=r'pip install "nseg\[plot\]"'):
        plot.explanation(one)
    with pytest.raises(MissingError, match=r'pip install "nseg\[plot\]"'):
        plot.molecule(amine, known)
    assert len(plot.scene(amine, known).nodes) == 7
    page = one._repr_html_()
    assert f"<td>{math.floor(1000 * one.pns) / 1000:.3f}</td>" in page
    assert "nseg[plot]" in page
    assert "<svg" not in page


def test_a_stored_explanation_shows_its_numbers(tmp_path) -> None:
    runs.write(tmp_path, found("node"), {})
    page = runs.read(tmp_path)[0]._repr_html_()
    assert page.startswith("<table>")
    assert f"<td>{math.floor(1000 * found('node')[0].pns) / 1000:.3f}</td>" in page
    assert f"<td>{wording.plural(int(found('node')[0].hard_edge_mask.sum()), 'directed edge')}</td>" in page
