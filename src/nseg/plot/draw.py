"""A scene as ink, by matplotlib: figures are objects, and no setting of matplotlib is changed."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nseg.errors import MissingError
from nseg.plot import colours
from nseg.plot.scene import Edge, Node, Scene, bond_length

LONGEST = 32
"""Characters of a name that are drawn."""

LONGEST_TITLE = 80

NAMED = 40
"""Nodes up to which all names are drawn; beyond it only those of what is kept."""

CROWD = 150
"""Strong nodes from which on they are drawn small: else they would hide the edges between them."""

BELOW = 10
"""Points between a picture and the words below it: room for the name of its lowest node."""

MARGIN = 0.06
DASHES = (0, (4, 3))

Paint = dict[int, str]
"""The colour of each group."""


def matplotlib() -> Any:
    """The library, or a sentence that says how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingError('Pictures need matplotlib (it is not installed). Get it: pip install "nseg[plot]".') from error
    return matplotlib


def figure(width: float, height: float) -> Any:
    """An empty figure that no window and no global list knows of."""
    matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def figure_svg(drawn: Any) -> str:
    """A figure as SVG, the same each time, in which words are text (escaped) and not outlines."""
    page = io.StringIO()
    with matplotlib().rc_context({"svg.hashsalt": "nseg", "svg.fonttype": "none"}):
        drawn.savefig(page, format="svg", metadata={"Date": None})
    text = page.getvalue()
    return text[text.index("<svg") :]


def plain(name: str, longest: int = LONGEST) -> str:
    """A name as one short line without characters that cannot be drawn.

    >>> plain("two" + chr(10) + "lines")
    'two lines'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def box(shown: Scene) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of a scene with its margins."""
    x, y = [n.x for n in shown.nodes] or [0.5], [n.y for n in shown.nodes] or [0.5]
    return min(x) - MARGIN, max(x) + MARGIN, min(y) - MARGIN, max(y) + MARGIN


def proportion(scenes: Sequence[Scene]) -> float:
    """Height over width of the page that scenes need."""
    needed = [(top - bottom) / (right - left) for left, right, bottom, top in map(box, scenes)]
    return min(max(*needed, 0.4), 1.1)


# --- one scene -----------------------------------------------------------------------------------------------------------


def draw(ax: Any, shown: Scene, paint: Paint | None = None, *, truth: bool = False) -> None:
    """Draw a scene on matplotlib axes: kept strong, the rest faint, the target ringed.

    Args:
        ax: the axes; their own frame is hidden.
        shown: what to draw.
        paint: the colours of the groups; those of this scene if None.
        truth: whether ground truth is marked.
    """
    left, right, bottom, top = box(shown)
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    pen = _Pen(ax, shown, paint or colours.of_groups([n.group for n in shown.nodes]))
    if truth:
        pen.lines([e for e in shown.edges if e.truth], pen.band + 7, colours.TRUTH, 1)
    pen.molecule() if shown.molecule else pen.graph()


def strong(shown: Scene) -> list[bool]:
    """Whether each node is drawn strong: it is kept, or where nodes are not masked, a kept edge is at it."""
    at_kept = {n for edge in shown.edges if edge.kept for n in (edge.source, edge.end)}
    return [n in at_kept if node.kept is None else node.kept for n, node in enumerate(shown.nodes)]


@dataclass(frozen=True)
class _Pen:
    """Draws one scene on axes; lengths are in points unless they are those of the scene."""

    ax: Any
    shown: Scene
    paint: Paint

    @property
    def unit(self) -> float:
        """Points per unit of the scene."""
        page, place = self.ax.figure, self.ax.get_position()
        left, right, bottom, top = box(self.shown)
        wide, high = place.width * page.get_figwidth(), place.height * page.get_figheight()
        return float(72 * min(wide / (right - left), high / (top - bottom)))

    @property
    def radius(self) -> float:
        """Of a node, so that neighbours rarely touch."""
        return min(max(self.unit / (6 * math.sqrt(len(self.shown.nodes) or 1)), 2.0), 9.0)

    @property
    def bond(self) -> float:
        """Length of a usual bond."""
        return self.unit * (bond_length(self.shown) or 0.1)

    @property
    def band(self) -> float:
        """Width of a kept edge."""
        if self.shown.molecule:
            return min(max(0.4 * self.bond, 3.0), 13.0)
        return 3.2 if len(self.shown.edges) <= 80 else 2.2

    def lines(self, edges: Sequence[Edge], width: float, colour: str, level: float) -> None:
        """Edges as lines, a self-loop as a small circle."""
        ends = [[(n.x, n.y) for n in self._ends(e)] for e in edges if e.source != e.end]
        size = 1.6 * self.radius / self.unit
        for node in (self.shown.nodes[e.source] for e in edges if e.source == e.end):
            turns = [t * math.pi / 12 for t in range(25)]
            ends.append([(node.x + size * math.sin(t), node.y + size * (1 - math.cos(t))) for t in turns])
        self._segments(ends, width, colour, level)

    def _segments(self, paths: Sequence[Any], width: float, colour: Any, level: float) -> None:
        from matplotlib.collections import LineCollection

        self.ax.add_collection(LineCollection(paths, linewidths=width, colors=colour, capstyle="round", zorder=level))

    def dots(self, nodes: Sequence[Node], radius: float, level: float, **how: Any) -> None:
        """Nodes as circles."""
        at = [n.x for n in nodes], [n.y for n in nodes]
        self.ax.scatter(*at, s=(2 * radius) ** 2, zorder=level, **how)

    def word(self, node: Node, word: str, size: float, colour: str, below: float = 0.0, **how: Any) -> None:
        """A word at a node, or below it."""
        from matplotlib.patheffects import withStroke

        if below:  # it may lie on edges; outlines are no good for the small letters of atoms
            how["path_effects"] = [withStroke(linewidth=2, foreground="white", alpha=0.9)]
        self.ax.annotate(
            word,
            (node.x, node.y),
            xytext=(0, -below),
            textcoords="offset points",
            ha="center",
            va="top" if below else "center",
            fontsize=size,
            color=colour,
            zorder=8,
            parse_math=False,
            annotation_clip=False,
            **how,
        )

    def _ends(self, edge: Edge) -> tuple[Node, Node]:
        return self.shown.nodes[edge.source], self.shown.nodes[edge.end]

    # --- any graph ---------------------------------------------------------------------------------------------------------

    def graph(self) -> None:
        shown, bold = self.shown, strong(self.shown)
        rest = [e for e in shown.edges if not e.kept]
        self.lines(rest, 0.5 if len(rest) > 400 else 1.0, colours.FAINT, 2)
        self.lines([e for e in shown.edges if e.kept], self.band, colours.KEPT, 4)
        pale = [n for n, b in zip(shown.nodes, bold, strict=True) if not b and not n.target]
        hue = [self._colour(n, 0.45) for n in pale]
        level = 4.5 if any(n.kept is not None for n in shown.nodes) else 3  # kept edges may end at nodes that are not kept
        self.dots(pale, 0.75 * self.radius, level, c=hue, edgecolors="white", linewidths=0.5)
        full, ring = max(self.radius, 4.0), 1.25 * max(self.radius, 4.0) + 4
        black: dict[str, Any] = {"edgecolors": colours.INK}
        nodes = [n for n, b in zip(shown.nodes, bold, strict=True) if b and not n.target]
        size, line = (full, 1.2) if len(nodes) <= CROWD else (2.0, 0.3)
        self.dots(nodes, size, 5, c=[self._colour(n) for n in nodes], linewidths=line, **black)
        targets = [n for n in shown.nodes if n.target]
        if shown.level == "edge":
            self.ax.plot([n.x for n in targets], [n.y for n in targets], color=colours.INK, linestyle=DASHES, zorder=4.2)
        self.dots(targets, ring, 6, facecolors="white", linewidths=2.2, **black)
        hue = [self._colour(n, 1.0 if n.kept is not False else 0.45) for n in targets]
        self.dots(targets, 1.25 * full, 7, c=hue, linewidths=1.2, **black)
        few = len(shown.nodes) <= NAMED
        for node, is_bold in zip(shown.nodes, bold, strict=True):
            name = plain(node.name) or (str(node.id) if node.target else "")
            if name and (is_bold or node.target or few):
                size = 8.0 if few or node.target else 6.5
                below = (ring if node.target else full) + 1.5
                self.word(node, name, size, colours.INK if is_bold or node.target else colours.QUIET, below)

    def _colour(self, node: Node, share: float = 1.0) -> tuple[float, ...]:
        """The colour of a node's group; paler, but of the same hue, for a smaller share."""
        from matplotlib.colors import to_rgb

        return tuple(1 - share * (1 - c) for c in to_rgb(self.paint.get(node.group, colours.PLAIN)))

    # --- molecules -------------------------------------------------------------------------------------------------------

    def molecule(self) -> None:
        """Bonds as a chemist draws them; what is kept lies on a band of colour."""
        shown, bold, bond = self.shown, strong(self.shown), self.bond
        self.lines([e for e in shown.edges if e.kept], self.band, colours.BAND, 2)
        marked = [n for n in shown.nodes if n.kept]
        self.dots(marked, 0.78 * self.band, 2.5, c=colours.BAND, edgecolors=colours.KEPT, linewidths=1.2)
        bound = {n for edge in shown.edges for n in (edge.source, edge.end)}
        named = [node.name != "C" or n not in bound for n, node in enumerate(shown.nodes)]
        strokes = [
            (stroke, colours.PLAIN if e.kept is False else colours.INK)
            for e in shown.edges
            for stroke in _strokes(*self._ends(e), e.order, named[e.source], named[e.end])
        ]
        self._segments([s for s, _ in strokes], min(max(0.05 * bond, 0.5), 1.5), [colour for _, colour in strokes], 3)
        size = min(max(0.36 * bond, 4.0), 11.0)
        for node, is_bold, has_name in zip(shown.nodes, bold, named, strict=True):
            if has_name:
                quiet = node.name == "H" and not is_bold
                colour = colours.QUIET if quiet else colours.ATOMS.get(node.name, colours.INK)
                weight = "bold" if is_bold else "normal"
                self.word(node, _symbol(node), 0.8 * size if node.name == "H" else size, colour, fontweight=weight)


def _symbol(node: Node) -> str:
    """An atom with the hydrogens that are not drawn, such as NH₂."""
    number = "" if node.hydrogens == 1 else "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(node.hydrogens))
    return plain(node.name) + (f"H{number}" if node.hydrogens else "")


def _strokes(
    a: Node, b: Node, order: float, a_named: bool, b_named: bool
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """A bond as one, two or three parallel lines that end before the symbols of its atoms."""
    x, y = b.x - a.x, b.y - a.y
    first, last = 0.24 * a_named, 1 - 0.24 * b_named
    shifts = {2: (-0.075, 0.075), 3: (-0.13, 0.0, 0.13)}.get(round(order), (0.0,))
    return [
        ((a.x + first * x - s * y, a.y + first * y + s * x), (a.x + last * x - s * y, a.y + last * y + s * x))
        for s in shifts
    ]


# --- words around it -----------------------------------------------------------------------------------------------------


def legend(
    page: Any,
    scenes: Sequence[Scene],
    paint: Paint,
    *,
    truth: bool = False,
    words: tuple[str, str] = ("kept {}", "other {}"),
    **where: Any,
) -> None:
    """What colours, rings and strong lines stand for.

    Args:
        page: axes or a figure.
        scenes: what is drawn there.
        paint: the colours of the groups.
        truth: whether ground truth is marked.
        words: for what is drawn strong and what is not.
        **where: as matplotlib's ``legend`` takes it.
    """
    entries = _entries(scenes, paint, truth, words)
    if not entries:
        return
    columns = min(len(entries), int(where.pop("ncols", 4)))
    shapes, blank = [shape for _, shape in entries], ["."] * len(entries)  # a name that begins with _ would be left out
    made = page.legend(shapes, blank, frameon=False, fontsize=8.5, ncols=columns, **where)
    for text, (name, _) in zip(made.get_texts(), entries, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def legend_below(ax: Any, scenes: Sequence[Scene], paint: Paint, *, truth: bool = False) -> None:
    """The legend of axes that others have made, below two lines of text."""
    from matplotlib.transforms import ScaledTranslation

    lower = ax.transAxes + ScaledTranslation(0, -(BELOW + 28) / 72, ax.figure.dpi_scale_trans)
    legend(ax, scenes, paint, truth=truth, loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=lower, ncols=3)


def _entries(scenes: Sequence[Scene], paint: Paint, truth: bool, words: tuple[str, str]) -> list[tuple[str, Any]]:
    from matplotlib.lines import Line2D

    def dot(face: str, edge: str = colours.INK, width: float = 1.2) -> Any:
        how: dict[str, Any] = {"markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": width}
        return Line2D([], [], marker="o", linestyle="", markersize=9, **how)

    nodes, edges = [n for s in scenes for n in s.nodes], [e for s in scenes for e in s.edges]
    atoms = any(s.molecule for s in scenes)
    node, edge = ("atom", "bond") if atoms else ("node", "edge")
    entries: list[tuple[str, Any]] = []
    if not atoms:
        entries += [
            (plain(scenes[0].groups[group]), dot(colour)) for group, colour in paint.items() if colour != colours.PLAIN
        ]
    if any(n.target for n in nodes):
        link = Line2D([], [], color=colours.INK, linestyle=DASHES)
        entries.append(
            ("explained link", link) if scenes[0].level == "edge" else ("explained node", dot("white", width=2.4))
        )
    if any(n.kept is not None for n in nodes):
        face, rim = (colours.BAND, colours.KEPT) if atoms else (colours.PLAIN, colours.INK)
        entries.append((words[0].format(node), dot(face, rim)))
        entries += [] if atoms else [(words[1].format(node), dot(colours.FAINT, "white"))]
    if any(e.kept is not None for e in edges):
        band = (colours.BAND, 8.0) if atoms else (colours.KEPT, 3.2)
        for word, (colour, width) in zip(words, (band, (colours.PLAIN if atoms else colours.FAINT, 1.2)), strict=True):
            entries.append((word.format(edge), Line2D([], [], color=colour, linewidth=width)))
    if truth and any(e.truth for e in edges):
        entries.append(("ground truth", Line2D([], [], color=colours.TRUTH, linewidth=8)))
    return entries
