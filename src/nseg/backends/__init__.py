"""Backends: call one function on many items, in this process, in worker processes or on a Ray cluster.

Here: the interface (``base``), the three backends (``local``, ``processes``, ``ray``), how functions and results are sent
(``serialize``, ``worker``), and backends by name (``catalogue``).
Import from here: ``Backend``, ``Local``, ``Processes``, ``Ray``, ``NAMES``, ``make``, ``open_backend``.
May import: ``nseg.errors``. A backend knows nothing about graphs, models or explanations.
"""

from nseg.backends.base import Backend
from nseg.backends.catalogue import NAMES, hired, make
from nseg.backends.local import Local
from nseg.backends.processes import Processes
from nseg.backends.ray import Ray

__all__ = ["NAMES", "Backend", "Local", "Processes", "Ray", "hired", "make"]
