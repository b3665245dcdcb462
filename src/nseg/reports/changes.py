"""Smallest changes (counterfactuals) of explained predictions, as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nseg.errors import InputError
from nseg.explain.change import Counterfactual
from nseg.plot.scene import Edge, Scene
from nseg.reports.json_values import JsonObject
from nseg.reports.method import Method

Changes = Mapping[int, Counterfactual]
"""Smallest changes by the number of the output."""


def changes_by_output(given: Sequence[Counterfactual] | None, methods: Sequence[Method]) -> Changes:
    """Smallest changes by output, checked to be of outputs that the report shows."""
    shown = {output_id for method in methods for output_id in method.position_of}
    several = [given] if isinstance(given, Counterfactual) else list(given or [])
    for one in several:
        if not isinstance(one, Counterfactual):
            raise InputError(
                f"counterfactuals must be what nseg.counterfactual returns (got {type(one).__name__}). Try "
                "nseg.counterfactual(explainer, data, index)."
            )
        if one.output_id not in shown:
            raise InputError(
                f"counterfactuals must be of explained outputs (got output {one.output_id}, which has no explanation). "
                "Explain it too, or leave it out."
            )
    return {one.output_id: one for one in several}


def change_json(change: Counterfactual, scene: Scene, drawn: Sequence[Edge]) -> JsonObject:
    """A smallest change in words, and the drawn lines that it removes.

    Args:
        change: the smallest change.
        scene: the scene of the output; its names are used.
        drawn: the lines that are drawn.
    """
    named = replace(change, names=replace(scene.names, classes=scene.names.classes or change.names.classes))
    removed = {frozenset(pair) for pair in change.removed}
    ends = [frozenset((scene.nodes[edge.source].id, scene.nodes[edge.end].id)) for edge in drawn]
    return {
        "changed": change.changed,
        "sentence": named.sentence(scene.molecule),
        "certainty": named.certainty(),
        "lines": [position for position, pair in enumerate(ends) if pair in removed],
    }
