"""Backends: where work runs. In this process, in processes of this machine, or on a Ray cluster.

Public names are imported on first use. ``catalogue`` imports without torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.backends.base import Backend
    from nseg.backends.catalogue import NAMES, hired, make
    from nseg.backends.local import Local
    from nseg.backends.processes import Processes
    from nseg.backends.ray import Ray
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.backends.base": ["Backend"],
            "nseg.backends.catalogue": ["NAMES", "hired", "make"],
            "nseg.backends.local": ["Local"],
            "nseg.backends.processes": ["Processes"],
            "nseg.backends.ray": ["Ray"],
        },
    )

__all__ = ["NAMES", "Backend", "Local", "Processes", "Ray", "hired", "make"]
