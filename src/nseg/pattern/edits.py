"""Graphs changed for a test: a pattern taken out of a prediction's graph, or put into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nseg.graphs.inputs import ModelInputs, Role
from nseg.pattern.matching import Occurrence, cover_occurrences, occurrence_edges
from nseg.pattern.predictions import ExplainedPrediction
from nseg.pattern.typed_graph import Condition, Edge, TypedGraph

HYDROGEN, SINGLE = "H", "1"


# --- taking a pattern out ------------------------------------------------------------------------------------------------


def without_pattern(
    inputs: ModelInputs, one: ExplainedPrediction, host: TypedGraph, patterns: Sequence[TypedGraph], effort: int
) -> ModelInputs | None:
    """The graph without any occurrence of a pattern; None if there is none, or too many to find within the effort.

    Edges of occurrences are deleted, both directions. Features that meet a condition are set to 0, and so are all features
    of a single node without conditions.
    """
    edges: set[Edge] = set()
    features: set[tuple[int, int | None]] = set()
    for pattern in patterns:
        found = cover_occurrences(pattern, host, effort)
        if not found.places or not found.complete:
            return None
        edges |= found.edges
        for n, place in found.places:
            label, near = pattern.nodes[n], pattern.neighbours[n]
            features |= {(place, condition.feature) for condition in label.conditions}
            features |= {(place, None)} if not near and not label.conditions else set()
    x = inputs.x.clone() if features else inputs.x
    for node, feature in features:
        x[node, slice(None) if feature is None else feature] = 0
    return replace(delete_edges(inputs, one.edge_mask(edges)), x=x)


def delete_edges(inputs: ModelInputs, mask: Tensor) -> ModelInputs:
    """The graph without the edges of a mask."""
    keep = ~mask.to(inputs.edge_index.device)
    kwargs = {
        name: value[keep] if inputs.possible_roles(name)[0] is Role.EDGE else value for name, value in inputs.kwargs.items()
    }
    return replace(inputs, edge_index=inputs.edge_index[:, keep], kwargs=kwargs)


# --- putting a pattern in ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Graft:
    """A piece of an explained graph that can be copied into another graph.

    Args:
        inputs: the graph that it comes from.
        edges: numbers of its edges there, both directions.
        new: nodes that are copied.
        port: the node that becomes a node of the other graph; None for a piece that stays apart.
        port_kind: what that node must be; None for anything.
        bonds: for molecules, the number of single bonds that the port must have free.
        conditions: conditions that the port must meet, with values that do.
    """

    inputs: ModelInputs
    edges: Tensor
    new: tuple[int, ...]
    port: int | None
    port_kind: str | None = None
    bonds: int = 0
    conditions: Mapping[Condition, float] | None = None


def make_graft(
    one: ExplainedPrediction, inputs: ModelInputs, host: TypedGraph, pattern: TypedGraph, places: Occurrence
) -> Graft | None:
    """An occurrence of a pattern as a piece to copy; None if copying it would not make a valid graph.

    At node level the piece is tied to the explained node: by the paths to it, if it is not part of the pattern. At graph
    level the piece keeps one tie to its surroundings: the node where it is joined becomes a node of the other graph. A
    molecule must have exactly one such place.
    """
    edges = occurrence_edges(pattern, host, places)
    if one.level == "edge":
        return None
    if one.level == "node":
        port: int | None = min(one.targets)
        edges |= {edge for place in places for edge in _path(host, place)}
    else:
        port, tie = _joint(host, set(places), molecule=one.vocabulary.molecule)
        if port is None and (tie or one.vocabulary.molecule):
            return None
        edges |= tie
    nodes = {n for edge in edges for n in edge} | set(places)
    bonds = 0
    if one.vocabulary.molecule:
        orders = [host.edges[edge] for edge in edges if port in edge]
        if any(order != SINGLE for order in orders):
            return None
        bonds = len(orders)
    values = {
        condition: float(inputs.x[place, condition.feature])
        for label, place in zip(pattern.nodes, places, strict=True)
        if place == port
        for condition in label.conditions
    }
    kind = None if port is None else host.nodes[port].kind
    numbers = one.edge_mask(edges).nonzero().flatten()
    return Graft(inputs, numbers, tuple(sorted(nodes - {port})), port, kind, bonds, values)


def _path(host: TypedGraph, node: int) -> set[Edge]:
    """Edges of a shortest path from a node to the explained node."""
    found: set[Edge] = set()
    while host.nodes[node].hops > 0:
        nearer = min(n for n in host.neighbours[node] if host.nodes[n].hops == host.nodes[node].hops - 1)
        found |= {key for key in ((node, nearer), (nearer, node)) if key in host.edges}
        node = nearer
    return found


def _joint(host: TypedGraph, inside: set[int], molecule: bool) -> tuple[int | None, set[Edge]]:
    """The node where a piece is joined to its surroundings, and the edge to it if it is outside the piece."""
    outside = {n: sorted(host.neighbours[n] - inside) for n in sorted(inside)}
    joints = [n for n in outside if outside[n]]
    if not joints:
        return None, set()
    tie = {host.key(n, beyond) for n in joints for beyond in outside[n]}
    if len(tie) == 1 and not host.directed:
        (joint,) = joints
        return outside[joint][0], tie
    if molecule and len(joints) > 1:
        return None, tie
    return max(joints, key=lambda n: (len(outside[n]), -n)), set()


def plant(
    graft: Graft, inputs: ModelInputs, one: ExplainedPrediction, host: TypedGraph, generator: torch.Generator
) -> ModelInputs | None:
    """The graph with a copy of a piece in it; None if there is no valid place for it."""
    place: int | None = None
    if graft.port is not None:
        places = sorted(one.targets) if one.level == "node" else list(range(len(host.nodes)))
        places = [n for n in places if host.nodes[n].kind == graft.port_kind]
        if one.vocabulary.molecule:
            places = [n for n in places if len(_hydrogens(host, n)) >= graft.bonds]
        if not places:
            return None
        place = places[int(torch.randint(len(places), (), generator=generator))]
    changed = inputs
    if place is not None and graft.conditions:
        changed = replace(inputs, x=_with_values(inputs.x, place, graft.conditions))
    changed = _append(changed, graft, place)
    if place is not None and one.vocabulary.molecule:
        changed = delete_nodes(changed, _hydrogens(host, place)[: graft.bonds])
    return changed


def plant_rule(
    pattern: TypedGraph, values: Mapping[Condition, float], inputs: ModelInputs, host: TypedGraph, generator: torch.Generator
) -> ModelInputs | None:
    """The graph with a node that meets the conditions of a pattern of one node; None if no node is in its place.

    Args:
        pattern: one node with conditions.
        values: a value that meets each condition.
        inputs, host: the graph.
        generator: chooses among the nodes at the right distance from the target.
    """
    places = sorted(host.compatible(pattern.nodes[0]._replace(conditions=frozenset())))
    if not places or any(condition.relation == "!=" for condition in values):
        return None
    place = places[int(torch.randint(len(places), (), generator=generator))]
    return replace(inputs, x=_with_values(inputs.x, place, values))


def _with_values(x: Tensor, node: int, values: Mapping[Condition, float]) -> Tensor:
    x = x.clone()
    for condition, value in values.items():
        x[node, condition.feature] = value
    return x


def _hydrogens(host: TypedGraph, atom: int) -> list[int]:
    """Hydrogen atoms that are bonded to an atom only."""
    return sorted(n for n in host.neighbours[atom] if host.nodes[n].kind == HYDROGEN and len(host.neighbours[n]) == 1)


def _append(inputs: ModelInputs, graft: Graft, place: int | None) -> ModelInputs:
    """The graph with the nodes and edges of a piece."""
    position = {node: inputs.num_nodes + n for n, node in enumerate(graft.new)}
    if graft.port is not None and place is not None:
        position[graft.port] = place
    source, new = graft.inputs, torch.tensor(graft.new, dtype=torch.long)
    added = [[position[a], position[b]] for a, b in source.edge_index[:, graft.edges].T.tolist()]
    ends = torch.tensor(added, dtype=torch.long).view(-1, 2).T

    def longer(name: str) -> Any:
        value, role = inputs.kwargs[name], inputs.possible_roles(name)[0]
        if role is Role.BATCH:
            return torch.cat([value, value.new_zeros(len(new))])
        if role not in (Role.NODE, Role.EDGE):
            return value
        return torch.cat([value, source.kwargs[name][new if role is Role.NODE else graft.edges]])

    return replace(
        inputs,
        x=torch.cat([inputs.x, source.x[new]]),
        edge_index=torch.cat([inputs.edge_index, ends], 1),
        kwargs={name: longer(name) for name in inputs.kwargs},
    )


def delete_nodes(inputs: ModelInputs, nodes: Iterable[int]) -> ModelInputs:
    """The graph without some nodes and their edges."""
    keep = torch.ones(inputs.num_nodes, dtype=torch.bool)
    keep[list(nodes)] = False
    fewer = delete_edges(inputs, ~keep[inputs.edge_index].all(0))
    kwargs = {
        name: value[keep] if inputs.possible_roles(name)[0] in (Role.NODE, Role.BATCH) else value
        for name, value in fewer.kwargs.items()
    }
    number = torch.cumsum(keep, 0) - 1
    return replace(fewer, x=fewer.x[keep], edge_index=number[fewer.edge_index], kwargs=kwargs)
