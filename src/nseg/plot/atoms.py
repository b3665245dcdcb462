"""Atoms and bonds of an explained molecule: from a dataset, from ``smiles`` or ``rdmol`` by RDKit, or from names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nseg.molecules import ATOM_NAME, Molecule, are_atoms, given_molecule, read_molecule
from nseg.names import Names
from nseg.plot.explained_graph import ExplainedGraph

MISSING_RDKIT = 'To see this as a molecule, install RDKit: pip install "nseg[plot]".'


class Atoms(NamedTuple):
    """Atoms and bonds of an explained graph with N nodes and E edges.

    Args:
        symbols: chemical element of each node, [N].
        charges: formal charge of each node, [N].
        hydrogens: number of hydrogen atoms at each node that are no nodes themselves, [N].
        orders: bond order of each edge, [E].
    """

    symbols: list[str]
    charges: list[int]
    hydrogens: list[int]
    orders: Tensor


def find_atoms(graph: ExplainedGraph, names: Names) -> tuple[Atoms | None, str]:
    """The atoms of an explained graph, None if it is no molecule; and a hint if it should be one but cannot be drawn so.

    Args:
        graph: the explained graph.
        names: names of its nodes; if all are chemical elements, the nodes are atoms.
    """
    if graph.dataset is not None:
        return _atoms_of_dataset(graph), ""
    given = given_molecule(graph.whole_graph) or given_molecule(graph.explanation)
    if given is not None:
        try:
            return _match(graph, read_molecule(given))
        except ImportError:
            return None, MISSING_RDKIT
    return _atoms_of_names(graph, names), ""


def missing_rdkit(graph: object) -> str:
    """A hint if a graph is a molecule that needs RDKit, which is not installed; ``""`` otherwise."""
    if given_molecule(graph) is None:
        return ""
    try:
        import rdkit  # noqa: F401 - only whether it is there
    except ImportError:
        return MISSING_RDKIT
    return ""


def _atoms_of_dataset(graph: ExplainedGraph) -> Atoms | None:
    dataset, whole = graph.dataset, graph.whole_graph
    if dataset is None or whole is None or not dataset.bonds or not dataset.node_names:
        return None
    kinds = whole.x[graph.node_id].argmax(-1).tolist()
    orders = torch.ones(graph.edge_id.numel())
    if whole.get("edge_attr") is not None:
        orders = torch.tensor(dataset.bonds)[whole.edge_attr[graph.edge_id].argmax(-1)]
    return Atoms([dataset.node_names[kind] for kind in kinds], [0] * len(kinds), [0] * len(kinds), orders)


def _match(graph: ExplainedGraph, variants: Sequence[Molecule]) -> tuple[Atoms | None, str]:
    """The atoms of the explained nodes, if the molecule has the nodes and edges of the graph."""
    if not variants:
        return None, "RDKit cannot read the SMILES of this graph, so it is drawn as a graph."
    whole = graph.whole_graph
    nodes = int(graph.node_id.max()) + 1 if whole is None else int(whole.num_nodes or 0)
    found = next((one for one in variants if len(one.symbols) == nodes), None)
    if found is None:
        atoms = len(variants[0].symbols)
        return None, f"The molecule has {atoms} atoms and the graph {nodes} nodes, so it is drawn as a graph."
    ends = graph.node_id[graph.edge_index].T.tolist()
    if any(a != b and (a, b) not in found.bonds for a, b in ends):
        return None, "The graph has edges that are no bonds of the molecule, so it is drawn as a graph."
    at = graph.node_id.tolist()
    orders = torch.tensor([found.bonds.get((a, b), 1.0) for a, b in ends])
    symbols, charges = [found.symbols[n] for n in at], [found.charges[n] for n in at]
    return Atoms(symbols, charges, [found.hydrogens[n] for n in at], orders), ""


def _atoms_of_names(graph: ExplainedGraph, names: Names) -> Atoms | None:
    """Atoms whose names are chemical elements; names with numbers count only if there are several elements."""
    labels = [names.shown(n) for n in graph.node_id.tolist()]
    if not names.nodes or not are_atoms(labels):
        return None
    parts = [found.groups() for found in map(ATOM_NAME.fullmatch, labels) if found is not None]
    charges = [0 if not sign else int(f"{sign[0]}{sign[1:] or 1}") for *_, sign in parts]
    return Atoms([symbol for symbol, *_ in parts], charges, [0] * len(parts), _orders_of_edges(graph))


def _orders_of_edges(graph: ExplainedGraph) -> Tensor:
    """Bond orders of a graph without SMILES: its ``bond_order``, one number per edge, otherwise 1."""
    whole = graph.whole_graph
    given = None if whole is None else whole.get("bond_order")
    if not isinstance(given, Tensor) or given.numel() != (0 if whole is None else whole.num_edges):
        return torch.ones(graph.edge_id.numel())
    return given.flatten().float()[graph.edge_id]
