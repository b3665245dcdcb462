"""Everything that the page shows, as JSON: numbers first, ink second.

The keys are read by ``web/src/payload.ts``: change both together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg import metrics
from nseg.errors import InputError
from nseg.metrics.fidelity import TENTHS
from nseg.names import Names
from nseg.reports.changes import Changes
from nseg.reports.explained_data import ExplainedData
from nseg.reports.instance import ExplainedInstance, TextPool
from nseg.reports.json_values import JsonObject, rounded
from nseg.reports.method import Method
from nseg.wording import VERDICTS, mask_cells


def payload(
    methods: Sequence[Method],
    explained: ExplainedData,
    title: str,
    facts: Mapping[str, str],
    summary: JsonObject | None,
    changes: Changes | None = None,
) -> JsonObject:
    """The data of the page.

    Args:
        methods: methods to show side by side.
        explained: the explained data.
        title: title of the page.
        facts: what was explained and how, as terms and texts.
        summary: a table, see :func:`nseg.report`.
        changes: smallest changes by output.
    """
    texts = TextPool()
    output_ids = list(dict.fromkeys(output_id for method in methods for output_id in method.position_of))
    instances = [ExplainedInstance(output_id, methods, explained) for output_id in output_ids]
    widest = max((instance.scene for instance in instances), key=lambda scene: len(scene.groups))
    names, width = instances[0].scene.names, _num_features(methods)
    return {
        "title": title,
        "level": instances[0].scene.level,
        "grouping": widest.grouping,
        "verdicts": [[key, name] for key, name in VERDICTS.items()],
        "molecules": any(instance.scene.molecule for instance in instances),
        "facts": [[str(k), str(v)] for k, v in facts.items()],
        "summary": summary,
        "methods": [_method(method) for method in methods],
        "classes": _class_names(methods, instances, names),
        "groups": list(widest.groups),
        "instances": [one.to_json(texts, (changes or {}).get(one.output_id)) for one in instances],
        "names": texts.texts,
        "feature_names": _feature_names(methods, names, width),
        "units": [names.unit(number) for number in range(width)] if names.units else [],
    }


def _feature_names(methods: Sequence[Method], names: Names, width: int) -> list[str]:
    """Names of features by number, if they have any; of a heterogeneous graph, of features of all nodes of a type."""
    if names.types is None:
        return [names.feature(number) for number in range(width)] if names.features else []
    one = next((m.explanations[0] for m in methods if m.node_mask is MaskType.common_attributes), None)
    cells = [] if one is None else mask_cells(one).nonzero().tolist()
    kinds = names.types.node_types
    return [f"{kinds[row]}: {names.of_type(kinds[row]).feature(number)}" for row, number in cells]


def _class_names(methods: Sequence[Method], instances: Sequence[ExplainedInstance], names: Names) -> list[str]:
    """Names of all classes that the page mentions; of an explained event, that it does not happen and that it does."""
    events = {repr(method.event): method.event for method in methods}
    if len(events) > 1:
        raise InputError(
            f"Methods in one report must explain one outcome (got {', '.join(events)}). Give them equal ones, with the same "
            "scale, or make a report for each."
        )
    (event,) = events.values()
    if event is not None:
        return list(event.sides)
    asked = next((method.evaluator for method in methods if method.evaluator is not None), None)
    if asked is not None:
        names.check_classes(asked.outcome.num_classes(asked.output))
    return [names.class_name(number) for number in range(_num_classes(methods, instances))]


def _num_classes(methods: Sequence[Method], instances: Sequence[ExplainedInstance]) -> int:
    """Number of classes that the page mentions."""
    used = [c for one in instances for c in (one.target, one.label, one.predicted) if c is not None]
    for method in methods:
        used += [int(found.label.max()) for found in (method.worlds, *(method.rankings or ())) if found is not None]
    return max(used) + 1


def _num_features(methods: Sequence[Method]) -> int:
    """Number of features that the page may mention; 0 if no features are masked."""
    masks = [method.explanations[0].node_mask for method in methods if method.nodes]
    return max((mask.size(1) for mask in masks if mask.dim() == 2), default=0)


def format_setting(value: Any) -> str:
    """A setting as text.

    >>> format_setting(0.1), format_setting([1 / 3, 2.0]), format_setting("pns"), format_setting(None)
    ('0.1', '0.333333, 2', 'pns', 'none')
    """
    if isinstance(value, list | tuple):
        return ", ".join(map(format_setting, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _method(method: Method) -> JsonObject:
    curve = None
    if method.evaluator is not None:
        at = [method.evaluator.fidelity(t) for t in TENTHS[1:]]
        names = ("fid_plus", "fid_minus", "pns", "sparsity")
        curve = {"at": TENTHS[1:], **{name: [rounded(getattr(f, name)) for f in at] for name in names}}
    return {
        "name": method.name,
        "settings": [[k, format_setting(v)] for k, v in method.settings.items()],
        "edges": method.edges,
        "node_mask": None if method.node_mask is None else method.node_mask.value,
        "split": [rounded(part) for part in method.split],
        "curve": curve,
        "intervention": method.explanations[0].get("intervention"),
        "verdicts": count_verdicts(method.explanations),
    }


TAKEN_AWAY = {
    (True, True): "necessary and sufficient",
    (True, False): "only sufficient",
    (False, True): "only necessary",
    (False, False): "neither",
}
"""Names of verdicts, by whether an explanation keeps the class, and whether the class changes without it."""


def count_verdicts(explanations: Sequence[Explanation]) -> JsonObject | None:
    """How many explanations have each verdict, how many of them the model says anyway, and how many hold if edges go."""
    known = [one for one in explanations if one.get("keeps") is not None]
    if not known:
        return None
    names = [TAKEN_AWAY[bool(one.keeps), bool(one.changes)] for one in known]
    return {
        **{name: names.count(name) for name in TAKEN_AWAY.values()},
        "anyway": sum(bool(one.keeps and not one.changes and one.get("keeps_empty")) for one in known),
        "hold if edges are deleted": sum(bool(one.get("holds_removed")) for one in known),
        "of": len(known),
    }


# --- the table of all instances ------------------------------------------------------------------------------------------


def _column(name: str, better: str | None, help_text: str, bound: bool = False) -> JsonObject:
    return {"name": name, "digits": 3, "better": better, "help": help_text, "bound": bound}


COLUMNS = (
    {"name": "method"},
    {"name": "instances"},
    _column("PNS", "higher", "mean lower bound of the probability of necessity and sufficiency, rounded down", bound=True),
    _column("PN", "higher", "mean lower bound of the probability of necessity, rounded down", bound=True),
    _column("PS", "higher", "mean lower bound of the probability of sufficiency, rounded down", bound=True),
    _column("Fid+", "higher", "share of instances whose class changes without the explanation"),
    _column("Fid-", "lower", "share of instances whose class changes with the explanation alone"),
    _column("charact", "higher", "Fid+ and Fid- combined; read it together with the sparsity"),
    _column(
        "sparsity",
        None,
        "share of the edges within reach, each direction for itself, that is left out (or of nodes or features)",
    ),
    _column("Recall@K", "higher", "share of the ground truth among the K edges with the largest weights"),
)


def summary(methods: Sequence[Method], explained: ExplainedData) -> JsonObject:
    """A table of the quality of each method's explanations."""
    rows = [_summary_row(method, explained) for method in methods]
    known = [n for n in range(len(COLUMNS)) if any(row[n] is not None for row in rows)]
    return {
        "title": "Quality of the explanations",
        "columns": [COLUMNS[n] for n in known],
        "rows": [[row[n] for n in known] for row in rows],
        "notes": [],
    }


def _summary_row(method: Method, explained: ExplainedData) -> list[Any]:
    evaluator, dataset = method.evaluator, explained.dataset
    if evaluator is not None:
        fidelity = evaluator.fidelity("hard")
        names = ("pns", "pn", "ps", "fid_plus", "fid_minus", "charact", "sparsity")
        numbers = [rounded(getattr(fidelity, name)) for name in names]
    else:
        known = [[one.get(name) for one in method.explanations] for name in ("pns", "pn", "ps")]
        numbers = [None if None in row else rounded(sum(row) / len(row)) for row in known] + [None] * 4
    recall = None
    if dataset is not None and dataset.k_edges is not None and method.node_mask is not MaskType.common_attributes:
        accuracy = metrics.accuracy(dataset, method.explanations, "edge" if method.edges else "node")
        recall = rounded(metrics.summarise(accuracy.recall_at_k)["mean"])
    return [method.name, len(method.explanations), *numbers, recall]
