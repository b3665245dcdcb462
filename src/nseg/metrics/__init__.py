"""Metrics of explanations: functions of tensors, and functions that query the model in batches.

Public names are imported on first use. ``CATALOGUE`` has the unit and the better direction of each metric, and imports
without torch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.metrics.catalogue import CATALOGUE
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
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.metrics.catalogue": ["CATALOGUE"],
            "nseg.metrics.scores": [
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
                "precision",
                "recall_at_k",
                "roc_auc",
                "size",
                "sparsity",
                "unfaithfulness",
            ],
            "nseg.metrics.tables": ["Accuracy", "accuracy", "summarise", "trivial"],
            "nseg.metrics.worlds": ["Curve", "Fidelity", "Judge", "Outcomes", "perturbed_stability", "stability"],
        },
    )

__all__ = [
    "CATALOGUE",
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
