"""Reports: explanations as one interactive HTML page that needs only a browser.

Lives here:

- ``page``: ``report``, its checks and the HTML. ``payload``: the JSON in the page, and the table of all instances.
- ``explained_data`` (graphs, names, true classes), ``method`` (one method's explanations), ``instance`` (one output) and
  ``answer`` (one method on one output) make that JSON; ``lines`` maps edges to drawn lines, ``ranking`` runs the model at
  each threshold. ``pattern_view`` shows patterns.
- ``web``: the page's TypeScript and CSS; ``bundle``: what ``make page`` builds from them; ``page.html``: the template.

Import from here: ``report`` and ``writable``.
May import: ``pattern``, ``plot``, ``metrics``, ``explain``, ``datasets``, ``model``, ``graphs``, ``errors``; never studies
or the command line. The room is called ``reports`` because ``nseg.report`` is a function.
"""

from nseg.reports.page import report, writable

__all__ = ["report", "writable"]
