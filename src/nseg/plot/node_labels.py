"""Names and colour groups of nodes: from the caller, the dataset, or the classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nseg.errors import InputError
from nseg.explanation import explained_targets
from nseg.plot.explained_graph import ExplainedGraph, explained_class, target_nodes


class NodeLabels(NamedTuple):
    """Names and groups of the N nodes of an explained graph.

    Args:
        names: name of each node, ``""`` for none, [N].
        group: position of each node's group in ``group_names``, -1 for none, [N].
        group_names: what the groups (colours) stand for.
        class_names: names of the model's classes.
    """

    names: list[str]
    group: list[int]
    group_names: tuple[str, ...]
    class_names: tuple[str, ...]

    def class_name(self, number: int) -> str:
        """Name of a class, ``"class 3"`` if it has none, ``""`` if the class is unknown (-1)."""
        if number < 0:
            return ""
        return str(self.class_names[number]) if number < len(self.class_names) else f"class {number}"


def node_labels(
    graph: ExplainedGraph,
    names: Sequence[str] | None,
    classes: Tensor | Sequence[int] | None,
    class_names: Sequence[str] | None,
) -> NodeLabels:
    """Names and groups of nodes: groups are the dataset's node kinds if it has any, otherwise classes.

    Args:
        graph: the explained graph.
        names, classes, class_names: what the caller gave to :func:`nseg.plot.scene`.
    """
    ids, dataset = graph.node_id.tolist(), graph.dataset
    for argument, given in (("names", names), ("classes", classes)):
        if given is not None and ids and max(ids) >= len(given):
            raise InputError(
                f"{argument} must have an entry for every node of the graph (got {len(given)} entries, and node {max(ids)})."
            )
    if class_names is None:
        class_names = () if dataset is None else dataset.class_names
    kinds: list[int] | None = None  # e.g. the chemical element of each atom
    if graph.whole_graph is not None and dataset is not None and dataset.node_names:
        kinds = graph.whole_graph.x[graph.node_id].argmax(-1).tolist()
    shown_names = [""] * len(ids)
    if names is not None:
        shown_names = [str(names[n]) for n in ids]
    elif kinds is not None and dataset is not None:
        shown_names = [dataset.node_names[kind] for kind in kinds]
    if kinds is not None and classes is None and dataset is not None:
        return NodeLabels(shown_names, kinds, dataset.node_names, tuple(class_names))
    group = _node_classes(graph, classes)
    labels = NodeLabels(shown_names, group, (), tuple(class_names))
    number_of_groups = max([len(labels.class_names) - 1, *group]) + 1
    return labels._replace(group_names=tuple(map(labels.class_name, range(number_of_groups))))


def _node_classes(graph: ExplainedGraph, given: Tensor | Sequence[int] | None) -> list[int]:
    """Class of each node: given by the caller, else the true class, else the predicted class; -1 for unknown.

    On a cut-out computation graph, the model's output is correct for the explained node only.
    """
    explanation = graph.explanation
    if given is not None:
        known = torch.as_tensor(given).cpu()[graph.node_id]
    elif graph.level == "node" and graph.whole_graph is not None and graph.whole_graph.get("y") is not None:
        known = graph.whole_graph.y[graph.node_id]
    elif graph.level == "node" and explanation.get("node_id") is None and explanation.get("target") is not None:
        known = explained_targets(explanation).cpu()
    else:
        known = torch.full((graph.num_nodes,), -1)
        if graph.level == "node":
            known[target_nodes(graph)] = explained_class(graph)
    if known.is_floating_point():  # values of a regression are no classes
        known = torch.full((graph.num_nodes,), -1)
    classes: list[int] = known.tolist()
    return classes
