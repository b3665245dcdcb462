"""The wheel holds what the package needs, and the demo runs from it in an empty environment, outside the repository."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from nseg import models

ROOT = Path(__file__).parent.parent


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script("build_wheel")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return SCRIPT.build_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_code_page_weights_and_studies(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "nseg"
    assert {f"nseg/{path.relative_to(package)}" for path in package.rglob("*.py")} <= inside
    for needed in (
        "py.typed",
        "model/kernel/pass.h",
        "model/kernel/passes.c",
        "model/kernel/slopes.c",
        "reports/page.html",
        "reports/bundle/page.js",
        "reports/bundle/page.css",
    ):
        assert f"nseg/{needed}" in inside
    assert sum(name.endswith(".safetensors") for name in inside) == len(models.manifest())
    assert any(name.startswith("nseg/study/studies/") for name in inside)
    assert not any(name.startswith(("nseg/reports/web/", "tests/", "docs/")) for name in inside)
    (metadata,) = [name for name in inside if name.endswith("METADATA")]
    assert "Project-URL: Paper, https://arxiv.org/abs/2212.07056" in zipfile.ZipFile(wheel).read(metadata).decode()


def check_demo(python: Path, folder: Path) -> None:
    output = SCRIPT.run_demo(python, folder)
    assert "2 predictions explained" in output
    assert "middle of a house" in output
    assert (folder / "nseg-demo.html").stat().st_size > 10_000


def test_the_demo_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    check_demo(SCRIPT.make_environment(tmp_path / "environment", wheel), tmp_path)


@pytest.mark.slow
def test_the_demo_runs_with_pinned_dependencies(wheel: Path, tmp_path: Path) -> None:
    check_demo(SCRIPT.make_environment(tmp_path / "environment", wheel, pinned=True), tmp_path)


@pytest.mark.slow
def test_the_demo_runs_with_the_lowest_dependencies(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    script = [sys.executable, str(ROOT / "scripts" / "lowest_versions.py"), "--keep", "torch==2.13.0", "--into", str(folder)]
    subprocess.run(script, check=True)
    check_demo(folder / "bin" / "python", tmp_path)
