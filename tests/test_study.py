"""Studies: plain data in, plain data out; no trial is lost or run twice; numbers can be checked by hand."""

import contextlib
import csv
import io
import json
import multiprocessing
import os
import re
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from nseg import NsegError, baselines, explain_many, metrics, study
from nseg.baselines.catalogue import MethodEntry
from nseg.baselines.trivial import All
from nseg.cli import app
from nseg.storage import files
from nseg.study import figures, folder, forms, plan, summary, tables, task, trial
from nseg.study.summary import Score

TINY = """
title = "tiny"
datasets = ["tree-cycles"]
seeds = [0, 1]
every = 100
measures = ["fidelity", "accuracy", "thresholds"]
columns = ["soft.fid_plus", "soft.fid_minus", "soft.charact", "soft.sparsity", "hard.pns", "recall_at_k", "seconds"]

[[methods]]
name = "nseg"
label = "short"
settings = { steps = 4, rounds = 0, exact = 4, starts = [0.0] }

[[methods]]
name = "random"
paper = "random"

[[methods]]
name = "all"

[[methods]]
name = "nseg"
label = "nodes too"
masks = "ef"
settings = { steps = 2, rounds = 0, exact = 4, starts = [0.0] }
"""
TRIALS = 7  # all has no seed
QUICK = TINY.replace("[0, 1]", "[0]").replace(', "thresholds"', "")
"""One seed, and no curve over thresholds, which takes most of the time."""


def started(folder, text=TINY, **changes):
    one = replace(study.read(text, "tiny"), **changes)
    run, trials = study.start(one, folder)
    return one, run, trials


def finished(folder, text=TINY, **changes):
    one, run, trials = started(folder, text, **changes)
    return one, run, trials, list(study.run_trials(run, one, trials))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("run"))


# --- what a study is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", study.names())
def test_shipped_studies_expand_into_trials(name):
    found = study.find(name)
    trials = found.trials()
    assert trials
    assert len({json.dumps(asdict(one), sort_keys=True) for one in trials}) == len(trials)
    assert plan.study_from_plain_data(json.loads(json.dumps(asdict(found)))).trials() == trials


def test_every_table_of_results_also_judges_hard_masks_by_deletion():
    for name in {*study.names()} - {"smoke"}:
        assert any(column.endswith("removed.pns") for column in study.find(name).columns), name
    assert list(trial.MASK_KINDS) == list(plan.MASK_KINDS)


def test_main_tables_hold_every_method_on_every_dataset_with_five_seeds():
    for architecture in ("gcn", "gin"):
        trials = study.find(f"fidelity-{architecture}").trials()
        too_slow_or_of_other_layers = {"captum", "attention", "graphmask"}
        assert {one.method for one in trials} == set(baselines.CATALOGUE) - too_slow_or_of_other_layers
        assert {one.dataset for one in trials} == set(plan.datasets.NAMES)
        seeds = {one.seed for one in trials if one.label == "NSEG"}
        assert seeds == {0, 1, 2, 3, 4}
        # both tables of an architecture are the same trials
        assert [t for t in trials if t.dataset != "msrc-21"] == study.find(f"accuracy-{architecture}").trials()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('datasets = ["moon"]', "datasets must be one of"),
        ('datasets = "ba-shapes"', "must be a list of names"),
        ("seeds = []", "needs methods and seeds"),
        ("seeds = [true]", "integers"),
        ("every = 0", "every must be"),
        ("sedes = [1]", "Check the spelling"),
        ('columns = ["soft.charact"]', "must also have a sparsity"),
        ('[[methods]]\nname = "moon"', "no method of that name"),
        ('[[methods]]\nname = "random"', "own label"),
        ('[[methods]]\nname = "nseg"\nmasks = "x"', "masks of nseg"),
        ("=", "must be TOML"),
    ],
)
def test_a_wrong_study_raises_an_error_that_says_why(change, said):
    key = change.partition(" =")[0]
    text = change + "\n" + "\n".join(line for line in TINY.splitlines() if not line.startswith(f"{key} ="))
    if change.startswith("[["):
        text = TINY + change
    with pytest.raises(NsegError, match=said):
        study.read(text, "x")


@settings(max_examples=200)
@given(st.text(alphabet='ab"=[]{}\n.0,_# ', max_size=40))
def test_any_text_is_a_study_or_an_nseg_error(text):
    with pytest.raises(NsegError):
        study.read(TINY + "\n[x" + text, "x")  # a table that a study does not have, or no TOML
    with contextlib.suppress(NsegError):
        study.read(text, "x")


def test_the_study_in_the_documentation_is_valid():
    text = (Path(__file__).parent.parent / "docs" / "compare.md").read_text()
    (toml,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    assert len(study.read(toml, "docs").trials()) == 3 * 3 + 3


def test_a_grid_is_every_combination_and_changes_the_settings():
    text = TINY.replace('name = "all"', 'name = "nseg"\ngrid = { lr = [0.1, 0.2], beta_e = [0.0, 1.0, 2.0] }')
    trials = [one for one in study.read(text, "x").trials() if one.label.startswith("nseg (")]
    assert len(trials) == 2 * 2 * 3
    assert {(trial.make_algorithm(one).settings.lr, trial.make_algorithm(one).settings.beta_e) for one in trials} == {
        (lr, beta) for lr in (0.1, 0.2) for beta in (0.0, 1.0, 2.0)
    }


def test_a_misspelt_setting_raises_an_error_with_the_known_ones(tmp_path):
    with pytest.raises(NsegError, match="nseg has the settings"):
        started(tmp_path, TINY.replace("steps = 4", "stesp = 4"))


def test_the_key_is_of_everything_that_determines_explanations_and_of_nothing_else(monkeypatch):
    one = study.read(TINY, "x").trials()[0]
    same = trial.trial_key(one)
    assert trial.trial_key(replace(one, label="another name")) == same
    others = [
        replace(one, seed=7),
        replace(one, every=99),
        replace(one, masks="ef"),
        replace(one, architecture="gin"),
        replace(one, settings={**one.settings, "lr": 0.3}),
        replace(one, dataset="tree-grid"),
    ]
    assert len({same, *map(trial.trial_key, others)}) == 1 + len(others)
    monkeypatch.setattr(trial, "hash_source", lambda purpose: "other code")
    assert trial.trial_key(one) != same


def test_the_hash_of_the_source_is_by_rooms(tmp_path, monkeypatch):
    """Wherever a file lies in a room, it counts; rooms without effect on explanations do not."""
    rooms = ("search/deep/x.py", "baselines/y.py", "errors.py", "new_room/z.py")
    without_effect = ("cli.py", "cli/bench.py", "plot/p.py", "study/s.py", "storage/w.py", "__init__.py", "version.py")
    for name in (*rooms, *without_effect, "metrics/m.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("before")
    monkeypatch.setattr(trial, "PACKAGE", tmp_path)
    hash_source = trial.hash_source.__wrapped__  # without the cache

    def changes(name, purpose):
        before = hash_source(purpose)
        (tmp_path / name).write_text("after")
        return hash_source(purpose) != before

    assert all(changes(name, "explanations") for name in rooms)
    assert not any(changes(name, "explanations") for name in without_effect)
    assert changes("metrics/m.py", "measures")


# --- running it ----------------------------------------------------------------------------------------------------------


def test_every_trial_becomes_a_record_and_a_second_start_does_nothing(done):
    _, run, trials, records = done
    assert len(records) == len(trials) == TRIALS
    assert {record["status"] for record in records} == {"done"}
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.is_file() and "studies" not in str(path)}
    assert finished(run.path)[3] == []
    assert before == {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file() and "studies" not in str(p)}
    assert run.running(trials) == []


def test_measures_of_stored_explanations_equal_those_of_fresh_ones(done):
    _, run, trials, _ = done
    for key, one in trials.items():
        here = task.load_task(one.dataset, one.architecture, one.network)
        explain = here.explainer(trial.make_algorithm(one), one.masks)
        found = explain_many(explain, here.graphs, here.instances(one.every))
        judge, means = metrics.Evaluator(explain, here.graphs, found), run.record(key)["means"]
        kinds = {"soft": ("soft",), "hard": ("hard",), "removed": ("hard", "remove"), "cut_removed": (0.5, "remove")}
        for kind, judged in kinds.items():
            fidelity = judge.fidelity(*judged)
            for name in ("fid_plus", "fid_minus", "charact", "sparsity", "pns"):
                assert means[f"{kind}.{name}"] == pytest.approx(getattr(fidelity, name), abs=1e-6)
        recall = metrics.accuracy(here.bench, found).recall_at_k
        assert means["recall_at_k"] == pytest.approx(float(recall.nanmean()), abs=1e-6)
        curves = run.record(key)["curves"]["thresholds"]
        for name, intervention in (("charact", "mask"), ("removed_charact", "remove")):
            assert curves[name] == pytest.approx(judge.thresholds(intervention=intervention).charact.tolist(), abs=1e-6)


def test_what_was_measured_by_other_code_is_measured_again_without_explaining(tmp_path, monkeypatch):
    one, run, trials, _ = finished(tmp_path, QUICK)
    old = {key: run.record(key) for key in trials}
    monkeypatch.setattr(trial, "explain_many", lambda *a, **k: pytest.fail("explained again"))
    for key, record in old.items():
        files.write_json(tmp_path / "records" / f"{key}.json", {**record, "measured_by": "older code", "means": {}})
    again = list(study.run_trials(run, one, trials))
    assert len(again) == len(trials)
    for record in again:
        before = old[record["key"]]
        assert record["means"] == before["means"]
        assert record["wall_seconds"] == before["wall_seconds"]


FORMS = """
title = "forms"
datasets = ["tree-cycles"]
seeds = [3, 4]
every = 30
measures = ["fidelity", "accuracy", "forms"]
columns = ["hard.pns", "hard.sparsity"]
methods = [
  { name = "nseg", label = "NSEG" },
  { name = "random" },
  { name = "cf2", settings = { steps = 3, undirected = true } },
  { name = "pgm_explainer", label = "nodes", masks = "f" },
]
"""


@pytest.fixture(scope="module")
def in_forms(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("forms"), FORMS)


def test_rivals_are_also_hardened_as_nseg_is_and_cut_to_its_size(in_forms):
    _, run, trials, records = in_forms
    assert {record["status"] for record in records} == {"done"}
    rows = {(row["label"], row["form"], row["judged"]): row for row in summary.form_rows(run, "tiny")}
    ours = rows["NSEG", "hardened", "mask"]
    both = {(form, judged) for form in forms.FORMS for judged in forms.JUDGED}
    assert {key[1:] for key in rows if key[0] == "random"} == {key[1:] for key in rows if key[0] == "cf2"} == both
    assert {key for key in rows if key[0] in ("NSEG", "nodes")} == {("NSEG", "hardened", "mask")}  # nodes have no edges
    for name in ("random", "cf2"):
        assert rows[name, "equal size", "mask"]["kept"] == ours["kept"]
        for form in ("as published", "hardened"):  # which also make a hard explanation of the same scores
            assert 0 < rows[name, "equal size", "mask"]["cpu_ms"] <= rows[name, form, "mask"]["cpu_ms"]
        for judged in forms.JUDGED:  # a smaller explanation may cost up to the tolerance
            best = max(rows[name, form, judged]["pns"] for form in ("as published", "equal size"))
            assert rows[name, "hardened", judged]["pns"] >= best - 0.05
    seeds = {trials[record["key"]].seed for record in records if record["forms"]}
    assert seeds == {3}  # the first


def test_the_forms_of_a_method_are_scored_as_the_evaluator_scores_them(in_forms):
    _, run, trials, _ = in_forms
    key = next(key for key, one in trials.items() if one.label == "cf2")
    means, rows = run.record(key)["means"], run.record(key)["forms"]
    for kind, judged in (("hard", "mask"), ("removed", "remove")):  # 12 instances: all of them are in the sample
        (row,) = [row for row in rows if (row["form"], row["judged"]) == ("as published", judged)]
        for name in ("pns", "fid_plus", "fid_minus", "charact", "sparsity"):
            assert row[name] == pytest.approx(means[f"{kind}.{name}"], abs=1e-4)


def test_hardening_with_a_methods_own_settings_is_its_own_cut():
    here, index = task.load_task("tree-cycles", "gcn", "ours"), [511, 514, 520]
    explain = here.explainer(baselines.make("saliency"), "e")
    found = explain_many(explain, here.graphs, index)
    judge = metrics.Evaluator(explain, here.graphs, found)
    for one, hard in zip(found, forms.hardened_masks(judge, explain.algorithm.settings), strict=True):
        assert torch.equal(hard, one.hard_edge_mask)
        assert int(forms.top(one, 3).sum()) == 3
        assert one.edge_mask[forms.top(one, 3)].min() >= one.edge_mask[~forms.top(one, 3)].max()


def test_what_a_method_takes_includes_its_training_and_leaves_nothing_on_it():
    here, index = task.load_task("tree-cycles", "gcn", "ours"), [511, 514, 520]
    costs = []
    for epochs in (1, 100):
        explain = here.explainer(baselines.make("pgexplainer", epochs=epochs), "e")
        costs.append(forms.measure_cost(explain, here.graphs, index, index[:2]))
        assert "solve" not in vars(explain.algorithm)
        assert len(explain_many(explain, here.graphs, index)) == 3  # it is trained
    assert 0 < costs[0].ranking < costs[1].ranking
    assert costs[0].published >= costs[0].ranking


def test_a_further_measure_does_not_measure_again_what_is_known(in_forms, monkeypatch):
    _, run, trials, _ = in_forms
    before = {key: run.record(key) for key in trials}
    monkeypatch.setattr(trial, "instance_scores", lambda *a: pytest.fail("measured again"))
    monkeypatch.setattr(trial, "measure_forms", lambda *a: pytest.fail("measured again"))
    again = finished(run.path, FORMS.replace('"forms"]', '"thresholds"]'))[3]
    assert len(again) == len(trials)
    for record in again:
        old = before[record["key"]]
        assert record["curves"]["thresholds"]
        assert (record["means"], record["forms"]) == (old["means"], old["forms"])
        assert {*record["measures"]} == {*old["measures"], "thresholds"}


def test_the_report_has_all_forms(in_forms, tmp_path):
    _, run, _, _ = in_forms
    started(run.path, FORMS)  # whatever study of that name was there last
    assert "tiny-forms.csv" in study.write_report(run, "tiny", tmp_path)
    rows = list(csv.DictReader((tmp_path / "tiny-forms.csv").read_text().splitlines()))
    assert len(rows) == 1 + 2 * 6
    page = (tmp_path / "tiny.md").read_text()
    assert "### PNS of each form, GCN, judged by deletion" in page
    for row in rows:
        assert f"{100 * float(row['pns']):.1f} ({float(row['kept']):.1f}; " in page


class Broken(All):
    def solve(self, scm, space, tick):
        raise RuntimeError("the method broke")


def test_a_failing_trial_is_a_record_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setitem(baselines.CATALOGUE, "broken", MethodEntry("baselines.trivial", "All", "fails"))
    monkeypatch.setattr(
        MethodEntry, "load", lambda self, load=MethodEntry.load: Broken if self.idea == "fails" else load(self)
    )
    text = QUICK.replace('name = "random"\npaper = "random"', 'name = "broken"')
    one, run, trials, records = finished(tmp_path, text)
    assert [record["status"] for record in records] == ["done", "failed", "done", "done"]
    assert "the method broke" in records[1]["traceback"]
    assert finished(tmp_path, text)[3] == []
    assert len(list(study.run_trials(run, one, trials, retry=True))) == 1
    file = tmp_path / "own.toml"
    file.write_text(text)
    result = CliRunner().invoke(app, ["bench", str(file), "--out", str(tmp_path / "cli"), "--json"])
    assert result.exit_code == 1
    statuses = [json.loads(line)["status"] for line in result.stdout.splitlines() if line.startswith("{")]
    assert statuses == ["done", "failed", "done", "done"]


def test_a_trial_without_small_enough_instances_is_skipped(tmp_path):
    text = QUICK.replace('name = "all"', 'name = "exhaustive"\nsettings = { most = 1 }')
    _, run, _, records = finished(tmp_path, text)
    assert [r["status"] for r in records] == ["done", "done", "skipped", "done"]
    assert "exhaustive" not in {line.label for line in summary.summary(run, "tiny")}


class Bench:
    """``nseg bench`` in another process; ``output`` is what it prints. All are forks of one that has imported torch."""

    CODE = """
import os, sys
from nseg.cli import run
sys.argv[1:], sys.stdout = words, open(out.fileno(), "w", 1, closefd=False)
sys.stderr = open(os.devnull, "w")
run()
"""

    def __init__(self, file, folder):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["nseg.cli", "nseg.study.trial"])
        reader, writer = context.Pipe(duplex=False)
        given = {"words": ["bench", str(file), "--out", str(folder), "--json"], "out": writer}
        self.process = context.Process(target=exec, args=(self.CODE, given))
        self.process.start()
        writer.close()
        self.output = os.fdopen(os.dup(reader.fileno()))

    def wait(self):
        self.process.join()
        return self.process.exitcode


def test_two_processes_share_a_run_and_a_killed_one_loses_only_its_current_trial(tmp_path, done):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    first = Bench(file, tmp_path / "run")
    with first.output:
        first.output.readline()  # one record is there, the next is in flight
        first.process.kill()
        first.wait()
    left = set(os.listdir(tmp_path / "run" / "records"))
    assert 1 <= len(left) < TRIALS
    two = [Bench(file, tmp_path / "run") for _ in range(2)]
    made = []
    for one in two:
        with one.output:
            made.append([json.loads(line)["key"] for line in one.output])
    assert [one.wait() for one in two] == [0, 0]
    keys = {name.removesuffix(".json") for name in os.listdir(tmp_path / "run" / "records") if not name.startswith(".")}
    whole = {name.removesuffix(".json") for name in left if not name.startswith(".")}
    assert sorted(made[0] + made[1]) == sorted(keys - whole)  # each missing one by one process, none twice
    for key in done[2]:  # and equal to an undisturbed run
        ours, theirs = folder.StudyFolder(tmp_path / "run").record(key), done[1].record(key)
        assert {k: v for k, v in ours["means"].items() if k != "seconds"} == {
            k: v for k, v in theirs["means"].items() if k != "seconds"
        }


# --- numbers -------------------------------------------------------------------------------------------------------------


def test_the_summary_is_the_mean_and_deviation_of_the_seeds_with_the_papers_number(done):
    _, run, trials, _ = done
    lines = {(line.label, line.column): line for line in summary.summary(run, "tiny")}
    for label in ("short", "random"):
        means = [run.record(k)["means"]["soft.fid_plus"] for k, t in trials.items() if t.label == label]
        line = lines[label, "soft.fid_plus"]
        assert line.mean == pytest.approx(100 * np.mean(means))
        assert line.std == pytest.approx(100 * np.std(means, ddof=1))
        assert line.low <= line.mean <= line.high
        assert (line.seeds, line.instances) == (2, 4)
    assert lines["all", "soft.charact"].std is None
    assert lines["all", "soft.sparsity"].mean == 0
    paper = lines["random", "soft.fid_plus"]
    assert paper.paper == 57.83 or paper.paper == summary.paper_scores()["gcn", "tree-cycles", "random", "soft.fid_plus"]
    assert paper.difference == pytest.approx(paper.mean - paper.paper)
    assert [line.label for line in summary.summary(run, "tiny")][:7] == ["short"] * 7  # in the order of the study


def test_the_papers_numbers_are_whole_and_consistent():
    numbers = summary.paper_scores()
    assert len(numbers) == 461
    for (architecture, dataset, row, column), value in numbers.items():
        if column == "soft.charact" and row == "guided_bp":
            plus, minus = (numbers[architecture, dataset, row, f"soft.{c}"] / 100 for c in ("fid_plus", "fid_minus"))
            assert value == pytest.approx(100 * float(metrics.charact(torch.tensor(plus), torch.tensor(minus))), abs=0.02)


def line(label, mean, low, high, column="soft.pns", instances=10):
    return Score("d", "gcn", label, column, mean, None, low, high, 1, instances)


def test_the_best_and_all_that_overlap_its_interval_are_marked():
    lines = [line("a", 90, 88, 92), line("b", 87, 85, 89), line("c", 80, 78, 82), line("few", 99, 98, 100, instances=3)]
    assert [one.label for one in summary.mark_best(lines) if one.best] == ["a", "b"]
    lower = [
        line("a", 5, 4, 6, "soft.fid_minus"),
        line("b", 7, 5.5, 8, "soft.fid_minus"),
        line("c", 9, 8, 10, "soft.fid_minus"),
    ]
    assert [one.label for one in summary.mark_best(lower) if one.best] == ["a", "b"]
    assert not any(
        one.best for one in summary.mark_best([line("a", 1, 1, 1, "seconds"), line("b", 9, 9, 9, "soft.sparsity")])
    )


def test_the_interval_of_charact_is_of_charact_not_of_a_mean():
    plus, minus = np.array([1.0, 1, 0, 0]), np.array([0.0, 0, 0, 1])
    low, high = summary.bootstrap_interval(np.stack([plus, minus], -1), "soft.charact")
    whole = float(metrics.charact(torch.tensor(0.5), torch.tensor(0.25)))
    assert low < whole < high
    assert summary.bootstrap_interval(np.stack([np.ones(4), np.zeros(4)], -1), "soft.charact") == (1.0, 1.0)


def test_tables_hold_the_same_numbers_in_every_form(done):
    _, run, _, _ = done
    lines = summary.summary(run, "tiny")
    (table,) = tables.tables(lines)
    assert table.title == "tree-cycles, GCN: 4 instances, 2 seeds"
    assert [label for label, _ in table.rows] == ["short", "random", "all", "nodes too"]
    text, tex = tables.markdown([table]), tables.latex([table])
    for one in lines:
        shown = tables.cell(one)
        assert shown.text in text
        assert shown.text in tex
    assert "paper" in text
    assert "soft sparsity" in text
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(lines))))
    assert [float(row["mean"]) for row in rows] == pytest.approx([one.mean for one in lines], abs=1e-4)


def test_a_column_of_all_datasets_holds_the_same_cells(done):
    lines = summary.summary(done[1], "tiny")
    (table,) = tables.tables_of_column(lines, "soft.sparsity")
    (whole,) = tables.tables(lines)
    place = whole.columns.index("soft sparsity")
    assert [(label, cells[0]) for label, cells in table.rows] == [(label, cells[place]) for label, cells in whole.rows]


def test_latex_shows_names_as_they_are():
    assert r"cf\_2 \& 5 \%" in tables.latex([tables.Table("cf_2 & 5 %", ("x",), ())])


def test_cost_adds_up(done):
    _, run, _, records = done
    rows = summary.cost(run, "tiny")
    assert sum(row["trials"] for row in rows) == TRIALS
    assert sum(row["wall"] for row in rows) == pytest.approx(sum(r["wall_seconds"] for r in records))
    facts = summary.manifest(run, "tiny")
    assert facts["trials"] == {"all": TRIALS, "done": TRIALS, "skipped": 0, "failed": 0}
    assert set(facts["weights"]) == {"tree-cycles/gcn (ours)"}
    assert facts["seeds"] == [0, 1]


# --- figures -------------------------------------------------------------------------------------------------------------


def test_the_threshold_figure_shows_the_mean_curve(done, tmp_path):
    _, run, trials, _ = done
    rows = figures.threshold_rows(run, "tiny")
    assert len(rows) == 4 * 9
    for name in ("charact", "removed_charact"):
        curves = [run.record(k)["curves"]["thresholds"][name] for k, t in trials.items() if t.label == "random"]
        assert [row[name] for row in rows if row["method"] == "random"] == pytest.approx(100 * np.mean(curves, 0))
    assert len(figures.save_figure(figures.draw_thresholds(rows), "x", tmp_path)) == 3


@pytest.mark.parametrize("name", ["setting", "split", "cost"])
def test_figures_are_drawn_from_their_tables(name, tmp_path):
    grid = {
        "setting": "grid = { alpha_e = [0.01, 0.1] }",
        "split": "grid = { split = [[0.4, 0.3, 0.3], [0.5, 0.2, 0.3]] }",
        "cost": "",
    }[name]
    text = QUICK.partition("[[methods]]")[0].replace("100", "180")
    text = f'figure = "{name}"\n' + text.replace('"soft.charact"', '"soft.charact", "hard.sparsity"')
    for label, masks in (("one", "ef"), ("two", "ef")):
        text += f'[[methods]]\nname = "nseg"\nlabel = "{label}"\nmasks = "{masks}"\n{grid}\n'
        lr = 0.1 if label == "one" else 0.2
        text += f"settings = {{ steps = {len(label)}, rounds = 0, exact = 4, starts = [0.0], lr = {lr} }}\n"
    one, run, trials, records = finished(tmp_path / "run", text)
    assert all(record["status"] == "done" for record in records)
    files = study.write_report(run, "tiny", tmp_path / "report")
    rows = list(csv.DictReader((tmp_path / "report" / "tiny-figure.csv").read_text().splitlines()))
    if name == "cost":
        assert {row["method"] for row in rows} == {"one", "two"}
        assert any(row["front"] == "True" for row in rows)
    else:
        assert len(rows) == len(trials) * len(one.columns)
        assert {row["method"] for row in rows} == {"one", "two"}
    for file in files:
        assert (tmp_path / "report" / file).stat().st_size > 0
    assert (tmp_path / "report" / "tiny-figure.png").read_bytes().startswith(b"\x89PNG")


def test_the_pareto_front_is_what_no_other_row_beats():
    rows = [{"seconds": s, "hard.pns": p} for s, p in ((1, 10), (2, 20), (3, 15), (2, 5), (1, 10))]
    assert [figures.is_pareto_optimal(row, rows) for row in rows] == [True, True, False, False, True]


def test_a_page_shows_the_stored_explanations_of_all_methods(done, tmp_path):
    _, run, trials, _ = done
    (path,) = study.write_pages(run, "tiny", tmp_path)
    assert path.name == "tiny-tree-cycles-gcn.html"
    text = path.read_text()
    for label in {one.label for one in trials.values()}:
        assert label in text
    with pytest.raises(NsegError, match="The study has the methods"):
        study.write_pages(run, "tiny", tmp_path, ["moon"])


# --- command line --------------------------------------------------------------------------------------------------------


def test_the_command_line_runs_and_shows_a_study_and_reports_errors(tmp_path, done):
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    began = time.time()
    result = CliRunner().invoke(app, ["bench", str(file), "--out", str(done[1].path)])
    assert result.exit_code == 0, result.output
    assert "7 trials, 7 already done" in result.output
    assert time.time() - began < 60
    assert CliRunner().invoke(app, ["bench", str(file), "--out", str(done[1].path), "--quiet"]).output == ""
    for form, word in (("table", "Never read"), ("markdown", "| method |"), ("csv", "dataset,arch"), ("latex", "toprule")):
        result = CliRunner().invoke(
            app, ["report", str(done[1].path), "--format", form, "--out", str(tmp_path / "r"), "--no-html"]
        )
        assert result.exit_code == 0, result.output
        assert word in result.output
    for wrong in (["report", str(tmp_path)], ["bench", "moon"], ["report", str(done[1].path), "--format", "moon"]):
        error = CliRunner().invoke(app, wrong).exception
        assert isinstance(error, NsegError)
