"""Figures of a study: one function computes a small table, another draws it, and both are saved."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nseg.errors import InputError
from nseg.storage.files import replace_file
from nseg.study.folder import StudyFolder
from nseg.study.summary import column_title, summary

Rows = list[dict[str, Any]]
# the palette of Okabe and Ito, which colour-blind readers can tell apart
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
    "#999999",
)
DPI, PALETTE = 140, 64  # of PNG files: readable, and below 250 KB
MARKERS = "osD^vPX*<>hd"
OURS = "NSEG"  # always named in figures of cost
THRESHOLD_SCORES = {
    "fid_plus": "Fid+ (%), higher is better",
    "fid_minus": "Fid- (%), lower",
    "charact": "charact (%), higher",
    "removed_charact": "charact by deletion (%)",
    "sparsity": "sparsity (%)",
}


# --- tables ------------------------------------------------------------------------------------------------------------


def threshold_rows(folder: StudyFolder, name: str) -> Rows:
    """Fidelity of masks cut at thresholds, mean over seeds: a row per dataset, method and threshold.

    Under masks, and as ``removed_...`` with edges deleted.
    """
    _, trials = folder.study(name)
    groups: dict[tuple[str, str, float], Rows] = defaultdict(list)
    for key, trial in trials.items():
        record = folder.record(key)
        curve = (record or {}).get("curves", {}).get("thresholds")
        if curve:
            for place, at in enumerate(curve["at"]):
                point = {k: 100 * values[place] for k, values in curve.items() if k != "at"}
                groups[trial.dataset, trial.label, at].append(point)
    names = dict.fromkeys(name for points in groups.values() for name in points[0])
    return [
        {"dataset": d, "method": m, "threshold": t, **{k: _mean_of(points, k) for k in names}}
        for (d, m, t), points in groups.items()
    ]


def _mean_of(points: Rows, name: str) -> float | None:
    """Mean of a score over points; None if it was not measured, as deletion is not for masks of nodes alone."""
    return sum(point[name] for point in points) / len(points) if name in points[0] else None


def setting_rows(folder: StudyFolder, name: str) -> Rows:
    """Every column as a function of the varied setting: a row per dataset, method, value and column."""
    study, trials = folder.study(name)
    grids = {m.label or m.name: [*study.grid, *m.grid] for m in study.methods}
    settings = {trial.label: trial.settings for trial in trials.values()}
    rows = []
    for score in summary(folder, name):
        method = next(one for one in grids if score.label == one or score.label.startswith(f"{one} ("))
        if len(grids[method]) != 1:
            raise InputError(
                f"This kind of figure needs a grid over one setting (got {grids[method]} of {method}). Vary one setting."
            )
        setting = grids[method][0]
        point = {"setting": setting, "value": settings[score.label][setting]}
        rows.append({"dataset": score.dataset, "method": method, **point, "column": score.column, "mean": score.mean})
    return rows


def cost_rows(folder: StudyFolder, name: str) -> Rows:
    """PNS bound of hard explanations and seconds: a row per dataset and method, with whether it is on the Pareto front."""
    found: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    total: dict[str, int] = defaultdict(int)
    for score in summary(folder, name):
        row = found[score.dataset, score.label]
        row |= {"dataset": score.dataset, "method": score.label, score.column: score.mean, "instances": score.instances}
        total[score.dataset] = max(total[score.dataset], score.instances)
    rows = [row for row in found.values() if row["instances"] == total[row["dataset"]] and "hard.pns" in row]
    return [{**row, "front": is_pareto_optimal(row, [r for r in rows if r["dataset"] == row["dataset"]])} for row in rows]


def is_pareto_optimal(row: dict[str, Any], rows: Rows) -> bool:
    """Whether no other row is at least as good in seconds and PNS, and better in one of them.

    >>> slow, fast = {"seconds": 2.0, "hard.pns": 9.0}, {"seconds": 1.0, "hard.pns": 9.0}
    >>> is_pareto_optimal(slow, [slow, fast]), is_pareto_optimal(fast, [slow, fast])
    (False, True)
    """
    s, p = row["seconds"], row["hard.pns"]
    return not any(
        o["seconds"] <= s and o["hard.pns"] >= p and (o["seconds"] < s or o["hard.pns"] > p) for o in rows if o is not row
    )


# --- drawing -----------------------------------------------------------------------------------------------------------


def figure_class() -> Any:
    """Matplotlib's ``Figure``; raises with an install hint if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError('Figures need matplotlib (it is not installed). Try: pip install "nseg[plot]".') from error
    return Figure


def _subplots(rows: int, columns: int, width: float = 2.6, height: float = 2.0) -> tuple[Any, Any]:
    figure = figure_class()(figsize=(width * columns + 0.6, height * rows + 0.9), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex="col")


def _legend(figure: Any, axes: Any, columns: int = 4) -> None:
    handles: dict[str, Any] = {}
    for ax in axes.flat:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=min(columns, len(handles)), frameon=False, fontsize=8
    )


def _style_axes(ax: Any) -> None:
    ax.grid(alpha=0.25, linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def draw_thresholds(rows: Rows) -> Any:
    """Scores (:data:`THRESHOLD_SCORES`, from top to bottom) against the threshold, a column per dataset."""
    names, shown = _unique(rows, "dataset"), {name: text for name, text in THRESHOLD_SCORES.items() if name in rows[0]}
    figure, axes = _subplots(len(shown), len(names))
    for column, dataset in enumerate(names):
        for row, score in enumerate(shown):
            ax = axes[row][column]
            for number, method in enumerate(_unique(rows, "method")):
                points = [r for r in rows if r["dataset"] == dataset and r["method"] == method]
                style = _line_style(number)
                ax.plot([r["threshold"] for r in points], [r[score] for r in points], label=method, **style)
            ax.set_ylim(-4, 104)
            _style_axes(ax)
        axes[0][column].set_title(dataset, fontsize=9)
        axes[-1][column].set_xlabel("threshold", fontsize=8)
    for row, text in enumerate(shown.values()):
        axes[row][0].set_ylabel(text, fontsize=8)
    _legend(figure, axes)
    return figure


def draw_setting(rows: Rows) -> Any:
    """Scores against the setting, a line each; a column per dataset, a row per method."""
    names, methods = _unique(rows, "dataset"), _unique(rows, "method")
    figure, axes = _subplots(len(methods), len(names), height=2.3)
    for across, dataset in enumerate(names):
        for down, method in enumerate(methods):
            ax = axes[down][across]
            here = [r for r in rows if r["dataset"] == dataset and r["method"] == method]
            for number, column in enumerate(_unique(rows, "column")):
                points = sorted((r["value"], r["mean"]) for r in here if r["column"] == column)
                if points:
                    ax.plot(*zip(*points, strict=True), label=f"{column_title(column)} (%)", **_line_style(number))
            ax.set(xscale="log", ylim=(-4, 104))
            ax.set_xlabel(here[0]["setting"] if here else "", fontsize=8)
            _style_axes(ax)
            ax.set_title(f"{dataset}\n{method}", fontsize=8)
    _legend(figure, axes)
    return figure


def draw_split(rows: Rows) -> Any:
    """Heat maps over P01 and P10; a column per dataset, a row per score."""
    names, shown = _unique(rows, "dataset"), _unique(rows, "column")
    figure, axes = _subplots(len(shown), len(names), height=1.9)
    for across, dataset in enumerate(names):
        for down, column in enumerate(shown):
            ax = axes[down][across]
            here = {tuple(r["value"][1:]): r["mean"] for r in rows if r["dataset"] == dataset and r["column"] == column}
            first, second = (sorted({key[place] for key in here}) for place in (0, 1))
            grid = [[here.get((x, y), float("nan")) for x in first] for y in second]
            ax.imshow(grid, vmin=0, vmax=100, cmap="cividis", origin="lower", aspect="auto")
            for y, line in enumerate(grid):
                for x, value in enumerate(line):
                    ax.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=6, color="w" if value < 60 else "k")
            ax.set_xticks(range(len(first)), [f"{v:g}" for v in first], fontsize=7)
            ax.set_yticks(range(len(second)), [f"{v:g}" for v in second], fontsize=7)
            ax.set_title(f"{dataset}: {column_title(column)} (%)", fontsize=8)
        axes[-1][across].set_xlabel("P01 (features kept)", fontsize=8)
    for down in range(len(shown)):
        axes[down][0].set_ylabel("P10 (edges kept)", fontsize=8)
    return figure


def draw_cost(rows: Rows) -> Any:
    """PNS bound against seconds, a panel per dataset; methods of the Pareto front are numbered and named below it."""
    names = _unique(rows, "dataset")
    across = min(3, len(names))
    figure, axes = _subplots(-(-len(names) // across), across, width=3.4, height=3.2)
    for place, dataset in enumerate(names):
        ax = axes[place // across][place % across]
        here = sorted((r for r in rows if r["dataset"] == dataset), key=lambda r: (r["seconds"], r["hard.pns"]))
        front = [r for r in here if r["front"]]
        numbered = [r for r in here if r["front"] or r["method"] == OURS]
        others = [(r["seconds"], r["hard.pns"]) for r in here if r not in numbered]
        if others:
            ax.plot(*zip(*others, strict=True), "o", color="0.72", markersize=4)
        steps = [(r["seconds"], r["hard.pns"]) for r in front]
        ax.plot(*zip(*steps, strict=True), color="0.6", linewidth=1, zorder=1, drawstyle="steps-post")
        for number, row in enumerate(numbered, 1):
            colour = COLOURS[1] if row["method"] == OURS else COLOURS[0]
            ax.plot(row["seconds"], row["hard.pns"], "o", color=colour, markersize=11)
            ax.annotate(str(number), (row["seconds"], row["hard.pns"]), color="w", fontsize=7, ha="center", va="center")
        unbroken = [f"{number} {row['method']}".replace(" ", "\u00a0") for number, row in enumerate(numbered, 1)]
        ax.set(xscale="log", ylim=(-6, 108))
        _label_seconds(ax)
        ax.set_title(dataset, fontsize=9)
        ax.set_xlabel("seconds per instance\n" + textwrap.fill("   ".join(unbroken), 50, break_on_hyphens=False), fontsize=8)
        ax.set_ylabel("mean PNS bound, hard (%)", fontsize=8)
        ax.tick_params(labelbottom=True)
        _style_axes(ax)
    for place in range(len(names), axes.size):
        axes.flat[place].set_visible(False)
    return figure


def _label_seconds(ax: Any) -> None:
    """Plain numbers at 1, 2 and 5 of each decade: labels of powers overlap where an axis spans less than one."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())


def _unique(rows: Rows, column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def _line_style(number: int) -> dict[str, Any]:
    """Colour, line and marker: each alone tells most lines apart, so that a print without colour can be read."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": ("-", "--", ":", "-.")[(number // 2) % 4],
        "linewidth": 1.3,
        "markersize": 4,
    }


FIGURES: dict[str, tuple[Callable[[StudyFolder, str], Rows], Callable[[Rows], Any]]] = {
    "thresholds": (threshold_rows, draw_thresholds),
    "setting": (setting_rows, draw_setting),
    "split": (setting_rows, draw_split),
    "cost": (cost_rows, draw_cost),
}
"""For each kind of figure: the function that computes its table, and the function that draws it."""


def save_figure(figure: Any, stem: str, folder: Any, commit: str = "") -> Sequence[str]:
    """Write a figure as PDF, SVG and PNG, with the commit that made its numbers, and return the file names."""
    # without dates, so that equal runs write equal files
    made = f"commit {commit}" if commit else None
    metadata: dict[str, dict[str, str | None]] = {
        "pdf": {"CreationDate": None, "Subject": made},
        "svg": {"Date": None, "Description": made},
        "png": {},
    }
    for kind, facts in metadata.items():
        replace_file(folder / f"{stem}.{kind}", partial(figure.savefig, format=kind, dpi=DPI, metadata=facts))
    replace_file(folder / f"{stem}.png", lambda p: use_palette(folder / f"{stem}.png", p, made))
    return [f"{stem}.{kind}" for kind in metadata]


def use_palette(source: Any, target: Any, comment: str | None = None) -> None:
    """Write a PNG file with a palette instead of full colours, which makes it a quarter as large."""
    from PIL import Image, PngImagePlugin  # matplotlib needs it too

    text = PngImagePlugin.PngInfo()
    if comment:
        text.add_text("Comment", comment)
    with Image.open(source) as picture:
        picture.convert("RGB").quantize(PALETTE).save(target, "png", optimize=True, pnginfo=text)
