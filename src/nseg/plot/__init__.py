"""Pictures of explanations: a scene says what is shown, matplotlib or RDKit draw it.

Lives here:

- ``scene``: the plain data of a picture (``Scene``, ``Node``, ``Edge``), made from ``explained_graph`` (facts about an
  explanation), ``node_labels`` (names and colour groups) and ``layout`` (positions).
- ``draw``, ``legend``, ``colours``: one scene in matplotlib. ``chemistry``, ``molecules``: one scene in RDKit.
- ``pictures``: the finished figures. ``worlds``: the probability of the class in each world. ``notebook``: HTML for Jupyter.

Import from here: the names in ``__all__``. The report also uses ``nseg.plot.scene``, explanations ``nseg.plot.notebook``.
May import: ``metrics``, ``datasets``, ``model``, ``graphs``, ``errors``; never the report, studies or the command line.
matplotlib and RDKit are optional (extra ``plot``) and imported only when something is drawn.
"""

from nseg.plot.draw import figure_svg
from nseg.plot.molecules import molecule
from nseg.plot.pictures import compare, explanation, predictions, worlds
from nseg.plot.scene import Edge, Node, Scene, scene
from nseg.plot.worlds import World, worlds_of

__all__ = [
    "Edge",
    "Node",
    "Scene",
    "World",
    "compare",
    "explanation",
    "figure_svg",
    "molecule",
    "predictions",
    "scene",
    "worlds",
    "worlds_of",
]
