"""All that the page shows, as plain data: numbers first, ink second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nseg import metrics
from nseg.metrics.worlds import TENTHS
from nseg.reports.origin import Origin
from nseg.reports.picture import Method, Picture, Plain, Texts, rounded


def payload(methods: Sequence[Method], origin: Origin, title: str, facts: Mapping[str, str], summary: Plain | None) -> Plain:
    """What the page holds.

    Args:
        methods: to be shown side by side.
        origin: of the explanations.
        title: of the page.
        facts: what was done, in words.
        summary: a table, see :func:`nseg.report`.
    """
    texts = Texts()
    numbers = list(dict.fromkeys(number for method in methods for number in method.place))
    pictures = [Picture(number, methods, origin) for number in numbers]
    groups: tuple[str, ...] = max((picture.scene.groups for picture in pictures), key=len)
    return {
        "title": title,
        "level": pictures[0].scene.level,
        "molecules": any(picture.scene.molecule for picture in pictures),
        "facts": [[str(k), str(v)] for k, v in facts.items()],
        "summary": summary,
        "methods": [_method(method) for method in methods],
        "classes": [origin.name(number) for number in range(_classes(methods, pictures))],
        "groups": list(groups),
        "instances": [picture.plain(texts) for picture in pictures],
        "names": texts.known,
    }


def _classes(methods: Sequence[Method], pictures: Sequence[Picture]) -> int:
    """How many classes are spoken of."""
    spoken = [c for picture in pictures for c in (picture.target, picture.label, picture.predicted) if c is not None]
    for method in methods:
        spoken += [int(found.label.max()) for found in (method.worlds, *(method.rankings or ())) if found is not None]
    return max(spoken) + 1


def said(value: Any) -> str:
    """A setting as a person writes it.

    >>> said(0.1), said([1 / 3, 2.0]), said("pns"), said(None)
    ('0.1', '0.333333, 2', 'pns', 'none')
    """
    if isinstance(value, list | tuple):
        return ", ".join(map(said, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _method(method: Method) -> Plain:
    curve = None
    if method.judge is not None:
        at = [method.judge.fidelity(t) for t in TENTHS[1:]]
        names = ("fid_plus", "fid_minus", "pns", "sparsity")
        curve = {"at": TENTHS[1:], **{name: [rounded(getattr(f, name)) for f in at] for name in names}}
    return {
        "name": method.name,
        "settings": [[k, said(v)] for k, v in method.settings.items()],
        "edges": method.edges,
        "nodes": method.nodes,
        "features": method.features,
        "split": [rounded(part) for part in method.split],
        "curve": curve,
    }


# --- all instances -------------------------------------------------------------------------------------------------------


def _column(name: str, better: str | None, what: str) -> Plain:
    return {"name": name, "digits": 3, "better": better, "help": what}


COLUMNS = (
    {"name": "method"},
    {"name": "instances"},
    _column("PNS", "higher", "mean lower bound of the probability of necessity and sufficiency"),
    _column("PN", "higher", "mean lower bound of the probability of necessity"),
    _column("PS", "higher", "mean lower bound of the probability of sufficiency"),
    _column("Fid+", "higher", "share whose class changes without the explanation"),
    _column("Fid-", "lower", "share whose class changes with the explanation alone"),
    _column("charact", "higher", "both in one; read it beside the sparsity"),
    _column("sparsity", None, "share of the edges within reach (or nodes) that is left out"),
    _column("Recall@K", "higher", "share of the ground truth among the K weightiest edges"),
)


def summary(methods: Sequence[Method], origin: Origin) -> Plain:
    """How good each method's explanations are on the whole."""
    rows = [_summary_row(method, origin) for method in methods]
    known = [n for n in range(len(COLUMNS)) if any(row[n] is not None for row in rows)]
    return {
        "title": "How good the explanations are",
        "columns": [COLUMNS[n] for n in known],
        "rows": [[row[n] for n in known] for row in rows],
        "notes": [],
    }


def _summary_row(method: Method, origin: Origin) -> list[Any]:
    judge, bench = method.judge, origin.bench
    if judge is not None:
        fidelity = judge.fidelity("hard")
        names = ("pns", "pn", "ps", "fid_plus", "fid_minus", "charact", "sparsity")
        numbers = [rounded(getattr(fidelity, name)) for name in names]
    else:
        known = [[one.get(name) for one in method.found] for name in ("pns", "pn", "ps")]
        numbers = [None if None in row else rounded(sum(row) / len(row)) for row in known] + [None] * 4
    recall = None
    if bench is not None and bench.k_edges is not None and not method.features:
        found = metrics.accuracy(bench, method.found, "edge" if method.edges else "node")
        recall = rounded(metrics.summarise(found.recall_at_k)["mean"])
    return [method.name, len(method.found), *numbers, recall]
