"""All methods by name, and explainers made from names; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nseg.errors import SettingsError

if TYPE_CHECKING:
    from nseg.explain.algorithm import BatchedAlgorithm


@dataclass(frozen=True)
class MethodEntry:
    """One method of the catalogue, described without importing it.

    Args:
        module: module of the method, below ``nseg``.
        name: name of its class.
        idea: what the method does, in one line.
        seeded: whether explanations depend on the seed.
    """

    module: str
    name: str
    idea: str
    seeded: bool = False

    def load(self) -> type[BatchedAlgorithm]:
        """Import the module and return the class."""
        found: type[BatchedAlgorithm] = getattr(import_module(f"nseg.{self.module}"), self.name)
        return found


CATALOGUE = {
    "nseg": MethodEntry(
        "explain.nseg", "NSEG", "what is both necessary and sufficient: maximises a lower bound of the PNS", seeded=True
    ),
    "random": MethodEntry("baselines.trivial", "Random", "random scores; the hard mask keeps a random half", seeded=True),
    "all": MethodEntry("baselines.trivial", "All", "everything"),
    "none": MethodEntry("baselines.trivial", "Nothing", "nothing"),
    "guided_bp": MethodEntry(
        "baselines.gradients", "GuidedBackprop", "gradient through paths that only raise the class score"
    ),
    "saliency": MethodEntry("baselines.gradients", "Saliency", "absolute gradient of the class score"),
    "integrated_gradients": MethodEntry(
        "baselines.gradients", "IntegratedGradients", "mean gradient along a path from the empty to the full mask"
    ),
    "grad_cam": MethodEntry(
        "baselines.gradients", "GradCAM", "hidden features of each node times the gradient of the class score"
    ),
    "occlusion": MethodEntry("baselines.occlusion", "Occlusion", "drop of p when one element is left out"),
    "eig_search": MethodEntry(
        "baselines.eig_search", "EiGSearch", "drop of log p when one element is left out, then the best prefix"
    ),
    "greedy_deletion": MethodEntry(
        "baselines.greedy", "GreedyDeletion", "elements taken away greedily until the class changes (necessity)"
    ),
    "subgraphx": MethodEntry(
        "baselines.subgraphx",
        "SubgraphX",
        "the connected subgraph with the highest Shapley value, by Monte-Carlo tree search",
        seeded=True,
    ),
    "pagerank": MethodEntry(
        "baselines.trivial", "PageRank", "PageRank from the target back along the messages; ignores the model"
    ),
    "attention": MethodEntry("baselines.pyg", "Attention", "the model's own attention coefficients; needs attention layers"),
    "captum": MethodEntry("baselines.pyg", "Captum", "attribution by Captum, Shapley values by default", seeded=True),
    "graphmask": MethodEntry(
        "baselines.pyg",
        "GraphMask",
        "gates that close messages which the prediction can do without",
        seeded=True,
    ),
    "gnnexplainer": MethodEntry(
        "baselines.gnnexplainer", "GNNExplainer", "the mask that keeps the prediction (sufficiency)", seeded=True
    ),
    "pgexplainer": MethodEntry(
        "baselines.pgexplainer", "PGExplainer", "a network, trained once, that predicts masks from embeddings", seeded=True
    ),
    "pgm_explainer": MethodEntry(
        "baselines.pgm_explainer",
        "PGMExplainer",
        "nodes whose random perturbation depends statistically on a change of the prediction",
        seeded=True,
    ),
    "cf_gnnexplainer": MethodEntry(
        "baselines.cf_gnnexplainer",
        "CFGNNExplainer",
        "the fewest edges whose removal changes the class (necessity)",
        seeded=True,
    ),
    "cf2": MethodEntry(
        "baselines.cf2", "CF2", "a small mask that keeps the class, and without which the class changes", seeded=True
    ),
    "exhaustive": MethodEntry("baselines.exhaustive", "Exhaustive", "the best of all subsets, for small instances"),
}
"""All methods, NSEG first."""


def check_name(name: str) -> None:
    """Raise unless a method of that name exists; the method is not imported."""
    if name not in CATALOGUE:
        raise SettingsError(f"There is no method of that name (got {name!r}). Known: {', '.join(CATALOGUE)}.")


def find(name: str) -> type[BatchedAlgorithm]:
    """Return the class of a method."""
    check_name(name)
    return CATALOGUE[name].load()


def make(name: str, dataset: str | None = None, **settings: Any) -> BatchedAlgorithm:
    """Make an explainer by name.

    Args:
        name: one of :data:`CATALOGUE`.
        dataset: use the paper's settings for this dataset, if the paper has any for the method.
        **settings: settings of the method; they override the paper's.

    >>> make("integrated_gradients", steps=50)
    IntegratedGradients(steps=50)
    """
    method = find(name)
    paper = getattr(method, "paper", None)
    found: BatchedAlgorithm = method(**settings) if dataset is None or paper is None else paper(dataset, **settings)
    return found
