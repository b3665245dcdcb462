"""Bytes on disk: files written atomically, locks, and hashes of content.

May be imported by every room. May import :mod:`nseg.errors` only.

- ``files``: folders, atomic writes, JSON.
- ``locks``: locks that end with their process.
- ``callables``: what functions and classes consist of.
- ``hashing``: :func:`~nseg.storage.hashing.digest`, the one content hash of the package.
"""
