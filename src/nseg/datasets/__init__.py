"""The six datasets of the paper: graphs, what is explained, and each instance's own ground truth."""

from nseg.datasets.base import Benchmark, Truth
from nseg.datasets.catalogue import NAMES, load

__all__ = ["NAMES", "Benchmark", "Truth", "load"]
