"""One HTML page of explanations, whole in one file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.certify import Certificate
from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.reports.origin import Origin
from nseg.reports.payload import payload
from nseg.reports.payload import summary as usual_summary
from nseg.reports.picture import Method, Plain, asked
from nseg.scm import uncompiled
from nseg.store import replace_file

HERE = Path(__file__).parent

Explanations = Sequence[Explanation] | Mapping[str, Sequence[Explanation]]


def report(
    explanations: Explanations,
    path: str | Path,
    *,
    data: Benchmark | Data | Sequence[Data] | None = None,
    explainer: Explainer | None = None,
    title: str = "Why these predictions?",
    names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    certificates: Sequence[Certificate] | Mapping[str, Sequence[Certificate]] | None = None,
    summary: Plain | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write explanations as one interactive HTML page that works without network, from a disk or a mail attachment.

    For each prediction it shows the graph, what stays of it along the explanation's ranking, and what the model says with
    and without that. Equal input gives an equal file.

    Args:
        explanations: from :func:`nseg.explain_many` or PyG's ``Explainer``; or several lists by the names of their methods,
            which are shown side by side.
        path: of the file, which is replaced.
        data: what was explained: a dataset of :mod:`nseg.datasets` (names, classes and ground truth are taken from it), the
            graph, or the graphs.
        explainer: any for the same model; then the model is asked what it says in each world and along the ranking.
            Without it, the page has the numbers that the explanations hold. It needs ``data``.
        title: of the page.
        names: of the nodes of the graph.
        class_names: of the classes.
        certificates: of the explanations, from :func:`nseg.certify`, in the same form.
        summary: a table instead of the usual one: ``{"columns": [{"name": ..., "better": "higher" | "lower", "digits": 3,
            "help": ...}, ...], "rows": [[...], ...], "title": ..., "notes": [...]}``; only names of columns and rows are
            needed. A cell is a number, a text, None, or ``{"value": ..., "paper": ..., "low": ..., "high": ...,
            "note": ...}`` with the paper's value and an interval.
        facts: what else to say of how the explanations were made, e.g. ``{"weights": "model.safetensors"}``.

    Returns:
        The path.
    """
    path = writable(path)
    if explainer is not None and data is None:
        raise InputError("A model is asked about the graphs that were explained (got no data). Give data=... as well.")
    origin = Origin(data, names, class_names)
    given = _by_method(explanations, explainer)
    proofs = _certificates(certificates, given)
    methods = [
        asked(name, [origin.complete(one) for one in found], origin, explainer, proofs.get(name))
        for name, found in given.items()
    ]
    known = _facts(methods, origin, explainer) | {str(k): str(v) for k, v in (facts or {}).items()}
    table = usual_summary(methods, origin) if summary is None else _checked(summary)
    content = page(payload(methods, origin, title, known, table), title)
    replace_file(path, lambda place: place.write_text(content, encoding="utf-8"))
    return path


def writable(path: str | Path) -> Path:
    """Where a page can be written, or a sentence that says why not; to be asked before the work."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"The page must be a file in a folder that can be written to (got {path}). Name one: why.html.")
    return path


def page(content: Plain, title: str) -> str:
    """The page that shows a payload, as HTML."""
    from nseg import __version__

    script, style = ((HERE / "bundle" / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    parts = {
        "version": __version__,
        "title": html.escape(title),
        "data": embedded(content),
        "script": script,
        "style": style,
        "script_hash": _digest(script),
        "style_hash": _digest(style),
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], template)


def embedded(content: Plain) -> str:
    """Plain data as JSON that cannot end the element that it stands in, whatever texts it holds.

    >>> embedded({"name": "</script><b>"})
    '{"name":"\\\\u003c/script>\\\\u003cb>"}'
    """
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _digest(text: str) -> str:
    """What a content security policy calls a text by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# --- what was given ------------------------------------------------------------------------------------------------------


def _by_method(explanations: Explanations, explainer: Explainer | None) -> dict[str, list[Explanation]]:
    """Explanations by method, checked."""
    if not isinstance(explanations, Mapping):
        several = [explanations] if isinstance(explanations, Explanation) else list(explanations)
        name = "explanation" if explainer is None else type(explainer.algorithm).__name__
        explanations = {name: several}
    found = {str(name): list(some) for name, some in explanations.items()}
    for name, some in found.items():
        if not some or not all(isinstance(one, Explanation) for one in some):
            raise InputError(f"A report needs explanations of each method (got none, or something else, for {name!r}).")
        if some[0].get("edge_mask") is None and some[0].get("node_mask") is None:
            raise InputError(f"A report needs explanations with a mask (got none for {name!r}).")
        numbers = [one.get("output_id") for one in some if one.get("output_id") is not None]
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        if twice:
            raise InputError(
                f"A method must explain each output once (got {name!r} for {twice[0]} twice). "
                "Give several lists by name to compare them: {'first': [...], 'second': [...]}."
            )
    if not found:
        raise InputError("A report needs explanations (got none).")
    return found


def _certificates(given: Any, found: Mapping[str, list[Explanation]]) -> dict[str, Sequence[Certificate]]:
    if given is None:
        return {}
    by_name = dict(given) if isinstance(given, Mapping) else {next(iter(found)): given}
    for name, some in by_name.items():
        if name not in found or len(some) != len(found[name]):
            raise InputError(
                f"certificates must be one for each explanation of a method (got {len(some)} for {name!r}). "
                "Call nseg.certify with the same explanations."
            )
    return by_name


def _checked(summary: Plain) -> Plain:
    """A user's table in full."""
    columns, rows = list(summary.get("columns", [])), [list(row) for row in summary.get("rows", [])]
    if not columns or any("name" not in column for column in columns) or any(len(row) != len(columns) for row in rows):
        raise InputError(
            "summary must have columns with names, and rows with a cell for each of them (got others). "
            'Try {"columns": [{"name": "method"}, {"name": "PNS"}], "rows": [["nseg", 0.98]]}.'
        )
    return {
        "title": str(summary.get("title", "Summary")),
        "columns": columns,
        "rows": rows,
        "notes": [*summary.get("notes", [])],
    }


def _facts(methods: Sequence[Method], origin: Origin, explainer: Explainer | None) -> dict[str, str]:
    """What was explained, by what, and how."""
    number = len({number for method in methods for number in method.place})
    level = getattr(getattr(methods[0].found[0], "_model_config", None), "task_level", None)
    what = {"node": "nodes", "edge": "links", "graph": "graphs"}.get(getattr(level, "value", ""), "predictions")
    facts = {} if origin.bench is None else {"dataset": origin.bench.name}
    facts["explained"] = f"the classes of {number} {what}"
    if explainer is not None:
        model = uncompiled(explainer.model)
        facts["model"] = f"{type(model).__name__}, {sum(p.numel() for p in model.parameters()):,} parameters"
    facts["methods"] = ", ".join(f"{method.name} ({_parts(method)})" for method in methods)
    facts["left out"] = "messages over edges, and features of nodes, are weighed by 0; nothing is deleted"
    return facts


def _parts(method: Method) -> str:
    """What the explanations of a method consist of."""
    nodes = "features" if method.features else "nodes"
    return " and ".join(["edges"] * method.edges + [nodes] * method.nodes)
