"""Where work is done: in this process, in processes of this machine, or on a Ray cluster."""

from nseg.backends.base import Backend
from nseg.backends.catalogue import NAMES, hired, make
from nseg.backends.local import Local
from nseg.backends.processes import Processes
from nseg.backends.ray import Ray

__all__ = ["NAMES", "Backend", "Local", "Processes", "Ray", "hired", "make"]
