"""ESOL: molecules and their measured solubility, a regression; molecules are built by RDKit."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from nseg.datasets.base import Benchmark
from nseg.datasets.tu import data_folder
from nseg.errors import InputError, MissingError

ATOMS = ("C", "O", "H", "N", "Cl", "S", "F", "P", "Br", "I")
BONDS = (1.0, 1.5, 2.0, 3.0)
COLUMNS = ("smiles", "log_solubility")


def esol(root: Path | None = None) -> Benchmark:
    """1128 molecules with their measured solubility in water, log10 of mol per litre; hydrogen atoms are nodes.

    Args:
        root: folder that may hold ``esol.csv``; otherwise the folder NSEG_DATA does.
    """
    folders = [folder for folder in (root, data_folder()) if folder is not None]
    path = next((folder / "esol.csv" for folder in folders if (folder / "esol.csv").is_file()), None)
    if path is None:
        raise InputError(
            f"esol must be provided as a file (got none in {', '.join(map(str, folders)) or 'NSEG_DATA, not set'}). "
            f"Put esol.csv, with the columns {' and '.join(COLUMNS)}, into FOLDER and set NSEG_DATA=FOLDER."
        )
    graphs = [molecule_graph(row["smiles"], float(row["log_solubility"])) for row in _rows(path)]
    return Benchmark(
        "esol", "graph", graphs, 1, torch.arange(min(250, len(graphs))), node_names=ATOMS, bonds=BONDS, mode="regression"
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows or not set(COLUMNS) <= rows[0].keys():
        raise InputError(f"{path.name} must have the columns {' and '.join(COLUMNS)} (got {list(rows[0]) if rows else []}).")
    return rows


def molecule_graph(smiles: str, value: float) -> Data:
    """A molecule as a graph: elements one-hot as ``x``, bond orders one-hot as ``edge_attr``, hydrogens as nodes.

    Args:
        smiles: the molecule.
        value: its measured value.
    """
    chemistry = _rdkit()
    parsed = chemistry.MolFromSmiles(smiles)
    if parsed is None:
        raise InputError(f"A molecule must be valid SMILES (got {smiles!r}). Remove its line.")
    molecule = chemistry.AddHs(parsed)
    symbols = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    unknown = set(symbols) - set(ATOMS)
    if unknown:
        raise InputError(f"Molecules must consist of {', '.join(ATOMS)} (got {', '.join(sorted(unknown))} in {smiles!r}).")
    ends = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in molecule.GetBonds()]
    orders = [BONDS.index(bond.GetBondTypeAsDouble()) for bond in molecule.GetBonds()]
    edge_index, order = to_undirected(
        torch.tensor(ends, dtype=torch.long).view(-1, 2).T, torch.tensor(orders, dtype=torch.long), len(symbols)
    )
    return Data(
        x=_one_hot(torch.tensor([ATOMS.index(symbol) for symbol in symbols]), len(ATOMS)),
        edge_index=edge_index,
        edge_attr=_one_hot(order, len(BONDS)),
        y=torch.tensor([value]),
        smiles=smiles,
    )


def _one_hot(kind: Tensor, number: int) -> Tensor:
    return torch.nn.functional.one_hot(kind, number).float()


def _rdkit() -> Any:
    try:
        from rdkit import Chem
    except ImportError as error:
        raise MissingError('Molecules need RDKit (it is not installed). Install it: pip install "nseg[plot]".') from error
    return Chem
