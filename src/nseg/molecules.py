"""Chemical elements, and molecules as RDKit reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

ELEMENTS = frozenset(
    re.findall(
        "[A-Z][a-z]?",
        "HHeLiBeBCNOFNeNaMgAlSiPSClArKCaScTiVCrMnFeCoNiCuZnGaGeAsSeBrKrRbSrYZrNbMoTcRuRhPdAgCdInSnSbTeIXe"
        "CsBaLaCePrNdPmSmEuGdTbDyHoErTmYbLuHfTaWReOsIrPtAuHgTlPbBiPoAtRnFrRaAcThPaU",
    )
)
"""Symbols of the chemical elements."""

ATOM_NAME = re.compile(r"([A-Z][a-z]?)(\d*)(\+\d?|-\d?)?")
"""An atom's name: element, number and charge, such as ``"C"``, ``"C12"``, ``"N+"`` or ``"O1-"``."""


class Molecule(NamedTuple):
    """What RDKit reads: atoms in their order, and bond orders by pair of atoms."""

    symbols: list[str]
    charges: list[int]
    hydrogens: list[int]
    bonds: dict[tuple[int, int], float]


def given_molecule(source: Any) -> Any:
    """RDKit's molecule or the SMILES of a graph or an explanation, its ``rdmol`` or ``smiles``; None if it has neither."""
    for name in ("rdmol", "smiles"):
        found = getattr(source, name, None)
        found = found[0] if isinstance(found, list | tuple) and len(found) == 1 else found
        if isinstance(found, str) or hasattr(found, "GetAtoms"):
            return found
    return None


def read_molecule(given: Any) -> list[Molecule]:
    """A molecule as it is, and with all its hydrogen atoms; none if RDKit cannot read it. Raises without RDKit."""
    return _read_smiles(given) if isinstance(given, str) else _variants(given)


def atoms_of(graph: Any) -> tuple[str, ...]:
    """Chemical element of each node of a graph that has SMILES or RDKit's molecule; none if they cannot be told."""
    given = given_molecule(graph)
    try:
        variants = [] if given is None else read_molecule(given)
    except ImportError:
        return ()
    return next((tuple(one.symbols) for one in variants if len(one.symbols) == graph.num_nodes), ())


def are_atoms(names: Iterable[str]) -> bool:
    """Whether all names are chemical elements; with numbers only if there are several elements.

    >>> are_atoms(["C", "N+", "O"]), are_atoms(["C1", "C2"]), are_atoms(["C1", "N2"]), are_atoms(["tx-1"]), are_atoms([])
    (True, False, True, False, False)
    """
    seen, numbered = set(), False
    for name in names:
        found = ATOM_NAME.fullmatch(name)
        if found is None or found[1] not in ELEMENTS:
            return False
        seen.add(found[1])
        numbered |= bool(found[2])
    return len(seen) > numbered


@lru_cache(maxsize=4096)
def _read_smiles(text: str) -> list[Molecule]:
    from rdkit import Chem
    from rdkit.rdBase import BlockLogs

    with BlockLogs():
        found = Chem.MolFromSmiles(text)
    return [] if found is None else _variants(found)


def _variants(molecule: Any) -> list[Molecule]:
    from rdkit import Chem

    return [_plain(one) for one in (molecule, Chem.AddHs(molecule))]


def _plain(molecule: Any) -> Molecule:
    from rdkit import Chem

    drawn = Chem.Mol(molecule)
    Chem.Kekulize(drawn, clearAromaticFlags=True)  # chemists draw alternating double bonds
    atoms = list(drawn.GetAtoms())
    ends = {(b.GetBeginAtomIdx(), b.GetEndAtomIdx()): float(b.GetBondTypeAsDouble()) for b in drawn.GetBonds()}
    return Molecule(
        [atom.GetSymbol() for atom in atoms],
        [atom.GetFormalCharge() for atom in atoms],
        [atom.GetTotalNumHs() for atom in atoms],
        ends | {(b, a): order for (a, b), order in ends.items()},
    )
