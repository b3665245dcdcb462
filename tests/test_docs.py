"""Python blocks of the documentation run, its commands exist, and the site builds without warnings or network access."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_group

from nseg import Settings, baselines, metrics
from nseg.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SITE = ("mkdocs", "material", "mkdocstrings", "latex2mathml")
"""Packages that build the site; the extra 'docs' installs them."""


def fenced_blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """Fenced blocks of a language, each with the number of lines before it."""
    text = page.read_text(encoding="utf-8")
    matches = re.finditer(rf"^( *)```{language}\n(.*?)^\1```", text, flags=re.DOTALL | re.MULTILINE)
    return [(text[: m.start(2)].count("\n"), re.sub(rf"^{m[1]}", "", m[2], flags=re.MULTILINE)) for m in matches]


WITH_PYTHON = [page for page in PAGES if fenced_blocks(page, "python")]
COMMANDS = [
    (page, line) for page in PAGES for _, text in fenced_blocks(page, "sh") for line in text.splitlines() if line.strip()
]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_python_blocks_run_in_order_and_print_the_quoted_output(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for before, code in fenced_blocks(page, "python"):
        exec(compile("\n" * before + code, str(page), "exec"), namespace)  # trusted: our own text
    printed = capsys.readouterr().out
    assert [text for _, text in fenced_blocks(page, "text") if text not in printed] == []


@pytest.mark.parametrize(("page", "line"), COMMANDS, ids=lambda value: value if isinstance(value, str) else value.stem)
def test_command_and_its_options_exist(page: Path, line: str) -> None:
    words = shlex.split(line, comments=True)
    if words[0] == "nseg":
        commands = get_group(app).commands
        assert words[1] in commands
        commands[words[1]].make_context(words[1], words[2:])  # raises for an unknown option
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file()
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    else:
        assert words[:2] == ["pip", "install"]


def test_every_setting_is_documented() -> None:
    text = (DOCS / "settings.md").read_text()
    assert [field.name for field in fields(Settings) if f"`{field.name}`" not in text] == []


def test_every_method_and_metric_is_documented() -> None:
    text = (DOCS / "compare.md").read_text()
    names = [*baselines.CATALOGUE, *metrics.CATALOGUE]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_equation_links_to_a_function() -> None:
    text = (DOCS / "mathematics.md").read_text()
    sections = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    heads = [section.split("\n")[0].split(":")[0] for section in sections]
    assert {int(n) for head in heads if head.startswith("Eq") for n in re.findall(r"\d+", head)} == set(range(1, 26))
    assert [section.split("\n")[0] for section in sections if "][nseg." not in section] == []


def test_every_test_that_a_page_names_exists() -> None:
    named = {
        (file, name) for page in PAGES for file, name in re.findall(r"(test_\w+\.py)::(test_\w+)", page.read_text("utf-8"))
    }
    assert len(named) > 30
    for file, name in sorted(named):
        assert f"def {name}(" in (ROOT / "tests" / file).read_text("utf-8"), f"{file}::{name}"


def test_the_picture_of_the_rooms_shows_the_map_in_contributing() -> None:
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    assert pictures.draw_rooms() == (DOCS / "pictures" / "rooms.svg").read_text()


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in SITE),
    reason='mkdocs and its plugins are not installed: pip install "nseg[docs]"',
)
def test_site_builds_without_warnings_and_works_offline(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?([^"'\s>]+)""", text)
        loaded += [tag for tag in re.findall(r"<link[^>]*>", text) if "canonical" not in tag]
        assert [one for one in loaded if "//" in one] == [], page
        body = re.sub(r"<(pre|code|script)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.search(r":(math|func|class|meth|attr|data|mod):|\\\(|\\\[|>>>|arithmatex", body), page
    styles = "".join(one.read_text(encoding="utf-8") for one in tmp_path.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(https?:)?//", styles)
