"""Is an explanation right? Functions of tensors, and functions that ask the model in batched passes.

Every metric carries ``unit`` and ``better`` ("higher", "lower", or None where neither is), which tables read.
"""

from nseg.metrics.scores import (
    area,
    bootstrap,
    charact,
    connectedness,
    entropy,
    f1,
    fid_minus,
    fid_minus_probability,
    fid_plus,
    fid_plus_probability,
    jaccard,
    precision,
    recall_at_k,
    roc_auc,
    size,
    sparsity,
    unfaithfulness,
)
from nseg.metrics.tables import Accuracy, accuracy, summarise, trivial
from nseg.metrics.worlds import Curve, Fidelity, Judge, Outcomes, perturbed_stability, stability

__all__ = [
    "Accuracy",
    "Curve",
    "Fidelity",
    "Judge",
    "Outcomes",
    "accuracy",
    "area",
    "bootstrap",
    "charact",
    "connectedness",
    "entropy",
    "f1",
    "fid_minus",
    "fid_minus_probability",
    "fid_plus",
    "fid_plus_probability",
    "jaccard",
    "perturbed_stability",
    "precision",
    "recall_at_k",
    "roc_auc",
    "size",
    "sparsity",
    "stability",
    "summarise",
    "trivial",
    "unfaithfulness",
]
