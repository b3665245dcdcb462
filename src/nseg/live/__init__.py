"""The studio: a live page on which a person changes a graph and asks the model.

- ``edits``: changes of a graph; ``questions``: what the model says about it, why, and the smallest change
  (``plain_questions``, ``typed_questions``: of graphs without and with types); ``work``: how far an answer is.
- ``neighbourhood``: the part of a large graph that is asked about; ``subject``: what is shown.
- ``session``: saved sessions, replayed or shown as a page; ``server``: the ASGI application; ``launch``: starts it.
- The page is built from ``reports/web/studio/``.

Import from here: ``studio``, ``make_studio``, ``Studio``.
May import: ``reports`` (the built page), ``plot``, explain, datasets, model, graphs, ``wording``, ``names`` and errors. The
room is called ``live`` because ``nseg.studio`` is a function. Starlette and uvicorn are optional (extra ``studio``).
"""

from nseg.live.launch import Studio, make_studio, studio

__all__ = ["Studio", "make_studio", "studio"]
