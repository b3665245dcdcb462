"""Unit, better direction and meaning of every metric, as plain data; imports without torch."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Metric(NamedTuple):
    """How to read the numbers of a metric.

    Args:
        unit: of the numbers.
        better: the direction that is better.
        description: one line.
    """

    unit: str
    better: Literal["higher", "lower"]
    description: str


CATALOGUE = {
    "charact": Metric("share", "higher", "Harmonic mean of Fid+ and 1 - Fid-"),
    "connectedness": Metric("share of edges", "higher", "Share of the kept edges in their largest connected component"),
    "distant_stability": Metric(
        "Jaccard index", "higher", "Stability under edges removed and added far from the explanation, where the class stays"
    ),
    "entropy": Metric("nats", "lower", "Mean entropy of a mask"),
    "f1": Metric("share", "higher", "Harmonic mean of precision and recall against ground truth"),
    "f_fidelity": Metric(
        "share of instances", "higher", "Robust Fid+, Fid- and charact of a copy fine-tuned on randomly thinned graphs"
    ),
    "fid_minus": Metric(
        "share of instances", "lower", "Share of instances whose class changes when only the explanation is kept"
    ),
    "fid_minus_probability": Metric(
        "probability", "lower", "Mean drop of the class probability when only the explanation is kept"
    ),
    "fid_plus": Metric(
        "share of instances", "higher", "Share of instances whose class changes when the explanation is left out"
    ),
    "fid_plus_probability": Metric(
        "probability", "higher", "Mean drop of the class probability when the explanation is left out"
    ),
    "jaccard": Metric("share", "higher", "Intersection over union with ground truth (graph explanation accuracy)"),
    "method_agreement": Metric("Jaccard index", "higher", "Mean overlap of hard masks of two methods"),
    "necessity_at_budget": Metric(
        "share of instances", "higher", "Share of instances whose class changes when a fixed number of edges is taken away"
    ),
    "perturbed_stability": Metric(
        "Jaccard index", "higher", "Stability under small Gaussian noise on the features, where the class stays"
    ),
    "precision": Metric("share of what is kept", "higher", "Share of the kept elements that is ground truth"),
    "recall_at_k": Metric("share of ground truth", "higher", "Share of the ground truth among the k highest scores"),
    "retraining_drop": Metric(
        "accuracy", "higher", "Accuracy lost by a network trained anew without the highest share of each explanation"
    ),
    "roc_auc": Metric("area", "higher", "Probability that an element of the ground truth scores above another element"),
    "size": Metric("elements", "lower", "Sum of a mask"),
    "sparsity": Metric("share of elements", "higher", "Share of the elements that is left out"),
    "stability": Metric("Jaccard index", "higher", "Mean overlap of hard masks between runs, e.g. with several seeds"),
    "unfaithfulness": Metric("share", "lower", "Divergence of the prediction when only the explanation is kept"),
}
"""All metrics that score an explanation."""
