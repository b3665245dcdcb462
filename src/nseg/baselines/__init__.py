"""Other explanation methods, each on the same engine as NSEG.

Public: ``CATALOGUE``, ``find``, ``make``. Each method's module is imported when the method is asked for.
"""

from nseg.baselines.catalogue import CATALOGUE, find, make

__all__ = ["CATALOGUE", "find", "make"]
