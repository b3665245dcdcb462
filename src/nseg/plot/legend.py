"""Legends: what colours, rings and strong lines stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from nseg.plot import colours
from nseg.plot.draw import DASHES, GroupColours, marker, single_line
from nseg.plot.scene import Scene

TEXT_OFFSET = 10
"""Points between the axes and the text below them: room for the name of the lowest node."""


class LegendWords(NamedTuple):
    """Texts of a legend.

    Args:
        strong, faint: for strong and for faint elements; the braces become "node", "edge", "atom" or "bond".
        state: what strong elements are, for nodes of which single features are masked.
    """

    strong: str
    faint: str
    state: str


KEPT_AND_OTHER = LegendWords("kept {}", "other {}", "kept")
"""Texts for kept and for other elements."""


def add_legend(
    page: Any,
    scenes: Sequence[Scene],
    group_colours: GroupColours,
    *,
    truth: bool = False,
    words: LegendWords = KEPT_AND_OTHER,
    **placement: Any,
) -> None:
    """Add a legend to axes or a figure.

    Args:
        page: axes or a figure.
        scenes: the scenes drawn there.
        group_colours: colours of the groups.
        truth: whether the ground truth is marked.
        words: texts of the legend.
        **placement: arguments of matplotlib's ``legend``.
    """
    entries = _entries(scenes, group_colours, truth, words)
    if not entries:
        return
    columns = min(len(entries), int(placement.pop("ncols", 4)))
    # matplotlib leaves out names that begin with "_": add the entries with a neutral text and set the names afterwards.
    shapes, placeholders = [shape for _, shape in entries], ["."] * len(entries)
    made = page.legend(shapes, placeholders, frameon=False, fontsize=8.5, ncols=columns, **placement)
    for text, (name, _) in zip(made.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def add_legend_below(ax: Any, scenes: Sequence[Scene], group_colours: GroupColours, *, truth: bool = False) -> None:
    """Add a legend to the caller's axes, below two lines of text."""
    from matplotlib.transforms import ScaledTranslation

    below = ax.transAxes + ScaledTranslation(0, -(TEXT_OFFSET + 28) / 72, ax.figure.dpi_scale_trans)
    placement: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "bbox_transform": below, "ncols": 3}
    add_legend(ax, scenes, group_colours, truth=truth, **placement)


def _entries(scenes: Sequence[Scene], group_colours: GroupColours, truth: bool, words: LegendWords) -> list[tuple[str, Any]]:
    """Name and shape of each entry."""
    from matplotlib.lines import Line2D

    nodes, edges = [n for s in scenes for n in s.nodes], [e for s in scenes for e in s.edges]
    molecule = any(s.molecule for s in scenes)
    node_word, edge_word = ("atom", "bond") if molecule else ("node", "edge")
    entries: list[tuple[str, Any]] = []
    if not molecule:
        named = [(scenes[0].groups[group], colour) for group, colour in group_colours.items() if colour != colours.NEUTRAL]
        typed = scenes[0].grouping == "type"
        shapes = {name: marker(group) if typed else "o" for group, name in enumerate(scenes[0].groups)}
        entries += [(single_line(name), _dot(colour, marker=shapes[name])) for name, colour in named]
    if any(n.target for n in nodes) and scenes[0].level == "edge":
        entries.append(("explained link", Line2D([], [], color=colours.INK, linestyle=DASHES)))
    elif any(n.target for n in nodes):
        entries.append(("explained node", _dot("white", outline_width=2.4)))
    face, outline = (colours.BAND, colours.KEPT) if molecule else (colours.NEUTRAL, colours.INK)
    faint = [] if molecule else [_dot(colours.FAINT, "white")]
    if any(s.node_features for s in scenes):
        if any(n.share == 1 for n in nodes):
            entries.append((f"all features {words.state}", _dot(face, outline)))
        entries.append(
            (
                f"some features {words.state} (filled share)",
                _dot(face, outline, fillstyle="left", markerfacecoloralt="white"),
            )
        )
        entries += [(f"no feature {words.state}", dot) for dot in faint]
    elif any(n.kept is not None for n in nodes):
        entries.append((words.strong.format(node_word), _dot(face, outline)))
        entries += [(words.faint.format(node_word), dot) for dot in faint]
    if any(e.kept is not None for e in edges):
        kept = (colours.BAND, 8.0) if molecule else (colours.KEPT, 3.2)
        other = (colours.NEUTRAL if molecule else colours.FAINT, 1.2)
        for word, (colour, width) in zip(words[:2], (kept, other), strict=True):
            entries.append((word.format(edge_word), Line2D([], [], color=colour, linewidth=width)))
    if truth and any(e.truth for e in edges):
        entries.append(("ground truth", Line2D([], [], color=colours.TRUTH, linewidth=8)))
    return entries


def _dot(face: str, outline: str = colours.INK, outline_width: float = 1.2, **style: Any) -> Any:
    from matplotlib.lines import Line2D

    style = {"marker": "o", **style, "markerfacecolor": face, "markeredgecolor": outline}
    return Line2D([], [], linestyle="", markersize=9, markeredgewidth=outline_width, **style)
