"""The studio: answers equal direct calls of the model; only its own page is answered; nothing is lost or mixed up."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from zoo import GRAPH_CONFIG, NODE_MODELS, explainer, graph, quick, seeded

import nseg
from nseg import InputError, ModelError, NsegWarning
from nseg.live.edits import GraphEdits, changed_inputs
from nseg.live.explanation_view import kept_pairs
from nseg.live.launch import Studio, make_studio
from nseg.live.neighbourhood import Neighbourhoods
from nseg.live.plain_questions import GraphQuestions
from nseg.live.session import BUNDLE, page, replay
from nseg.live.subject import StudioSubject
from nseg.live.work import Stopped, Work

pytest.importorskip("nseg.live.server", reason="the extra 'studio' is not installed", exc_type=ImportError)
CHROMIUM = shutil.which("chromium")


class Failing(nn.Module):
    """A model of graphs that fails without edges, and hangs for a while if asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.delay = 0.0

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        time.sleep(self.delay)
        if edge_index.size(1) == 0:
            raise RuntimeError("there must be an edge")
        number = torch.tensor([[float(edge_index.size(1))]])
        return torch.cat([self.weight * number, number * 0 + 7], 1)


def node_case() -> tuple[Any, Data]:
    return explainer(seeded(NODE_MODELS["gcn"]), quick(steps=20), edge_mask_type="object"), graph()


def undirected_pairs(data: Data) -> list[tuple[int, int]]:
    return sorted({(min(a, b), max(a, b)) for a, b in data.edge_index.T.tolist() if a != b})


@pytest.fixture
def running() -> Iterator[Studio]:
    studio = make_studio(*node_case()).start()
    wait_for(studio)
    yield studio
    studio.stop()


def wait_for(studio: Studio) -> None:
    for _ in range(400):
        if studio.server.started:
            return
        time.sleep(0.05)
    raise AssertionError("the studio did not start")


def ask(address: str, name: str, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status and answer of a question."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request("POST", parts.path + name, content, headers)
    response = connection.getresponse()
    found = json.loads(response.read())
    connection.close()
    return response.status, found


# --- questions -----------------------------------------------------------------------------------------------------------


def test_every_answer_is_that_of_the_model_on_the_changed_graph() -> None:
    explain, data = node_case()
    asked = GraphQuestions(explain, data, 3)
    a, b = next(pair for pair in undirected_pairs(data) if 3 in pair)
    keep = [set(ends) != {a, b} for ends in data.edge_index.T.tolist()]
    x = data.x.clone()
    x[1] = 0
    x[2, 0] = 5
    far = next(n for n in range(data.num_nodes) if (3, n) not in map(tuple, data.edge_index.T.tolist()) and n != 3)
    edges = torch.cat([data.edge_index[:, keep], torch.tensor([[3, far], [far, 3]])], 1)
    edits = GraphEdits(frozenset({(a, b)}), frozenset({(min(3, far), max(3, far))}), frozenset({1}), {(2, 0): 5.0})
    with torch.no_grad():
        expected = explain.model.eval()(x, edges)[3].softmax(-1)
    assert asked.predict(edits).probabilities == pytest.approx(expected.tolist(), abs=1e-6)
    assert GraphEdits.from_plain(json.loads(json.dumps(edits.to_plain()))) == edits


def test_no_change_changes_nothing() -> None:
    explain, data = node_case()
    asked = GraphQuestions(explain, data, 0)
    same = changed_inputs(asked.inputs, GraphEdits())
    assert torch.equal(same.x, data.x)
    assert torch.equal(same.edge_index, data.edge_index)


def test_the_smallest_change_changes_the_class() -> None:
    model = Failing()
    data = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]]))
    asked = GraphQuestions(explainer(model, quick(steps=5), GRAPH_CONFIG, edge_mask_type="object"), data, 0)
    assert asked.predict(GraphEdits()).predicted == 0  # eight edges are more than seven
    edits, words = asked.smallest_change(GraphEdits())
    assert (len(edits.removed), asked.predict(edits).predicted) == (1, 1)
    assert words.startswith("Remove the edge")
    assert "No smaller set" in words
    with pytest.raises(InputError, match="to must differ from what the model says now"):
        asked.smallest_change(GraphEdits(), target=0)
    with pytest.raises(InputError, match="to must be a class of the model"):
        asked.smallest_change(GraphEdits(), target=5)
    back, words = asked.smallest_change(edits, target=0)  # what was removed can be put back
    assert (back, words.split(" and ")[0]) == (GraphEdits(), f"Put back the edge {' - '.join(map(str, *edits.removed))}")
    path = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    shorter = GraphQuestions(asked.explainer, path, 0)
    longer, words = shorter.smallest_change(GraphEdits(), target=0, new=[(0, 3)])
    assert (longer, words[:18]) == (GraphEdits(added=frozenset({(0, 3)})), "Add the edge 0 - 3")
    everything = GraphEdits(removed=frozenset(undirected_pairs(data)))
    with pytest.raises(ModelError, match="there must be an edge"):
        asked.predict(everything)


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"removed": [[1]]}, "Changes must be lists"),
        ([], "Changes must be lists"),
        ({"hidden": [-1]}, "Changes must be lists"),
        ({"hidden": [True]}, "Changes must be lists"),
        ({"values": [[0, 0, "much"]]}, "Changes must be lists"),
        ({"hidden": list(range(10_001))}, "At most 10000 changes"),
    ],
)
def test_bad_changes_get_a_sentence(plain: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        GraphEdits.from_plain(plain)


# --- the server ----------------------------------------------------------------------------------------------------------


def test_only_the_own_page_with_the_token_is_answered(running: Studio) -> None:
    host = urlsplit(running.address).netloc
    good = {"output": 0, "edits": {}}
    assert ask(running.address, "predict", good)[0] == 200
    assert ask(running.address, "predict", good, Origin=f"http://{host}")[0] == 200
    assert ask(f"http://{host}/wrong/", "predict", good) == (
        403,
        {"error": "The token in the address is wrong. Open the address that nseg studio printed."},
    )
    assert ask(running.address, "predict", good, Origin="http://example.org")[0] == 403
    assert ask(running.address, "predict", good, Host="example.org")[0] == 403
    assert ask(running.address, "predict", b"x" * (1 << 20 | 1))[0] == 413
    assert ask(running.address, "predict", b"{")[0] == 400
    status, found = ask(running.address, "predict", {"output": 10**6})
    assert (status, "output must be between" in found["error"]) == (422, True)


def test_answers_over_the_wire_equal_those_in_python(running: Studio) -> None:
    explain, data = node_case()
    asked = GraphQuestions(explain, data, 2)
    pair = next(one for one in undirected_pairs(data) if 2 in one)
    edits = GraphEdits(removed=frozenset({pair}))
    says = asked.predict(edits)
    body = {"output": 2, "edits": edits.to_plain()}
    expected = {"predicted": says.predicted, "probabilities": list(says.probabilities)}
    assert ask(running.address, "predict", body) == (200, expected)
    status, found = ask(running.address, "explain", body)
    own = asked.explain(edits)
    assert (status, found["kept"], found["pns"]) == (200, kept_pairs(own), pytest.approx(float(own.pns)))
    status, view = ask(running.address, "view", {"output": 2})
    assert (status, view["target"], view["probabilities"]) == (
        200,
        2,
        list(asked.predict(GraphEdits()).probabilities),
    )


@pytest.mark.parametrize("actions", [25, pytest.param(100, marks=pytest.mark.slow)])
def test_twenty_clients_get_their_own_answers(running: Studio, actions: int) -> None:
    explain, data = node_case()
    pairs = undirected_pairs(data)

    def client(number: int) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        found = []
        for action in range(actions):
            removed = [list(pairs[(number + action * k) % len(pairs)]) for k in range(3)]
            body = {"output": (number + action) % data.num_nodes, "edits": {"removed": removed}}
            status, answer = ask(running.address, "predict", body)
            assert status == 200
            found.append((body, answer))
        return found

    with ThreadPoolExecutor(20) as pool:
        everything = [one for some in pool.map(client, range(20)) for one in some]
    assert len(everything) == 20 * actions
    known: dict[str, list[float]] = {}
    for body, answer in everything:
        key = json.dumps(body)
        if key not in known:
            says = GraphQuestions(explain, data, body["output"]).predict(GraphEdits.from_plain(body["edits"]))
            known[key] = list(says.probabilities)
        assert answer["probabilities"] == known[key]


def test_a_model_that_raises_or_hangs_gives_a_message_and_the_server_lives() -> None:
    model = Failing()
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    explain = explainer(model, quick(steps=5), GRAPH_CONFIG, edge_mask_type="object")
    studio = make_studio(explain, [data], patience=1.0).start()
    wait_for(studio)
    try:
        status, found = ask(studio.address, "predict", {"edits": {"removed": [[0, 1], [1, 2]]}})
        assert (status, "there must be an edge" in found["error"]) == (422, True)
        model.delay = 2.5
        status, found = ask(studio.address, "predict", {})
        assert (status, "has not answered within 1 seconds" in found["error"]) == (503, True)
        model.delay = 0.0
        time.sleep(2)
        assert ask(studio.address, "predict", {})[0] == 200
    finally:
        studio.stop()


def test_a_port_in_use_and_wrong_data_get_a_sentence() -> None:
    explain, data = node_case()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="The port must be free"):
            make_studio(explain, data, port=taken.getsockname()[1])
    with pytest.raises(InputError, match="must get an Explainer"):
        make_studio(explain.model, data)
    with pytest.raises(InputError, match="must get one graph"):
        make_studio(explain, [data])


def test_a_browser_that_is_not_there_gets_a_sentence(monkeypatch) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    with pytest.warns(NsegWarning, match=r"No browser was found\. Open http://127\.0\.0\.1:\d+/.* by hand"):
        nseg.studio(*node_case()).stop()


def test_a_studio_that_was_stopped_starts_again_at_the_same_address() -> None:
    first = make_studio(*node_case(), token="secret").start()
    wait_for(first)
    port = urlsplit(first.address).port
    body = {"output": 1, "edits": {}}
    before = ask(first.address, "predict", body)
    first.stop()
    with pytest.raises(OSError, match=r"refused|reset"):
        ask(first.address, "predict", body)
    second = make_studio(*node_case(), token="secret", port=port or 0).start()
    wait_for(second)
    try:
        assert second.address == first.address
        assert ask(second.address, "predict", body) == before
    finally:
        second.stop()


def test_the_page_is_built_from_its_sources_parses_no_markup_and_asks_only_its_server() -> None:
    web, bundle = Path(BUNDLE.parent / "web"), BUNDLE / "studio.js"
    code = [f"{folder}/{path.name}" for folder in ("src", "studio") for path in (web / folder).iterdir()]
    digest = hashlib.sha256()
    for name in sorted([*code, "build.mjs", "package-lock.json"]):
        digest.update(name.encode() + b"\0" + (web / name).read_bytes() + b"\0")
    assert f"sources {digest.hexdigest()}\n" in bundle.read_text(), "run: make page"
    text = "".join(path.read_text() for path in (web / "studio").iterdir())
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|eval\(", text)
    assert re.findall(r"fetch\((.*?),", text) == ["name"]
    asked = set(re.findall(r'(?:ask|askSlowly|post)<.*>\("(\w+)"', text))
    assert asked == {"view", "predict", "explain", "change", "features", "replay", "save", "progress"}


# --- progress, cancelling, features, sessions ----------------------------------------------------------------------------


def test_a_withdrawn_question_ends_the_work_and_leaves_nothing_on_the_model() -> None:
    explain, data = node_case()
    asked, work = GraphQuestions(explain, data, 3), Work()
    work.stop.set()
    for question in (asked.explain, asked.smallest_change):
        with pytest.raises(Stopped):
            question(GraphEdits(), work=work)
    assert not explain.model._forward_pre_hooks
    seen = Work()
    asked.explain(GraphEdits(), seen)
    assert seen.share == 1
    assert seen.asked > 1
    assert not explain.model._forward_pre_hooks


def test_a_person_who_moves_on_does_not_wait_for_the_old_question() -> None:
    model = Failing()
    data = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]]))
    studio = make_studio(explainer(model, quick(steps=500), GRAPH_CONFIG, edge_mask_type="object"), [data]).start()
    wait_for(studio)
    parts = urlsplit(studio.address)
    try:
        model.delay = 0.1
        left = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        left.request("POST", parts.path + "explain", json.dumps({"ticket": "mine"}).encode())
        for _ in range(100):
            if ask(studio.address, "progress", {"ticket": "mine"})[1].get("asked", 0) > 1:
                break
            time.sleep(0.05)
        else:
            raise AssertionError("no progress was told")
        assert left.sock is not None
        left.sock.close()
        left.close()
        began = time.perf_counter()
        assert ask(studio.address, "predict", {})[0] == 200
        assert time.perf_counter() - began < 5  # the explanation would take minutes
        assert ask(studio.address, "progress", {"ticket": "mine"}) == (200, {})
    finally:
        studio.stop()


def test_features_are_shown_with_names_and_change_what_the_model_says(running: Studio) -> None:
    explain, data = node_case()
    values = data.x[2].tolist()
    status, found = ask(running.address, "features", {"output": 2, "node": 2, "edits": {"values": [[2, 1, 7.5]]}})
    expected = [[n, f"feature {n}", 7.5 if n == 1 else pytest.approx(v), pytest.approx(v)] for n, v in enumerate(values)]
    assert (status, found["features"]) == (200, expected)
    hidden = GraphQuestions(explain, data, 2).features(2, GraphEdits(hidden=frozenset({2}), values={(2, 0): 3.0}))
    assert [now for _, _, now, _ in hidden] == [3.0] + [0.0] * (len(values) - 1)
    changed, words = GraphQuestions(explain, data, 2).smallest_change(GraphEdits(), features=True)
    if changed is not None:
        asked = GraphQuestions(explain, data, 2)
        assert asked.predict(changed).predicted != asked.predict(GraphEdits()).predicted
    assert words


def test_a_saved_session_reproduces_its_numbers(running: Studio) -> None:
    explain, data = node_case()
    pair = next(one for one in undirected_pairs(data) if 2 in one)
    edits = [GraphEdits(), GraphEdits(removed=frozenset({pair})), GraphEdits(values={(2, 0): 2.0})]
    asked = [{"output": 2, "edits": one.to_plain()} for one in edits]
    steps = [{"edits": one["edits"]} | ask(running.address, "predict", one)[1] for one in asked]
    steps[1]["explanation"] = ask(running.address, "explain", {"output": 2, "edits": edits[1].to_plain()})[1]
    session = json.loads(json.dumps({"nseg": "studio", "output": 2, "step": 1, "steps": steps}))
    again = replay(StudioSubject.of(explain, data), session)
    assert again["steps"] == steps
    assert (again["output"], again["step"], again["differs"]) == (2, 1, [])
    assert ask(running.address, "replay", {"session": session}) == (200, again)
    session["steps"][2]["probabilities"][0] += 0.1
    assert replay(StudioSubject.of(explain, data), session)["differs"] == [2]
    status, saved = ask(running.address, "save", {"session": session})
    assert status == 200
    assert "connect-src" not in saved["html"]
    stored = json.loads(re.search(r'id="recorded">(.*?)</script>', saved["html"])[1])
    assert stored["session"]["steps"] == again["steps"]
    for wrong in (None, [], {"nseg": "studio"}, session | {"step": 9}, session | {"steps": [1]}, session | {"nseg": "x"}):
        status, found = ask(running.address, "replay", {"session": wrong})
        assert (status, "file that the studio saved" in found["error"]) == (422, True)


def test_texts_of_a_session_cannot_leave_its_page() -> None:
    html, _ = page({"view": {}, "session": {"words": "</script><script>alert(1)</script>"}})
    assert html.count("</script>") == 2


def test_only_the_neighbourhood_of_a_large_graph_is_asked_and_answers_are_those_of_the_whole(monkeypatch) -> None:
    explain, data = node_case()
    far = torch.arange(data.num_nodes, data.num_nodes + 200)
    path = torch.stack([far[:-1], far[1:]])
    joined = torch.tensor([[0, data.num_nodes], [data.num_nodes, 0]])
    x = torch.cat([data.x, torch.randn(200, data.x.size(1), generator=torch.Generator().manual_seed(0))])
    large = Data(x=x, edge_index=torch.cat([data.edge_index, path, path.flip(0), joined], 1))
    monkeypatch.setattr("nseg.live.subject.MOST_EDGES", 100)
    subject = StudioSubject.of(explain, large, node_names=[f"n{k}" for k in range(large.num_nodes)])
    end = large.num_nodes - 1
    assert isinstance(subject.large, Neighbourhoods)
    asked, whole = subject.questions(end), GraphQuestions(explain, large, end)
    assert asked.inputs.num_nodes < 20 < whole.inputs.num_nodes
    for edits in (
        GraphEdits(),
        GraphEdits(removed=frozenset({(end - 1, end)})),
        GraphEdits(added=frozenset({(1, end)}), values={(end, 0): 4.0}),  # brings the surroundings of node 1
    ):
        assert asked.predict(edits).probabilities == pytest.approx(whole.predict(edits).probabilities, abs=1e-5)
    view = subject.view(end)
    assert (view["target"], view["cut"][0], [end - 1, end] in [list(pair) for pair in view["edges"]]) == (
        end,
        asked.inputs.num_nodes,
        True,
    )
    assert all(end - 20 < a and b <= end for a, b in kept_pairs(asked.explain(GraphEdits())))
    changed, words = asked.smallest_change(GraphEdits())
    assert changed is None or whole.predict(changed).predicted != whole.predict(GraphEdits()).predicted
    assert changed is None or f"n{end}" in words


# --- the page ------------------------------------------------------------------------------------------------------------


browser_needed = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt install chromium)")


@contextmanager
def opened(address: str, *looks: dict[str, Any]) -> Iterator[list[Any]]:
    """The studio in some tabs of a browser; nothing may go wrong on any of them."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    wrong: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        pages = [browser.new_page(**look) for look in looks]
        for one in pages:
            one.set_default_timeout(60_000)
            one.on("pageerror", lambda error: wrong.append(str(error)))
            one.goto(address)
            one.wait_for_selector("#says")
        yield pages
        browser.close()
    assert wrong == []


def check_shown(page: Any, edits: GraphEdits) -> None:
    """The page must show, after a while, what a direct call of the model gives."""
    expected = [pytest.approx(p, abs=6e-4) for p in GraphQuestions(*node_case(), 0).predict(edits).probabilities]
    shown: list[float] = []
    for _ in range(600):  # a busy machine takes seconds
        page.wait_for_timeout(50)
        shown = [float(text or "nan") for text in page.locator("#probabilities td:nth-child(2)").all_inner_texts()]
        if shown == expected:
            return
    assert shown == expected


PAIR = next(one for one in undirected_pairs(node_case()[1]) if 0 in one)
WITHOUT = GraphEdits(removed=frozenset({PAIR}))
LARGE, SMALL = ({"viewport": {"width": width, "height": 900}} for width in (1100, 390))
DARK = {"color_scheme": "dark"}


@browser_needed
def test_a_person_clicks_and_sees_what_the_model_says(running: Studio) -> None:
    with opened(running.address, SMALL, DARK) as (page, other):
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        edge = page.get_by_role("checkbox", name=f"edge {PAIR[0]} - {PAIR[1]}", exact=True)
        edge.focus()
        page.keyboard.press("Enter")  # the keyboard does what a click does
        check_shown(page, WITHOUT)
        assert edge.get_attribute("aria-checked") == "false"
        page.keyboard.press("ArrowRight")  # arrow keys move within the drawing, which is one stop of the tabulator
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") != edge.get_attribute("aria-label")
        assert page.locator("svg g[tabindex='0']").count() == 1
        check_shown(other, GraphEdits())  # two tabs do not disturb each other
        page.get_by_role("button", name="Undo").click()
        check_shown(page, GraphEdits())
        page.get_by_role("button", name="Redo").click()
        check_shown(page, WITHOUT)
        page.get_by_role("button", name="Explain this").click()
        page.get_by_text("The explanation keeps").wait_for()
        kept = kept_pairs(GraphQuestions(*node_case(), 0).explain(WITHOUT))
        assert page.locator("line.kept").count() == len([one for one in kept if one[0] != one[1]])
        page.get_by_role("button", name="Smallest change").click()
        page.locator("#message", has_text=re.compile("and the model says|Nothing found")).wait_for()
        says = page.locator("#probabilities tr.best th").inner_text()
        assert page.locator("#target option:disabled").inner_text() == says  # one asks why not another class
        assert page.evaluate("document.querySelector('#target').selectedOptions[0].textContent") != says


@browser_needed
def test_a_molecule_has_bonds_that_go_and_come_back() -> None:
    """Cyclopropanone: its double bond is two lines. The model says class 0 while there are more than seven edges."""
    pytest.importorskip("rdkit")
    edges = torch.tensor([[0, 1, 1, 2, 1, 3, 0, 3], [1, 0, 2, 1, 3, 1, 3, 0]])
    graph = Data(x=torch.ones(4, 2), edge_index=edges, smiles="C1C(=O)C1")
    star = torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]])
    methane = Data(x=torch.ones(5, 2), edge_index=torch.cat([star, star.flip(0)], 1), smiles="C")
    case = explainer(Failing(), quick(steps=5), GRAPH_CONFIG, edge_mask_type="object"), [graph, methane]
    studio = make_studio(*case).start()
    wait_for(studio)
    with opened(studio.address, LARGE) as (page,):
        double = page.get_by_role("checkbox", name="bond C1 - O2", exact=True)
        assert double.locator("line.edge").count() == 2
        double.focus()
        page.keyboard.press("Enter")
        page.locator("#says", has_text=re.compile(r"class 1 \(p .*\), and not class 0")).wait_for()
        page.get_by_role("button", name="Why not this class?").click()
        page.locator("#message", has_text="Put back the bond C1 - O2 and the model says class 0").wait_for()
        assert double.get_attribute("aria-checked") == "true"
        page.get_by_role("button", name="Undo").click()
        page.locator("#message", has_not_text="Put back").wait_for(state="attached")  # it was about another step
        page.get_by_text("Steps (2)").click()
        assert "bond C1 - O2 on" in page.locator(".session-steps").inner_text()
        assert page.locator("#hydrogens").is_hidden()
        page.get_by_role("button", name="Next").click()
        page.get_by_role("checkbox", name="atom H4", exact=True).click()
        page.locator("#hydrogens").uncheck()
        assert page.locator("svg g[aria-label^='atom']").count() == 2  # those to which nothing was done are left out
    studio.stop()


@browser_needed
def test_features_are_changed_and_a_session_is_saved_and_opened(running: Studio, tmp_path: Path) -> None:
    with opened(running.address, LARGE, DARK) as (page, other):
        check_shown(page, GraphEdits())  # the first answer is there before anything is typed
        page.get_by_label("Node whose features are shown").select_option("0")
        value = page.get_by_label("value of feature 1", exact=True)
        value.fill("3.5")
        value.press("Enter")
        more, off = GraphEdits(values={(0, 1): 3.5}), GraphEdits(values={(0, 1): 0.0})
        check_shown(page, more)
        page.get_by_label("feature 1 on", exact=True).uncheck()
        check_shown(page, off)
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as a page").click()
        with page.expect_download() as stored:
            page.get_by_role("button", name="Save as JSON").click()
        page.get_by_role("button", name="Start again").click()
        check_shown(page, GraphEdits())
        page.locator("#file").set_input_files(stored.value.path())
        page.get_by_text("The model answers as it did when the session was saved").wait_for()
        check_shown(page, off)
        saved.value.save_as(tmp_path / "session.html")
        other.goto((tmp_path / "session.html").as_uri())  # the page needs no server
        check_shown(other, off)
        other.get_by_role("button", name="Undo").click()
        check_shown(other, more)


@browser_needed
def test_what_goes_wrong_is_said_on_the_page_and_the_page_goes_on() -> None:
    model = Failing()
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    case = explainer(model, quick(steps=5), GRAPH_CONFIG, edge_mask_type="object"), [data]
    studio = make_studio(*case, patience=1.0, token="secret").start()
    wait_for(studio)
    host, port = urlsplit(studio.address).netloc, urlsplit(studio.address).port

    def press(name: str) -> None:
        page.get_by_role("checkbox", name=name, exact=True).focus()
        page.keyboard.press("Enter")

    def wait_to_read(text: str, where: str = "#message") -> None:
        page.locator(where, has_text=text).wait_for()

    with opened(studio.address, LARGE) as (page,):
        press("edge 0 - 1")
        wait_to_read("The model says class 1", "#says")
        press("edge 1 - 2")  # a model that raises
        wait_to_read("there must be an edge")
        wait_to_read("The model has not answered.", "#says")
        press("edge 1 - 2")
        wait_to_read("The model says class 1", "#says")
        model.delay = 2.0  # a model that hangs
        press("edge 0 - 1")
        wait_to_read("has not answered within 1 seconds")
        model.delay = 0.0
        page.wait_for_timeout(1500)
        page.get_by_role("button", name="Undo").click()
        press("node 2")
        wait_to_read("The model says class 1", "#says")
        studio.stop()
        press("node 2")
        wait_to_read("The studio does not answer")
        again = make_studio(*case, token="secret", port=port or 0).start()
        wait_for(again)
        press("node 1")  # the page goes on where it was
        wait_to_read("The model says class 1", "#says")
        assert page.get_by_role("checkbox", name="edge 0 - 1", exact=True).get_attribute("aria-checked") == "false"
        page.goto(f"http://{host}/wrong/")
        assert "The token in the address is wrong" in page.content()
        again.stop()
