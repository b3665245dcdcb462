"""Several graphs, however they are given, as a sequence with one graph per element."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from torch.utils.data import RandomSampler
from torch_geometric.data import Batch, Data, Dataset, HeteroData

from nseg.errors import InputError, NsegWarning


def separate_graphs(data: Any) -> Sequence[Data | HeteroData] | Dataset:
    """One graph per element, in order, from a batch, a loader, a dataset, or any iterable of graphs and batches.

    A dataset, or another sequence without batches, stays as it is, so that its graphs are read when they are needed.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, Batch):
        data = [data]
    if not isinstance(data, Iterable) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        data = [data[number] for number in range(len(data))]  # e.g. a Subset of torch
    if not isinstance(data, Iterable) or isinstance(data, Data | HeteroData | str | bytes):
        raise _not_graphs(data)
    if isinstance(getattr(data, "sampler", None), RandomSampler):
        warnings.warn(
            "The loader shuffles its graphs: output_id counts them in the order of this pass, which the next pass will not "
            "repeat. Use shuffle=False.",
            NsegWarning,
            stacklevel=4,
        )
    graphs: list[Data | HeteroData] = []
    batches = False
    for one in data:
        if not isinstance(one, Data | HeteroData):
            raise _not_graphs(one)
        batches |= isinstance(one, Batch)
        graphs += _members(one) if isinstance(one, Batch) else [one]
    if len({isinstance(one, HeteroData) for one in graphs}) > 1:
        raise InputError(
            "The graphs must be all homogeneous or all heterogeneous (got Data and HeteroData in one sequence). Call "
            "explain_many once for each kind."
        )
    return graphs if batches or not isinstance(data, Sequence) else data


def _members(batch: Batch) -> list[Data | HeteroData]:
    """The graphs that a batch was made of."""
    try:
        members: list[Data | HeteroData] = batch.to_data_list()
    except (RuntimeError, KeyError, AttributeError):
        raise InputError(
            "A Batch must know the graphs that it was made of (got one without them). Make it with Batch.from_data_list, or "
            "give the graphs themselves."
        ) from None
    return members


def _not_graphs(data: Any) -> InputError:
    return InputError(f"data must be a PyG graph, or a sequence of graphs (got {type(data).__name__}).")
