"""Patterns as the page shows them: a small drawing, a sentence, tests and examples."""

from __future__ import annotations

from nseg.pattern.collection import Patterns
from nseg.pattern.pictures import pattern_scene
from nseg.pattern.results import Pattern
from nseg.pattern.trials import Trial
from nseg.pattern.typed_graph import ANY
from nseg.reports.json_values import JsonObject, rounded


def patterns_view(patterns: Patterns) -> list[JsonObject]:
    """The patterns of each class; ``web/src/payload.ts`` reads the keys."""
    return [
        {
            "name": one.name,
            "unexplained": rounded(one.unexplained),
            "held_out": one.held_out > 0,
            "patterns": [_pattern(pattern, patterns) for pattern in one.patterns],
        }
        for one in patterns.classes
    ]


def _pattern(pattern: Pattern, patterns: Patterns) -> JsonObject:
    kinds = sorted({node.kind for graph in pattern.graphs for node in graph.nodes} - {ANY})
    scene = pattern_scene(pattern, patterns.vocabulary, kinds)
    return {
        "text": pattern.text,
        "sentence": pattern.sentence("It"),  # its text is the heading
        "coverage": rounded(pattern.coverage),
        "elsewhere": rounded(pattern.elsewhere / pattern.others) if pattern.others else None,
        "right": pattern.right,
        "wrong": pattern.wrong,
        "pns": None if pattern.pns is None else rounded(pattern.pns),
        "necessity": _trial(pattern.necessity),
        "sufficiency": _trial(pattern.sufficiency),
        "examples": list(pattern.examples),
        "nodes": [[rounded(node.x), rounded(1 - node.y), node.name, node.target] for node in scene.nodes],
        "edges": [[edge.source, edge.end, edge.order] for edge in scene.edges],
    }


def _trial(trial: Trial | None) -> list[float | int | None] | None:
    """Number changed and tested, and the interval of the share."""
    return None if trial is None else [trial.changed, trial.number, rounded(trial.low), rounded(trial.high)]
