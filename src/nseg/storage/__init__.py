"""Bytes on disk: files written atomically, and hashes of content.

May be imported by every room. Imports nothing but :mod:`nseg.errors`.

- ``files``: folders, atomic writes, JSON.
- ``hashing``: :func:`~nseg.storage.hashing.digest`, the one content hash of the package.
"""
