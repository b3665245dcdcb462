"""Patterns in the report: the tab shows what Python found, in a real browser."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from test_patterns import NAMES, bond_explainer, bonds

import nseg
from nseg import InputError
from nseg.pattern.collection import Patterns
from nseg.reports.pattern_view import patterns_view

CHROMIUM = shutil.which("chromium")


@pytest.fixture(scope="module")
def found() -> tuple[Any, Any, Patterns]:
    data, explanations = bonds()
    return data, explanations, nseg.patterns(explanations, data, explainer=bond_explainer(), **NAMES)


def write(folder: Path, found: tuple[Any, Any, Patterns], **options: Any) -> Path:
    data, explanations, patterns = found
    return nseg.report(explanations, folder / "why.html", data=data, patterns=patterns, **options)


def test_the_view_holds_what_was_found(found: tuple[Any, Any, Patterns]) -> None:
    patterns = found[2]
    view = patterns_view(patterns)
    assert [one["name"] for one in view] == ["without", "with"]
    shown, pattern = view[1]["patterns"][0], patterns.classes[1].patterns[0]
    assert (shown["text"], shown["sentence"]) == (pattern.text, pattern.sentence("It"))
    assert shown["necessity"][:2] == [pattern.necessity.changed, pattern.necessity.number]
    assert shown["examples"] == list(pattern.examples)
    assert (len(shown["nodes"]), shown["edges"]) == (2, [[0, 1, 1.0]])


def test_only_patterns_are_taken(found: tuple[Any, Any, Patterns], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"patterns must be what nseg\.patterns returns"):
        nseg.report(found[1], tmp_path / "why.html", data=found[0], patterns=[1])


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (apt install chromium)")
def test_the_tab_shows_patterns_and_leads_to_examples(found: tuple[Any, Any, Patterns], tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path, plain = write(tmp_path, found), tmp_path / "plain.html"
    nseg.report(found[1], plain, data=found[0])
    wrong: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme="dark")
        page.set_default_timeout(120_000)
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(path.as_uri())
        page.get_by_role("link", name="What the model looks at").click()
        page.wait_for_selector("article.patterns")
        assert page.locator("main h2").inner_text() == "What the model looks at"
        assert page.locator(".card h4").all_inner_texts() == [one.text for one in found[2]]
        assert [one.sentence("It") in page.locator("article").inner_text() for one in found[2]] == [True] * len(found[2])
        assert page.get_by_role("img", name="N - O").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        card = page.locator(".card").last
        card.get_by_role("link").first.click()
        page.wait_for_selector(".panel")
        assert page.url.endswith(f"#instance={found[2][-1].examples[0]}")
        page.goto(plain.as_uri())
        page.wait_for_selector("main h2")
        assert page.get_by_role("link", name="What the model looks at").count() == 0
        browser.close()
    assert wrong == []
