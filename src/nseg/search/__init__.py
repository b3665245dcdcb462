"""From masks to answers: what is searched, what it is worth, and how the best is found.

- ``settings``: frozen settings of all explainers and of NSEG (imports no torch).
- ``catalogue``: names of objectives and surrogates (imports no torch).
- ``parts``: named parts of a mask (edges, nodes, features) and their elements.
- ``formulas``: the paper's equations, one function each.
- ``objective``: what is climbed, compared and valid, one class per objective.
- ``complement``: laws of the complement; ``noise``: reproducible random numbers; ``sampling``: samples of a law.
- ``worlds``: the one place that turns masks and a law into worlds and asks the model.
- ``descent``: Adam on a batch, for any method; ``climb``: Algorithm 1 of the paper.
- ``subsets``, ``prefix``, ``moves``, ``enumeration``, ``harden``: hard explanations.

May import model, graphs, storage and errors. Only this room knows both what a world gives and what that is worth.
"""
