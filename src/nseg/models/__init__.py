"""Models: the networks of the paper, their training, and the weights that ship with the package.

Here: architectures (``nets``), training with the paper's hyper-parameters (``training``), and reading, checking and writing
weights (``weights``, ``pretrained/``).
Names are imported on first use; ``catalogue`` imports no torch.
Import from here: ``pretrained``, ``manifest``, ``read_weights``, ``train``, ``recipe``, ``Recipe``, ``Trained``, ``build``,
``ARCHITECTURES``, ``GCN``, ``GIN``; for heterogeneous graphs ``build_hetero``, ``HETERO_ARCHITECTURES``, ``HGT`` and
``HeteroSAGE``.
May import: ``nseg.datasets``, ``nseg.storage`` (hashing) and ``nseg.errors``. Models know nothing about explanations.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.models.catalogue import ARCHITECTURES, HETERO_ARCHITECTURES, manifest
    from nseg.models.hetero_nets import HGT, HeteroSAGE, build_hetero
    from nseg.models.nets import GCN, GIN, build
    from nseg.models.training import Recipe, Trained, recipe, train
    from nseg.models.weights import pretrained, read_weights
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.models.catalogue": ["ARCHITECTURES", "HETERO_ARCHITECTURES", "manifest"],
            "nseg.models.hetero_nets": ["HGT", "HeteroSAGE", "build_hetero"],
            "nseg.models.nets": ["GCN", "GIN", "build"],
            "nseg.models.training": ["Recipe", "Trained", "recipe", "train"],
            "nseg.models.weights": ["pretrained", "read_weights"],
        },
    )

__all__ = [
    "ARCHITECTURES",
    "GCN",
    "GIN",
    "HETERO_ARCHITECTURES",
    "HGT",
    "HeteroSAGE",
    "Recipe",
    "Trained",
    "build",
    "build_hetero",
    "manifest",
    "pretrained",
    "read_weights",
    "recipe",
    "train",
]
