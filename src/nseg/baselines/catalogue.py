"""Every method by name: where strings become explainers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from nseg.errors import SettingsError
from nseg.explain.algorithm import BatchedAlgorithm


@dataclass(frozen=True)
class Entry:
    """A method.

    Args:
        module: where it is, below ``nseg``; imported when it is asked for.
        name: of its class.
        idea: what it does, in a line.
        seeded: whether its explanations depend on the seed.
    """

    module: str
    name: str
    idea: str
    seeded: bool = False

    def load(self) -> type[BatchedAlgorithm]:
        """Its class."""
        found: type[BatchedAlgorithm] = getattr(import_module(f"nseg.{self.module}"), self.name)
        return found


CATALOGUE = {
    "nseg": Entry(
        "explainer", "NSEG", "what is both necessary and sufficient: climbs a lower bound of the PNS", seeded=True
    ),
    "random": Entry("baselines.trivial", "Random", "random scores; the hard mask keeps a random half", seeded=True),
    "all": Entry("baselines.trivial", "All", "everything"),
    "none": Entry("baselines.trivial", "Nothing", "nothing"),
    "guided_bp": Entry("baselines.gradients", "GuidedBackprop", "gradient along paths that only speak for the class"),
    "saliency": Entry("baselines.gradients", "Saliency", "size of the gradient of the class score"),
    "integrated_gradients": Entry(
        "baselines.gradients", "IntegratedGradients", "what each element adds on the way from nothing to everything"
    ),
    "grad_cam": Entry("baselines.gradients", "GradCAM", "nodes whose hidden features point to where the score rises"),
    "occlusion": Entry("baselines.occlusion", "Occlusion", "how far p falls when an element alone is taken away"),
    "pagerank": Entry("baselines.trivial", "PageRank", "what a walk back along the messages meets; ignores the model"),
    "gnnexplainer": Entry(
        "baselines.gnnexplainer", "GNNExplainer", "the mask that keeps the prediction (sufficiency)", seeded=True
    ),
    "pgexplainer": Entry(
        "baselines.pgexplainer", "PGExplainer", "a network, fitted once, that reads masks off embeddings", seeded=True
    ),
    "pgm_explainer": Entry(
        "baselines.pgm_explainer",
        "PGMExplainer",
        "nodes whose random perturbation goes with a change of the prediction",
        seeded=True,
    ),
    "cf_gnnexplainer": Entry(
        "baselines.cf_gnnexplainer",
        "CFGNNExplainer",
        "the fewest edges whose removal changes the class (necessity)",
        seeded=True,
    ),
    "cf2": Entry(
        "baselines.cf2", "CF2", "the smallest mask that is strong both factually and counterfactually", seeded=True
    ),
    "exhaustive": Entry("baselines.exhaustive", "Exhaustive", "the best of all subsets, where these can be counted"),
}
"""All methods, NSEG first."""


def find(name: str) -> type[BatchedAlgorithm]:
    """The class of a method."""
    if name not in CATALOGUE:
        raise SettingsError(f"There is no method of that name (got {name!r}). Known: {', '.join(CATALOGUE)}.")
    return CATALOGUE[name].load()


def make(name: str, dataset: str | None = None, **settings: Any) -> BatchedAlgorithm:
    """An explainer by name.

    Args:
        name: one of :data:`CATALOGUE`.
        dataset: take the paper's settings for this dataset, if the paper has any for the method.
        **settings: of the method; they go before the paper's.

    >>> make("integrated_gradients", steps=50)
    IntegratedGradients(steps=50)
    """
    method = find(name)
    paper = getattr(method, "paper", None)
    found: BatchedAlgorithm = method(**settings) if dataset is None or paper is None else paper(dataset, **settings)
    return found
