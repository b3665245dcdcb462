"""RDKit molecules from atoms and bonds, and the positions that RDKit gives to atoms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

BOND_LENGTH = 1.5
"""Length of a bond in RDKit's coordinates."""


def coordinates(
    symbols: Sequence[str], pairs: Sequence[Sequence[int]], orders: Sequence[float]
) -> list[tuple[float, float]] | None:
    """Positions of atoms as chemists draw them; None without RDKit or with an unknown element.

    Args:
        symbols: chemical element of each atom.
        pairs: atoms that each bond joins.
        orders: order of each bond.
    """
    try:
        from rdkit.Chem import rdDepictor
    except ImportError:
        return None
    molecule = build_molecule(symbols, pairs, orders)
    if molecule is None:
        return None
    rdDepictor.Compute2DCoords(molecule, canonOrient=True)
    conformer = molecule.GetConformer()
    return [(p.x, p.y) for p in (conformer.GetAtomPosition(n) for n in range(len(symbols)))]


@cache
def atomic_numbers() -> dict[str, int]:
    """Atomic number of each chemical element, by symbol."""
    from rdkit import Chem

    return {Chem.GetPeriodicTable().GetElementSymbol(number): number for number in range(1, 119)}


def build_molecule(symbols: Sequence[str], pairs: Sequence[Sequence[int]], orders: Sequence[float]) -> Any:
    """An RDKit molecule of exactly these atoms and bonds; None if a symbol is no element.

    Valences are not checked: datasets often leave out charges, so that RDKit would reject many real molecules.
    """
    from rdkit import Chem

    bond_types = {1.5: Chem.BondType.AROMATIC, 2.0: Chem.BondType.DOUBLE, 3.0: Chem.BondType.TRIPLE}
    numbers = atomic_numbers()
    if not set(symbols) <= numbers.keys():
        return None
    molecule = Chem.RWMol()
    for symbol in symbols:
        atom = Chem.Atom(numbers[symbol])
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    for (source, end), order in zip(pairs, orders, strict=True):
        if source != end:
            molecule.AddBond(source, end, bond_types.get(float(order), Chem.BondType.SINGLE))
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    return molecule
