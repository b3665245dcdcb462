"""What an explanation keeps, element by element, with names, weights and values; and the explanation in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.events import HAPPENS, Custom
from nseg.explanation import explained_targets, link_pairs, row_numbers, task_level
from nseg.model.outcomes import outcome_of
from nseg.names import NO_NAMES, Names
from nseg.wording import (
    PartSize,
    hard_mask,
    is_undirected,
    kept_parts,
    node_mask_type,
    probability_text,
    reached_edges,
    reached_nodes,
)

MOST_LISTED = 12
"""Edges, nodes or features of one explanation that a sentence lists."""


@dataclass(frozen=True)
class Element:
    """One edge, node or feature that an explanation keeps or leaves out; numbers are the caller's.

    Args:
        kind: ``"edge"``, ``"node"``, ``"node feature"`` (of one node) or ``"feature"`` (of all nodes).
        text: with names, such as ``"tx-2716 -> tx-11"`` or ``"tx-11: amount = 12.5 EUR"``.
        weight: in the soft mask; None if there is none.
        kept: whether the explanation keeps it.
        edge, source, target: of an edge; ends are None for a stored explanation without its graph.
        node: of a node or of one of its features.
        feature: column of ``x``.
        value: of the feature; None if unknown.
    """

    kind: Literal["edge", "node", "node feature", "feature"]
    text: str
    weight: float | None
    kept: bool
    edge: int | None = None
    source: int | None = None
    target: int | None = None
    node: int | None = None
    feature: int | None = None
    value: float | None = None


def names_of(one: Explanation) -> Names:
    """The names that an explanation was given; the classes of an event are that it does not happen, and that it does."""
    found, event = one.get("names"), one.get("outcome")
    names = found if isinstance(found, Names) else NO_NAMES
    if event is None or one.get("target") is None:
        return names
    targets, index = explained_targets(one).cpu(), one.get("index")
    row = int(row_numbers(index)[0]) if index is not None and targets.numel() > 1 else 0
    return replace(names, classes=(event.sides[0], event.title(targets[row].item(), names.class_name)))


def elements(one: Explanation, left_out: bool = False) -> list[Element]:
    """What an explanation keeps, among what can matter for its output: edges by weight, then nodes and features.

    Args:
        one: of one output, from :func:`nseg.explain_many` or :func:`nseg.read`.
        left_out: whether to also list what it does not keep; a stored explanation then needs its graph
            (:func:`nseg.runs.attach`).
    """
    if one.get("reason") is not None:
        return []
    found = [*_edges(one, left_out), *_node_elements(one, left_out)]
    return sorted(found, key=lambda element: (element.kind, not element.kept, -(element.weight or 0.0)))


def _edges(one: Explanation, left_out: bool) -> Iterable[Element]:
    hard = hard_mask(one, "edge_mask")
    if hard is None:
        return
    names, counted = names_of(one), reached_edges(one)
    listed = (counted if left_out else hard & counted).nonzero().flatten()
    ids = _ids(one, "edge_id", hard.numel())[listed].tolist()
    ends = _listed_ends(one, listed)
    soft, seen, both = one.get("edge_mask"), set[tuple[int, int]](), is_undirected(one)
    for number, position in enumerate(listed.tolist()):
        source, target = (None, None) if ends is None else ends[number]
        text = f"edge {ids[number]}"
        if source is not None and target is not None:
            if both and (target, source) in seen:
                continue
            seen.add((source, target))
            text = names.edge(ids[number], source, target, both)
        weight = None if soft is None else float(soft[position])
        yield Element("edge", text, weight, bool(hard[position]), ids[number], source, target)


def _listed_ends(one: Explanation, listed: Tensor) -> list[list[int]] | None:
    """Source and target of some edges, by the caller's numbers; None if they are not known."""
    edges = one.get("edge_index")
    if edges is not None:
        nodes = _ids(one, "node_id", int(one.num_nodes or 0))
        found: list[list[int]] = nodes[edges.cpu()[:, listed]].T.tolist()
        return found
    stored: Tensor | None = getattr(one, "_kept_ends", None)
    return None if stored is None or stored.size(1) != listed.numel() else stored.T.tolist()


def _node_elements(one: Explanation, left_out: bool) -> Iterable[Element]:
    hard, kind = hard_mask(one, "node_mask"), node_mask_type(one)
    if hard is None:
        return
    names, soft = names_of(one), one.node_mask.detach().cpu().float().view(hard.size(0), -1)
    if kind is MaskType.common_attributes:
        for feature in range(hard.size(1)):
            if left_out or bool(hard[0, feature]):
                kept, weight = bool(hard[0, feature]), float(soft[0, feature])
                yield Element("feature", names.feature(feature), weight, kept, feature=feature)
        return
    ids, nodes = _ids(one, "node_id", hard.size(0)).tolist(), reached_nodes(one).tolist()
    if kind is MaskType.object:
        for node in nodes:
            if left_out or bool(hard[node].any()):
                kept = bool(hard[node].any())
                yield Element("node", names.node(ids[node]), float(soft[node].max()), kept, node=ids[node])
        return
    values = _feature_values(one, hard)
    for node in nodes:
        for feature in range(hard.size(1)) if left_out else hard[node].nonzero().flatten().tolist():
            value = None if values is None else values.get((node, feature))
            what = names.feature(feature) if value is None else names.value(feature, value)
            text, kept = f"{names.node(ids[node])}: {what}", bool(hard[node, feature])
            yield Element(
                "node feature", text, float(soft[node, feature]), kept, node=ids[node], feature=feature, value=value
            )


def _feature_values(one: Explanation, hard: Tensor) -> dict[tuple[int, int], float] | None:
    """Values of features by node and column: all if the graph is there, else those that are kept."""
    x: Tensor | None = one.get("x")
    stored: Tensor | None = getattr(one, "_kept_values", None)
    if x is not None:
        every = torch.ones_like(hard).nonzero().tolist()
        return dict(zip(map(tuple, every), x.detach().cpu().double().flatten().tolist(), strict=True))
    at = hard.nonzero().tolist()
    if stored is None or len(at) != stored.numel():
        return None
    return dict(zip(map(tuple, at), stored.tolist(), strict=True))


def _ids(one: Explanation, name: str, number: int) -> Tensor:
    found: Tensor | None = one.get(name)
    return torch.arange(number) if found is None else found.cpu()


# --- words ---------------------------------------------------------------------------------------------------------------


def explained_class(one: Explanation) -> int | None:
    """The class that is explained, 1 for an event (it happens); None if there is none."""
    index = one.get("index")
    if one.get("target") is None:
        return None
    if one.get("outcome") is not None:
        return HAPPENS
    target = explained_targets(one).cpu()
    return int(target[row_numbers(index)][0] if index is not None and target.numel() > 1 else target[0])


def predicted_probability(one: Explanation) -> float | None:
    """Probability that the model gives the explained class on the whole graph; None if it is not known."""
    prediction, config, target = one.get("prediction"), getattr(one, "_model_config", None), explained_class(one)
    if prediction is None or config is None or target is None:
        return None
    event, targets = one.get("outcome"), explained_targets(one).cpu()
    if isinstance(event, Custom):  # its function may not be there
        return None
    outcome, rows = outcome_of(config, event), prediction.detach().cpu()
    rows = rows if event is not None and event.column is not None and rows.dim() == 1 else outcome.as_rows(rows)
    index = one.get("index")
    if index is not None and len(rows) > 1:
        rows, targets = rows[row_numbers(index)], targets[row_numbers(index)]
    return float(outcome.probability(rows[:1], targets[:1]))


def subject(one: Explanation) -> str:
    """What is explained, by name: ``"tx-11"``, ``"node 11"``, ``"the pair a - b"`` or ``"graph 3"``."""
    number, level, names = int(one.get("output_id", 0)), task_level(one), names_of(one)
    if one.get("reason") is not None:  # of what kind it is was not found out
        return f"output {number}"
    if level == "node":
        return names.node(number)
    if level == "graph":
        return f"graph {number}"
    ids, index = one.get("node_id"), one.get("index")
    if one.get("edge_index") is None or index is None or ids is None:
        return f"pair {number}"
    pairs = link_pairs(one)
    a, b = ids.cpu()[pairs[:, row_numbers(index)[:1]]].flatten().tolist()
    return f"the pair {names.node_label(a)} - {names.node_label(b)}"


def sentence(one: Explanation) -> str:
    """An explanation in plain words: what the model says, what that rests on, and the verdict if there is one."""
    if one.get("reason") is not None:
        return f"{_capital(subject(one))} could not be explained: {one.reason}"
    p, target = predicted_probability(one), explained_class(one)
    says = "something" if target is None else names_of(one).class_name(target)
    sure = "" if p is None else f" (p {probability_text(p)})"
    found = [f"{_capital(subject(one))}: the model says {says}{sure}."]
    kept = " and ".join(_share_text(one, part) for part in kept_parts(one))
    if one.get("p_factual") is not None and one.get("p_complement") is not None:
        with_it, without = probability_text(one.p_factual), probability_text(one.p_complement)
        found.append(f"With only {kept}, p is {with_it}; without, {without}.")
    else:
        found.append(f"It keeps {kept}.")
    return " ".join([*found, *([str(one.verdict)] if one.get("verdict") else [])])


def _share_text(one: Explanation, part: PartSize) -> str:
    """How much of a part is kept, and what: ``"1 of 34 edges [tx-2716 -> tx-11]"``."""
    return f"{part.share()} [{kept_text(one, part)}]" if part.kept else part.share()


KINDS = {"edges": "edge", "directed edges": "edge", "nodes": "node", "node features": "node feature", "features": "feature"}


def kept_text(one: Explanation, part: PartSize) -> str:
    """The kept elements of one part, by name; the first twelve if there are more."""
    listed = [element for element in elements(one) if element.kind == KINDS[part.unit]]
    if part.unit == "node features":
        by_node = groupby(sorted(listed, key=_node_order), key=_node_order)
        return _limited([_of_node(names_of(one).node(node), list(some)) for node, some in by_node], "; ")
    return _limited([element.text for element in listed], ", ")


def _node_order(element: Element) -> int:
    return element.node or 0


def _of_node(name: str, listed: Sequence[Element]) -> str:
    """Features of one node: ``"tx-11: amount = 12.5 EUR, device_new = 1"``."""
    return f"{name}: {', '.join(one.text[len(name) + 2 :] for one in listed)}"


def _limited(texts: Sequence[str], between: str) -> str:
    more = len(texts) - MOST_LISTED
    return between.join(texts[:MOST_LISTED]) + (f"{between}and {more} more" if more > 0 else "")


def _capital(text: str) -> str:
    """A sentence's beginning; names keep their case."""
    return text[0].upper() + text[1:] if text.startswith(("node ", "graph ", "pair ", "the pair ", "output ")) else text
