"""The six datasets of the paper: graphs, the instances to explain, and the ground truth of each instance.

Public: ``load``, ``NAMES``, ``Benchmark``, ``Truth``; imported on first use. ``names`` imports without torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.datasets.base import Benchmark, Truth
    from nseg.datasets.catalogue import load
    from nseg.datasets.names import NAMES
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.datasets.base": ["Benchmark", "Truth"],
            "nseg.datasets.catalogue": ["load"],
            "nseg.datasets.names": ["NAMES"],
        },
    )

__all__ = ["NAMES", "Benchmark", "Truth", "load"]
