"""The paper's networks, their training, and weights that this project trained."""

from nseg.models.nets import ARCHITECTURES, GCN, GIN, build
from nseg.models.training import Recipe, Trained, recipe, train
from nseg.models.weights import manifest, pretrained, read_weights

__all__ = [
    "ARCHITECTURES",
    "GCN",
    "GIN",
    "Recipe",
    "Trained",
    "build",
    "manifest",
    "pretrained",
    "read_weights",
    "recipe",
    "train",
]
