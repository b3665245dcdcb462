"""Bytes on disk: files written atomically, and hashes of content.

May be imported by every room. May import :mod:`nseg.errors` only.

- ``files``: folders, atomic writes, JSON.
- ``hashing``: :func:`~nseg.storage.hashing.digest`, the one content hash of the package.
"""
