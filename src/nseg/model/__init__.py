"""The borrowed network: what it would say if edges or features were changed.

- ``borrow``: a model in evaluation mode, given back as it was.
- ``hooks``: PyG's public hooks, and what can be recorded with them.
- ``tracing``: which edge every message of a forward pass belongs to.
- ``outcomes``: what "the prediction" is, one class per kind of model.
- ``strategy``: how worlds are run; shortcuts, and the plain strategy they are verified against.
- ``causal``: :class:`~nseg.model.causal.CausalModel`, ``do(weights) -> p`` for a batch of instances.
- ``kernel``: passes over worlds of hard masks in C, compiled at first use; ``compiled`` says which passes.
- ``traced_graph``: one caller's graph, traced once; finds the fastest strategy that is exact.

May import graphs, storage and errors. Does not know what a world is worth: that is ``search``.
"""
