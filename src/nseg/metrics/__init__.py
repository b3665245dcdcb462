"""Metrics: is an explanation right, and what is it worth?

- ``scores``: functions of tensors, one formula each; ``catalogue``: their unit and better direction (imports no torch).
- ``evaluator``: explanations on their model again; ``fidelity``: Fid+, Fid-, bounds and curves; ``removal``: deleted edges.
- ``certification``, ``certificate``, ``intervals``: bounds under a law of the complement, with confidence intervals.
- ``ground_truth``: accuracy, means and trivial explanations; ``agreement``, ``distant``: stability.
- ``budget``: necessity if only so many edges go; ``retraining``: networks trained on changed graphs (F-Fidelity, GInX).

Import from here: the names in ``__all__``, which are imported on first use.
May import: datasets, explain, runs, search, model, graphs, storage, errors and ``explanation``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.metrics.agreement import method_agreement, perturbed_stability, stability
    from nseg.metrics.budget import necessity_at_budget
    from nseg.metrics.catalogue import CATALOGUE
    from nseg.metrics.certificate import Certificate
    from nseg.metrics.certification import certify
    from nseg.metrics.distant import distant_stability
    from nseg.metrics.fidelity import Curve, Evaluator, Fidelity, InstanceFidelity
    from nseg.metrics.ground_truth import Accuracy, accuracy, summarise, trivial
    from nseg.metrics.retraining import f_fidelity, retraining_drop
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
            "nseg.metrics.agreement": ["method_agreement", "perturbed_stability", "stability"],
            "nseg.metrics.budget": ["necessity_at_budget"],
            "nseg.metrics.certificate": ["Certificate"],
            "nseg.metrics.certification": ["certify"],
            "nseg.metrics.distant": ["distant_stability"],
            "nseg.metrics.fidelity": ["Curve", "Evaluator", "Fidelity", "InstanceFidelity"],
            "nseg.metrics.ground_truth": ["Accuracy", "accuracy", "summarise", "trivial"],
            "nseg.metrics.retraining": ["f_fidelity", "retraining_drop"],
        },
    )

__all__ = [
    "CATALOGUE",
    "Accuracy",
    "Certificate",
    "Curve",
    "Evaluator",
    "Fidelity",
    "InstanceFidelity",
    "accuracy",
    "area",
    "bootstrap",
    "certify",
    "charact",
    "connectedness",
    "distant_stability",
    "entropy",
    "f1",
    "f_fidelity",
    "fid_minus",
    "fid_minus_probability",
    "fid_plus",
    "fid_plus_probability",
    "jaccard",
    "method_agreement",
    "necessity_at_budget",
    "perturbed_stability",
    "precision",
    "recall_at_k",
    "retraining_drop",
    "roc_auc",
    "size",
    "sparsity",
    "stability",
    "summarise",
    "trivial",
    "unfaithfulness",
]
