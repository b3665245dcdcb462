"""The report: the data in the page, and its safety. test_report_browser.py tests the page in a browser."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation, GNNExplainer
from torch_geometric.nn import GCNConv
from zoo import GRAPH_CONFIG, LINK_CONFIG, NODE_MODELS, Link, Stack, explainer, graph, quick, seeded

import nseg
from nseg import InputError, baselines, certify, datasets, explain_many, metrics, models, runs
from nseg.metrics import Evaluator
from nseg.plot import worlds_of
from nseg.reports.page import HERE
from nseg.reports.ranking import ranking_thresholds
from nseg.wording import kept_parts

MASKS = {
    "e": {"edge_mask_type": "object"},
    "f": {"node_mask_type": "object"},
    "ef": {"edge_mask_type": "object", "node_mask_type": "object"},
    "features of nodes": {"edge_mask_type": "object", "node_mask_type": "attributes"},
    "features": {"node_mask_type": "common_attributes"},
}
HARM = "</script><script>document.title='harmed'</script><img src=x onerror=alert(1)>&amp;'\"\u2028"


def payload(path: Path) -> dict[str, Any]:
    """The data in a written page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1], parse_constant=pytest.fail)


def small(masks: str = "e", kind: str = "undirected", **settings: Any) -> tuple[Explainer, Data, list[Explanation]]:
    explain, data = explainer(seeded(NODE_MODELS["gcn"]), quick(steps=6, **settings), **MASKS[masks]), graph(kind=kind)
    return explain, data, explain_many(explain, data, [3, 5, 11])


def masked_output(explain: Explainer, data: Data, one: Explanation, masks: dict[str, torch.Tensor]) -> torch.Tensor:
    """PyG's own prediction for an explained node under the masks of its explanation, on the whole graph."""
    edge = node = None
    if "edges" in masks:
        edge = torch.ones(data.num_edges).index_copy(0, one.edge_id, masks["edges"])
    if "nodes" in masks:
        shared = masks["nodes"].size(0) == 1
        node = masks["nodes"] if shared else torch.ones(data.num_nodes, masks["nodes"].size(1))
        node = node if shared else node.index_copy(0, one.node_id, masks["nodes"])
    return explain.get_masked_prediction(data.x, data.edge_index, node, edge)[one.output_id]


# --- numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masks", MASKS)
def test_every_threshold_has_the_outputs_of_the_model(tmp_path: Path, masks: str) -> None:
    explain, data, found = small(masks)
    page = payload(nseg.report(found, tmp_path / "why.html", data=data, explainer=explain))
    evaluator, most = Evaluator(explain, data, found), 0
    (method,) = page["methods"]
    for b, instance in enumerate(page["instances"]):
        stops, soft = instance["answers"][0]["stops"], evaluator.masks("soft")[b]
        levels = ranking_thresholds(
            torch.cat([m[evaluator.reached[b]] if part == "edges" else m.flatten() for part, m in soft.items()])
        )
        assert len(levels) == len(stops["least"]) == len(stops["worlds"]) <= 20
        for least, stop in zip(levels, stops["worlds"], strict=True):
            kept = {part: (mask >= least).float() for part, mask in soft.items()}
            worlds = [kept, {part: 1 - mask for part, mask in kept.items()}]
            output = torch.stack([masked_output(explain, data, found[b], world) for world in worlds])
            p = output.softmax(-1)[:, instance["target"]]
            assert stop["p"][:2] == pytest.approx(p.tolist(), abs=1e-4)
            assert stop["label"][:2] == output.argmax(-1).tolist()
            assert len(stop["p"]) == 1 + len(method["split"])
        most = max(most, len(levels))
    assert most > 3  # the test is not trivial


def test_the_worlds_of_an_explanation_are_those_of_its_picture(tmp_path: Path) -> None:
    explain, data, found = small("ef")
    page = payload(nseg.report(found, tmp_path / "why.html", data=data, explainer=explain))
    for instance, worlds in zip(page["instances"], worlds_of(explain, data, found), strict=True):
        assert [w.event for w in worlds] == ["11", "00", "01", "10"]
        assert instance["answers"][0]["worlds"]["p"] == pytest.approx([w.probability for w in worlds], abs=1e-4)
    assert sum(page["methods"][0]["split"]) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", ["undirected", "directed", "loops", "duplicates"])
@pytest.mark.parametrize("undirected", [False, True])
def test_lines_hold_the_edges_between_their_ends_in_each_direction(tmp_path: Path, kind: str, undirected: bool) -> None:
    explain, data, found = small(kind=kind, undirected=undirected)
    page = payload(nseg.report(found, tmp_path / "why.html", data=data, explainer=explain))
    for one, instance in zip(found, page["instances"], strict=True):
        drawn, (answer,) = instance["graph"], instance["answers"]
        ends = [(drawn["node"][s], drawn["node"][e]) for s, e in zip(drawn["source"], drawn["end"], strict=True)]
        assert len(set(map(frozenset, ends))) == len(ends)
        weights, unreached, hard = {}, {}, {}
        for edge, (u, v) in enumerate(one.node_id[one.edge_index].T.tolist()):
            some = weights if one.reached[edge] else unreached
            some[u, v] = max(some.get((u, v), 0.0), float(one.edge_mask[edge]))
            if one.reached[edge]:
                hard[u, v] = hard.get((u, v), False) or bool(one.hard_edge_mask[edge])
        assert {frozenset(way) for way in weights} == set(map(frozenset, ends))
        back = answer["back"] or answer["lines"]
        for line, (u, v) in enumerate(ends):
            for way, marks in (((u, v), answer["lines"]), ((v, u), back)):
                if way in weights:
                    assert marks["weight"][line] == pytest.approx(1000 * weights[way], abs=0.51)
                    assert (line in marks["kept"]) == hard[way]
                elif answer["back"] is not None and unreached.get(way) != weights[way[::-1]]:
                    assert marks["weight"][line] == -1
                    assert int(marks["stay"][line], 36) == len(answer["stops"]["least"])  # never
        ways = {"undirected": frozenset, "each": tuple}["undirected" if undirected else "each"]
        if kind != "duplicates":  # else several edges lie on a line in one direction, and each counts
            assert answer["size"][0] == len({ways(way) for way, is_kept in hard.items() if is_kept})
            assert answer["of"][0] == len({ways(way) for way in weights})
        (size,) = kept_parts(one)
        assert (answer["size"][0], answer["of"][0]) == (size.kept, size.total)
        assert answer["directed"] == (
            not undirected and any(way[::-1] in {*weights, *unreached} for way in weights if way[0] != way[1])
        )


def test_lines_are_kept_from_the_first_threshold_below_their_weight(tmp_path: Path) -> None:
    _, data, found = small("ef", undirected=True)
    page = payload(nseg.report(found, tmp_path / "why.html", data=data))
    for one, instance in zip(found, page["instances"], strict=True):
        (answer,) = instance["answers"]
        edge, node = one.edge_mask[one.reached], one.node_mask.flatten()
        levels = torch.tensor(ranking_thresholds(torch.cat([edge, node])))
        for cut, (size, least) in enumerate(zip(answer["stops"]["size"], levels, strict=True)):
            assert size[0] == sum(int(stay, 36) <= cut for stay in answer["lines"]["stay"])
            ways = one.edge_index[:, one.reached][:, edge >= least]
            assert size[0] == torch.unique(ways.sort(0).values, dim=1).size(1)
            shown = torch.isin(one.node_id, torch.tensor(instance["graph"]["node"]))
            assert size[1] == int((one.node_mask[shown] >= least).sum())
        assert answer["stops"]["size"][-1] == answer["of"]


def test_thresholds_go_from_nothing_to_everything_and_include_one_half() -> None:
    rng = torch.Generator().manual_seed(0)
    for size in (0, 1, 5, 19, 20, 300, 5000):
        weights = torch.rand(size, generator=rng)
        found = ranking_thresholds(weights)
        counts = [int((weights >= least).sum()) for least in found]
        assert counts[0] == 0
        assert counts[-1] == size
        assert counts == sorted(set(counts))
        assert len(found) <= 20
        assert int((weights > 0.5).sum()) in counts


def test_without_a_model_the_page_has_the_explanations_own_numbers(tmp_path: Path) -> None:
    explain, data, found = small()
    page = payload(nseg.report(found, tmp_path / "why.html"))
    with_model = payload(nseg.report(found, tmp_path / "with_model.html", data=data, explainer=explain))
    for one, alone, other in zip(found, page["instances"], with_model["instances"], strict=True):
        (answer,) = alone["answers"]
        assert answer["worlds"] is answer["stops"]["worlds"] is None
        assert answer["pns"] == pytest.approx(one.pns, abs=1e-4)
        assert alone["label"] is None
        assert other["label"] == int(data.y[one.output_id])
        assert (alone["predicted"], alone["target"]) == (other["predicted"], other["target"])
        assert alone["p"] == pytest.approx(other["p"], abs=1e-4)
        for name in ("p_factual", "p_complement", "pns", "pn", "ps", "lines", "back", "size"):
            assert answer[name] == other["answers"][0][name]
        assert alone["graph"]["x"] == other["graph"]["x"]


def test_explanations_of_any_method_and_from_a_disk_are_shown(tmp_path: Path) -> None:
    explain, data, found = small()
    other = explain_many(explainer(explain.model, GNNExplainer(epochs=5)), data, [5, 3])
    assert "hard_edge_mask" not in other[0]
    page = payload(nseg.report({"ours": found, "theirs": other}, tmp_path / "a.html", data=data, explainer=explain))
    assert [m["name"] for m in page["methods"]] == ["ours", "theirs"]
    assert [[a is not None for a in i["answers"]] for i in page["instances"]] == [[True, True], [True, True], [True, False]]
    evaluator = Evaluator(explain, data, other)
    for b, one in enumerate(other):
        answer = next(i for i in page["instances"] if i["id"] == one.output_id)["answers"][1]
        p = evaluator.worlds(evaluator.masks(0.5))[:, b].softmax(-1)[:, int(evaluator.target[b])].tolist()
        assert [answer["p_factual"], answer["p_complement"]] == pytest.approx(p, abs=1e-4)
        assert answer["pns"] == pytest.approx(max(0, p[0] - p[1]), abs=2e-4)
    runs.write(tmp_path, found, {})
    stored = nseg.report({"ours": runs.read(tmp_path)}, tmp_path / "b.html", data=data, explainer=explain)
    for one, again in zip(page["instances"], payload(stored)["instances"], strict=True):
        known = {**again["answers"][0], "exact": one["answers"][0]["exact"]}  # the store does not keep it
        assert known == one["answers"][0]
        assert {k: v for k, v in again.items() if k != "answers"} == {k: v for k, v in one.items() if k != "answers"}


def test_a_single_explanation_of_pygs_explainer_is_a_report_too(tmp_path: Path) -> None:
    explain, data, _ = small()
    one = explain(data.x, data.edge_index, index=7)
    page = payload(nseg.report(one, tmp_path / "why.html", data=data, explainer=explain))
    assert [i["id"] for i in page["instances"]] == [7]
    assert page["methods"][0]["name"] == "NSEG"


def test_links_graphs_and_graphs_without_edges(tmp_path: Path) -> None:
    data = graph()
    data.edge_label_index = torch.tensor([[0, 3, 7], [2, 9, 11]])
    explain = explainer(seeded(Link), quick(steps=4), LINK_CONFIG)
    page = payload(nseg.report(explain_many(explain, data, [2, 0]), tmp_path / "link.html", data=data, explainer=explain))
    assert page["level"] == "edge"
    assert [[i["graph"]["node"][n] for n in i["graph"]["target"]] for i in page["instances"]] == [[7, 11], [0, 2]]
    graphs = [graph(6, 8, seed) for seed in range(3)] + [graph(4, 3, kind="empty")]
    for number, one in enumerate(graphs):
        one.y = torch.tensor([number % 3])
    model = seeded(lambda: Stack([GCNConv(4, 8), GCNConv(8, 8)], 8, "graph"))
    explain = explainer(model, quick(steps=4), GRAPH_CONFIG, **MASKS["ef"])
    found = explain_many(explain, graphs)
    page = payload(nseg.report(found, tmp_path / "graphs.html", data=graphs, explainer=explain))
    assert [i["label"] for i in page["instances"]] == [0, 1, 2, 0]
    assert page["instances"][3]["graph"]["source"] == []
    assert len(page["instances"][3]["graph"]["node"]) == 4


# --- a dataset -----------------------------------------------------------------------------------------------------------


def test_a_dataset_gives_names_and_ground_truth_and_fits_into_a_mail(tmp_path: Path) -> None:
    data, net = datasets.load("ba-shapes"), models.pretrained("ba-shapes", "gcn")
    explain = explainer(net, baselines.make("saliency"), data.model_config)
    found = explain_many(explain, data.graphs[0], data.instances[::49])  # all places in a house
    both = {"saliency": found, "chance": metrics.trivial(found, "random")}
    path = nseg.report(both, tmp_path / "why.html", data=data, explainer=explain)
    page, fixed = payload(path), sum((HERE / "bundle" / name).stat().st_size for name in ("page.js", "page.css"))
    assert fixed + 45 * (path.stat().st_size - fixed) < 5e6  # 400 instances, two methods
    assert page["classes"] == list(data.class_names)
    assert dict(page["facts"])["dataset"] == "ba-shapes"
    assert page["grouping"] == "predicted"
    predicted = net(data.graphs[0].x, data.graphs[0].edge_index).argmax(-1)
    for instance in page["instances"]:
        drawn, truth = instance["graph"], data.truth(instance["id"])
        shown = {frozenset((drawn["node"][drawn["source"][n]], drawn["node"][drawn["end"][n]])) for n in drawn["truth"]}
        motif = set(map(frozenset, data.graphs[0].edge_index[:, truth.edge].T.tolist()))
        assert shown <= motif
        assert len(motif) - len(shown) == drawn["truth_outside"]
        assert len(drawn["source"]) <= 600
        assert drawn["group"] == predicted[drawn["node"]].tolist()
        true_class = dict(drawn["mistaken"])
        shown_truth = [true_class.get(n, group) for n, group in enumerate(drawn["group"])]
        assert shown_truth == data.graphs[0].y[drawn["node"]].tolist()
    table = page["summary"]
    row = dict(zip((c["name"] for c in table["columns"]), table["rows"][0], strict=True))
    fidelity = Evaluator(explain, data.graphs[0], found).fidelity("hard")
    assert (row["Fid+"], row["sparsity"]) == (pytest.approx(fidelity.fid_plus), pytest.approx(fidelity.sparsity, abs=1e-4))
    curve = page["methods"][1]["curve"]
    assert curve["at"] == [t / 10 for t in range(1, 10)]
    evaluator = Evaluator(explain, data.graphs[0], both["chance"])
    assert curve["fid_minus"][4] == pytest.approx(evaluator.fidelity(0.5).fid_minus, abs=1e-4)


def test_certificates_tables_and_facts_of_the_caller_are_shown(tmp_path: Path) -> None:
    explain, data, found = small()
    proofs = certify(explain, data, found)
    table = {
        "columns": [{"name": "method"}, {"name": "PNS", "better": "higher"}],
        "rows": [["ours", {"value": 0.9, "paper": 0.8, "low": 0.85, "high": 0.95}], ["theirs", None]],
        "notes": ["of one seed"],
    }
    page = payload(
        nseg.report(
            found, tmp_path / "why.html", data=data, certificates=proofs, summary=table, facts={"weights": "w.pt", "seed": 3}
        )
    )
    assert [i["answers"][0]["words"] for i in page["instances"]] == [
        proof.words(f"class {proof.target}") for proof in proofs
    ]
    assert page["summary"]["rows"] == table["rows"]
    assert page["summary"]["notes"] == ["of one seed"]
    assert ["seed", "3"] in page["facts"]


# --- the file ------------------------------------------------------------------------------------------------------------


class _Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text[self.found[-1][0] if self.found else ""] = data


def test_texts_from_data_never_become_markup(tmp_path: Path) -> None:
    _, data, found = small()
    plain = nseg.report(found, tmp_path / "plain.html", data=data)
    path = nseg.report(
        {HARM: found},
        tmp_path / "harm.html",
        data=data,
        title=HARM,
        names=[f"{HARM}{n}" for n in range(data.num_nodes)],
        class_names=[HARM] * 3,
        facts={HARM: HARM},
        summary={"columns": [{"name": HARM, "help": HARM}], "rows": [[HARM]], "notes": [HARM]},
    )
    page, expected = _Elements(), _Elements()
    page.feed(path.read_text())
    expected.feed(plain.read_text())
    assert [tag for tag, _ in page.found] == [tag for tag, _ in expected.found]
    held = payload(path)
    assert held["title"] == held["methods"][0]["name"] == held["classes"][0] == held["summary"]["rows"][0][0] == HARM
    assert f"{HARM}3" in held["names"]


def test_the_content_security_policy_allows_only_the_page_itself(tmp_path: Path) -> None:
    path = nseg.report(small()[2], tmp_path / "why.html")
    page = _Elements()
    page.feed(path.read_text())
    policy = next(a["content"] or "" for tag, a in page.found if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for kind, name in (("script", "page.js"), ("style", "page.css")):
        digest = base64.b64encode(hashlib.sha256((HERE / "bundle" / name).read_bytes()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    for tag, attributes in page.found:
        assert all(not (attributes.get(name) or "data:").startswith(("http", "//")) for name in ("src", "href")), tag


def test_equal_input_gives_an_equal_file_whole_or_not_at_all(tmp_path: Path) -> None:
    explain, data, found = small()
    first = nseg.report(found, tmp_path / "a.html", data=data, explainer=explain).read_bytes()
    second = nseg.report(found, tmp_path / "b.html", data=data, explainer=explain).read_bytes()
    assert first == second
    with pytest.raises(TypeError):
        nseg.report(found, tmp_path / "a.html", summary={"columns": [{"name": "a"}], "rows": [[object()]]})
    assert (tmp_path / "a.html").read_bytes() == first
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_a_report_leaves_explanations_as_they_are(tmp_path: Path) -> None:
    explain, data, _ = small()
    found = explain_many(explainer(explain.model, GNNExplainer(epochs=2)), data, [3])
    before = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in found[0].items()}
    nseg.report(found, tmp_path / "why.html", data=data, explainer=explain)
    assert set(found[0].keys()) == set(before)
    assert all(torch.equal(v, before[k]) for k, v in found[0].items() if isinstance(v, torch.Tensor))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda found, data: (([],), {}), "Explanation objects for each method"),
        (lambda found, data: (({},), {}), "at least one explanation"),
        (lambda found, data: (([1],), {}), "Explanation objects for each method"),
        (lambda found, data: ((found + found[:1],), {}), "each output once per method .*output 3 twice"),
        (lambda found, data: ((found,), {"certificates": [1]}), "one for each explanation"),
        (lambda found, data: ((found,), {"summary": {"columns": [{"name": "a"}], "rows": [[1, 2]]}}), "a cell for each"),
        (lambda found, data: (([Explanation(output_id=3, node_id=0, edge_id=0)],), {}), "edge_mask or a node_mask"),
    ],
)
def test_bad_input_raises_an_error_with_a_remedy(tmp_path: Path, given: Any, message: str) -> None:
    _, data, found = small()
    arguments, options = given(found, data)
    with pytest.raises(InputError, match=message):
        nseg.report(*arguments, tmp_path / "why.html", **options)
    assert not list(tmp_path.iterdir())


def test_missing_input_raises_an_error_with_a_remedy(tmp_path: Path) -> None:
    explain, _, found = small()
    with pytest.raises(InputError, match=r"Pass data=\.\.\. as well"):
        nseg.report(found, tmp_path / "why.html", explainer=explain)
    for place in (tmp_path / "none" / "why.html", tmp_path):
        with pytest.raises(InputError, match="a file in a folder that can be written to"):
            nseg.report(found, place)
    runs.write(tmp_path, found, {})
    with pytest.raises(InputError, match="needs the graphs of its explanations"):
        nseg.report(runs.read(tmp_path), tmp_path / "why.html")


# --- the bundle ----------------------------------------------------------------------------------------------------------


def test_the_bundle_is_built_from_these_sources_and_not_edited() -> None:
    web = HERE / "web"
    names = sorted([*(f"src/{p.name}" for p in (web / "src").iterdir()), "build.mjs", "package-lock.json"])
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (web / name).read_bytes() + b"\0")
    for name in ("page.js", "page.css"):
        header, body = re.split(rb"(?<=\n\*/\n)", (HERE / "bundle" / name).read_bytes(), maxsplit=1)
        assert f"sources {digest.hexdigest()}\n" in header.decode(), "run: make page"
        assert f"body {hashlib.sha256(body).hexdigest()}\n" in header.decode()
    assert "The Cytoscape Consortium" in (HERE / "bundle" / "page.js").read_text()[:3000]


def test_the_pages_code_never_parses_markup_and_never_uses_the_network() -> None:
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc"
    network = r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|EventSource|import\(|eval\(|new Function"
    for path in (HERE / "web" / "src").glob("*.ts"):
        assert not re.search(f"{markup}|{network}", path.read_text()), path.name


def test_the_sources_build_to_the_bundle_and_pass_their_own_tests(tmp_path: Path) -> None:
    """Needs npm and its packages; the test of the hashes needs neither."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("npm is not installed; that the bundle is of these sources is tested by its hash")
    web = tmp_path / "web"
    shutil.copytree(HERE / "web", web, ignore=shutil.ignore_patterns("node_modules", ".tests"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=web, capture_output=True, text=True, check=False)

    got = run(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline")
    if got.returncode:
        pytest.skip(f"npm cannot get the packages ({got.stderr.strip()[-200:]}); the bundle is tested by its hash")
    for step in (("build.mjs",), ("build.mjs", "--tests"), ("--test", ".tests/")):
        done = run(node, *step)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 0" not in done.stdout
    for name in ("page.js", "page.css"):
        assert (tmp_path / "bundle" / name).read_bytes() == (HERE / "bundle" / name).read_bytes()
