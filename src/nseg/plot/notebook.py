"""An explanation in a notebook: the picture, or its numbers as a table where there can be none."""

from __future__ import annotations

from html import escape

from torch_geometric.explain import Explanation

from nseg.errors import NsegError
from nseg.plot.draw import figure_svg
from nseg.plot.pictures import explanation, summary
from nseg.plot.scene import scene

MOST_EDGES = 1500
"""Edges drawn at most, so that a notebook stays small."""

NUMBERS = {"pns": "PNS", "pn": "PN", "ps": "PS", "p_factual": "p factual", "p_complement": "p complement"}


def html(one: Explanation) -> str:
    """An explanation as HTML; whatever comes from data is escaped."""
    try:
        shown = scene(one, most=MOST_EDGES)
        words = escape(f"{shown.title}. {summary(one, shown)}".replace("\n", ", "), quote=True)
        return f'<div role="img" aria-label="{words}">{figure_svg(explanation(one, most=MOST_EDGES))}</div>'
    except NsegError as error:  # no matplotlib, or no graph to draw on
        return _table(one, str(error))


def _table(one: Explanation, why: str) -> str:
    number = one.get("output_id")
    rows = {"output": "" if number is None else str(number)}
    rows |= {name: f"{float(one[key]):.3f}" for key, name in NUMBERS.items() if one.get(key) is not None}
    for key, name in (("hard_edge_mask", "edges kept"), ("hard_node_mask", "nodes kept")):
        if one.get(key) is not None:
            rows[name] = f"{int((one[key] > 0).sum())} of {one[key].numel()}"
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items() if value)
    return f"<table>{cells}<caption>Explanation. {escape(why)}</caption></table>"
