"""Other explanation methods, each on the same engine as NSEG: one file per method or family of methods.

- ``catalogue``: all methods by name, NSEG included (imports no torch).
- ``gnnexplainer``, ``cf_gnnexplainer``, ``cf2``: masks learnt per instance; ``mask_learning``: what they share.
- ``pgexplainer``: one network that predicts masks, trained over many instances.
- ``pgm_explainer``, ``gradients``, ``occlusion``, ``eig_search``: scores measured in the model.
- ``scores``: from measurements to scores.
- ``subgraphx``: connected subgraphs by tree search; ``pyg``: explainers that PyG ships.
- ``trivial``: random, everything, nothing, PageRank; ``exhaustive``: all subsets.

Import from here: ``CATALOGUE``, ``find``, ``make``. A method's module is imported when the method is asked for.
May import: explain, search, model, graphs, errors.
"""

from nseg.baselines.catalogue import CATALOGUE, find, make

__all__ = ["CATALOGUE", "find", "make"]
