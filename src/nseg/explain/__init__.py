"""The doors: NSEG, the explainer, and many explanations at once.

- ``algorithm``: :class:`~nseg.explain.algorithm.BatchedAlgorithm`, the base of every method of this package.
- ``nseg``: :class:`nseg.NSEG`, with the paper's settings in ``presets`` (which imports no torch).
- ``explainer``: :class:`nseg.Explainer`, PyG's explainer with checks.
- ``many``: :func:`nseg.explain_many`; ``jobs``: how one graph, many graphs and large graphs are explained shard by shard.
- ``progress``: progress bars.

May import runs, backends, search, model, graphs, storage, errors and ``explanation``.
"""
