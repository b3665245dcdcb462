"""Whether an explanation is necessary and sufficient, from what the model says with it and without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch_geometric.explain import Explanation

from nseg.explanation import ATTRIBUTE_MASK, HARD
from nseg.wording.numbers import bound_text
from nseg.wording.subject import explained_class, number_of_classes, predicted_class, predicted_probability

Verdict = Literal["both", "sufficient", "necessary", "neither", "unexplained", "unknown"]

VERDICTS: dict[Verdict, str] = {
    "both": "necessary and sufficient",
    "sufficient": "only sufficient",
    "necessary": "only necessary",
    "neither": "neither",
    "unexplained": "not explained",
    "unknown": "not tested",
}
"""Short names of the verdicts, the best first."""


def verdict(keeps: bool | None, changes: bool | None, keeps_empty: bool | None) -> Verdict:
    """Whether an explanation is sufficient, necessary, both or neither; unexplained if nothing can be necessary.

    Args:
        keeps: whether the class stays with the explanation alone.
        changes: whether the class changes without the explanation.
        keeps_empty: whether the class stays without everything that could be part of an explanation.

    >>> verdict(True, True, False), verdict(True, False, True)
    ('both', 'unexplained')
    """
    if keeps is None or changes is None:
        return "unknown"
    if keeps_empty and not changes:
        return "unexplained"
    if keeps:
        return "both" if changes else "sufficient"
    return "necessary" if changes else "neither"


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
        keeps, changes, keeps_empty: as in :func:`verdict`.
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
        """Whether the explanation is sufficient, necessary, both or neither."""
        return verdict(self.keeps, self.changes, self.keeps_empty)


def findings_of(one: Explanation, measured: Findings | None = None) -> Findings:
    """What the model says about an explained output; what the explanation says of itself counts first.

    Args:
        one: the explanation.
        measured: what the model was asked; only what the explanation knows if None.
    """
    measured = _own_findings(one) if measured is None else measured
    base = measured.whole.label if measured.whole.label is not None else measured.target
    alone, without, empty = (answer.label for answer in (measured.alone, measured.without, measured.empty))

    def known(name: str, suggested: bool | None) -> bool | None:
        own = one.get(name)
        return suggested if own is None else bool(own)

    return replace(
        measured,
        keeps=known("keeps", None if alone is None else alone == base),
        changes=known("changes", None if without is None else without != base),
        keeps_empty=known("keeps_empty", None if empty is None else empty == base),
    )


def _own_findings(one: Explanation) -> Findings:
    """What an explanation knows of the model's answers. Of two classes, the one that it is not is the other."""
    target = explained_class(one)
    if target is None:
        return Findings(-1)
    two = number_of_classes(one) == 2

    def answer(p: str, stays: bool | None) -> ModelAnswer:
        label = None if stays is None else target if stays else 1 - target if two else None
        return ModelAnswer(one.get(p), label)

    changes = one.get("changes")
    return Findings(
        target,
        ModelAnswer(predicted_probability(one), predicted_class(one)),
        answer("p_factual", one.get("keeps")),
        answer("p_complement", None if changes is None else not changes),
        answer("p_empty", one.get("keeps_empty")),
    )


def deletion_text(explanation: Explanation, molecule: bool | None = None) -> str:
    """Whether an explanation of edges holds if edges are really deleted, in one sentence.

    Nothing if nobody knows, or if it holds neither way, which the verdict says. Edges of a molecule (as the explanation's
    names say if None) are bonds.

    >>> facts = {"hard_edge_mask": [True], "intervention": "mask", "holds_masked": True, "holds_removed": False}
    >>> deletion_text(Explanation(pns_removed=0.1, **facts))
    'It does not hold if edges are really deleted: PNS at least 0.100 then.'
    """
    removed, by = explanation.get("pns_removed"), explanation.get("intervention")
    of_others = any(explanation.get(HARD + name) is not None for name in ("node_mask", ATTRIBUTE_MASK))
    if removed is None or (of_others and explanation.get("hard_edge_mask") is None):
        return ""
    holds = bool(explanation.get("holds_removed"))
    if not holds and not explanation.get("holds_masked"):
        return ""
    known = getattr(explanation.get("names"), "molecule", False) if molecule is None else molecule
    edges = "bonds" if known else "edges"
    if by == "mask":
        does = "also holds" if holds and explanation.get("holds_masked") else "holds" if holds else "does not hold"
        return f"It {does} if {edges} are really deleted: PNS at least {bound_text(removed)} then."
    masked = f"with messages over them masked instead, PNS is at least {bound_text(explanation.pns_masked)}"
    return f"{edges.capitalize()} were really deleted, and it {'holds' if holds else 'does not hold'}; {masked}."
