"""What is explained, and by which explainer, from the names on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from nseg import baselines, datasets, models
from nseg.cli.own import count_outputs, load_data, load_model
from nseg.errors import InputError
from nseg.events import MULTICLASS, Event
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.explainer import Explainer
from nseg.models.catalogue import choose_architecture


def _numbered(kinds: Sequence[str]) -> list[str]:
    """Kinds of nodes as distinct names, such as ``"C5"``."""
    return [f"{kind}{'' if kind[-1:].isalpha() else ' '}{number}" for number, kind in enumerate(kinds)]


UNTRAINED = (
    "Note: no --weights were given. Unless {} loads weights itself, the model is untrained, and this explains chance."
)


class Subject(NamedTuple):
    """A network, the graphs it predicts on, and which predictions to explain.

    Args:
        model: the network.
        config: ``model_config`` of PyG's ``Explainer``.
        graphs: one graph, or a list of graphs.
        outputs: indices of the predictions that are explained by default.
        origin: where network and graphs come from, for reports.
        benchmark: the dataset with its ground truth, if there is one.
        untrained: a note if nothing says that the model is trained.
    """

    model: nn.Module
    config: dict[str, str]
    graphs: Any
    outputs: list[int]
    origin: dict[str, str]
    benchmark: datasets.Benchmark | None = None
    untrained: str = ""

    @property
    def names(self) -> dict[str, Any]:
        """Names of a dataset, as :func:`nseg.explain_many` takes them; those of own graphs are on the graphs."""
        if self.benchmark is None:
            return {}
        found = dict(self.benchmark.names().given)
        kinds = found.pop("node_names", None)
        return found if kinds is None else {**found, "node_names": lambda graph: _numbered(kinds(graph))}


def load_subject(
    dataset: str | None,
    architecture: str | None,
    model: str | None,
    weights: Path | None,
    data: Path | None,
    level: str,
    event: Event | None = None,
) -> Subject:
    """Return what the options name: a dataset of the paper, or a user's own model and graphs.

    Args:
        dataset, architecture: of the paper.
        model, weights, data, level: of the user.
        event: what is asked, which says what the user's model predicts; None for the class.
    """
    if dataset is not None:
        return paper_subject(dataset, choose_architecture(architecture, dataset))
    assert model is not None
    assert data is not None
    return own_subject(model, weights, data, level, event)


def paper_subject(dataset: str, architecture: str) -> Subject:
    """Return a dataset of the paper with its pre-trained network."""
    data, model = datasets.load(dataset), models.pretrained(dataset, architecture)
    weights = models.manifest()[f"{dataset}/{architecture}"]["sha256"]
    origin = {"dataset": dataset, "architecture": architecture, "weights": weights}
    graphs = data.graphs if data.level == "graph" else data.graphs[0]
    return Subject(model, data.model_config, graphs, data.instances.tolist(), origin, data)


def own_subject(model: str, weights: Path | None, data: Path, level: str, event: Event | None = None) -> Subject:
    """Return a user's own model and graphs; a question that only numbers or labels answer says what the model predicts."""
    network, graphs = load_model(model, weights), load_data(data)
    mode = MULTICLASS if event is None else event.modes[0]
    config = {"mode": mode, "task_level": level, "return_type": "raw"}
    origin = {"model": model, "weights": str(weights), "data": str(data), "level": level}
    outputs = list(range(count_outputs(graphs, level)))
    return Subject(network, config, graphs, outputs, origin, untrained=UNTRAINED.format(model) if weights is None else "")


def make_explainer(model: nn.Module, config: dict[str, str], masks: str, algorithm: BatchedAlgorithm) -> Explainer:
    """Return an explainer of a model's own predictions.

    Args:
        model: the network.
        config: ``model_config`` of PyG's ``Explainer``.
        masks: ``e`` (edges), ``f`` (nodes), ``x`` (features of nodes), ``ef`` or ``ex``.
        algorithm: the explanation method.
    """
    return Explainer(
        model,
        algorithm,
        explanation_type="model",
        edge_mask_type="object" if "e" in masks else None,
        node_mask_type="object" if "f" in masks else "attributes" if "x" in masks else None,
        model_config=config,
    )


def make_algorithm(method: str, dataset: str | None, masks: str, objective: str | None, **settings: Any) -> BatchedAlgorithm:
    """Return a method by name, with the paper's settings for a dataset if one is given; settings of None are left out."""
    settings = {name: value for name, value in settings.items() if value is not None}
    if method == "nseg":
        joint = {} if dataset is None else {"masks": masks}  # the paper's settings differ between e and ef
        return baselines.make(method, dataset, objective=objective or "pns", **joint, **settings)
    if dataset is not None and not hasattr(baselines.find(method), "paper"):
        raise InputError(f"--paper needs a method that the paper has settings for (got {method}). Leave it out.")
    return baselines.make(method, dataset, **settings)
