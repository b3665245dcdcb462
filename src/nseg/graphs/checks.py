"""Checks of what a caller gives: correct input comes back normalised, bad input becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import chain
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.explain.config import ModelTaskLevel

from nseg.adjacency import MatrixForm, is_matrix, matrix_edges, without_duplicates
from nseg.errors import InputError
from nseg.graphs.inputs import EDGE_VALUE, IMPLIED_BATCH, MATRIX, ModelInputs, Role
from nseg.graphs.model_checks import check_precision, forward_parameters


def takes_argument(model: nn.Module, name: str) -> bool:
    """Whether the model's ``forward`` has a parameter of that name."""
    return name in forward_parameters(model)


def argument_names(model: nn.Module, data: Data) -> list[str]:
    """Attributes of a graph that the model takes besides ``x`` and its edges, which are its first two arguments."""
    edges = list(forward_parameters(model))[1:2]
    return [k for k in data.to_dict() if k not in ("x", "edge_index", "y", *edges) and takes_argument(model, k)]


def edges_of(model: nn.Module, data: Data) -> Any:
    """What a model takes as its second argument: ``edge_index``, or the sparse matrix ``adj_t``.

    The matrix is taken if there is no ``edge_index`` (``T.ToSparseTensor`` replaces it), or if the model names its argument
    ``adj_t``.
    """
    matrix = data.get("adj_t")
    named = list(forward_parameters(model))[1:2] == ["adj_t"]
    return matrix if is_matrix(matrix) and (named or data.get("edge_index") is None) else data.edge_index


def matrix_as_edges(data: Any) -> tuple[Any, MatrixForm | None]:
    """A graph that is given as ``adj_t`` only, with its edges, and the form of the matrix; any other graph as it is."""
    matrix = data.get("adj_t") if isinstance(data, Data) else None
    if not is_matrix(matrix) or data.get("edge_index") is not None:
        return data, None
    edge_index, value = matrix_edges(without_duplicates(matrix))
    found = copy(data)
    found.edge_index, found[EDGE_VALUE] = edge_index, value
    return found, MatrixForm.of(matrix)


def check_inputs(model: nn.Module, x: Any, edge_index: Any, kwargs: Mapping[str, Any], level: ModelTaskLevel) -> ModelInputs:
    """The model's arguments, checked.

    Node numbers become ``torch.long``, a single pair of nodes [2] becomes [2, 1], and a sparse matrix becomes edges, with
    the matrix's form among the arguments.
    """
    _check_features(x)
    matrix: dict[str, Any] = {}
    if is_matrix(edge_index):
        edge_index, matrix = _check_matrix(edge_index, x)
    _check_edges(x, edge_index)
    check_precision("x", x)
    edge_index = as_long(edge_index)
    kwargs = {name: leave_inference_mode(value) for name, value in {**kwargs, **matrix}.items()}
    check_node_numbers("edge_index", edge_index, x.size(0))
    pairs_name, pairs = find_pairs(kwargs, x.size(0)) if level is ModelTaskLevel.edge else (None, None)
    if pairs_name is not None:
        kwargs[pairs_name] = pairs
    shown = {"the matrix" if name == EDGE_VALUE else name: value for name, value in kwargs.items()}
    check_devices(model, {"x": x, "edge_index": edge_index, **shown})
    _check_values({"x": x, **kwargs}, edge_index.size(1))
    if level is ModelTaskLevel.graph and kwargs.get("batch") is None and takes_argument(model, "batch"):
        kwargs["batch"] = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        if forward_parameters(model)["batch"].default is None:
            kwargs[IMPLIED_BATCH] = True
    return ModelInputs(leave_inference_mode(x).detach(), leave_inference_mode(edge_index), kwargs, pairs_name)


def _check_features(x: Any) -> None:
    if not isinstance(x, Tensor) or x.layout is not torch.strided:
        kind = "a sparse tensor" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x must be a dense tensor [nodes, features] (got {kind}). Use to_dense() on a sparse one.")
    if x.dim() == 0 or x.size(0) == 0:
        raise InputError(f"x must have at least one node (got shape {tuple(x.shape)}).")


def _check_matrix(matrix: Any, x: Tensor) -> tuple[Tensor, dict[str, Any]]:
    """The edges of a sparse adjacency matrix [N, N], and the arguments that hold its form and values."""
    rows, columns = int(matrix.size(0)), int(matrix.size(1))
    if rows != len(x) or columns != len(x):
        raise InputError(
            f"A sparse adjacency matrix must have a row and a column per node, {len(x)} each, because x has {len(x)} rows "
            f"(got {rows} rows and {columns} columns)."
        )
    edge_index, value = matrix_edges(without_duplicates(matrix))
    return edge_index, {MATRIX: MatrixForm.of(matrix)} | ({} if value is None else {EDGE_VALUE: value.detach()})


def _check_edges(x: Tensor, edge_index: Any) -> None:
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
        kind = type(edge_index).__name__
        raise InputError(
            f"edge_index must be an integer tensor [2, E], or a sparse matrix [N, N] (got {kind}). Give data.edge_index."
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or not is_integer(edge_index):
        swapped = x.dim() == 2 and x.size(0) == 2 and is_integer(x)
        raise InputError(
            f"edge_index must be a torch.long tensor [2, E] (got {edge_index.dtype} of shape {tuple(edge_index.shape)})."
            + (" Were x and edge_index swapped?" if swapped else "")
        )


def find_pairs(kwargs: Mapping[str, Any], nodes: int) -> tuple[str | None, Tensor | None]:
    """The argument that holds the node pairs which a link model scores, and the pairs, [2, P]."""
    given = kwargs.get("edge_label_index")
    if given is not None and not _is_pair_index("edge_label_index", given):
        kind = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise InputError(
            f"edge_label_index must be a tensor of node numbers, [2, pairs] (got {kind}). Try torch.tensor([[a], [b]])."
        )
    found = [name for name, value in kwargs.items() if _is_pair_index(name, value)]
    if not found:
        return None, None
    name = found[0] if given is None else "edge_label_index"
    if not kwargs[name].numel():
        raise InputError(f"{name} must hold at least one pair of nodes (got none).")
    pairs = as_long(kwargs[name]).reshape(2, -1)
    check_node_numbers(name, pairs, nodes)
    return name, pairs


def is_integer(value: Tensor) -> bool:
    """Whether a tensor holds whole numbers."""
    return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def as_long(value: Tensor) -> Tensor:
    """Node numbers as a plain ``torch.long`` tensor, also from an ``EdgeIndex`` of PyG."""
    plain: Tensor = value.as_tensor() if isinstance(value, EdgeIndex) else value.as_subclass(Tensor)
    return plain.long()


def leave_inference_mode(value: Any) -> Any:
    """A tensor that autograd can save; tensors made in inference mode are copied."""
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


def _is_pair_index(name: str, value: Any) -> bool:
    """Whether an argument holds pairs of nodes: [2, P], or [2] for one pair by the name that PyG uses."""
    dims = (1, 2) if name == "edge_label_index" else (2,)
    return "index" in name and isinstance(value, Tensor) and value.dim() in dims and len(value) == 2 and is_integer(value)


def check_node_numbers(name: str, ends: Tensor, nodes: int) -> None:
    """Raise unless all numbers are those of nodes."""
    if ends.device.type != "meta" and ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < nodes:
        raise InputError(
            f"{name} must hold node numbers from 0 to {nodes - 1}, because x has {nodes} rows "
            f"(got {int(ends.min())} to {int(ends.max())})."
        )


def model_device(model: nn.Module) -> torch.device:
    """The device that a model is on; the CPU if it has no tensors."""
    return next((value.device for value in chain(model.parameters(), model.buffers())), torch.device("cpu"))


def check_devices(model: nn.Module, given: Mapping[str, Any]) -> None:
    """Raise unless model and tensors are on one device and of one floating point type."""
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    devices = {name: value.device for name, value in tensors.items()}
    if parameter is not None:
        devices["the model"] = parameter.device
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise InputError(f"Model and data must be on one device (got {found}). Move them with .to(device).")
    for name, value in tensors.items():
        if parameter is not None and value.is_floating_point() and value.dtype is not parameter.dtype:
            raise InputError(
                f"{name} must have the model's dtype {parameter.dtype} (got {value.dtype}). "
                f"Use {name}.to({parameter.dtype}) or model.to(...)."
            )


def _check_values(given: Mapping[str, Any], edges: int) -> None:
    for name, value in given.items():
        dense = isinstance(value, Tensor) and value.layout is torch.strided
        if name == "batch" and value is not None and not dense:
            kind = "a sparse tensor" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(
                f"batch must be a tensor with the graph of each node (got {kind}). Omit it if there is one graph."
            )
        if not dense:
            continue
        check_finite(name, value)
        if name in ("edge_weight", "edge_attr", "edge_type") and value.shape[:1] != (edges,):
            raise InputError(f"{name} must have one entry per edge, {edges} (got shape {tuple(value.shape)}).")
        valid_batch = value.dtype is torch.long and value.shape == given["x"].shape[:1] and bool((value >= 0).all())
        if name == "batch" and not valid_batch:
            raise InputError(
                "batch must give the graph of each node as whole numbers from 0, torch.long of shape "
                f"({len(given['x'])},) (got {value.dtype} of shape {tuple(value.shape)}). Omit it if there is one graph."
            )


def check_finite(name: str, value: Tensor) -> None:
    """Raise if a tensor holds NaN or infinity."""
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        where = (~torch.isfinite(value)).nonzero()
        first = where[0].tolist()
        raise InputError(
            f"{name} must be finite (got {float(value[tuple(first)])} in {name}{first}, the first of {len(where)} such "
            "entries). Clean it, e.g. with torch.nan_to_num."
        )


def check_index(index: Any, number: int) -> Tensor:
    """Row numbers from an int, a list, a range, a slice or a tensor (also boolean); None means all ``number`` rows.

    Negative numbers count from the end.

    >>> check_index(-1, 5), check_index(slice(3, None), 5)
    (tensor([4]), tensor([3, 4]))
    """
    if index is None:
        return torch.arange(number)
    if isinstance(index, slice):
        index = torch.arange(number)[_check_slice(index)]
    try:
        row = torch.as_tensor(list(index) if isinstance(index, Iterable) and not isinstance(index, Tensor | str) else index)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"index must be a number, a slice, a sequence of numbers or a tensor (got {index!r}). Try range(a, b)."
        ) from None
    if row.dtype is torch.bool:
        if row.shape != (number,):
            raise InputError(f"A boolean index must have {number} entries, one per output (got {tuple(row.shape)}).")
        row = row.nonzero()
    row = row.flatten()
    if row.numel() == 0:
        raise InputError("index must name at least one output (got an empty index). Use None for all outputs.")
    if row.is_floating_point() or row.is_complex():
        raise InputError(f"index must hold whole numbers (got {row.dtype}).")
    if int(row.min()) < -number or int(row.max()) >= number:
        raise InputError(
            f"index must be between 0 and {number - 1}, or from -{number} to -1 to count from the end, because there are "
            f"{number} outputs (got {int(row.min())} to {int(row.max())})."
        )
    return torch.where(row < 0, row + number, row).long()


def _check_slice(index: slice) -> slice:
    parts = (index.start, index.stop, index.step)
    whole = all(part is None or (isinstance(part, Integral) and not isinstance(part, bool)) for part in parts)
    if not whole or (index.step is not None and index.step < 1):
        raise InputError(
            f"A slice of outputs must consist of whole numbers and go forwards (got {index}). Try slice(a, b), or "
            "range(b, a, -1) to go backwards."
        )
    return index


def output_role(inputs: ModelInputs, level: ModelTaskLevel) -> tuple[Role, int]:
    """What a row of a model's output stands for, and the expected number of rows."""
    if level is ModelTaskLevel.graph:
        return Role.GRAPH, inputs.num_graphs
    if level is ModelTaskLevel.node:
        return Role.NODE, inputs.num_nodes
    if inputs.pairs is not None:
        return Role.PAIR, inputs.pairs.size(1)
    return Role.EDGE, inputs.num_edges


def check_alike(graphs: Sequence[ModelInputs], numbers: Sequence[int]) -> None:
    """Raise unless all graphs have the features and arguments that the first one has."""
    first = graphs[0]
    for one, number in zip(graphs, numbers, strict=True):
        if one.x.shape[1:] != first.x.shape[1:] or one.x.dtype is not first.x.dtype:
            raise InputError(
                f"All graphs must have features of one shape (got {tuple(first.x.shape[1:])} in graph {numbers[0]} and "
                f"{tuple(one.x.shape[1:])} in graph {number})."
            )
        for name in first.kwargs.keys() | one.kwargs.keys():
            if (first.kwargs.get(name) is None) != (one.kwargs.get(name) is None):
                if name == IMPLIED_BATCH and one.num_graphs > 1:
                    continue  # refused for that
                shown = "batch" if name == IMPLIED_BATCH else name
                raise InputError(
                    f"All graphs must have the same model arguments (got {shown} in only one of graphs {numbers[0]} and "
                    f"{number}). Set it on all of them or on none."
                )
