"""Importing nseg and asking for help is fast, because torch is imported only by commands that compute."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import nseg
from nseg import backends, baselines, datasets, metrics, models, pattern, runs, study
from nseg.datasets import catalogue
from nseg.datasets.names import REGRESSIONS
from nseg.models import nets

HEAVY = ("torch", "torch_geometric", "pyarrow", "numpy", "scipy", "matplotlib")
COMMANDS = ("demo", "explain", "patterns", "studio", "bench", "report", "train", "list")
LAZY = (nseg, backends, datasets, metrics, models, pattern, runs, study)


COMMANDS_IN_TURN = """
import contextlib, io, json, sys
from nseg.cli import run
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    text, code = io.StringIO(), 0
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            run()
        except SystemExit as stop:
            code = stop.code
    print(json.dumps([code, text.getvalue()]))
"""


def run(code: str, *words: str) -> tuple[str, str]:
    """What Python code prints in a new process, and which heavy modules it imported."""
    code += f"\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules), end='')"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text, _, heavy = done.stdout.rpartition("\n")
    return text, heavy


def commands(many: list[list[str]]) -> list[tuple[int, str]]:
    """Exit code and text of each of some commands, which one process runs in turn without a heavy import."""
    text, heavy = run(COMMANDS_IN_TURN, json.dumps(many))
    assert heavy == ""
    return [(code, " ".join(said.split())) for code, said in map(json.loads, text.splitlines())]


def test_importing_nseg_imports_nothing_heavy() -> None:
    names = ", ".join(f"{one.__name__}.__all__" for one in LAZY)
    packages = ", ".join(one.__name__ for one in (*LAZY, baselines))
    assert run(f"import {packages}\n{names}\nnseg.__version__, nseg.NsegError, nseg.InputError") == ("", "")


def test_help_version_and_list_import_nothing_heavy() -> None:
    asked = [["--help"], ["--version"], *([one, "--help"] for one in COMMANDS), ["list"]]
    for words, (code, text) in zip(asked, commands(asked), strict=True):
        assert code == 0, words
        assert text, words


TYPOS = [
    ("explian", "No such command 'explian'. Did you mean 'explain'?"),
    ("explain ba-shape", "nseg: There is no dataset of that name (got 'ba-shape'). Known: ba-shapes"),
    ("explain ba-shapes --methd x", "No such option: --methd"),
    ("explain ba-shapes --method gnn", "nseg: There is no method of that name (got 'gnn'). Known: nseg"),
    ("explain ba-shapes --arch gnc", "nseg: There is no architecture of that name (got 'gnc'). Known: gcn, gin."),
    (
        "explain ba-shapes --masks g",
        "nseg: --masks must be e (edges), f (nodes), x (features of nodes), ef or ex (got 'g').",
    ),
    ("explain ba-shapes --index x", "nseg: --index must look like 7, 3,5,9 or 300:700 (got 'x')."),
    ("explain ba-shapes --backend ry", "nseg: There is no backend of that name (got 'ry'). Known: local"),
    ("explain", "nseg: Name what to explain"),
    ("train ba-shape", "nseg: There is no dataset of that name"),
    ("bench smok", "nseg: A study must be one of accuracy-gcn"),
    ("bench smoke --networks our", "nseg: networks must be one of ours, authors (got 'our')."),
    ("report no-such-folder", "nseg: RUN must be a run folder of nseg bench (got no-such-folder"),
    ("studio ba-shape", "nseg: There is no dataset of that name (got 'ba-shape')."),
    ("studio", "nseg: Name what to explain"),
    ("patterns no-such-folder", "nseg: RUN must be a folder of nseg explain --out (got no-such-folder"),
    ("patterns . --format pdf", "nseg: --format must be table, csv or json (got 'pdf')."),
    ("report . --format pdf", "nseg: --format must be table, markdown, csv, latex or none (got 'pdf')."),
]


def test_a_typo_is_answered_in_a_sentence_and_imports_nothing_heavy() -> None:
    for (words, message), (code, text) in zip(TYPOS, commands([words.split() for words, _ in TYPOS]), strict=True):
        assert code == 2, words
        assert message in text


def imports_for_type_checkers(package: ModuleType) -> dict[str, str]:
    """Names below ``if TYPE_CHECKING`` of a package, with the module that each is imported from."""
    (block,) = (one for one in ast.parse(inspect.getsource(package)).body if isinstance(one, ast.If))
    imports = [one for one in block.body if isinstance(one, ast.ImportFrom)]
    return {name.name: str(one.module) for one in imports for name in one.names}


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_lazy_names_are_what_type_checkers_see(package: ModuleType) -> None:
    seen = imports_for_type_checkers(package)
    assert sorted([*seen, *(["__version__"] if package is nseg else [])]) == sorted(package.__all__)
    assert set(package.__all__) <= set(dir(package))
    for name, module in seen.items():
        source = importlib.import_module(module)
        assert getattr(package, name) is getattr(source, name), name
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        _ = package.nothing


@pytest.mark.parametrize("package", LAZY, ids=lambda package: package.__name__)
def test_no_lazy_name_is_also_a_module(package: ModuleType) -> None:
    """Importing a submodule would bind it in place of the public name."""
    modules = {one.name for one in pkgutil.iter_modules(package.__path__) if not one.ispkg}
    assert modules & set(package.__all__) == set()


def test_names_known_without_torch_are_those_that_exist() -> None:
    plain, typed = (*datasets.NAMES, *REGRESSIONS), datasets.HETERO_NAMES
    assert {*catalogue._GENERATED, *catalogue._FROM_FILES} == {*plain, *typed}
    networks = (*plain, "ba-2motif-shortcut")
    assert tuple(nets._CLASSES) == models.ARCHITECTURES
    assert set(models.manifest()) == {f"{name}/{one}" for name in networks for one in models.ARCHITECTURES} | {
        f"{name}/{one}" for name in typed for one in models.HETERO_ARCHITECTURES
    }
    for name in baselines.CATALOGUE:
        assert isinstance(baselines.find(name), type)


def test_every_metric_is_in_the_catalogue() -> None:
    functions = {name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))}
    assert set(metrics.CATALOGUE) == functions - {"accuracy", "area", "bootstrap", "certify", "summarise", "trivial"}
    for entry in metrics.CATALOGUE.values():
        assert entry.better in ("higher", "lower")
        assert entry.unit
        assert entry.description
