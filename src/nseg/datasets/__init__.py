"""Datasets: the six datasets of the paper, with the explained instances and their ground truth, and a regression.

Here: what a dataset is (``base``), generated graphs (``synthetic``), molecules and images (``tu``), solubilities
(``esol``), a heterogeneous graph of authors, papers and conferences (``dblp``), and datasets by name (``catalogue``).
Names are imported on first use; ``names`` imports no torch.
Import from here: ``load``, ``NAMES``, ``HETERO_NAMES``, ``Benchmark``, ``Truth``.
May import: ``nseg.errors``. Datasets know nothing about models or explanations.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.datasets.base import Benchmark, Truth
    from nseg.datasets.catalogue import load
    from nseg.datasets.names import HETERO_NAMES, NAMES
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.datasets.base": ["Benchmark", "Truth"],
            "nseg.datasets.catalogue": ["load"],
            "nseg.datasets.names": ["HETERO_NAMES", "NAMES"],
        },
    )

__all__ = ["HETERO_NAMES", "NAMES", "Benchmark", "Truth", "load"]
