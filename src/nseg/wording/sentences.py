"""An explanation in plain sentences: what a prediction rests on, whether that holds, and what to try if it does not.

Terminal, exports, pictures and the report's page all take their sentences from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.explanation import ATTRIBUTE_MASK
from nseg.hetero_explanation import flat_view, kept_paths
from nseg.names import Names
from nseg.wording.counts import PartSize, kept_parts
from nseg.wording.elements import Element, elements, kept_texts
from nseg.wording.numbers import bound_text, plural, probability_text
from nseg.wording.subject import names_of, subject_name
from nseg.wording.verdicts import Findings, ModelAnswer, deletion_text, findings_of

FEW, MANY = 3, 12
"""Edges, nodes or features that a sentence lists, where a picture or a table shows the rest, and where nothing does."""


MAX_PATHS = 100
"""Maximum number of paths of a heterogeneous graph that are counted."""


def sentence(one: Explanation) -> str:
    """An explanation in plain words: the prediction, what it rests on, and whether that holds."""
    one = flat_view(one)
    if one.get("reason") is not None:
        return f"O{subject_name(one)[1:]} could not be explained: {one.reason}"
    texts = (*explanation_sentences(one, listed=MANY), deletion_text(one), alternatives_text(one), *baseline_texts(one))
    return " ".join(text for text in texts if text)


def alternatives_text(one: Explanation) -> str:
    """How many other explanations are about as good; nothing if nobody looked for them.

    >>> import torch
    >>> alternatives_text(Explanation(alternative_pns=torch.tensor([0.95, 0.94])))
    '2 other explanations are about as good (PNS at least 0.950, 0.940).'
    """
    found = one.get("alternative_pns")
    if found is None:
        return ""
    if not len(found):
        return "No other explanation was found that is about as good."
    are = "explanation is" if len(found) == 1 else "explanations are"
    return f"{len(found)} other {are} about as good (PNS at least {', '.join(map(bound_text, found.tolist()))})."


def baseline_texts(one: Explanation) -> list[str]:
    """What masked features and edge attributes become, where that is not 0."""
    settings, found = one.get("settings") or {}, []
    for mask, name, what, others in (
        ("node_mask", "baseline", "features", "nodes"),
        (ATTRIBUTE_MASK, "edge_baseline", "edge attributes", "edges"),
    ):
        asked = settings.get(name)
        if one.get(mask) is not None and asked not in (None, "zero"):
            if asked == "absent":
                found.append("Nodes that are taken away are deleted with their edges.")
            elif isinstance(asked, dict):
                each = [f"{_baseline_words(one, others)} ({kind.replace('__', ' ')})" for kind, one in asked.items()]
                found.append(f"Masked {what} become {', '.join(each)}.")
            else:
                found.append(f"Masked {what} become {_baseline_words(asked, others)}.")
    return found


def _baseline_words(asked: Any, others: str) -> str:
    """What masked features become."""
    if isinstance(asked, list | tuple):
        return "(" + ", ".join(f"{value:g}" for value in asked) + ")"
    return {"mean": "their means over the data", "others": f"those of other {others}", "zero": "0"}[asked]


def explanation_sentences(
    one: Explanation,
    findings: Findings | None = None,
    names: Names | None = None,
    *,
    reached: Tensor | None = None,
    level: str | None = None,
    molecule: bool | None = None,
    listed: int = FEW,
    parts: Sequence[PartSize] | None = None,
) -> tuple[str, str]:
    """The prediction with what it rests on, and whether that holds: one sentence and a short text.

    Args:
        one: of one output.
        findings: what the model says, from :func:`findings_of`; what the explanation knows if None.
        names: names of the caller's graph; those that the explanation carries if None.
        reached, level: as in :func:`elements`.
        molecule: whether nodes are atoms and edges are bonds; as the names say if None.
        listed: how many edges, nodes or features are listed.
        parts: how much is kept, if that was counted before.
    """
    one = flat_view(one)
    names = names_of(one) if names is None else names
    molecule = names.molecule if molecule is None else molecule
    findings = findings_of(one) if findings is None else findings
    parts = kept_parts(one, reached, level) if parts is None else parts
    found = elements(one, names=names, reached=reached, level=level)
    kept = kept_words(parts, found, molecule, listed, kept_paths(one, MAX_PATHS, names))
    reason = reason_sentence(
        subject_name(one, names, level=level, molecule=molecule),
        findings,
        names,
        "" if findings.verdict == "unexplained" else kept,
    )
    return reason, proof_sentence(findings, names, parts, molecule)


def kept_words(
    parts: Sequence[PartSize],
    found: Sequence[Element],
    molecule: bool = False,
    listed: int = FEW,
    paths: Sequence[str] = (),
) -> str:
    """What is kept, counted and by name; ``""`` if nothing is.

    Args:
        parts: how much is kept.
        found: what is kept.
        molecule: whether nodes are atoms and edges are bonds.
        listed: how many edges, nodes or features are listed.
        paths: kept edges of a heterogeneous graph as paths, which are listed instead of edges.

    >>> kept_words([PartSize(1, 9, "edges")], [Element("edge", "tx-2 -> tx-1", 0.9, True)])
    '1 of 9 edges (tx-2 -> tx-1)'
    """
    return " and ".join(
        _listed(
            part.share(molecule, where=False),
            paths if paths and part.unit.endswith("edges") else kept_texts(found, part.unit),
            listed,
            part.unit,
        )
        for part in parts
        if part.kept
    )


def _listed(count: str, texts: Sequence[str], listed: int, unit: str) -> str:
    """A count and the first few names, such as ``"4 of 9 edges (a -> b, c -> d, e -> f, 1 more)"``."""
    if not texts:
        return count
    rest, owner = len(texts) - listed, {"node features": "more node", "edge attributes": "more edge"}.get(unit)
    more = [f"{rest} more" if owner is None else plural(rest, owner)] if rest > 0 else []
    return f"{count} ({(', ' if owner is None else '; ').join([*texts[:listed], *more])})"


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
    if whole.label is not None and whole.label != findings.target:
        begin = f"The model says {names.class_name(whole.label)} for {subject}; asked was {target}{_p(whole)}"
        return f"{begin}, for which {kept} speak." if kept else f"{begin}."
    begin = f"The model says {target} for {subject}{_p(whole)}" if target else f"The model's answer for {subject}"
    return f"{begin}, because of {kept}." if kept else f"{begin}."


def proof_sentence(findings: Findings, names: Names, parts: Sequence[PartSize], molecule: bool = False) -> str:
    """Whether the explanation holds when the model is asked, and what to try if nothing can be necessary."""
    target, alone, without = names.class_name(findings.target), findings.alone, findings.without
    number = sum(part.kept for part in parts)
    they, them, are = ("it", "it", "is") if number == 1 else ("they", "them", "are")
    if findings.verdict == "unknown":
        if alone.p is None or without.p is None:
            return ""
        return f"With {them} alone, p is {probability_text(alone.p)}; without, {probability_text(without.p)}."
    if findings.verdict == "unexplained":
        return _unexplained(findings, target, parts, molecule)
    if not number:
        return f"Nothing was found that it rests on: with nothing kept, it says {_other(alone, names, target)}."
    enough = f"{they.capitalize()} alone {are} enough: the model still says {target}{_p(alone)}"
    not_enough = f"with {them} alone, it says {_other(alone, names, target)}"
    several = len(parts) > 1  # then the complement has three worlds: without edges, without features, without both
    gone = "one or both of the two" if several else them
    changed = _other(without, names, target, " on average" * several)
    texts = {
        "both": f"{enough}. Without {gone}, it says {changed}.",
        "sufficient": f"{enough}. But {they} {are} not necessary: without {them}, it says {target} too{_p(without)}, so "
        "something else supports it as well.",
        "necessary": f"Without {gone}, the model says {changed}. But {they} {are} not enough: {not_enough}.",
        "neither": f"This does not hold: {not_enough}, and without {them}, it still says {target}{_p(without)}.",
    }
    return texts[findings.verdict]


def _unexplained(findings: Findings, target: str, parts: Sequence[PartSize], molecule: bool) -> str:
    """That nothing which is masked can be necessary, and what to mask instead."""
    units = [part.unit for part in parts]
    edges, attributes = any("edges" in unit for unit in units), any("attributes" in unit for unit in units)
    features = any("edges" not in unit and "attributes" not in unit for unit in units)
    masked = [("bonds" if molecule else "edges", edges), ("edge attributes", attributes), ("features", features)]
    what = " and ".join(text for text, on in masked if on)
    hint = " Try another class as a contrast: outcome=nseg.Rather(...), or --outcome rather:1 on the command line."
    if not features:
        hint = ' Try its features: node_mask_type="attributes", or --masks ex on the command line.'
    elif not edges and not attributes:
        hint = ' Try edges as well: edge_mask_type="object", or --masks ex on the command line.'
    because = f"the model says {target} without any of them too{_p(findings.empty)}"
    if not any(part.total for part in parts):
        return f"No {what.removesuffix('s')} can reach it, so {what} do not explain this prediction.{hint}"
    return f"{what.capitalize()} do not explain this prediction: {because}.{hint}"


def _p(answer: ModelAnswer) -> str:
    return "" if answer.p is None else f" (p {probability_text(answer.p)})"


def _other(answer: ModelAnswer, names: Names, target: str, mean: str = "") -> str:
    """Another class than the explained one, and what is left of the probability of that."""
    label = "another class" if answer.label is None else names.class_name(answer.label)
    return label if answer.p is None else f"{label} (p of {target}: {probability_text(answer.p)}{mean})"
