"""The examples run, say what they promise, and write what they say; those that need a dataset run where it is there."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
DATA = Path(os.environ.get("NSEG_DATA") or "nowhere")
PAGE = re.compile(r"Look at them: (\S+\.html)")


def example(name: str, shown: int) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.SHOWN = shown  # fewer than a user sees
    return module


def run(name: str, shown: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    example(name, shown).main(folder)
    text = capsys.readouterr().out
    page = PAGE.search(text)
    assert page is not None
    assert Path(page[1].rstrip(",")).read_text(encoding="utf-8").startswith("<!doctype html>")
    return text


def percents(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"(\d+)%", text)]


def test_fraud_finds_the_planted_transfers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run("fraud", 6, tmp_path / "new", capsys)
    kept, within = percents(text.split("Over 6 flagged accounts")[1])
    assert kept >= 90
    assert within <= 50
    assert "at night" in text
    assert "The first one in full: Keeping these" in text


def test_links_finds_friends_of_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run("links", 4, tmp_path / "new", capsys)
    size, kept, within = percents(text.split("Over 4 suggestions")[1])
    assert size < 100
    assert kept > within
    assert re.search(r"(\w+) \d+ and \1 \d+ are suggested because\n  \1 \d+ knows \1", text)


@pytest.mark.skipif(not (DATA / "Mutagenicity").is_dir(), reason="Mutagenicity is not below NSEG_DATA")
def test_molecules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run("molecules", 3, tmp_path / "new", capsys)
    assert "mutagen (correct)" in text
    assert "<svg" in (tmp_path / "new" / "molecule.svg").read_text()


@pytest.mark.skipif(not (DATA / "MSRC_21").is_dir(), reason="MSRC_21 is not below NSEG_DATA")
def test_scenes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run("scenes", 2, tmp_path / "new", capsys)
    assert "graph 0: cow (correct): 69 x grass, 11 x cow" in text
    assert (tmp_path / "new" / "scene.png").stat().st_size > 10_000


@pytest.mark.parametrize(("name", "dataset"), [("molecules", "Mutagenicity"), ("scenes", "MSRC_21")])
def test_a_missing_dataset_is_a_sentence(name: str, dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from nseg import InputError

    def missing(_: str) -> None:
        raise InputError(f"{dataset} must be downloaded once or given as files.")

    module = example(name, 1)
    monkeypatch.setattr(module, "load", missing)
    with pytest.raises(SystemExit, match=f"This example needs the {dataset} dataset. {dataset} must be downloaded"):
        module.main(Path("never"))
