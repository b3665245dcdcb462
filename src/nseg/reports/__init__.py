"""Explanations as one HTML page that needs nothing but a browser."""

from nseg.reports.page import report, writable

__all__ = ["report", "writable"]
