"""Sparse adjacency matrices as edges, and back: ``torch.sparse`` (COO, CSR, CSC) and ``SparseTensor`` of torch_sparse.

PyG's convention holds: entry (i, j) is a message from j to i, so the matrix is the transposed adjacency, ``adj_t``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import is_sparse, to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

BUILDERS = {
    torch.sparse_coo: to_torch_coo_tensor,
    torch.sparse_csr: to_torch_csr_tensor,
    torch.sparse_csc: to_torch_csc_tensor,
}
"""Makes a matrix from edges, values and size, by layout."""


def is_matrix(value: Any) -> bool:
    """Whether a value is a sparse matrix."""
    return bool(is_sparse(value))


def without_duplicates(matrix: Any) -> Any:
    """The matrix with one entry per pair of nodes; those of a COO matrix may stand in it several times, to be added up."""
    uncoalesced = isinstance(matrix, Tensor) and matrix.layout is torch.sparse_coo and not matrix.is_coalesced()
    return matrix.coalesce() if uncoalesced else matrix


def matrix_edges(matrix: Any) -> tuple[Tensor, Tensor | None]:
    """Sender and receiver of each entry, [2, E], in the matrix's own order, and the values; None if it has none.

    >>> matrix_edges(torch.tensor([[0.0, 2.0], [0.0, 0.0]]).to_sparse_csr())
    (tensor([[1],
            [0]]), tensor([2.]))
    """
    if isinstance(matrix, SparseTensor):
        row, col, value = matrix.coo()
    elif matrix.layout is torch.sparse_coo:
        (row, col), value = matrix._indices(), matrix._values()
    elif matrix.layout is torch.sparse_csr:
        row, col, value = _expand(matrix.crow_indices()), matrix.col_indices(), matrix.values()
    else:
        row, col, value = matrix.row_indices(), _expand(matrix.ccol_indices()), matrix.values()
    return torch.stack([col, row]).long(), value


def _expand(ptr: Tensor) -> Tensor:
    """Row of each entry from the offsets of the rows."""
    return torch.repeat_interleave(torch.arange(ptr.numel() - 1, device=ptr.device), ptr.diff())


@dataclass(frozen=True)
class MatrixForm:
    """The form in which a model takes its graph as a sparse matrix.

    Args:
        layout: one of ``torch.sparse``; None for a ``SparseTensor`` of torch_sparse.
    """

    layout: torch.layout | None

    @classmethod
    def of(cls, matrix: Any) -> MatrixForm:
        """The form of a matrix."""
        return cls(None if isinstance(matrix, SparseTensor) else matrix.layout)

    def order(self, edge_index: Tensor) -> Tensor:
        """The order in which edges stand in a matrix of this form, [E]."""
        major, minor = edge_index if self.layout is torch.sparse_csc else edge_index.flip(0)
        inner = torch.argsort(minor, stable=True)
        return inner[torch.argsort(major[inner], stable=True)]

    def matrix(self, edge_index: Tensor, value: Tensor | None, size: tuple[int, int]) -> Any:
        """The matrix of some edges, with a row per node that receives and a column per node that sends."""
        if self.layout is None:
            sender, receiver = edge_index
            return SparseTensor(row=receiver, col=sender, value=value, sparse_sizes=size)
        return BUILDERS[self.layout](edge_index.flip(0), value, size)
