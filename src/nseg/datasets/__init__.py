"""Datasets: the six datasets of the paper, with the explained instances and their ground truth.

Here: what a dataset is (``base``), generated graphs (``synthetic``), molecules and images (``tu``), and datasets by name
(``catalogue``).
Import from here: ``load``, ``NAMES``, ``Benchmark``, ``Truth``.
May import: ``nseg.errors``. Datasets know nothing about models or explanations.
"""

from nseg.datasets.base import Benchmark, Truth
from nseg.datasets.catalogue import NAMES, load

__all__ = ["NAMES", "Benchmark", "Truth", "load"]
