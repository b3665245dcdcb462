"""An explanation in plain sentences: what a prediction rests on, whether that holds, and what to try if it does not.

The report's page shows these texts as they are, so that terminal, pictures and page say the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.explain import Explanation
from torch_geometric.explain.config import MaskType

from nseg.explanation import target_nodes, task_level
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

MAX_LISTED = 3
"""Maximum number of edges, of nodes and of features that a sentence names."""

Verdict = Literal["both", "enough", "needed", "neither", "unexplained", "unknown"]

VERDICTS: dict[Verdict, str] = {
    "both": "enough and needed",
    "enough": "enough, not needed",
    "needed": "needed, not enough",
    "neither": "neither",
    "unexplained": "not explained",
    "unknown": "not tested",
}
"""Short names of the verdicts, the best first."""


@dataclass(frozen=True)
class ModelAnswer:
    """The model's answer in one world; None for what is unknown.

    Args:
        p: probability of the explained class.
        label: predicted class.
    """

    p: float | None = None
    label: int | None = None


NO_ANSWER = ModelAnswer()


@dataclass(frozen=True)
class Findings:
    """What the model says about one output, with all of the graph and with parts of it.

    Args:
        target: the explained class, -1 if unknown.
        whole: on the whole graph.
        alone: with the explanation alone.
        without: without the explanation.
        empty: without everything that could be part of an explanation.
        keeps, changes: whether the explanation alone keeps the class, and whether the class changes without it.
        keeps_empty: whether the class stays without everything that could be part of an explanation.
    """

    target: int
    whole: ModelAnswer = NO_ANSWER
    alone: ModelAnswer = NO_ANSWER
    without: ModelAnswer = NO_ANSWER
    empty: ModelAnswer = NO_ANSWER
    keeps: bool | None = None
    changes: bool | None = None
    keeps_empty: bool | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether the explanation is enough, needed, both or neither; or cannot be needed, because nothing is."""
        if self.keeps is None or self.changes is None:
            return "unknown"
        if self.keeps_empty and not self.changes:
            return "unexplained"
        if self.keeps:
            return "both" if self.changes else "enough"
        return "needed" if self.changes else "neither"


def findings_of(explanation: Explanation, findings: Findings) -> Findings:
    """Findings in which what an explanation says of itself replaces what the classes of worlds suggest."""
    base = findings.whole.label if findings.whole.label is not None else findings.target
    alone, without, empty = (one.label for one in (findings.alone, findings.without, findings.empty))

    def known(name: str, suggested: bool | None) -> bool | None:
        own = explanation.get(name)
        return suggested if own is None else bool(own)

    return replace(
        findings,
        keeps=known("keeps", None if alone is None else alone == base),
        changes=known("changes", None if without is None else without != base),
        keeps_empty=known("keeps_empty", None if empty is None else empty == base),
    )


# --- what is kept, by name -------------------------------------------------------------------------------------------------


def distinct_names(names: Names, node_id: Sequence[int], symbols: Sequence[str] | None = None) -> Names:
    """Names in which each of some nodes has a name of its own: ``"grass 3"`` where two are called grass, ``"N7"`` for atoms.

    Args:
        names: the names of the graph.
        node_id: the caller's numbers of the nodes.
        symbols: chemical element of each, in a molecule.
    """
    if symbols is None and not names.nodes:
        return names
    called = [names.node_label(n) if names.nodes else "" for n in node_id]
    times = Counter(called)
    own: dict[int, str] = {}
    for position, (number, name) in enumerate(zip(node_id, called, strict=True)):
        symbol = "" if symbols is None else symbols[position]
        if symbol and name in ("", str(number), symbol):
            own[number] = f"{symbol}{number}"
        elif name and name != str(number):
            own[number] = name if times[name] == 1 else f"{name} {number}"
    return replace(names, nodes=own)


@dataclass(frozen=True)
class KeptElements:
    """What an explanation keeps, by name, the largest weight first.

    Args:
        edges, nodes: names of edges and of whole nodes.
        features: for each node with kept features its name and its features with values; one entry without a name for
            features of all nodes.
    """

    edges: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    features: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def feature_texts(self) -> tuple[str, ...]:
        """Features by node, such as ``"tx-11: device_new = 1, amount = 3 EUR"``."""
        return tuple(f"{node}: {', '.join(some)}" if node else ", ".join(some) for node, some in self.features)


def kept_elements(
    explanation: Explanation, names: Names = NO_NAMES, reached: Tensor | None = None, level: str | None = None
) -> KeptElements:
    """What an explanation keeps, by name.

    Args:
        explanation: of one output, with its graph.
        names: names of the nodes, features and edges of the caller's graph.
        reached: edges over which a message can reach the output, [E], if the explanation does not know them.
        level: ``"node"``, ``"edge"`` or ``"graph"``: the kind of output, if the explanation does not know.
    """
    kind, whole = node_mask_type(explanation), node_mask_type(explanation) is MaskType.object
    return KeptElements(
        edges=_kept_edges(explanation, names, reached),
        nodes=_kept_nodes(explanation, names, reached, level) if whole else (),
        features=() if kind is None or whole else _kept_features(explanation, names, kind, reached, level),
    )


def _by_weight(kept: Tensor, weight: Tensor) -> list[int]:
    """Positions of kept elements, the largest weight first."""
    at = kept.nonzero().flatten()
    order: list[int] = at[torch.argsort(weight[at], descending=True, stable=True)].tolist()
    return order


def _ids(explanation: Explanation, name: str, number: int) -> Tensor:
    found: Tensor | None = explanation.get(name)
    return torch.arange(number) if found is None else found.cpu()


def _kept_edges(explanation: Explanation, names: Names, reached: Tensor | None) -> tuple[str, ...]:
    hard = hard_mask(explanation, "edge_mask")
    if hard is None or explanation.get("edge_index") is None:
        return ()
    order = _by_weight(hard & reached_edges(explanation, reached), explanation.edge_mask.detach().cpu().float())
    edge_id = _ids(explanation, "edge_id", hard.numel())[order].tolist()
    node_id = _ids(explanation, "node_id", int(explanation.num_nodes or 0))
    ends = node_id[explanation.edge_index.cpu()[:, order]].T.tolist()
    undirected = is_undirected(explanation)
    found: dict[Any, str] = {}
    for number, (source, end) in zip(edge_id, ends, strict=True):
        key = (min(source, end), max(source, end)) if undirected else number
        found.setdefault(key, names.edge(number, source, end, undirected))
    return tuple(found.values())


def _node_weights(explanation: Explanation) -> Tensor:
    mask: Tensor = explanation.node_mask.detach().cpu().float().nan_to_num()
    return mask.view(mask.size(0), -1)


def _kept_nodes(explanation: Explanation, names: Names, reached: Tensor | None, level: str | None) -> tuple[str, ...]:
    hard = hard_mask(explanation, "node_mask")
    assert hard is not None
    at = reached_nodes(explanation, reached, level)
    order = at[_by_weight(hard[at].any(1), _node_weights(explanation)[at].amax(1))]
    return tuple(names.node_label(n) for n in _ids(explanation, "node_id", len(hard))[order].tolist())


def _kept_features(
    explanation: Explanation, names: Names, kind: MaskType, reached: Tensor | None, level: str | None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    hard, weight = hard_mask(explanation, "node_mask"), _node_weights(explanation)
    assert hard is not None
    if kind is MaskType.common_attributes:
        listed = _by_weight(hard[0], weight[0])
        return (("", tuple(map(names.feature, listed))),) if listed else ()
    at = reached_nodes(explanation, reached, level)
    strength = torch.where(hard, weight, -1.0)[at].amax(1)
    order = at[_by_weight(strength >= 0, strength)].tolist()
    node_id, x = _ids(explanation, "node_id", len(hard)), explanation.get("x")
    return tuple(
        (names.node_label(int(node_id[n])), _features_of(names, hard[n], weight[n], None if x is None else x[n]))
        for n in order
    )


def _features_of(names: Names, hard: Tensor, weight: Tensor, values: Tensor | None) -> tuple[str, ...]:
    order = _by_weight(hard, weight)
    if values is None or values.numel() != hard.numel():
        return tuple(map(names.feature, order))
    return tuple(names.value(f, float(values[f])) for f in order)


# --- sentences -------------------------------------------------------------------------------------------------------------


def subject_name(explanation: Explanation, names: Names, level: str | None = None, molecule: bool = False) -> str:
    """What is explained, such as ``"tx-11"``, ``"node 5"``, ``"molecule 3"`` or ``"the link a -> b"``."""
    level, number = level or task_level(explanation), int(explanation.get("output_id", 0))
    if level == "node":
        return names.node(number)
    ends = target_nodes(explanation, level)
    if level == "edge" and ends.numel() == 2:
        first, second = _ids(explanation, "node_id", int(explanation.num_nodes or 0))[ends].tolist()
        return f"the link {names.edge(-1, first, second, undirected=True)}"
    return f"{'molecule' if molecule else 'link' if level == 'edge' else 'graph'} {number}"


def _listed(count: str, texts: Sequence[str], separator: str = ", ") -> str:
    """A count and the first few names, such as ``"3 edges (a -> b, c -> d, e -> f)"``."""
    if not texts:
        return count
    more = [f"{len(texts) - MAX_LISTED} more"] if len(texts) > MAX_LISTED else []
    return f"{count} ({separator.join([*texts[:MAX_LISTED], *more])})"


def kept_words(parts: Sequence[PartSize], kept: KeptElements, molecule: bool = False) -> str:
    """What is kept, counted and by name; ``""`` if nothing is.

    >>> kept_words([PartSize(1, 9, "edges")], KeptElements(edges=("tx-2 -> tx-1",)))
    '1 edge (tx-2 -> tx-1)'
    """
    found = []
    for part in parts:
        if part.kept:
            texts, separator = (kept.edges if "edges" in part.unit else kept.nodes), ", "
            if "features" in part.unit:
                texts, separator = kept.feature_texts, "; "
            found.append(_listed(part.words(molecule), texts, separator))
    return " and ".join(found)


def reason_sentence(subject: str, findings: Findings, names: Names, kept: str) -> str:
    """The prediction and what it rests on, in one sentence.

    Args:
        subject: what is explained, from :func:`subject_name`.
        findings: what the model says.
        names: for the names of classes.
        kept: what is kept, from :func:`kept_words`.

    >>> reason_sentence("tx-1", Findings(1, ModelAnswer(0.98, 1)), Names(classes=("legit", "fraud")), "1 edge (a -> b)")
    'The model says fraud for tx-1 (p 0.980), because of 1 edge (a -> b).'
    """
    target, whole = names.class_name(findings.target), findings.whole
    p = "" if whole.p is None else f" (p {probability_text(whole.p)})"
    if whole.label is not None and whole.label != findings.target:
        begin = f"The model says {names.class_name(whole.label)} for {subject}; asked was {target}{p}"
        return f"{begin}, for which {kept} speak." if kept else f"{begin}."
    begin = f"The model says {target} for {subject}{p}" if target else f"The model's answer for {subject}"
    return f"{begin}, because of {kept}." if kept else f"{begin}."


def proof_sentence(findings: Findings, names: Names, parts: Sequence[PartSize], molecule: bool = False) -> str:
    """Whether the explanation holds when the model is asked, and what to try if nothing can be needed."""
    target, verdict = names.class_name(findings.target), findings.verdict
    if verdict == "unknown":
        return ""
    if verdict == "unexplained":
        return _unexplained(findings, target, parts, molecule)
    single = sum(part.kept for part in parts) == 1
    they, them, are = ("it", "it", "is") if single else ("they", "them", "are")
    stays = f"the model still says {target}{_p(findings.alone)}"
    other = _other(findings.without, names)
    if verdict == "both":
        return f"{they.capitalize()} alone {are} enough: {stays}. Without {them}, it says {other}{_p(findings.without)}."
    if verdict == "enough":
        return (
            f"{they.capitalize()} alone {are} enough: {stays}. But {they} {are} not needed: without {them}, it says "
            f"{target} too{_p(findings.without)}, so something else supports it as well."
        )
    alone = f"with {them} alone, it says {_other(findings.alone, names)}{_p(findings.alone)}"
    if verdict == "needed":
        return f"Without {them}, the model says {other}{_p(findings.without)}. But {they} {are} not enough: {alone}."
    return f"This does not hold: {alone}, and without {them}, it still says {target}{_p(findings.without)}."


def _unexplained(findings: Findings, target: str, parts: Sequence[PartSize], molecule: bool) -> str:
    """That nothing which is masked can be needed, and what to mask instead."""
    units = [part.unit for part in parts]
    edges, features = any("edges" in unit for unit in units), any("edges" not in unit for unit in units)
    what = " and ".join(["bonds" if molecule else "edges"] * edges + ["features"] * features)
    hint = ""
    if not features:
        hint = ' Try its features: node_mask_type="attributes".'
    elif not edges:
        hint = ' Try edges as well: edge_mask_type="object".'
    because = f"the model says {target} without any of them too{_p(findings.empty)}"
    return f"{what.capitalize()} do not explain this prediction: {because}.{hint}"


def _p(answer: ModelAnswer) -> str:
    return "" if answer.p is None else f" (p {probability_text(answer.p)})"


def _other(answer: ModelAnswer, names: Names) -> str:
    return "another class" if answer.label is None else names.class_name(answer.label)


def explanation_sentences(
    explanation: Explanation,
    findings: Findings,
    names: Names,
    *,
    reached: Tensor | None = None,
    level: str | None = None,
    molecule: bool = False,
) -> tuple[str, str]:
    """The prediction with what it rests on, and whether that holds: one sentence and a short text.

    Args:
        explanation: of one output, with its graph.
        findings: what the model says, from :func:`findings_of`.
        names: names of the caller's graph; :func:`distinct_names` tells nodes of the same name apart.
        reached, level: as in :func:`kept_elements`.
        molecule: whether nodes are atoms and edges are bonds.
    """
    parts = kept_parts(explanation, reached, level)
    kept = kept_words(parts, kept_elements(explanation, names, reached, level), molecule)
    if findings.verdict == "unexplained":
        kept = ""
    reason = reason_sentence(subject_name(explanation, names, level, molecule), findings, names, kept)
    return reason, proof_sentence(findings, names, parts, molecule)


__all__ = [
    "VERDICTS",
    "Findings",
    "KeptElements",
    "ModelAnswer",
    "Verdict",
    "distinct_names",
    "explanation_sentences",
    "findings_of",
    "kept_elements",
    "kept_words",
    "proof_sentence",
    "reason_sentence",
    "subject_name",
]
