"""Examples run and print and write the expected output; those that need a dataset are skipped without it."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
DATA = Path(os.environ.get("NSEG_DATA") or "nowhere")
REPORT = re.compile(r"Report: (\S+\.html)")


def load_example(name: str, shown: int) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SHOWN = shown  # fewer than the default, for speed
    return module


def run_example(name: str, shown: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    load_example(name, shown).main(folder)
    text = capsys.readouterr().out
    report = REPORT.search(text)
    assert report is not None
    assert Path(report[1]).read_text(encoding="utf-8").startswith("<!doctype html>")
    return text


def percentages(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"(\d+)%", text)]


def test_fraud_finds_the_planted_transfers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_example("fraud", 6, tmp_path / "new", capsys)
    kept, overall = percentages(text.split("Over 6 flagged accounts")[1])
    assert kept >= 90
    assert overall <= 50
    assert "at night" in text
    assert re.search(r"Certificate of account \d+: .*PNS >= ", text)


def test_links_finds_shared_friends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_example("links", 4, tmp_path / "new", capsys)
    size, kept, overall = percentages(text.split("Over 4 suggestions")[1])
    assert size < 100
    assert kept > overall
    assert re.search(r"(\w+) \d+ and \1 \d+ are suggested because\n  \1 \d+ knows \1", text)


@pytest.mark.skipif(not (DATA / "DBLP.npz").is_file(), reason="DBLP.npz is not below NSEG_DATA")
def test_authors_are_explained_by_papers_and_conferences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_example("areas", 4).main()
    text = capsys.readouterr().out
    assert re.search(r"author \d+ - wrote - paper \d+ - presented at - conference \d+", text)
    (share,) = percentages(text.split("Over 4 authors")[1])
    assert share >= 50


@pytest.mark.skipif(not (DATA / "Mutagenicity").is_dir(), reason="Mutagenicity is not below NSEG_DATA")
def test_molecules_prints_and_draws_explanations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_example("molecules", 3, tmp_path / "new", capsys)
    assert "mutagen (correct)" in text
    assert "<svg" in (tmp_path / "new" / "molecule.svg").read_text()


@pytest.mark.skipif(not (DATA / "MSRC_21").is_dir(), reason="MSRC_21 is not below NSEG_DATA")
def test_scenes_prints_and_draws_explanations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_example("scenes", 2, tmp_path / "new", capsys)
    assert "graph 0: cow (correct): 69 x grass, 11 x cow" in text
    assert (tmp_path / "new" / "scene.png").stat().st_size > 10_000


@pytest.mark.skipif(not (DATA / "esol.csv").is_file(), reason="esol.csv is not in NSEG_DATA")
def test_solubility_prints_and_draws_explanations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_example("solubility", 6, tmp_path / "new", capsys)
    assert re.search(
        r"With only \d+ of 27 bonds and all other bonds deleted, the prediction stays within 0.5 of -3.344 \(noise 0.76",
        text,
    )
    alone, without, _ = percentages(text.split("Over 6 molecules")[1])
    assert alone == 100
    assert without >= 80
    assert "class" not in text
    for name in ("solubility", "soluble"):
        assert "<svg" in (tmp_path / "new" / f"{name}.svg").read_text()


@pytest.mark.parametrize(("name", "dataset"), [("molecules", "Mutagenicity"), ("scenes", "MSRC_21"), ("solubility", "ESOL")])
def test_a_missing_dataset_gives_a_clear_error(name: str, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from nseg import InputError

    def load_missing(_: str) -> None:
        raise InputError(f"{dataset} must be downloaded once or given as files.")

    module = load_example(name, 1)
    monkeypatch.setattr(module, "load", load_missing)
    with pytest.raises(SystemExit, match=f"This example needs the {dataset} dataset. {dataset} must be downloaded"):
        module.main(Path("never"))
