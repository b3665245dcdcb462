"""Molecules from atoms and bonds, by RDKit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from torch_geometric.explain import Explanation

from nseg.datasets import Benchmark
from nseg.errors import InputError, MissingError
from nseg.plot import colours
from nseg.plot.scene import Scene, bond_length, scene

BOND = 1.5
"""Length of a bond, as RDKit has it."""


def coordinates(
    symbols: Sequence[str], pairs: Sequence[Sequence[int]], orders: Sequence[float]
) -> list[tuple[float, float]] | None:
    """Where a chemist draws the atoms; None where RDKit is not installed or does not know them.

    Args:
        symbols: of the atoms.
        pairs: which of them are bound.
        orders: of the bonds.
    """
    try:
        from rdkit.Chem import rdDepictor
    except ImportError:
        return None
    molecule = build(symbols, pairs, orders)
    if molecule is None:
        return None
    rdDepictor.Compute2DCoords(molecule, canonOrient=True)
    conformer = molecule.GetConformer()
    return [(p.x, p.y) for p in (conformer.GetAtomPosition(n) for n in range(len(symbols)))]


@cache
def elements() -> dict[str, int]:
    """The number of each chemical element."""
    from rdkit import Chem

    return {Chem.GetPeriodicTable().GetElementSymbol(number): number for number in range(1, 119)}


def build(symbols: Sequence[str], pairs: Sequence[Sequence[int]], orders: Sequence[float]) -> Any:
    """A molecule to draw, exactly these atoms and bonds; None if one of them is no element.

    It is not checked against the rules of valence: data leaves charges out, so one that they reject is usual.
    """
    from rdkit import Chem

    kinds = {1.5: Chem.BondType.AROMATIC, 2.0: Chem.BondType.DOUBLE, 3.0: Chem.BondType.TRIPLE}
    numbers = elements()
    if not set(symbols) <= numbers.keys():
        return None
    molecule = Chem.RWMol()
    for symbol in symbols:
        atom = Chem.Atom(numbers[symbol])
        atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    for (source, end), order in zip(pairs, orders, strict=True):
        if source != end:
            molecule.AddBond(source, end, kinds.get(float(order), Chem.BondType.SINGLE))
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    return molecule


def molecule(one: Explanation, data: Benchmark | None = None, *, width: int = 480, height: int = 360, **how: Any) -> str:
    """An explanation of a molecule as RDKit draws molecules, in SVG; kept bonds and atoms are highlighted.

    Args:
        one: the explanation.
        data: its dataset, whose ``node_names`` are elements and whose ``bonds`` are known.
        width, height: of the picture in pixels.
        **how: what :func:`nseg.plot.scene` takes, such as ``hydrogens=False``.
    """
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        raise MissingError('Molecules need RDKit (it is not installed). Get it: pip install "nseg[plot]".') from error
    shown = scene(one, data, **how)
    drawn = _placed(shown)
    if not shown.molecule or drawn is None:
        raise InputError("Atoms must be chemical elements (got others, or no dataset). Use nseg.plot.explanation.")
    page = rdMolDraw2D.MolDraw2DSVG(width, height)
    options: Any = page.drawOptions()
    options.prepareMolsBeforeDrawing = False
    options.highlightBondWidthMultiplier, options.highlightRadius = 14, 0.42
    options.setHighlightColour(_rgb(colours.BAND))
    options.updateAtomPalette({elements()[symbol]: _rgb(colour) for symbol, colour in colours.ATOMS.items()})
    ends = [(e.source, e.end) for e in shown.edges if e.kept and e.source != e.end]
    bonds = [drawn.GetBondBetweenAtoms(*pair).GetIdx() for pair in ends]
    marked = [n for n, node in enumerate(shown.nodes) if node.kept]
    page.DrawMolecule(
        drawn,
        highlightAtoms=marked,
        highlightAtomColors=dict.fromkeys(marked, _rgb("#6FB1DB")),
        highlightBonds=bonds,
        highlightBondColors=dict.fromkeys(bonds, _rgb(colours.BAND)),
    )
    page.FinishDrawing()
    text: str = page.GetDrawingText()
    return text[text.index("<svg") :]


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))


def _placed(shown: Scene) -> Any:
    """The molecule of a scene with its atoms where the scene has them."""
    from rdkit import Chem
    from rdkit.Geometry import Point3D

    ends = [(e.source, e.end) for e in shown.edges]
    drawn = build([n.name for n in shown.nodes], ends, [e.order for e in shown.edges])
    if drawn is None:
        return None
    conformer, scale = Chem.Conformer(len(shown.nodes)), BOND / (bond_length(shown) or 1.0)
    conformer.Set3D(False)
    for n, node in enumerate(shown.nodes):
        conformer.SetAtomPosition(n, Point3D(scale * node.x, scale * node.y, 0.0))
        drawn.GetAtomWithIdx(n).SetNumExplicitHs(node.hydrogens)
    drawn.AddConformer(conformer)
    return drawn
