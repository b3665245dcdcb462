"""The paper's networks, their training, and weights that this project trained.

Public names are imported on first use. ``catalogue`` imports without torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.models.catalogue import ARCHITECTURES, manifest
    from nseg.models.nets import GCN, GIN, build
    from nseg.models.training import Recipe, Trained, recipe, train
    from nseg.models.weights import pretrained, read_weights
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.models.catalogue": ["ARCHITECTURES", "manifest"],
            "nseg.models.nets": ["GCN", "GIN", "build"],
            "nseg.models.training": ["Recipe", "Trained", "recipe", "train"],
            "nseg.models.weights": ["pretrained", "read_weights"],
        },
    )

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
