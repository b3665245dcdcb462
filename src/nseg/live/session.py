"""A session of the studio: steps of changes with the model's answers, replayed from a file, and shown as a page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nseg.errors import InputError
from nseg.live.edits import GraphEdits
from nseg.live.explanation_view import explanation_view
from nseg.live.subject import StudioSubject
from nseg.live.work import Work
from nseg.reports.page import to_script_json
from nseg.version import __version__

BUNDLE = Path(__file__).parent.parent / "reports" / "bundle"

MOST_STEPS = 1000
"""Largest number of steps of a session."""

TOLERANCE = 1e-5
"""Difference of probabilities up to which a replayed step is the same: single precision on another machine."""


def replay(subject: StudioSubject, session: Any, work: Work | None = None) -> dict[str, Any]:
    """Ask the model again about every step of a saved session.

    Args:
        subject: the model and its graphs.
        session: what the studio saved: the output, and steps with their changes.
        work: told how far it is.

    Returns:
        the session with today's answers; ``differs`` lists the steps whose answers were others when it was saved.
    """
    output, step, steps = _checked(session)
    asked, answered, differs = subject.questions(output), list[dict[str, Any]](), list[int]()
    for number, old in enumerate(steps):
        edits = GraphEdits.from_plain(old.get("edits", {}))
        says = asked.predict(edits)
        new: dict[str, Any] = {"edits": edits.to_plain(), "predicted": says.predicted}
        new["probabilities"] = list(says.probabilities)
        if old.get("explanation"):
            new["explanation"] = explanation_view(asked.explain(edits, work))
        if old.get("words"):
            new["words"] = str(old["words"])
        if not _same(old, new):
            differs.append(number)
        answered.append(new)
    return {"nseg": "studio", "version": __version__, "output": output, "step": step, "steps": answered, "differs": differs}


def _checked(session: Any) -> tuple[int, int, list[Mapping[str, Any]]]:
    """Output, present step and steps of a session."""
    try:
        output, step, steps = session["output"], session["step"], list(session["steps"])
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (output, step))
        good = session["nseg"] == "studio" and whole and 0 <= step < len(steps) <= MOST_STEPS
        good = good and all(isinstance(one, Mapping) for one in steps)
    except (KeyError, TypeError):
        good = False
    if not good:
        raise InputError(
            f"A session must be a file that the studio saved, with at most {MOST_STEPS} steps (got something else)."
        )
    return output, step, steps


def _same(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether a step was answered as it is now; a step without answers is."""
    before = old.get("probabilities")
    if before is None:
        return True
    near = isinstance(before, list) and len(before) == len(new["probabilities"])
    near = near and all(abs(a - b) <= TOLERANCE for a, b in zip(before, new["probabilities"], strict=True))
    kept = [(one.get("explanation") or {}).get("kept") for one in (old, new)]
    return bool(near and kept[0] == kept[1])


def page(recorded: Any = None) -> tuple[str, str]:
    """The studio's page and its content security policy.

    Args:
        recorded: a replayed session with its drawing, which the page then shows without a server.
    """
    script, style = ((BUNDLE / name).read_text(encoding="utf-8") for name in ("studio.js", "page.css"))
    connect = "connect-src 'self'; " if recorded is None else ""
    policy = f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; {connect}"
    policy += "img-src data:; base-uri 'none'; form-action 'none'"
    data = "" if recorded is None else f'<script type="application/json" id="recorded">{to_script_json(recorded)}</script>'
    html = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>nseg studio</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><meta name="referrer" content="no-referrer">'
        f'<meta name="generator" content="nseg {__version__}"><style>{style}</style></head>'
        "<body><noscript><p>The studio needs JavaScript, which is disabled in this browser.</p></noscript>"
        f'<div id="page"></div>{data}<script>{script}</script></body></html>'
    )
    return html, policy


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
