"""Explanations of molecules, drawn by RDKit."""

from __future__ import annotations

from typing import Any

from torch_geometric.explain import Explanation

from nseg.errors import InputError, MissingError
from nseg.plot import colours
from nseg.plot.chemistry import BOND_LENGTH, atomic_numbers, build_molecule
from nseg.plot.explained_graph import GraphData
from nseg.plot.scene import Node, Scene, scene, typical_edge_length


def molecule(
    explanation: Explanation, data: GraphData = None, *, width: int = 480, height: int = 360, **scene_options: Any
) -> str:
    """RDKit's drawing of a molecule as SVG, with the kept bonds and atoms highlighted.

    Args:
        explanation: the explanation.
        data: what was explained: a dataset of molecules, or graphs with ``smiles``, ``rdmol`` or elements as ``node_names``.
        width, height: size of the picture in pixels.
        **scene_options: options of :func:`nseg.plot.scene`, such as ``hydrogens=False``.
    """
    try:
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError as error:
        raise MissingError('Molecules need RDKit (it is not installed). Install it: pip install "nseg[plot]".') from error
    shown = scene(explanation, data, **scene_options)
    drawn = _placed_molecule(shown) if shown.molecule else None
    if drawn is None:
        raise InputError(
            "The explained graph must be a molecule: nodes named by chemical elements, or data= with smiles or rdmol (got "
            f"another graph). {shown.hint or 'Use nseg.plot.explanation for other graphs.'}"
        )
    page = rdMolDraw2D.MolDraw2DSVG(width, height)
    options: Any = page.drawOptions()
    options.prepareMolsBeforeDrawing = False
    options.highlightBondWidthMultiplier, options.highlightRadius = 14, 0.42
    options.setHighlightColour(_rgb(colours.BAND))
    options.updateAtomPalette({atomic_numbers()[symbol]: _rgb(colour) for symbol, colour in colours.ATOMS.items()})
    ends = [(e.source, e.end) for e in shown.edges if e.kept and e.source != e.end]
    kept_bonds = [drawn.GetBondBetweenAtoms(*pair).GetIdx() for pair in ends]
    kept_atoms = [n for n, node in enumerate(shown.nodes) if node.kept]
    page.DrawMolecule(
        drawn,
        highlightAtoms=kept_atoms,
        highlightAtomColors={n: _atom_colour(shown.nodes[n]) for n in kept_atoms},
        highlightBonds=kept_bonds,
        highlightBondColors=dict.fromkeys(kept_bonds, _rgb(colours.BAND)),
    )
    page.FinishDrawing()
    text: str = page.GetDrawingText()
    return text[text.index("<svg") :]


def _atom_colour(atom: Node) -> tuple[float, ...]:
    """Colour of a kept atom: the paler, the fewer of its features are kept."""
    strength = 0.2 + 0.5 * (atom.share or 0.0) if atom.partial else 1.0
    return tuple(1 - strength * (1 - part) for part in _rgb("#6FB1DB"))


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))


def _placed_molecule(shown: Scene) -> Any:
    """The RDKit molecule of a scene, with each atom at its position in the scene."""
    from rdkit import Chem
    from rdkit.Geometry import Point3D

    ends = [(e.source, e.end) for e in shown.edges]
    drawn = build_molecule([n.symbol for n in shown.nodes], ends, [e.order for e in shown.edges])
    if drawn is None:
        return None
    conformer, scale = Chem.Conformer(len(shown.nodes)), BOND_LENGTH / (typical_edge_length(shown) or 1.0)
    conformer.Set3D(False)
    for n, node in enumerate(shown.nodes):
        conformer.SetAtomPosition(n, Point3D(scale * node.x, scale * node.y, 0.0))
        drawn.GetAtomWithIdx(n).SetNumExplicitHs(node.hydrogens)
        drawn.GetAtomWithIdx(n).SetFormalCharge(node.charge)
    drawn.AddConformer(conformer)
    return drawn
