"""Finished pictures: one explanation, methods side by side, correct and wrong predictions, worlds."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.errors import InputError
from nseg.hetero_explanation import flat_view
from nseg.plot import colours, draw
from nseg.plot.explained_graph import GraphData
from nseg.plot.legend import KEPT_AND_OTHER, TEXT_OFFSET, LegendWords, add_legend, add_legend_below
from nseg.plot.scene import Scene, scene
from nseg.plot.worlds import World, worlds_of
from nseg.wording import DEFAULT_THRESHOLD, FEW, bound_text, elements, kept_texts, probability_text

MAX_TITLE = 80
"""Maximum number of characters in a line of a title."""

MAX_FEATURES = 12
"""Maximum number of features that a caption lists."""


def explanation(
    explanation: Explanation, data: GraphData = None, *, ax: Any = None, truth: bool = False, **scene_options: Any
) -> Any:
    """A picture of one explanation.

    Args:
        explanation: explanation of one output, by ``nseg`` or any PyG algorithm.
        data: its dataset, for names, classes, bonds and ground truth.
        ax: matplotlib axes to draw on instead of a new figure.
        truth: whether to mark the ground truth.
        **scene_options: options of :func:`nseg.plot.scene`, such as ``hydrogens=False`` or ``names=...``.

    Returns:
        The matplotlib figure.
    """
    shown = scene(explanation, data, **scene_options)
    if ax is None:
        return grid([shown], [shown.title], [summary(explanation, shown)], truth=truth, side=6.4)
    group_colours = colours.group_colours([n.group for n in shown.nodes])
    _draw_panel(ax, shown, group_colours, shown.title, summary(explanation, shown), truth)
    add_legend_below(ax, [shown], group_colours, truth=truth)
    return ax.figure


def compare(
    explanations: Mapping[str, Explanation],
    data: GraphData = None,
    *,
    columns: int | None = None,
    truth: bool = False,
    **scene_options: Any,
) -> Any:
    """Explanations of one prediction side by side, such as methods (Fig. 5) or PN, PS and PNS (Fig. 6 of the paper).

    Args:
        explanations: explanations of the same output, by the name to show.
        data: the dataset of the explanations.
        columns: number of pictures per row.
        truth: whether to mark the ground truth.
        **scene_options: options of :func:`nseg.plot.scene`.
    """
    ids = {int(one.output_id) for one in explanations.values() if "output_id" in one}
    if not explanations or len(ids) > 1:
        raise InputError(f"explanations must all explain the same output (got outputs {sorted(ids) or 'none'}).")
    # PyG's algorithms do not know which edges can reach the output. If one method does, it holds for all of them.
    known = next((one for one in map(flat_view, explanations.values()) if "reached" in one), None)
    if known is not None:
        reached = known.edge_id[known.reached] if "edge_id" in known else known.reached.nonzero().flatten()
        scene_options = {"reached": reached, **scene_options}
    scenes = [scene(one, data, **scene_options) for one in explanations.values()]
    captions = [summary(one, shown) for one, shown in zip(explanations.values(), scenes, strict=True)]
    return grid(scenes, list(explanations), captions, title=scenes[0].title, columns=columns, truth=truth)


def predictions(
    explanations: Sequence[Explanation], data: GraphData, *, each: int = 2, truth: bool = False, **scene_options: Any
) -> Any:
    """Explanations of correct and of wrong predictions (Fig. 7 of the paper).

    Args:
        explanations: explanations; the first correct and the first wrong predictions among them are shown.
        data: their dataset, with the true classes.
        each: maximum number of correct and of wrong predictions.
        truth: whether to mark the ground truth.
        **scene_options: options of :func:`nseg.plot.scene`.
    """
    correct: list[tuple[Explanation, Scene]] = []
    wrong: list[tuple[Explanation, Scene]] = []
    for one in explanations:
        if min(len(correct), len(wrong)) == each:
            break
        shown = scene(one, data, **scene_options)
        chosen = correct if shown.label == shown.target else wrong
        chosen += [(one, shown)] if len(chosen) < each else []
    pairs = correct + wrong
    if not pairs:
        raise InputError("explanations must hold at least one explanation (got none).")
    scenes = [shown for _, shown in pairs]
    return grid(
        scenes,
        [s.title for s in scenes],
        [summary(*pair) for pair in pairs],
        columns=max(len(correct), len(wrong)),
        truth=truth,
    )


def worlds(
    explainer: Explainer,
    graphs: Data | Sequence[Data],
    explanation: Explanation,
    data: GraphData = None,
    **scene_options: Any,
) -> Any:
    """The worlds of one explanation with the probability of the class in each (Fig. 8 of the paper).

    Args:
        explainer: the explainer that made the explanation.
        graphs: the graph, or the graphs, that were explained.
        explanation: the explanation.
        data: its dataset, for names.
        **scene_options: options of :func:`nseg.plot.scene`.
    """
    (found,) = worlds_of(explainer, graphs, explanation)
    shown = scene(explanation, data, **scene_options)
    class_name = draw.single_line(shown.target_name)
    edges, nodes = ("bonds", "atoms") if shown.molecule else ("edges", "nodes")
    nodes = f"{nodes.removesuffix('s')} features" if shown.node_features else nodes if shown.features is None else "features"
    events = [WORLD_TITLES[w.event].format(edges=edges, nodes=nodes) for w in found]
    titles = [
        f"{event}\np({class_name}) = {probability_text(w.probability)}" for event, w in zip(events, found, strict=True)
    ]
    scenes = [scene(_with_world_masks(explanation, world), data, **scene_options) for world in found]
    captions = [_common_features(one, "in this world") for one in scenes]
    legend_words = LegendWords("{} in this world", "{} not in it", "in this world")
    return grid(scenes, titles, captions, title=shown.title, words=legend_words)


WORLD_TITLES = {
    "11": "the explanation alone (11)",
    "00": "neither its {edges} nor its {nodes} (00)",
    "01": "its {nodes}, but all other {edges} (01)",
    "10": "its {edges}, but all other {nodes} (10)",
    "1": "the explanation alone",
    "0": "all but the explanation",
}
"""What each world contains."""


def _with_world_masks(explanation: Explanation, world: World) -> Explanation:
    """A copy of an explanation whose hard masks keep what is in a world.

    Masks are inverted edge by edge: of a pair kept in one direction, the other direction is in the complement.
    """
    explanation = flat_view(explanation)
    copied = copy.copy(explanation)
    for name, keeps_explanation in (("edge_mask", world.edges), ("node_mask", world.nodes)):
        if keeps_explanation is False:
            hard = explanation.get(f"hard_{name}")
            copied[f"hard_{name}"] = (explanation[name] if hard is None else hard) <= DEFAULT_THRESHOLD
    return copied


def summary(explanation: Explanation, shown: Scene) -> str:
    """The bounds and the size of an explanation, one line each."""
    known = {name: explanation.get(name) for name in ("pns", "pn", "ps")}
    bounds = [f"{name.upper()} ≥ {bound_text(float(value))}" for name, value in known.items() if value is not None]
    sizes = [f"{part.share(shown.molecule)} kept" for part in shown.size]
    if shown.left_out:
        sizes.append(f"{shown.left_out:,} {'bonds' if shown.molecule else 'lines'} not drawn")
    lines = [", ".join(part) for part in (bounds, sizes) if part]
    lines += [draw.single_line(path, MAX_TITLE) for path in shown.paths[:FEW]]
    lines += [f"and {len(shown.paths) - FEW} more paths"] if len(shown.paths) > FEW else []
    return "\n".join([*lines, *filter(None, [_common_features(shown), *_features_by_node(explanation, shown), shown.hint])])


def _features_by_node(explanation: Explanation, shown: Scene) -> list[str]:
    """The kept features of the nodes with the largest weights, by name and value, one line for each node."""
    if shown.names.types is not None and any(part.unit == "features" for part in shown.size):
        kept = kept_texts(elements(explanation, names=shown.names), "features")[:MAX_FEATURES]
        return [draw.single_line(f"features kept: {', '.join(kept) or 'none'}", MAX_TITLE)]
    if not shown.node_features:
        return []
    drawn = [n for n, node in enumerate(shown.nodes) if node.features]
    texts = kept_texts(elements(explanation, names=shown.names, level=shown.level), "node features") if drawn else []
    more = [f"and features of {len(texts) - FEW} more"] if len(texts) > FEW else []
    return [*(draw.single_line(text, MAX_TITLE) for text in texts[:FEW]), *more]


def _common_features(shown: Scene, state: str = "kept") -> str:
    """The kept features of all nodes by name or number; ``""`` if the mask is another."""
    if shown.features is None:
        return ""
    named = map(shown.names.feature if shown.names.features else str, shown.features[:MAX_FEATURES])
    listed = ", ".join(named) or "none"
    return f"features {state}: {listed}{', ...' if len(shown.features) > MAX_FEATURES else ''}"


# --- page layout ---------------------------------------------------------------------------------------------------------


def _title_lines(text: str) -> str:
    return "\n".join(draw.single_line(line, MAX_TITLE) for line in text.split("\n"))


def _draw_panel(ax: Any, shown: Scene, group_colours: draw.GroupColours, title: str, caption: str, truth: bool) -> None:
    """Draw one scene with a title above and a caption below."""
    draw.draw(ax, shown, group_colours, truth=truth)
    ax.set_title(_title_lines(title), fontsize=11, parse_math=False)
    ax.annotate(
        caption,
        (0.5, 0),
        xycoords="axes fraction",
        xytext=(0, -TEXT_OFFSET),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=9,
        color=colours.QUIET,
        parse_math=False,
    )


def grid(
    scenes: Sequence[Scene],
    titles: Sequence[str],
    captions: Sequence[str],
    *,
    title: str = "",
    columns: int | None = None,
    truth: bool = False,
    side: float = 4.6,
    words: LegendWords = KEPT_AND_OTHER,
) -> Any:
    """A figure of scenes side by side, each with a title and a caption, and one legend for all.

    Args:
        scenes, titles, captions: one of each per panel.
        title: title of the figure.
        columns: number of panels per row.
        truth: whether to mark the ground truth.
        side: width of a panel in inches.
        words: legend texts for strong and for faint elements.
    """
    columns = columns or (len(scenes) if len(scenes) <= 3 else 2 if len(scenes) == 4 else 3)
    rows = -(-len(scenes) // columns)
    more = 0.16 * max(max(caption.count("\n") for caption in captions) - 3, 0)  # long captions need room
    page = draw.figure(side * columns, (side * draw.aspect_ratio(scenes) + 0.8 + more) * rows + 0.7 + 0.4 * bool(title))
    group_colours = colours.group_colours([n.group for s in scenes for n in s.nodes])
    for n, (shown, name, caption) in enumerate(zip(scenes, titles, captions, strict=True)):
        _draw_panel(page.add_subplot(rows, columns, n + 1), shown, group_colours, name, caption, truth)
    if title:
        page.suptitle(_title_lines(title), fontsize=13, parse_math=False)
    fewest = 2 if any(shown.node_features for shown in scenes) else 4  # these legends have long texts
    placement: dict[str, Any] = {"loc": "outside lower center", "ncols": max(fewest, 2 * columns)}
    add_legend(page, scenes, group_colours, truth=truth, words=words, **placement)
    return page
