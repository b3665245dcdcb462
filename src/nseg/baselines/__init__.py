"""Rival explainers, each on the same engine."""
