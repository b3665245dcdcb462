"""HTML of an explanation for notebooks: a picture, or a table of its numbers if it cannot be drawn."""

from __future__ import annotations

from html import escape

from torch_geometric.explain import Explanation

from nseg.errors import NsegError
from nseg.plot.draw import figure_svg
from nseg.plot.pictures import explanation as draw_explanation
from nseg.plot.pictures import summary
from nseg.plot.scene import scene
from nseg.wording import bound_text, kept_parts, probability_text, share_words, size_words

MAX_EDGES = 1500
"""Maximum number of drawn edges, so that notebooks stay small."""

BOUNDS = {"pns": "PNS ≥", "pn": "PN ≥", "ps": "PS ≥"}
"""Lower bounds that the table shows, with their headings."""

PROBABILITIES = {"p_factual": "p factual", "p_complement": "p complement"}
"""Probabilities that the table shows, with their headings."""


def html(explanation: Explanation) -> str:
    """An explanation as HTML; all texts from data are escaped."""
    try:
        shown = scene(explanation, max_edges=MAX_EDGES)
        words = escape(f"{shown.title}. {summary(explanation, shown)}".replace("\n", ", "), quote=True)
        picture = figure_svg(draw_explanation(explanation, max_edges=MAX_EDGES))
        return f'<div role="img" aria-label="{words}">{picture}</div>'
    except NsegError as error:  # matplotlib is missing, or the explanation holds no graph
        return _table(explanation, str(error))


def _table(explanation: Explanation, reason: str) -> str:
    """The numbers of an explanation, with the reason why there is no picture."""
    output_id = explanation.get("output_id")
    rows = {"output": "" if output_id is None else str(output_id)}
    for texts, write in ((BOUNDS, bound_text), (PROBABILITIES, probability_text)):
        rows |= {name: write(float(explanation[k])) for k, name in texts.items() if explanation.get(k) is not None}
    # Without the graph, nobody knows how many edges and nodes there could be.
    write_size = size_words if explanation.get("edge_index") is None else share_words
    rows["kept"] = write_size(kept_parts(explanation))
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items() if value)
    return f"<table>{cells}<caption>Explanation. {escape(reason)}</caption></table>"
