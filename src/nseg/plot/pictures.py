"""Pictures for a person: one explanation, methods side by side, right and wrong predictions, the worlds of one."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg.datasets import Benchmark
from nseg.errors import InputError
from nseg.plot import colours, draw
from nseg.plot.scene import HALF, Scene, scene
from nseg.plot.worlds import World, worlds_of


def explanation(one: Explanation, data: Benchmark | None = None, *, ax: Any = None, truth: bool = False, **how: Any) -> Any:
    """A picture of one explanation.

    Args:
        one: of one output, by ``nseg`` or any algorithm of PyG.
        data: its dataset, for names, classes, bonds and ground truth.
        ax: matplotlib axes to draw on instead of a new figure.
        truth: whether ground truth is marked.
        **how: what :func:`nseg.plot.scene` takes, such as ``hydrogens=False`` or ``names=...``.

    Returns:
        The matplotlib figure.
    """
    shown = scene(one, data, **how)
    if ax is None:
        return _grid([shown], [shown.title], [summary(one, shown)], truth=truth, side=6.4)
    paint = colours.of_groups([n.group for n in shown.nodes])
    _panel(ax, shown, paint, shown.title, summary(one, shown), truth)
    draw.legend_below(ax, [shown], paint, truth=truth)
    return ax.figure


def compare(
    explanations: Mapping[str, Explanation],
    data: Benchmark | None = None,
    *,
    columns: int | None = None,
    truth: bool = False,
    **how: Any,
) -> Any:
    """Explanations of one prediction side by side: methods (Fig. 5 of the paper), or PN, PS and PNS (Fig. 6).

    Args:
        explanations: by the name of what made them, all of one output.
        data: its dataset.
        columns: pictures in a row.
        truth: whether ground truth is marked.
        **how: what :func:`nseg.plot.scene` takes.
    """
    numbers = {int(one.output_id) for one in explanations.values() if "output_id" in one}
    if not explanations or len(numbers) > 1:
        raise InputError(f"Explanations of one output are compared (got those of {sorted(numbers) or 'none'}).")
    knows = next((one for one in explanations.values() if "reached" in one), None)
    if knows is not None:  # what one method knows to be within reach is so for all
        how = {"reached": knows.edge_id[knows.reached] if "edge_id" in knows else knows.reached.nonzero().flatten(), **how}
    scenes = [scene(one, data, **how) for one in explanations.values()]
    words = [summary(one, shown) for one, shown in zip(explanations.values(), scenes, strict=True)]
    return _grid(scenes, list(explanations), words, title=scenes[0].title, columns=columns, truth=truth)


def predictions(
    explanations: Sequence[Explanation], data: Benchmark, *, each: int = 2, truth: bool = False, **how: Any
) -> Any:
    """Explanations of right and of wrong predictions (Fig. 7 of the paper).

    Args:
        explanations: the first right and the first wrong ones are shown.
        data: their dataset, which knows what is right.
        each: how many of either at most.
        truth: whether ground truth is marked.
        **how: what :func:`nseg.plot.scene` takes.
    """
    right: list[tuple[Explanation, Scene]] = []
    wrong: list[tuple[Explanation, Scene]] = []
    for one in explanations:
        if min(len(right), len(wrong)) == each:
            break
        shown = scene(one, data, **how)
        kind = right if shown.label == shown.target else wrong
        kind += [(one, shown)] if len(kind) < each else []
    chosen = right + wrong
    if not chosen:
        raise InputError("There must be something to show (got no explanation).")
    scenes = [shown for _, shown in chosen]
    return _grid(
        scenes,
        [s.title for s in scenes],
        [summary(*pair) for pair in chosen],
        columns=max(len(right), len(wrong)),
        truth=truth,
    )


def worlds(
    explainer: Explainer, graphs: Data | Sequence[Data], one: Explanation, data: Benchmark | None = None, **how: Any
) -> Any:
    """The worlds of one explanation, what is in each and how likely the class is there (Fig. 8 of the paper).

    Args:
        explainer: the explainer that made it.
        graphs: the graph, or the graphs, that were explained.
        one: the explanation.
        data: its dataset, for names.
        **how: what :func:`nseg.plot.scene` takes.
    """
    (found,) = worlds_of(explainer, graphs, one)
    shown = scene(one, data, **how)
    name = draw.plain(shown.target_name)
    parts = {"edges": "bonds", "nodes": "atoms"} if shown.molecule else {"edges": "edges", "nodes": "nodes"}
    titles = [f"{TITLES[world.event].format(**parts)}\np({name}) = {world.probability:.2f}" for world in found]
    scenes = [scene(_world(one, world), data, **how) for world in found]
    return _grid(scenes, titles, [""] * len(found), title=shown.title, words=("{} in this world", "{} not in it"))


TITLES = {
    "11": "the explanation alone (11)",
    "00": "neither its {edges} nor its {nodes} (00)",
    "01": "its {nodes}, but all other {edges} (01)",
    "10": "its {edges}, but all other {nodes} (10)",
    "1": "the explanation alone",
    "0": "all but the explanation",
}
"""What is in each world."""


def _world(one: Explanation, world: World) -> Explanation:
    """An explanation that keeps just what is in a world; of a pair kept in one direction, the other is in the complement."""
    made = copy.copy(one)
    for name, explained in (("edge_mask", world.edges), ("node_mask", world.nodes)):
        if explained is False:
            hard = one.get(f"hard_{name}")
            made[f"hard_{name}"] = (one[name] if hard is None else hard) <= HALF
    return made


def summary(one: Explanation, shown: Scene) -> str:
    """The numbers of an explanation in words."""
    bounds = [f"{name.upper()} {float(one[name]):.2f}" for name in ("pns", "pn", "ps") if one.get(name) is not None]
    node, edge = ("atoms", "bonds") if shown.molecule else ("nodes", "edges")
    sizes = []
    if any(e.kept is not None for e in shown.edges):
        sizes.append(f"{sum(bool(e.kept) for e in shown.edges)} of {len(shown.edges) + shown.left_out:,} {edge} kept")
    if any(n.kept is not None for n in shown.nodes):
        sizes.append(f"{sum(bool(n.kept) for n in shown.nodes)} of {len(shown.nodes) + shown.hidden:,} {node} kept")
    if shown.left_out:
        sizes.append(f"{shown.left_out:,} {edge} not drawn")
    return "\n".join(", ".join(part) for part in (bounds, sizes) if part)


# --- pages -----------------------------------------------------------------------------------------------------------------


def _title(words: str) -> str:
    return "\n".join(draw.plain(line, draw.LONGEST_TITLE) for line in words.split("\n"))


def _panel(ax: Any, shown: Scene, paint: draw.Paint, title: str, words: str, truth: bool) -> None:
    draw.draw(ax, shown, paint, truth=truth)
    ax.set_title(_title(title), fontsize=11, parse_math=False)
    ax.annotate(
        words,
        (0.5, 0),
        xycoords="axes fraction",
        xytext=(0, -draw.BELOW),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=9,
        color=colours.QUIET,
        parse_math=False,
    )


def _grid(
    scenes: Sequence[Scene],
    titles: Sequence[str],
    lines: Sequence[str],
    *,
    title: str = "",
    columns: int | None = None,
    truth: bool = False,
    side: float = 4.6,
    words: tuple[str, str] = ("kept {}", "other {}"),
) -> Any:
    """Scenes side by side, each with a title and a line of text, one legend for all."""
    columns = columns or (len(scenes) if len(scenes) <= 3 else 2 if len(scenes) == 4 else 3)
    rows = -(-len(scenes) // columns)
    page = draw.figure(side * columns, (side * draw.proportion(scenes) + 0.8) * rows + 0.7 + 0.4 * bool(title))
    paint = colours.of_groups([n.group for s in scenes for n in s.nodes])
    for place, (shown, name, line) in enumerate(zip(scenes, titles, lines, strict=True)):
        _panel(page.add_subplot(rows, columns, place + 1), shown, paint, name, line, truth)
    if title:
        page.suptitle(_title(title), fontsize=13, parse_math=False)
    draw.legend(page, scenes, paint, truth=truth, words=words, loc="outside lower center", ncols=max(4, 2 * columns))
    return page
