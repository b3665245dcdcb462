"""Names and colour groups of nodes: from the caller, the dataset, or the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.errors import InputError
from nseg.explanation import explained_targets
from nseg.names import Names, resolve_names
from nseg.plot.atoms import Atoms
from nseg.plot.explained_graph import ExplainedGraph, explained_class, target_nodes


class NodeLabels(NamedTuple):
    """Names and groups of the N nodes of an explained graph.

    Args:
        names: names of the caller's graph, each node's own.
        shown: what is written at each node, ``""`` for nothing, [N].
        group: position of each node's group in ``group_names``, -1 for none, [N].
        group_names: what the groups (colours) stand for.
        kind: what a group is: ``"kind"`` or ``"type"`` of node, ``"true"`` or ``"predicted"`` class, or ``"given"`` by the
            caller.
    """

    names: Names
    shown: list[str]
    group: list[int]
    group_names: tuple[str, ...]
    kind: str

    def class_name(self, number: int) -> str:
        """Name of a class, ``"class 3"`` if it has none, ``""`` if the class is unknown (-1)."""
        return self.names.class_name(number)


def names_of(graph: ExplainedGraph, given: Mapping[str, Any]) -> Names:
    """Names of the caller's graph: given ones, else those of the data, else those that the explanation carries.

    Args:
        graph: the explained graph.
        given: by argument name, as :func:`nseg.names.resolve_names` takes them.
    """
    given = {name: value for name, value in given.items() if value is not None}
    named = resolve_names(graph.named, **given) if graph.dataset is None else graph.dataset.names(**given)
    return fill_names(named.graph(graph.output_id if named.several else 0), graph.explanation)


def fill_names(names: Names, explanation: Explanation) -> Names:
    """Names, with those that an explanation carries where there are none."""
    own: Names | None = explanation.get("names")
    if not isinstance(own, Names):
        return names
    missing = {
        one.name: labels for one in fields(Names) if not getattr(names, one.name) and (labels := getattr(own, one.name))
    }
    return replace(names, **missing) if missing else names


def node_labels(
    graph: ExplainedGraph, names: Names, classes: Tensor | Sequence[int] | None, atoms: Atoms | None, kind: str = "given"
) -> NodeLabels:
    """Names and groups of nodes: groups are the dataset's node kinds if it has any, otherwise classes.

    Args:
        graph: the explained graph.
        names: names of the caller's graph.
        classes: classes of all nodes of the caller's graph, if the caller gives them.
        atoms: the atoms, if the graph is a molecule.
        kind: what the given classes are.
    """
    ids, dataset = graph.node_id.tolist(), graph.dataset
    for argument, given in (("names", names.nodes), ("classes", classes)):
        if given is not None and len(given) and not isinstance(given, Mapping) and ids and max(ids) >= len(given):
            raise InputError(
                f"{argument} must have an entry for every node of the graph (got {len(given)} entries, and node {max(ids)})."
            )
    shown = [names.shown(n) if names.has_nodes else "" for n in ids]
    if names.types is not None and classes is None:
        return NodeLabels(names, shown, [names.types.type_of_node(n) for n in ids], names.types.node_types, "type")
    if graph.whole_graph is not None and dataset is not None and dataset.node_names and classes is None:
        kinds = graph.whole_graph.x[graph.node_id].argmax(-1).tolist()  # e.g. the chemical element of each atom
        return NodeLabels(names, shown, kinds, dataset.node_names, "kind")
    group, kind = _node_classes(graph, classes, kind)
    known = max(names.classes, default=-1) if isinstance(names.classes, Mapping) else len(names.classes) - 1
    number_of_groups = max([known, *group]) + 1
    return NodeLabels(names, shown, group, tuple(map(names.class_name, range(number_of_groups))), kind)


def _node_classes(graph: ExplainedGraph, given: Tensor | Sequence[int] | None, kind: str) -> tuple[list[int], str]:
    """Class of each node, -1 for unknown, and what it is: given by the caller, else true, else predicted.

    On a cut-out computation graph, the model's output is correct for the explained node only.
    """
    explanation, y = graph.explanation, None if graph.whole_graph is None else graph.whole_graph.get("y")
    if given is not None:
        known = torch.as_tensor(given).cpu()[graph.node_id]
    elif graph.level == "node" and y is not None and y.dim() == 1 and not y.is_floating_point():
        known, kind = y.cpu()[graph.node_id], "true"
    elif graph.level == "node" and explanation.get("node_id") is None and explanation.get("target") is not None:
        known, kind = explained_targets(explanation).cpu(), "predicted"
    else:
        known, kind = torch.full((graph.num_nodes,), -1), "predicted"
        if graph.level == "node":
            known[target_nodes(graph)] = explained_class(graph)
    if known.is_floating_point():  # values of a regression are no classes
        known = torch.full((graph.num_nodes,), -1)
    classes: list[int] = known.tolist()
    return classes, kind
