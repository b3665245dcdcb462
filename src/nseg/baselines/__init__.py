"""Rivals under the same contract, one file each."""
