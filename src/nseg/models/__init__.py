"""Models: the networks of the paper, their training, and the weights that ship with the package.

Here: architectures (``nets``), training with the paper's hyper-parameters (``training``), and reading, checking and writing
weights (``weights``, ``pretrained/``).
Import from here: ``pretrained``, ``manifest``, ``read_weights``, ``train``, ``recipe``, ``Recipe``, ``Trained``, ``build``,
``ARCHITECTURES``, ``GCN``, ``GIN``.
May import: ``nseg.datasets``, ``nseg.storage`` (hashing) and ``nseg.errors``. Models know nothing about explanations.
"""

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
