"""Rival explainers, each on the same engine."""

from nseg.baselines.catalogue import CATALOGUE, find, make

__all__ = ["CATALOGUE", "find", "make"]
