"""Draws one scene with matplotlib. Figures are plain objects and no matplotlib setting is changed."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nseg.errors import MissingError
from nseg.plot import colours
from nseg.plot.scene import Edge, Node, Scene, typical_edge_length

MAX_NAME = 32
"""Maximum number of characters of a drawn name."""

MAX_NAMED_NODES = 40
"""Up to this number of nodes, all names are drawn; above it, only those of highlighted nodes."""

MAX_LARGE_NODES = 150
"""Above this number of highlighted nodes, they are drawn small so that the edges between them stay visible."""

MARGIN = 0.06
_BASE = 0.15  # saturation of the part of a node that stands for features that are not kept
DASHES = (0, (4, 3))

SHAPES = ("o", "s", "^", "D", "P", "v", "X", "p")
"""Markers of node types."""

MAX_NAMED_EDGES = 30
"""Up to this number of kept edges, what they say is written on them."""

GroupColours = dict[int, str]
"""The colour of each group."""


def matplotlib() -> Any:
    """The matplotlib module, or an error that says how to install it."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingError(
            'Pictures need matplotlib (it is not installed). Install it: pip install "nseg[plot]".'
        ) from error
    return matplotlib


def figure(width: float, height: float) -> Any:
    """An empty figure, unknown to pyplot: it opens no window and needs no closing."""
    matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def figure_svg(drawn: Any) -> str:
    """A figure as SVG, identical each time, with words as escaped text instead of outlines."""
    page = io.StringIO()
    with matplotlib().rc_context({"svg.hashsalt": "nseg", "svg.fonttype": "none"}):
        drawn.savefig(page, format="svg", metadata={"Date": None})
    text = page.getvalue()
    return text[text.index("<svg") :]


def single_line(text: str, max_length: int = MAX_NAME) -> str:
    """A text as one short line of printable characters.

    >>> single_line("two" + chr(10) + "lines")
    'two lines'
    """
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def bounding_box(shown: Scene) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of a scene, with margins."""
    x, y = [n.x for n in shown.nodes] or [0.5], [n.y for n in shown.nodes] or [0.5]
    return min(x) - MARGIN, max(x) + MARGIN, min(y) - MARGIN, max(y) + MARGIN


def aspect_ratio(scenes: Sequence[Scene]) -> float:
    """Height over width of the axes that all scenes fit into."""
    needed = [(top - bottom) / (right - left) for left, right, bottom, top in map(bounding_box, scenes)]
    return min(max(*needed, 0.4), 1.1)


def draw(ax: Any, shown: Scene, group_colours: GroupColours | None = None, *, truth: bool = False) -> None:
    """Draw a scene on matplotlib axes: the kept part strong, the rest faint, the target with a ring.

    Args:
        ax: the axes; their frame is hidden.
        shown: the scene to draw.
        group_colours: colours of the groups; None for those of this scene.
        truth: whether to mark the ground truth.
    """
    left, right, bottom, top = bounding_box(shown)
    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.set_xlim(left, right)
    ax.set_ylim(bottom, top)
    drawer = _SceneDrawer(ax, shown, group_colours or colours.group_colours([n.group for n in shown.nodes]))
    if truth:
        drawer.draw_lines([e for e in shown.edges if e.truth], drawer.kept_width + 7, colours.TRUTH, 1)
    drawer.draw_molecule() if shown.molecule else drawer.draw_graph()


def highlighted_nodes(shown: Scene) -> list[bool]:
    """Whether each node is highlighted: it is kept or, if nodes are not masked, it ends a kept edge."""
    at_kept_edge = {n for edge in shown.edges if edge.kept for n in (edge.source, edge.end)}
    return [n in at_kept_edge if node.kept is None else node.kept for n, node in enumerate(shown.nodes)]


@dataclass(frozen=True)
class _SceneDrawer:
    """Draws one scene on axes. Lengths are in points, except positions, which are in units of the scene."""

    ax: Any
    shown: Scene
    group_colours: GroupColours

    @property
    def points_per_unit(self) -> float:
        """Points per unit of the scene."""
        page, place = self.ax.figure, self.ax.get_position()
        left, right, bottom, top = bounding_box(self.shown)
        width, height = place.width * page.get_figwidth(), place.height * page.get_figheight()
        return float(72 * min(width / (right - left), height / (top - bottom)))

    @property
    def node_radius(self) -> float:
        """Radius of a node, small enough that neighbours rarely touch."""
        return min(max(self.points_per_unit / (6 * math.sqrt(len(self.shown.nodes) or 1)), 2.0), 9.0)

    @property
    def bond_length(self) -> float:
        """Length of a typical edge."""
        return self.points_per_unit * (typical_edge_length(self.shown) or 0.1)

    @property
    def kept_width(self) -> float:
        """Line width of a kept edge."""
        if self.shown.molecule:
            return min(max(0.4 * self.bond_length, 3.0), 13.0)
        return 3.2 if len(self.shown.edges) <= 80 else 2.2

    def draw_lines(self, edges: Sequence[Edge], width: float, colour: str, zorder: float) -> None:
        """Draw edges as lines and self-loops as small circles."""
        paths = [[(n.x, n.y) for n in self._ends(e)] for e in edges if e.source != e.end]
        radius = 1.6 * self.node_radius / self.points_per_unit
        for node in (self.shown.nodes[e.source] for e in edges if e.source == e.end):
            angles = [t * math.pi / 12 for t in range(25)]
            paths.append([(node.x + radius * math.sin(t), node.y + radius * (1 - math.cos(t))) for t in angles])
        self._draw_paths(paths, width, colour, zorder)

    def _draw_paths(self, paths: Sequence[Any], width: float, colour: Any, zorder: float, style: Any = "solid") -> None:
        from matplotlib.collections import LineCollection

        look = {"linewidths": width, "colors": colour, "linestyles": style, "capstyle": "round"}
        self.ax.add_collection(LineCollection(paths, zorder=zorder, **look))

    def _draw_dots(self, nodes: Sequence[Node], radius: float, zorder: float, **style: Any) -> None:
        """Draw nodes, each in the shape of its type unless ``style`` has a marker."""
        face = style.get("c")
        for shape in [None] if "marker" in style else sorted({n.shape for n in nodes}):
            at = [i for i, n in enumerate(nodes) if shape is None or n.shape == shape]
            own = style if shape is None else {**style, "marker": marker(shape)}
            own |= {"c": [face[i] for i in at]} if isinstance(face, list) else {}
            some = [nodes[i] for i in at]
            self.ax.scatter([n.x for n in some], [n.y for n in some], s=(2 * radius) ** 2, zorder=zorder, **own)

    def _draw_text(self, node: Node, text: str, size: float, colour: str, below: float = 0.0, **style: Any) -> None:
        """Write a text on a node, or ``below`` points under it."""
        from matplotlib.patheffects import withStroke

        if below:  # The text may cover edges. Atom symbols get no outline: it would blur their small letters.
            style["path_effects"] = [withStroke(linewidth=2, foreground="white", alpha=0.9)]
        self.ax.annotate(
            text,
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
            **style,
        )

    def _ends(self, edge: Edge) -> tuple[Node, Node]:
        return self.shown.nodes[edge.source], self.shown.nodes[edge.end]

    # --- any graph ---------------------------------------------------------------------------------------------------------

    def draw_graph(self) -> None:
        """Draw edges as lines and nodes as dots with their names."""
        shown, highlighted = self.shown, highlighted_nodes(self.shown)
        other_edges = [e for e in shown.edges if not e.kept]
        self.draw_lines(other_edges, 0.5 if len(other_edges) > 400 else 1.0, colours.FAINT, 2)
        self.draw_lines([e for e in shown.edges if e.kept], self.kept_width, colours.KEPT, 4)
        faint = [n for n, strong in zip(shown.nodes, highlighted, strict=True) if not strong and not n.target]
        # With masked nodes, a kept edge may end at a node that is not kept: that node must lie above the edge.
        zorder = 4.5 if any(n.kept is not None for n in shown.nodes) else 3
        face = [self._node_colour(n, 0.45) for n in faint]
        self._draw_dots(faint, 0.75 * self.node_radius, zorder, c=face, edgecolors="white", linewidths=0.5)
        radius = max(self.node_radius, 4.0)
        nodes = [n for n, strong in zip(shown.nodes, highlighted, strict=True) if strong and not n.target]
        size, outline = (radius, 1.2) if len(nodes) <= MAX_LARGE_NODES else (2.0, 0.3)
        face = [self._node_colour(n, _BASE if n.partial else 1.0) for n in nodes]
        self._draw_dots(nodes, size, 5, c=face, linewidths=outline, edgecolors=colours.INK)
        self._draw_wedges(nodes, size, 5.5)
        ring = 1.25 * radius + 4
        self._draw_targets(1.25 * radius, ring)
        self._draw_relations()
        self._draw_names(highlighted, radius, ring)

    def _draw_relations(self) -> None:
        """Write on the kept edges of a heterogeneous graph what they say."""
        kept = [e for e in self.shown.edges if e.kept and e.relation and e.source != e.end]
        for edge in kept if len(kept) <= MAX_NAMED_EDGES else ():
            a, b = self._ends(edge)
            middle = replace(a, x=(a.x + b.x) / 2, y=(a.y + b.y) / 2)
            self._draw_text(middle, single_line(edge.relation), 7.0, colours.KEPT, 0.01, fontstyle="italic")

    def _draw_targets(self, radius: float, ring: float) -> None:
        """Draw the explained nodes with a ring, and a dashed line between the ends of an explained link."""
        targets = [n for n in self.shown.nodes if n.target]
        if self.shown.level == "edge":
            self.ax.plot([n.x for n in targets], [n.y for n in targets], color=colours.INK, linestyle=DASHES, zorder=4.2)
        self._draw_dots(targets, ring, 6, facecolors="white", linewidths=2.2, edgecolors=colours.INK, marker="o")
        face = [self._node_colour(n, _BASE if n.partial else 1.0 if n.kept is not False else 0.45) for n in targets]
        self._draw_dots(targets, radius, 7, c=face, linewidths=1.2, edgecolors=colours.INK)
        self._draw_wedges(targets, radius, 7.5)

    def _draw_wedges(self, nodes: Sequence[Node], radius: float, zorder: float, colour: str | None = None) -> None:
        """Fill the share of each partly kept node that its kept features are, clockwise from the top."""
        from matplotlib.path import Path

        for share in sorted({n.share for n in nodes if n.partial and n.share is not None}):
            some = [n for n in nodes if n.share == share]
            face = [self._node_colour(n) for n in some] if colour is None else colour
            self._draw_dots(some, radius, zorder, c=face, linewidths=0, marker=Path.wedge(90 - 360 * share, 90))

    def _draw_names(self, highlighted: list[bool], radius: float, ring: float) -> None:
        few = len(self.shown.nodes) <= MAX_NAMED_NODES
        for node, strong in zip(self.shown.nodes, highlighted, strict=True):
            name = single_line(node.name) or (str(node.id) if node.target else "")
            if name and (strong or node.target or few):
                size = 8.0 if few or node.target else 6.5
                below = (ring if node.target else radius) + 1.5
                self._draw_text(node, name, size, colours.INK if strong or node.target else colours.QUIET, below)

    def _node_colour(self, node: Node, saturation: float = 1.0) -> tuple[float, ...]:
        """Colour of a node's group, mixed with white for a saturation below 1."""
        from matplotlib.colors import to_rgb

        return tuple(1 - saturation * (1 - c) for c in to_rgb(self.group_colours.get(node.group, colours.NEUTRAL)))

    # --- molecules -------------------------------------------------------------------------------------------------------

    def draw_molecule(self) -> None:
        """Draw bonds and atom symbols as chemists do, with a band of colour behind the kept part."""
        shown, highlighted, bond = self.shown, highlighted_nodes(self.shown), self.bond_length
        self.draw_lines([e for e in shown.edges if e.kept], self.kept_width, colours.BAND, 2)
        kept = [n for n in shown.nodes if n.kept]
        face = ["white" if n.partial else colours.BAND for n in kept]
        self._draw_dots(kept, 0.78 * self.kept_width, 2.5, c=face, edgecolors=colours.KEPT, linewidths=1.2)
        self._draw_wedges(kept, 0.78 * self.kept_width, 2.6, colours.BAND)
        bound = {n for edge in shown.edges for n in (edge.source, edge.end)}
        has_symbol = [node.symbol != "C" or node.charge != 0 or n not in bound for n, node in enumerate(shown.nodes)]
        strokes = [
            (stroke, colours.NEUTRAL if e.kept is False else colours.INK, AROMATIC if side and 1 < e.order < 2 else "solid")
            for e in shown.edges
            for side, stroke in enumerate(_bond_strokes(*self._ends(e), e.order, has_symbol[e.source], has_symbol[e.end]))
        ]
        for dashes in ("solid", AROMATIC):
            some = [(stroke, colour) for stroke, colour, style in strokes if style == dashes]
            self._draw_paths(
                [s for s, _ in some], min(max(0.05 * bond, 0.5), 1.5), [colour for _, colour in some], 3, dashes
            )
        size = min(max(0.36 * bond, 4.0), 11.0)
        for node, strong, symbol in zip(shown.nodes, highlighted, has_symbol, strict=True):
            if symbol:
                faint = node.symbol == "H" and not strong
                colour = colours.QUIET if faint else colours.ATOMS.get(node.symbol, colours.INK)
                weight = "bold" if strong else "normal"
                self._draw_text(node, atom_text(node), 0.8 * size if node.symbol == "H" else size, colour, fontweight=weight)


AROMATIC = (0, (2.5, 2.0))
"""Dashes of the second line of an aromatic bond, whose order is 1.5."""


def marker(shape: int) -> str:
    """The marker of a node type; types beyond the last shape begin again."""
    return SHAPES[shape % len(SHAPES)]


def atom_text(node: Node) -> str:
    """Symbol of an atom with its hydrogen atoms that are not drawn and its charge, such as NH₂ or O⁻."""
    number = "" if node.hydrogens == 1 else "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(node.hydrogens))
    size = "" if abs(node.charge) <= 1 else "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(abs(node.charge)))
    sign = "" if not node.charge else f"{size}{'⁺' if node.charge > 0 else '⁻'}"
    return single_line(node.symbol) + (f"H{number}" if node.hydrogens else "") + sign


def _bond_strokes(
    a: Node, b: Node, order: float, a_symbol: bool, b_symbol: bool
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """One, two or three parallel lines of a bond, shortened where an atom shows its symbol."""
    x, y = b.x - a.x, b.y - a.y
    first, last = 0.24 * a_symbol, 1 - 0.24 * b_symbol
    shifts = {2: (-0.075, 0.075), 3: (-0.13, 0.0, 0.13)}.get(round(order), (0.0,))
    return [
        ((a.x + first * x - s * y, a.y + first * y + s * x), (a.x + last * x - s * y, a.y + last * y + s * x))
        for s in shifts
    ]
