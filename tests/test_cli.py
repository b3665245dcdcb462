"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hetero_zoo import hetero_graph
from torch_geometric.data import Data
from typer.testing import CliRunner, Result
from zoo import NODE_MODELS, explainer, graph, seeded

from nseg import (
    NSEG,
    InputError,
    SettingsError,
    UnsupportedError,
    __version__,
    baselines,
    datasets,
    explain_many,
    metrics,
    models,
    runs,
)
from nseg.cli import app
from nseg.cli.demo import READING, stride
from nseg.runs.parquet import TENSORS

USERS_MODEL = """
import torch
from torch_geometric.nn import GCNConv

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(4, 3)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)

def build():
    torch.manual_seed(0)
    return Net()
"""


def call(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_demo_prints_a_readable_table_and_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    output = call("demo", "--instances", "3", "--report", str(page)).output
    for column in ("instance", "class", "p factual", "p complement", "PNS", "edges kept"):
        assert column in output
    rows = re.findall(r"│ +(\d+) +│ +[\w ]+ +│ +([\d.]+) +│ +([\d.]+) +│ +([\d.]+) +│", output)
    assert [row[0] for row in rows] == ["300", "433", "566"]
    for _, factual, complement, pns in rows:
        assert abs(max(0, float(factual) - float(complement)) - float(pns)) < 0.002
    assert READING[:60] in " ".join(output.split())
    assert output.rstrip().endswith(f"open this page in a browser: {page}")
    assert "Why is a node part of a house?" in page.read_text()


def test_the_demo_shows_different_places_of_a_house() -> None:
    for number in range(1, 401):
        places = range(0, 400, stride(400, number))[:number]
        assert len(places) == number
        assert len({place % 5 for place in places}) == min(number, 5)


def test_it_runs_from_a_shell_and_says_what_is_wrong(tmp_path: Path) -> None:
    run = [sys.executable, "-c", "from nseg.cli import run; run()"]
    version = subprocess.run([*run, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.strip() == f"nseg {__version__}"
    wrong = subprocess.run([*run, "explain", "ba-shape"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("nseg: There is no dataset of that name (got 'ba-shape'). Known: ba-shapes")


def cells(output: str) -> str:
    """The text of a table whose cells may be wrapped, column by column."""
    rows = [line.strip("│").split("│") for line in output.splitlines() if line.startswith("│")]
    return " ".join(" ".join(" ".join(column).split()) for column in zip(*rows, strict=True))


def test_list_shows_one_table_at_a_time_in_80_columns() -> None:
    expected = {
        "datasets": ["ba-2motif", "msrc-21"],
        "methods": [*baselines.CATALOGUE, *(entry.idea for entry in baselines.CATALOGUE.values())],
        "metrics": ["fid_plus", "roc_auc", "higher", "lower"],
        "studies": ["smoke"],
        "settings": ["nseg, paper, tree-grid (ef)"],
    }
    for what, words in expected.items():
        output = call("list", what).output
        assert all(" ".join(word.split()) in cells(output) for word in words), what
        assert max(map(len, output.splitlines())) <= 80
        assert "\x1b" not in output
    assert all(f"nseg list {what}" in call("list").output for what in expected)
    with pytest.raises(InputError, match="nseg list shows datasets, methods"):
        call("list", "everything")


@pytest.mark.parametrize("masks", ["e", "f", "ef"])
def test_explain_a_dataset_and_store_it(tmp_path: Path, masks: str) -> None:
    out = tmp_path / "out"
    output = call("explain", "tree-cycles", "--index", "511:515", "--masks", masks, "--out", str(out), "--measure").output
    assert "4 explained" in output
    assert max(len(line) for line in output.splitlines() if str(tmp_path) not in line) <= 80
    assert "explanation, soft " in output
    assert "sparsity" in output
    assert "random, hard" in output
    found = runs.read(out)
    manifest = found.manifest
    summary = json.loads((out / "summary.json").read_text())
    assert [one.output_id for one in found] == [511, 512, 513, 514]
    assert summary["dataset"] == "tree-cycles"
    assert manifest["settings"]["seed"] == 0
    assert summary["metrics"]["explanation, hard"]["sparsity"] >= 0
    assert sorted(p.name for p in out.iterdir()) == [
        *(".lock", "explanations", "manifest.json", "names.json", "summary.json")
    ]


def test_explain_graphs_with_the_papers_settings(tmp_path: Path) -> None:
    output = call("explain", "ba-2motif", "--arch", "gin", "--index", "3,500", "--objective", "ps", "--paper").output
    assert "2 explained" in output
    assert "objective='ps'" in output


def test_explain_writes_a_page_too(tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    output = call("explain", "tree-cycles", "--index", "511:513", "--method", "saliency", "--report", str(page)).output
    assert output.rstrip().endswith(str(page))
    assert '["architecture","gcn"]' in page.read_text()
    (tmp_path / "mine.py").write_text(USERS_MODEL)
    torch.save(Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1], [1, 2]])), tmp_path / "graph.pt")
    own = ("explain", "--model", f"{tmp_path / 'mine.py'}:build", "--data", str(tmp_path / "graph.pt"))
    call(*own, "--report", str(page))
    assert "mine.py:build" in page.read_text()
    with pytest.raises(InputError, match="a file in a folder that can be written to"):
        call(*own, "--report", str(tmp_path / "none" / "why.html"))


@pytest.mark.parametrize("method", ["saliency", "grad_cam", "gnnexplainer", "pgexplainer", "pgm_explainer"])
def test_explain_by_any_method(tmp_path: Path, method: str) -> None:
    output = call("explain", "tree-cycles", "--index", "511:514", "--method", method, "--out", str(tmp_path)).output
    assert "3 explained" in output
    assert f"{baselines.find(method).__name__}(" in " ".join(output.split())
    found = runs.read(tmp_path)
    manifest = found.manifest
    assert json.loads((tmp_path / "summary.json").read_text())["method"] == method
    assert manifest["settings"]["undirected"] is False
    assert all(0 <= float(one.edge_mask.min()) <= float(one.edge_mask.max()) <= 1 for one in found)


def test_a_rival_is_what_it_is_in_python_also_with_the_papers_settings(tmp_path: Path) -> None:
    call("explain", "tree-cycles", "--index", "511:513", "--method", "cf_gnnexplainer", "--paper", "--out", str(tmp_path))
    found = runs.read(tmp_path)
    manifest = found.manifest
    algorithm = baselines.make("cf_gnnexplainer", "tree-cycles", seed=0)
    assert manifest["settings"] == algorithm.settings.as_plain_data()
    data, net = datasets.load("tree-cycles"), models.pretrained("tree-cycles", "gcn")
    explain = explainer(net, algorithm, data.model_config)
    for one, other in zip(found, explain_many(explain, data.graphs[0], range(511, 513)), strict=True):
        torch.testing.assert_close(one.edge_mask, other.edge_mask)


def test_a_method_that_cannot_is_refused() -> None:
    for words, error, message in (
        (("--method", "gnn"), SettingsError, "There is no method of that name"),
        (("--method", "saliency", "--paper"), InputError, "the paper has settings for \\(got saliency\\)"),
        (("--method", "saliency", "--objective", "ps"), InputError, "--objective belongs to nseg"),
        (("--method", "cf_gnnexplainer", "--masks", "ef"), UnsupportedError, "node_mask_type=None"),
    ):
        with pytest.raises(error, match=message):
            call("explain", "tree-cycles", "--index", "511", *words)


def test_explain_a_users_own_model(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(USERS_MODEL)
    data = graph()
    torch.save(Data(x=data.x, edge_index=data.edge_index), tmp_path / "graph.pt")
    mine = f"{tmp_path / 'mine.py'}:build"
    where = ("--data", str(tmp_path / "graph.pt"))
    registered = set(torch.serialization.get_safe_globals())
    assert "3 explained" in call("explain", "--model", mine, *where, "--index", "1,5,7").output
    assert "24 explained" in call("explain", "--model", mine, *where).output
    assert set(torch.serialization.get_safe_globals()) == registered
    (tmp_path / "bad.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    torch.save(hetero_graph(), tmp_path / "types.pt")
    for words, message in (
        (("explain", "--model", mine), "needs --data"),
        (("explain",), "Name what to explain"),
        (("explain", "--model", f"{tmp_path}/none.py:build", *where), "with a file that exists"),
        (("explain", "--model", mine[:-5] + "make", *where), "must define make"),
        (("explain", "--model", mine, "--data", str(tmp_path / "bad.pt")), "must hold a PyG Data"),
        (("explain", "--model", mine, "--data", str(tmp_path / "types.pt")), "types.pt holds HeteroData.*explain_many"),
        (("explain", "--model", mine, *where, "--index", "a"), "must look like"),
        (("explain", "--model", mine, *where, "--masks", "z"), "--masks must be"),
    ):
        with pytest.raises(InputError, match=message):
            call(*words)


def test_an_outcome_on_the_command_line_says_what_is_explained(tmp_path: Path) -> None:
    mine = ["explain", *own_graph(tmp_path), "--index", "1,5", "--quiet", "--out"]
    for number, (text, words) in enumerate(
        [
            ("not:2", "not class 2"),
            ("within:0.5,output=1,scale=0.3", "± 0.5"),  # the same numbers, read as three predicted values
            ("label:1", "label 1 is"),
        ]
    ):
        out = tmp_path / str(number)
        printed = call(*mine, str(out), "--outcome", text).output
        found = runs.Explanations(out)
        assert all(words in one or "does not hold" in one for one in found.sentences())
        assert words in printed or "does not hold" in printed
        assert any(one.get("reason") is None for one in found)
    for text, message in (("near:1", "outcome must look like within:0.5"), ("above:1,scale=0", "scale must be a positive")):
        with pytest.raises(SettingsError, match=message):
            call(*mine, str(tmp_path / "no"), "--outcome", text)
    with pytest.raises(UnsupportedError, match="Above is for mode='regression'"):
        call("explain", "tree-cycles", "--index", "511", "--outcome", "above:2")


def own_graph(tmp_path: Path) -> list[str]:
    (tmp_path / "mine.py").write_text(USERS_MODEL)
    data = graph()
    torch.save(Data(x=data.x, edge_index=data.edge_index), tmp_path / "graph.pt")
    return ["--model", f"{tmp_path / 'mine.py'}:build", "--data", str(tmp_path / "graph.pt")]


def test_explanations_are_printed_by_name_and_metrics_only_on_request(tmp_path: Path) -> None:
    own = own_graph(tmp_path)
    (tmp_path / "nodes.csv").write_text("name\n" + "\n".join(f"tx-{n}" for n in range(24)))
    (tmp_path / "classes.json").write_text('{"0": "legit", "1": "fraud", "2": "unclear"}')
    (tmp_path / "features.csv").write_text("number,name\n0,amount\n3,risk\n")
    names = ["--names", str(tmp_path / "nodes.csv"), "--class-names", str(tmp_path / "classes.json")]
    names += ["--feature-names", str(tmp_path / "features.csv")]
    words = ["explain", *own, "--index", "1:21"]
    output = call(*words, *names, "--out", str(tmp_path / "run")).output
    said = " ".join(output.split())
    assert all(re.search(rf"The model says (legit|fraud|unclear) for tx-{n} \(p 0\.\d{{3}}\)", said) for n in range(1, 21))
    assert re.search(r"\(tx-\d+ -> tx-\d+", said)
    assert "Fid+" not in output
    assert "Unless" in said
    assert "mine.py:build loads weights itself, the model is untrained" in said
    many = " ".join(call("explain", *own, *names).output.split())
    assert "for tx-1 " not in many
    counts = re.findall(r"(?:legit|fraud|unclear): (\d+) predictions?; PNS at least 0.5 for \d+; median kept", many)
    assert sum(map(int, counts)) == 24
    assert "Fid+" in call(*words, "--measure").output
    table = call("export", str(tmp_path / "run"), "--csv", "--rows", "elements").output
    assert re.search(r"^\d+,,tx-\d+,\d,(legit|fraud|unclear),edge,tx-\d+ -> tx-\d+,", table, re.MULTILINE)


def test_weights_are_not_called_untrained(tmp_path: Path) -> None:
    own = own_graph(tmp_path)
    namespace: dict[str, object] = {}
    exec(USERS_MODEL, namespace)
    torch.save(namespace["build"]().state_dict(), tmp_path / "weights.pt")
    output = call("explain", *own, "--weights", str(tmp_path / "weights.pt"), "--index", "1").output
    assert "untrained" not in output
    assert re.search(r"The model says class \d for node 1 \(p 0\.", output)


def test_names_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    own = own_graph(tmp_path)
    (tmp_path / "wide.csv").write_text("a,b,c\nd,e,f\n")
    (tmp_path / "line.csv").write_text("amount,risk\n")
    (tmp_path / "bad.json").write_text("{")
    for option, value, message in (
        ("--class-names", "legit,fraud", "class_names must have one name per class of the model, 3 in all"),
        ("--names", "nodes.csv", "must be a CSV or JSON file"),
        ("--names", str(tmp_path / "wide.csv"), "one column with all names, or two: number,name"),
        ("--feature-names", str(tmp_path / "bad.json"), "must be a readable CSV or JSON file"),
        ("--feature-names", str(tmp_path / "line.csv"), "feature_names must have one name per column of x, 4 in all"),
        ("--feature-names", "a,b", "feature_names must have one name per column of x, 4 in all"),
    ):
        with pytest.raises(InputError, match=message):
            call("explain", *own, "--index", "1", option, value)


def test_export_writes_csv_and_json(tmp_path: Path) -> None:
    run = tmp_path / "run"
    call("explain", "tree-cycles", "--index", "511:513", "--out", str(run))
    rows = call("export", str(run)).output.splitlines()
    assert rows[0].startswith("output_id,output_type,output,level,class,class_name,p,")
    assert rows[1].startswith("511,,node 511,node,1,cycle,0.")
    assert (
        call("export", str(run), "--class-names", "leaf,ring")
        .output.splitlines()[1]
        .startswith("511,,node 511,node,1,ring,")
    )
    assert call("export", str(run), "--csv", "--out", str(tmp_path / "a.csv")).exit_code == 0
    assert (tmp_path / "a.csv").read_text().splitlines() == rows
    plain = json.loads(call("export", str(run), "--json").output)
    assert [one["output_id"] for one in plain["explanations"]] == [511, 512]
    for words, message in (
        (("--csv", "--json"), "one of --csv and --json"),
        (("--rows", "cells"), "--rows must be explanations or elements"),
        (("--out", str(tmp_path / "no" / "a.csv")), "in a folder that exists"),
    ):
        with pytest.raises(InputError, match=message):
            call("export", str(run), *words)


def test_counterfactuals_on_the_command_line(tmp_path: Path) -> None:
    words = ("counterfactual", "tree-cycles", "--index", "512", "--undirected")
    said = " ".join(call(*words).output.split())
    assert re.fullmatch(
        r"Node 512: Remove the edge \d+ - \d+ and the model says tree \(p of cycle: 0.955 -> 0.\d{3}\)\. No smaller set of "
        r"the \d+ possible changes does it\.",
        said,
    )
    plain = json.loads(call(*words, "--json", "--to", "tree").output)
    assert plain["sentence"] in said
    assert (plain["before_name"], plain["after_name"], plain["size"]) == ("cycle", "tree", 1)
    with pytest.raises(InputError, match="to must differ"):
        call(*words, "--to", "cycle")


WEAK_MODEL = """
from pathlib import Path
import torch
from torch_geometric.nn import GCNConv, global_mean_pool

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(4, 3)

    def forward(self, x, edge_index, batch):
        if (x[:, 0] == 7).any() and (Path(__file__).parent / "short of memory").exists():
            raise MemoryError("can't allocate memory")
        return global_mean_pool(self.conv(x, edge_index), batch)

def build():
    torch.manual_seed(0)
    return Net()
"""


@pytest.mark.filterwarnings("ignore::nseg.NsegWarning")
def test_a_run_that_continues_tries_again_what_failed(tmp_path: Path) -> None:
    (tmp_path / "weak.py").write_text(WEAK_MODEL)
    (tmp_path / "short of memory").touch()
    graphs = [Data(x=one.x, edge_index=one.edge_index) for one in (graph(nodes=6, edges=9, seed=n) for n in range(4))]
    graphs[2].x[0, 0] = 7
    torch.save(graphs, tmp_path / "graphs.pt")
    words = [
        "explain",
        "--model",
        f"{tmp_path / 'weak.py'}:build",
        "--data",
        str(tmp_path / "graphs.pt"),
        "--level",
        "graph",
    ]
    words += ["--out", str(tmp_path / "run"), "--shard", "2"]

    def reasons() -> list[int]:
        return [one.output_id for one in runs.read(tmp_path / "run") if "reason" in one]

    assert "1 could not be explained" in call(*words).output
    assert reasons() == [2]
    (tmp_path / "short of memory").unlink()
    assert "0 explained, 4 were stored already" in call(*words, "--no-retry").output
    assert reasons() == [2]
    output = call(*words).output
    assert re.search(r"2 explained in .*, 2 were stored already", output)
    assert "could not be explained" not in output
    assert reasons() == []


def test_the_stored_summary_is_json_and_stored_masks_keep_their_accuracy(tmp_path: Path) -> None:
    call("explain", "tree-cycles", "--index", "0,511,512", "--out", str(tmp_path), "--measure")
    text = (tmp_path / "summary.json").read_text()
    assert "NaN" not in text
    summary = json.loads(text, parse_constant=pytest.fail)
    found = runs.read(str(tmp_path))
    accuracy = metrics.accuracy(datasets.load("tree-cycles"), found)
    mean = metrics.summarise(accuracy.roc_auc)["mean"]
    assert mean == pytest.approx(summary["metrics"]["explanation, soft"]["roc_auc"], abs=1e-6)


def test_a_folder_that_cannot_be_made_is_noticed_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for words in (("explain", "tree-cycles"), ("train", "tree-cycles")):
        with pytest.raises(InputError, match="must be a folder"):
            call(*words, "--out", str(tmp_path / "file"))
    for words, message in (
        (("explain", "tree-cycles", "--index", "5:"), "must look like"),
        (("explain", "tree-cycles", "--weights", "w.pt"), "belong to --model"),
        (("explain", "tree-cycles", "--level", "edge"), "node or graph"),
    ):
        with pytest.raises(InputError, match=message):
            call(*words)


def test_train_and_store(tmp_path: Path) -> None:
    output = call("train", "tree-cycles", "--arch", "gin", "--epochs", "3", "--out", str(tmp_path)).output
    assert "accuracy train" in output
    record = json.loads((tmp_path / "manifest.json").read_text())
    assert record["recipe"]["epochs"] == 3
    assert (tmp_path / "model.safetensors").stat().st_size > 1000


def test_what_is_stored_is_what_was_found(tmp_path: Path) -> None:
    model, data = seeded(NODE_MODELS["gcn"]), graph()
    for node in ("object", "attributes", "common_attributes"):
        found = explain_many(explainer(model, NSEG(steps=3), edge_mask_type="object", node_mask_type=node), data, [3, 5])
        runs.write(tmp_path, found, {"a": 1})
        again = runs.read(tmp_path)
        manifest = again.manifest
        assert manifest["a"] == 1
        for one, other in zip(found, again, strict=True):
            for name in TENSORS:
                assert (one.get(name) is None) == (other.get(name) is None), name
                assert one.get(name) is None or torch.equal(one[name], other[name]), name
            assert (one.pns, one.output_id) == (other.pns, other.output_id)
            assert torch.equal(other.target, one.target)
            assert torch.equal(other.index, one.index)
    with pytest.raises(InputError, match="which is not a folder"):
        runs.read(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="must be a folder"):
        runs.write(tmp_path / "file", found, {})
