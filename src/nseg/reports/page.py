"""One HTML page of explanations in a single file."""

from __future__ import annotations

import base64
import gc
import hashlib
import html
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import Explainer, Explanation, HeteroExplanation
from torch_geometric.explain.config import MaskType, ModelTaskLevel

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.explain.change import Counterfactual
from nseg.graphs.large import LargeGraph
from nseg.graphs.separate import separate_graphs
from nseg.hetero_explanation import flat_view
from nseg.metrics.certificate import Certificate
from nseg.model.borrow import unwrap_compiled
from nseg.pattern.collection import Patterns
from nseg.reports.changes import changes_by_output
from nseg.reports.explained_data import ExplainedData
from nseg.reports.json_values import JsonObject
from nseg.reports.method import Method, evaluate_method
from nseg.reports.pattern_view import patterns_view
from nseg.reports.payload import payload
from nseg.reports.payload import summary as default_summary
from nseg.storage.files import replace_file
from nseg.version import __version__

HERE = Path(__file__).parent

LEFT_OUT = {
    "mask": "edge messages and node features are multiplied by 0; nothing is deleted",
    "remove": "edges are deleted; node features are multiplied by 0",
    "both": "the worse of two: edges are deleted, or their messages multiplied by 0; node features are multiplied by 0",
}
"""What becomes of the parts of a graph that a world leaves out."""

Explanations = Sequence[Explanation] | Mapping[str, Sequence[Explanation]]


@contextmanager
def _collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: it would look through all that a large page consists of, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_collection_paused()
def report(
    explanations: Explanations,
    path: str | Path,
    *,
    data: Benchmark | Data | Sequence[Data] | None = None,
    explainer: Explainer | None = None,
    title: str = "Why these predictions?",
    names: Any = None,
    node_names: Any = None,
    feature_names: Any = None,
    class_names: Any = None,
    edge_names: Any = None,
    units: Any = None,
    certificates: Sequence[Certificate] | Mapping[str, Sequence[Certificate]] | None = None,
    counterfactuals: Sequence[Counterfactual] | None = None,
    summary: JsonObject | None = None,
    facts: Mapping[str, Any] | None = None,
    patterns: Patterns | None = None,
) -> Path:
    """Write explanations as one interactive HTML page that needs no network.

    It opens on an answer: what the first prediction rests on. Equal inputs give equal files.

    Args:
        explanations: explanations from :func:`nseg.explain_many` or PyG's ``Explainer``; or lists by method name, which
            are shown side by side.
        path: path of the file; an existing file is replaced.
        data: what was explained: a dataset of :mod:`nseg.datasets` (which also gives names, classes and ground truth), the
            graph, or the graphs.
        explainer: any explainer of the same model, to run the model in each world and along the ranking. Without it, the
            page shows only the numbers that the explanations hold. It needs ``data``.
        title: title of the page.
        names, node_names, feature_names, class_names, edge_names, units: names, as :func:`nseg.explain_many` takes them (the
            first two mean the same); by default those of the data or of the explanations.
        certificates: from :func:`nseg.certify`, as a list or as lists by method name.
        counterfactuals: smallest changes of some of the predictions, from :func:`nseg.counterfactual`.
        summary: a table that replaces the default one: ``{"columns": [{"name": ..., "better": "higher" | "lower", "help":
            ...}, ...], "rows": [[...], ...], "title": ..., "notes": [...]}``; only rows and names of columns are required. A
            cell is a number, a text, None, or ``{"value": ..., "paper": ..., "low": ..., "high": ..., "note": ...}``.
        facts: further facts, such as ``{"weights": "model.safetensors"}``.
        patterns: what :func:`nseg.patterns` found, as a second tab.

    Returns:
        The path.
    """
    path, by_method = writable(path), _by_method(explanations, explainer, data)
    given = {"node_names": names if node_names is None else node_names, "feature_names": feature_names, "units": units}
    given |= {"class_names": class_names, "edge_names": edge_names}
    explained = ExplainedData(_separate(data, explainer, by_method), given)
    proofs, complete = _certificates(certificates, by_method), explained.complete
    methods = [
        evaluate_method(name, list(map(complete, some)), explained, explainer, proofs.get(name))
        for name, some in by_method.items()
    ]
    all_facts = _facts(methods, explained, explainer) | {str(k): str(v) for k, v in (facts or {}).items()}
    table = default_summary(methods, explained) if summary is None else _checked_summary(summary)
    shown = payload(methods, explained, title, all_facts, table, changes_by_output(counterfactuals, methods))
    content = page(shown | _pattern_view(patterns), title).encode()
    replace_file(path, lambda place: place.write_bytes(content))
    return path


def _pattern_view(patterns: Patterns | None) -> JsonObject:
    """The part of the payload that shows patterns; empty without any."""
    if patterns is None:
        return {}
    if not isinstance(patterns, Patterns):
        raise InputError(f"patterns must be what nseg.patterns returns (got {type(patterns).__name__}).")
    return {"patterns": patterns_view(patterns)}


def _separate(data: Any, explainer: Explainer | None, by_method: Mapping[str, Sequence[Explanation]]) -> Any:
    """What was explained, with batches of graphs taken apart as ``explain_many`` does."""
    first = next(iter(by_method.values()))[0]
    config = getattr(first, "_model_config", None) if explainer is None else explainer.model_config
    batch_of_graphs = isinstance(data, Batch) and config is not None and config.task_level is ModelTaskLevel.graph
    if data is None or (isinstance(data, Benchmark | Data | HeteroData | LargeGraph) and not batch_of_graphs):
        return data
    return separate_graphs(data)


def writable(path: str | Path) -> Path:
    """The path, checked to be writable. Call it before long computations."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"The report's path must be a file in a folder that can be written to (got {path}). Try why.html.")
    return path


def page(content: JsonObject, title: str) -> str:
    """The HTML page that shows a payload."""
    script, style = ((HERE / "bundle" / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    parts = {
        "version": __version__,
        "title": html.escape(title),
        "data": to_script_json(content),
        "script": script,
        "style": style,
        "script_hash": _csp_hash(script),
        "style_hash": _csp_hash(style),
    }
    template = (HERE / "page.html").read_text(encoding="utf-8")
    return re.sub(r"{{(\w+)}}", lambda found: parts[found[1]], template)


def to_script_json(content: JsonObject) -> str:
    """JSON that is safe inside a ``<script>`` element: no text in it can close the element.

    >>> to_script_json({"name": "</script><b>"})
    '{"name":"\\\\u003c/script>\\\\u003cb>"}'
    """
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _csp_hash(text: str) -> str:
    """SHA-256 of a text, as a content security policy writes it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# --- checks of the arguments ---------------------------------------------------------------------------------------------


def _by_method(explanations: Explanations, explainer: Explainer | None, data: Any) -> dict[str, list[Explanation]]:
    """Explanations by method name, checked."""
    if explainer is not None and data is None:
        raise InputError(
            "With explainer=..., a report also needs the graphs that were explained (got data=None). Pass data=... as well."
        )
    if not isinstance(explanations, Mapping):
        several = [explanations] if isinstance(explanations, Explanation | HeteroExplanation) else list(explanations)
        name = "explanation" if explainer is None else type(explainer.algorithm).__name__
        explanations = {name: several}
    found = {str(name): list(some) for name, some in explanations.items()}
    for name, some in found.items():
        if not some or not all(isinstance(one, Explanation | HeteroExplanation) for one in some):
            raise InputError(
                f"explanations must hold Explanation objects for each method (got none, or others, for {name!r})."
            )
        first = flat_view(some[0])
        if first.get("edge_mask") is None and first.get("node_mask") is None:
            raise InputError(f"explanations must have an edge_mask or a node_mask (got neither for {name!r}).")
        times = Counter(one.get("output_id") for one in some)
        repeated = sorted(output_id for output_id, number in times.items() if output_id is not None and number > 1)
        if repeated:
            raise InputError(
                f"explanations must explain each output once per method (got output {repeated[0]} twice for {name!r}). "
                "To compare several explanations of an output, pass lists by name: {'first': [...], 'second': [...]}."
            )
    if not found:
        raise InputError("explanations must hold at least one explanation (got none).")
    return found


def _certificates(given: Any, by_method: Mapping[str, list[Explanation]]) -> dict[str, Sequence[Certificate]]:
    """Certificates by method name, checked."""
    if given is None:
        return {}
    by_name = dict(given) if isinstance(given, Mapping) else {next(iter(by_method)): given}
    for name, some in by_name.items():
        if name not in by_method or len(some) != len(by_method[name]):
            raise InputError(
                f"certificates must be one for each explanation of a method (got {len(some)} for {name!r}). "
                "Call nseg.certify with the same explanations."
            )
    return by_name


def _checked_summary(summary: JsonObject) -> JsonObject:
    """The caller's table, checked and completed."""
    columns, rows = list(summary.get("columns", [])), [list(row) for row in summary.get("rows", [])]
    if not columns or any("name" not in column for column in columns) or any(len(row) != len(columns) for row in rows):
        raise InputError(
            "summary must have columns with names, and rows with a cell for each column (got a table without). "
            'Try {"columns": [{"name": "method"}, {"name": "PNS"}], "rows": [["nseg", 0.98]]}.'
        )
    return {
        "title": str(summary.get("title", "Summary")),
        "columns": columns,
        "rows": rows,
        "notes": [*summary.get("notes", [])],
    }


def _facts(methods: Sequence[Method], explained: ExplainedData, explainer: Explainer | None) -> dict[str, str]:
    """What was explained, with which model and methods, and how parts of a graph are left out."""
    count = len({output_id for method in methods for output_id in method.position_of})
    level = getattr(getattr(methods[0].explanations[0], "_model_config", None), "task_level", None)
    what = {"node": "nodes", "edge": "links", "graph": "graphs"}.get(getattr(level, "value", ""), "outputs")
    facts = {} if explained.dataset is None else {"dataset": explained.dataset.name}
    facts["explained"] = f"predictions for {count} {what}"
    if explainer is not None:
        model = unwrap_compiled(explainer.model)
        facts["model"] = f"{type(model).__name__}, {sum(p.numel() for p in model.parameters()):,} parameters"
    facts["methods"] = ", ".join(f"{method.name} ({_mask_parts(method)})" for method in methods)
    facts["left out"] = LEFT_OUT[str(methods[0].explanations[0].get("intervention") or "mask")]
    return facts


def _mask_parts(method: Method) -> str:
    """What a method's masks cover, such as "edges and features of nodes"."""
    names = {MaskType.object: "nodes", MaskType.attributes: "features of nodes", MaskType.common_attributes: "features"}
    return " and ".join(["edges"] * method.edges + [name for kind, name in names.items() if kind is method.node_mask])
