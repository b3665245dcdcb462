"""Pictures of explanations: a scene says what is shown, and matplotlib or RDKit draw it."""

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
