"""Graphs as the caller gives them, and as the engine needs them.

- ``inputs``: :class:`~nseg.graphs.inputs.ModelInputs`, the arguments of one model call, and the role of each argument.
- ``checks``: turns bad input into a sentence.
- ``batch``: :class:`~nseg.graphs.batch.InstanceBatch`, B instances packed into one disjoint union.
- ``subgraph``: the one cutter of subgraphs, for graphs in memory and on disk.
- ``large``: :class:`nseg.LargeGraph`, graphs of which the model only sees the parts around targets.

May import :mod:`nseg.errors` and :mod:`nseg.storage`. Knows nothing of models beyond their signature.
"""
