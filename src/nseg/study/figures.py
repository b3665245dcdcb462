"""Lines to figures: each is drawn from a small table of plain rows, which is kept beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from nseg.errors import InputError
from nseg.study.runs import Run
from nseg.study.summary import head, summary

Rows = list[dict[str, Any]]
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")  # Okabe and Ito
MARKERS = "osD^vPX*<>hd"


# --- numbers -----------------------------------------------------------------------------------------------------------


def threshold_rows(run: Run, name: str) -> Rows:
    """Fidelity of cut masks, mean over seeds: a row per dataset, method and threshold."""
    _, trials = run.study(name)
    groups: dict[tuple[str, str, float], Rows] = defaultdict(list)
    for key, trial in trials.items():
        record = run.record(key)
        curve = (record or {}).get("curves", {}).get("thresholds")
        if curve:
            for place, at in enumerate(curve["at"]):
                point = {k: 100 * curve[k][place] for k in ("fid_plus", "fid_minus", "charact", "sparsity")}
                groups[trial.dataset, trial.label, at].append(point)
    return [
        {"dataset": d, "method": m, "threshold": t, **{k: sum(p[k] for p in some) / len(some) for k in some[0]}}
        for (d, m, t), some in groups.items()
    ]


def setting_rows(run: Run, name: str) -> Rows:
    """Every column against the setting that a study varies: a row per dataset, method, value and column."""
    study, trials = run.study(name)
    grids = {m.label or m.name: [*study.grid, *m.grid] for m in study.methods}
    varied = {trial.label: trial.settings for trial in trials.values()}
    rows = []
    for line in summary(run, name):
        method = next(one for one in grids if line.label == one or line.label.startswith(f"{one} ("))
        if len(grids[method]) != 1:
            raise InputError(f"This figure needs a grid over one setting (got {grids[method]} of {method}).")
        setting = grids[method][0]
        point = {"setting": setting, "value": varied[line.label][setting]}
        rows.append({"dataset": line.dataset, "method": method, **point, "column": line.column, "mean": line.mean})
    return rows


def cost_rows(run: Run, name: str) -> Rows:
    """PNS of hard explanations against seconds: a row per dataset and method, with whether it is on the front."""
    found: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    full: dict[str, int] = defaultdict(int)
    for line in summary(run, name):
        row = found[line.dataset, line.label]
        row |= {"dataset": line.dataset, "method": line.label, line.column: line.mean, "instances": line.instances}
        full[line.dataset] = max(full[line.dataset], line.instances)
    rows = [row for row in found.values() if row["instances"] == full[row["dataset"]] and "hard.pns" in row]
    return [{**row, "front": on_front(row, [r for r in rows if r["dataset"] == row["dataset"]])} for row in rows]


def on_front(row: dict[str, Any], rows: Rows) -> bool:
    """Whether no other row is at least as good in both, and better in one.

    >>> slow, fast = {"seconds": 2.0, "hard.pns": 9.0}, {"seconds": 1.0, "hard.pns": 9.0}
    >>> on_front(slow, [slow, fast]), on_front(fast, [slow, fast])
    (False, True)
    """
    s, p = row["seconds"], row["hard.pns"]
    return not any(
        o["seconds"] <= s and o["hard.pns"] >= p and (o["seconds"] < s or o["hard.pns"] > p) for o in rows if o is not row
    )


# --- ink ---------------------------------------------------------------------------------------------------------------


def figure_class() -> Any:
    """Matplotlib's figure, or a sentence on how to get it."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError('Figures need matplotlib (it is not installed). Try: pip install "nseg[plot]".') from error
    return Figure


def _grid(rows: int, columns: int, width: float = 2.6, height: float = 2.0) -> tuple[Any, Any]:
    figure = figure_class()(figsize=(width * columns + 0.6, height * rows + 0.9), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharex="col")


def _legend(figure: Any, axes: Any, columns: int = 4) -> None:
    handles: dict[str, Any] = {}
    for ax in axes.flat:
        handles |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=min(columns, len(handles)), frameon=False, fontsize=8
    )


def _finish(ax: Any) -> None:
    ax.grid(alpha=0.25, linewidth=0.5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


def draw_thresholds(rows: Rows) -> Any:
    """A column per dataset; Fid+, Fid-, charact and sparsity below each other."""
    names, wanted = _names(rows, "dataset"), ("fid_plus", "fid_minus", "charact", "sparsity")
    figure, axes = _grid(len(wanted), len(names))
    for column, dataset in enumerate(names):
        for row, score in enumerate(wanted):
            ax = axes[row][column]
            for number, method in enumerate(_names(rows, "method")):
                some = [r for r in rows if r["dataset"] == dataset and r["method"] == method]
                style = _style(number)
                ax.plot([r["threshold"] for r in some], [r[score] for r in some], label=method, **style)
            ax.set_ylim(-4, 104)
            _finish(ax)
        axes[0][column].set_title(dataset, fontsize=9)
        axes[-1][column].set_xlabel("threshold", fontsize=8)
    for row, text in enumerate(("Fid+ (%), higher is better", "Fid- (%), lower", "charact (%), higher", "sparsity (%)")):
        axes[row][0].set_ylabel(text, fontsize=8)
    _legend(figure, axes)
    return figure


def draw_setting(rows: Rows) -> Any:
    """A column per dataset, a row per method; one line per score against the setting."""
    names, methods = _names(rows, "dataset"), _names(rows, "method")
    figure, axes = _grid(len(methods), len(names), height=2.3)
    for across, dataset in enumerate(names):
        for down, method in enumerate(methods):
            ax = axes[down][across]
            here = [r for r in rows if r["dataset"] == dataset and r["method"] == method]
            for number, column in enumerate(_names(rows, "column")):
                some = sorted((r["value"], r["mean"]) for r in here if r["column"] == column)
                ax.plot(*zip(*some, strict=True), label=f"{head(column)} (%)", **_style(number)) if some else None
            ax.set(xscale="log", ylim=(-4, 104))
            ax.set_xlabel(here[0]["setting"] if here else "", fontsize=8)
            _finish(ax)
            ax.set_title(f"{dataset}\n{method}", fontsize=8)
    _legend(figure, axes)
    return figure


def draw_split(rows: Rows) -> Any:
    """Heat maps over P01 and P10: a column per dataset, a row per score."""
    names, wanted = _names(rows, "dataset"), _names(rows, "column")
    figure, axes = _grid(len(wanted), len(names), height=1.9)
    for across, dataset in enumerate(names):
        for down, column in enumerate(wanted):
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
            ax.set_title(f"{dataset}: {head(column)} (%)", fontsize=8)
        axes[-1][across].set_xlabel("P01 (features kept)", fontsize=8)
    for down in range(len(wanted)):
        axes[down][0].set_ylabel("P10 (edges kept)", fontsize=8)
    return figure


def draw_cost(rows: Rows) -> Any:
    """PNS against seconds, one panel per dataset; what no other method betters in both is joined."""
    names, methods = _names(rows, "dataset"), _names(rows, "method")
    across = min(3, len(names))
    figure, axes = _grid(-(-len(names) // across), across, width=3.2, height=2.6)
    for place, dataset in enumerate(names):
        ax = axes[place // across][place % across]
        here = [r for r in rows if r["dataset"] == dataset]
        front = sorted((r["seconds"], r["hard.pns"]) for r in here if r["front"])
        ax.plot(*zip(*front, strict=True), color="0.6", linewidth=1, zorder=1, drawstyle="steps-post")
        for row in here:
            number = methods.index(row["method"])
            style = {**_style(number), "linestyle": "none", "markersize": 7 if row["front"] else 5}
            ax.plot(row["seconds"], row["hard.pns"], label=row["method"], alpha=1 if row["front"] else 0.55, **style)
        ax.set(xscale="log", ylim=(-4, 104))
        ax.set_title(dataset, fontsize=9)
        ax.set_xlabel("seconds per instance", fontsize=8)
        ax.set_ylabel("mean PNS bound, hard (%)", fontsize=8)
        _finish(ax)
    for place in range(len(names), axes.size):
        axes.flat[place].set_visible(False)
    _legend(figure, axes)
    return figure


def _names(rows: Rows, column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def _style(number: int) -> dict[str, Any]:
    """Colour, line and marker all differ, so that none is needed alone."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": ("-", "--", ":", "-.")[(number // 2) % 4],
        "linewidth": 1.3,
        "markersize": 4,
    }


FIGURES: dict[str, tuple[Callable[[Run, str], Rows], Callable[[Rows], Any]]] = {
    "thresholds": (threshold_rows, draw_thresholds),
    "setting": (setting_rows, draw_setting),
    "split": (setting_rows, draw_split),
    "cost": (cost_rows, draw_cost),
}
"""How each kind of figure gets its numbers, and how it is drawn."""


def save(figure: Any, stem: str, folder: Any) -> Sequence[str]:
    """Write a figure as PDF, SVG and PNG."""
    from nseg.store import replace_file

    names = [f"{stem}.{kind}" for kind in ("pdf", "svg", "png")]
    for name in names:
        kind = name.rpartition(".")[2]
        plain = (
            {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else {}
        )  # equal runs, equal files
        replace_file(folder / name, lambda p, k=kind, m=plain: figure.savefig(p, format=k, dpi=160, metadata=m))  # type: ignore[misc]
    return names
