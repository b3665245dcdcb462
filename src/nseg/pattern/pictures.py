"""Pictures of patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nseg.errors import InputError
from nseg.pattern.results import Pattern
from nseg.pattern.typed_graph import ANY, NodeLabel
from nseg.pattern.vocabulary import Vocabulary
from nseg.plot.layout import positions
from nseg.plot.pictures import grid
from nseg.plot.scene import Edge, Node, Scene


def draw_patterns(patterns: Sequence[Pattern], vocabulary: Vocabulary, columns: int | None = None) -> Any:
    """A matplotlib figure with a picture of each pattern, and what is known of it below."""
    if not len(patterns):
        raise InputError("There must be a pattern to draw (got none). Explain more predictions, or lower the prices.")
    kinds = sorted({node.kind for one in patterns for graph in one.graphs for node in graph.nodes} - {ANY})
    scenes = [pattern_scene(one, vocabulary, kinds) for one in patterns]
    return grid(scenes, [one.class_name for one in patterns], [_caption(one) for one in patterns], columns=columns, side=3.6)


def pattern_scene(pattern: Pattern, vocabulary: Vocabulary, kinds: Sequence[str]) -> Scene:
    """A pattern as a scene: all its edges are kept, the target has a ring.

    Args:
        pattern: the pattern.
        vocabulary: names of features, and whether nodes are atoms.
        kinds: kinds of nodes that have a colour.
    """
    labels, pairs, orders = list[NodeLabel](), list[tuple[int, int]](), list[float]()
    for graph in pattern.graphs:
        first = len(labels)
        labels += graph.nodes
        pairs += [(min(a, b) + first, max(a, b) + first) for a, b in graph.edges]
        orders += [float(label) if vocabulary.molecule and label else 1.0 for label in graph.edges.values()]
    atoms = vocabulary.molecule and ANY not in {label.kind for label in labels}
    focus = [n for n, label in enumerate(labels) if label.target]
    symbols = [label.kind for label in labels] if atoms else None
    places = positions(len(labels), pairs, focus=focus, symbols=symbols, orders=orders)
    nodes = tuple(
        Node(
            n,
            *place,
            _node_name(label, vocabulary),
            -1 if label.kind == ANY or atoms else kinds.index(label.kind),
            weight=None,
            kept=None,
            target=bool(label.target),
            truth=False,
        )
        for n, (label, place) in enumerate(zip(labels, places, strict=True))
    )
    edges = tuple(Edge(*pair, None, True, False, order) for pair, order in zip(pairs, orders, strict=True))
    return Scene("", "node", nodes, edges, tuple(kinds), pattern.target, pattern.class_name, None, atoms, 0, 0)


def _node_name(label: NodeLabel, vocabulary: Vocabulary) -> str:
    conditions = [vocabulary.condition_text(one) for one in sorted(label.conditions)]
    return ", ".join(([] if label.kind == ANY else [label.name or label.kind]) + conditions)


def _caption(pattern: Pattern) -> str:
    lines = [pattern.text, f"explains {pattern.explained} of {pattern.predictions}"]
    if pattern.necessity is not None:
        lines.append(f"taken out: {pattern.necessity.changed} of {pattern.necessity.number} change")
    if pattern.sufficiency is not None:
        lines.append(f"put in: {pattern.sufficiency.changed} of {pattern.sufficiency.number} become it")
    return "\n".join(lines)
