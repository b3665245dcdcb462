"""Backends: call one function on many items, in this process, in worker processes or on a Ray cluster.

Here: the interface (``base``), the three backends (``local``, ``processes``, ``ray``), how functions and results are sent
(``serialize``, ``worker``), how workers start (``start``), and backends by name (``catalogue``).
Import from here: ``Backend``, ``Local``, ``Processes``, ``Ray``, ``NAMES``, ``make``, ``open_backend``.
Names are imported on first use; ``catalogue`` imports no torch.
May import: ``nseg.errors``. A backend knows nothing about graphs, models or explanations.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.backends.base import Backend
    from nseg.backends.catalogue import NAMES, make, open_backend
    from nseg.backends.local import Local
    from nseg.backends.processes import Processes
    from nseg.backends.ray import Ray
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.backends.base": ["Backend"],
            "nseg.backends.catalogue": ["NAMES", "open_backend", "make"],
            "nseg.backends.local": ["Local"],
            "nseg.backends.processes": ["Processes"],
            "nseg.backends.ray": ["Ray"],
        },
    )

__all__ = ["NAMES", "Backend", "Local", "Processes", "Ray", "make", "open_backend"]
